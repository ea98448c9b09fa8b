/* order_reload.c: owns the changes of settings while the daemon runs. Must never apply a part of a
 * configuration: whatever can fail comes first. */
#include "daemon/orders/order_reload.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/history/history.h"
#include "daemon/ledger/entitlement.h"
#include "daemon/ledger/event.h"
#include "daemon/lend/host_pool.h"
#include "daemon/ledger/pause.h"
#include "daemon/metrics/endpoint.h"
#include "daemon/metrics/tally.h"
#include "daemon/setup/sources.h"
#include "daemon/state/server.h"

#define KEPT_MAX 8192 /* every key with its longest value */

/* ---- a change of settings ---- */

static int set_mode(struct server *s, enum sched_mode mode, char error[static CONFIG_ERROR_MAX])
{
        int r;

        event_begin(s);
        r = sched_set_mode(s->sched, mode, clock_now_ns(), &s->actions);
        event_end(s);
        if (r == -EBUSY)
                (void)snprintf(
                        error, CONFIG_ERROR_MAX,
                        "mode off has to wait until all memory fits the card: end programs first");
        else if (r < 0)
                (void)snprintf(error, CONFIG_ERROR_MAX, "%s", strerror(-r));
        return r;
}

static void add_line(const char *key, const char *value, void *user)
{
        char *text = user;
        size_t n = strlen(text);

        (void)snprintf(text + n, KEPT_MAX - n, "%s%s = %s\n", n ? "" : "[daemon]\n", key, value);
}

/* Keeps what orders changed, for the next daemon should this one crash. */
static void keep_settings(const struct server *s)
{
        char text[KEPT_MAX] = "";

        config_orders(s->config, &s->files, add_line, text);
        place_keep(s->place, text);
}

/* True if the metrics are not served where these settings want them. */
static bool is_elsewhere(const struct server *s, const struct config *next)
{
        return strcmp(next->metrics, s->config->metrics) != 0 || (next->metrics[0] && !s->endpoint);
}

/* Puts settings in force, also where a copy of them is kept or something follows from them. Only
 * the mode and the address of the metrics can be refused, and then nothing has changed. */
static int apply(struct server *s, const struct config *next, char error[static CONFIG_ERROR_MAX])
{
        const struct config before = s->settings;
        const bool moves = is_elsewhere(s, next);
        struct endpoint *endpoint = NULL;
        int r = 0;

        if (moves && next->metrics[0])
                r = endpoint_open(s, next->metrics, &endpoint, error);
        if (r == 0 && next->sched.mode != before.sched.mode)
                r = set_mode(s, next->sched.mode, error);
        if (r < 0) {
                endpoint_free(endpoint);
                return r;
        }
        s->settings = *next;
        if (moves)
                endpoint_use(s, endpoint);
        event_begin(s);
        sched_set_config(s->sched, &s->config->sched, clock_now_ns(), &s->actions);
        event_end(s);
        history_settings(s);
        if (s->config->freeze != before.freeze)
                pause_most_changed(s);
        if (s->config->host_pool_bytes != before.host_pool_bytes)
                host_pool_changed(s);
        if (s->config->linger_ns != before.linger_ns)
                server_arm_once(s->linger_timer, false, 0); /* the next batch arms it again */
        return 0;
}

int reload_set(struct server *s, const char *key, const char *value,
               char error[static CONFIG_ERROR_MAX])
{
        struct config next = s->settings; /* its classes are those in force */
        const struct value_key *k;
        size_t n;
        int r;

        k = config_keys(&n);
        k = values_find(k, n, key);
        if (k && k->when != VALUE_AT_ONCE) {
                (void)snprintf(error, CONFIG_ERROR_MAX,
                               "%s is read from the files: write it there, then %s", key,
                               k->when == VALUE_AT_START ? "restart the daemon" : "sublet reload");
                return -EINVAL;
        }
        r = config_set(&next, key, value, error);
        if (r == 0)
                r = config_check(&next, s->sources->shared, "sublet set", error);
        if (r == 0)
                r = apply(s, &next, error);
        if (r == 0)
                keep_settings(s);
        return r;
}

/* ---- the reload ---- */

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

/* Programs for clusters order a reload for each job, so the same mistake is told once. */
static void log_trouble(const struct sources *sources, const char *before)
{
        if (sources->error[0] && strcmp(sources->error, before) != 0)
                log_error("the settings stay as they are: %s", sources->error);
}

/* The daemon has no configuration yet. It begins again with the first one, because some keys take
 * effect only at a start. Until then, what programs wrote for their tenants waits, too. */
static int reload_held(struct server *s, struct reload *ret, char error[static CONFIG_ERROR_MAX])
{
        struct config first;
        int r = sources_read(s->sources, &first);

        (void)snprintf(error, CONFIG_ERROR_MAX, "%s", s->sources->error);
        if (r < 0)
                return s->sources->programs_good ? 0 : r;
        ret->n_classes = first.classes.n;
        config_free(&first);
        log_info("the configuration can be used now: the daemon begins with it");
        server_stop(s, SERVER_AFRESH);
        return 0;
}

/* Puts in force what was read. */
static int take(struct server *s, struct config *next, struct reload *ret,
                char error[static CONFIG_ERROR_MAX])
{
        struct classes old = s->settings.classes;
        struct config files;
        int r;

        config_keep_at_start(next, &s->settings, note_at_start, ret);
        files = *next;
        config_keep_orders(next, s->config, &s->files);
        r = config_check(next, s->sources->shared, "sublet set", error);
        if (r == 0)
                r = apply(s, next, error);
        if (r < 0)
                return r;
        s->files = files;
        entitlement_number(s, &old);
        tally_settle_all(s);
        entitlement_renew(s); /* the clients' pointers into the old classes end here */
        tally_keep_classes(s);
        classes_free(&old);
        keep_settings(s);
        ret->n_classes = s->config->classes.n;
        if (!s->sources->error[0])
                log_done(s, ret);
        return 0;
}

static int reload_running(struct server *s, struct reload *ret, char error[static CONFIG_ERROR_MAX])
{
        struct config next;
        int r = sources_read(s->sources, &next);

        if (r < 0) {
                (void)snprintf(error, CONFIG_ERROR_MAX, "%s", s->sources->error);
                return r;
        }
        r = take(s, &next, ret, error);
        if (r < 0) {
                config_free(&next);
                sources_refuse(s->sources, error);
                return r;
        }
        sources_keep(s->sources);
        return 0;
}

int server_reload(struct server *s, struct reload *ret, char error[static CONFIG_ERROR_MAX])
{
        char before[CONFIG_ERROR_MAX];
        int r;

        *ret = (struct reload){0};
        (void)snprintf(before, sizeof(before), "%s", s->sources->error);
        r = s->held ? reload_held(s, ret, error) : reload_running(s, ret, error);
        log_trouble(s->sources, before);
        return r;
}
