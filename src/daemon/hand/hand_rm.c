/* hand_rm.c: owns the hand's requests to RM. Must never free an object, nor make one after the
 * setup.
 * Why: docs/decisions.md, "The daemon's hand". */
#include "daemon/hand/hand_rm.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/macros.h"

#define DEVICE_FILES 32
#define HANDLES      0x5b000001u /* of our objects, which RM lets us choose */
#define NO_HANDLE    (HANDLES - 1)
#define STATUS_BAD   0xe0000000u /* the request failed */

#define REQUEST_CONTROL _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_CONTROL, struct rm_control)
#define REQUEST_DUP     _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_DUP, struct rm_dup)

const unsigned long hand_rm_requests[2] = {REQUEST_CONTROL, REQUEST_DUP};

static const struct rm_layout *layout;

/* As NVIDIA's own library has them: with the simulated driver, they are the simulator's. */
static int (*driver_open)(const char *path, int flags, ...) = open;
static int (*driver_ioctl)(int fd, unsigned long request, ...) = ioctl;

static void find_functions(void)
{
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
        void *found;

        if (!library)
                return;
        found = dlsym(library, "open");
        if (found)
                driver_open = (__typeof__(driver_open))found;
        found = dlsym(library, "ioctl");
        if (found)
                driver_ioctl = (__typeof__(driver_ioctl))found;
}

static const struct rm_layout *read_layout(int ctl)
{
        struct rm_version v = {.command = RM_VERSION_QUERY};

        (void)driver_ioctl(ctl, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_CHECK_VERSION, struct rm_version),
                           &v);
        v.text[sizeof(v.text) - 1] = '\0';
        return rm_layout_of(v.text);
}

int hand_rm_setup(void)
{
        char name[32];
        int ctl;

        find_functions();
        for (unsigned i = 0; i < DEVICE_FILES; i++) {
                (void)snprintf(name, sizeof(name), "/dev/nvidia%u", i);
                (void)driver_open(name, O_RDWR | O_CLOEXEC);
        }
        ctl = driver_open("/dev/nvidiactl", O_RDWR | O_CLOEXEC);
        if (ctl < 0)
                return -errno;
        layout = read_layout(ctl);
        return layout ? 0 : -EPROTO;
}

static uint32_t control(const struct hand_rm *r, uint32_t object, uint32_t command, void *params,
                        uint32_t size)
{
        struct rm_control k = {.client = r->client,
                               .object = object,
                               .command = command,
                               .params = (uint64_t)(uintptr_t)params,
                               .params_size = size,
                               .status = RM_NOT_SUPPORTED};

        return driver_ioctl(r->ctl, REQUEST_CONTROL, &k) < 0 ? STATUS_BAD : k.status;
}

/* Makes an object. Returns its handle; 0: RM refuses. */
static uint32_t make(const struct hand_rm *r, uint32_t parent, uint32_t object, uint32_t class,
                     void *params, uint32_t size)
{
        union {
                struct rm_alloc_short call;
                uint8_t bytes[sizeof(struct rm_alloc_short)];
        } a = {.call = {{r->client, parent, object, class, (uint64_t)(uintptr_t)params}, size, 0}};
        uint32_t status = UINT32_MAX;

        memcpy(a.bytes + layout->short_status, &status, sizeof(status));
        if (driver_ioctl(r->ctl, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_ALLOC, struct rm_alloc_short), &a) <
            0)
                return 0;
        memcpy(&status, a.bytes + layout->short_status, sizeof(status));
        return status ? 0 : a.call.alloc.object;
}

int hand_rm_new(struct hand_rm *ret)
{
        unsigned found = 0;

        *ret = (struct hand_rm){.ctl = driver_open("/dev/nvidiactl", O_RDWR | O_CLOEXEC)};
        if (ret->ctl < 0)
                return -errno;
        ret->client = make(ret, 0, 0, RM_CLASS_CLIENT_USER, NULL, 0);
        for (uint32_t i = 0; ret->client && i < HAND_GPUS; i++) {
                struct rm_device_params device = {.instance = i};
                uint32_t subdevice = 0, parent = make(ret, ret->client, HANDLES + 2 * i,
                                                      RM_CLASS_DEVICE, &device, sizeof(device));

                if (parent)
                        ret->subdevices[i] =
                                make(ret, parent, HANDLES + 2 * i + 1, RM_CLASS_SUBDEVICE,
                                     &subdevice, sizeof(subdevice));
                found += ret->subdevices[i] != 0;
        }
        return found ? 0 : -EIO;
}

uint32_t hand_rm_switch(const struct hand_rm *r, const struct hand_call *c, bool disable)
{
        struct rm_disable_channels d = {.disable = disable, .count = c->count};

        memcpy(d.clients, c->clients, c->count * sizeof(d.clients[0]));
        memcpy(d.channels, c->channels, c->count * sizeof(d.channels[0]));
        return control(r, r->subdevices[c->device], RM_DISABLE_CHANNELS, &d, sizeof(d));
}

/* An object that cannot be copied is refused for that reason only if it exists. */
bool hand_rm_sees(const struct hand_rm *r, uint32_t client, uint32_t object)
{
        struct rm_dup d = {.client = r->client,
                           .parent = r->client,
                           .object = NO_HANDLE,
                           .source_client = client,
                           .source = object,
                           .status = RM_NO_OBJECT};

        return driver_ioctl(r->ctl, REQUEST_DUP, &d) == 0 && d.status == RM_INVALID_ARGUMENT;
}

bool hand_rm_is_right(const struct hand_rm *r, const struct hand_rm *other)
{
        unsigned i = 0;

        while (i < HAND_GPUS && !other->subdevices[i])
                i++;
        return i < HAND_GPUS && hand_rm_sees(r, other->client, other->subdevices[i]) &&
               !hand_rm_sees(r, other->client, NO_HANDLE);
}
