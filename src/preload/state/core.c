/* core.c: owns the process-wide state, its set-up, and what happens at fork.
 * Why: docs/decisions.md, "At exit nothing comes back". */
#include "preload/state/core.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "base/daemon_paths.h"
#include "base/settings.h"
#include "preload/process/python.h"
#include "preload/process/require.h"
#include "preload/state/part.h"
#include "preload/process/way.h"
#include "preload/state/request.h"

#define NOTICE_AFTER_NS (10 * NSEC_PER_SEC)
#define EXIT_LOOK_NS    (50 * NSEC_PER_MSEC) /* most processes end within this time */
#define ANSWER_AFTER_NS (5 * NSEC_PER_SEC)   /* how long to wait for the daemon's answer */

struct core core;
struct lock core_lock;

/* Runs early, because the program may close stderr before it uses CUDA. Makes only bare system
 * calls, as cpus.c does. */
__attribute__((constructor)) static void core_loaded(void)
{
        log_guard_stderr();
}

static void core_forked(void)
{
        /* The child has no agent. By CUDA's rules it has no working driver either: its calls go
         * straight to the driver. */
        atomic_store(&core.bystander, true);
        FOR_EACH_PART (p, forked) {
                p->forked();
        }
        request_close();
        core_lock = (struct lock){0};
}

static int set_up(void)
{
        int r;

        r = real_open();
        if (r < 0) {
                atomic_store(&core.bystander, true);
        } else {
                settings_warn();
                python_setup(); /* before the setup of parts that look at `python` */
                FOR_EACH_PART (p, setup) {
                        p->setup();
                }
                (void)pthread_atfork(NULL, NULL, core_forked);
                way_join(); /* the driver reads these variables in cuInit() */
        }
        return r;
}

int core_setup(void)
{
        static struct bell done;
        static _Atomic int process; /* the process whose thread began the set-up */
        static _Atomic int result = 1;
        int r = atomic_load_explicit(&result, memory_order_acquire), none = 0;

        if (likely(r != 1))
                return r;
        if (atomic_compare_exchange_strong(&process, &none, (int)getpid())) {
                r = set_up();
                atomic_store_explicit(&result, r, memory_order_release);
                bell_ring(&done);
                return r;
        }
        /* This process was forked during the set-up. Only the parent has the thread that finishes
         * the set-up. */
        if (none != (int)getpid()) {
                atomic_store(&core.bystander, true);
                return -ECHILD;
        }
        for (;;) {
                uint32_t heard = bell_listen(&done);

                r = atomic_load_explicit(&result, memory_order_acquire);
                if (r != 1)
                        return r;
                bell_wait(&done, heard, UINT64_MAX);
        }
}

/* Gets our own threads out of the driver before it shuts down: a thread that is inside then may
 * stay there for ever, with the driver's locks. Takes no lock of ours, because a signal handler may
 * call exit() in a thread that holds one. */
static void core_exits(void)
{
        if (core_passive())
                return;
        atomic_store(&core.exiter, (uintptr_t)pthread_self());
        FOR_EACH_PART (p, exits) {
                p->exits();
        }
        bell_ring(&core.changed);
}

void core_expect_exit(void)
{
        static _Atomic bool done;

        if (!atomic_exchange(&done, true))
                (void)atexit(core_exits);
}

void core_look_for_shutdown(void)
{
        size_t free_bytes, total_bytes;

        if (real.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_ERROR_DEINITIALIZED)
                return;
        atomic_store(&core.bystander, true);
        bell_ring(&core.changed);
        request_kick(); /* so that the agent ends */
}

/* Logs what the thread waits for if the wait has taken long. Returns when to call again. Lock held.
 */
static uint64_t notice(struct core_wait *w, uint64_t now) REQUIRES(core_lock)
{
        char option[PATHS_OPTION_MAX];

        if (!w->since_ns)
                w->since_ns = now;
        if (now < w->since_ns + NOTICE_AFTER_NS)
                return w->since_ns + NOTICE_AFTER_NS;
        if (setting_is_on(SETTING_QUIET)) {
                w->told = true;
                return UINT64_MAX;
        }
        if (!w->asked_ns) {
                w->asked_ns = now;
                core.holder.asked = true;
                core.holder.known = false;
                request_kick();
        }
        if (!core.holder.known && now < w->asked_ns + ANSWER_AFTER_NS)
                return w->asked_ns + ANSWER_AFTER_NS;
        w->told = true;
        if (core.holder.known)
                log_warning("has waited 10 s for %s: %s; `sublet status%s` shows more", w->what,
                            core.holder.text, paths_option(option));
        else
                log_warning("has waited 10 s for %s; `sublet status%s` shows more", w->what,
                            paths_option(option));
        return UINT64_MAX;
}

void core_wait(struct core_wait *w, uint64_t timeout_ns)
{
        core_wait_since(w, bell_listen(&core.changed), timeout_ns);
}

void core_wait_since(struct core_wait *w, uint32_t heard, uint64_t timeout_ns)
{
        uint64_t now = clock_now_ns();

        if (!w->told)
                timeout_ns = MIN(timeout_ns, sub_sat(notice(w, now), now));
        lock_release(&core_lock);
        if (unlikely(atomic_load_explicit(&core.exiter, memory_order_relaxed))) {
                timeout_ns = MIN(timeout_ns, EXIT_LOOK_NS);
                core_look_for_shutdown();
        }
        bell_wait(&core.changed, heard, timeout_ns);
        lock_acquire(&core_lock);
}

/* Asks the driver for the facts about a device that we need. 0; -ENODEV: there is no such device,
 * or it cannot be shared, because of *ret_why; -EAGAIN: the driver is not initialized yet. */
static int gpu_learn(struct gpu *g, CUdevice device, const char **ret_why) UNLOCKS(core_lock)
{
        size_t total = 0, granularity = 0;
        int vmm = 0, passes = 0, rdma = 0, algorithms = 0, mps = 0;
        CUuuid uuid;
        CUresult r;
        const CUmemAllocationProp prop = {
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        };

        r = real.cuDeviceTotalMem_v2(&total, device);
        if (r != CUDA_SUCCESS)
                return r == CUDA_ERROR_NOT_INITIALIZED ? -EAGAIN : -ENODEV;
        *ret_why = "has no UUID";
        if (real.cuDeviceGetUuid_v2(&uuid, device) != CUDA_SUCCESS &&
            real.cuDeviceGetUuid(&uuid, device) != CUDA_SUCCESS)
                return -ENODEV;
        *ret_why = "has no virtual memory management that fits";
        (void)real.cuDeviceGetAttribute(
                &vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device);
        if (!vmm ||
            real.cuMemGetAllocationGranularity(
                    &granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS ||
            granularity == 0 || HEAP_GRANULARITY % granularity != 0)
                return -ENODEV;
        (void)real.cuDeviceGetAttribute(
                &passes, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device);
        g->passes = passes;
        (void)real.cuDeviceGetAttribute(
                &rdma, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device);
        g->rdma = rdma;
        (void)real.cuDeviceGetAttribute(&algorithms,
                                        CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK, device);
        g->unpacks = algorithms != 0;
        (void)real.cuDeviceGetAttribute(&mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device);
        g->mps = mps != 0;
        memcpy(g->uuid, &uuid, sizeof(g->uuid));
        g->index = (unsigned)device;
        g->total = total;
        g->own_limit = UINT64_MAX;
        heap_init(&g->heap, total);
        FOR_EACH_PART (p, learn) {
                p->learn(g);
        }
        *ret_why = "cannot be set up in this process";
        return g->swap ? 0 : -ENODEV;
}

static void tell_unshared(CUdevice device, const char *why)
{
        const char *forbids = require_sharing();

        if (forbids)
                log_error("CUDA does not start on GPU %d (error %d), because %s, and the GPU %s",
                          device, CUDA_ERROR_OPERATING_SYSTEM, forbids, why);
        else
                log_warning("GPU %d %s: it is used without sharing", device, why);
}

bool core_keep_context(struct gpu *g)
{
        if (!g->swap || g->context_retires || !g->context)
                return false;
        g->context_kept = true;
        return true;
}

void core_let_context(struct gpu *g)
{
        g->context_kept = false;
        bell_ring(&core.changed);
}

void core_room_changed(struct gpu *g)
{
        FOR_EACH_PART (p, room_changed) {
                p->room_changed(g);
        }
}

uint64_t core_host_mapped(void)
{
        uint64_t sum = core.host.taking;

        for (unsigned i = 0; i < core.gpu_count; i++)
                sum += core.gpus[i].heap.mapped;
        return sum;
}

static const char *cannot_share[GPUS_MAX]; /* why; NULL: nothing is known. Under core_lock */

struct gpu *core_attach(CUdevice device)
{
        static bool learning;
        struct core_wait w = {.what = "another thread's look at a GPU"};
        struct gpu *g;
        bool managed;

        if (core_passive() || device < 0 || device >= GPUS_MAX)
                return NULL;
        g = &core.gpus[device];
        if (__atomic_load_n(&g->managed, __ATOMIC_ACQUIRE))
                return g;
        lock_acquire(&core_lock);
        while (learning && !core_passive())
                core_wait(&w, UINT64_MAX);
        if (!g->known) {
                static bool refused[GPUS_MAX];
                const char *why = NULL;
                int r = -ENODEV;

                if (!refused[device]) {
                        learning = true;
                        r = gpu_learn(g, device, &why);
                        learning = false;
                        bell_ring(&core.changed);
                }
                if (r < 0) {
                        /* -EAGAIN: the program called before cuInit(), and may call again. */
                        refused[device] = r != -EAGAIN;
                        if (why) {
                                cannot_share[device] = why;
                                tell_unshared(device, why);
                        }
                        lock_release(&core_lock);
                        return NULL;
                }
                core.gpu_count = MAX(core.gpu_count, (unsigned)device + 1);
                g->known = true;
        }
        FOR_EACH_PART (p, attach) {
                p->attach(g);
        }
        managed = g->managed;
        lock_release(&core_lock);
        return managed ? g : NULL;
}

bool core_may_go_alone(CUdevice device)
{
        bool may;

        if (core_passive() || device < 0 || device >= GPUS_MAX || !require_sharing())
                return true;
        lock_acquire(&core_lock);
        /* If nothing is known of the device, the driver is not initialized or knows no such device.
         * The driver's own error says so. */
        may = !core.gpus[device].known && !cannot_share[device];
        lock_release(&core_lock);
        return may;
}

struct gpu *core_find(CUdeviceptr address, struct heap_place *ret)
{
        /* A child is passive and skips the search: the fork may have left its heap half changed. */
        for (unsigned i = 0; i < core.gpu_count && !core_passive(); i++)
                if (core.gpus[i].managed && heap_find(&core.gpus[i].heap, address, ret))
                        return &core.gpus[i];
        return NULL;
}

bool core_holds(CUdeviceptr address, uint64_t bytes)
{
        for (unsigned i = 0; i < core.gpu_count && !core_passive(); i++)
                if (core.gpus[i].managed &&
                    (heap_holds(&core.gpus[i].heap, address) ||
                     (bytes && heap_holds(&core.gpus[i].heap, address + bytes - 1))))
                        return true;
        return false;
}

struct gpu *core_current_gpu(void)
{
        CUdevice device;

        CUcontext current;
        struct gpu *g;

        if (core_passive() || real.cuCtxGetDevice(&device) != CUDA_SUCCESS)
                return NULL;
        g = core_attach(device);
        /* The driver still names the device of a context that has ended. */
        if (g && g->ended && real.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == g->ended)
                return NULL;
        return g;
}
