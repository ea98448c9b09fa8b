/* rm.c: owns the process's ledger of channels, and the RM control that takes them off the GPU. Must
 * never call libcuda, because it may run in the middle of a libcuda call, nor thaw the program
 * except in rm_thaw().
 * Why: docs/decisions.md, "Our `ioctl()` forwards to the function that libcuda would have
 * called". */
#include "preload/rm/rm.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/process/lock.h"
#include "preload/process/nap.h"
#include "preload/driver/real.h"

#define CALLS_MAX      64u /* enough for 4,096 channels of one client */
#define AGAIN_MAX      100u
#define AGAIN_NS       NSEC_PER_MSEC /* pause while another thread frees a channel */
#define THAW_AGAIN_MAX 100u
#define THAW_AGAIN_NS  NSEC_PER_MSEC
#define STATUS_BAD     0xe0000000u /* the ioctl() failed; its errno is in the low bits */

/* ledger_lock is taken last: only RM's control is called while it is held. */
static struct lock ledger_lock;
static struct channels ledger;
static struct channels_call calls[CALLS_MAX];
static atomic_uint groups_made;
static bool frozen; /* channels that the program makes while frozen are disabled at once */
static const struct rm_layout *layout;
static char driver[32];
static _Atomic bool forgotten;
static __thread enum channels_owner making __attribute__((tls_model("initial-exec")));

int rm_forward(int fd, unsigned long request, void *argument)
{
        real_ioctl_fn *f = atomic_load_explicit(&real_ioctl, memory_order_acquire);

        return f ? f(fd, request, argument) : (int)syscall(SYS_ioctl, fd, request, argument);
}

void rm_make_for(enum channels_owner owner)
{
        making = owner;
}

/* ---- RM's control ---- */

static uint32_t control(int fd, struct rm_control k)
{
        k.status = RM_NOT_SUPPORTED;
        if (rm_forward(fd, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_CONTROL, struct rm_control), &k) < 0)
                return STATUS_BAD | (uint32_t)errno;
        return k.status;
}

static uint32_t switch_channels(const struct channels_call *c, bool disable)
{
        struct rm_disable_channels d = {.disable = disable, .count = c->count};

        for (uint32_t i = 0; i < c->count; i++) {
                d.clients[i] = c->client;
                d.channels[i] = c->channels[i];
        }
        return control(c->fd, (struct rm_control){.client = c->client,
                                                  .object = c->subdevice,
                                                  .command = RM_DISABLE_CHANNELS,
                                                  .params = (uint64_t)(uintptr_t)&d,
                                                  .params_size = sizeof(d)});
}

static int error_of(uint32_t status)
{
        switch (status) {
        case 0:
                return 0;
        case RM_NO_PERMISSION:
        case STATUS_BAD | EPERM:
        case STATUS_BAD | EACCES:
                return -EPERM;
        case RM_NOT_SUPPORTED:
        case STATUS_BAD | ENOSYS:
        case STATUS_BAD | ENOTTY:
        case STATUS_BAD | EINVAL:
                return -EOPNOTSUPP;
        case RM_TIMEOUT:
                return -ETIMEDOUT;
        default:
                return -EIO;
        }
}

/* True if an object that the call names was freed. The freeing thread records that in a moment. */
static bool is_gone(uint32_t status)
{
        return status == RM_NO_CHANNEL || status == RM_NO_OBJECT || status == RM_NO_CLIENT;
}

/* Thaws the channels one by one, so that a freed one does not keep the others frozen. */
static void thaw_what_is_left(const struct channels_call *c)
{
        struct channels_call one = *c;

        one.count = 1;
        for (uint32_t i = 0; i < c->count; i++) {
                one.channels[0] = c->channels[i];
                (void)switch_channels(&one, false);
        }
}

/* Disables or enables all channels of the program in the ledger. Returns RM's status if it refuses
 * to disable some. Lock held. */
static uint32_t control_all(bool disable, int *ret_error)
{
        size_t n = 0;

        *ret_error = 0;
        if (!channels_calls(&ledger, CHANNELS_PROGRAM, calls, CALLS_MAX, &n) && disable) {
                *ret_error = -EOVERFLOW;
                return 0;
        }
        for (size_t i = 0; i < n; i++) {
                /* Thaw in reverse order: copy channels first, because kernels may wait for them. */
                const struct channels_call *c = &calls[disable ? i : n - 1 - i];
                uint32_t status = switch_channels(c, disable);

                if (status == (STATUS_BAD | EBADF)) {
                        channels_remove(&ledger, c->client,
                                        c->client); /* the client's descriptor was closed */
                        continue;
                }
                if (!disable && is_gone(status)) {
                        thaw_what_is_left(c);
                        continue;
                }
                if (status != 0) {
                        log_debug("the resource manager refuses to %s %u channels: 0x%x",
                                  disable ? "freeze" : "thaw", c->count, status);
                        if (!*ret_error)
                                *ret_error = error_of(status);
                        if (disable)
                                return status;
                }
        }
        return 0;
}

static int set_frozen(bool disable)
{
        uint32_t status;
        int r = 0;

        lock_acquire(&ledger_lock);
        if (driver[0] && !layout) {
                r = -EPROTO;
        } else {
                frozen = disable;
                status = control_all(disable, &r);
                for (unsigned i = 0; i < AGAIN_MAX && is_gone(status); i++) {
                        /* A call that failed at a missing channel has disabled the channels before
                         * it. Unless that is undone, they stay disabled after the thaw. */
                        (void)control_all(false, &r);
                        lock_release(&ledger_lock);
                        (void)nap(AGAIN_NS);
                        lock_acquire(&ledger_lock);
                        status = control_all(disable, &r);
                }
                if (is_gone(status))
                        r = -EAGAIN;
        }
        if (r < 0)
                frozen = false;
        lock_release(&ledger_lock);
        return r;
}

int rm_freeze(void)
{
        return set_frozen(true);
}

int rm_thaw(void)
{
        int r = set_frozen(false);

        /* A program that is not thawed is lost, so failures are retried. */
        for (unsigned i = 0; r < 0 && r != -EPROTO && i < THAW_AGAIN_MAX; i++) {
                (void)nap(THAW_AGAIN_NS);
                r = set_frozen(false);
        }
        return r;
}

bool rm_is_frozen(void)
{
        bool r;

        lock_acquire(&ledger_lock);
        r = frozen;
        lock_release(&ledger_lock);
        return r;
}

/* ---- slices ---- */

static uint32_t slice_of(const struct channels_object *group, uint32_t command, uint64_t *usec)
{
        struct rm_slice s = {*usec};
        const uint32_t status =
                control(group->fd, (struct rm_control){.client = group->client,
                                                       .object = group->object,
                                                       .command = command,
                                                       .params = (uint64_t)(uintptr_t)&s,
                                                       .params_size = sizeof(s)});

        *usec = s.usec;
        return status;
}

void rm_slice(uint64_t usec)
{
        static uint64_t own; /* what the driver has set; 0: not known yet */
        const struct channels_object *group;
        uint32_t at = 0;

        lock_acquire(&ledger_lock);
        while (layout && (group = channels_next_group(&ledger, CHANNELS_PROGRAM, &at))) {
                uint64_t value = usec;
                uint32_t status = 0;

                if (!own && usec)
                        status = slice_of(group, RM_GET_SLICE, &own);
                if (!usec)
                        value = own;
                if (!status && value)
                        status = slice_of(group, RM_SET_SLICE, &value);
                if (status == (STATUS_BAD | EBADF)) /* the client's descriptor was closed */
                        channels_remove(&ledger, group->client, group->client);
                else if (status)
                        log_debug("the resource manager refuses a time slice: 0x%x", status);
        }
        lock_release(&ledger_lock);
}

unsigned rm_groups_made(void)
{
        return atomic_load(&groups_made);
}

/* ---- requests of libcuda to RM ---- */

/* Reads the version from /proc, for drivers that do not answer RM_VERSION_QUERY. Bare system calls,
 * because open() and read() are cancellation points, and the lock is held. The line begins:
 * "NVRM version: NVIDIA UNIX x86_64 Kernel Module  525.147.05  Wed Oct 25 ...". */
static void read_version(char *text, size_t n)
{
        const long fd =
                syscall(SYS_openat, AT_FDCWD, "/proc/driver/nvidia/version", O_RDONLY | O_CLOEXEC);
        char line[256], *rest = line, *word;
        const long length = fd >= 0 ? syscall(SYS_read, fd, line, sizeof(line) - 1) : 0;

        if (fd >= 0)
                (void)syscall(SYS_close, fd);
        line[MAX(length, 0L)] = '\0';
        while ((word = strsep(&rest, " \n")))
                if (strspn(word, "0123456789.") == strlen(word) && strchr(word, '.')) {
                        (void)snprintf(text, n, "%s", word);
                        return;
                }
}

/* Reads the driver's version and chooses its layout. Called for each new client; there are few. fd:
 * a descriptor of /dev/nvidiactl. */
static void learn_driver(int fd)
{
        struct rm_version v = {.command = RM_VERSION_QUERY};
        unsigned major = 0;

        (void)rm_forward(fd, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_CHECK_VERSION, struct rm_version), &v);
        v.text[sizeof(v.text) - 1] = '\0';
        if (!v.text[0])
                read_version(v.text, sizeof(v.text));
        (void)snprintf(driver, sizeof(driver), "%.31s", v.text[0] ? v.text : "unknown");
        layout = NULL;
        for (const char *p = driver; *p >= '0' && *p <= '9'; p++)
                major = major * 10 + (unsigned)(*p - '0');
        for (size_t i = 0; i < ARRAY_SIZE(rm_layouts); i++)
                if (major >= rm_layouts[i].first && major <= rm_layouts[i].last)
                        layout = &rm_layouts[i];
}

static uint32_t word_at(const void *p, size_t offset)
{
        uint32_t word;

        memcpy(&word, (const char *)p + offset, sizeof(word));
        return word;
}

static void saw_alloc(int fd, const struct rm_alloc *a, size_t size)
{
        const struct rm_group_params *g = (const void *)(uintptr_t)a->params;
        struct channels_made made = {.fd = fd,
                                     .client = a->client,
                                     .parent = a->parent,
                                     .object = a->object,
                                     .class = a->class,
                                     .engine = a->class == RM_CLASS_GROUP && g ? g->engine : 0,
                                     .owner = making};
        struct channels_call c;

        if (channels_client(a->class))
                learn_driver(fd);
        if (!layout || (size != layout->short_size && size != layout->long_size) ||
            word_at(a, size == layout->short_size ? layout->short_status : layout->long_status))
                return;
        channels_enter(&ledger, &made);
        groups_made += a->class == RM_CLASS_GROUP && making == CHANNELS_PROGRAM;
        /* The memory of a frozen program may be evicted, so a new channel must not run. */
        if (frozen && channels_class(a->class) &&
            channels_call_of(&ledger, a->client, a->object, CHANNELS_PROGRAM, &c))
                (void)switch_channels(&c, true);
}

static void saw(int fd, unsigned escape, const void *argument, size_t size)
{
        if (escape == RM_ESCAPE_ALLOC && size >= sizeof(struct rm_alloc)) {
                saw_alloc(fd, argument, size);
        } else if (escape == RM_ESCAPE_FREE && size == sizeof(struct rm_free)) {
                const struct rm_free *f = argument;

                if (f->status == 0)
                        channels_remove(&ledger, f->client, f->object);
        }
}

/* Returns the argument of a request without its wrapper, and the request's kind and size. */
static const void *unwrap(unsigned long request, const void *argument, unsigned *ret_escape,
                          size_t *ret_size)
{
        const struct rm_wrapped *w = argument;

        *ret_escape = _IOC_NR(request);
        *ret_size = _IOC_SIZE(request);
        if (*ret_escape != RM_ESCAPE_WRAPPED || *ret_size != sizeof(*w))
                return argument;
        *ret_escape = w->escape & 0xff;
        *ret_size = w->size;
        return (const void *)(uintptr_t)w->argument;
}

void rm_saw(int fd, unsigned long request, const void *argument)
{
        unsigned escape;
        size_t size;
        const void *inner = unwrap(request, argument, &escape, &size);

        if (!inner || escape == RM_ESCAPE_CONTROL ||
            atomic_load_explicit(&forgotten, memory_order_relaxed))
                return;
        lock_acquire(&ledger_lock);
        saw(fd, escape, inner, size);
        lock_release(&ledger_lock);
}

bool rm_holds_back(int fd, unsigned long request, void *argument, int *ret_r)
{
        unsigned escape;
        size_t size;
        struct rm_control *k = (void *)(uintptr_t)unwrap(request, argument, &escape, &size);
        const struct rm_disable_channels *d;

        if (likely(escape != RM_ESCAPE_CONTROL) || !k || size != sizeof(*k) ||
            likely(k->command != RM_DISABLE_CHANNELS) || k->params_size != sizeof(*d))
                return false;
        d = (const void *)(uintptr_t)k->params;
        if (!d || d->disable)
                return false;
        *ret_r = 0;
        lock_acquire(&ledger_lock); /* so that no freeze begins between the check and the request */
        if (frozen)
                k->status = 0; /* rm_thaw() enables these channels too */
        else
                *ret_r = rm_forward(fd, request, argument);
        lock_release(&ledger_lock);
        return true;
}

/* ---- for messages, and for fork ---- */

const char *rm_driver(void)
{
        return driver;
}

unsigned rm_channels(void)
{
        unsigned n;

        lock_acquire(&ledger_lock);
        n = ledger.count;
        lock_release(&ledger_lock);
        return n;
}

void rm_forget(void)
{
        atomic_store(&forgotten, true);
        ledger_lock = (struct lock){0};
        frozen = false;
}
