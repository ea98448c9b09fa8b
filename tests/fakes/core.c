/* core.c: fakes of core.h for unit tests: the process's state, and waiting. */
#include "unit.h"

#include "fakes/preload.h"
#include "preload/driver/real.h"
#include "preload/state/part.h"
#include "preload/stream/gate.h"

#define WEAK __attribute__((weak))

struct core core WEAK;
struct lock core_lock WEAK;
struct real_driver real WEAK;

WEAK void is_wrong(const char *what)
{
        fail_msg("%s", what);
}

void want_lock(void)
{
        if (atomic_load(&core_lock.word) == 0)
                is_wrong("another module is called without the lock");
}

void want_no_lock(void)
{
        if (atomic_load(&core_lock.word) != 0)
                is_wrong("another module is called with the lock held");
}

void give_up_lock(void)
{
        want_lock();
        lock_release(&core_lock);
        lock_acquire(&core_lock);
}

void (*meanwhile)(const struct core_wait *w);

/* The list of the library's parts is empty. */
WEAK const struct part parts[1] = {{0}};
WEAK const unsigned parts_count = 1;

WEAK bool core_keep_context(struct gpu *g)
{
        g->context_kept = g->context != NULL;
        return g->context_kept;
}

WEAK void core_let_context(struct gpu *g)
{
        g->context_kept = false;
        bell_ring(&core.changed);
}

unsigned core_setups;
WEAK int core_setup(void)
{
        core_setups++;
        gate_open(GATE_UNREADY);
        return 0;
}

WEAK void core_wait_since(struct core_wait *w, uint32_t heard, uint64_t timeout_ns)
{
        if (!meanwhile)
                fail_msg("nobody is to wait for %s", w->what);
        want_lock();
        lock_release(&core_lock);
        meanwhile(w);
        lock_acquire(&core_lock);
        if (timeout_ns == UINT64_MAX && bell_listen(&core.changed) == heard)
                fail_msg("waits for %s for ever: nobody rings", w->what);
}

WEAK void core_wait(struct core_wait *w, uint64_t timeout_ns)
{
        core_wait_since(w, bell_listen(&core.changed), timeout_ns);
}

WEAK void core_look_for_shutdown(void)
{
        want_no_lock();
}

WEAK uint64_t core_host_mapped(void)
{
        uint64_t sum = core.host.taking;

        for (unsigned i = 0; i < core.gpu_count; i++)
                sum += core.gpus[i].heap.mapped;
        return sum;
}

unsigned core_attaches;
bool unshared;
WEAK struct gpu *core_attach(CUdevice device)
{
        core_attaches++;
        return !unshared && device >= 0 && (unsigned)device < core.gpu_count ? &core.gpus[device]
                                                                             : NULL;
}

bool must_share; /* the program must not use a GPU that is not shared */
WEAK bool core_may_go_alone(CUdevice device)
{
        return !must_share;
}

struct gpu *current_gpu = &core.gpus[0];
WEAK struct gpu *core_current_gpu(void)
{
        return current_gpu;
}

unsigned room_changes;
WEAK void core_room_changed(struct gpu *g)
{
        want_lock();
        room_changes++;
}
