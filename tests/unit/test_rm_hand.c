/* test_rm_hand.c: the library and the daemon's hand disable the same channels independently, and
 * each undoes its own: whatever happens between them, a frozen program stays frozen, and a program
 * that neither of them holds runs. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "fakes/preload.h"
#include "hand_bench.h"

#define CLIENT 0xc1d00001u
#define GROUP  0x5c000100u
#define SECRET 0x6a5e0001u

static void nap_ms(unsigned ms)
{
        const struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * NSEC_PER_MSEC};

        (void)nanosleep(&nap, NULL);
}

/* Waits for what another thread does. */
#define SOON(x)                                                \
        do {                                                   \
                for (unsigned ms = 0; !(x) && ms < 3000; ms++) \
                        nap_ms(1);                             \
                assert_true(x);                                \
        } while (0)

static int begin(void **state)
{
        bench_proved = (struct hand_clients){1, {CLIENT}};
        return begin_rm(state);
}

static int end(void **state)
{
        if (bench_page)
                bench_hand_dies();
        (void)rm_channels();
        rm_bench.before = NULL;
        rm_bench.refuses = rm_bench.unrefuses = 0;
        return end_rm(state);
}

/* A program with this many channels, and a hand that may take it off the GPU. */
static void begin_program(unsigned channels)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, channels);
        assert_true(bench_hand_offered());
        rm_hand_ready(true);
}

static struct hand_name *entry_of(uint32_t client, uint32_t channel)
{
        for (uint32_t i = 0; i < MIN(bench_page->top, (uint32_t)HAND_CHANNELS); i++)
                if (bench_page->names[i].name == ((uint64_t)client << 32 | channel))
                        return &bench_page->names[i];
        return NULL;
}

static unsigned names(void)
{
        unsigned n = 0;

        for (uint32_t i = 0; i < HAND_CHANNELS; i++)
                n += bench_page->names[i].name != 0;
        return n;
}

static enum hand_off off_of(uint32_t channel)
{
        const struct hand_name *n = entry_of(CLIENT, channel);

        assert_non_null(n);
        return n->off & HAND_OFF_MASK;
}

static void check_all_run(void)
{
        assert_int_equal(rm_counted(), 0);
        assert_int_equal(rm_standing(), 0);
        assert_int_equal(rm_bench.too_many, 0);
}

/* ---- names ---- */

static void the_page_names_the_channels_of_the_program(void **state)
{
        begin_program(3);
        assert_int_equal(names(), 3);
        assert_int_equal(bench_page->ready, 1);
        for (uint32_t i = 1; i <= 3; i++) {
                assert_non_null(entry_of(CLIENT, GROUP + i));
                assert_int_equal(entry_of(CLIENT, GROUP + i)->device, 0);
        }
        rm_make_for(CHANNELS_MOVER);
        made_group(5, CLIENT, GROUP + 0x100, 1, 2);
        rm_make_for(CHANNELS_PROGRAM);
        assert_int_equal(names(), 3);
        assert_int_equal(freed(5, CLIENT, GROUP + 2), 0);
        assert_int_equal(names(), 2);
        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 9, CHANNEL, 0), 0);
        assert_int_equal(names(), 3);
        assert_int_equal(freed(5, CLIENT, CLIENT), 0);
        assert_int_equal(names(), 0);
}

static void a_name_tells_the_gpu_of_its_channel(void **state)
{
        begin_program(1);
        assert_int_equal(made(5, CLIENT, CLIENT, DEVICE + 1, 0x80, 3), 0);
        assert_int_equal(made(5, CLIENT, DEVICE + 1, SUBDEVICE + 1, 0x2080, 0), 0);
        assert_int_equal(made(5, CLIENT, DEVICE + 1, GROUP + 0x100, 0xa06c, 1), 0);
        assert_int_equal(made(5, CLIENT, GROUP + 0x100, GROUP + 0x101, CHANNEL, 0), 0);
        assert_int_equal(entry_of(CLIENT, GROUP + 1)->device, 0);
        assert_int_equal(entry_of(CLIENT, GROUP + 0x101)->device, 3);
}

static void the_library_rings_when_names_or_readiness_change(void **state)
{
        begin_program(1);
        assert_true(bench_hand_is_rung()); /* the names */
        assert_true(bench_hand_is_rung()); /* ready */
        made_group(5, CLIENT, GROUP + 0x100, 1, 1);
        assert_true(bench_hand_is_rung());
        assert_int_equal(freed(5, CLIENT, GROUP + 0x101), 0);
        assert_true(bench_hand_is_rung());
        rm_hand_ready(true); /* nothing new */
        rm_hand_ready(false);
        assert_true(bench_hand_is_rung());
        assert_int_equal(recv(bench_line, &(char){0}, 1, MSG_DONTWAIT), -1);
        assert_int_equal(bench_page->ready, 0);
}

/* A daemon that has lost the program's connection offers a hand on the next one, while the library
 * may not know yet that the old one has ended. */
static void a_second_hand_waits_for_the_end_of_the_first(void **state)
{
        struct hand_bench first, second;

        begin_program(1);
        assert_int_equal(bench_hand_off(), 0);
        first = bench_hand_is();
        assert_true(bench_hand_offered());
        assert_int_equal(names(), 0);
        bench_hand_forgets(); /* its daemon ends */
        assert_true(bench_hand_offered());
        second = bench_hand_is();
        assert_int_equal(names(), 0);
        bench_hand_be(&first);
        bench_hand_dies();
        assert_int_equal(rm_counted(), 0);
        bench_hand_be(&second);
        assert_int_equal(names(), 1);
        rm_hand_ready(true);
        assert_int_equal(bench_page->ready, 1);
}

/* Offers these descriptors. Both must be closed, and no hand taken. */
static void offer_is_refused(int page, int line)
{
        rm_offer_hand(page, line);
        assert_true(page < 0 || fcntl(page, F_GETFD) < 0);
        assert_true(line < 0 || fcntl(line, F_GETFD) < 0);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_thaw(), 0);
}

static int page_of(off_t bytes)
{
        const int fd = memfd_create("page", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, bytes), 0);
        return fd;
}

static void an_offer_with_other_descriptors_is_refused(void **state)
{
        int ends[2];

        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 1);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        offer_is_refused(-EBADF, -EBADF);
        offer_is_refused(page_of(sizeof(struct hand_page)), -EBADF);
        offer_is_refused(-EBADF, ends[0]);
        offer_is_refused(page_of(sizeof(struct hand_page) - 1), ends[1]);
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        offer_is_refused(ends[0], ends[1]); /* no page, and no line */
        assert_true(bench_hand_offered());
}

static void without_a_thread_there_is_no_hand(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 1);
        thread_error = EAGAIN;
        assert_false(bench_hand_offered());
        thread_error = 0;
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_thaw(), 0);
}

/* ---- frees ---- */

static _Atomic bool is_freed;

static void *frees_a_channel(void *object)
{
        assert_int_equal(freed(5, CLIENT, (uint32_t)(uintptr_t)object), 0);
        is_freed = true;
        return NULL;
}

static void rm_frees_a_channel_when_the_hand_names_it_no_more(void **state)
{
        static const uint32_t objects[] = {GROUP + 2, GROUP, DEVICE, CLIENT};

        for (size_t i = 0; i < ARRAY_SIZE(objects); i++) {
                pthread_t thread;

                if (i == 0)
                        begin_program(3);
                else if (i == 1)
                        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 2, CHANNEL, 0), 0);
                else if (i == 2)
                        made_group(5, CLIENT, GROUP, 1, 3);
                else {
                        assert_int_equal(made(5, CLIENT, CLIENT, DEVICE, 0x80, 0), 0);
                        assert_int_equal(made(5, CLIENT, DEVICE, SUBDEVICE, 0x2080, 0), 0);
                        made_group(5, CLIENT, GROUP, 1, 3);
                }
                is_freed = false;
                bench_page->busy = 1;
                assert_int_equal(pthread_create(&thread, NULL, frees_a_channel,
                                                (void *)(uintptr_t)objects[i]),
                                 0);
                SOON(!entry_of(CLIENT, GROUP + 2));
                nap_ms(5);
                assert_true(rm_has(CLIENT, GROUP + 2));
                assert_false(is_freed);
                assert_int_equal(names(), i == 0 ? 2 : 0);
                bench_page->busy = 0;
                assert_int_equal(pthread_join(thread, NULL), 0);
                assert_false(rm_has(CLIENT, GROUP + 2));
        }
}

/* It is stuck in the kernel driver; the program must not be stuck with it. */
static void a_free_does_not_wait_for_ever(void **state)
{
        begin_program(2);
        bench_page->busy = 1;
        assert_int_equal(freed(5, CLIENT, GROUP + 1), 0);
        assert_false(rm_has(CLIENT, GROUP + 1));
        assert_int_equal(rm_freeze(), -ETIMEDOUT); /* it may still act on a new channel */
        bench_hand_dies();
        assert_int_equal(rm_freeze(), 0);
}

static void a_free_does_not_wait_for_a_hand_that_was_killed(void **state)
{
        uint64_t began_ns;

        begin_program(2);
        bench_page->busy = 1;
        began_ns = clock_now_ns();
        (void)shutdown(bench_line, SHUT_RDWR);
        assert_int_equal(freed(5, CLIENT, GROUP + 1), 0);
        assert_true(clock_now_ns() - began_ns < NSEC_PER_SEC / 2);
}

static void a_channel_that_rm_does_not_free_keeps_its_name(void **state)
{
        begin_program(3);
        for (unsigned held = 0; held < 2; held++) {
                if (held)
                        assert_int_equal(bench_hand_off(), 0);
                rm_bench.free_status = 0x40;
                assert_int_equal(freed(5, CLIENT, GROUP + 2), 0x40);
                assert_int_equal(freed(5, CLIENT, GROUP), 0x40);
                rm_bench.free_status = 0;
                rm_bench.closed = 5;
                assert_int_equal(freed(5, CLIENT, GROUP + 3), -EBADF);
                assert_int_equal(errno, EBADF);
                rm_bench.closed = -1;
                assert_int_equal(names(), 3);
                for (uint32_t i = 1; i <= 3; i++) {
                        assert_int_equal(rm_count(CLIENT, GROUP + i), held);
                        assert_int_equal(off_of(GROUP + i), held ? HAND_OFF : HAND_RUNS);
                }
        }
        assert_int_equal(bench_hand_on(), 0);
        check_all_run();
}

static void *frees_in_vain(void *unused)
{
        assert_int_equal(freed(5, CLIENT, GROUP + 2), 0x40);
        return NULL;
}

static void the_hands_order_reaches_a_name_that_was_withdrawn(void **state)
{
        begin_program(3);
        rm_bench.free_status = 0x40;
        for (unsigned i = 0; i < 2; i++) { /* the hand takes the program; then it lets it go */
                pthread_t thread;

                bench_page->busy = 1;
                assert_int_equal(pthread_create(&thread, NULL, frees_in_vain, NULL), 0);
                SOON(!entry_of(CLIENT, GROUP + 2));
                assert_int_equal(i == 0 ? bench_hand_off() : bench_hand_on(), 0); /* not busy */
                assert_int_equal(pthread_join(thread, NULL), 0);
                assert_int_equal(rm_standing(), i == 0 ? 3 : 0);
                assert_int_equal(rm_count(CLIENT, GROUP + 2), i == 0);
        }
        rm_bench.free_status = 0;
        check_all_run();
}

/* ---- channels made during a hold ---- */

static void a_new_channel_is_off_before_the_request_returns(void **state)
{
        begin_program(2);
        assert_int_equal(bench_hand_off(), 0);
        made_group(5, CLIENT, GROUP + 0x100, 1, 3);
        assert_int_equal(rm_standing(), 5);
        for (uint32_t i = 1; i <= 3; i++) {
                assert_int_equal(rm_count(CLIENT, GROUP + 0x100 + i), 1);
                assert_int_equal(off_of(GROUP + 0x100 + i), HAND_OFF);
        }
        assert_int_equal(bench_hand_off(), 0); /* again: each counts once */
        assert_int_equal(rm_count(CLIENT, GROUP + 0x101), 1);
        assert_int_equal(bench_hand_on(), 0);
        check_all_run();
        made_group(5, CLIENT, GROUP + 0x200, 1, 1);
        check_all_run();
}

static void a_new_channel_in_a_freeze_and_a_hold_counts_for_both(void **state)
{
        begin_program(2);
        for (unsigned first = 0; first < 2; first++) {
                assert_int_equal(bench_hand_off(), 0);
                assert_int_equal(rm_freeze(), 0);
                made_group(5, CLIENT, GROUP + 0x100, 1, 1);
                assert_int_equal(rm_count(CLIENT, GROUP + 1), 2);
                assert_int_equal(rm_count(CLIENT, GROUP + 0x101), 2);
                assert_int_equal(first ? bench_hand_on() : rm_thaw(), 0);
                assert_int_equal(rm_standing(), rm_known());
                assert_int_equal(first ? rm_thaw() : bench_hand_on(), 0);
                check_all_run();
                assert_int_equal(freed(5, CLIENT, GROUP + 0x100), 0);
        }
}

static void lets_go_at_once(const struct rm_call *c)
{
        rm_bench.before = NULL;
        (void)bench_hand_on();
}

static void lets_go_and_takes_again(const struct rm_call *c)
{
        rm_bench.before = NULL;
        (void)bench_hand_on();
        (void)bench_hand_off();
}

static void an_order_of_the_hand_while_a_channel_is_made_is_followed(void **state)
{
        begin_program(2);
        assert_int_equal(bench_hand_off(), 0);
        rm_bench.before = lets_go_at_once;
        made_group(5, CLIENT, GROUP + 0x100, 1, 1);
        check_all_run();
        assert_int_equal(bench_hand_off(), 0);
        rm_bench.before = lets_go_and_takes_again;
        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 9, CHANNEL, 0), 0);
        assert_int_equal(rm_standing(), 4);
        assert_int_equal(rm_count(CLIENT, GROUP + 9), 1);
        assert_int_equal(bench_hand_on(), 0);
        check_all_run();
}

static void takes_again(const struct rm_call *c)
{
        rm_bench.before = NULL;
        assert_false(c->disable);
        (void)bench_hand_off();
}

static void lets_go_and_waits(const struct rm_call *c)
{
        rm_bench.before = takes_again; /* when the library enables the channel */
        (void)bench_hand_on();
}

static void a_new_order_while_a_channel_is_given_back_is_followed(void **state)
{
        begin_program(2);
        assert_int_equal(bench_hand_off(), 0);
        rm_bench.before = lets_go_and_waits;
        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 9, CHANNEL, 0), 0);
        assert_int_equal(rm_standing(), 3);
        assert_int_equal(rm_count(CLIENT, GROUP + 9), 1);
        assert_int_equal(bench_hand_on(), 0);
        check_all_run();
}

/* Otherwise the hand would undo one disabling too many, that of the library. */
static void a_new_channel_that_rm_does_not_disable_does_not_count(void **state)
{
        begin_program(1);
        assert_int_equal(bench_hand_off(), 0);
        rm_bench.refuses = 0x65;
        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 9, CHANNEL, 0), 0);
        rm_bench.refuses = 0;
        assert_int_equal(off_of(GROUP + 9), HAND_RUNS);
        assert_int_equal(rm_freeze(), -ETIMEDOUT); /* nobody knows how RM has counted */
        assert_int_equal(rm_thaw(), 0);
        (void)bench_hand_on();
        bench_hand_dies();
        assert_int_equal(rm_counted(), 0);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), 2);
}

/* We missed the end of the old channel, and with it ended the hand's disabling. */
static void a_new_channel_with_a_known_handle_is_another_one(void **state)
{
        begin_program(2);
        assert_int_equal(bench_hand_off(), 0);
        rm_loses(CLIENT, GROUP + 2);
        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 2, CHANNEL, 0), 0);
        assert_int_equal(rm_standing(), 2);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(bench_hand_on(), 0);
        assert_int_equal(rm_standing(), 2);
        rm_loses(CLIENT, GROUP + 2);
        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 2, CHANNEL, 0), 0);
        assert_int_equal(rm_standing(), 2);
        assert_int_equal(rm_thaw(), 0);
        check_all_run();
}

static void a_client_whose_descriptor_was_closed_has_no_names(void **state)
{
        begin_program(2);
        made_client(6, CLIENT + 1);
        made_group(6, CLIENT + 1, GROUP, 1, 2);
        bench_proved = (struct hand_clients){2, {CLIENT, CLIENT + 1}};
        assert_int_equal(names(), 4);
        rm_bench.closed = 6;
        rm_loses(CLIENT + 1, CLIENT + 1);
        assert_int_equal(bench_hand_off(), 0);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(names(), 2);
        assert_int_equal(bench_hand_on(), 0);
        assert_int_equal(rm_thaw(), 0);
        check_all_run();
}

/* ---- the program's own disabling ---- */

static void the_programs_own_disabling_is_its_own(void **state)
{
        begin_program(2);
        for (unsigned i = 0; i < 4; i++) { /* frozen, held, both */
                const unsigned ours = (i & 1) + (i >> 1);

                if (i & 1)
                        assert_int_equal(rm_freeze(), 0);
                if (i & 2)
                        assert_int_equal(bench_hand_off(), 0);
                assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, false), 0);
                assert_int_equal(rm_count(CLIENT, GROUP + 1), ours);
                assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, true), 0);
                assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, true), 0);
                assert_int_equal(rm_count(CLIENT, GROUP + 1), ours + 2);
                for (unsigned k = 0; k < 3; k++)
                        assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, false), 0);
                assert_int_equal(rm_count(CLIENT, GROUP + 1), ours);
                if (i & 2)
                        assert_int_equal(bench_hand_on(), 0);
                if (i & 1)
                        assert_int_equal(rm_thaw(), 0);
                check_all_run();
        }
}

static void the_programs_own_disabling_outlasts_a_freeze_and_a_hold(void **state)
{
        begin_program(2);
        assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, true), 0);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(bench_hand_off(), 0);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(bench_hand_on(), 0);
        assert_int_equal(rm_standing(), 1);
        assert_true(rm_stands(CLIENT, GROUP + 1));
        assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, false), 0);
        check_all_run();
}

/* Otherwise the program's next enabling would undo the library's disabling. */
static void a_disabling_that_rm_refused_gives_no_right_to_enable(void **state)
{
        begin_program(2);
        assert_int_equal(rm_freeze(), 0);
        rm_bench.refuses = 0x1b;
        assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, true), 0x1b);
        rm_bench.refuses = 0;
        assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, false), 0);
        assert_int_equal(rm_standing(), 2);
        assert_int_equal(rm_thaw(), 0);
        check_all_run();
}

/* ---- the hand's end ---- */

static void when_the_hand_dies_the_program_runs_at_once(void **state)
{
        begin_program(100);
        assert_int_equal(bench_hand_off(), 0);
        assert_int_equal(rm_standing(), 100);
        bench_hand_dies();
        assert_int_equal(rm_counted(), 0);
        assert_int_equal(rm_standing(), 0);
        made_group(5, CLIENT, GROUP + 0x100, 1, 1);
        assert_int_equal(rm_standing(), 0);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), 101);
}

static void when_the_hand_dies_in_a_freeze_the_program_runs_with_the_thaw(void **state)
{
        begin_program(3);
        for (unsigned first = 0; first < 2; first++) {
                assert_int_equal(first ? rm_freeze() : bench_hand_off(), 0);
                assert_int_equal(first ? bench_hand_off() : rm_freeze(), 0);
                bench_hand_dies();
                assert_int_equal(rm_standing(), 3);
                /* A new hand may not act until the count is known again. */
                assert_true(bench_hand_offered());
                rm_hand_ready(true);
                assert_int_equal(bench_page->ready, 0);
                assert_int_equal(rm_thaw(), 0);
                assert_int_equal(rm_counted(), 0);
                rm_hand_ready(true);
                assert_int_equal(bench_page->ready, 1);
        }
}

/* Otherwise the program's next enabling would undo the library's disabling. */
static void the_programs_own_disabling_outlasts_the_hand(void **state)
{
        begin_program(2);
        for (unsigned held = 0; held < 2; held++) {
                assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, true), 0);
                assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, true), 0);
                if (held)
                        assert_int_equal(bench_hand_off(), 0);
                bench_hand_dies();
                assert_int_equal(rm_count(CLIENT, GROUP + 1), 2);
                assert_int_equal(rm_count(CLIENT, GROUP + 2), 0);
                assert_int_equal(rm_freeze(), 0);
                for (unsigned i = 0; i < 3; i++)
                        assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, false), 0);
                assert_int_equal(rm_count(CLIENT, GROUP + 1), 1);
                assert_int_equal(rm_thaw(), 0);
                assert_int_equal(rm_counted(), 0);
                assert_true(bench_hand_offered());
        }
}

/* A call at a missing channel counts for those before it, and was not undone. */
static void a_hand_that_died_within_a_call_leaves_nothing_behind(void **state)
{
        const uint32_t of[] = {CLIENT, CLIENT, CLIENT}, list[] = {GROUP + 1, GROUP + 2, 77};

        begin_program(3);
        assert_int_equal(rm_of_the_hand(3, of, list, true), 0x21);
        bench_page->holds = bench_page->busy = 1;
        assert_int_equal(rm_counted(), 2);
        assert_int_equal(rm_standing(), 0);
        bench_hand_dies();
        assert_int_equal(rm_counted(), 0);
}

static void the_program_runs_although_rm_refuses_at_first(void **state)
{
        begin_program(3);
        assert_int_equal(bench_hand_off(), 0);
        rm_bench.unrefuses = 0x65;
        rm_bench.refusals = 4;
        bench_hand_dies();
        SOON(rm_counted() == 0);
}

static void after_an_unclear_answer_the_library_leaves_the_hand(void **state)
{
        char bytes[8];

        begin_program(3);
        assert_int_equal(bench_hand_off(), 0);
        rm_bench.refuses = 0x65;
        assert_int_equal(rm_freeze(), -ETIMEDOUT);
        rm_bench.refuses = 0;
        assert_int_equal(rm_thaw(), 0);
        while (recv(bench_line, bytes, sizeof(bytes), 0) > 0)
                ; /* it ends */
        rm_bench.count = 0;
        for (unsigned i = 0; i < 2; i++) { /* the hand may still undo what is ours */
                assert_int_equal(rm_freeze(), -ETIMEDOUT);
                assert_int_equal(rm_bench.count, 0);
                assert_false(rm_is_frozen());
        }
        rm_hand_ready(true);
        assert_int_equal(bench_hand_on(), 0);
        assert_int_equal(rm_freeze(), -ETIMEDOUT);
        bench_hand_dies();
        assert_int_equal(rm_counted(), 0);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), 3);
        assert_int_equal(rm_thaw(), 0);
        assert_int_equal(rm_counted(), 0);
        assert_true(bench_hand_offered());
        rm_hand_ready(true);
        assert_int_equal(bench_page->ready, 1);
}

/* ---- proofs ---- */

static void ask(uint32_t client, uint32_t secret)
{
        bench_page->proofs[2].secret = secret;
        bench_page->proofs[2].client = client;
        bench_hand_rings();
}

static void the_library_makes_the_device_that_proves_its_client(void **state)
{
        for (unsigned i = 0; i < 2; i++) { /* also while the program is off the GPU */
                if (i == 0)
                        begin_program(2);
                else
                        assert_int_equal(bench_hand_off() | rm_freeze(), 0);
                bench_page->proofs[2].proved = 0;
                ask(CLIENT, SECRET + i);
                SOON(bench_page->proofs[2].made == SECRET + i);
                assert_true(rm_has(CLIENT, SECRET + i));
                bench_page->proofs[2].proved = 1;
                bench_hand_rings();
                SOON(!rm_has(CLIENT, SECRET + i));
                SOON(bench_page->proofs[2].made == 0);
                bench_hand_rings(); /* nothing is to be done */
        }
        assert_int_equal(rm_thaw() | bench_hand_on(), 0);
        check_all_run();
        assert_int_equal(names(), 2);
}

static void a_client_of_others_is_not_proved(void **state)
{
        begin_program(1);
        ask(CLIENT + 1, SECRET);
        ask(CLIENT, 0);
        nap_ms(20);
        assert_int_equal(bench_page->proofs[2].made, 0);
        assert_false(rm_has(CLIENT + 1, SECRET));
}

static void a_device_that_rm_refuses_is_not_asked_for_again(void **state)
{
        begin_program(1);
        assert_true(bench_hand_is_rung() && bench_hand_is_rung());
        rm_bench.status = 0x1f;
        ask(CLIENT, SECRET);
        SOON(bench_page->proofs[2].made == SECRET);
        assert_false(rm_has(CLIENT, SECRET));
        bench_hand_rings();
        nap_ms(20);
        assert_false(rm_has(CLIENT, SECRET));
        assert_int_equal(recv(bench_line, &(char){0}, 1, MSG_DONTWAIT), -1);
}

/* ---- in a child ---- */

static void a_child_after_fork_does_without_the_hand(void **state)
{
        int status = 0;
        pid_t child;

        begin_program(2);
        assert_int_equal(bench_hand_off(), 0);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
                rm_forget();
                if (rm_is_frozen())
                        _exit(1);
                made_client(7, CLIENT + 7);
                made_group(7, CLIENT + 7, GROUP, 1, 1);
                if (rm_stands(CLIENT + 7, GROUP + 1) || freed(7, CLIENT + 7, GROUP) != 0)
                        _exit(2);
                rm_hand_ready(true);
                rm_hand_asks();
                if (libcuda_controls(5, CLIENT, GROUP + 1, true) != 0 || freed(5, CLIENT, GROUP))
                        _exit(3);
                _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_int_equal(status, 0);
        assert_int_equal(names(), 2);
        assert_int_equal(bench_hand_on(), 0);
        check_all_run();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(the_page_names_the_channels_of_the_program),
                TEST(a_name_tells_the_gpu_of_its_channel),
                TEST(the_library_rings_when_names_or_readiness_change),
                TEST(a_second_hand_waits_for_the_end_of_the_first),
                TEST(an_offer_with_other_descriptors_is_refused),
                TEST(without_a_thread_there_is_no_hand),
                TEST(rm_frees_a_channel_when_the_hand_names_it_no_more),
                TEST(a_free_does_not_wait_for_ever),
                TEST(a_free_does_not_wait_for_a_hand_that_was_killed),
                TEST(a_channel_that_rm_does_not_free_keeps_its_name),
                TEST(the_hands_order_reaches_a_name_that_was_withdrawn),
                TEST(a_new_channel_is_off_before_the_request_returns),
                TEST(a_new_channel_in_a_freeze_and_a_hold_counts_for_both),
                TEST(an_order_of_the_hand_while_a_channel_is_made_is_followed),
                TEST(a_new_order_while_a_channel_is_given_back_is_followed),
                TEST(a_new_channel_that_rm_does_not_disable_does_not_count),
                TEST(a_new_channel_with_a_known_handle_is_another_one),
                TEST(a_client_whose_descriptor_was_closed_has_no_names),
                TEST(the_programs_own_disabling_is_its_own),
                TEST(the_programs_own_disabling_outlasts_a_freeze_and_a_hold),
                TEST(a_disabling_that_rm_refused_gives_no_right_to_enable),
                TEST(when_the_hand_dies_the_program_runs_at_once),
                TEST(when_the_hand_dies_in_a_freeze_the_program_runs_with_the_thaw),
                TEST(the_programs_own_disabling_outlasts_the_hand),
                TEST(a_hand_that_died_within_a_call_leaves_nothing_behind),
                TEST(the_program_runs_although_rm_refuses_at_first),
                TEST(after_an_unclear_answer_the_library_leaves_the_hand),
                TEST(the_library_makes_the_device_that_proves_its_client),
                TEST(a_client_of_others_is_not_proved),
                TEST(a_device_that_rm_refuses_is_not_asked_for_again),
                TEST(a_child_after_fork_does_without_the_hand),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
