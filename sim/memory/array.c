/* array.c: arrays and mipmapped arrays: one-, two- and three-dimensional, layered, cube maps. Must
 * never hand out an array's address. Planes, sparse and deferred arrays are not supported. */
#include "sim/memory/array.h"

#include <stdlib.h>

#include "base/macros.h"
#include "sim/session/fault.h"
#include "sim/memory/memory.h"
#include "sim/queue/stream.h"

#define LEVELS_MAX 17u /* levels of a mipmap with an edge of 65536 */
#define WIDTH_MAX  131072u
#define HEIGHT_MAX 65536u
#define SOLID_MAX  16384u /* each edge of a three-dimensional array */
#define LAYERS_MAX 2048u

struct CUmipmappedArray_st {
        CUmipmappedArray next;
        CUcontext context;
        unsigned levels;
        CUarray level[LEVELS_MAX];
};

static CUarray arrays;
static CUmipmappedArray mipmaps;

CUarray array_find(CUarray handle)
{
        CUarray a = arrays;

        while (a && a != handle)
                a = a->next;
        return a;
}

CUmipmappedArray mipmap_find(CUmipmappedArray handle)
{
        CUmipmappedArray m = mipmaps;

        while (m && m != handle)
                m = m->next;
        return m;
}

static size_t format_bytes(CUarray_format format)
{
        switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
                return 1;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
                return 2;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
                return 4;
        default:
                return 0;
        }
}

static bool shape_is_possible(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
        bool layered = d->Flags & CUDA_ARRAY3D_LAYERED, cube = d->Flags & CUDA_ARRAY3D_CUBEMAP;

        if (!format_bytes(d->Format) ||
            (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4) || d->Width == 0 ||
            d->Width > WIDTH_MAX || d->Height > HEIGHT_MAX)
                return false;
        if (cube)
                return d->Width == d->Height && d->Depth % 6 == 0 && d->Depth > 0 &&
                       (layered ? d->Depth <= LAYERS_MAX : d->Depth == 6);
        if (layered)
                return d->Depth > 0 && d->Depth <= LAYERS_MAX;
        return d->Depth == 0 || (d->Height > 0 && d->Depth <= SOLID_MAX && d->Width <= SOLID_MAX &&
                                 d->Height <= SOLID_MAX);
}

/* Takes sim.lock itself. */
static CUresult array_new(CUcontext c, const CUDA_ARRAY3D_DESCRIPTOR *d, CUmipmappedArray mipmap,
                          CUarray *ret_array)
{
        CUarray a;
        CUresult r;

        if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
                return CUDA_ERROR_NOT_SUPPORTED;
        if (!shape_is_possible(d))
                return CUDA_ERROR_INVALID_VALUE;
        a = calloc(1, sizeof(*a));
        if (!a)
                return CUDA_ERROR_OUT_OF_MEMORY;
        a->context = c;
        a->shape = *d;
        a->mipmap = mipmap;
        a->element = format_bytes(d->Format) * d->NumChannels;
        a->pitch = d->Width * a->element;
        a->rows = MAX(d->Height, 1U);
        a->slices = MAX(d->Depth, 1U);
        r = memory_allocate(c, a->pitch * a->rows * a->slices, &a->at);
        if (r != CUDA_SUCCESS) {
                free(a);
                return r;
        }
        pthread_mutex_lock(&sim.lock);
        a->next = arrays;
        arrays = a;
        pthread_mutex_unlock(&sim.lock);
        *ret_array = a;
        return CUDA_SUCCESS;
}

/* Removes an array from the list and keeps its memory. Needs sim.lock. */
static void array_unlink(CUarray a)
{
        CUarray *link = &arrays;

        while (*link != a)
                link = &(*link)->next;
        *link = a->next;
}

static void array_free(CUarray a)
{
        (void)memory_free(a->at);
        free(a);
}

void array_forget_context(CUcontext c)
{
        for (CUarray a = arrays, next; a; a = next) {
                next = a->next;
                if (a->context == c) {
                        array_unlink(a);
                        free(a);
                }
        }
        for (CUmipmappedArray *link = &mipmaps; *link;) {
                CUmipmappedArray m = *link;

                if (m->context == c) {
                        *link = m->next;
                        free(m);
                } else {
                        link = &m->next;
                }
        }
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);

        if (r != CUDA_SUCCESS)
                return r;
        return ret_array && shape ? array_new(c, shape, NULL, ret_array) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuArrayCreate_v2(CUarray *ret_array, const CUDA_ARRAY_DESCRIPTOR *shape)
{
        CUDA_ARRAY3D_DESCRIPTOR d;
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_array || !shape)
                return CUDA_ERROR_INVALID_VALUE;
        d = (CUDA_ARRAY3D_DESCRIPTOR){.Width = shape->Width,
                                      .Height = shape->Height,
                                      .Format = shape->Format,
                                      .NumChannels = shape->NumChannels};
        return array_new(c, &d, NULL, ret_array);
}

EXPORT CUresult cuArrayDestroy(CUarray array)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);
        CUarray a;

        if (r != CUDA_SUCCESS)
                return r;
        r = context_wait(c); /* copies in flight may use the array */
        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        a = array_find(array);
        if (a && !a->mipmap)
                array_unlink(a);
        pthread_mutex_unlock(&sim.lock);
        if (!a)
                return CUDA_ERROR_INVALID_HANDLE;
        if (!a->mipmap) /* a level is freed with its mipmap */
                array_free(a);
        return CUDA_SUCCESS;
}

static CUresult array_look(const char *function, CUarray array, CUDA_ARRAY3D_DESCRIPTOR *ret_shape)
{
        CUresult r = api_enter(function, API_CONTEXT, NULL);
        CUarray a;

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        a = array_find(array);
        if (a)
                *ret_shape = a->shape;
        pthread_mutex_unlock(&sim.lock);
        return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *ret_shape, CUarray array)
{
        CUDA_ARRAY3D_DESCRIPTOR d;
        CUresult r = array_look(__func__, array, &d);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_shape)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_shape = d;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *ret_shape, CUarray array)
{
        CUDA_ARRAY3D_DESCRIPTOR d;
        CUresult r = array_look(__func__, array, &d);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_shape || d.Depth)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_shape = (CUDA_ARRAY_DESCRIPTOR){d.Width, d.Height, d.Format, d.NumChannels};
        return CUDA_SUCCESS;
}

/* Refused, because only arrays with deferred memory have requirements. */
EXPORT CUresult cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *ret, CUarray array,
                                             CUdevice device)
{
        CUDA_ARRAY3D_DESCRIPTOR d;
        CUresult r = array_look(__func__, array, &d);

        return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_VALUE;
}

/* ---- mipmaps ---- */

static unsigned levels_of(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
        size_t most = MAX(d->Width, d->Height);
        unsigned levels = 1;

        if (!(d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
                most = MAX(most, d->Depth);
        while (most >>= 1)
                levels++;
        return levels;
}

static void mipmap_free(CUmipmappedArray m)
{
        for (unsigned i = 0; i < m->levels; i++) {
                pthread_mutex_lock(&sim.lock);
                array_unlink(m->level[i]);
                pthread_mutex_unlock(&sim.lock);
                array_free(m->level[i]);
        }
        free(m);
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *ret_mipmap,
                                       const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
        CUDA_ARRAY3D_DESCRIPTOR d;
        CUmipmappedArray m;
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_mipmap || !shape || levels == 0)
                return CUDA_ERROR_INVALID_VALUE;
        m = calloc(1, sizeof(*m));
        if (!m)
                return CUDA_ERROR_OUT_OF_MEMORY;
        m->context = c;
        d = *shape;
        levels = MIN(levels, MIN(levels_of(&d), LEVELS_MAX));
        for (; m->levels < levels && r == CUDA_SUCCESS; m->levels += r == CUDA_SUCCESS) {
                r = array_new(c, &d, m, &m->level[m->levels]);
                d.Width = MAX(d.Width / 2, 1U);
                if (d.Height)
                        d.Height = MAX(d.Height / 2, 1U);
                if (d.Depth && !(d.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)))
                        d.Depth = MAX(d.Depth / 2, 1U);
        }
        if (r != CUDA_SUCCESS) {
                mipmap_free(m);
                return r;
        }
        pthread_mutex_lock(&sim.lock);
        m->next = mipmaps;
        mipmaps = m;
        pthread_mutex_unlock(&sim.lock);
        *ret_mipmap = m;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuMipmappedArrayGetLevel(CUarray *ret_array, CUmipmappedArray mipmap,
                                         unsigned int level)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        CUmipmappedArray m;

        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        m = mipmap_find(mipmap);
        if (!m)
                r = CUDA_ERROR_INVALID_HANDLE;
        else if (!ret_array || level >= m->levels)
                r = CUDA_ERROR_INVALID_VALUE;
        else
                *ret_array = m->level[level];
        pthread_mutex_unlock(&sim.lock);
        return r;
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);
        CUmipmappedArray *link = &mipmaps, m;

        if (r == CUDA_SUCCESS)
                r = context_wait(c);
        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        m = mipmap_find(mipmap);
        if (m) {
                while (*link != m)
                        link = &(*link)->next;
                *link = m->next;
        }
        pthread_mutex_unlock(&sim.lock);
        if (!m)
                return CUDA_ERROR_INVALID_HANDLE;
        mipmap_free(m);
        return CUDA_SUCCESS;
}
