/* agent_notice.c: owns what a program's user is told of waits for its turn, and of a daemon that is
 * not there. The agent tells it, because a thread that waits in the driver for frozen work cannot.
 * Must never write to stdout. */
#include "preload/agent/agent_state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/daemon_paths.h"
#include "base/settings.h"
#include "preload/freeze/freeze.h"
#include "preload/state/notice.h"

#define AWAIT_NS (5 * NSEC_PER_SEC)

bool agent_awaits(int r)
{
        const bool gone = r == -ENOENT || r == -ECONNREFUSED;

        return gone && !agent.tried && strcmp(agent.where, PATHS_SYSTEM_DIR) == 0 &&
               (!agent.down_since_ns || clock_now_ns() - agent.down_since_ns <= AWAIT_NS);
}

void agent_tell_alone(const char *why)
{
        if (daemon_line.warned)
                return;
        daemon_line.warned = true;
        if (strcmp(agent.where, PATHS_SYSTEM_DIR) == 0)
                log_warning("no daemon in %s (%s): this program runs without "
                            "sharing; " PATHS_SYSTEM_REMEDY,
                            agent.where, why);
        else
                log_warning("no daemon in %s (%s): this program runs without sharing; `sublet "
                            "doctor` says what to do",
                            agent.where, why);
}

static enum notice_doing doing(void) REQUIRES(core_lock)
{
        if (core.running)
                return agent.idle ? NOTICE_RESTS : NOTICE_RUNS;
        if (agent.waits)
                return NOTICE_RESTS; /* the program waits for other ranks, not for its turn */
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
