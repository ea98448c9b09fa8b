/* freezing.h: what the probes of freezing have in common: the driver's functions; an ioctl() that
 * records the program's channels; freeze and thaw. RM is the kernel's resource manager.
 *
 * Included by one file of a program, which is linked with -rdynamic and src/preload/rm/channels.c.
 * A probe acts only on objects of its own process and of processes that it has started. */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "cuda/cuda_abi.h"
#include "preload/rm/channels.h"

#define CU(base, symbol, since, flags, behaviour, stream, params, args) CUresult symbol params;
#include "cuda/cuda_api.def"

/* Each file lists the driver functions that it uses as USED(X). */
#define DRIVER_FUNCTION(name)      static __typeof__(name) *p_##name;
#define FIND_DRIVER_FUNCTION(name) p_##name = (__typeof__(name) *)dlsym(library, #name);
#define TRY(name, ...)             try_(p_##name(__VA_ARGS__), #name)

static void try_(CUresult r, const char *call)
{
        if (r == CUDA_SUCCESS)
                return;
        printf("{\"error\":\"%s\",\"result\":%d}\n", call, (int)r);
        (void)fflush(stdout);
        _exit(1);
}

/* ---- ioctl() and freezing ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct channels ledger;
static __thread enum channels_owner owner;
static _Atomic bool frozen;
static struct channels_call calls[32];
static size_t calls_count;
static _Atomic unsigned made_while_frozen, freed_while_frozen;

/* The ioctl() behind ours: the simulated driver's, or libc's with a real driver. */
static int (*next_ioctl)(int, unsigned long, ...);

static int raw_ioctl(int fd, unsigned long request, void *argument)
{
        if (next_ioctl)
                return next_ioctl(fd, request, argument);
        return (int)syscall(SYS_ioctl, fd, request, argument);
}

/* Loads the driver, and finds the ioctl() to which ours passes the driver's requests on. */
static void *open_driver(void)
{
        void *library = dlopen("libcuda.so.1", RTLD_NOW);

        if (library)
                next_ioctl = (__typeof__(next_ioctl))dlsym(library, "ioctl");
        return library;
}

static void look_at(int fd, unsigned escape, const void *argument, size_t size)
{
        if (escape == RM_ESCAPE_ALLOC &&
            (size == sizeof(struct rm_alloc_short) || size == sizeof(struct rm_alloc_long))) {
                const struct rm_alloc *a = argument;
                bool is_long = size == sizeof(struct rm_alloc_long);
                uint32_t status = is_long ? ((const struct rm_alloc_long *)argument)->status
                                          : ((const struct rm_alloc_short *)argument)->status;
                const struct rm_group_params *g = (const void *)(uintptr_t)a->params;

                if (status != 0)
                        return;
                made_while_frozen +=
                        channels_class(a->class) && owner == CHANNELS_PROGRAM && frozen;
                channels_enter(&ledger,
                               &(struct channels_made){
                                       .fd = fd,
                                       .client = a->client,
                                       .parent = a->parent,
                                       .object = a->object,
                                       .class = a->class,
                                       .engine = a->class == RM_CLASS_GROUP && g ? g->engine : 0,
                                       .owner = owner});
        } else if (escape == RM_ESCAPE_FREE && size == sizeof(struct rm_free)) {
                const struct rm_free *f = argument;
                uint32_t channels;

                if (f->status != 0)
                        return;
                channels = ledger.count;
                channels_remove(&ledger, f->client, f->object);
                freed_while_frozen += frozen && ledger.count < channels;
        }
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
        va_list list;
        void *argument;
        int r, saved;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        r = raw_ioctl(fd, request, argument);
        if (r != 0 || _IOC_TYPE(request) != RM_IOCTL_TYPE || !argument)
                return r;
        saved = errno;
        (void)pthread_mutex_lock(&lock);
        if (_IOC_NR(request) == RM_ESCAPE_WRAPPED &&
            _IOC_SIZE(request) == sizeof(struct rm_wrapped)) {
                const struct rm_wrapped *w = argument;

                look_at(fd, w->escape & 0xff, (const void *)(uintptr_t)w->argument, w->size);
        } else {
                look_at(fd, _IOC_NR(request), argument, _IOC_SIZE(request));
        }
        (void)pthread_mutex_unlock(&lock);
        errno = saved;
        return r;
}

/* Returns RM's status, or 0xe0000000 and the errno if ioctl() failed. */
static uint32_t control_of(int fd, uint32_t client, uint32_t object, uint32_t command, void *params,
                           uint32_t size)
{
        struct rm_control k = {.client = client,
                               .object = object,
                               .command = command,
                               .params = (uint64_t)(uintptr_t)params,
                               .params_size = size,
                               .status = UINT32_MAX};

        if (raw_ioctl(fd, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_CONTROL, struct rm_control), &k) < 0)
                return 0xe0000000u | (uint32_t)errno;
        return k.status;
}

/* Disables or enables the channels that `c` lists, by the descriptor and subdevice of `by`. */
static uint32_t control_by(const struct channels_call *by, const struct channels_call *c,
                           bool disable)
{
        struct rm_disable_channels d = {.disable = disable, .count = c->count};

        for (uint32_t i = 0; i < c->count; i++) {
                d.clients[i] = c->client;
                d.channels[i] = c->channels[i];
        }
        return control_of(by->fd, by->client, by->subdevice, RM_DISABLE_CHANNELS, &d, sizeof(d));
}

static uint32_t control(const struct channels_call *c, bool disable)
{
        return control_by(c, c, disable);
}

static bool list_channels(void)
{
        bool all;

        (void)pthread_mutex_lock(&lock);
        all = channels_calls(&ledger, CHANNELS_PROGRAM, CHANNELS_ALL, calls, ARRAY_SIZE(calls),
                             &calls_count);
        (void)pthread_mutex_unlock(&lock);
        return all;
}

static uint32_t freeze(void)
{
        uint32_t status = list_channels() ? 0 : UINT32_MAX;

        frozen = true;
        for (size_t i = 0; i < calls_count; i++)
                status = status ? status : control(&calls[i], true);
        return status;
}

static uint32_t thaw(void)
{
        uint32_t status = 0;

        for (size_t i = calls_count; i-- > 0;)
                status |= control(&calls[i], false);
        frozen = false;
        return status;
}
