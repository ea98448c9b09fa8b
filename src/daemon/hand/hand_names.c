/* hand_names.c: owns which channels of a page one disabling of the hand's counts for. Must undo
 * each disabling exactly once: RM counts, and one undoing too many would start a program whose
 * memory is away.
 * Why: docs/decisions.md, "The daemon's hand". */
#include "daemon/hand/hand_names.h"

#include <errno.h>
#include <string.h>

#include "base/macros.h"

#define FAILED_MAX                                                                    \
        8 /* calls that fail at a missing channel, in one order: each costs 64 others \
           */

struct batch {
        struct hand_page *page;
        const struct hand_clients *proved;
        hand_switch_fn change;
        void *userdata;
        bool disable;
        unsigned failed;
        struct hand_call calls[HAND_GPUS]; /* by device */
        struct entry {
                uint32_t at, word; /* its `off`, as we have written it */
        } entries[HAND_GPUS][RM_DISABLE_CHANNELS_MAX];
};

static uint32_t entries_used(const struct hand_page *p)
{
        return MIN(atomic_load(&p->top), (uint32_t)HAND_CHANNELS);
}

static bool is_gone(uint32_t status)
{
        return status == RM_NO_CHANNEL || status == RM_NO_OBJECT || status == RM_NO_CLIENT;
}

static bool is_proved(const struct hand_clients *proved, uint32_t client)
{
        for (uint32_t i = 0; i < proved->count; i++)
                if (proved->clients[i] == client)
                        return true;
        return false;
}

/* A call that fails at a missing channel has changed those before it. The opposite call fails at
 * the same one, and so undoes that. Then each channel gets a call of its own. */
static int one_by_one(struct batch *b, unsigned device)
{
        const struct hand_call *c = &b->calls[device];

        (void)b->change(b->userdata, c, !b->disable);
        if (++b->failed > FAILED_MAX)
                return -ELOOP;
        for (uint32_t i = 0; i < c->count; i++) {
                const struct hand_call one = {
                        .device = device,
                        .count = 1,
                        .clients = {c->clients[i]},
                        .channels = {c->channels[i]},
                };
                const uint32_t status = b->change(b->userdata, &one, b->disable);
                struct entry *e = &b->entries[device][i];

                if (status && !is_gone(status))
                        return -EIO;
                if (status) /* the hand's disabling does not count for it, unless it has gone */
                        (void)atomic_compare_exchange_strong(&b->page->names[e->at].off, &e->word,
                                                             hand_off_with(e->word, HAND_RUNS));
        }
        return 0;
}

static int flush(struct batch *b, unsigned device)
{
        struct hand_call *c = &b->calls[device];
        uint32_t status;
        int r = 0;

        if (c->count == 0)
                return 0;
        c->device = device;
        status = b->change(b->userdata, c, b->disable);
        if (is_gone(status))
                r = one_by_one(b, device);
        else if (status)
                r = -EIO;
        c->count = 0;
        return r;
}

/* Adds an entry to the call for its GPU, if its channel is to change. */
static int add(struct batch *b, uint32_t at)
{
        const enum hand_off from = b->disable ? HAND_RUNS : HAND_OFF,
                            to = b->disable ? HAND_OFF : HAND_RUNS;
        struct hand_name *n = &b->page->names[at];
        /* First `off`: then its change fails if the entry has another name meanwhile. */
        uint32_t off = atomic_load(&n->off);
        const uint64_t name = atomic_load(&n->name);
        const uint32_t device = atomic_load(&n->device), client = (uint32_t)(name >> 32);
        struct hand_call *c;

        if (!name || device >= HAND_GPUS || !is_proved(b->proved, client) ||
            (off & HAND_OFF_MASK) != from ||
            !atomic_compare_exchange_strong(&n->off, &off, hand_off_with(off, to)))
                return 0;
        c = &b->calls[device];
        b->entries[device][c->count] = (struct entry){at, hand_off_with(off, to)};
        c->clients[c->count] = client;
        c->channels[c->count++] = (uint32_t)name;
        return c->count == RM_DISABLE_CHANNELS_MAX ? flush(b, device) : 0;
}

static int change_all(struct batch *b)
{
        const uint32_t used = entries_used(b->page);
        int r = 0;

        for (uint32_t i = 0; i < used && r == 0; i++)
                r = add(b, i);
        for (unsigned device = 0; device < HAND_GPUS && r == 0; device++)
                r = flush(b, device);
        return r;
}

static int order(struct hand_page *p, const struct hand_clients *proved, bool disable,
                 hand_switch_fn change, void *userdata)
{
        struct batch b = {.page = p,
                          .proved = proved,
                          .change = change,
                          .userdata = userdata,
                          .disable = disable};
        int r;

        atomic_store(&p->holds, disable);
        atomic_store(&p->busy, 1);
        r = change_all(&b);
        atomic_store(&p->busy, 0);
        return r;
}

int hand_names_off(struct hand_page *p, const struct hand_clients *proved, hand_switch_fn change,
                   void *userdata)
{
        return order(p, proved, true, change, userdata);
}

int hand_names_on(struct hand_page *p, const struct hand_clients *proved, hand_switch_fn change,
                  void *userdata)
{
        return order(p, proved, false, change, userdata);
}

unsigned hand_names_clients(const struct hand_page *p, uint32_t ret[static HAND_CLIENTS])
{
        unsigned n = 0;

        for (uint32_t i = 0; i < entries_used(p); i++) {
                const uint32_t client = (uint32_t)(atomic_load(&p->names[i].name) >> 32);
                unsigned k = 0;

                while (client && k < n && ret[k] != client)
                        k++;
                if (!client || k < n)
                        continue;
                if (n == HAND_CLIENTS)
                        return n + 1;
                ret[n++] = client;
        }
        return n;
}
