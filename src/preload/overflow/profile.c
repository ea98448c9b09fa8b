/* profile.c: owns the trials, which measure how much time each buffer saves on the card, and the
 * list of buffers that was read from a profile. Must never keep a program from going on: buffers
 * that cannot be tried are left out.
 * Why: docs/decisions.md, "A profile finds the busy buffers by trying". */
#include "preload/overflow/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/process/mode.h"
#include "preload/process/nap.h"
#include "preload/overflow/overflow.h"
#include "preload/overflow/profile_file.h"
#include "preload/stream/quiesce.h"
#include "preload/extra/work_steps.h"
#include "preload/overflow/trial.h"
#include "preload/state/request.h"

#define SAMPLE_NS    (20 * NSEC_PER_MSEC) /* least time of a sample, which may be several steps */
#define SAMPLE_LEAST 16u                  /* least number of submissions in a sample */
#define STEPS_MAX    1000u
#define STEP_MOST_NS (10 * NSEC_PER_SEC) /* work that repeats less often is no step */
#define PATIENCE_NS  (20 * NSEC_PER_SEC) /* how long moves and work in flight may take */
#define FAILURES_MAX 4u                  /* failures in a row that end the trials */
#define NAP_NS       (20 * NSEC_PER_USEC)

enum state { OFF, LEARNS, TRIES, ENDED };

/* A buffer that is tried. */
struct tried {
        struct profile_buffer buffer;
        uint64_t id;    /* id of the block */
        uint64_t there; /* most bytes of the buffer that were on the card */
};

/* How many buffers of a size have been allocated. */
struct size {
        unsigned gpu;
        uint64_t bytes, count;
};

static struct {
        enum state state;
        const char *to, *from;
        struct profile_list known; /* buffers that the file `from` lists */
        bool known_said;
        struct size *sizes;
        size_t size_count;
        uint64_t peak; /* largest sum of allocated bytes so far */

        struct steps steps;
        uint64_t step_ns; /* rough time of a step with no tried buffer on the card; 0: not known */
        struct trial trial;
        struct tried tried[TRIAL_BUFFERS_MAX];
        unsigned count;
        int turn;     /* the buffer whose turn it is, or TRIAL_GROUND */
        bool placed;  /* all buffers lie as that turn needs */
        bool timed;   /* the sample has begun, after a step to warm up */
        bool busy;    /* a thread is working on the trials */
        bool written; /* the file has contents */
        uint64_t steps_wanted, steps_passed, began_ns, lease;
        unsigned failures;
} profile; /* begins as zeros, so that it takes no memory in programs that have no profile */

static int to_fd = -EBADF; /* the file profile.to, once this process writes it */

/* ---- the file ---- */

static void read_file(const char *path)
{
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
        _cleanup_free_ char *text = malloc(PROFILE_TEXT_MAX + 1);
        struct profile_bad bad = {0};
        ssize_t more = 1;
        size_t n = 0;
        int r = 0;

        if (fd < 0 || !text) {
                log_warning("cannot read the profile %s: %s", path, strerror(errno));
                return;
        }
        for (; more > 0 && n <= PROFILE_TEXT_MAX; n += (size_t)MAX(more, 0))
                more = read(fd, text + n, PROFILE_TEXT_MAX + 1 - n);
        if (more < 0)
                r = -errno;
        else if (n > PROFILE_TEXT_MAX)
                r = -EFBIG;
        else
                r = profile_parse(text, n, &profile.known, &bad);
        if (r == -EINVAL)
                log_warning("%s is no profile and is ignored: priority and size choose the buffers "
                            "that leave the card",
                            path);
        else if (r == -EPROTONOSUPPORT)
                log_warning("%s is a profile of another version and is ignored: priority and size "
                            "choose the buffers that leave the card",
                            path);
        else if (r < 0)
                log_warning("cannot read the profile %s: %s", path, strerror(-r));
        if (bad.lines > 0)
                log_warning("%s, line %u: '%s' is no buffer of a profile and counts for nothing "
                            "(such lines: %u)",
                            path, bad.first, bad.text, bad.lines);
}

/* If a program has several processes, the first process that tries buffers writes the file. */
static int claim_file(void)
{
        if (to_fd >= 0)
                return 0;
        to_fd = open(profile.to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        if (to_fd < 0 || flock(to_fd, LOCK_EX | LOCK_NB) < 0) {
                int r = -errno;

                log_warning("cannot write the profile %s: %s", profile.to,
                            r == -EWOULDBLOCK ? "another process does" : strerror(-r));
                if (to_fd >= 0)
                        (void)close(to_fd);
                to_fd = -EBADF;
                return r;
        }
        return 0;
}

static void write_file(struct profile_list *list)
{
        _cleanup_free_ char *text =
                profile_format(program_invocation_short_name, profile.step_ns, list);
        size_t n = text ? strlen(text) : 0;

        /* Write all of the file at once, so that a reader gets the old file or the new one. */
        if (!text || pwrite(to_fd, text, n, 0) != (ssize_t)n || ftruncate(to_fd, (off_t)n) < 0)
                log_warning("cannot write the profile %s: %s", profile.to, strerror(errno));
        else
                profile.written = true;
}

void profile_setup(void)
{
        const char *to = setting_text(SETTING_PROFILE), *from = setting_text(SETTING_PROFILE_FILE);

        if (!to && !from)
                return;
        if (mode_memory() != MEMORY_OVERFLOW) {
                log_warning("SUBLET_PROFILE and SUBLET_PROFILE_FILE need SUBLET_MEMORY=overflow");
                return;
        }
        profile.from = from;
        if (from)
                read_file(from);
        profile.to = to;
        if (!to)
                return;
        profile.state = LEARNS;
        gate_own(GATE_PROFILE, profile_submission);
        gate_shut(GATE_PROFILE);
}

void profile_forget(void)
{
        if (to_fd >= 0)
                (void)close(to_fd);
        to_fd = -EBADF;
        profile.state = OFF;
}

void profile_exits(void)
{
        /* No file is left behind if no result was found. */
        if (to_fd >= 0 && !profile.written && lseek(to_fd, 0, SEEK_END) == 0)
                (void)unlink(profile.to);
        if (profile.peak == 0 || (profile.state != LEARNS && profile.state != TRIES))
                return;
        if (profile.written)
                log_warning("the program ended before all samples were taken: %s rests on fewer",
                            profile.to);
        else if (profile.state == TRIES)
                log_warning("no profile: the program ended before all of its buffers were tried");
        else
                log_warning("no profile: the program ended before it was seen to repeat itself");
}

/* ---- buffers; core_lock held ---- */

static uint64_t count_size(unsigned gpu, uint64_t bytes)
{
        struct size *s;

        for (s = profile.sizes; s < profile.sizes + profile.size_count; s++)
                if (s->gpu == gpu && s->bytes == bytes)
                        return ++s->count;
        s = realloc(profile.sizes, (profile.size_count + 1) * sizeof(*s));
        if (!s)
                return 0; /* the buffer is in no profile */
        profile.sizes = s;
        s[profile.size_count++] = (struct size){gpu, bytes, 1};
        return 1;
}

void profile_allocated(struct gpu *g, struct block *b)
{
        uint64_t sum = 0;

        if (!profile.from && !profile.to)
                return;
        b->nth = count_size(g->index, b->requested);
        for (size_t i = 0; i < profile.known.count; i++) {
                const struct profile_buffer *k = &profile.known.buffers[i];

                if (k->gpu == g->index && k->bytes == b->requested && k->nth == b->nth)
                        b->use = profile_use(k);
        }
        for (unsigned i = 0; i < core.gpu_count; i++)
                sum += core.gpus[i].heap.allocated + core.gpus[i].heap.mapped;
        if (sum <= profile.peak)
                return;
        /* The program is still setting up: work that repeats now is not a step. */
        profile.peak = sum;
        if (profile.state == LEARNS)
                steps_reset(&profile.steps);
}

void profile_placing(void)
{
        unsigned known = 0, all = 0;

        if (!profile.from || profile.known_said || profile.known.count == 0)
                return;
        profile.known_said = true;
        for (unsigned i = 0; i < core.gpu_count; i++)
                for (size_t k = 0; core.gpus[i].overflow && k < core.gpus[i].heap.count; k++) {
                        const struct block *b = core.gpus[i].heap.blocks[k];

                        all += overflow_places(b);
                        known += overflow_places(b) && b->use != 0;
                }
        if (known < all)
                log_warning("the profile %s knows %u of this program's %u buffers; the others go "
                            "by size",
                            profile.from, known, all);
}

enum profile_place profile_place(const struct block *b)
{
        if (profile.state != TRIES)
                return PROFILE_FREE;
        for (unsigned i = 0; i < profile.count; i++)
                if (profile.tried[i].id == b->id && profile.tried[i].buffer.bytes == b->requested &&
                    profile.tried[i].buffer.nth == b->nth)
                        return (int)i == profile.turn ? PROFILE_CARD : PROFILE_HOST;
        return PROFILE_FREE;
}

uint64_t profile_room(void)
{
        return profile.state == TRIES ? profile.tried[0].buffer.bytes : 0;
}

static struct block *block_of(const struct tried *t)
{
        const struct heap *h = &core.gpus[t->buffer.gpu].heap;

        for (size_t i = 0; i < h->count; i++)
                if (h->blocks[i]->id == t->id && overflow_places(h->blocks[i]))
                        return h->blocks[i];
        return NULL;
}

static int by_size(const void *left, const void *right)
{
        const struct tried *a = left, *b = right;

        if (a->buffer.bytes != b->buffer.bytes)
                return a->buffer.bytes > b->buffer.bytes ? -1 : 1;
        return a->id < b->id ? -1 : a->id > b->id;
}

/* Choose the largest buffers for the trials. */
static int choose_tried(void)
{
        struct tried *all;
        size_t n = 0;

        for (unsigned i = 0; i < core.gpu_count; i++)
                n += core.gpus[i].overflow ? core.gpus[i].heap.count : 0;
        all = calloc(n + 1, sizeof(*all));
        if (!all)
                return -ENOMEM;
        n = 0;
        for (unsigned i = 0; i < core.gpu_count; i++)
                for (size_t k = 0; core.gpus[i].overflow && k < core.gpus[i].heap.count; k++) {
                        const struct block *b = core.gpus[i].heap.blocks[k];

                        if (overflow_places(b) && b->nth)
                                all[n++] = (struct tried){
                                        {.gpu = i, .bytes = b->requested, .nth = b->nth}, b->id, 0};
                }
        qsort(all, n, sizeof(*all), by_size);
        profile.count = (unsigned)MIN(n, (size_t)TRIAL_BUFFERS_MAX);
        memcpy(profile.tried, all, profile.count * sizeof(*all));
        free(all);
        return 0;
}

/* Request host memory for all buffers that are tried, or for as many of the largest as possible. */
static int take_host(void) UNLOCKS(core_lock)
{
        for (; profile.count > 0; profile.count /= 2) {
                uint64_t more = 2 * HEAP_EXTENT_MAX;

                for (unsigned i = 0; i < profile.count; i++)
                        more += profile.tried[i].buffer.bytes + HEAP_GRANULARITY;
                for (unsigned i = 0; i < core.gpu_count; i++)
                        more = sub_sat(more, core.gpus[i].heap.mapped);
                if (request_host(more) == 0) {
                        core.host.taking -= more; /* promised now, taken when buffers move */
                        return 0;
                }
        }
        return -ENOMEM;
}

/* ---- the trials; core_lock held ---- */

static void end(void)
{
        profile.state = ENDED;
        gate_open(GATE_PROFILE);
        for (unsigned i = 0; i < core.gpu_count; i++)
                overflow_changed(&core.gpus[i]);
}

static void relearn(void)
{
        profile.state = LEARNS;
        profile.step_ns = 0;
        steps_reset(&profile.steps);
        for (unsigned i = 0; i < core.gpu_count; i++)
                overflow_changed(&core.gpus[i]);
}

/* Wait for the work in flight. False: the work does not end; it may wait for work that is submitted
 * later. */
static bool settle(void) UNLOCKS(core_lock)
{
        uint64_t until = clock_now_ns() + PATIENCE_NS;
        struct quiesce_wait w;

        quiesce_begin(&w, false);
        while (quiesce_poll(&w) == QUIESCE_BUSY) {
                if (clock_now_ns() > until || core_passive())
                        return false;
                lock_release(&core_lock);
                (void)nap(NAP_NS);
                lock_acquire(&core_lock);
        }
        return !quiesce_capturing();
}

/* Put all buffers where they have to lie for this buffer's turn. */
static bool arrange(int turn) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "a transfer of its own memory"};
        uint64_t until = clock_now_ns() + PATIENCE_NS;
        bool good;

        profile.turn = turn;
        if (!settle())
                return false;
        overflow_arrange();
        core.waiters++;
        /* Stop waiting if a capture begins: the drain cannot end before the capture does. */
        while (overflow_is_arranging() && clock_now_ns() < until && !quiesce_capturing() &&
               !core_passive())
                core_wait(&w, 100 * NSEC_PER_MSEC);
        core.waiters--;
        good = overflow_is_arranged();
        if (good && turn >= 0) {
                struct tried *t = &profile.tried[turn];
                const struct block *b = block_of(t);
                uint64_t there = 0;

                for (unsigned i = 0; b && i < b->extent_count; i++)
                        there += b->extents[i].state == EXTENT_RESIDENT ? b->extents[i].bytes : 0;
                t->there = MAX(t->there, there);
                good = there > 0;
        }
        return good;
}

/* Returns what each tried buffer saves. list.buffers is NULL if there is no memory. */
static struct profile_list results(void)
{
        struct profile_list list = {.buffers = calloc(profile.count + 1, sizeof(*list.buffers))};

        for (unsigned i = 0; list.buffers && i < profile.count; i++) {
                struct tried *t = &profile.tried[i];
                uint64_t saved;

                if (!trial_result(&profile.trial, i, &saved, &t->buffer.noise_ns))
                        continue;
                /* If the card had room for only a part of the buffer, assume that the rest would
                 * save time in proportion. */
                if (t->there && t->there < t->buffer.bytes)
                        saved = (uint64_t)((double)saved * (double)t->buffer.bytes /
                                           (double)t->there);
                t->buffer.saved_ns = saved;
                list.buffers[list.count++] = t->buffer;
        }
        profile.step_ns = MAX(trial_ground_ns(&profile.trial), 1u);
        return list;
}

static void finish(void)
{
        struct profile_list list = results();
        unsigned worth = 0;

        for (unsigned i = 0; i < profile.count; i++) {
                struct block *b = block_of(&profile.tried[i]);

                if (b)
                        b->use = profile_use(&profile.tried[i].buffer);
        }
        if (list.buffers && list.count > 0)
                write_file(&list);
        for (size_t i = 0; i < list.count; i++)
                worth += list.buffers[i].saved_ns > 0;
        if (profile.written)
                log_notice(
                        "the profile is in %s: of %zu buffers, %u found to save time on the card",
                        profile.to, list.count, worth);
        else
                log_warning("no profile: none of the program's buffers could be tried");
        free(list.buffers);
        end();
}

/* Arrange the next sample that is possible. */
static void go_on(void) UNLOCKS(core_lock)
{
        profile.timed = false;
        profile.steps_passed = 0;
        for (;;) {
                int turn = trial_next(&profile.trial);

                if (turn == TRIAL_OVER || profile.failures >= FAILURES_MAX) {
                        finish();
                        return;
                }
                profile.placed = arrange(turn);
                if (profile.placed) {
                        profile.failures = 0;
                        return;
                }
                if (!core.running || quiesce_capturing() || core_passive())
                        return; /* try again at a later step */
                profile.failures++;
                trial_skip(&profile.trial);
        }
}

/* Buffers of the same size on the same GPU form a kind. */
static void begin_trial(void)
{
        unsigned kinds[TRIAL_BUFFERS_MAX];

        for (unsigned i = 0; i < profile.count; i++) {
                const struct profile_buffer *b = &profile.tried[i].buffer, *other;

                for (kinds[i] = 0; kinds[i] < i; kinds[i]++) {
                        other = &profile.tried[kinds[i]].buffer;
                        if (other->gpu == b->gpu && other->bytes == b->bytes)
                                break;
                }
        }
        trial_begin(&profile.trial, profile.count, kinds);
}

static void begin_profile(void) UNLOCKS(core_lock)
{
        if (claim_file() < 0 || choose_tried() < 0 || (profile.count > 0 && take_host() < 0)) {
                if (to_fd >= 0)
                        log_warning("no profile: the host has no room for the program's buffers");
                end();
                return;
        }
        if (profile.count == 0) {
                relearn();
                return;
        }
        profile.state = TRIES;
        profile.step_ns = 0;
        profile.steps_wanted = 0;
        profile.failures = 0;
        begin_trial();
        log_info("a step is %llu submissions; %u buffers are tried",
                 (unsigned long long)profile.steps.gap, profile.count);
        go_on();
}

/* Returns how many parts of `each` make up at least `all`. */
static uint64_t parts_of(uint64_t all, uint64_t each)
{
        return (all + each - 1) / each;
}

/* A sample of profile.steps_wanted steps has ended. */
static void sampled(uint64_t ns) UNLOCKS(core_lock)
{
        if (!profile.steps_wanted) {
                profile.step_ns = MAX(ns, 1u);
                profile.steps_wanted = MIN(MAX(parts_of(SAMPLE_NS, profile.step_ns),
                                               parts_of(SAMPLE_LEAST, profile.steps.gap)),
                                           STEPS_MAX);
                profile.timed = false; /* this first time only shows how many steps make a sample */
                profile.steps_passed = 0;
                return;
        }
        trial_sample(&profile.trial, ns / profile.steps_wanted);
        if (trial_round_is_over(&profile.trial) && trial_next(&profile.trial) != TRIAL_OVER) {
                struct profile_list list = results();

                if (list.count > 0)
                        write_file(&list);
                free(list.buffers);
        }
        go_on();
}

static void step_begins(void) UNLOCKS(core_lock)
{
        if (!profile.placed) {
                go_on();
                return;
        }
        if (++profile.steps_passed < (profile.timed ? MAX(profile.steps_wanted, 1u) : 1u))
                return;
        if (!settle()) {
                profile.timed = false; /* a sample that ends later would include more steps */
                if (quiesce_capturing() || core_passive())
                        return;
                log_warning("no profile is made: work of the program ends only after work that it "
                            "submits later, so its steps cannot be timed");
                end();
                return;
        }
        if (profile.timed && profile.lease == core.lease) {
                sampled(clock_now_ns() - profile.began_ns);
                return;
        }
        profile.timed = true; /* begin, or begin again if other programs had the card */
        profile.steps_passed = 0;
        profile.lease = core.lease;
        profile.began_ns = clock_now_ns();
}

static void look(uint64_t work) UNLOCKS(core_lock)
{
        uint64_t begin_before = profile.steps.begin, gap_before = profile.steps.gap;

        if (steps_look(&profile.steps, work)) {
                if (profile.state == TRIES &&
                    profile.steps.gap / gap_before > STEP_MOST_NS / MAX(profile.step_ns, 1u)) {
                        profile.steps.begin = begin_before;
                        profile.steps.gap = gap_before;
                } else {
                        begin_profile();
                        return;
                }
        }
        if (profile.state != TRIES)
                return;
        if (work == profile.steps.begin)
                step_begins();
        else if (steps_lost(&profile.steps))
                relearn();
}

void profile_submission(uint64_t work)
{
        lock_acquire(&core_lock);
        if (!core.running || quiesce_capturing()) {
                profile.timed = false; /* a step that begins now is not timed */
        } else if (!profile.busy && (profile.state == LEARNS || profile.state == TRIES)) {
                profile.busy = true;
                look(work);
                profile.busy = false;
        }
        lock_release(&core_lock);
}
