/* texture.c: texture and surface objects, which describe memory that kernels may access. The
 * interpreter has no texture instructions. A new object is checked as in the driver; its memory is
 * neither accessed nor kept alive. */
#include <stdlib.h>

#include "sim/memory/array.h"

#define LINEAR_ALIGNMENT 512u
#define PITCH_ALIGNMENT  32u

enum object_kind { OBJECT_TEXTURE, OBJECT_SURFACE };

struct object {
        struct object *next;
        unsigned long long id; /* the handle that the program holds */
        enum object_kind kind;
        CUcontext context;
        CUDA_RESOURCE_DESC resource;
        CUDA_TEXTURE_DESC texture;
        CUDA_RESOURCE_VIEW_DESC view;
        bool viewed;
};

static struct object *objects;
static unsigned long long last_id;

static CUresult resource_check(const CUDA_RESOURCE_DESC *d, enum object_kind kind)
{
        bool known;

        switch (d->resType) {
        case CU_RESOURCE_TYPE_ARRAY:
                pthread_mutex_lock(&sim.lock);
                known = array_find(d->res.array.hArray) != NULL;
                pthread_mutex_unlock(&sim.lock);
                return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
        case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
                pthread_mutex_lock(&sim.lock);
                known = mipmap_find(d->res.mipmap.hMipmappedArray) != NULL;
                pthread_mutex_unlock(&sim.lock);
                if (kind == OBJECT_SURFACE)
                        return CUDA_ERROR_INVALID_VALUE;
                return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
        case CU_RESOURCE_TYPE_LINEAR:
                if (kind == OBJECT_SURFACE || d->res.linear.sizeInBytes == 0 ||
                    d->res.linear.devPtr % LINEAR_ALIGNMENT)
                        return CUDA_ERROR_INVALID_VALUE;
                return CUDA_SUCCESS;
        case CU_RESOURCE_TYPE_PITCH2D:
                if (kind == OBJECT_SURFACE || d->res.pitch2D.width == 0 ||
                    d->res.pitch2D.height == 0 || d->res.pitch2D.pitchInBytes % PITCH_ALIGNMENT ||
                    d->res.pitch2D.devPtr % LINEAR_ALIGNMENT)
                        return CUDA_ERROR_INVALID_VALUE;
                return CUDA_SUCCESS;
        default:
                return CUDA_ERROR_INVALID_VALUE;
        }
}

static CUresult object_new(CUcontext c, enum object_kind kind, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *texture, const CUDA_RESOURCE_VIEW_DESC *view,
                           unsigned long long *ret_id)
{
        CUresult r = resource_check(resource, kind);
        struct object *o;

        if (r != CUDA_SUCCESS)
                return r;
        o = calloc(1, sizeof(*o));
        if (!o)
                return CUDA_ERROR_OUT_OF_MEMORY;
        o->kind = kind;
        o->context = c;
        o->resource = *resource;
        if (texture)
                o->texture = *texture;
        if (view) {
                o->view = *view;
                o->viewed = true;
        }
        pthread_mutex_lock(&sim.lock);
        *ret_id = o->id = ++last_id;
        o->next = objects;
        objects = o;
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

/* Needs sim.lock. */
static struct object **object_find(enum object_kind kind, unsigned long long id)
{
        struct object **link = &objects;

        while (*link && ((*link)->id != id || (*link)->kind != kind))
                link = &(*link)->next;
        return *link ? link : NULL;
}

static CUresult object_destroy(const char *function, enum object_kind kind, unsigned long long id)
{
        CUresult r = api_enter(function, API_CONTEXT, NULL);
        struct object **link, *o;

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        link = object_find(kind, id);
        o = link ? *link : NULL;
        if (o)
                *link = o->next;
        pthread_mutex_unlock(&sim.lock);
        free(o);
        return CUDA_SUCCESS; /* success even if the object does not exist */
}

/* Returns a copy of an object, because another thread could free the object. */
static CUresult object_look(const char *function, enum object_kind kind, unsigned long long id,
                            struct object *ret_object)
{
        CUresult r = api_enter(function, API_CONTEXT, NULL);
        struct object **link;

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        link = object_find(kind, id);
        if (link)
                *ret_object = **link;
        pthread_mutex_unlock(&sim.lock);
        return link ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

void texture_forget_context(CUcontext c)
{
        for (struct object **link = &objects; *link;) {
                struct object *o = *link;

                if (o->context == c) {
                        *link = o->next;
                        free(o);
                } else {
                        link = &o->next;
                }
        }
}

EXPORT CUresult cuTexObjectCreate(CUtexObject *ret_object, const CUDA_RESOURCE_DESC *resource,
                                  const CUDA_TEXTURE_DESC *texture,
                                  const CUDA_RESOURCE_VIEW_DESC *view)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_object || !resource || !texture)
                return CUDA_ERROR_INVALID_VALUE;
        return object_new(c, OBJECT_TEXTURE, resource, texture, view, ret_object);
}

EXPORT CUresult cuTexObjectDestroy(CUtexObject object)
{
        return object_destroy(__func__, OBJECT_TEXTURE, object);
}

#define LOOK(function, type, kind, member, condition)                  \
        EXPORT CUresult function(type *ret, unsigned long long object) \
        {                                                              \
                struct object o;                                       \
                CUresult r = object_look(__func__, kind, object, &o);  \
                                                                       \
                if (r == CUDA_SUCCESS && (!ret || !(condition)))       \
                        r = CUDA_ERROR_INVALID_VALUE;                  \
                if (r == CUDA_SUCCESS)                                 \
                        *ret = o.member;                               \
                return r;                                              \
        }

LOOK(cuTexObjectGetResourceDesc, CUDA_RESOURCE_DESC, OBJECT_TEXTURE, resource, true)
LOOK(cuTexObjectGetTextureDesc, CUDA_TEXTURE_DESC, OBJECT_TEXTURE, texture, true)
LOOK(cuTexObjectGetResourceViewDesc, CUDA_RESOURCE_VIEW_DESC, OBJECT_TEXTURE, view, o.viewed)
LOOK(cuSurfObjectGetResourceDesc, CUDA_RESOURCE_DESC, OBJECT_SURFACE, resource, true)

EXPORT CUresult cuSurfObjectCreate(CUsurfObject *ret_object, const CUDA_RESOURCE_DESC *resource)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_object || !resource)
                return CUDA_ERROR_INVALID_VALUE;
        return object_new(c, OBJECT_SURFACE, resource, NULL, NULL, ret_object);
}

EXPORT CUresult cuSurfObjectDestroy(CUsurfObject object)
{
        return object_destroy(__func__, OBJECT_SURFACE, object);
}
