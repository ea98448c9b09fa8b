/* queues.c: libcuda's own requests to the resource manager (RM). They use all forms of an
 * allocation that NVIDIA's releases used: long, short, and each of them wrapped. */
#include "sim/rm/queues.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/macros.h"
#include "sim/mps/client.h"
#include "sim/rm/rm.h"

enum form { LONG, SHORT, WRAPPED_LONG, WRAPPED_SHORT };

static struct {
        pthread_mutex_t making; /* held while RM makes the device object of a card */
        uint32_t client;
        _Atomic uint32_t device[SESSION_DEVICES];
        _Atomic uint32_t last; /* the last handle that was used for an object */
} own = {.making = PTHREAD_MUTEX_INITIALIZER, .last = 0x5c000000};

/* Calls the program's ioctl(), which a preloaded library may intercept. ENOTTY means that the
 * request reached the kernel, which does not know it: RM is then called directly. Returns 0,
 * -errno. */
static int request(unsigned escape, void *argument, size_t bytes, bool wrapped)
{
        struct rm_wrapped_call wrap = {escape, (uint32_t)bytes, (uintptr_t)argument};
        int fd = rm_descriptor();

        if (wrapped) {
                escape = ESCAPE_WRAPPED;
                argument = &wrap;
                bytes = sizeof(wrap);
        }
        if (fd >= 0) {
                if (ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, RM_TYPE, escape, bytes), argument) == 0)
                        return 0;
                if (errno != ENOTTY || rm_seen() == argument)
                        return -errno;
        }
        return rm_call(escape, argument, bytes);
}

static uint32_t next_handle(void)
{
        return atomic_fetch_add(&own.last, 1) + 1;
}

static int allocate(enum form how, struct rm_alloc_head *head, const void *params, size_t bytes)
{
        struct rm_alloc_form form = rm_alloc_form(how == LONG || how == WRAPPED_LONG);
        union rm_alloc_call call = {.head = *head};
        uint32_t size = (uint32_t)bytes, status = UINT32_MAX;
        int r;

        call.head.params = (uintptr_t)params;
        if (form.params_size)
                memcpy((char *)&call + form.params_size, &size, sizeof(size));
        memcpy((char *)&call + form.status, &status, sizeof(status));
        r = request(ESCAPE_ALLOC, &call, form.bytes, how == WRAPPED_LONG || how == WRAPPED_SHORT);
        memcpy(&status, (const char *)&call + form.status, sizeof(status));
        *head = call.head;
        return r < 0 ? r : status ? -EIO : 0;
}

/* Makes an object under a parent. The handle is chosen here, not by RM. */
static int make(enum form how, uint32_t parent, uint32_t class, const void *params, size_t bytes,
                uint32_t *ret_handle)
{
        struct rm_alloc_head head = {
                .client = own.client, .parent = parent, .object = next_handle(), .class = class};
        int r = allocate(how, &head, params, bytes);

        if (r == 0)
                *ret_handle = head.object;
        return r;
}

int queues_setup(void)
{
        struct rm_version_call version = {0};
        struct rm_alloc_head head = {.class = CLASS_CLIENT}; /* RM chooses the handle of a client */
        int r;

        strcpy(version.version, rm_version());
        r = request(ESCAPE_VERSION, &version, sizeof(version), false);
        if (r == 0)
                r = allocate(LONG, &head, NULL, 0);
        own.client = head.object;
        return r;
}

/* ---- a card ---- */

static int device_make(unsigned device)
{
        struct rm_device_params params = {.device = session_card(sim.session, device)};
        struct rm_subdevice_params sub = {0};
        uint32_t handle, subdevice;
        int r = make(SHORT, own.client, CLASS_DEVICE, &params, sizeof(params), &handle);

        if (r == 0)
                r = make(WRAPPED_LONG, handle, CLASS_SUBDEVICE, &sub, sizeof(sub), &subdevice);
        if (r == 0)
                atomic_store(&own.device[device], handle);
        return r;
}

static int device_open(unsigned device, uint32_t *ret_handle)
{
        int r = 0;

        if (!atomic_load(&own.device[device])) {
                (void)pthread_mutex_lock(&own.making);
                if (!atomic_load(&own.device[device]))
                        r = device_make(device);
                (void)pthread_mutex_unlock(&own.making);
        }
        *ret_handle = atomic_load(&own.device[device]);
        return r;
}

/* ---- a context ---- */

static size_t channel_params_bytes(void)
{
        return rm_since(610, 0, 0)     ? RM_CHANNEL_PARAMS_MOST
               : rm_since(570, 0, 0)   ? 368
               : rm_since(535, 104, 0) ? 360
                                       : 304;
}

static int channel_make(enum form how, uint32_t group, uint32_t engine, struct channel **ret)
{
        union {
                struct rm_channel_params_515 old;
                struct rm_channel_params_610 new;
                uint8_t bytes[RM_CHANNEL_PARAMS_MOST];
        } params = {.bytes = {0}};
        uint32_t handle;
        int r;

        if (rm_since(610, 0, 0)) {
                params.new.fifo_entries = 1024;
                params.new.engine = engine;
        } else {
                params.old.fifo_entries = 1024;
                params.old.engine = engine;
        }
        r = make(how, group, CLASS_CHANNEL, &params, channel_params_bytes(), &handle);
        if (r == 0)
                *ret = rm_channel(own.client, handle);
        return r;
}

static int schedule(uint32_t group)
{
        struct rm_schedule_params params = {.enable = 1};
        struct rm_control_call call = {.client = own.client,
                                       .object = group,
                                       .command = (uint32_t)CONTROL_SCHEDULE_GROUP,
                                       .params = (uintptr_t)&params,
                                       .params_size = rm_since(575, 51, 2) ? 3 : 2,
                                       .status = UINT32_MAX};
        int r = request(ESCAPE_CONTROL, &call, sizeof(call), false);

        return r < 0 ? r : call.status ? -EIO : 0;
}

static int group_make(struct queues *q, uint32_t engine, enum form how, enum form channels_how,
                      struct channel **channels, size_t n)
{
        struct rm_group_params_515 params = {.engine = engine};
        int r = make(how, q->device, CLASS_GROUP, &params, sizeof(params), &q->group[q->groups]);

        if (r < 0)
                return r;
        q->groups++;
        for (size_t i = 0; i < n && r == 0; i++)
                r = channel_make(channels_how, q->group[q->groups - 1], engine, &channels[i]);
        return r < 0 ? r : schedule(q->group[q->groups - 1]);
}

CUresult queues_new(unsigned device, bool green, struct queues *ret)
{
        struct queues q = {.client = own.client};
        struct channel **copy = q.channels.copy;
        int r;

        if (mps_takes_part()) { /* the channels are the server's */
                *ret = q;
                return CUDA_SUCCESS;
        }
        r = device_open(device, &q.device);
        if (r == 0)
                r = group_make(&q, ENGINE_GRAPHICS, LONG, LONG, q.channels.compute,
                               CHANNELS_COMPUTE);
        if (r == 0 && !green)
                r = group_make(&q, ENGINE_COPY_2, SHORT, SHORT, copy, CHANNELS_COPY / 2);
        if (r == 0 && !green)
                r = group_make(&q, ENGINE_COPY_3, WRAPPED_SHORT, WRAPPED_LONG,
                               copy + CHANNELS_COPY / 2, CHANNELS_COPY / 2);
        if (r < 0) {
                queues_free(&q);
                return CUDA_ERROR_OPERATING_SYSTEM;
        }
        *ret = q;
        return CUDA_SUCCESS;
}

void queues_free(struct queues *q)
{
        for (unsigned i = 0; i < q->groups; i++) {
                struct rm_free_call call = {.client = q->client,
                                            .parent = q->device,
                                            .object = q->group[i],
                                            .status = UINT32_MAX};

                (void)request(ESCAPE_FREE, &call, sizeof(call), i == QUEUES_GROUPS - 1);
        }
        *q = (struct queues){0};
}
