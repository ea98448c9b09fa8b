/* parts.c: owns the order in which the parts of the library are polled and informed. */
#include "preload/state/part.h"

#include "base/macros.h"
#include "preload/agent/agent.h"
#include "preload/agent/agent_unpin.h"
#include "preload/extra/measure.h"
#include "preload/overflow/overflow.h"
#include "preload/overflow/profile.h"
#include "preload/extra/torture.h"
#include "preload/freeze/freeze.h"
#include "preload/rm/freeze_watch.h"
#include "preload/rm/rm.h"
#include "preload/move/caches.h"
#include "preload/move/unevictable.h"
#include "preload/move/lost.h"
#include "preload/hooks/managed.h"
#include "preload/move/swap.h"
#include "preload/pool/late_frees.h"
#include "preload/pool/pool.h"
#include "preload/stream/gate.h"
#include "preload/stream/interrupt.h"

/* Ordered from the lowest layer up: each part is set up after the parts that it uses. */
const struct part parts[] = {
        {.setup = gate_setup, .forked = gate_forget_threads},
        {.setup = interrupt_setup},
        {.forked = rm_forget},
        {.forked = freeze_watch_forget},
        {.setup = freeze_setup, .learn = freeze_look, .failed = freeze_blame},
        {.setup = swap_setup, .learn = swap_learn},
        {.learn = managed_learn},
        {.setup = caches_setup},
        {.clean = lost_clean},
        {.tend = late_tend},
        {.tend = pool_tend},
        {.tend = unevictable_tend},
#ifdef SUBLET_HAS_TORTURE
        {.setup = torture_setup,
         .step = torture_step,
         .next_ns = torture_next_ns,
         .own = torture_own,
         .drained = torture_drained,
         .drain_failed = torture_drain_failed,
         .cancel = torture_cancel,
         .evicted = torture_evicted,
         .restored = torture_restored},
#else
        {.setup = torture_left_out},
#endif
        {.setup = overflow_setup,
         .learn = overflow_learn,
         .step = overflow_step,
         .next_ns = overflow_next_ns,
         .move = overflow_move,
         .own = overflow_own,
         .drained = overflow_drained,
         .drain_failed = overflow_drain_failed,
         .cancel = overflow_cancel,
         .room_changed = overflow_changed,
         .daemon_lost = overflow_cancel},
        {.step = agent_unpin_step,
         .next_ns = agent_unpin_next_ns,
         .move = agent_unpin_move,
         .own = agent_unpin_own,
         .drained = agent_unpin_drained,
         .drain_failed = agent_unpin_drain_failed,
         .cancel = agent_unpin_cancel,
         .daemon_lost = agent_unpin_cancel},
        {.setup = profile_setup, .exits = profile_exits, .forked = profile_forget},
        {.setup = measure_setup, .forked = measure_forget},
        {.attach = agent_attach, .exits = agent_stop, .forked = agent_forget},
};
const unsigned parts_count = ARRAY_SIZE(parts);
