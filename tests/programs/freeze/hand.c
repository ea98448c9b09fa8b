/* hand.c: what a process can do to others' channels by the resource manager (RM) alone, without
 * libcuda.
 *
 *   hand [raw|names|stale|killed|pairs|stopped|sandbox|third]...
 *
 * `hand` opens RM itself: a client, a device and a subdevice of GPU 0. Workers are processes of
 * ours with a kernel that counts for ever. Each case prints JSON lines. The simulated driver has
 * its open() and ioctl() in libnvidia-ml.so.1; with NVIDIA's library they are libc's.
 *
 *   raw      opens RM by itself; freezes and thaws a worker 200 times
 *   names    what RM answers to names of dead, foreign and invented objects; proof of ownership by
 *            a secret object
 *   stale    a call that fails at a missing channel, while the worker's owner has frozen it, or not
 *   killed   SIGKILL to a process that has frozen a worker
 *   pairs    two workers in one call; two threads with clients of their own
 *   stopped  a worker that is frozen while it is stopped, and thawed while it is stopped
 *   sandbox  a hand that may make only a few system calls
 *   third    two busy workers with time slices of several lengths, and the delay of a third with
 *            short work */
#include "freezing.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>

#define USED(X)                         \
        X(cuInit)                       \
        X(cuDeviceGet)                  \
        X(cuDevicePrimaryCtxRetain)     \
        X(cuCtxSetCurrent)              \
        X(cuModuleLoadData)             \
        X(cuModuleGetFunction)          \
        X(cuLaunchKernel)               \
        X(cuMemAlloc_v2)                \
        X(cuMemHostRegister_v2)         \
        X(cuMemHostGetDevicePointer_v2) \
        X(cuStreamSynchronize)          \
        X(cuStreamCreate)               \
        X(cuMemGetInfo_v2)
USED(DRIVER_FUNCTION)

static const char ptx[] =
        ".version 7.0\n.target sm_70\n.address_size 64\n"
        ".visible .entry count(.param .u64 at, .param .u64 most)\n{\n"
        " .reg .b64 %a, %n, %v, %m;\n .reg .pred %p, %q;\n"
        " ld.param.u64 %a, [at];\n ld.param.u64 %m, [most];\n mov.u64 %n, 0;\n"
        "again:\n add.u64 %n, %n, 1;\n ld.volatile.global.u64 %v, [%a];\n add.u64 %v, %v, 1;\n"
        " st.volatile.global.u64 [%a], %v;\n membar.sys;\n setp.lt.u64 %q, %n, %m;\n @%q bra "
        "again;\n ret;\n}\n";

#define WORKERS 3
struct worker {
        _Alignas(4096) _Atomic uint64_t count; /* the kernel's; a page of its own */
        char pad[4096 - 8];
        struct channels_call call; /* the worker's channels */
        uint32_t device;           /* its device object */
        uint32_t secret; /* an object that it is to make; 0: none, and the old one is freed */
        _Atomic uint32_t order, done;
        _Atomic uint64_t slice_us;
        _Atomic uint32_t status;
        _Atomic bool ready;
        _Atomic pid_t pid;
};
static struct shared {
        struct worker w[WORKERS];
        _Atomic bool enough;
        _Atomic uint64_t a, b;
} * shared;
enum { NOTHING, FREEZE, THAW, SECRET, UNSECRET, SLICE, END };

/* ---- RM without libcuda ---- */

struct hand {
        int ctl, gpu;
        uint32_t client, device, subdevice;
};

static uint32_t alloc(int fd, uint32_t client, uint32_t parent, uint32_t object, uint32_t class,
                      void *params, uint32_t size, uint32_t *ret)
{
        struct rm_alloc_long a = {
                .alloc = {client, parent, object, class, (uint64_t)(uintptr_t)params},
                .params_size = size,
                .status = UINT32_MAX};

        if (raw_ioctl(fd, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_ALLOC, struct rm_alloc_long), &a) < 0)
                return 0xe0000000u | (uint32_t)errno;
        if (ret)
                *ret = a.alloc.object;
        return a.status;
}

static uint32_t free_object(int fd, uint32_t client, uint32_t parent, uint32_t object)
{
        struct rm_free f = {client, parent, object, UINT32_MAX};

        if (raw_ioctl(fd, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_FREE, struct rm_free), &f) < 0)
                return 0xe0000000u | (uint32_t)errno;
        return f.status;
}

/* RM_ESCAPE_DUP_OBJECT */
static uint32_t dup_object(int fd, uint32_t client, uint32_t parent, uint32_t object, uint32_t from,
                           uint32_t what)
{
        struct {
                uint32_t client, parent, object, from, what, flags, status;
        } d = {client, parent, object, from, what, 0, UINT32_MAX};

        if (raw_ioctl(fd, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x34, sizeof(d)), &d) < 0)
                return 0xe0000000u | (uint32_t)errno;
        return d.status;
}

/* Returns the open() of NVML's library, and takes its ioctl(). */
static int (*find_open(void))(const char *, int, ...)
{
        void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
        int (*found)(const char *, int, ...) = NULL;

        if (library) {
                found = (__typeof__(found))dlsym(library, "open");
                next_ioctl = (__typeof__(next_ioctl))dlsym(library, "ioctl");
        }
        return found ? found : open;
}

static bool hand_open(struct hand *h, bool says)
{
        int (*open_)(const char *, int, ...) = find_open();
        uint32_t device[14] = {0}, sub[1] = {0};
        uint64_t at = clock_now_ns();
        uint32_t s1, s2 = 1, s3 = 1;

        *h = (struct hand){.ctl = open_("/dev/nvidiactl", O_RDWR | O_CLOEXEC),
                           .gpu = open_("/dev/nvidia0", O_RDWR | O_CLOEXEC)};
        if (h->gpu < 0)
                for (int i = 1; i < 16 && h->gpu < 0; i++) {
                        char name[32];

                        (void)snprintf(name, sizeof(name), "/dev/nvidia%d", i);
                        h->gpu = open_(name, O_RDWR | O_CLOEXEC);
                        if (h->gpu >= 0 && says)
                                printf("{\"minor\":%d}\n", i);
                }
        s1 = alloc(h->ctl, 0, 0, 0, RM_CLASS_CLIENT_USER, NULL, 0, &h->client);
        for (uint32_t i = 0; i < 16 && s2; i++) {
                device[0] = i;
                s2 = alloc(h->ctl, h->client, h->client, 0x5b000001, RM_CLASS_DEVICE, device,
                           sizeof(device), &h->device);
                if (says)
                        printf("{\"device_instance\":%u,\"status\":\"%#x\"}\n", i, s2);
        }
        s3 = alloc(h->ctl, h->client, h->device, 0x5b000002, RM_CLASS_SUBDEVICE, sub, sizeof(sub),
                   &h->subdevice);
        if (says)
                printf("{\"what\":\"open\",\"ctl\":%d,\"gpu\":%d,\"client\":\"%#x\",\"handle\":\"%#"
                       "x\",\"device\":\"%#x\","
                       "\"subdevice\":\"%#x\",\"ms\":%.2f}\n",
                       h->ctl, h->gpu, s1, h->client, s2, s3, (double)(clock_now_ns() - at) / 1e6);
        return !s1 && !s2 && !s3;
}

static struct channels_call as_call(const struct hand *h)
{
        return (struct channels_call){.fd = h->ctl, .client = h->client, .subdevice = h->subdevice};
}

static uint32_t hand_switch(const struct hand *h, const struct channels_call *c, bool disable)
{
        struct channels_call by = as_call(h);

        return control_by(&by, c, disable);
}

/* ---- workers ---- */

static CUfunction count_kernel;
static CUstream stream;

static void driver(void)
{
        void *library = open_driver();
        CUcontext context;
        CUdevice device;
        CUmodule module;

        USED(FIND_DRIVER_FUNCTION)
        TRY(cuInit, 0);
        TRY(cuDeviceGet, &device, 0);
        TRY(cuDevicePrimaryCtxRetain, &context, device);
        TRY(cuCtxSetCurrent, context);
        TRY(cuModuleLoadData, &module, ptx);
        TRY(cuModuleGetFunction, &count_kernel, module, "count");
        TRY(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
}

static CUdeviceptr at_count(struct worker *w)
{
        CUdeviceptr at;

        TRY(cuMemHostRegister_v2, (void *)w, 4096, CU_MEMHOSTREGISTER_DEVICEMAP);
        TRY(cuMemHostGetDevicePointer_v2, &at, (void *)w, 0);
        return at;
}

static void set_slices(uint64_t us, uint32_t *ret)
{
        for (uint32_t i = 0; i < ledger.top; i++)
                if (ledger.objects[i].used && ledger.objects[i].class == RM_CLASS_GROUP &&
                    ledger.objects[i].engine == RM_ENGINE_GRAPHICS)
                        *ret = control_of(ledger.objects[i].fd, ledger.objects[i].client,
                                          ledger.objects[i].object, RM_SET_SLICE, &us, sizeof(us));
}

static uint32_t device_of(uint32_t client)
{
        for (uint32_t i = 0; i < ledger.top; i++)
                if (ledger.objects[i].used && ledger.objects[i].class == RM_CLASS_DEVICE &&
                    ledger.objects[i].client == client)
                        return ledger.objects[i].object;
        return 0;
}

static void serve(struct worker *w)
{
        const struct channels_call *c = &w->call;
        uint32_t params[14] = {0}, s = 0;

        while (!shared->enough) {
                switch (w->order) {
                case FREEZE:
                        s = freeze();
                        break;
                case THAW:
                        s = thaw();
                        break;
                case SECRET:
                        for (uint32_t i = 0; i < 16; i++) {
                                params[0] = i;
                                s = alloc(c->fd, c->client, c->client, w->secret, RM_CLASS_DEVICE,
                                          params, sizeof(params), NULL);
                                if (!s)
                                        break;
                        }
                        break;
                case UNSECRET:
                        s = free_object(c->fd, c->client, c->client, w->secret);
                        break;
                case SLICE:
                        set_slices(w->slice_us, &s);
                        break;
                case END:
                        _exit(0);
                default:
                        (void)usleep(100);
                        continue;
                }
                w->status = s;
                w->order = NOTHING;
                w->done++;
        }
        _exit(0);
}

static void work(struct worker *w)
{
        CUdeviceptr at;
        uint64_t most = UINT64_MAX;
        void *args[2] = {&at, &most};

        driver();
        at = at_count(w);
        w->count = 0;
        TRY(cuLaunchKernel, count_kernel, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
        while (w->count == 0)
                (void)usleep(100);
        (void)list_channels();
        w->call = calls[0];
        w->device = device_of(w->call.client);
        w->pid = getpid();
        printf("{\"worker\":%d,\"calls\":%zu,\"channels\":%u,\"client\":\"%#x\",\"device\":\"%#x\"}"
               "\n",
               (int)(w - shared->w), calls_count, w->call.count, w->call.client, w->device);
        (void)fflush(stdout);
        w->ready = true;
        serve(w);
}

static uint32_t order(struct worker *w, uint32_t what)
{
        uint32_t before = w->done;

        w->order = what;
        while (w->done == before)
                (void)usleep(50);
        return w->status;
}

static pid_t start(struct worker *w)
{
        pid_t pid;

        (void)fflush(stdout);
        w->ready = false;
        w->order = NOTHING;
        pid = fork();
        if (pid == 0) {
                (void)alarm(120);
                work(w);
        }
        while (!w->ready && waitpid(pid, NULL, WNOHANG) == 0)
                (void)usleep(1000);
        return pid;
}

static void end(pid_t pid)
{
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
}

static double rate(struct worker *w, unsigned ms)
{
        uint64_t at = clock_now_ns(), n = w->count;

        (void)usleep(ms * 1000);
        return (double)(w->count - n) / ((double)(clock_now_ns() - at) / 1e9);
}

/* True if a thread of the worker waits for a processor, or has one. */
static bool is_runnable(const struct worker *w)
{
        char path[300], text[512];
        bool runs = false;
        DIR *tasks;

        (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)w->pid);
        tasks = opendir(path);
        for (struct dirent *e; tasks && !runs && (e = readdir(tasks));) {
                const char *end;
                ssize_t n;
                int fd;

                (void)snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)w->pid, e->d_name);
                fd = open(path, O_RDONLY | O_CLOEXEC);
                n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
                text[n > 0 ? n : 0] = 0;
                end = strrchr(text, ')');
                runs = end && end[1] && end[2] == 'R';
                (void)close(fd);
        }
        if (tasks)
                (void)closedir(tasks);
        return runs;
}

/* On the simulator a thread counts, which a busy machine may let wait for a while. */
static bool counts(struct worker *w)
{
        const uint64_t at = clock_now_ns(), n = w->count;

        for (unsigned still = 0; still < 3 && clock_now_ns() - at < 5 * NSEC_PER_SEC;) {
                (void)usleep(20000);
                if (w->count != n)
                        return true;
                still = is_runnable(w) ? 0 : still + 1;
        }
        return false;
}

static int compare(const void *a, const void *b)
{
        const double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static void print_times(const char *name, double *list, unsigned n)
{
        qsort(list, n, sizeof(*list), compare);
        printf(",\"%s\":{\"median\":%.3f,\"p90\":%.3f,\"p99\":%.3f,\"most\":%.3f}", name,
               list[n / 2], list[n * 9 / 10], list[n * 99 / 100], list[n - 1]);
}

/* ---- cases ---- */

static void raw(void)
{
        struct worker *w = &shared->w[0];
        pid_t pid = start(w);
        static double f[200], t[200], stops[200], goes[200];
        struct hand h;
        bool ok = hand_open(&h, true);

        for (unsigned i = 0; ok && i < 200; i++) {
                uint64_t at = clock_now_ns(), n, last;

                ok = hand_switch(&h, &w->call, true) == 0;
                f[i] = (double)(clock_now_ns() - at) / 1e6;
                last = n = w->count;
                (void)usleep(2000);
                stops[i] = (double)(w->count - n);
                n = w->count;
                at = clock_now_ns();
                ok = ok && hand_switch(&h, &w->call, false) == 0;
                t[i] = (double)(clock_now_ns() - at) / 1e6;
                while (w->count == n && clock_now_ns() - at < NSEC_PER_SEC)
                        ;
                goes[i] = (double)(clock_now_ns() - at) / 1e6;
                (void)last;
                (void)usleep(1000 + (unsigned)i * 37 % 2000);
        }
        printf("{\"what\":\"raw\",\"uid\":%d,\"ok\":%d", (int)getuid(), ok);
        print_times("freeze_ms", f, 200);
        print_times("thaw_ms", t, 200);
        print_times("goes_ms", goes, 200);
        print_times("ran_on", stops, 200);
        printf("}\n");
        end(pid);
}

static void names(void)
{
        struct worker *w = &shared->w[0], *dead = &shared->w[1];
        pid_t pid = start(w), other = start(dead);
        struct channels_call c, gone = dead->call;
        struct hand h, h2;
        double us[20];
        uint32_t s;

        (void)hand_open(&h, false);
        (void)hand_open(&h2, false);
        printf("{\"what\":\"names\",\"uid\":%d,\"hand\":\"%#x\",\"hand2\":\"%#x\",\"worker\":\"%#"
               "x\",\"other\":\"%#x\"",
               (int)getuid(), h.client, h2.client, w->call.client, gone.client);
        end(other);
        (void)usleep(200000);
        printf(",\"dead\":\"%#x\"", hand_switch(&h, &gone, true));
        printf(",\"dead_enable\":\"%#x\"", hand_switch(&h, &gone, false));
        c = w->call;
        c.client = 0xc1dfffff;
        printf(",\"invented_client\":\"%#x\"", hand_switch(&h, &c, true));
        c = w->call;
        c.count = 1;
        c.channels[0] = 0x5b1e7002;
        printf(",\"invented_channel\":\"%#x\"", hand_switch(&h, &c, true));
        printf(",\"invented_channel_enable\":\"%#x\"", hand_switch(&h, &c, false));
        c.channels[0] = w->device;
        printf(",\"device_as_channel\":\"%#x\"", hand_switch(&h, &c, true));
        c.count = 0;
        printf(",\"empty\":\"%#x\"", hand_switch(&h, &c, true));
        printf(",\"counts\":%d", counts(w));
        { /* the worker's client, by a descriptor that did not make it */
                struct channels_call by = w->call;

                by.fd = h.ctl;
                s = control_by(&by, &w->call, true);
                printf(",\"strict\":\"%#x\",\"counts_then\":%d", s, counts(w));
        }
        printf(",\"free_foreign\":\"%#x\"",
               free_object(h.ctl, w->call.client, w->call.client, 0x5b1e7003));
        /* proof of ownership: a device whose handle only the true owner's process can make */
        w->secret = 0x5b7a11ce;
        printf(",\"dup_no_client\":\"%#x\"",
               dup_object(h.ctl, h.client, h.client, 0x5b000009, 0xc1dfffff, w->secret));
        printf(",\"dup_dead\":\"%#x\"",
               dup_object(h.ctl, h.client, h.client, 0x5b000009, gone.client, w->secret));
        printf(",\"dup_missing\":\"%#x\"",
               dup_object(h.ctl, h.client, h.client, 0x5b000009, w->call.client, w->secret));
        printf(",\"dup_device\":\"%#x\"",
               dup_object(h.ctl, h.client, h.client, 0x5b000009, w->call.client, w->device));
        {
                uint64_t at = clock_now_ns();

                s = order(w, SECRET);
                printf(",\"secret\":\"%#x\",\"secret_ms\":%.2f", s,
                       (double)(clock_now_ns() - at) / 1e6);
        }
        for (unsigned i = 0; i < 20; i++) {
                uint64_t at = clock_now_ns();

                s = dup_object(h.ctl, h.client, h.client, 0x5b000009, w->call.client, w->secret);
                us[i] = (double)(clock_now_ns() - at) / 1e3;
        }
        printf(",\"dup_secret\":\"%#x\"", s);
        print_times("dup_us", us, 20);
        s = order(w, UNSECRET);
        printf(",\"unsecret\":\"%#x\"", s);
        printf(",\"dup_freed\":\"%#x\"",
               dup_object(h.ctl, h.client, h.client, 0x5b000009, w->call.client, w->secret));
        /* while the worker is frozen, and while it is stopped */
        (void)hand_switch(&h, &w->call, true);
        printf(",\"secret_frozen\":\"%#x\"", order(w, SECRET));
        printf(",\"dup_frozen\":\"%#x\"",
               dup_object(h.ctl, h.client, h.client, 0x5b000009, w->call.client, w->secret));
        (void)order(w, UNSECRET);
        (void)hand_switch(&h, &w->call, false);
        { /* how handles of clients follow each other */
                struct hand x = {.ctl = h.ctl};
                uint32_t first, again;

                (void)alloc(h.ctl, 0, 0, 0, RM_CLASS_CLIENT_USER, NULL, 0, &first);
                (void)free_object(h.ctl, first, first, first);
                (void)alloc(h.ctl, 0, 0, 0, RM_CLASS_CLIENT_USER, NULL, 0, &again);
                printf(",\"client\":\"%#x\",\"client_after_free\":\"%#x\"", first, again);
                s = alloc(h.ctl, 0, 0, gone.client, RM_CLASS_CLIENT_USER, NULL, 0, &x.client);
                printf(",\"wanted_dead\":\"%#x\",\"got\":\"%#x\"", s, x.client);
        }
        printf(",\"counts_last\":%d}\n", counts(w));
        end(pid);
}

/* Prints a call's status, and whether the worker counts after it. */
static void told(const char *name, uint32_t status)
{
        printf(",\"%s\":[\"%#x\",%d]", name, status, counts(&shared->w[0]));
}

static void stale(void)
{
        struct worker *w = &shared->w[0];
        struct channels_call wrong;
        struct hand h, h2;
        pid_t pid;

        (void)hand_open(&h, false);
        (void)hand_open(&h2, false);
        pid = start(w);
        wrong = w->call;
        wrong.channels[wrong.count++] = 0x5b1e7002;
        printf("{\"what\":\"failing disable\"");
        told("failing", hand_switch(&h, &wrong, true));
        told("undo", hand_switch(&h, &w->call, false));
        told("freeze", hand_switch(&h, &w->call, true));
        told("thaw", hand_switch(&h, &w->call, false));
        told("again", hand_switch(&h, &w->call, false));
        printf("}\n");
        end(pid);
        pid = start(w);
        wrong = w->call;
        wrong.channels[wrong.count++] = 0x5b1e7002;
        printf("{\"what\":\"failing disable without undo\"");
        told("failing", hand_switch(&h, &wrong, true));
        told("freeze", hand_switch(&h, &w->call, true));
        told("thaw", hand_switch(&h, &w->call, false));
        told("again", hand_switch(&h, &w->call, false));
        printf("}\n");
        end(pid);
        pid = start(w);
        wrong = w->call;
        wrong.channels[wrong.count++] = 0x5b1e7002;
        printf("{\"what\":\"failing disable while the owner has frozen\"");
        told("owner", order(w, FREEZE));
        told("failing", hand_switch(&h, &wrong, true));
        told("undo", hand_switch(&h, &w->call, false));
        told("owner_thaws", order(w, THAW));
        told("again", order(w, THAW));
        printf("}\n");
        end(pid);
        pid = start(w);
        printf("{\"what\":\"owner twice\"");
        told("owner", order(w, FREEZE));
        told("owner", order(w, FREEZE));
        told("thaw", order(w, THAW));
        told("thaw", order(w, THAW));
        told("thaw", order(w, THAW));
        told("freeze", order(w, FREEZE));
        told("thaw", order(w, THAW));
        printf("}\n");
        end(pid);
        pid = start(w);
        printf("{\"what\":\"owner and hand\"");
        told("owner", order(w, FREEZE));
        told("hand", hand_switch(&h, &w->call, true));
        told("hand_thaws", hand_switch(&h, &w->call, false));
        told("owner_thaws", order(w, THAW));
        told("hand", hand_switch(&h, &w->call, true));
        told("owner", order(w, FREEZE));
        told("owner_thaws", order(w, THAW));
        told("hand_thaws", hand_switch(&h, &w->call, false));
        printf("}\n{\"what\":\"two hands\"");
        told("hand", hand_switch(&h, &w->call, true));
        told("hand2", hand_switch(&h2, &w->call, true));
        told("hand2_thaws", hand_switch(&h2, &w->call, false));
        told("hand_thaws", hand_switch(&h, &w->call, false));
        printf("}\n{\"what\":\"too many thaws\"");
        for (unsigned i = 0; i < 3; i++)
                told("thaw", hand_switch(&h, &w->call, false));
        told("freeze", hand_switch(&h, &w->call, true));
        told("owner", order(w, FREEZE));
        told("hand_thaws", hand_switch(&h, &w->call, false));
        told("owner_thaws", order(w, THAW));
        printf("}\n");
        end(pid);
        pid = start(w);
        wrong = w->call;
        wrong.channels[wrong.count++] = 0x5b1e7002;
        printf("{\"what\":\"failing enable\"");
        told("hand", hand_switch(&h, &w->call, true));
        told("failing", hand_switch(&h, &wrong, false));
        told("thaw", hand_switch(&h, &w->call, false));
        told("freeze", hand_switch(&h, &w->call, true));
        told("thaw", hand_switch(&h, &w->call, false));
        printf("}\n");
        end(pid);
        /* the program schedules its group, which starts a channel, while it is frozen twice */
}

static void killed(void)
{
        struct worker *w = &shared->w[0];
        pid_t pid = start(w);

        for (unsigned round = 0; round < 3; round++) {
                pid_t other;
                struct hand h;
                bool stood;
                double ms;
                uint64_t at;

                (void)fflush(stdout);
                shared->a = 0;
                other = fork();
                if (other == 0) {
                        (void)hand_open(&h, false);
                        shared->b = hand_switch(&h, &w->call, true);
                        shared->a = 1;
                        if (round == 2)
                                _exit(0);
                        for (;;)
                                (void)pause();
                }
                while (!shared->a)
                        (void)usleep(1000);
                stood = !counts(w);
                at = clock_now_ns();
                end(other);
                ms = (double)(clock_now_ns() - at) / 1e6;
                printf("{\"what\":\"killed\",\"freeze\":\"%#x\",\"stood\":%d,\"died_ms\":%.1f,"
                       "\"counts_1s_later\":%d",
                       (unsigned)shared->b, stood, ms, rate(w, 1000) > 0);
                if (round == 1) {
                        (void)hand_open(&h, false);
                        printf(",\"another_hand\":\"%#x\"", hand_switch(&h, &w->call, false));
                } else {
                        printf(",\"owner\":\"%#x\"", order(w, THAW));
                }
                printf(",\"counts_then\":%d}\n", counts(w));
        }
        { /* killed in the middle of switching all the time */
                unsigned on = 0, off = 0, thaws[8] = {0};

                for (unsigned i = 0; i < 40; i++) {
                        struct hand h;
                        pid_t other;

                        (void)fflush(stdout);
                        shared->a = 0;
                        other = fork();
                        if (other == 0) {
                                (void)hand_open(&h, false);
                                shared->a = 1;
                                for (;;) {
                                        (void)hand_switch(&h, &w->call, true);
                                        (void)hand_switch(&h, &w->call, false);
                                }
                        }
                        while (!shared->a)
                                (void)usleep(100);
                        (void)usleep(3000 + i * 93);
                        end(other);
                        off += !counts(w);
                        for (unsigned k = 0; k < 8 && !counts(w); k++)
                                thaws[k] += order(w, THAW) == 0;
                        on += order(w, FREEZE) == 0 && !counts(w) && order(w, THAW) == 0 &&
                              counts(w);
                }
                printf("{\"what\":\"killed "
                       "switching\",\"rounds\":40,\"frozen_then\":%u,\"thaws\":[%u,%u,%u,%u],"
                       "\"works_then\":%u}\n",
                       off, thaws[0], thaws[1], thaws[2], thaws[3], on);
        }
        end(pid);
}

static struct hand of_thread[2];
static double thread_ms[2][100];

static void *switches(void *userdata)
{
        unsigned n = (unsigned)(uintptr_t)userdata;

        for (unsigned i = 0; i < 100; i++) {
                uint64_t at = clock_now_ns();

                (void)hand_switch(&of_thread[n], &shared->w[n].call, true);
                thread_ms[n][i] = (double)(clock_now_ns() - at) / 1e6;
                (void)hand_switch(&of_thread[n], &shared->w[n].call, false);
        }
        return NULL;
}

/* One call for channels of two clients. */
static uint32_t both_at_once(const struct hand *h, bool disable)
{
        struct rm_disable_channels d = {.disable = disable};

        for (unsigned k = 0; k < 2; k++)
                for (uint32_t i = 0; i < shared->w[k].call.count && d.count < 64; i++) {
                        d.clients[d.count] = shared->w[k].call.client;
                        d.channels[d.count++] = shared->w[k].call.channels[i];
                }
        return control_of(h->ctl, h->client, h->subdevice, RM_DISABLE_CHANNELS, &d, sizeof(d));
}

static void pairs(void)
{
        pid_t pid[2] = {start(&shared->w[0]), start(&shared->w[1])};
        static double f[100], t[100], single[100], change[100];
        pthread_t thread[2];
        struct hand h;
        uint32_t s = 0;

        (void)hand_open(&h, false);
        for (unsigned i = 0; i < 100; i++) {
                uint64_t at = clock_now_ns();

                s |= both_at_once(&h, true);
                f[i] = (double)(clock_now_ns() - at) / 1e6;
                (void)usleep(1000);
                at = clock_now_ns();
                s |= both_at_once(&h, false);
                t[i] = (double)(clock_now_ns() - at) / 1e6;
                (void)usleep(3000);
        }
        printf("{\"what\":\"pairs\",\"channels\":64,\"status\":\"%#x\"", s);
        print_times("freeze_ms", f, 100);
        print_times("thaw_ms", t, 100);
        /* a single channel, the first, which computes */
        for (unsigned i = 0; i < 100; i++) {
                struct channels_call c = shared->w[0].call;
                uint64_t at = clock_now_ns();

                c.count = 8;
                s |= hand_switch(&h, &c, true);
                single[i] = (double)(clock_now_ns() - at) / 1e6;
                if (i == 50)
                        printf(",\"eight_stand\":%d", !counts(&shared->w[0]));
                (void)usleep(1000);
                s |= hand_switch(&h, &c, false);
                (void)usleep(3000);
        }
        print_times("eight_ms", single, 100);
        /* from one to the other: freeze A, thaw B, until B counts */
        s |= hand_switch(&h, &shared->w[1].call, true);
        for (unsigned i = 0; i < 100; i++) {
                struct worker *from = &shared->w[i % 2], *to = &shared->w[1 - i % 2];
                uint64_t at = clock_now_ns(), n = to->count;

                s |= hand_switch(&h, &from->call, true);
                s |= hand_switch(&h, &to->call, false);
                while (to->count == n && clock_now_ns() - at < NSEC_PER_SEC)
                        ;
                change[i] = (double)(clock_now_ns() - at) / 1e6;
                (void)usleep(5000);
        }
        s |= hand_switch(&h, &shared->w[0].call, false) |
             hand_switch(&h, &shared->w[1].call, false);
        print_times("change_ms", change, 100);
        printf(",\"status_then\":\"%#x\",\"counts\":[%d,%d]}\n", s, counts(&shared->w[0]),
               counts(&shared->w[1]));
        for (unsigned n = 0; n < 2; n++) {
                (void)hand_open(&of_thread[n], false);
                (void)pthread_create(&thread[n], NULL, switches, (void *)(uintptr_t)n);
        }
        for (unsigned n = 0; n < 2; n++)
                (void)pthread_join(thread[n], NULL);
        printf("{\"what\":\"two threads\"");
        print_times("a_ms", thread_ms[0], 100);
        print_times("b_ms", thread_ms[1], 100);
        printf("}\n");
        end(pid[0]);
        end(pid[1]);
}

static void stopped(void)
{
        struct worker *w = &shared->w[0];
        pid_t pid = start(w);
        struct hand h;
        uint64_t at, n;

        (void)hand_open(&h, false);
        (void)kill(pid, SIGSTOP);
        (void)waitpid(pid, NULL, WUNTRACED);
        at = clock_now_ns();
        printf("{\"what\":\"frozen while stopped\",\"freeze\":\"%#x\"",
               hand_switch(&h, &w->call, true));
        printf(",\"freeze_ms\":%.2f", (double)(clock_now_ns() - at) / 1e6);
        n = w->count;
        (void)kill(pid, SIGCONT);
        (void)usleep(20000);
        printf(",\"ran_on\":%llu,\"counts\":%d", (unsigned long long)(w->count - n), counts(w));
        printf(",\"thaw\":\"%#x\"", hand_switch(&h, &w->call, false));
        printf(",\"counts_thawed\":%d}\n", counts(w));
        (void)hand_switch(&h, &w->call, true);
        (void)kill(pid, SIGSTOP);
        (void)waitpid(pid, NULL, WUNTRACED);
        printf("{\"what\":\"thawed while stopped\",\"thaw\":\"%#x\"",
               hand_switch(&h, &w->call, false));
        printf(",\"counts_stopped\":%d", counts(w));
        (void)kill(pid, SIGCONT);
        (void)usleep(20000);
        printf(",\"counts\":%d}\n", counts(w));
        end(pid);
}

/* Lets the process make only the system calls that a hand needs. Others kill it. */
static bool restrict_calls(void)
{
#define ALLOW(name)                                            \
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), \
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
        struct sock_filter code[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                ALLOW(ioctl),
                ALLOW(futex),
                ALLOW(nanosleep),
                ALLOW(clock_nanosleep),
                ALLOW(close),
                ALLOW(read),
                ALLOW(write),
                ALLOW(exit_group),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        };
        struct sock_fprog program = {ARRAY_SIZE(code), code};

        return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
               prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* The worker starts after the sandbox, as a program does under a daemon. */
static void sandbox(void)
{
        struct worker *w = &shared->w[0], *dead = &shared->w[1];
        pid_t pid, other, in;
        int status = 0;

        (void)fflush(stdout);
        w->ready = false;
        dead->done = 0;
        shared->enough = false;
        shared->a = shared->b = 0;
        in = fork();
        if (in == 0) {
                uint32_t s = 0;
                struct hand h;

                if (!hand_open(&h, false) || !restrict_calls())
                        _exit(1);
                while (shared->a == 0)
                        (void)usleep(1000);
                for (unsigned i = 0; i < 100; i++) {
                        s |= hand_switch(&h, &w->call, true);
                        s |= hand_switch(&h, &w->call, false);
                }
                s |= hand_switch(&h, &w->call, true);
                shared->b = 1 + s;
                while (shared->a == 1)
                        (void)usleep(1000);
                s = hand_switch(&h, &dead->call, true) == RM_NO_CHANNEL ? 0 : 1;
                s |= hand_switch(&h, &w->call, false);
                s |= dup_object(h.ctl, h.client, h.client, 0x5b000009, w->call.client, w->device) ==
                                     0x1f
                             ? 0
                             : 2;
                s |= free_object(h.ctl, h.client, h.client, h.device);
                _exit(s ? 2 : 0);
        }
        pid = start(w);
        other = start(dead);
        shared->a = 1;
        while (shared->b == 0 && waitpid(in, &status, WNOHANG) == 0)
                (void)usleep(1000);
        printf("{\"what\":\"sandbox\",\"status\":\"%#x\",\"counts\":%d", (unsigned)shared->b - 1,
               counts(w));
        end(other);
        shared->a = 2;
        if (shared->b)
                (void)waitpid(in, &status, 0);
        printf(",\"ended\":%d,\"counts_thawed\":%d}\n", status, counts(w));
        end(pid);
}

#define REQUESTS 60
static void third(void)
{
        static const uint64_t slices[] = {2048, 5000, 10000, 20000, 50000, 100000};
        struct worker *a = &shared->w[0], *b = &shared->w[1], *t = &shared->w[2];
        pid_t pid[2];
        CUdeviceptr at;
        uint64_t most = UINT64_MAX, n;
        void *args[2] = {&at, &most};
        double alone, own_ms = 0;
        struct hand h;

        pid[0] = start(a);
        alone = rate(a, 500);
        pid[1] = start(b);
        (void)hand_open(&h, false);
        driver();
        at = at_count(t);
        (void)hand_switch(&h, &a->call, true);
        (void)hand_switch(&h, &b->call, true);
        most = 2000;
        for (unsigned i = 0; i < 3; i++) {
                n = clock_now_ns();
                TRY(cuLaunchKernel, count_kernel, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
                TRY(cuStreamSynchronize, stream);
                own_ms = (double)(clock_now_ns() - n) / 1e6;
        }
        most = (uint64_t)(2000 * 5 / own_ms);
        (void)hand_switch(&h, &a->call, false);
        (void)hand_switch(&h, &b->call, false);
        printf("{\"what\":\"third\",\"alone_per_s\":%.0f,\"iterations_of_5_ms\":%llu}\n", alone,
               (unsigned long long)most);
        for (unsigned k = 0; k < 2 * ARRAY_SIZE(slices); k++) {
                const bool holds = k >= ARRAY_SIZE(slices);
                static double ms[REQUESTS];
                uint64_t began, ca, cb;
                double seconds, both_a, both_b;

                a->slice_us = b->slice_us = slices[k % ARRAY_SIZE(slices)];
                if (holds && slices[k % ARRAY_SIZE(slices)] != 2048 &&
                    slices[k % ARRAY_SIZE(slices)] != 20000)
                        continue;
                (void)order(a, SLICE);
                (void)order(b, SLICE);
                (void)usleep(200000);
                both_a = rate(a, 1000);
                both_b = 0;
                n = clock_now_ns();
                ca = a->count;
                cb = b->count;
                (void)usleep(1500000);
                seconds = (double)(clock_now_ns() - n) / 1e9;
                both_a = (double)(a->count - ca) / seconds / alone;
                both_b = (double)(b->count - cb) / seconds / alone;
                began = clock_now_ns();
                ca = a->count;
                cb = b->count;
                for (unsigned i = 0; i < REQUESTS; i++) {
                        (void)usleep(40000 + (i * 7919) % 20000);
                        n = clock_now_ns();
                        if (holds) {
                                (void)hand_switch(&h, &a->call, true);
                                (void)hand_switch(&h, &b->call, true);
                        }
                        TRY(cuLaunchKernel, count_kernel, 1, 1, 1, 1, 1, 1, 0, stream, args, NULL);
                        TRY(cuStreamSynchronize, stream);
                        ms[i] = (double)(clock_now_ns() - n) / 1e6;
                        if (holds) {
                                (void)hand_switch(&h, &a->call, false);
                                (void)hand_switch(&h, &b->call, false);
                        }
                }
                seconds = (double)(clock_now_ns() - began) / 1e9;
                printf("{\"slice_us\":%llu,\"holds\":%d,\"pair\":[%.3f,%.3f],\"beside_third\":[%."
                       "3f,%.3f],\"third_part\":%.3f",
                       (unsigned long long)a->slice_us, holds, both_a, both_b,
                       (double)(a->count - ca) / seconds / alone,
                       (double)(b->count - cb) / seconds / alone, REQUESTS * 0.005 / seconds);
                print_times("delay_ms", ms, REQUESTS);
                printf("}\n");
                (void)fflush(stdout);
        }
        end(pid[0]);
        end(pid[1]);
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                void (*run)(void);
        } cases[] = {{"raw", raw},         {"names", names}, {"stale", stale},
                     {"killed", killed},   {"pairs", pairs}, {"stopped", stopped},
                     {"sandbox", sandbox}, {"third", third}};

        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                      0);
        for (int i = 1; i < argc; i++)
                for (size_t k = 0; k < ARRAY_SIZE(cases); k++) {
                        pid_t pid;

                        if (strcmp(argv[i], cases[k].name) != 0)
                                continue;
                        (void)fflush(stdout);
                        pid = fork();
                        if (pid == 0) {
                                (void)alarm(150);
                                cases[k].run();
                                (void)fflush(stdout);
                                _exit(0);
                        }
                        (void)waitpid(pid, NULL, 0);
                }
        return 0;
}
