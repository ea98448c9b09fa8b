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
#include "preload/rm/rm_hand.h"
#include "preload/driver/real.h"

#define CALLS_MAX      64u /* enough for 4,096 channels of one client */
#define THAW_AGAIN_MAX 100u
#define THAW_AGAIN_NS  NSEC_PER_MSEC
#define HAND_LEFT_OFF  2u          /* a dead hand has disabled a channel at most so often */
#define STATUS_BAD     0xe0000000u /* the ioctl() failed; its errno is in the low bits */

/* ledger_lock is taken last: only RM's control is called while it is held. */
static struct lock ledger_lock;
static struct channels ledger;
static struct channels_call calls[CALLS_MAX];
static atomic_uint groups_made;
static bool frozen;   /* channels that the program makes while frozen are disabled at once */
static unsigned owed; /* how often a thaw must enable all channels once more */
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

/* True if a channel that the call names, or their client, does not exist. RM has then changed the
 * channels before it (docs/measurements/hand.md). Not if the subdevice is missing: its channels may
 * run. */
static bool is_gone(uint32_t status)
{
        return status == RM_NO_CHANNEL || status == RM_NO_CLIENT;
}

/* Disables or enables the channels of a call and notes it. RM counts, so each change must be undone
 * exactly. A channel that RM does not know is left out. Lock held. */
static uint32_t change(const struct channels_call *c, bool disable)
{
        struct channels_call one = *c;
        uint32_t status = switch_channels(c, disable);

        if (status == 0)
                channels_note(&ledger, c, disable);
        if (!is_gone(status))
                return status;
        (void)switch_channels(c, !disable); /* fails at the same channel, and undoes the rest */
        one.count = 1;
        for (uint32_t i = 0; i < c->count; i++) {
                one.channels[0] = c->channels[i];
                status = switch_channels(&one, disable);
                if (status == 0)
                        channels_note(&ledger, &one, disable);
                else if (!is_gone(status))
                        return status;
        }
        return 0;
}

/* Disables or enables these channels of the program. 0, or an error of rm_freeze(). Lock held. */
static int change_all(enum channels_which which, bool disable)
{
        size_t n = 0;
        int r = 0;
        bool removed = false;

        if (!channels_calls(&ledger, CHANNELS_PROGRAM, which, calls, CALLS_MAX, &n) && disable)
                return -EOVERFLOW;
        for (size_t i = 0; i < n && !(r && disable); i++) {
                /* Thaw in reverse order: copy channels first, because kernels may wait for them. */
                const struct channels_call *c = &calls[disable ? i : n - 1 - i];
                uint32_t status = change(c, disable);

                if (status == (STATUS_BAD | EBADF)) {
                        channels_remove(&ledger, c->client,
                                        c->client); /* the client's descriptor was closed */
                        removed = true;
                        continue;
                }
                if (status != 0) {
                        log_debug("the resource manager refuses to %s %u channels: 0x%x",
                                  disable ? "freeze" : "thaw", c->count, status);
                        r = r ? r : error_of(status);
                }
        }
        if (removed)
                hand_mirror(&ledger);
        return r;
}

/* Enables all channels without regard to whose disabling that undoes, so some of the program's own
 * may be among them: makes them count again as often as the program has asked. Lock held. */
static int enable_once_more(void)
{
        int r = change_all(CHANNELS_ALL, false);

        for (uint32_t i = 0; i < ledger.top && r == 0; i++) {
                const struct channels_object *o = &ledger.objects[i];
                struct channels_call c;
                uint32_t status = 0;

                if (o->own == 0 ||
                    !channels_call_of(&ledger, o->client, o->object, CHANNELS_PROGRAM, &c))
                        continue;
                for (unsigned k = 0; k < 2u * o->own && status == 0; k++)
                        status = switch_channels(&c, k >= o->own);
                r = is_gone(status) ? 0 : error_of(status);
        }
        return r;
}

/* Enables the channels that we have disabled, and all of them as often as is owed: at a channel
 * that runs, this changes nothing. Lock held. */
static int enable_all(void)
{
        int r = change_all(CHANNELS_OFF, false);

        while (r == 0 && owed > 0) {
                r = enable_once_more();
                owed -= r == 0;
        }
        return r;
}

/* After an unclear answer of RM nobody knows how it has counted, so the hand must not count, too.
 * Lock held. */
static void lose_count(void)
{
        owed = MAX(owed, 1U);
        hand_leave();
}

static int set_frozen(bool disable)
{
        int r = -EPROTO;

        lock_acquire(&ledger_lock);
        if (disable && hand_is_leaving()) {
                r = -ETIMEDOUT; /* it may still undo what it has done, and would undo ours */
        } else if (!driver[0] || layout) {
                frozen = disable;
                r = disable ? change_all(CHANNELS_ON, true) : enable_all();
                if (r < 0 && r != -EOVERFLOW)
                        lose_count();
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

void rm_freeze_more(bool more)
{
        size_t n = 0;

        lock_acquire(&ledger_lock);
        (void)channels_calls(&ledger, CHANNELS_PROGRAM, CHANNELS_OFF, calls, CALLS_MAX, &n);
        for (size_t i = 0; i < n; i++)
                if (switch_channels(&calls[i], more) != 0)
                        owed = MAX(owed, 1U); /* nobody knows how RM has counted */
        lock_release(&ledger_lock);
}

bool rm_is_frozen(void)
{
        bool r;

        lock_acquire(&ledger_lock);
        r = frozen;
        lock_release(&ledger_lock);
        return r;
}

bool rm_stands_still(void)
{
        bool r;

        lock_acquire(&ledger_lock);
        r = frozen || hand_holds();
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

        (void)rm_forward(fd, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_CHECK_VERSION, struct rm_version), &v);
        v.text[sizeof(v.text) - 1] = '\0';
        if (!v.text[0])
                read_version(v.text, sizeof(v.text));
        (void)snprintf(driver, sizeof(driver), "%.31s", v.text[0] ? v.text : "unknown");
        layout = rm_layout_of(driver);
}

static uint32_t word_at(const void *p, size_t offset)
{
        uint32_t word;

        memcpy(&word, (const char *)p + offset, sizeof(word));
        return word;
}

/* Makes a channel's disabling for the hand what the hand's last order says. After an enabling it
 * looks again: a new order may have found the channel disabled. Lock held. */
static void follow_hand(uint32_t client, uint32_t object)
{
        struct channels_call c;
        uint32_t status = 0;
        bool again = channels_call_of(&ledger, client, object, CHANNELS_PROGRAM, &c);

        while (again && status == 0) {
                again = false;
                if (hand_takes_new(&ledger, client, object)) {
                        status = switch_channels(&c, true);
                        again = !hand_has_new(&ledger, client, object, status == 0);
                } else {
                        again = hand_gives_back(&ledger, client, object);
                }
                if (again)
                        status = switch_channels(&c, false);
        }
        if (status && !is_gone(status))
                lose_count();
}

static void saw_alloc(int fd, const struct rm_alloc *a, size_t size)
{
        const void *params = (const void *)(uintptr_t)a->params;
        const struct rm_group_params *g = params;
        const struct rm_device_params *device = params;
        struct channels_made made = {
                .fd = fd,
                .client = a->client,
                .parent = a->parent,
                .object = a->object,
                .class = a->class,
                .engine = a->class == RM_CLASS_GROUP && g ? g->engine : 0,
                .device = a->class == RM_CLASS_DEVICE && device ? device->instance : 0,
                .owner = making};
        const uint32_t client = channels_client(a->class) ? a->object : a->client;
        struct channels_call c;

        if (channels_client(a->class))
                learn_driver(fd);
        if (!layout || (size != layout->short_size && size != layout->long_size) ||
            word_at(a, size == layout->short_size ? layout->short_status : layout->long_status))
                return;
        if (channels_find(&ledger, client, a->object)) { /* we missed the end of the old object */
                channels_remove(&ledger, client, a->object);
                hand_mirror(&ledger);
        }
        channels_enter(&ledger, &made);
        groups_made += a->class == RM_CLASS_GROUP && making == CHANNELS_PROGRAM;
        hand_mirror(&ledger);
        if (!channels_class(a->class) ||
            !channels_call_of(&ledger, a->client, a->object, CHANNELS_PROGRAM, &c))
                return;
        /* The memory of a frozen program may be evicted, so a new channel must not run. */
        if (frozen)
                (void)change(&c, true);
        follow_hand(a->client, a->object);
}

static void saw(int fd, unsigned escape, const void *argument, size_t size)
{
        if (escape == RM_ESCAPE_ALLOC && size >= sizeof(struct rm_alloc)) {
                saw_alloc(fd, argument, size);
        } else if (escape == RM_ESCAPE_FREE && size == sizeof(struct rm_free)) {
                const struct rm_free *f = argument;

                if (f->status == 0)
                        channels_remove(&ledger, f->client, f->object);
                hand_mirror(&ledger);
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

/* Gives the names back that were withdrawn. The hand may have let the program run meanwhile, or
 * have taken it off the GPU. Lock held. */
static void free_failed(void)
{
        hand_mirror(&ledger);
        for (uint32_t i = 0; i < ledger.top; i++) {
                const struct channels_object *o = &ledger.objects[i];

                if (o->used && channels_class(o->class))
                        follow_hand(o->client, o->object);
        }
}

/* Frees objects with channels under the lock, so that neither we nor the hand name a channel that
 * is gone, or a new one with its handle. */
static bool frees_channels(int fd, unsigned long request, void *argument, const struct rm_free *f,
                           int *ret_r)
{
        const int before = errno;
        int after;
        bool found;

        lock_acquire(&ledger_lock);
        found = channels_under(&ledger, f->client, f->object);
        if (found) {
                if (!hand_withdraw(&ledger, f->client, f->object))
                        lose_count();
                *ret_r = rm_forward(fd, request, argument);
                after = *ret_r < 0 ? errno : before;
                if (*ret_r == 0 && f->status == 0)
                        saw(fd, RM_ESCAPE_FREE, f, sizeof(*f));
                else
                        free_failed();
                errno = after;
        }
        lock_release(&ledger_lock);
        return found;
}

/* Counts the program's own disabling or enabling of the channels of a call. Lock held. */
static void note_own(const struct rm_disable_channels *d, bool disable)
{
        for (uint32_t i = 0; i < d->count; i++) {
                struct channels_object *o = channels_find(&ledger, d->clients[i], d->channels[i]);

                if (o && disable)
                        o->own = (uint8_t)MIN(o->own + 1, UINT8_MAX);
                else if (o && o->own > 0)
                        o->own--;
        }
}

/* Passes the program's own disabling or enabling on. An enabling passes only for channels that the
 * program has disabled itself: for others it would undo what we or the hand have done, or nothing.
 * Lock held. */
static int pass_switch(int fd, unsigned long request, void *argument, struct rm_control *k,
                       const struct rm_disable_channels *d)
{
        struct rm_disable_channels left = *d;
        struct rm_control call = *k;
        int r;

        if (d->count == 0 || d->count > RM_DISABLE_CHANNELS_MAX) /* RM refuses it */
                return rm_forward(fd, request, argument);
        left.count = 0;
        for (uint32_t i = 0; i < d->count; i++) {
                const struct channels_object *o =
                        channels_find(&ledger, d->clients[i], d->channels[i]);

                if (o && o->own == 0 && !d->disable)
                        continue;
                left.clients[left.count] = d->clients[i];
                left.channels[left.count++] = d->channels[i];
        }
        k->status = 0;
        if (left.count == 0)
                return 0;
        call.params = (uint64_t)(uintptr_t)&left;
        r = rm_forward(fd, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_CONTROL, struct rm_control), &call);
        k->status = call.status;
        if (r == 0 && k->status == 0)
                note_own(&left, d->disable);
        return r;
}

bool rm_holds_back(int fd, unsigned long request, void *argument, int *ret_r)
{
        unsigned escape;
        size_t size;
        void *inner = (void *)(uintptr_t)unwrap(request, argument, &escape, &size);
        struct rm_control *k = inner;
        const struct rm_disable_channels *d;

        if (!inner || atomic_load_explicit(&forgotten, memory_order_relaxed))
                return false;
        if (escape == RM_ESCAPE_FREE && size == sizeof(struct rm_free))
                return frees_channels(fd, request, argument, inner, ret_r);
        if (likely(escape != RM_ESCAPE_CONTROL) || size != sizeof(*k) ||
            likely(k->command != RM_DISABLE_CHANNELS) || k->params_size != sizeof(*d) || !k->params)
                return false;
        d = (const void *)(uintptr_t)k->params;
        lock_acquire(&ledger_lock); /* so that no freeze begins between the check and the request */
        *ret_r = pass_switch(fd, request, argument, k, d);
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
        hand_forget();
}

/* ---- for the hand ---- */

void rm_offer_hand(int page, int line)
{
        lock_acquire(&ledger_lock);
        if (hand_take(page, line))
                hand_mirror(&ledger);
        lock_release(&ledger_lock);
}

void rm_hand_ready(bool ready)
{
        lock_acquire(&ledger_lock);
        hand_ready(ready && owed == 0);
        lock_release(&ledger_lock);
}

void rm_hand_asks(void)
{
        lock_acquire(&ledger_lock);
        if (layout)
                hand_prove(&ledger, layout);
        lock_release(&ledger_lock);
}

void rm_hand_is_gone(void)
{
        int r = 0;

        lock_acquire(&ledger_lock);
        hand_left();
        owed = MAX(owed, HAND_LEFT_OFF);
        /* A program that is not enabled is lost, so failures are retried. */
        for (unsigned i = 0; i < THAW_AGAIN_MAX && !frozen; i++) {
                r = enable_all();
                if (r == 0)
                        break;
                lock_release(&ledger_lock);
                (void)nap(THAW_AGAIN_NS);
                lock_acquire(&ledger_lock);
        }
        if (hand_take_next())
                hand_mirror(&ledger);
        lock_release(&ledger_lock);
        if (r < 0)
                log_warning("the daemon's hand had taken this program off the GPU and has ended, "
                            "and the kernel driver (%s) does not let the program run again: "
                            "start it again with SUBLET_FREEZE=off",
                            driver);
}
