/* request.c: owns the agent's wake-up and the wait for the daemon's answers. Must never send
 * anything: only the agent does. */
#include "preload/state/request.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/state/core.h"

#define ROOM_WAIT_NS NSEC_PER_SEC

static struct {
        int wake; /* the eventfd that the agent sleeps on */
        _Atomic bool kicked;
} request = {.wake = -1};

int request_open(void)
{
        request.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        return request.wake < 0 ? -errno : 0;
}

void request_close(void)
{
        if (request.wake >= 0)
                (void)close(request.wake);
        request.wake = -1;
}

int request_fd(void)
{
        return request.wake;
}

void request_woken(void)
{
        uint64_t count;

        /* The order matters. A kick between the two lines does not write, but the agent looks for
         * work right after them. In the other order the read could take the count of a new kick and
         * leave `kicked` set: nobody would write again, and the agent would sleep for ever. */
        (void)!read(request.wake, &count, sizeof(count));
        atomic_store(&request.kicked, false);
}

void request_kick(void)
{
        const uint64_t one = 1;

        /* A bare system call, because write() is a cancellation point: a cancelled thread would end
         * here with the lock held. */
        if (!atomic_exchange(&request.kicked, true) && request.wake >= 0)
                (void)syscall(SYS_write, request.wake, &one, sizeof(one));
}

void request_report(struct gpu *g)
{
        /* One kick is enough until the agent has reported: a program may allocate a million times a
         * second. */
        if (g->usage_dirty)
                return;
        g->usage_dirty = true;
        request_kick();
}

void request_released(void)
{
        bool waited_for = !core.running;

        for (unsigned i = 0; i < core.gpu_count; i++)
                waited_for = waited_for || core.gpus[i].export_requested > 0;
        bell_ring(&core.changed);
        if (waited_for)
                request_kick();
}

int request_commit(struct gpu *g, uint64_t bytes)
{
        struct core_wait w = {.what = "GPU memory"};
        uint32_t refused;

        /* The counter keeps the agent from giving the granted bytes back before this thread has
         * woken up. */
        g->commit_askers++;
        do {
                refused = g->refused_commit.count;
                g->commit_requested = MAX(g->commit_requested, bytes);
                g->commit_used_ns = clock_now_ns();
                g->request_dirty = true;
                request_kick();
                while (g->commit < bytes && g->refused_commit.count == refused && !core_passive())
                        core_wait(&w, UINT64_MAX);
                /* If a larger request of another thread was refused, this thread's request has not
                 * been sent yet: send it. */
        } while (g->commit < bytes && bytes < g->refused_commit.bytes && !core_passive());
        g->commit_askers--;
        return g->commit < bytes ? -ENOMEM : 0;
}

void request_room(struct gpu *g)
{
        struct core_wait w = {.what = "the daemon", .told = true};
        const uint64_t until_ns = clock_now_ns() + ROOM_WAIT_NS;
        const uint32_t ask = ++g->room_asked;
        uint64_t now;

        request_kick();
        while ((int32_t)(g->room_answered - ask) < 0 && g->attached && !core_passive() &&
               (now = clock_now_ns()) < until_ns)
                core_wait(&w, until_ns - now);
        if ((int32_t)(g->room_answered - ask) < 0)
                g->room = g->room_host = UINT64_MAX;
}

/* True if a request of this size was refused since *seen, rather than a larger request of another
 * thread. */
static bool was_refused(const struct refusals *r, uint32_t *seen, uint64_t bytes)
{
        bool again = r->count != *seen;

        *seen = r->count;
        return again && bytes >= r->bytes;
}

int request_host(uint64_t more)
{
        struct core_wait w = {.what = "the daemon"};
        uint32_t seen = core.host.refused.count;

        while (core_host_mapped() + more > core.host.allowed) {
                if (was_refused(&core.host.refused, &seen, core_host_mapped() + more) ||
                    core_passive())
                        return -ENOMEM;
                core.host.wanted = MAX(core.host.wanted, core_host_mapped() + more);
                request_kick();
                core_wait(&w, UINT64_MAX);
        }
        core.host.taking += more;
        return 0;
}

bool request_may_map(uint64_t more)
{
        if (core_host_mapped() + more <= core.host.allowed)
                return true;
        core.host.wanted = MAX(core.host.wanted, core_host_mapped() + more);
        return false;
}

int request_try_unevictable(struct gpu *g, uint64_t more, uint32_t *seen)
{
        if (g->unevictable_allowed < g->unevictable + more) {
                if (was_refused(&g->refused_unevictable, seen, g->unevictable + more) ||
                    core_passive())
                        return -ENOMEM;
                if (g->unevictable_requested < g->unevictable + more) {
                        g->unevictable_requested = g->unevictable + more;
                        g->request_dirty = true;
                        request_kick();
                }
                return -EAGAIN;
        }
        g->unevictable += more;
        g->unevictable_requested =
                MAX(g->unevictable_requested,
                    g->unevictable); /* later requests add to the bytes taken so far */
        g->usage_dirty = true;
        request_kick();
        return 0;
}

int request_unevictable(struct gpu *g, uint64_t more)
{
        struct core_wait w = {.what = "room for what cannot be moved"};
        uint32_t seen = g->refused_unevictable.count;
        int r;

        /* Request again after each wait: another thread may have taken the allowed bytes, or
         * withdrawn a request that included ours. */
        do {
                if (g->unevictable_allowed < g->unevictable + more && request_is_movers(g))
                        request_drop_movers(g); /* the mover's request is larger, so the daemon may
                                                   grant it late */
                r = request_try_unevictable(g, more, &seen);
                if (r == -EAGAIN)
                        core_wait(&w, UINT64_MAX);
        } while (r == -EAGAIN);
        return r;
}

void request_return_unevictable(struct gpu *g, uint64_t bytes)
{
        g->unevictable = sub_sat(g->unevictable, bytes);
        g->unevictable_requested = g->unevictable;
        g->request_dirty = g->usage_dirty = true;
        bell_ring(&core.changed); /* for threads that wait for unevictable bytes */
        request_kick();
}

bool request_is_movers(const struct gpu *g)
{
        return g->mover_asks && g->unevictable_requested == g->unevictable + g->mover_request;
}

void request_drop_movers(struct gpu *g)
{
        g->mover_asks = false;
        if (g->unevictable_requested !=
            g->unevictable) /* withdraw the request; otherwise its rest would stay granted */
                request_return_unevictable(g, 0);
}

void request_no_mover(struct gpu *g)
{
        log_debug("GPU %u: no room for a second context", g->index);
        request_drop_movers(g);
        g->mover_ns = clock_now_ns() + MOVER_AGAIN_NS;
}
