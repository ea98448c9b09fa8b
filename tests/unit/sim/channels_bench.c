/* channels_bench.c: puts the door in front of the simulated driver, and makes requests that tests
 * write themselves. */
#include "channels_bench.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/macros.h"
#include "preload/driver/real.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct channels seen;
static unsigned requests[256];
static real_ioctl_fn *drivers;
_Atomic(real_ioctl_fn *) real_ioctl;
static const char *version;
static int control_fd = -1;

static void note(int fd, unsigned escape, void *argument)
{
        requests[escape & 0xff]++;
        control_fd = fd;
        if (escape == RM_ESCAPE_ALLOC) {
                const struct rm_alloc *a = argument;

                channels_enter(&seen, &(struct channels_made){.fd = fd,
                                                              .client = a->client,
                                                              .parent = a->parent,
                                                              .object = a->object,
                                                              .class = a->class});
        } else if (escape == RM_ESCAPE_FREE) {
                const struct rm_free *f = argument;

                channels_remove(&seen, f->client, f->object);
        } else if (escape == RM_ESCAPE_CHECK_VERSION && version) {
                struct rm_version *v = argument;

                if (v->command == RM_VERSION_QUERY && !v->text[0])
                        (void)snprintf(v->text, sizeof(v->text), "%s", version);
        }
}

static int sees(int fd, unsigned long request, ...)
{
        void *argument;
        va_list list;
        int r;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        r = drivers(fd, request, argument);
        if (r == 0 && _IOC_TYPE(request) == RM_IOCTL_TYPE) {
                const struct rm_wrapped *w = argument;
                bool wrapped = _IOC_NR(request) == RM_ESCAPE_WRAPPED;

                (void)pthread_mutex_lock(&lock);
                note(fd, wrapped ? w->escape : _IOC_NR(request),
                     wrapped ? (void *)(uintptr_t)w->argument : argument);
                (void)pthread_mutex_unlock(&lock);
        }
        return r;
}

void bench_say_driver(const char *text)
{
        version = text;
}

void bench_open(void)
{
        drivers = (real_ioctl_fn *)dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "ioctl");
        CHECK(drivers != NULL);
        atomic_store(&real_ioctl, sees);
}

CUcontext bench_begin(void)
{
        bench_open();
        return unit_begin();
}

struct channels_call bench_channels(enum channels_owner owner)
{
        struct channels_call calls[2];
        size_t n;

        (void)pthread_mutex_lock(&lock);
        CHECK(channels_calls(&seen, owner, CHANNELS_ALL, calls, ARRAY_SIZE(calls), &n));
        (void)pthread_mutex_unlock(&lock);
        CHECK_EQUAL(n, 1);
        return calls[0];
}

uint32_t bench_object(uint32_t class, unsigned nth)
{
        uint32_t found = 0;

        (void)pthread_mutex_lock(&lock);
        for (uint32_t i = 0; i < seen.top && !found; i++)
                if (seen.objects[i].used && seen.objects[i].class == class && nth-- == 0)
                        found = seen.objects[i].object;
        (void)pthread_mutex_unlock(&lock);
        CHECK(found != 0);
        return found;
}

unsigned bench_requests(unsigned escape)
{
        return requests[escape & 0xff];
}

/* ---- requests ---- */

int bench_descriptor(void)
{
        return control_fd;
}

int bench_ioctl(unsigned escape, void *argument, size_t bytes)
{
        return drivers(control_fd, _IOC(_IOC_READ | _IOC_WRITE, RM_IOCTL_TYPE, escape, bytes),
                       argument);
}

static uint32_t status_of(int r, uint32_t status)
{
        return r < 0 ? BENCH_FAILED | (uint32_t)errno : status;
}

uint32_t bench_control(uint32_t client, uint32_t object, uint32_t command, void *params,
                       uint32_t size)
{
        struct rm_control k = {.client = client,
                               .object = object,
                               .command = command,
                               .params = (uint64_t)(uintptr_t)params,
                               .params_size = size,
                               .status = UINT32_MAX};
        int r = bench_ioctl(RM_ESCAPE_CONTROL, &k, sizeof(k));

        return status_of(r, k.status);
}

uint32_t bench_switch(const struct channels_call *c, bool disable)
{
        struct rm_disable_channels d = {.disable = disable, .count = c->count};

        for (uint32_t i = 0; i < c->count; i++) {
                d.clients[i] = c->client;
                d.channels[i] = c->channels[i];
        }
        return bench_control(c->client, c->subdevice, RM_DISABLE_CHANNELS, &d, sizeof(d));
}

uint32_t bench_alloc(uint32_t client, uint32_t parent, uint32_t *object, uint32_t class,
                     void *params)
{
        struct rm_alloc_short a = {
                {client, parent, *object, class, (uint64_t)(uintptr_t)params}, 0, UINT32_MAX};
        int r = bench_ioctl(RM_ESCAPE_ALLOC, &a, sizeof(a));

        *object = a.alloc.object;
        return status_of(r, a.status);
}

uint32_t bench_free(uint32_t client, uint32_t object)
{
        struct rm_free f = {client, 0, object, UINT32_MAX};
        int r = bench_ioctl(RM_ESCAPE_FREE, &f, sizeof(f));

        return status_of(r, f.status);
}

/* ---- a kernel that counts ---- */

struct counter *bench_count(CUstream s)
{
        struct counter *k = unit_pinned(sizeof(*k));

        OK(unit_launch(unit_kernel("count"), unit_address(k), s));
        bench_await_progress(k);
        return k;
}

void bench_await_progress(const struct counter *k)
{
        uint64_t before = k->count;

        while (k->count == before)
                (void)usleep(100);
}

bool bench_stands(const struct counter *k)
{
        uint64_t before = k->count;

        (void)usleep(30000);
        return k->count == before;
}

void bench_end_count(struct counter *k, CUstream s)
{
        k->stop = 1;
        OK(cuStreamSynchronize(s));
        CHECK_EQUAL(k->sum, k->count * (k->count + 1) / 2);
}
