/* loop.c: owns the loop: its sources, its timers, and the sweep after each batch.
 * Must never block, and never free a client anywhere but in the sweep. */
#include "daemon/loop.h"
#include "daemon/state/server.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/wait.h>

#include <systemd/sd-daemon.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/standard.h"
#include "daemon/net/peer_daemons.h"
#include "daemon/state/client.h"
#include "daemon/people/child_process.h"
#include "daemon/people/hangup.h"
#include "daemon/history/history.h"
#include "daemon/setup/kill_point.h"
#include "daemon/setup/sources.h"
#include "daemon/private.h"
#include "daemon/mps/mps_servers.h"
#include "daemon/net/read_turns.h"
#include "daemon/queue/submit.h"
#include "daemon/net/session.h"
#include "daemon/hand/hand.h"
#include "daemon/ledger/preemption.h"
#include "daemon/ledger/entitlement.h"
#include "daemon/ledger/event.h"
#include "daemon/lend/host_pool.h"
#include "daemon/net/looks.h"
#include "daemon/ledger/card_figures.h"
#include "daemon/ledger/reserve.h"
#include "daemon/orders/control.h"
#include "daemon/orders/order_reload.h"
#include "daemon/metrics/endpoint.h"
#include "daemon/metrics/tally.h"
#include "daemon/net/client_connection.h"

#define RESTART_GRACE_NS    (2 * NSEC_PER_SEC)
#define MEASURE_PERIOD_US   UINT64_C(1000000)
#define AWAY_NS             (NSEC_PER_SEC / 10) /* if a timer is so late, the daemon did not run */
#define TIMER_ACCURACY_US   1
#define DESCRIPTORS_RESERVE 64

/* ---- the sweep ---- */

static void end_connection(struct client *c)
{
        struct server *s = c->server;

        client_close(c);
        c->lost_ns = clock_now_ns();
        kill_point("lost");
        if (!c->id || c->said_bye) {
                client_mark_gone(c);
                return;
        }
        if (!c->lost_told) {
                c->lost_told = true;
                preemption_forget(c);
                event_begin(s);
                sched_client_lost(s->sched, c->id, clock_now_ns(), &s->actions);
                event_end(s);
        }
        /* Without a pidfd the end of the connection counts as the end of the process. */
        if (c->peer.pidfd < 0 || peer_ended(c->peer.pidfd))
                client_check_gone(c);
}

static void end_client(struct client *c)
{
        struct server *s = c->server;

        history_left(c);
        if (c->id) {
                tally_ended(c);
                kill_point("gone");
                event_begin(s);
                sched_client_gone(s->sched, c->id, clock_now_ns(), &s->actions);
                event_end(s);
                if (s->by_slot[(uint32_t)c->id] ==
                    c) /* a newer client may have the slot of a former record */
                        s->by_slot[(uint32_t)c->id] = NULL;
                s->n_attached--;
        }
        if (c->host)
                session_host_back(c);
        host_pool_left(c);
        if (c->former)
                client_mark_gone(c->former); /* the scheduler has merged the former record */
        client_free(c);
}

/* Ending one client may produce messages for others, and a full socket may end another client:
 * repeat until no client is marked. */
static void sweep_clients(struct server *s)
{
        while (s->marked) {
                struct client *next;

                s->marked = false;
                for (struct client *c = s->clients; c; c = next) {
                        next = c->next;
                        if (c->dropped && c->fd >= 0)
                                end_connection(c);
                        if (c->gone)
                                end_client(c);
                }
        }
}

/* ---- after each batch ---- */

static void arm_sched_timer(struct server *s)
{
        uint64_t next = sched_next_ns(s->sched);

        if (next == UINT64_MAX) {
                (void)sd_event_source_set_enabled(s->sched_timer, SD_EVENT_OFF);
                return;
        }
        (void)sd_event_source_set_time(s->sched_timer, next / NSEC_PER_USEC + 1);
        (void)sd_event_source_set_enabled(s->sched_timer, SD_EVENT_ONESHOT);
}

static int on_post(sd_event_source *src, void *userdata)
{
        struct server *s = userdata;
        int measuring = SD_EVENT_OFF;

        sweep_clients(s);
        control_sweep(s);
        submit_settle(s);
        place_mark(s->place,
                   s->n_attached > 0 || submit_runs(s) || clock_now_ns() < s->return_until_ns);
        kill_point(s->n_attached > 0 && clock_now_ns() < s->return_until_ns ? "grace" : "swept");
        (void)sd_event_source_get_enabled(s->measure_timer, &measuring);
        if (s->n_clients > 0 && measuring == SD_EVENT_OFF)
                looks_afresh(s); /* the first client must not be told an outdated size */
        server_arm_once(s->measure_timer, s->n_clients > 0, MEASURE_PERIOD_US);
        server_arm_once(s->linger_timer, s->linger && s->n_clients == 0 && !submit_busy(s),
                        s->config->linger_ns / NSEC_PER_USEC);
        arm_sched_timer(s);
        return 0;
}

/* ---- timers and signals ---- */

/* While the daemon was stopped, suspended or starved it received nothing: this time must not count
 * against any client's grace. The two timers that call this run first, before any client is judged;
 * one of them fires each second. */
static void notice_absence(struct server *s, uint64_t due_usec)
{
        uint64_t now = clock_now_ns(), late_ns = sub_sat(now, due_usec * NSEC_PER_USEC);

        if (late_ns < AWAY_NS)
                return;
        log_info("did not run for %llu ms or more: this time counts against no program",
                 (unsigned long long)(late_ns / NSEC_PER_MSEC));
        sched_skip(s->sched, late_ns + MEASURE_PERIOD_US * NSEC_PER_USEC, now);
}

static int on_sched_timer(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct server *s = userdata;

        notice_absence(s, usec);
        event_begin(s);
        sched_tick(s->sched, clock_now_ns(), &s->actions);
        event_end(s);
        return 0;
}

static int on_measure_timer(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct server *s = userdata;

        notice_absence(s, usec);
        figures_period(s);
        history_period(s);
        preemption_offer_all(s);
        looks_sample(s);
        if (s->linger)
                private_bound_log(s->place->dir);
        if (s->linger && place_is_lost(s->place)) {
                log_warning("the directory %s is gone, so no program finds this daemon any "
                            "more: leaving",
                            s->place->dir);
                server_stop(s, SERVER_STOPPED);
        }
        (void)sd_event_source_set_time_relative(src, MEASURE_PERIOD_US);
        (void)sd_event_source_set_enabled(src, SD_EVENT_ONESHOT);
        return 0;
}

static int on_linger_timer(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct server *s = userdata;

        if (s->n_clients == 0 && !submit_busy(s)) {
                log_info("no client for a while: leaving");
                server_stop(s, SERVER_LONELY);
        }
        return 0;
}

static int on_accept_timer(sd_event_source *src, uint64_t usec, void *userdata)
{
        server_set_accepting(userdata, true);
        return 0;
}

static int on_child(sd_event_source *src, const struct signalfd_siginfo *si, void *userdata)
{
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                if (!child_process_reaped(pid) && !mps_servers_reaped(userdata, pid, status))
                        hangup_reaped();
        return 0;
}

static int on_leave(sd_event_source *src, const struct signalfd_siginfo *si, void *userdata)
{
        log_info("signal %u: leaving", si->ssi_signo);
        server_stop(userdata, SERVER_STOPPED);
        return 0;
}

static int on_reload(sd_event_source *src, const struct signalfd_siginfo *si, void *userdata)
{
        char error[CONFIG_ERROR_MAX];
        struct reload done;

        (void)server_reload(userdata, &done, error); /* it logs what is wrong */
        return 0;
}

static int on_needless(sd_event_source *src, const struct signalfd_siginfo *si, void *userdata)
{
        log_info("signal %u: it means nothing; SIGHUP reads the settings again", si->ssi_signo);
        return 0;
}

static const struct caught {
        int signal;
        sd_event_signal_handler_t handler;
} caught[] = {
        {SIGTERM, on_leave},    {SIGINT, on_leave},     {SIGQUIT, on_leave}, {SIGHUP, on_reload},
        {SIGUSR1, on_needless}, {SIGUSR2, on_needless}, {SIGCHLD, on_child},
};

void loop_block_signals(void)
{
        sigset_t mask;

        (void)sigemptyset(&mask);
        for (size_t i = 0; i < ARRAY_SIZE(caught); i++)
                (void)sigaddset(&mask, caught[i].signal);
        (void)sigprocmask(SIG_BLOCK, &mask, NULL);
}

static int catch_signals(struct server *s)
{
        int r = 0;

        (void)signal(SIGPIPE, SIG_IGN);
        (void)signal(SIGCHLD, SIG_DFL); /* the starting program may have ignored SIGCHLD */
        for (size_t i = 0; i < ARRAY_SIZE(caught) && r >= 0; i++)
                r = sd_event_add_signal(s->event, NULL, caught[i].signal, caught[i].handler, s);
        return r;
}

static int add_timer(struct server *s, sd_event_source **ret, sd_event_time_handler_t handler)
{
        int r = sd_event_add_time_relative(s->event, ret, CLOCK_MONOTONIC, 0, TIMER_ACCURACY_US,
                                           handler, s);

        return r < 0 ? r : sd_event_source_set_enabled(*ret, SD_EVENT_OFF);
}

static int add_sources(struct server *s)
{
        int r;

        if ((r = sd_event_new(&s->event)) < 0 ||
            (r = sd_event_set_watchdog(s->event, true)) < 0 || /* if the unit has WatchdogSec= */
            (r = sd_event_add_io(s->event, &s->client_source, s->place->listening[PLACE_CLIENT],
                                 EPOLLIN, client_accept, s)) < 0 ||
            (r = sd_event_add_io(s->event, &s->control_source, s->place->listening[PLACE_CONTROL],
                                 EPOLLIN, control_accept, s)) < 0 ||
            (s->place->listening[PLACE_STATUS] >= 0 &&
             (r = sd_event_add_io(s->event, &s->status_source, s->place->listening[PLACE_STATUS],
                                  EPOLLIN, control_accept_viewer, s)) < 0) ||
            (r = catch_signals(s)) < 0 || (r = read_turns_open(s)) < 0 ||
            (r = add_timer(s, &s->sched_timer, on_sched_timer)) < 0 ||
            (r = sd_event_source_set_priority(s->sched_timer, SD_EVENT_PRIORITY_IMPORTANT)) < 0 ||
            (r = add_timer(s, &s->measure_timer, on_measure_timer)) < 0 ||
            (r = sd_event_source_set_priority(s->measure_timer, SD_EVENT_PRIORITY_IMPORTANT)) < 0 ||
            (r = add_timer(s, &s->linger_timer, on_linger_timer)) < 0 ||
            (r = add_timer(s, &s->accept_timer, on_accept_timer)) < 0 ||
            (r = sd_event_add_post(s->event, &s->post_source, on_post, s)) < 0)
                return r;
        return 0;
}

/* ---- start and end ---- */

static uint64_t host_budget(const struct config *c, uint64_t before)
{
        struct host_memory m;

        if (c->host_memory_bytes != UINT64_MAX)
                return c->host_memory_bytes;
        if (host_memory_read(&m) < 0) {
                log_warning("cannot read how much memory the machine has: programs are promised no "
                            "host memory");
                return 0;
        }
        return host_memory_budget(&m, before);
}

/* Restores the settings that orders made in a daemon that crashed. */
static void recall_settings(struct server *s)
{
        _cleanup_fclose_ FILE *file = place_kept(s->place);
        struct config c = s->settings;
        char error[CONFIG_ERROR_MAX];

        if (!file)
                return;
        classes_init(&c.classes);
        if (config_read(&c, file, "what an earlier daemon kept", error) < 0) {
                log_info("%s", error);
                config_free(&c);
                return;
        }
        config_free(&c);
        c.classes = s->settings.classes;
        s->settings = c;
        log_info("settings that orders made in an earlier daemon are in force again");
}

/* Says in the log if the files are wrong, and keeps them if they are good. */
static void look_at_sources(struct server *s)
{
        s->held = s->sources->found == SOURCES_NOTHING;
        if (s->held)
                log_error("%s; no program gets a turn until the file is corrected: then sublet "
                          "reload",
                          s->sources->error);
        else if (s->sources->found == SOURCES_LAST_GOOD)
                log_error("%s; the daemon goes on with the last good configuration: correct the "
                          "file, then sublet reload",
                          s->sources->error);
        sources_keep(s->sources);
}

/* A daemon that cannot serve its metrics goes on, because programs matter more. */
static void serve_metrics(struct server *s)
{
        char error[CONFIG_ERROR_MAX];
        struct endpoint *e;

        if (endpoint_open(s, s->config->metrics, &e, error) == 0)
                endpoint_use(s, e);
        else
                log_warning("%s; sublet reload tries again", error);
}

static int server_open(struct server *s)
{
        struct sched_config sc;
        uint64_t promised;
        bool was_busy = place_was_busy(s->place, &promised);
        int r;

        r = standard_allow(6 * s->config->sched.clients_max + DESCRIPTORS_RESERVE);
        if (r < 0)
                log_info("descriptor limit stays as it is: %s", strerror(-r));
        do {
                if (getrandom(&s->instance, sizeof(s->instance), 0) != sizeof(s->instance))
                        return -EIO;
        } while (s->instance == 0);
        s->started_ns = clock_now_ns();
        (void)peer_look_at_self();
        look_at_sources(s);
        recall_settings(s);
        sc = s->config->sched;
        sc.host_budget_bytes = host_budget(s->config, promised);
        s->host_budget_bytes = s->place->promised_bytes = sc.host_budget_bytes;
        if (was_busy) {
                log_warning("an earlier daemon ended with clients attached: waiting 2 s for them");
                sc.restart_grace_ns = RESTART_GRACE_NS;
                s->return_until_ns = s->started_ns + RESTART_GRACE_NS;
                s->place->marked = true;
        }
        sc.seed = s->instance;
        s->sched = sched_new(&sc);
        s->by_slot = calloc(sc.clients_max + 1ul, sizeof(struct client *));
        s->users = users_new(s->config->connections_per_user);
        s->tally = tally_new();
        if (!s->sched || !s->by_slot || !s->users || !s->tally)
                return -ENOMEM;
        history_began(s);
        r = add_sources(s);
        s->gpus.config = s->config;
        if (r == 0)
                r = reader_new(s->event, looks_told, s, &s->reader);
        if (r == 0)
                r = preemption_new(s);
        if (r >= 0)
                r = host_pools_new(s);
        if (r == 0)
                r = mps_servers_new(s);
        if (r == 0)
                r = submit_new(s);
        server_set_accepting(s, false);
        if (r == 0)
                looks_sample(s);
        if (r == 0 && peer_daemons_open(s) < 0)
                log_info("no socket for other daemons on these cards: they do not learn that "
                         "programs of this one wait for room");
        if (r == 0 && s->config->metrics[0])
                serve_metrics(s);
        return r;
}

static void server_close(struct server *s)
{
        if (s->n_attached == 0 && !submit_runs(s))
                place_mark(s->place, false);
        while (s->clients)
                client_free(s->clients);
        mps_servers_free(s);
        host_pools_free(s);
        submit_free(s);
        control_close_all(s);
        endpoint_use(s, NULL);
        peer_daemons_close(s);
        reserve_free(s);
        read_turns_close(s);
        (void)sd_event_source_disable_unref(s->client_source);
        (void)sd_event_source_disable_unref(s->control_source);
        (void)sd_event_source_disable_unref(s->status_source);
        (void)sd_event_source_disable_unref(s->post_source);
        (void)sd_event_source_disable_unref(s->sched_timer);
        (void)sd_event_source_disable_unref(s->measure_timer);
        (void)sd_event_source_disable_unref(s->linger_timer);
        (void)sd_event_source_disable_unref(s->accept_timer);
        hand_free(s->hand);
        reader_free(s->reader);
        (void)sd_event_unref(s->event);
        users_free(s->users);
        tally_free(s->tally);
        free(s->by_slot);
        sched_free(s->sched);
        config_free(&s->settings);
}

int loop_run(const struct config *config, struct sources *sources, struct place *place,
             struct ring *history, bool linger)
{
        struct server *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        s->settings = *config;
        s->config = &s->settings;
        entitlement_number(s, NULL);
        s->files = s->settings;
        s->sources = sources;
        s->place = place;
        s->history = history;
        s->linger = linger;
        r = server_open(s);
        if (r == 0) {
                server_arm_once(s->linger_timer, linger, config->linger_ns / NSEC_PER_USEC);
                r = sd_event_loop(s->event);
                if (r != SERVER_AFRESH)
                        (void)sd_notify(0, "STOPPING=1");
        }
        if (r < 0)
                log_error("cannot run: %s", strerror(-r));
        server_close(s);
        free(s);
        return r;
}
