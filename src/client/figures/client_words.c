/* client_words.c: owns what people read of a client in words: its state, its place in the order,
 * its notes. Must never show what the daemon did not report. */
#include "client/figures/client_words.h"

#include <string.h>

#include "base/macros.h"
#include "client/figures/columns.h"

static const json_t *frozen_of(const json_t *client)
{
        return json_object_get(client, "frozen");
}

bool client_lists(const json_t *object, const char *field, const char *text)
{
        const json_t *item;
        size_t i;

        json_array_foreach (json_object_get(object, field), i, item)
                if (json_is_string(item) && strcmp(json_string_value(item), text) == 0)
                        return true;
        return false;
}

const json_t *clients_find(const json_t *status, int pid)
{
        json_t *gpu, *client, *found = NULL;
        size_t i, k;

        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                json_array_foreach (json_object_get(gpu, "clients"), k, client)
                        if (json_integer_value(json_object_get(client, "pid")) == pid &&
                            (!found || json_is_object(json_object_get(client, "frozen"))))
                                found = client; /* prefer, of two entries, the one with "frozen":
                                                   the other has lost its connection */
        return found;
}

/* True if the program takes part in MPS. */
static bool is_shared(const json_t *client)
{
        return strcmp(figure_string(client, "way"), "shared") == 0;
}

static bool is_frozen_for(const json_t *client, const char *reason)
{
        return client_lists(frozen_of(client), "why", reason);
}

static bool is_frozen(const json_t *client)
{
        return json_number_value(json_object_get(frozen_of(client), "for_s")) > 0;
}

bool client_is_paused(const json_t *client)
{
        return is_frozen(client) && is_frozen_for(client, "paused");
}

bool clients_use(const json_t *status)
{
        const json_t *gpu;
        size_t i;

        json_array_foreach (json_object_get(status, "gpus"), i, gpu)
                if (json_array_size(json_object_get(gpu, "clients")) > 0)
                        return true;
        return json_array_size(json_object_get(status, "jobs")) > 0;
}

const char *client_stopped(const json_t *client, char text[static STOP_TEXT_MAX])
{
        return stop_text(stop_of_name(json_string_value(json_object_get(client, "stopped"))),
                         (pid_t)figure_number(client, "pid"), text);
}

/* ---- the state ---- */

void client_put(const json_t *client, const char *field, enum figure kind,
                char cell[static FIGURE_MAX])
{
        const bool paused = client_is_paused(client);
        const json_t *stranger = json_object_get(client, "stranger");

        if (paused && strcmp(field, "state") == 0)
                (void)strcpy(cell, "paused");
        else if (json_is_string(stranger) && strcmp(field, "name") == 0)
                figure_put(stranger, kind, cell);
        else if (paused && strcmp(field, "since_s") == 0)
                figure_put(json_object_get(frozen_of(client), "for_s"), FIGURE_SECONDS, cell);
        else
                figure_put(json_object_get(client, field), kind, cell);
}

/* The states, in the order of the rows that are in them. The summary counts by `verb`. */
static const struct {
        const char *state, *verb; /* "": as in the row before */
        const char *help;
} states[] = {
        {"running", "run", "it may compute: all of its memory is on the GPU"},
        {"draining", "", "its turn ends: its work in flight is awaited"},
        {"evicting", "", "its memory leaves the GPU"},
        {"restoring", "wait", "its memory comes back for its turn"},
        {"waiting", "", "it has work, and waits for its turn or for memory"},
        {"paused", "paused", "it stands still until sublet resume"},
        {"idle", "idle", "it has no work, and needs no turn"},
};

static size_t rank_of(const json_t *client)
{
        const char *state = client_is_paused(client) ? "paused" : figure_string(client, "state");
        size_t i = 0;

        while (i < ARRAY_SIZE(states) && strcmp(states[i].state, state) != 0)
                i++;
        return i;
}

void clients_summary(json_t *const *clients, size_t n, char ret[static CLIENTS_SUMMARY_MAX])
{
        unsigned counts[ARRAY_SIZE(states)] = {0};
        size_t kind = 0, used = 0;

        *ret = 0;
        for (size_t i = 0; i < n; i++) {
                const size_t rank = rank_of(clients[i]);

                if (rank < ARRAY_SIZE(states))
                        counts[rank]++;
        }
        for (size_t i = 0; i < ARRAY_SIZE(states); i++) {
                kind = *states[i].verb ? i : kind;
                if (kind != i)
                        counts[kind] += counts[i];
        }
        for (size_t i = 0; i < ARRAY_SIZE(states); i++)
                if (*states[i].verb && counts[i])
                        used += (size_t)snprintf(ret + used, CLIENTS_SUMMARY_MAX - used, "%s%u %s",
                                                 used ? ", " : "", counts[i], states[i].verb);
}

void other_put(const json_t *other, char text[static OTHER_MAX])
{
        const bool known = json_is_string(json_object_get(other, "name"));
        char name[FIGURE_MAX], user[FIGURE_MAX], bytes[FIGURE_MAX];

        figure_put(json_object_get(other, "name"), FIGURE_TEXT, name);
        figure_put(json_object_get(other, "user"), FIGURE_TEXT, user);
        figure_put(json_object_get(other, "bytes"), FIGURE_SIZE, bytes);
        (void)snprintf(text, OTHER_MAX, "pid %d, %s%s%s, %s", (int)figure_number(other, "pid"),
                       known ? name : "another user's", known ? " of " : "", known ? user : "",
                       bytes);
}

double client_moved(const json_t *client)
{
        return figure_number(client, "moved_in") + figure_number(client, "moved_out");
}

int clients_compare(const void *a, const void *b)
{
        const json_t *one = *(json_t *const *)a, *two = *(json_t *const *)b;
        const size_t ranks[] = {rank_of(one), rank_of(two)};
        const double since[] = {figure_number(one, "since_s"), figure_number(two, "since_s")};

        if (ranks[0] != ranks[1])
                return ranks[0] < ranks[1] ? -1 : 1;
        if (since[0] != since[1])
                return since[0] > since[1] ? -1 : 1;
        return figure_number(one, "pid") < figure_number(two, "pid") ? -1 : 1;
}

void clients_explain(FILE *out)
{
        for (size_t i = 0; i < ARRAY_SIZE(states); i++)
                (void)fprintf(out, "  %-9s  %s\n", states[i].state, states[i].help);
}

/* ---- the notes ---- */

/* The notes below a client's row. width: the most columns in a line, or 0: all notes in one line.
 * used: columns used in the present line, or 0: nothing printed yet. */
struct notes {
        FILE *out;
        const char *indent;
        int width, used;
};

static void add_note(struct notes *n, const char *text)
{
        const char *separator = n->used ? ", " : n->indent;

        if (n->used && n->width && n->used + (int)strlen(", ,") + columns_of(text) > n->width) {
                (void)fputs(",\n", n->out);
                separator = n->indent;
                n->used = 0;
        }
        (void)fprintf(n->out, "%s%s", separator, text);
        n->used += (int)strlen(separator) + columns_of(text);
}

static void note_flags(struct notes *n, const json_t *client)
{
        const json_t *flags = json_object_get(client, "flags"), *flag;
        char cell[FIGURE_MAX];
        size_t i;

        if (json_is_true(json_object_get(client, "idle")) && !client_is_paused(client))
                add_note(n, "idle");
        json_array_foreach (flags, i, flag) {
                figure_put(flag, FIGURE_TEXT, cell);
                if (strcmp(cell, "idle") != 0)
                        add_note(n, cell);
        }
}

/* Adds notes about freezing. For a paused client the columns STATE and FOR already show most of
 * this. */
static void note_frozen(struct notes *n, const json_t *client)
{
        char cell[FIGURE_MAX], text[2 * FIGURE_MAX];

        if (is_frozen(client) && !client_is_paused(client)) {
                figure_put(json_object_get(frozen_of(client), "for_s"), FIGURE_SECONDS, cell);
                (void)snprintf(text, sizeof(text), "frozen for %s", cell);
                add_note(n, text);
        }
        if (is_frozen(client) && is_frozen_for(client, "away"))
                add_note(n, "without its memory");
        if (json_is_true(json_object_get(client, "paused")) && !client_is_paused(client))
                add_note(n, "told to pause");
}

/* Adds a note about a program that has been off the GPU for a second: shorter times are a part of
 * sharing. */
static void note_preempted(struct notes *n, const json_t *client)
{
        const json_t *p = json_object_get(client, "preempted");
        char cell[FIGURE_MAX], text[2 * FIGURE_MAX];

        if (!json_is_object(p) || figure_number(p, "for_s") < 1)
                return;
        figure_put(json_object_get(p, "for_s"), FIGURE_SECONDS, cell);
        (void)snprintf(text, sizeof(text), "off the GPU for %s, because others go first", cell);
        add_note(n, text);
}

/* Adds a note why a program is drained, not frozen. With MPS every program is drained. */
static void note_not_frozen(struct notes *n, const json_t *client)
{
        const char *why = json_string_value(json_object_get(client, "freeze_off"));
        char cell[FIGURE_MAX], text[2 * FIGURE_MAX];

        if (!why || is_frozen(client) || is_shared(client))
                return;
        figure_text(why, cell);
        (void)snprintf(text, sizeof(text), "not frozen: %s", cell);
        add_note(n, text);
}

/* Adds notes about the memory mode, unless it is the default. */
static void note_memory(struct notes *n, const json_t *client)
{
        const char *mode = json_string_value(json_object_get(client, "memory"));
        double keep = figure_number(client, "keep");
        char cell[FIGURE_MAX], text[2 * FIGURE_MAX];

        if (!mode || strcmp(mode, "swap") == 0)
                return;
        figure_text(mode, cell);
        (void)snprintf(text, sizeof(text), "memory %s", cell);
        add_note(n, text);
        if (keep > 0) {
                figure_size(keep, cell);
                (void)snprintf(text, sizeof(text), "keeps to %s", cell);
                add_note(n, text);
        }
}

static void note_number(struct notes *n, const json_t *client, const char *field, double usual,
                        const char *before, double unit, const char *after)
{
        const json_t *value = json_object_get(client, field);
        char text[2 * FIGURE_MAX];

        if (!json_is_number(value) || json_number_value(value) == usual)
                return;
        (void)snprintf(text, sizeof(text), "%s %g%s", before, json_number_value(value) * unit,
                       after);
        add_note(n, text);
}

/* Adds notes about the program's weight, minimum, maximum and memory cap. */
static void note_share(struct notes *n, const json_t *client)
{
        char cell[FIGURE_MAX], text[2 * FIGURE_MAX];

        note_number(n, client, "weight", 1, "weight", 1, "");
        note_number(n, client, "minimum", 0, "minimum", 100, "%");
        note_number(n, client, "maximum", 0, "maximum", 100, "%");
        if (json_is_integer(json_object_get(client, "memory_cap"))) {
                figure_size(figure_number(client, "memory_cap"), cell);
                (void)snprintf(text, sizeof(text), "memory cap %s", cell);
                add_note(n, text);
        }
}

/* True if this program has not begun its turn yet: its memory comes back. */
static bool is_on_its_way(const json_t *clients, const json_t *pid)
{
        json_t *client;
        size_t i;

        json_array_foreach (clients, i, client)
                if (json_equal(json_object_get(client, "pid"), pid))
                        return strcmp(figure_string(client, "state"), "restoring") == 0;
        return false;
}

void client_notes(const json_t *client, const json_t *beside, unsigned more, const char *indent,
                  int width, FILE *out)
{
        const json_t *waiting_for = json_object_get(client, "waiting_for");
        double spared = figure_number(client, "spared_out") + figure_number(client, "spared_in");
        double moved = client_moved(client);
        char cell[FIGURE_MAX], sum[FIGURE_MAX], text[3 * FIGURE_MAX];
        struct notes n = {.out = out, .indent = indent, .width = width};

        if (client_stopped(client, text))
                add_note(&n, text);
        note_flags(&n, client);
        if (json_is_true(json_object_get(client, "waits_for_foreign"))) {
                add_note(&n, "waits for memory held outside this daemon");
        } else if (json_is_integer(waiting_for)) {
                (void)snprintf(text, sizeof(text), "waits %s pid %" JSON_INTEGER_FORMAT,
                               is_on_its_way(beside, waiting_for) ? "behind" : "for",
                               json_integer_value(waiting_for));
                add_note(&n, text);
        }
        note_frozen(&n, client);
        note_preempted(&n, client);
        if (more & NOTES_FREEZING)
                note_not_frozen(&n, client);
        if (more & NOTES_FIGURES) {
                note_memory(&n, client);
                if (is_shared(client))
                        add_note(&n, "way shared (MPS)");
                note_share(&n, client);
        }
        if (json_is_true(json_object_get(client, "held")))
                add_note(&n, "waits because it has used its maximum");
        if (more & NOTES_FIGURES && spared > 0) {
                figure_size(spared, cell);
                figure_size(spared + moved, sum);
                (void)snprintf(text, sizeof(text), "%s of %s not copied", cell, sum);
                add_note(&n, text);
        }
        if (n.used)
                (void)fputc('\n', out);
}
