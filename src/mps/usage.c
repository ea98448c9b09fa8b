/* usage.c: owns what the answers of a control daemon mean. Must never take a missing answer for an
 * empty list: the servers of a control daemon without programs are ended. */
#include "mps/usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_MS 1000u
#define BLANK  " \t\r\n"
#define FIGURE "get_default_active_thread_percentage" /* 100.0, unless somebody has set it */

static bool is_blank(const char *answer)
{
        return answer[strspn(answer, BLANK)] == '\0';
}

static bool is_figure(const char *answer)
{
        char *end;

        return strtod(answer, &end) > 0 && is_blank(end);
}

void mps_usage_begin(struct mps_usage *u)
{
        *u = (struct mps_usage){.order = "get_server_list"};
}

/* Writes the next order. */
static enum mps_use ask_on(struct mps_usage *u)
{
        const unsigned i = u->n_given++;

        if (i < u->n_servers)
                (void)snprintf(u->order, sizeof(u->order), "get_client_list %d",
                               (int)u->servers[i]);
        else
                (void)strcpy(u->order, FIGURE);
        return MPS_ASK_ON;
}

static enum mps_use take_servers(struct mps_usage *u, const struct mps_options *o,
                                 const char *answer)
{
        const unsigned n = mps_numbers(answer, u->servers, MPS_USAGE_SERVERS);

        if (n > MPS_USAGE_SERVERS || (n == 0 && !is_blank(answer)) ||
            n < mps_count_servers(o->dir, o->uid))
                return MPS_UNKNOWN;
        u->n_servers = n;
        return ask_on(u);
}

enum mps_use mps_usage_take(struct mps_usage *u, const struct mps_options *o, const char *answer)
{
        pid_t one;

        if (!answer)
                return MPS_UNKNOWN;
        if (u->n_given == 0)
                return take_servers(u, o, answer);
        if (u->n_given > u->n_servers)
                return is_figure(answer) ? MPS_UNUSED : MPS_UNKNOWN;
        if (mps_numbers(answer, &one, 1) > 0)
                return MPS_USED;
        return is_blank(answer) ? ask_on(u) : MPS_UNKNOWN;
}

enum mps_use mps_usage_ask(const struct mps_options *o)
{
        enum mps_use use = MPS_ASK_ON;
        char answer[MPS_ANSWER_MAX];
        struct mps_usage u;

        mps_usage_begin(&u);
        while (use == MPS_ASK_ON) {
                const int r = mps_ask(o, u.order, ASK_MS, answer, sizeof(answer));

                use = mps_usage_take(&u, o, r < 0 ? NULL : answer);
        }
        return use;
}
