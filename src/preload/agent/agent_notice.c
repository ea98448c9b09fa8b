/* agent_notice.c: owns what a program's user is told of waits for its turn. The agent tells it,
 * because a thread that waits in the driver for frozen work cannot. Must never write to stdout. */
#include "preload/agent/agent_state.h"

#include <unistd.h>

#include "base/log.h"
#include "base/paths.h"
#include "base/settings.h"
#include "preload/freeze/freeze.h"
#include "preload/state/notice.h"

static enum notice_doing doing(void) REQUIRES(core_lock)
{
        if (core.running)
                return agent.idle ? NOTICE_RESTS : NOTICE_RUNS;
        if (agent.waits)
                return NOTICE_RESTS; /* not for its turn, but for other ranks */
        return core.waiters > 0 || agent.unfinished || freeze_stands() ? NOTICE_WAITS
                                                                       : NOTICE_RESTS;
}

static void tell(unsigned long long seconds) REQUIRES(core_lock)
{
        char option[PATHS_OPTION_MAX];

        if (agent.paused)
                log_notice(
                        "has waited %llu s for its turn on the GPU: it is paused; `sublet resume "
                        "%d%s` lets it go on",
                        seconds, (int)getpid(), paths_option(option));
        else if (core.holder.known)
                log_notice("has waited %llu s for its turn on the GPU: %s; `sublet status%s` shows "
                           "more",
                           seconds, core.holder.text, paths_option(option));
        else
                log_notice(
                        "has waited %llu s for its turn on the GPU; `sublet status%s` shows more",
                        seconds, paths_option(option));
}

uint64_t agent_notice(uint64_t now)
{
        static struct notice n;
        uint64_t waited, next;

        if (setting_is_on(SETTING_QUIET))
                return UINT64_MAX;
        switch (notice_step(&n, doing(), core.holder.known, now, &waited, &next)) {
        case NOTICE_ASK:
                core.holder.asked = true;
                core.holder.known = false;
                break;
        case NOTICE_TELL:
                tell(waited / NSEC_PER_SEC);
                break;
        case NOTICE_OVER:
                log_notice("has its turn on the GPU after %llu s",
                           (unsigned long long)(waited / NSEC_PER_SEC));
                break;
        case NOTICE_NOTHING:
                break;
        }
        return next;
}
