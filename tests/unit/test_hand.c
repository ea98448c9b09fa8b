/* test_hand.c: the daemon's talk with the hand's process, which the test plays itself. A process
 * that ends, hangs, or cannot begin costs the daemon nothing but its programs' preemption. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/hand/hand.h"
#include "daemon/hand/hand_process.h"
#include "daemon/people/child_process.h"
#include "wire/hand_page.h"

static struct hand *hand;
static sd_event *event;

/* ---- time and messages ---- */

static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
        *ret = (struct timespec){.tv_sec = (time_t)(now_ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(now_ns % NSEC_PER_SEC)};
        return 0;
}

static unsigned warnings, notices;
static char notice[256];

void __wrap_log_write(enum log_level level, const char *format, ...);
void __wrap_log_write(enum log_level level, const char *format, ...)
{
        assert_int_equal(level, LOG_LEVEL_WARNING);
        warnings++;
}

void __wrap_log_notice(const char *format, ...);
void __wrap_log_notice(const char *format, ...)
{
        va_list args;

        va_start(args, format);
        (void)vsnprintf(notice, sizeof(notice), format, args);
        va_end(args);
        notices++;
}

/* ---- the process, as the test plays it ---- */

static int far = -EBADF; /* its end of the socket */
static int start_error;
static unsigned starts;

void hand_process(int fd, pid_t parent, void *userdata)
{
        fail();
}

void child_process_init(struct child_process *c)
{
        *c = (struct child_process){.fd = -EBADF};
}

void child_process_drop(struct child_process *c)
{
        c->io = sd_event_source_disable_unref(c->io);
        if (c->fd >= 0)
                (void)close(c->fd);
        c->fd = -EBADF;
}

void child_process_free(struct child_process *c)
{
        child_process_drop(c);
}

int child_process_start(struct child_process *c, sd_event *e, int socket_type,
                        sd_event_io_handler_t on_io,
                        void (*run)(int fd, pid_t parent, void *userdata), void *userdata)
{
        int fds[2];

        assert_ptr_equal(run, hand_process);
        assert_true(c->fd < 0);
        if (start_error)
                return start_error;
        starts++;
        if (far >= 0)
                (void)close(far);
        assert_int_equal(socketpair(AF_UNIX, socket_type | SOCK_CLOEXEC, 0, fds), 0);
        c->fd = fds[0];
        far = fds[1];
        return MIN(sd_event_add_io(e, &c->io, fds[0], EPOLLIN, on_io, userdata), 0);
}

static void loop_runs(void)
{
        while (sd_event_run(event, 0) > 0)
                ;
}

static void says_bytes(const void *data, size_t n)
{
        assert_int_equal(send(far, data, n, MSG_NOSIGNAL), (ssize_t)n);
        loop_runs();
}

static void says(enum hand_what what, uint64_t id, int error, uint64_t ns)
{
        const struct hand_packet m = {.id = id, .ns = ns, .what = what, .error = error};

        says_bytes(&m, sizeof(m));
}

static void ends(void)
{
        (void)close(far);
        far = -EBADF;
        loop_runs();
}

/* Reads the next order. Returns the number of its descriptors. */
static unsigned hears(struct hand_packet *ret, int ret_fds[static 2])
{
        union descriptors room;
        struct iovec data = {ret, sizeof(*ret)};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};

        descriptors_expect(&h, &room);
        assert_int_equal(recvmsg(far, &h, MSG_CMSG_CLOEXEC | MSG_DONTWAIT), sizeof(*ret));
        return descriptors_take(&h, 2, ret_fds);
}

static void hears_only(enum hand_what what, uint64_t id)
{
        struct hand_packet o;
        int fds[2];

        assert_int_equal(hears(&o, fds), 0);
        assert_int_equal(o.what, what);
        assert_int_equal(o.id, id);
}

static bool hears_nothing(void)
{
        char byte;

        return recv(far, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* ---- what the daemon hears ---- */

static unsigned losses, readies, unreadies, dones;
static uint64_t last_id, last_ns;

static void on_ready(void *userdata, uint64_t id, bool ready)
{
        last_id = id;
        readies += ready;
        unreadies += !ready;
}

static void on_done(void *userdata, uint64_t id, uint64_t took_ns)
{
        last_id = id;
        last_ns = took_ns;
        dones++;
}

static void on_lost(void *userdata)
{
        assert_ptr_equal(userdata, &losses);
        losses++;
}

static int begin(void **state)
{
        const struct hand_calls calls = {.ready = on_ready, .done = on_done, .lost = on_lost};

        now_ns = NSEC_PER_SEC;
        warnings = notices = starts = losses = readies = unreadies = dones = 0;
        start_error = 0;
        assert_true(sd_event_new(&event) >= 0);
        return hand_new(event, &calls, &losses, &hand);
}

static int end(void **state)
{
        hand_free(hand);
        if (far >= 0)
                (void)close(far);
        far = -EBADF;
        (void)sd_event_unref(event);
        return 0;
}

static int add(uint64_t id)
{
        int fds[2], r = hand_add(hand, id, fds);

        if (r == 0) {
                (void)close(fds[0]);
                (void)close(fds[1]);
        }
        return r;
}

/* A hand that works and knows these programs, with no order unread. */
static void works_with(unsigned programs)
{
        struct hand_packet o;
        int fds[2];

        for (unsigned i = 1; i <= programs; i++) {
                assert_int_equal(add(i), 0);
                assert_int_equal(hears(&o, fds), 2);
                (void)close(fds[0]);
                (void)close(fds[1]);
        }
        says(HAND_BEGUN, 0, 0, 0);
}

static const char *why(enum hand_state expected)
{
        const char *text;

        assert_int_equal(hand_state(hand, &text), expected);
        assert_int_equal(*text != '\0', expected == HAND_MISSING);
        return text;
}

/* ---- orders ---- */

static void a_program_and_the_hand_get_one_page_and_one_line(void **state)
{
        struct hand_packet o;
        int programs[2], hands[2];
        struct stat a, b;
        char byte = 7;

        assert_int_equal(starts, 0);
        assert_int_equal(hand_add(hand, 5, programs), 0);
        assert_int_equal(starts, 1);
        assert_int_equal(hears(&o, hands), 2);
        assert_int_equal(o.what, HAND_ADD);
        assert_int_equal(o.id, 5);
        assert_int_equal(fstat(programs[0], &a), 0);
        assert_int_equal(fstat(hands[0], &b), 0);
        assert_int_equal(a.st_ino, b.st_ino);
        assert_int_equal(a.st_size, sizeof(struct hand_page));
        assert_int_equal(ftruncate(programs[0], 1), -1); /* it would end the hand with SIGBUS */
        assert_int_equal(ftruncate(programs[0], 1 << 24), -1);
        assert_int_equal(send(programs[1], &byte, 1, 0), 1);
        assert_int_equal(recv(hands[1], &byte, 1, 0), 1);
        for (unsigned i = 0; i < 2; i++) {
                (void)close(programs[i]);
                (void)close(hands[i]);
        }
}

static void orders_reach_the_process_in_their_order(void **state)
{
        works_with(2);
        assert_int_equal(starts, 1);
        hand_order(hand, 1, true);
        hand_order(hand, 2, true);
        hand_order(hand, 1, false);
        hand_drop(hand, 2);
        hears_only(HAND_TAKE, 1);
        hears_only(HAND_TAKE, 2);
        hears_only(HAND_LET_GO, 1);
        hears_only(HAND_DROP, 2);
        assert_true(hears_nothing());
}

static void orders_without_a_process_have_no_effect(void **state)
{
        hand_order(hand, 1, true);
        hand_drop(hand, 1);
        works_with(1);
        ends();
        hand_order(hand, 1, true);
        hand_drop(hand, 1);
        assert_int_equal(losses, 1);
}

/* ---- reports ---- */

static void reports_reach_the_daemon(void **state)
{
        works_with(1);
        says(HAND_READY, 1, 0, 0);
        assert_int_equal(readies, 1);
        says(HAND_DONE, 1, 0, 700);
        assert_int_equal(dones, 1);
        assert_int_equal(last_ns, 700);
        says(HAND_NOT_READY, 1, 0, 0);
        assert_int_equal(unreadies, 1);
        assert_int_equal(warnings, 0);
        says(HAND_NOT_READY, 1, -EIO, 0);
        says(HAND_LATE, 1, 0, NSEC_PER_SEC);
        assert_int_equal(unreadies, 2);
        assert_int_equal(warnings, 2);
        assert_int_equal(last_id, 1);
}

static void a_report_that_is_none_is_passed_over(void **state)
{
        works_with(1);
        says(HAND_TAKE, 1, 0, 0); /* an order */
        says((enum hand_what)UINT32_MAX, 1, 0, 0);
        assert_int_equal(readies + unreadies + dones + losses, 0);
        assert_int_equal(warnings + notices, 0);
}

static void a_report_that_is_too_short_ends_the_hand(void **state)
{
        works_with(1);
        says_bytes("x", 1);
        assert_int_equal(losses, 1);
        assert_int_equal(warnings, 1);
}

/* ---- whether there is a hand ---- */

static void the_process_says_whether_it_works(void **state)
{
        (void)why(HAND_UNTRIED);
        assert_int_equal(add(1), 0);
        (void)why(HAND_UNTRIED);
        says(HAND_BEGUN, 0, 0, 0);
        (void)why(HAND_WORKS);
        assert_int_equal(notices, 0);
}

static void each_reason_is_told_once(void **state)
{
        static const struct {
                int error;
                const char *why;
        } rows[] = {
                {-EPROTO, "does not know the kernel driver's calls"},
                {-EIO, "no GPU"},
                {-ENOTSUP, "cannot filter"},
                {-EAGAIN, "cannot start its threads"},
                {-EACCES, "/dev/nvidiactl (Permission denied)"},
                {-ENOENT, "/dev/nvidiactl (No such file or directory)"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                for (unsigned times = 0; times < 2; times++) {
                        now_ns += 64 * NSEC_PER_SEC;
                        assert_int_equal(add(1), 0);
                        says(HAND_BEGUN, 0, rows[i].error, 0);
                        ends();
                        assert_non_null(strstr(why(HAND_MISSING), rows[i].why));
                        assert_non_null(strstr(notice, rows[i].why));
                        assert_int_equal(notices, i + 1);
                        assert_int_equal(losses, 2 * i + times + 1);
                        now_ns += 64 * NSEC_PER_SEC - 1;
                        assert_int_equal(add(1), -EAGAIN);
                        now_ns -= 64 * NSEC_PER_SEC - 1;
                }
        }
        assert_int_equal(warnings, 0);
        now_ns += 64 * NSEC_PER_SEC;
        works_with(1);
        (void)why(HAND_WORKS);
}

static void a_process_that_says_nothing_is_missing(void **state)
{
        assert_int_equal(add(1), 0);
        ends();
        assert_non_null(strstr(why(HAND_MISSING), "ended at its start"));
        assert_int_equal(notices, 1);
        assert_int_equal(losses, 1);
}

static void a_process_that_cannot_be_started_is_missing(void **state)
{
        start_error = -EMFILE;
        assert_int_equal(add(1), -EMFILE);
        assert_int_equal(add(1), -EMFILE);
        assert_non_null(strstr(why(HAND_MISSING), "(Too many open files)"));
        assert_int_equal(notices, 1);
        assert_int_equal(losses, 0);
}

/* The process has ended, but the daemon has not heard of it yet. */
static void a_process_that_has_just_ended_is_not_missing(void **state)
{
        works_with(1);
        hand_drop(hand, 1);
        ends();
        start_error = -EBUSY;
        assert_int_equal(add(2), -EBUSY);
        (void)why(HAND_WORKS);
        start_error = 0;
        assert_int_equal(add(2), 0);
        assert_int_equal(notices + warnings + losses, 0);
}

/* ---- the end of a process ---- */

static void a_process_that_ends_is_followed_by_another_after_a_pause(void **state)
{
        works_with(2);
        ends();
        assert_int_equal(losses, 1);
        assert_int_equal(warnings, 1);
        assert_non_null(strstr(why(HAND_MISSING), "another one is started"));
        now_ns += NSEC_PER_SEC / 2 - 1;
        assert_int_equal(add(1), -EAGAIN);
        now_ns++;
        start_error = -EBUSY;
        assert_int_equal(add(1), -EBUSY); /* SIGKILL does not end it */
        assert_non_null(strstr(why(HAND_MISSING), "hangs in the kernel driver"));
        start_error = 0;
        works_with(1);
        (void)why(HAND_WORKS);
}

static void pauses_grow_until_a_program_can_be_taken(void **state)
{
        uint64_t pause_ns = NSEC_PER_SEC / 2;

        for (unsigned i = 0; i < 12; i++) {
                works_with(1);
                ends();
                now_ns += pause_ns - 1;
                assert_int_equal(add(1), -EAGAIN);
                now_ns++;
                pause_ns = MIN(2 * pause_ns, 64 * NSEC_PER_SEC);
        }
        works_with(1);
        says(HAND_READY, 1, 0, 0);
        ends();
        now_ns += NSEC_PER_SEC / 2;
        assert_int_equal(add(1), 0);
}

static void a_process_without_programs_may_end(void **state)
{
        works_with(2);
        hand_drop(hand, 1);
        hand_drop(hand, 2);
        ends();
        assert_int_equal(losses + warnings + notices, 0);
        (void)why(HAND_WORKS);
        assert_int_equal(add(3), 0);
        assert_int_equal(starts, 2);
}

/* The scheduler is at work when it gives an order, so it is told nothing then. */
static void a_process_that_does_not_read_is_given_up_by_the_loop(void **state)
{
        works_with(1);
        for (unsigned i = 0; i < 100000; i++)
                hand_order(hand, 1, i % 2);
        assert_int_equal(losses, 0);
        loop_runs();
        assert_int_equal(losses, 1);
        assert_int_equal(add(1), -EAGAIN);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(a_program_and_the_hand_get_one_page_and_one_line),
                TEST(orders_reach_the_process_in_their_order),
                TEST(orders_without_a_process_have_no_effect),
                TEST(reports_reach_the_daemon),
                TEST(a_report_that_is_none_is_passed_over),
                TEST(a_report_that_is_too_short_ends_the_hand),
                TEST(the_process_says_whether_it_works),
                TEST(each_reason_is_told_once),
                TEST(a_process_that_says_nothing_is_missing),
                TEST(a_process_that_cannot_be_started_is_missing),
                TEST(a_process_that_has_just_ended_is_not_missing),
                TEST(a_process_that_ends_is_followed_by_another_after_a_pause),
                TEST(pauses_grow_until_a_program_can_be_taken),
                TEST(a_process_without_programs_may_end),
                TEST(a_process_that_does_not_read_is_given_up_by_the_loop),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
