/* trace_model.c: owns the way from records of states to times in which a program did one thing.
 * Must never trust a record: a daemon that crashed may have written it. */
#include "client/trace/trace_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/text.h"
#include "wire/wire.h"

/* A program on a GPU. */
struct cell {
        bool here;
        uint16_t row;     /* its last connection */
        size_t open;      /* the event that goes on, plus one; 0: none */
        uint64_t free_ns; /* another event may begin only from this time on */
        uint64_t memory;  /* bytes on the GPU */
        size_t measured;  /* the event with these bytes, plus one; 0: there is none */
};

/* An element of the list sorted by time: a record, or the end of a row. */
struct item {
        uint64_t time_ns;
        size_t index; /* index of the record; rows are numbered after all records */
};

struct reader {
        const struct trace_input *in;
        struct trace *out;
        uint16_t *track; /* the track of each row */
        struct cell (*cells)[TRACE_GPUS_MAX];
        uint64_t first_ns;
};

static const char *const words[] = {
        [TRACE_WAITS] = "waits",
        [TRACE_WAITS_UNEVICTABLE] = "waits for room",
        [TRACE_RESTORES] = "restores",
        [TRACE_RUNS] = "runs",
        [TRACE_GROWS] = "needs room",
        [TRACE_UNUSED] = "runs, idle",
        [TRACE_PAUSED] = "paused",
        [TRACE_GIVES_WAY] = "gives way",
        [TRACE_EVICTS] = "evicts",
        [TRACE_COMES] = "comes",
        [TRACE_LEAVES] = "leaves",
        [TRACE_MOVES] = "moves memory",
        [TRACE_MEMORY] = "memory on the GPU",
        [TRACE_REFUSED] = "is refused",
        [TRACE_STARTS] = "starts",
        [TRACE_SETTINGS] = "has new settings",
        [TRACE_ORDERED] = "is ordered",
};

const char *trace_what_text(enum trace_what what)
{
        return words[what];
}

const char *trace_refusal_text(uint8_t code)
{
        switch (code) {
        case WIRE_REFUSED_COMMIT:
                return "out of memory";
        case WIRE_REFUSED_UNEVICTABLE:
                return "no room for memory that cannot be moved";
        case WIRE_REFUSED_EXPORT:
                return "no room for shared memory";
        default:
                return "a request";
        }
}

const char *trace_order_text(uint8_t order)
{
        static const char *const texts[] = {
                [HISTORY_PAUSE] = "pause", [HISTORY_RESUME] = "resume", [HISTORY_EVICT] = "evict",
                [HISTORY_SET] = "set",     [HISTORY_RELOAD] = "reload", [HISTORY_STOP] = "stop",
        };

        return order < ARRAY_SIZE(texts) && texts[order] ? texts[order] : "an order";
}

void trace_label(const struct trace_input *in, uint16_t track, char ret[static TRACE_LABEL_MAX])
{
        const struct history_program *p = &in->programs[track];
        char name[sizeof(p->name) + 1] = "";
        size_t n;

        /* The daemon checks names, but a daemon that crashed may have written anything. */
        memcpy(name, p->name, sizeof(p->name));
        n = strlen(text_copy(ret, TRACE_LABEL_MAX, name));
        if (!n)
                n = (size_t)snprintf(ret, TRACE_LABEL_MAX, "other user");
        if (p->pid)
                (void)snprintf(ret + n, TRACE_LABEL_MAX - n, " (%d)", (int)p->pid);
}

/* ---- events ---- */

/* A record of a state makes at most six events: the span before it, COMES, its own span, MEMORY,
 * and later MEMORY and LEAVES. Other records make fewer. */
#define EVENTS_PER_RECORD 6u

static struct trace_event *add(struct reader *d, enum trace_what what, uint16_t track, uint8_t gpu,
                               uint64_t time_ns)
{
        struct trace_event *e = &d->out->events[d->out->n++];

        *e = (struct trace_event){
                .what = what, .track = track, .gpu = gpu, .begin_ns = time_ns, .end_ns = time_ns};
        return e;
}

static struct trace_event *open_event(struct reader *d, const struct cell *cell)
{
        return cell->open ? &d->out->events[cell->open - 1] : NULL;
}

static void close_span(struct reader *d, struct cell *cell, uint64_t time_ns)
{
        if (cell->open) {
                open_event(d, cell)->end_ns = time_ns;
                cell->free_ns = time_ns;
        }
        cell->open = 0;
}

static void set_memory(struct reader *d, struct cell *cell, uint16_t track, uint8_t gpu,
                       uint64_t bytes, uint64_t time_ns)
{
        if (cell->memory == bytes)
                return;
        if (cell->measured)
                d->out->events[cell->measured - 1].end_ns = time_ns;
        add(d, TRACE_MEMORY, track, gpu, time_ns)->value = bytes;
        cell->measured = d->out->n;
        cell->memory = bytes;
}

/* Returns what a program in this state does; TRACE_SPANS: nothing. */
static enum trace_what what_of(uint8_t state, uint8_t marks)
{
        const uint8_t needs_room = HISTORY_GROWS | HISTORY_UNEVICTABLE;
        const bool stands = marks & HISTORY_PAUSED && marks & HISTORY_FROZEN;

        switch (state) {
        case HISTORY_WAITING:
                return marks & HISTORY_UNEVICTABLE ? TRACE_WAITS_UNEVICTABLE : TRACE_WAITS;
        case HISTORY_RESTORING:
                return TRACE_RESTORES;
        case HISTORY_RUNNING:
                return stands                   ? TRACE_PAUSED
                       : marks & needs_room     ? TRACE_GROWS
                       : marks & HISTORY_UNUSED ? TRACE_UNUSED
                                                : TRACE_RUNS;
        case HISTORY_DRAINING:
                return TRACE_GIVES_WAY;
        case HISTORY_EVICTING:
                return TRACE_EVICTS;
        case HISTORY_IDLE:
                return stands ? TRACE_PAUSED : TRACE_SPANS;
        default:
                return TRACE_SPANS;
        }
}

static void enter_state(struct reader *d, struct cell *cell, uint16_t track, uint8_t gpu,
                        uint8_t state, uint8_t marks, uint64_t time_ns)
{
        const enum trace_what what = what_of(state, marks);
        struct trace_event *e = open_event(d, cell);

        if (!e || e->what != what) {
                close_span(d, cell, time_ns);
                if (what == TRACE_SPANS)
                        return;
                e = add(d, what, track, gpu, time_ns);
                cell->open = d->out->n;
        }
        e->marks |= marks;
}

static void leave(struct reader *d, struct cell *cell, uint16_t track, uint8_t gpu,
                  uint64_t time_ns)
{
        close_span(d, cell, time_ns);
        set_memory(d, cell, track, gpu, 0, time_ns);
        add(d, TRACE_LEAVES, track, gpu, time_ns);
        cell->here = false;
}

/* ---- records ---- */

static bool lacks_room(enum trace_what what)
{
        return what == TRACE_WAITS || what == TRACE_WAITS_UNEVICTABLE || what == TRACE_GROWS;
}

static void take_state(struct reader *d, const struct history_record *r, struct cell *cell,
                       uint16_t track)
{
        struct trace_event *e;

        if (r->state == HISTORY_ABSENT) {
                if (cell->here && cell->row == r->program)
                        leave(d, cell, track, r->gpu, r->time_ns);
                return;
        }
        if (!cell->here && r->before == HISTORY_ABSENT)
                (void)add(d, TRACE_COMES, track, r->gpu, r->time_ns);
        else if (!cell->here) /* older records are overwritten */
                enter_state(d, cell, track, r->gpu, r->before, r->before_marks,
                            MAX(d->first_ns, cell->free_ns));
        cell->here = true;
        cell->row = r->program;
        enter_state(d, cell, track, r->gpu, r->state, r->marks, r->time_ns);
        e = open_event(d, cell);
        if (e && lacks_room(e->what))
                e->lacks = MAX(e->lacks, r->more);
        set_memory(d, cell, track, r->gpu, r->value, r->time_ns);
}

static void take_moved(struct reader *d, const struct history_record *r, struct cell *cell,
                       uint16_t track)
{
        struct trace_event *e = open_event(d, cell);

        if (!e)
                e = add(d, TRACE_MOVES, track, r->gpu, r->time_ns);
        if (r->kind == HISTORY_OUT)
                e->out += r->value;
        else
                e->in += r->value;
        set_memory(d, cell, track, r->gpu, r->more, r->time_ns);
}

/* A daemon that begins knows nothing of the programs of the one before: they come again. */
static void take_start(struct reader *d, uint64_t time_ns)
{
        for (size_t i = 0; i < d->in->n_programs; i++)
                for (unsigned g = 0; g < TRACE_GPUS_MAX; g++) {
                        struct cell *cell = &d->cells[i][g];

                        close_span(d, cell, time_ns);
                        if (cell->here)
                                set_memory(d, cell, (uint16_t)i, (uint8_t)g, 0, time_ns);
                        cell->here = false;
                }
}

static void take_order(struct reader *d, const struct history_record *r, uint16_t track)
{
        struct trace_event *e = add(d, TRACE_ORDERED, track, r->gpu, r->time_ns);

        e->detail = r->state;
        e->value = r->value;
}

static void take_daemon(struct reader *d, const struct history_record *r)
{
        struct trace_event *e;

        if (r->kind == HISTORY_ORDER && r->gpu == 0)
                take_order(d, r, TRACE_NO_TRACK);
        if (r->kind != HISTORY_START && r->kind != HISTORY_SETTINGS)
                return;
        if (r->kind == HISTORY_START)
                take_start(d, r->time_ns);
        e = add(d, r->kind == HISTORY_START ? TRACE_STARTS : TRACE_SETTINGS, TRACE_NO_TRACK, 0,
                r->time_ns);
        e->detail = r->state;
        e->value = r->value;
}

static void take_record(struct reader *d, const struct history_record *r)
{
        const struct history_program *p;
        struct cell *cell;
        uint16_t track;

        if (r->program == HISTORY_NO_PROGRAM) {
                take_daemon(d, r);
                return;
        }
        if (r->program >= d->in->n_programs || r->gpu >= TRACE_GPUS_MAX)
                return;
        p = &d->in->programs[r->program];
        /* The row may have another program by now. */
        if (r->time_ns < p->began_ns || (p->ended_ns && r->time_ns > p->ended_ns))
                return;
        track = d->track[r->program];
        cell = &d->cells[track][r->gpu];
        if (r->kind == HISTORY_STATE)
                take_state(d, r, cell, track);
        else if (r->kind == HISTORY_OUT || r->kind == HISTORY_IN)
                take_moved(d, r, cell, track);
        else if (r->kind == HISTORY_MEMORY)
                set_memory(d, cell, track, r->gpu, r->value, r->time_ns);
        else if (r->kind == HISTORY_REFUSED)
                add(d, TRACE_REFUSED, track, r->gpu, r->time_ns)->detail = r->state;
        else if (r->kind == HISTORY_ORDER)
                take_order(d, r, track);
}

static void take_end_of_row(struct reader *d, size_t row)
{
        const uint16_t track = d->track[row];

        for (unsigned g = 0; g < TRACE_GPUS_MAX; g++) {
                struct cell *cell = &d->cells[track][g];

                if (cell->here && cell->row == row)
                        leave(d, cell, track, (uint8_t)g, d->in->programs[row].ended_ns);
        }
}

/* ---- the order ---- */

static int by_time(const void *a, const void *b)
{
        const struct item *x = a, *y = b;

        if (x->time_ns != y->time_ns)
                return x->time_ns < y->time_ns ? -1 : 1;
        return x->index < y->index ? -1 : x->index > y->index;
}

/* Returns the items in the order of time; the caller frees them. NULL: no memory. */
static struct item *items_of(const struct trace_input *in, size_t *ret_n)
{
        struct item *items = calloc(in->n_records + in->n_programs + 1, sizeof(*items));
        size_t n = 0;

        if (!items)
                return NULL;
        for (size_t i = 0; i < in->n_records; i++)
                if (in->records[i].time_ns <= in->now_ns)
                        items[n++] = (struct item){in->records[i].time_ns, i};
        for (size_t i = 0; i < in->n_programs; i++)
                if (in->programs[i].ended_ns && in->programs[i].ended_ns <= in->now_ns)
                        items[n++] = (struct item){in->programs[i].ended_ns, in->n_records + i};
        qsort(items, n, sizeof(*items), by_time);
        *ret_n = n;
        return items;
}

/* A process that has come back has several rows, and one track. */
static void find_tracks(const struct trace_input *in, uint16_t *tracks)
{
        for (size_t i = 0; i < in->n_programs; i++) {
                const struct history_program *p = &in->programs[i];

                tracks[i] = (uint16_t)i;
                for (size_t k = 0; k < i && p->pid; k++)
                        if (in->programs[k].pid == p->pid &&
                            strncmp(in->programs[k].name, p->name, sizeof(p->name)) == 0) {
                                tracks[i] = (uint16_t)k;
                                break;
                        }
        }
}

static int by_begin(const void *a, const void *b)
{
        const struct trace_event *x = a, *y = b;

        if (x->begin_ns != y->begin_ns)
                return x->begin_ns < y->begin_ns ? -1 : 1;
        return x->made_way < y->made_way ? -1 : x->made_way > y->made_way; /* as they were added */
}

/* Ends the events that go on, leaves out those that are too old, and sorts the rest. */
static void finish(struct reader *d)
{
        struct trace *t = d->out;
        size_t n = 0;

        for (size_t i = 0; i < d->in->n_programs; i++)
                for (unsigned g = 0; g < TRACE_GPUS_MAX; g++) {
                        struct cell *cell = &d->cells[i][g];

                        if (cell->open)
                                open_event(d, cell)->going_on = true;
                        if (cell->measured)
                                t->events[cell->measured - 1].end_ns = d->in->now_ns;
                        close_span(d, cell, d->in->now_ns);
                }
        for (size_t i = 0; i < t->n; i++) {
                struct trace_event e = t->events[i];

                if (e.end_ns < d->in->from_ns)
                        continue;
                e.begin_ns = MAX(e.begin_ns, d->in->from_ns);
                e.made_way = n;
                t->events[n++] = e;
        }
        t->n = n;
        qsort(t->events, n, sizeof(*t->events), by_begin);
}

/* ---- who made way for whom ---- */

static bool has_turn(enum trace_what what)
{
        return what == TRACE_RUNS || what == TRACE_GROWS || what == TRACE_UNUSED;
}

static bool is_waiting(enum trace_what what)
{
        return what == TRACE_WAITS || what == TRACE_RESTORES;
}

/* Finds, for each turn that a program waited for, who last gave way or evicted during the wait. */
static void find_makers_of_way(struct trace *t, struct cell (*cells)[TRACE_GPUS_MAX])
{
        size_t gave[TRACE_GPUS_MAX] = {0}; /* the last such event on each GPU, plus one */

        for (size_t i = 0; i < t->n; i++) {
                struct trace_event *e = &t->events[i];
                struct cell *cell;
                const struct trace_event *g;

                e->made_way = 0;
                if (e->what >= TRACE_SPANS)
                        continue;
                /* open: the first event of the wait that ends with this one, plus one */
                cell = &cells[e->track][e->gpu];
                g = gave[e->gpu] ? &t->events[gave[e->gpu] - 1] : NULL;
                if (has_turn(e->what) && cell->open && g && g->track != e->track &&
                    g->end_ns >= t->events[cell->open - 1].begin_ns)
                        e->made_way = gave[e->gpu];
                if (e->what == TRACE_GIVES_WAY ||
                    (e->what == TRACE_EVICTS &&
                     !(g && g->track == e->track && g->end_ns == e->begin_ns)))
                        gave[e->gpu] = i + 1;
                if (!is_waiting(e->what))
                        cell->open = 0;
                else if (!cell->open)
                        cell->open = i + 1;
        }
}

int trace_read(const struct trace_input *in, struct trace *ret)
{
        const size_t rows = in->n_programs + 1;
        _cleanup_free_ uint16_t *tracks = calloc(rows, sizeof(*tracks));
        _cleanup_free_ void *cells = calloc(rows, TRACE_GPUS_MAX * sizeof(struct cell));
        size_t n = 0;
        _cleanup_free_ struct item *items = items_of(in, &n);
        struct reader d = {.in = in, .out = ret, .track = tracks, .cells = cells};

        ret->n = 0;
        ret->events = calloc(in->n_records * EVENTS_PER_RECORD + 1, sizeof(*ret->events));
        if (!tracks || !cells || !items || !ret->events) {
                free(ret->events);
                ret->events = NULL;
                return -ENOMEM;
        }
        find_tracks(in, tracks);
        d.first_ns = n ? items[0].time_ns : 0;
        for (size_t i = 0; i < n; i++) {
                if (items[i].index < in->n_records)
                        take_record(&d, &in->records[items[i].index]);
                else
                        take_end_of_row(&d, items[i].index - in->n_records);
        }
        finish(&d);
        find_makers_of_way(ret, cells);
        return 0;
}
