/* test_rm_door.c: the door of ioctl() passes requests on, and the ledger reads them: in every
 * driver's layouts, among requests that are not for RM, and while threads make and free channels
 * during freezes. */
#include "unit.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "rm_bench.h"
#include "preload/driver/real.h"

#define CLIENT 0xc1d00001u
#define GROUP  0x5c000100u

/* ---- layouts ---- */

static void the_version_is_read_from_the_drivers_answer(void **state)
{
        assert_int_equal(say_version("580.159.04"), 0);
        assert_string_equal(rm_driver(), "580.159.04");
        form = RM_LONG_WRAPPED;
        assert_int_equal(say_version("535.104.05"), 0);
        assert_string_equal(rm_driver(), "535.104.05");
        /* A longer version is cut. */
        assert_int_equal(say_version("580.159.04.with-a-name-that-never-ends-and-never-ends"), 0);
        assert_int_equal(strlen(rm_driver()), 31);
}

static bool went_on;

/* The driver does not answer, so the version is read from a file. */
static void *asks_when_cancelled(void *unused)
{
        (void)pthread_cancel(pthread_self());
        (void)say_version("");
        went_on = true;
        return NULL;
}

static void a_cancelled_thread_does_not_end_while_it_holds_the_ledger(void **state)
{
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, asks_when_cancelled, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        if (!went_on)
                rm_forget(); /* gives the lock up: the end of the test would wait for it */
        assert_true(went_on);
}

static void every_drivers_layouts_are_read(void **state)
{
        for (unsigned i = 0; i < family_count; i++) {
                family = &families[i];
                assert_int_equal(say_version(family->version), 0);
                for (form = RM_SHORT; form < RM_FORMS; form++) {
                        made_client(5, CLIENT);
                        made_group(5, CLIENT, GROUP, 1, 3);
                        assert_int_equal(rm_channels(), 3);
                        assert_int_equal(rm_freeze(), 0);
                        assert_int_equal(rm_standing(), 3);
                        assert_int_equal(rm_thaw(), 0);
                        assert_int_equal(freed(5, CLIENT, GROUP), 0);
                        assert_int_equal(rm_channels(), 0);
                        assert_int_equal(freed(5, CLIENT, CLIENT), 0);
                }
        }
}

static void objects_that_rm_refused_are_not_recorded(void **state)
{
        for (unsigned i = 0; i < family_count; i++) {
                family = &families[i];
                assert_int_equal(say_version(family->version), 0);
                for (form = RM_SHORT; form < RM_FORMS; form++) {
                        made_client(5, CLIENT);
                        made_group(5, CLIENT, GROUP, 1, 1);
                        rm_bench.status = 0x1b;
                        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 2, CHANNEL, 0), 0x1b);
                        rm_bench.closed = 5;
                        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 2, CHANNEL, 0), -EBADF);
                        rm_bench.closed = -1;
                        assert_int_equal(rm_channels(), 1);
                        assert_int_equal(freed(5, CLIENT, CLIENT), 0);
                }
        }
}

/* The size is one that this driver does not use, so the place of the status is unknown. */
static void a_call_of_an_unknown_length_is_not_recorded(void **state)
{
        char p[48] = {0};
        const uint32_t words[] = {CLIENT, GROUP, GROUP + 2, CHANNEL};

        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 1);
        memcpy(p, words, sizeof(words));
        rm_saw(5, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2b, 40), p);
        rm_saw(5, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2b, 16), p);
        assert_int_equal(rm_channels(), 1);
        rm_saw(5, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2b, 48), p);
        assert_int_equal(rm_channels(), 2);
        rm_loses(CLIENT, GROUP + 2);
}

static void a_group_without_parameters_is_no_compute_group(void **state)
{
        char p[48] = {0};
        const uint32_t words[] = {CLIENT, DEVICE, GROUP, 0xa06c};

        made_client(5, CLIENT);
        memcpy(p, words, sizeof(words));
        assert_int_equal(ioctl(5, _IOC(_IOC_READ | _IOC_WRITE, 'F', 0x2b, 48), p), 0);
        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 1, CHANNEL, 0), 0);
        made_group(5, CLIENT, GROUP + 0x100, 1, 1);
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_bench.calls[0].count, 2);
        assert_int_equal(rm_bench.calls[0].channels[0], GROUP + 0x101);
}

/* ---- requests that are not for RM ---- */

static struct seen {
        int fd;
        unsigned long request;
        void *argument;
        unsigned count;
        int error;
} seen;

static int sees(int fd, unsigned long request, ...)
{
        va_list list;

        va_start(list, request);
        seen.argument = va_arg(list, void *);
        va_end(list);
        seen.fd = fd;
        seen.request = request;
        seen.count++;
        if (!seen.error)
                return 7;
        errno = seen.error;
        return -1;
}

extern int __ioctl(int fd, unsigned long request, ...);

static void other_requests_pass_unchanged(void **state)
{
        static const unsigned long requests[] = {TIOCGWINSZ,
                                                 FIONREAD,
                                                 _IO('F', 0x2a),
                                                 _IOWR('F', 0x27, char[56]),
                                                 _IOWR('F', 0x2a, char[32]),
                                                 _IOWR('F', 211, char[16]),
                                                 _IOWR('F', 0x2b, char[3]),
                                                 0xffffffffffffffff,
                                                 0};
        char p[72] = {0}, was[72] = {0};

        atomic_store(&real_ioctl, sees);
        for (size_t i = 0; i < ARRAY_SIZE(requests); i++)
                for (int way = 0; way < 2; way++) {
                        int (*door)(int, unsigned long, ...) = way ? __ioctl : ioctl;

                        seen = (struct seen){0};
                        assert_int_equal(door(42, requests[i], p), 7);
                        assert_int_equal(seen.fd, 42);
                        assert_true(seen.request == requests[i]);
                        assert_ptr_equal(seen.argument, p);
                        assert_memory_equal(p, was, sizeof(p));
                        seen.error = EOVERFLOW;
                        errno = 0;
                        assert_int_equal(door(42, requests[i], p), -1);
                        assert_int_equal(errno, EOVERFLOW);
                        assert_int_equal(seen.count, 2);
                }
        seen = (struct seen){0};
        assert_int_equal(ioctl(42, _IOWR('F', 0x2b, char[48]), NULL), 7);
        assert_null(seen.argument);
        atomic_store(&real_ioctl, rm_of_the_bench);
}

static void a_successful_request_keeps_errno(void **state)
{
        made_client(5, CLIENT);
        errno = 4711;
        made_group(5, CLIENT, GROUP, 1, 1);
        assert_int_equal(rm_freeze(), 0);
        errno = 4711;
        made_group(5, CLIENT, GROUP + 0x100, 1, 1);
        assert_int_equal(errno, 4711);
        rm_bench.error = EPERM; /* fails the control that the library sends within made() */
        assert_int_equal(made(5, CLIENT, GROUP, GROUP + 9, CHANNEL, 0), 0);
        assert_int_equal(errno, 4711);
}

static void requests_go_to_the_kernel_without_libcuda(void **state)
{
        int ends[2], n = -1;

        atomic_store(&real_ioctl, NULL);
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(write(ends[1], "abc", 3), 3);
        assert_int_equal(ioctl(ends[0], FIONREAD, &n), 0);
        assert_int_equal(n, 3);
        assert_int_equal(ioctl(-1, FIONREAD, &n), -1);
        assert_int_equal(errno, EBADF);
        (void)close(ends[0]);
        (void)close(ends[1]);
        atomic_store(&real_ioctl, rm_of_the_bench);
}

/* ---- libcuda's own use of the control ---- */

static void libcudas_own_enable_does_not_undo_a_freeze(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 2);
        for (form = RM_LONG; form < RM_FORMS; form = (enum rm_form)(form + 2)) {
                assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, true), 0);
                assert_true(rm_stands(CLIENT, GROUP + 1));
                assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, false), 0);
                assert_false(rm_stands(CLIENT, GROUP + 1));
                assert_int_equal(rm_freeze(), 0);
                rm_bench.count = 0;
                assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, true), 0);
                assert_int_equal(rm_bench.count, 1);
                assert_int_equal(rm_count(CLIENT, GROUP + 1), 2);
                for (unsigned i = 0; i < 2; i++) { /* one undoes the disabling, one nothing */
                        assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, false), 0);
                        assert_int_equal(rm_bench.count, 2);
                        assert_int_equal(rm_count(CLIENT, GROUP + 1), 1);
                        assert_int_equal(rm_standing(), 2);
                }
                assert_int_equal(rm_thaw(), 0);
                assert_int_equal(rm_counted(), 0);
        }
}

/* ---- threads ---- */

#define MAKERS 4u
#define ROUNDS 20000u
#define TIMES  20u /* least number of successful freezes */

static _Atomic unsigned done, stood;

static uint32_t draw(uint32_t *seed, uint32_t below)
{
        *seed = *seed * 1664525u + 1013904223u;
        return (*seed >> 8) % below;
}

/* Makes and frees groups and channels; its handles are used by no other thread. */
static void *makes_and_frees(void *argument)
{
        uint32_t number = (uint32_t)(uintptr_t)argument, seed = number + 1,
                 client = CLIENT + number;
        int fd = 5 + (int)number;

        rm_make_for(CHANNELS_PROGRAM);
        made_client(fd, client);
        for (unsigned i = 0; i < ROUNDS || atomic_load(&stood) < TIMES; i++) {
                uint32_t group = GROUP + draw(&seed, 4) * 0x100;

                if (!rm_has(client, group))
                        made_group(fd, client, group, 1 + draw(&seed, 2) * 10, draw(&seed, 24));
                else if (draw(&seed, 3) > 0)
                        (void)freed(fd, client, group);
                else
                        (void)made(fd, client, group, group + 0x40 + i % 32, CHANNEL, 0);
                if (draw(&seed, 64) == 0) {
                        (void)freed(fd, client, client);
                        (void)made(fd, 0, 0, client, 0x41, 0);
                        (void)made(fd, client, client, DEVICE, 0x80, 0);
                        (void)made(fd, client, DEVICE, SUBDEVICE, 0x2080, 0);
                }
        }
        atomic_fetch_add(&done, 1);
        return NULL;
}

static void no_channel_runs_during_a_freeze_while_threads_make_channels(void **state)
{
        const struct timespec nap = {.tv_nsec = 50 * NSEC_PER_USEC};
        pthread_t threads[MAKERS];

        atomic_store(&done, 0);
        atomic_store(&stood, 0);
        for (uintptr_t i = 0; i < MAKERS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, makes_and_frees, (void *)i), 0);
        while (atomic_load(&done) < MAKERS) {
                /* Fails if a maker that is not scheduled for long has freed a named channel. */
                if (rm_freeze() == 0) {
                        atomic_fetch_add(&stood, 1);
                        for (unsigned i = 0; i < 5; i++)
                                assert_int_equal(rm_running_told(), 0);
                }
                while (rm_thaw() < 0)
                        ;
                (void)nanosleep(&nap, NULL);
        }
        for (unsigned i = 0; i < MAKERS; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(rm_standing(), 0);
        assert_int_equal(rm_channels(), rm_known());
        assert_int_equal(rm_freeze(), 0);
        assert_int_equal(rm_standing(), rm_known());
}

/* ---- an enable during a freeze ---- */

static bool froze;
static pthread_t freezer;

static void *freezes(void *unused)
{
        __atomic_store_n(&froze, rm_freeze() == 0, __ATOMIC_RELEASE);
        return NULL;
}

/* Called between the moments when an enable passes the door and when it reaches RM. */
static void freeze_while_an_enable_is_on_its_way(const struct rm_call *c)
{
        const struct timespec nap = {.tv_nsec = NSEC_PER_MSEC};

        if (c->disable)
                return;
        rm_bench.before = NULL;
        assert_int_equal(pthread_create(&freezer, NULL, freezes, NULL), 0);
        for (unsigned i = 0; i < 100 && !__atomic_load_n(&froze, __ATOMIC_ACQUIRE); i++)
                (void)nanosleep(&nap, NULL);
}

static void an_enable_in_progress_does_not_thaw_a_frozen_program(void **state)
{
        made_client(5, CLIENT);
        made_group(5, CLIENT, GROUP, 1, 2);
        assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, true), 0);
        froze = false;
        rm_bench.before = freeze_while_an_enable_is_on_its_way;
        assert_int_equal(libcuda_controls(5, CLIENT, GROUP + 1, false), 0);
        assert_int_equal(pthread_join(freezer, NULL), 0);
        assert_true(froze);
        assert_int_equal(rm_standing(), 2);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                RM_TEST(the_version_is_read_from_the_drivers_answer),
                RM_TEST(a_cancelled_thread_does_not_end_while_it_holds_the_ledger),
                RM_TEST(every_drivers_layouts_are_read),
                RM_TEST(objects_that_rm_refused_are_not_recorded),
                RM_TEST(a_call_of_an_unknown_length_is_not_recorded),
                RM_TEST(a_group_without_parameters_is_no_compute_group),
                RM_TEST(other_requests_pass_unchanged),
                RM_TEST(a_successful_request_keeps_errno),
                RM_TEST(requests_go_to_the_kernel_without_libcuda),
                RM_TEST(libcudas_own_enable_does_not_undo_a_freeze),
                RM_TEST(no_channel_runs_during_a_freeze_while_threads_make_channels),
                RM_TEST(an_enable_in_progress_does_not_thaw_a_frozen_program),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
