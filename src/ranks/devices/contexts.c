/* contexts.c: owns the contexts that stand for primary ones, and what belongs to which device. Must
 * never hold the lock of the books during a call of the driver. */
#include "ranks/devices/contexts.h"

#include <pthread.h>
#include <stdlib.h>

static struct {
        pthread_mutex_t lock;
        struct object {
                const void *object;
                CUdevice device;
        } * objects;
        struct range {
                CUdeviceptr from, to;
                CUdevice device;
        } * ranges;
        size_t n_objects, n_ranges;
} books = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Makes room for `more` entries. False: no memory, and the books stay as they are. */
static bool grow(void *list, size_t size, size_t n, size_t more)
{
        void **at = list, *longer = realloc(*at, (n + more) * size);

        if (longer)
                *at = longer;
        return longer;
}

static struct object *find_object(const void *object)
{
        for (size_t i = 0; i < books.n_objects; i++)
                if (books.objects[i].object == object)
                        return &books.objects[i];
        return NULL;
}

void contexts_own(const void *object, CUdevice device)
{
        struct object *o;

        (void)pthread_mutex_lock(&books.lock);
        o = find_object(object);
        if (!o && grow(&books.objects, sizeof(*o), books.n_objects, 1))
                o = &books.objects[books.n_objects++];
        if (o)
                *o = (struct object){object, device};
        (void)pthread_mutex_unlock(&books.lock);
}

void contexts_disown(const void *object)
{
        struct object *o;

        (void)pthread_mutex_lock(&books.lock);
        o = find_object(object);
        if (o)
                *o = books.objects[--books.n_objects];
        (void)pthread_mutex_unlock(&books.lock);
}

/* Returns the device; -1: the object is not in the books. */
static CUdevice owner_of(const void *object)
{
        const struct object *o;
        CUdevice device;

        (void)pthread_mutex_lock(&books.lock);
        o = find_object(object);
        device = o ? o->device : -1;
        (void)pthread_mutex_unlock(&books.lock);
        return device;
}

void contexts_copy_owner(const void *from, const void *to)
{
        const CUdevice device = owner_of(from);

        if (device >= 0)
                contexts_own(to, device);
}

CUdevice contexts_device_of_object(const void *object, CUdevice card)
{
        const CUdevice device = devices_several(card) ? owner_of(object) : -1;

        return device >= 0 ? device : devices_of_card(card);
}

CUdevice contexts_device_of_context(CUcontext ctx, CUdevice card)
{
        if (!ctx && devices_several(card) && real_cuda()->cuCtxGetCurrent(&ctx) != CUDA_SUCCESS)
                ctx = NULL;
        return contexts_device_of_object(ctx, card);
}

/* ---- mapped memory ---- */

void contexts_map(const void *handle, CUdeviceptr from, size_t bytes)
{
        const CUdevice device = owner_of(handle);
        struct range *last;

        if (device < 0)
                return;
        (void)pthread_mutex_lock(&books.lock);
        last = books.n_ranges ? &books.ranges[books.n_ranges - 1] : NULL;
        if (last && last->to == from && last->device == device)
                last->to += bytes;
        else if (grow(&books.ranges, sizeof(*last), books.n_ranges, 1))
                books.ranges[books.n_ranges++] = (struct range){from, from + bytes, device};
        (void)pthread_mutex_unlock(&books.lock);
}

void contexts_unmap(CUdeviceptr from, size_t bytes)
{
        const CUdeviceptr to = from + bytes;

        (void)pthread_mutex_lock(&books.lock);
        for (size_t i = books.n_ranges; i-- > 0;) {
                struct range *r = &books.ranges[i];

                if (to <= r->from || from >= r->to)
                        continue;
                if (r->from < from && r->to > to &&
                    grow(&books.ranges, sizeof(*r), books.n_ranges, 1)) {
                        r = &books.ranges[i];
                        books.ranges[books.n_ranges++] = (struct range){to, r->to, r->device};
                        r->to = from;
                } else if (r->from < from) {
                        r->to = from;
                } else if (r->to > to) {
                        r->from = to;
                } else {
                        *r = books.ranges[--books.n_ranges];
                }
        }
        (void)pthread_mutex_unlock(&books.lock);
}

static CUdevice device_of_range(CUdeviceptr address)
{
        CUdevice device = -1;

        (void)pthread_mutex_lock(&books.lock);
        for (size_t i = 0; device < 0 && i < books.n_ranges; i++)
                if (address >= books.ranges[i].from && address < books.ranges[i].to)
                        device = books.ranges[i].device;
        (void)pthread_mutex_unlock(&books.lock);
        return device;
}

CUdevice contexts_device_of_address(CUdeviceptr address, CUdevice card)
{
        CUcontext ctx = NULL;
        CUdevice device;

        if (!devices_several(card))
                return devices_of_card(card);
        device = device_of_range(address);
        if (device >= 0)
                return device;
        if (real_cuda()->cuPointerGetAttribute(&ctx, CU_POINTER_ATTRIBUTE_CONTEXT, address) !=
            CUDA_SUCCESS)
                ctx = NULL;
        return contexts_device_of_object(ctx, card);
}

/* ---- primary contexts ---- */

static struct {
        pthread_mutex_t lock; /* held while a context is made, so that a device gets one */
        struct primary {
                CUcontext ctx;
                unsigned retained, flags;
                bool flagged; /* the program has set flags before the context was there */
        } device[DEVICES_MAX];
} primaries = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* True if the card's primary context is the device's, or if there are no devices of ours. */
static bool has_cards(CUdevice device)
{
        return !devices_identity(device) || devices_first(device) == device;
}

static CUresult make(struct primary *p, CUdevice device)
{
        CUcontext popped;
        CUresult r = real_cuda()->cuCtxCreate_v2(&p->ctx, p->flags, devices_card(device));

        if (r != CUDA_SUCCESS) {
                p->ctx = NULL;
                return r;
        }
        (void)real_cuda()->cuCtxPopCurrent_v2(&popped);
        contexts_own(p->ctx, device);
        return CUDA_SUCCESS;
}

static CUresult end(struct primary *p)
{
        CUcontext ctx = p->ctx;

        p->ctx = NULL;
        p->retained = 0;
        contexts_disown(ctx);
        return ctx ? real_cuda()->cuCtxDestroy_v2(ctx) : CUDA_SUCCESS;
}

CUresult primary_retain(CUcontext *ret, CUdevice device)
{
        const bool first = devices_use(device);
        struct primary *p;
        CUresult r = CUDA_SUCCESS;

        if (!devices_identity(device))
                return real_cuda()->cuDevicePrimaryCtxRetain(ret, devices_card(device));
        p = &primaries.device[device];
        if (first) {
                if (p->flagged)
                        (void)real_cuda()->cuDevicePrimaryCtxSetFlags_v2(devices_card(device),
                                                                         p->flags);
                p->flagged = false;
                return real_cuda()->cuDevicePrimaryCtxRetain(ret, devices_card(device));
        }
        if (!ret)
                return CUDA_ERROR_INVALID_VALUE;
        (void)pthread_mutex_lock(&primaries.lock);
        if (!p->ctx)
                r = make(p, device);
        if (r == CUDA_SUCCESS) {
                p->retained++;
                *ret = p->ctx;
        }
        (void)pthread_mutex_unlock(&primaries.lock);
        return r;
}

CUresult primary_release(CUdevice device)
{
        struct primary *p;
        CUresult r = CUDA_SUCCESS;

        if (has_cards(device))
                return real_cuda()->cuDevicePrimaryCtxRelease_v2(devices_card(device));
        p = &primaries.device[device];
        (void)pthread_mutex_lock(&primaries.lock);
        if (!p->retained)
                r = CUDA_ERROR_INVALID_CONTEXT;
        else if (--p->retained == 0)
                r = end(p);
        (void)pthread_mutex_unlock(&primaries.lock);
        return r;
}

CUresult primary_reset(CUdevice device)
{
        CUresult r;

        if (has_cards(device))
                return real_cuda()->cuDevicePrimaryCtxReset_v2(devices_card(device));
        (void)pthread_mutex_lock(&primaries.lock);
        r = end(&primaries.device[device]);
        (void)pthread_mutex_unlock(&primaries.lock);
        return r;
}

CUresult primary_get_state(CUdevice device, unsigned *ret_flags, int *ret_active)
{
        if (has_cards(device))
                return real_cuda()->cuDevicePrimaryCtxGetState(devices_card(device), ret_flags,
                                                               ret_active);
        if (!ret_flags || !ret_active)
                return CUDA_ERROR_INVALID_VALUE;
        (void)pthread_mutex_lock(&primaries.lock);
        *ret_flags = primaries.device[device].flags;
        *ret_active = primaries.device[device].ctx != NULL;
        (void)pthread_mutex_unlock(&primaries.lock);
        return CUDA_SUCCESS;
}

CUresult primary_set_flags(CUdevice device, unsigned flags)
{
        if (has_cards(device))
                return real_cuda()->cuDevicePrimaryCtxSetFlags_v2(devices_card(device), flags);
        (void)pthread_mutex_lock(&primaries.lock);
        primaries.device[device].flags = flags;
        primaries.device[device].flagged = true;
        (void)pthread_mutex_unlock(&primaries.lock);
        return CUDA_SUCCESS;
}
