/* control.c: owns control.sock, where people give orders: one JSON object a line, one answer a
 * line, which bytes may follow; and status.sock, where every user may give one public order
 * (base/orders.h) for each connection. Must never take another order from anybody but the daemon's
 * own user and root, outside a container and outside a pod that is not its own.
 * Why: docs/decisions.md, "Orders are JSON on a socket of their own". */
#include "daemon/orders/control.h"
#include "daemon/state/server.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <jansson.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/orders.h"
#include "daemon/state/client.h"
#include "daemon/history/history.h"
#include "daemon/people/hangup.h"
#include "daemon/ledger/pause.h"
#include "daemon/ledger/reserve.h"
#include "daemon/people/peer.h"
#include "daemon/net/looks.h"
#include "daemon/ledger/event.h"
#include "daemon/state/answer.h"
#include "daemon/state/outbox.h"
#include "daemon/orders/order_evict.h"
#include "daemon/orders/order_reload.h"
#include "daemon/orders/order_settings.h"
#include "daemon/orders/order_status.h"
#include "daemon/orders/order_trace.h"
#include "daemon/queue/submit.h"
#include "daemon/setup/sources.h"

#define ORDER_MAX       4096
#define CONNECTIONS_MAX 32
#define VIEWERS_MAX     64 /* connections at status.sock */
#define VIEWERS_OF_USER 4
#define LARGE_MAX       8            /* large answers that are being written, at each socket */
#define LARGE_NS        NSEC_PER_SEC /* after this time, a new large answer may end the oldest */

struct control {
        struct server *server;
        struct control *next;
        int fd;
        sd_event_source *io;
        bool dead;
        bool viewer; /* the peer came by status.sock */
        struct peer peer;
        char line[ORDER_MAX];
        size_t used;
        struct outbox out;  /* the line of the answer, or the bytes behind it */
        struct outbox rest; /* what follows the line, until it is in `out` */
        uint64_t large_ns;  /* since when an answer with such bytes is written; 0: none is */
};

/* ---- orders ---- */

static json_t *order_status(struct server *s, json_t *order, const struct peer *peer)
{
        if (s->n_clients == 0)
                looks_afresh(s); /* for the next question: this answer does not wait */
        return status_json(s, peer);
}

static json_t *order_reload(struct server *s, json_t *order, const struct peer *peer)
{
        char error[CONFIG_ERROR_MAX], who[HISTORY_WHO_MAX];
        const char *wrong = s->sources->error;
        struct reload done;
        json_t *restart;

        if (server_reload(s, &done, error) < 0)
                return answer_error("%s", error);
        log_info("ordered to read the settings again, %s",
                 history_order(s, NULL, HISTORY_RELOAD, peer, who));
        restart = json_array();
        for (unsigned i = 0; i < done.n_at_start; i++)
                (void)json_array_append_new(restart, json_string(done.at_start[i]));
        return json_pack("{s:i, s:o, s:s*}", "classes", (int)done.n_classes, "restart", restart,
                         "wrong", wrong[0] ? wrong : NULL);
}

static json_t *order_stop(struct server *s, json_t *order, const struct peer *peer)
{
        char who[HISTORY_WHO_MAX];

        log_info("ordered to stop, %s", history_order(s, NULL, HISTORY_STOP, peer, who));
        server_stop(s, SERVER_STOPPED);
        return json_object();
}

static json_t *pause_answer(int r, int pid, const struct client *c)
{
        switch (r) {
        case -EPERM:
                return answer_error("process %d cannot be paused: it runs with SUBLET_FREEZE=off; "
                                    "start it with sublet run --freeze park",
                                    pid);
        case -EOPNOTSUPP:
                return answer_error("process %d cannot be paused: %s", pid, c->frozen.off);
        default:
                return json_pack("{s:s, s:b}", "name", c->name, "already", r);
        }
}

static json_t *order_pause_or_resume(struct server *s, json_t *order, const struct peer *peer)
{
        const char *name = json_string_value(json_object_get(order, "order"));
        const bool paused = strcmp(name, "pause") == 0;
        json_t *answer = NULL;
        struct client *c = answer_program(s, order, peer,
                                          "pause and resume take the number of a process, \"pid\"",
                                          "pause it", &answer);

        return c ? pause_answer(pause_set(c, paused, peer), (int)c->peer.pid, c) : answer;
}

/* Adds the cards that a UUID names to the mask. */
static void add_named(const struct server *s, const char *uuid, uint32_t *mask)
{
        for (unsigned i = 0; i < s->gpus.n; i++)
                if (s->gpus.list[i].present && strcmp(s->gpus.list[i].uuid_text, uuid) == 0)
                        *mask |= UINT32_C(1) << i;
}

static json_t *order_reserve(struct server *s, json_t *order, const struct peer *peer)
{
        const json_t *among = json_object_get(order, "among");
        uint32_t mask = among ? 0 : UINT32_MAX;
        const struct gpu *g;
        unsigned gpu;
        int r;

        if (among && !json_is_array(among))
                return answer_error("reserve takes a list of UUIDs, \"among\"");
        for (size_t i = 0; i < json_array_size(among); i++) {
                const char *uuid = json_string_value(json_array_get(among, i));

                if (!uuid)
                        return answer_error("reserve takes a list of UUIDs, \"among\"");
                add_named(s, uuid, &mask);
        }
        r = reserve_take(s, peer, mask, &gpu);
        if (r == -ENODEV && among)
                return answer_error("this machine has none of these GPUs: sublet status shows "
                                    "those that it has");
        if (r == -ENODEV)
                return answer_error(
                        "no GPU is known here: is NVIDIA's driver loaded? sublet doctor looks");
        if (r == -EUSERS)
                return answer_error("too many programs that start have reserved a GPU: try again "
                                    "in a minute");
        if (r < 0)
                return answer_error("%s", strerror(-r));
        g = &s->gpus.list[gpu];
        return json_pack("{s:i, s:s, s:s}", "index", (int)gpu, "uuid", g->uuid_text, "name",
                         g->name);
}

static const struct order {
        const char *name;
        json_t *(*carry_out)(struct server *s, json_t *order, const struct peer *peer);
        bool process; /* needs the pidfd of the process that gives the order */
        /* Makes the bytes that follow the answer; NULL: none do. */
        void *(*bytes)(struct server *s, const struct peer *peer, json_t *answer, size_t *ret_size);
        /* Takes the connection over instead, and returns NULL; or an answer that is an error. */
        json_t *(*take_over)(struct server *s, json_t *order, const struct peer *peer, int fd);
} orders[] = {
        {"status", order_status, false, NULL, NULL},
        {"pause", order_pause_or_resume, false, NULL, NULL},
        {"resume", order_pause_or_resume, false, NULL, NULL},
        {"evict", evict_order, false, NULL, NULL},
        {"reserve", order_reserve, true, NULL, NULL},
        {"trace", trace_answer, false, trace_bytes, NULL},
        {"get", settings_get, false, NULL, NULL},
        {"set_program", settings_set_program, false, NULL, NULL},
        {"set", settings_set, false, NULL, NULL},
        {"reload", order_reload, false, NULL, NULL},
        {"stop", order_stop, false, NULL, NULL},
        {"submit", NULL, true, NULL, submit_take},
};

/* Returns the answer to a peer that may not give this order, or not now; NULL: it may. */
static json_t *objection(const struct control *k, const struct order *o)
{
        const bool public = order_is_public(o->name);
        const uint64_t now = clock_now_ns();
        struct user *user;

        if (k->viewer && !public)
                return answer_error("this order is for the daemon's own user and root: give it at "
                                    "control.sock");
        if (k->peer.trusted)
                return NULL;
        if (!public)
                return answer_error("orders are taken from the daemon's own user and from root, "
                                    "both outside a container, and in a pod only from the daemon's "
                                    "own pod");
        user = users_find(k->server->users, users_key_of(&k->peer), now);
        return user && users_credit(user, now) >= 0
                       ? NULL
                       : answer_later("too many questions a second: ask again in a second");
}

/* A reader may never read, so few large answers are kept. If there are as many as allowed, ends the
 * oldest. False: it is too new for that. */
static bool make_place_for_large(const struct control *asker, uint64_t now)
{
        struct control *oldest = NULL;
        unsigned n = 0;

        for (struct control *k = asker->server->controls; k; k = k->next) {
                if (k->dead || k->viewer != asker->viewer || !k->large_ns)
                        continue;
                if (!oldest || k->large_ns < oldest->large_ns)
                        oldest = k;
                n++;
        }
        if (n < LARGE_MAX)
                return true;
        if (now - oldest->large_ns < LARGE_NS)
                return false;
        oldest->dead = true;
        return true;
}

/* Gives the connection to the order. Nothing may have come behind the order, because only the new
 * owner reads on. NULL: the connection is gone. */
static json_t *hand_over(struct control *k, const struct order *o, json_t *order,
                         const struct peer *peer)
{
        json_t *answer;

        if (k->used > strlen(k->line) + 1)
                return answer_error("wait for the answer to this order before you send more");
        (void)sd_event_source_set_enabled(k->io, SD_EVENT_OFF);
        answer = o->take_over(k->server, order, peer, k->fd);
        if (answer) {
                (void)sd_event_source_set_enabled(k->io, SD_EVENT_ON);
                return answer;
        }
        k->fd = -EBADF;
        k->dead = true;
        return NULL;
}

static json_t *give(struct control *k, const struct order *o, json_t *order)
{
        struct peer peer = k->peer;
        const uint64_t now = clock_now_ns();
        json_t *answer = objection(k, o);

        if (answer)
                return answer;
        if (o->bytes && !make_place_for_large(k, now))
                return answer_later("too many others read the trace: try again in a second");
        if (o->process && peer_identify(k->fd, &peer) < 0)
                return answer_error("the process that gives the order cannot be seen: it has "
                                    "ended, or runs where this daemon does not look");
        answer = o->take_over ? hand_over(k, o, order, &peer)
                              : o->carry_out(k->server, order, &peer);
        if (o->bytes && answer) {
                k->rest.bytes = o->bytes(k->server, &peer, answer, &k->rest.size);
                k->large_ns = k->rest.bytes ? now : 0;
                if (!k->rest.bytes) {
                        json_decref(answer);
                        answer = answer_error(
                                "this daemon keeps no records: it had no memory for them");
                }
        }
        cleanup_close(&peer.pidfd);
        /* cppcheck-suppress returnDanglingLifetime; no answer keeps the peer */
        return answer;
}

static json_t *carry_out(struct control *k, const char *line)
{
        json_t *order = json_loads(line, JSON_REJECT_DUPLICATES, NULL), *answer = NULL;
        const char *name = json_string_value(json_object_get(order, "order"));

        if (!name) {
                answer = answer_error("an order is one JSON object with \"order\" on one line");
        } else {
                for (size_t i = 0; i < ARRAY_SIZE(orders) && !answer; i++)
                        if (strcmp(orders[i].name, name) == 0)
                                answer = give(k, &orders[i], order);
                if (!answer && !k->dead)
                        answer = answer_error(
                                "unknown order \"%.100s\": use one release of sublet and subletd",
                                name);
        }
        json_decref(order);
        return answer;
}

/* ---- the connection ---- */

/* Call it when a part of the answer was sent: begins with the bytes that follow, if there are
 * any. */
static void next_part(struct control *k)
{
        k->out = k->rest;
        k->rest = (struct outbox){0};
        if (k->out.bytes)
                return;
        k->large_ns = 0;
        k->dead |= k->viewer; /* only one answer at status.sock */
}

static void flush_out(struct control *k)
{
        int r = 1;

        while (k->out.bytes && !k->dead && (r = outbox_flush(&k->out, k->fd)) > 0)
                next_part(k);
        k->dead |= r < 0;
        (void)sd_event_source_set_io_events(k->io, k->out.bytes ? EPOLLOUT : EPOLLIN);
}

/* Handles an order and begins to write the answer. While it is written no order is read, so that a
 * peer that does not read gets no second one. */
static void answer_line(struct control *k, const char *line)
{
        json_t *answer = carry_out(k, line);
        char *text = answer ? json_dumps(answer, JSON_COMPACT | JSON_REAL_PRECISION(12)) : NULL;
        size_t size = text ? strlen(text) : 0;

        json_decref(answer);
        if (!text) {
                k->dead = true; /* or it was handed over */
                return;
        }
        text[size] = '\n'; /* replaces the NUL, which is not needed any more */
        k->out = (struct outbox){.bytes = text, .size = size + 1};
        flush_out(k);
}

static void handle_lines(struct control *k)
{
        char *end;

        while (!k->dead && !k->out.bytes && (end = memchr(k->line, '\n', k->used))) {
                size_t rest = k->used - (size_t)(end + 1 - k->line);

                *end = '\0';
                answer_line(k, k->line);
                memmove(k->line, end + 1, rest);
                k->used = rest;
        }
        if (k->used == sizeof(k->line))
                k->dead = true; /* the line is longer than any order */
}

static int on_control(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct control *k = userdata;
        uint64_t began = clock_now_ns();

        if (k->dead)
                return 0;
        if (k->out.bytes) {
                flush_out(k);
        } else {
                union hangup_room room;
                struct iovec data = {k->line + k->used, sizeof(k->line) - k->used};
                struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
                ssize_t n;

                hangup_expect(&h, &room);
                n = recvmsg(fd, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
                if (n >= 0 && hangup_take(&h))
                        k->dead = true; /* no order brings descriptors */
                if (n > 0)
                        k->used += (size_t)n;
                else if (n == 0 || (errno != EAGAIN && errno != EINTR))
                        k->dead = true;
        }
        handle_lines(k);
        users_charge_since(k->server->users, users_key_of(&k->peer), began, clock_now_ns());
        return 0;
}

/* Forgotten connections must not keep a new one out: if there are as many as allowed, ends the
 * oldest. The list begins with the newest. user: count only connections of this user; NULL: count
 * all. */
static void make_place(struct server *s, bool viewer, const struct users_key *user, unsigned most)
{
        struct control *oldest = NULL;
        unsigned n = 0;

        for (struct control *k = s->controls; k; k = k->next) {
                if (k->dead || k->viewer != viewer ||
                    (user && !users_same(*user, users_key_of(&k->peer))))
                        continue;
                oldest = k;
                n++;
        }
        if (n >= most)
                oldest->dead = true;
}

static bool control_begin(struct server *s, int fd, bool viewer)
{
        _cleanup_free_ struct control *k = NULL;
        uint64_t began = clock_now_ns();
        struct users_key user;
        struct peer peer;

        if (peer_identify(fd, &peer) < 0)
                return false;
        cleanup_close(&peer.pidfd);
        peer.pidfd = -EBADF;
        user = users_key_of(&peer);
        if (viewer)
                make_place(s, viewer, &user, VIEWERS_OF_USER);
        make_place(s, viewer, NULL, viewer ? VIEWERS_MAX : CONNECTIONS_MAX);
        k = calloc(1, sizeof(*k));
        if (!k || sd_event_add_io(s->event, &k->io, fd, EPOLLIN, on_control, k) < 0)
                return false;
        k->server = s;
        k->fd = fd;
        k->viewer = viewer;
        k->peer = peer;
        users_charge_since(s->users, users_key_of(&peer), began, clock_now_ns());
        k->next = s->controls;
        s->controls = TAKE_PTR(k);
        return true;
}

static int accept_one(struct server *s, int fd, bool viewer)
{
        int c;

        if (!server_may_accept(s))
                return 0;
        c = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (c < 0 && (errno == EMFILE || errno == ENFILE))
                server_no_descriptor(s);
        if (c >= 0 && !control_begin(s, c, viewer))
                (void)hangup_close(c);
        return 0;
}

int control_accept(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        return accept_one(userdata, fd, false);
}

int control_accept_viewer(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        return accept_one(userdata, fd, true);
}

static void control_free(struct control *k)
{
        (void)sd_event_source_disable_unref(k->io);
        if (k->fd >= 0)
                (void)hangup_close(k->fd);
        free(k->rest.bytes);
        free(k->out.bytes);
        free(k);
}

void control_sweep(struct server *s)
{
        for (struct control **p = &s->controls; *p;) {
                struct control *k = *p;

                if (!k->dead) {
                        p = &k->next;
                        continue;
                }
                *p = k->next;
                control_free(k);
        }
}

void control_close_all(struct server *s)
{
        for (struct control *k = s->controls; k; k = k->next)
                k->dead = true;
        control_sweep(s);
}
