/* reload.c: owns the changes of settings while the daemon runs. Must never apply a part of a
 * configuration: whatever can fail comes first. */
#include "daemon/orders/reload.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/ledger/entitlement.h"
#include "daemon/ledger/event.h"
#include "daemon/ledger/pause.h"
#include "daemon/setup/sources.h"
#include "daemon/state/server.h"

/* ---- settings by an order ---- */

static int set_mode(struct server *s, enum sched_mode mode, char error[static CONFIG_ERROR_MAX])
{
        int r;

        event_begin(s);
        r = sched_set_mode(s->sched, mode, clock_now_ns(), &s->actions);
        event_end(s);
        if (r == 0)
                s->mode = mode;
        else if (r == -EBUSY)
                (void)snprintf(error, CONFIG_ERROR_MAX,
                               "mode off has to wait: memory of a client is evicted");
        else
                (void)snprintf(error, CONFIG_ERROR_MAX, "%s", strerror(-r));
        return r;
}

static void set_quantum(struct server *s, uint64_t quantum_ns)
{
        event_begin(s);
        sched_set_quantum(s->sched, quantum_ns, clock_now_ns(), &s->actions);
        event_end(s);
        s->quantum_ns = quantum_ns;
}

/* Keeps the settings that differ from the configuration, for the next daemon should this one
 * crash. */
static void keep_settings(const struct server *s)
{
        const struct sched_config *unless_set = &s->config->sched;
        char mode[32] = "", quantum[48] = "", text[96] = "";

        if (s->mode != unless_set->mode)
                (void)snprintf(mode, sizeof(mode), "mode = %s\n", sched_mode_name(s->mode));
        if (s->quantum_ns != unless_set->quantum_ns && s->quantum_ns)
                (void)snprintf(quantum, sizeof(quantum), "quantum = %lluns\n",
                               (unsigned long long)s->quantum_ns);
        else if (s->quantum_ns != unless_set->quantum_ns)
                (void)snprintf(quantum, sizeof(quantum), "quantum = auto\n");
        if (mode[0] || quantum[0])
                (void)snprintf(text, sizeof(text), "[daemon]\n%s%s", mode, quantum);
        place_keep(s->place, text);
}

int reload_set(struct server *s, const char *key, const char *value,
               char error[static CONFIG_ERROR_MAX])
{
        struct config c;
        int r;

        config_default(&c);
        r = config_set(&c, key, value, error);
        if (r == 0 && strcmp(key, "mode") == 0)
                r = set_mode(s, c.sched.mode, error);
        else if (r == 0)
                set_quantum(s, c.sched.quantum_ns);
        config_free(&c);
        if (r == 0)
                keep_settings(s);
        return r;
}

/* ---- the reload ---- */

/* Applies the settings in force now to everything that keeps a copy or follows from them. This
 * cannot fail. before: the settings until now; its classes are freed after this, so pointers into
 * them must be renewed here. */
static void apply_config(struct server *s, const struct config *before)
{
        struct sched_config sched = s->config->sched;

        if (s->config->sched.quantum_ns != before->sched.quantum_ns)
                s->quantum_ns = s->config->sched.quantum_ns;
        sched.quantum_ns = s->quantum_ns;
        event_begin(s);
        sched_set_config(s->sched, &sched, clock_now_ns(), &s->actions);
        event_end(s);
        if (s->config->freeze != before->freeze)
                pause_most_changed(s);
        if (s->config->linger_ns != before->linger_ns)
                server_arm_once(s->linger_timer, false, 0); /* the next batch arms it again */
        entitlement_number(s, &before->classes);
        entitlement_renew(s);
        keep_settings(s);
}

static void note_at_start(const char *key, void *user)
{
        struct reload *done = user;

        if (done->n_at_start < RELOAD_AT_START_MAX)
                done->at_start[done->n_at_start++] = key;
}

static void log_done(const struct server *s, const struct reload *done)
{
        char keys[256] = "";
        size_t n = 0;

        log_info("the settings were read again: %u classes", s->config->classes.n);
        for (unsigned i = 0; i < done->n_at_start && n < sizeof(keys); i++)
                n += (size_t)snprintf(keys + n, sizeof(keys) - n, "%s%s", i ? ", " : "",
                                      done->at_start[i]);
        if (n)
                log_warning("restart the daemon for new values of: %s", keys);
}

int server_reload(struct server *s, struct reload *ret, char error[static CONFIG_ERROR_MAX])
{
        struct config next, before = s->settings;
        int r = sources_read(s->sources, &next, error);

        if (r < 0)
                return r;
        if (next.sched.mode != before.sched.mode)
                r = set_mode(s, next.sched.mode, error);
        if (r < 0) {
                config_free(&next);
                return r;
        }
        *ret = (struct reload){0};
        config_keep_at_start(&next, &before, note_at_start, ret);
        s->settings = next;
        apply_config(s, &before);
        config_free(&before);
        log_done(s, ret);
        return 0;
}
