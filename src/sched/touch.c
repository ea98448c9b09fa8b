/* touch.c: owns the begin and the end of an event: which GPUs it may change, their bills, and what
 * follows from it. Must never look at what the event says. */
#include "sched/internal.h"

/* Returns the GPUs, and those linked to them by a client that uses several. */
static uint32_t linked(const struct sched *s, uint32_t gpus)
{
        uint32_t todo = gpus;

        while (todo) {
                unsigned gpu = (unsigned)__builtin_ctz(todo);

                todo |= s->gpu[gpu].linked & ~gpus;
                gpus |= s->gpu[gpu].linked;
                todo &= ~(UINT32_C(1) << gpu);
        }
        return gpus;
}

/* Every event begins here. gpus: the GPUs that it is about. They are billed and settled, with the
 * GPUs whose time has come, and with all that are linked to these. */
void touch_begin(struct sched *s, uint64_t now_ns, uint32_t gpus)
{
        unsigned gpu;

        s->now_ns = MAX(s->now_ns, now_ns);
        if (!s->started) {
                s->started = true;
                s->restart_until_ns = s->config.restart_grace_ns
                                              ? add_sat(s->now_ns, s->config.restart_grace_ns)
                                              : 0;
        }
        gpus &= (UINT32_C(1) << s->gpus) - 1;
        for (gpu = 0; gpu < s->gpus; gpu++) {
                if (s->gpu[gpu].next_ns <= s->now_ns)
                        gpus |= UINT32_C(1) << gpu;
        }
        s->touched = 0;
        for (gpus = linked(s, gpus); gpus; gpus &= gpus - 1) {
                gpu = (unsigned)__builtin_ctz(gpus);
                if (s->gpu[gpu].present)
                        s->touched |= UINT32_C(1) << gpu;
        }
        FOR_EACH_TOUCHED_GPU (s, gpu) {
                limits_use(s, gpu);
                preempt_use(s, gpu);
                fair_bill(s, gpu);
        }
}

void touch_end(struct sched *s, struct sched_actions *out)
{
        settle(s);
        actions_emit(s, out);
}
