/* agent_hello.c: owns HELLO: who the program is, and what its user and its launcher say of it by
 * variables. Must never decide what follows from that. */
#include "preload/agent/agent_state.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/settings.h"
#include "base/shares.h"
#include "preload/freeze/freeze.h"
#include "preload/process/front_calls.h"
#include "preload/process/launcher.h"
#include "preload/process/name.h"
#include "preload/process/require.h"
#include "preload/state/daemon.h"

/* Returns the priority that the program asks for. An invalid value is ignored, with one warning. */
static int requested_priority(void)
{
        const char *text = setting_text(SETTING_PRIORITY);
        int priority;

        if (!text)
                return 0;
        if (shares_parse_priority(text, &priority) == 0)
                return priority;
        setting_refuse(SETTING_PRIORITY, text);
        return 0;
}

/* Sets the group that the program is in: the one that its user names, or else its job. An invalid
 * name is ignored, with one warning. Ranks that share a card take turns if they can be frozen.
 * Otherwise they run together, because a drain would wait for the other ranks (agent_listen()). */
static void requested_group(char ret[static WIRE_GROUP_MAX + 1])
{
        const char *text = setting_text(SETTING_GROUP);

        agent.takes_turns = front_is_there() && freeze_mode() == WIRE_FREEZE_MOVE;
        if (text && strcmp(text, LAUNCHER_NONE) == 0)
                return;
        if (text && wire_group_is_valid(text)) {
                agent.takes_turns = false;
                (void)snprintf(ret, WIRE_GROUP_MAX + 1, "%s", text);
                return;
        }
        if (text)
                setting_refuse(SETTING_GROUP, text);
        launcher_group(ret);
}

/* Sends the share, the weight and the memory cap that the user has set for this program. */
void agent_claim(void)
{
        const char *share = setting_text(SETTING_SHARE), *weight = setting_text(SETTING_WEIGHT);
        struct wire_message m = {0};
        __typeof__(m.CLAIM) *c = &m.CLAIM;

        if (share && shares_parse_range(share, &c->minimum, &c->maximum) < 0)
                setting_refuse(SETTING_SHARE, share);
        if (weight && shares_parse_weight(weight, &c->weight) < 0)
                setting_refuse(SETTING_WEIGHT, weight);
        (void)require_cap(&c->memory_cap); /* cuInit() has refused a malformed one */
        if (c->minimum || c->maximum || c->weight || c->memory_cap)
                daemon_send(&m, WIRE_CLAIM, WIRE_NO_GPU);
}

void agent_hello(void)
{
        struct wire_message m = {0};

        agent_self_connected();
        m.HELLO.magic = WIRE_MAGIC;
        m.HELLO.previous_instance = daemon_line.instance;
        m.HELLO.protocol = WIRE_VERSION;
        m.HELLO.pid = (uint32_t)getpid();
        m.HELLO.priority = (uint32_t)requested_priority();
        name_of_program(m.HELLO.name, sizeof(m.HELLO.name));
        (void)snprintf(m.HELLO.version, sizeof(m.HELLO.version), "%s", SUBLET_VERSION);
        requested_group(m.HELLO.group);
        m.HELLO.takes_turns = agent.takes_turns;
        daemon_send(&m, WIRE_HELLO, WIRE_NO_GPU);
}
