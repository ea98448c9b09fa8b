/* sched_unevictable.c: owns the answers to requests for unevictable and exported bytes. Must never
 * grant bytes that would keep any client from ever running. */
#include "sched/internal.h"

void unevictable_done(struct client *c, bool *wanted)
{
        unsigned gpu;

        *wanted = false;
        FOR_EACH_GPU_OF (c, gpu) {
                if (c->accounts[gpu]->unevictable_requested || c->accounts[gpu]->export_requested)
                        return;
        }
        c->unevictable_ticket = 0;
}

static void refuse_unevictable(struct sched *s, struct client *c, struct account *a)
{
        unevictable_done(c, &a->unevictable_requested);
        a->refuse_unevictable = true;
        a->refuse_unevictable_of = a->unevictable_of;
        actions_mark(s, c);
}

enum verdict { VERDICT_FITS, VERDICT_LATER, VERDICT_NEVER };

/* True if a holder fits beside so many unevictable bytes. A holder that waits for foreign processes
 * anyway only has to fit once they are gone. */
static bool stays_runnable(const struct gpu *g, uint64_t allocated, uint64_t unevictable,
                           uint64_t cap)
{
        return allocated <= cap ||
               (allocated > sub_sat(gpu_usable(g), g->unevictable) &&
                allocated <= sub_sat(g->total, add_sat(gpu_headroom(g), unevictable)));
}

/* Judges a request: could all clients still run with so many unevictable bytes on this GPU, and so
 * many exported by the requesting account? Their allocated bytes count. VERDICT_LATER: some clients
 * must first acknowledge that commit above their allocated bytes was taken back. */
static enum verdict verdict(struct sched *s, unsigned gpu, const struct account *request,
                            uint64_t unevictable, uint64_t exported, uint64_t since_ns)
{
        const struct gpu *g = &s->gpu[gpu];
        uint64_t cap = sub_sat(gpu_usable(g), unevictable), spill;
        const struct holder *h;
        bool early = false;

        if (unevictable > gpu_usable(g))
                return VERDICT_NEVER;
        FOR_EACH_HOLDER_ON (s, gpu, h) {
                const struct client *c;
                uint64_t committed = 0, allocated = 0;
                bool lost = false;

                FOR_EACH_CLIENT_OF_ON (h, gpu, c) {
                        const struct account *a = c->accounts[gpu];
                        uint64_t stays = a == request ? exported : a->exported;

                        committed += sub_sat(a->commit_held, stays);
                        allocated += sub_sat(a->usage.allocated, stays);
                        lost |= c->lost;
                }
                if (committed <= cap)
                        continue;
                if (lost || !stays_runnable(g, allocated, unevictable, cap))
                        return VERDICT_NEVER;
                early |= committed > MAX(cap, allocated);
        }
        if (early)
                return s->now_ns - since_ns >= s->config.grace_ns ? VERDICT_NEVER : VERDICT_LATER;
        if (unevictable <= gpu_unevictable_budget(s, g))
                return VERDICT_FITS; /* the host budget allows for the full unevictable budget */
        spill = ledger_host_spilled(s, gpu) + ledger_host_spill(s, g, g->committed, unevictable);
        return spill > ledger_host_budget(s) + s->host_over ? VERDICT_NEVER : VERDICT_FITS;
}

static bool can_spare(const struct client *c, unsigned gpu)
{
        return !c->lost && c->accounts[gpu]->spare;
}

/* Asks clients for spare unevictable bytes of this GPU if that could make enough room. Returns the
 * last deadline for an answer; 0: nobody can help. A client is asked once, so its deadline does not
 * move. */
static uint64_t ask_for_spares(struct sched *s, unsigned gpu, uint64_t unevictable)
{
        uint64_t until_ns = 0, most = 0;
        struct client *c;

        FOR_EACH_CLIENT_ON (s, gpu, c) {
                if (can_spare(c, gpu))
                        most += account_own_unevictable(c->accounts[gpu]);
        }
        if (sub_sat(unevictable, most) > gpu_usable(&s->gpu[gpu]))
                return 0;
        FOR_EACH_CLIENT_ON (s, gpu, c) {
                struct account *a = c->accounts[gpu];

                if (!can_spare(c, gpu))
                        continue;
                if (!a->spare_asked_ns) {
                        a->spare_asked_ns = s->now_ns;
                        a->spare_dirty = true;
                        actions_mark(s, c);
                }
                until_ns = MAX(until_ns, a->spare_asked_ns + s->config.grace_ns);
        }
        return until_ns;
}

static void serve_unevictable_on(struct sched *s, struct client *c, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct account *a = c->accounts[gpu];
        uint64_t more = sub_sat(a->unevictable_request, account_own_unevictable(a));
        const bool past = more && g->unevictable + more > gpu_unevictable_budget(s, g);
        uint64_t spares_ns =
                past && !a->spare_requested ? ask_for_spares(s, gpu, g->unevictable + more) : 0;

        /* A client may offer spare bytes at any time, which must not prolong the request. */
        spares_ns = MIN(spares_ns, a->unevictable_since_ns + s->config.grace_ns);

        if (past && a->spare_requested) {
                refuse_unevictable(s, c, a);
                return;
        }
        if (more) {
                switch (verdict(s, gpu, a, g->unevictable + more, a->exported,
                                a->unevictable_since_ns)) {
                case VERDICT_NEVER:
                        if (spares_ns > s->now_ns)
                                wake_at(s, spares_ns);
                        else
                                refuse_unevictable(s, c, a);
                        return;
                case VERDICT_LATER:
                        settle_trim_commits(s, gpu, sub_sat(gpu_usable(g), g->unevictable + more));
                        wake_at(s, a->unevictable_since_ns + s->config.grace_ns);
                        return;
                case VERDICT_FITS:
                        a->unevictable_since_ns = s->now_ns; /* no client has to answer first */
                        break;
                }
        }
        if (more > ledger_free(g) && s->config.mode == SCHED_MODE_OFF) {
                refuse_unevictable(s, c, a);
                return;
        }
        if (more > ledger_free(g) || (more && g->head)) {
                /* The request does not wait for bytes of clients that cannot be asked, as in
                 * settle_fits(). */
                uint64_t others = ledger_immovable_beside(s, gpu, c->holder);

                if (!g->head &&
                    g->unevictable + more + others + ledger_sum(c->holder, gpu, account_movable) <=
                            gpu_usable(g)) {
                        g->head = c->holder;
                        g->head_unevictable = c;
                        g->wanted = true;
                        g->head_missing = more;
                }
                return;
        }
        a->silent = false;
        a->spare |= a->spare_requested;
        unevictable_done(c, &a->unevictable_requested);
        ledger_set_unevictable_allowed(s, c, gpu,
                                       MAX(a->unevictable_request, a->unevictable_allowed));
}

static void refuse_export(struct sched *s, struct client *c, struct account *a)
{
        unevictable_done(c, &a->export_requested);
        a->refuse_export = true;
        a->refuse_export_of = a->export_of;
        actions_mark(s, c);
}

/* Serves a request to export memory. That memory may lie on the host now, so room is made for it as
 * for a client that waits to run. The client moves its memory within its limit. */
static void serve_export_on(struct sched *s, struct client *c, unsigned gpu)
{
        struct gpu *g = &s->gpu[gpu];
        struct account *a = c->accounts[gpu];
        uint64_t more = sub_sat(a->export_request, a->exported),
                 rise = sub_sat(a->export_request, a->limit);
        /* All of c's own movable bytes become exported ones. */
        uint64_t others = ledger_immovable_beside(s, gpu, c->holder) +
                          ledger_sum(c->holder, gpu, account_movable) - account_movable(a);

        if (a->export_request > a->usage.allocated) {
                refuse_export(s, c, a);
                return;
        }
        switch (verdict(s, gpu, a, g->unevictable + more, a->export_request, a->export_since_ns)) {
        case VERDICT_NEVER:
                refuse_export(s, c, a);
                return;
        case VERDICT_LATER:
                settle_trim_commits(s, gpu, sub_sat(gpu_usable(g), g->unevictable + more));
                wake_at(s, a->export_since_ns + s->config.grace_ns);
                return;
        case VERDICT_FITS:
                break;
        }
        if (rise > ledger_available(g, a) || (rise && g->head)) {
                if (s->config.mode == SCHED_MODE_OFF)
                        refuse_export(s, c, a);
                else if (!g->head && add_sat(g->unevictable + more, others) <= gpu_usable(g)) {
                        g->head = c->holder;
                        g->head_unevictable = c;
                        g->wanted = true;
                        g->head_missing = rise;
                }
                return;
        }
        unevictable_done(c, &a->export_requested);
        ledger_set_exported(s, c, gpu, a->export_request);
        a->export_dirty = true;
        actions_mark(s, c);
}

void unevictable_serve(struct sched *s, struct client *c)
{
        unsigned gpu;

        FOR_EACH_GPU_OF (c, gpu) {
                if (c->accounts[gpu]->unevictable_requested)
                        serve_unevictable_on(s, c, gpu);
                if (c->accounts[gpu]->export_requested)
                        serve_export_on(s, c, gpu);
        }
}
