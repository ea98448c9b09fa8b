/* daemon.h: fakes of the modules of src/daemon, for tests of one module alone; weak like the
 * others. */
#pragma once

#include "daemon/state/client.h"

#define AGE_NS (30 * NSEC_PER_SEC) /* age of each process */

/* True between event_begin() and event_end(), and the number of events that have ended. */
extern bool event_open;
extern unsigned events;
/* What reader_ask() returns, and the number of its calls. */
extern bool reader_looks;
extern unsigned reader_asks;
/* The result of host_pool_helps(), and the calls of host_pool_lack() and host_pool_attached(). */
extern bool pool_helps;
extern unsigned pool_looks, pools_attached;
/* The result of figures_most(). */
extern uint64_t most;
/* The calls of preemption_offer() and hand_order(). */
extern unsigned hands_offered, hand_orders;
