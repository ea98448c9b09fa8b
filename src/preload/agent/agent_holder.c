/* agent_holder.c: owns the sentence about what is in the way of a thread that has waited long. Must
 * never name more than the daemon tells. */
#include "preload/agent/agent_state.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "base/stop.h"
#include "preload/process/require.h"
#include "preload/state/daemon.h"

#define HELD                                                                                       \
        "the configuration of its daemon has a mistake, and no program gets a turn until that is " \
        "corrected"

void agent_ask_holder(void)
{
        const char *forbids = require_sharing();
        struct wire_message m = {0};

        core.holder.asked = false;
        if (daemon_is_up()) {
                daemon_send(&m, WIRE_WHO, WIRE_NO_GPU);
                return;
        }
        if (daemon_line.link == LINK_HELLO && daemon_line.held)
                (void)snprintf(core.holder.text, sizeof(core.holder.text), HELD);
        else
                (void)snprintf(core.holder.text, sizeof(core.holder.text),
                               "no daemon answers%s%s%s%s", *agent.where ? " in " : "", agent.where,
                               forbids ? ", and " : "", forbids ? forbids : "");
        core.holder.known = true;
        bell_ring(&core.changed);
}

/* Says which process holds what this one waits for. */
static void tell_process(const struct wire_message *m, char *text, size_t n)
{
        const bool other = m->HOLDER.flags & WIRE_HOLDER_OTHER_USER;
        char stopped[STOP_TEXT_MAX], stuck[STOP_TEXT_MAX + 8] = "";

        if (stop_text(m->HOLDER.stop, (pid_t)m->HOLDER.pid, stopped))
                (void)snprintf(stuck, sizeof(stuck), " and is %s", stopped);
        else if (m->HOLDER.flags & WIRE_HOLDER_STUCK)
                (void)strcpy(stuck, " and cannot give way now");
        if (other && m->HOLDER.uid == UINT32_MAX)
                (void)snprintf(text, n, "process %u, of another user, pod or container, holds it%s",
                               m->HOLDER.pid, stuck);
        else if (other)
                (void)snprintf(text, n, "process %u (%s) of user %u holds it%s", m->HOLDER.pid,
                               m->HOLDER.name, m->HOLDER.uid, stuck);
        else
                (void)snprintf(text, n, "process %u (%s) holds it%s", m->HOLDER.pid, m->HOLDER.name,
                               stuck);
}

/* Says that memory outside this daemon is in the way, and how to take turns for it. */
static void tell_foreign(const struct wire_message *m, char *text, size_t n)
{
        const unsigned long long mib = align_up(m->HOLDER.foreign, MIB) / MIB;

        if (m->HOLDER.flags & WIRE_HOLDER_PEERS)
                (void)snprintf(text, n,
                               "programs of another daemon hold %llu MiB of the GPU; users take "
                               "turns only under one daemon: `subletd` as root, or `subletd "
                               "--shared` and SUBLET_DIR",
                               mib);
        else
                (void)snprintf(text, n,
                               "programs outside sublet hold %llu MiB of the GPU, and take no "
                               "turns; end them, or start them with `sublet run`",
                               mib);
}

void agent_on_holder(const struct wire_message *m, struct gpu *g, struct passed *came)
{
        char *text = core.holder.text;
        const size_t n = sizeof(core.holder.text);

        if (m->HOLDER.flags & WIRE_HOLDER_NO_CONFIGURATION) {
                daemon_line.held = true;
                return;
        }
        if (m->HOLDER.flags & WIRE_HOLDER_FOREIGN)
                tell_foreign(m, text, n);
        else if (m->HOLDER.flags & WIRE_HOLDER_MAXIMUM)
                (void)snprintf(text, n, "it has used all of the GPU time that its maximum allows");
        else if (m->HOLDER.pid)
                tell_process(m, text, n);
        else if (m->HOLDER.foreign)
                (void)snprintf(text, n,
                               "no single program of its daemon holds it, and programs outside "
                               "hold %llu MiB of the GPU",
                               (unsigned long long)(align_up(m->HOLDER.foreign, MIB) / MIB));
        else
                (void)snprintf(text, n, "no single program holds it");
        core.holder.known = true;
        bell_ring(&core.changed);
}
