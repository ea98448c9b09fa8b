/* test_ipc_link.c: connections to other processes are requested once, shared, listened to, and
 * closed when no longer needed. The tests run in the order of a process's life, whose name never
 * changes. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/share/ipc_state.h"
#include "preload/process/link.h"
#include "preload/state/daemon.h"

static const uint8_t you[IPC_NAME] = "you", other[IPC_NAME] = "other";

static uint64_t clock_ns;
static bool up, has_daemon, export_more;
static unsigned names, peers; /* NAME and PEER messages sent to the daemon */
static struct wire_message said;
static uint32_t sequence;
static unsigned waits, exports_heard, imports_heard, exports_lost, imports_lost;
static struct ipc_link *heard_of, *lost;
static struct wire_message heard;
static unsigned came_along;
static unsigned before; /* number of descriptors open when the test began */
static int theirs;      /* the other end of the last connection */

/* The build renames clock_gettime() in this test, so that the tested code calls this one. */
int __wrap_clock_gettime(clockid_t which, struct timespec *ret);
int __wrap_clock_gettime(clockid_t which, struct timespec *ret)
{
        *ret = (struct timespec){.tv_sec = (time_t)(clock_ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(clock_ns % NSEC_PER_SEC)};
        return 0;
}

/* ---- fakes of other modules ---- */

bool daemon_is_up(void)
{
        return up;
}

bool daemon_may_answer(void)
{
        return has_daemon;
}

uint32_t daemon_say(struct wire_message *m, unsigned type)
{
        said = *m;
        names += type == WIRE_NAME;
        peers += type == WIRE_PEER;
        return ++sequence;
}

void ipc_export_handle(struct ipc_link *l, const struct wire_message *m)
{
        exports_heard++;
        heard_of = l;
        heard = *m;
}

void ipc_import_handle(struct ipc_link *l, const struct wire_message *m, struct passed *came)
{
        imports_heard++;
        heard_of = l;
        heard = *m;
        came_along = came->count;
}

void ipc_export_lost(struct ipc_link *l)
{
        exports_lost++;
        lost = l;
}

void ipc_import_lost(struct ipc_link *l)
{
        imports_lost++;
        lost = l;
}

bool ipc_export_step(void)
{
        return export_more;
}

/* ---- the daemon ---- */

static int connection(void)
{
        int pair[2];

        assert_int_equal(
                socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
        theirs = pair[1];
        return pair[0];
}

/* Delivers the daemon's message PEERED, with a descriptor unless fd < 0. */
static void peered(const uint8_t *name, uint32_t of, int fd)
{
        struct wire_message m = {.header.type = WIRE_PEERED};
        struct passed came = {0};

        if (name)
                memcpy(m.PEERED.name, name, IPC_NAME);
        m.PEERED.of = of;
        if (fd >= 0)
                passed_add(&came, fd);
        ipc_on_peered(&m, &came);
        passed_close(&came);
}

static void refused(uint32_t of)
{
        struct wire_message m = {.header.type = WIRE_REFUSED};

        m.REFUSED.of = of;
        ipc_on_refused(&m);
}

static void name_is_known(const uint8_t *name)
{
        struct wire_message m = {.header.type = WIRE_NAMED};

        memcpy(m.NAMED.name, name, IPC_NAME);
        ipc_on_named(&m);
}

/* Called while a thread waits, with the lock held. */
static void (*then)(void);

static void while_waiting(const struct core_wait *w)
{
        assert_true(++waits < 1000);
        lock_acquire(&core_lock);
        then();
        lock_release(&core_lock);
}

static void connect_them(void)
{
        if (theirs >= 0)
                (void)close(theirs);
        peered(you, sequence, connection());
}

static void refuse(void)
{
        clock_ns += 10 * NSEC_PER_MSEC; /* each wait takes 10 ms */
        refused(sequence);
}

static int begin(void **state)
{
        before = open_descriptors();
        core_lock = (struct lock){0};
        core = (struct core){0};
        up = has_daemon = true;
        export_more = false;
        clock_ns += 100 * NSEC_PER_SEC;
        names = peers = waits = 0;
        request_kicks = 0;
        exports_heard = imports_heard = exports_lost = imports_lost = came_along = 0;
        heard_of = lost = NULL;
        meanwhile = while_waiting;
        then = connect_them;
        theirs = -1;
        lock_acquire(&core_lock);
        return 0;
}

static int end(void **state)
{
        if (theirs >= 0)
                (void)close(theirs);
        ipc_forget();
        assert_int_equal(ipc_poll_fd(), -EBADF);
        assert_int_equal(open_descriptors(), before);
        lock_release(&core_lock);
        return 0;
}

static bool rings(void (*what)(void))
{
        uint32_t was = bell_listen(&core.changed);

        what();
        return bell_listen(&core.changed) != was;
}

/* ---- our name ---- */

static void a_process_without_a_name_sends_none(void **state)
{
        assert_true(rings(ipc_connected));
        assert_int_equal(names, 0);
}

static void a_name_is_random_and_sent_once(void **state)
{
        static const uint8_t nobody[IPC_NAME];

        up = false; /* the daemon is told the name when it is up */
        assert_int_equal(ipc_be_named(), 0);
        assert_int_equal(names, 1);
        assert_memory_not_equal(ipc_name, nobody, IPC_NAME);
        assert_memory_equal(said.NAME.name, ipc_name, IPC_NAME);
        assert_int_equal(ipc_be_named(), 0);
        assert_int_equal(names, 1);
        assert_int_equal(waits, 0);
}

static void hear_of_names(void)
{
        name_is_known(waits < 3 ? other : ipc_name);
}

static void a_process_waits_until_the_daemon_knows_its_name(void **state)
{
        then = hear_of_names;
        assert_int_equal(ipc_be_named(), 0);
        assert_int_equal(waits, 3);
        assert_int_equal(ipc_be_named(), 0);
        assert_int_equal(waits, 3);
        assert_true(rings(ipc_disconnected)); /* the next daemon does not know the name */
        assert_int_equal(ipc_be_named(), 0);
        assert_int_equal(waits, 4);
}

static void go_down(void)
{
        up = false;
        ipc_disconnected();
}

static void become_a_bystander(void)
{
        atomic_store(&core.bystander, true);
        bell_ring(&core.changed);
}

static void a_process_does_not_wait_for_a_lost_daemon(void **state)
{
        ipc_disconnected();
        then = go_down;
        assert_int_equal(ipc_be_named(), 0);
        assert_int_equal(waits, 1);
        up = true;
        then = become_a_bystander;
        assert_int_equal(ipc_be_named(), 0);
        assert_int_equal(waits, 2);
}

/* ---- connecting, with the first daemon ---- */

static void an_unknown_process_gets_no_connection(void **state)
{
        then = refuse;
        assert_null(ipc_meet(you));
        assert_int_equal(peers, 1);
        assert_memory_equal(said.PEER.name, you, IPC_NAME);
}

static void no_connection_is_made_without_a_daemon(void **state)
{
        up = has_daemon = false;
        assert_null(ipc_meet(you));
        assert_int_equal(waits + peers, 0);
        atomic_store(&core.bystander, true);
        up = has_daemon = true;
        assert_null(ipc_meet(you));
        assert_int_equal(waits + peers, 0);
}

/* ---- connecting, with the second daemon ---- */

static void a_new_daemon_is_told_the_name(void **state)
{
        ipc_connected();
        assert_int_equal(names, 1);
        assert_memory_equal(said.NAME.name, ipc_name, IPC_NAME);
}

static void a_missing_process_is_asked_for_again_after_a_daemons_end(void **state)
{
        uint64_t begun = clock_ns;

        ipc_connected();
        then = refuse;
        assert_null(ipc_meet(you));
        assert_in_range(clock_ns - begun, 3 * NSEC_PER_SEC + 1,
                        3 * NSEC_PER_SEC + 60 * NSEC_PER_MSEC);
        assert_in_range(peers, 50, 62); /* asks about every 50 ms */
        peers = 0;
        assert_null(ipc_meet(you));
        assert_int_equal(peers, 1);
}

static void connect_after_a_second(void)
{
        clock_ns += 10 * NSEC_PER_MSEC;
        if (waits < 100)
                refused(sequence);
        else
                connect_them();
}

static void a_process_that_returns_in_time_is_connected(void **state)
{
        struct ipc_link *l;

        ipc_connected();
        then = connect_after_a_second;
        l = ipc_meet(you);
        assert_non_null(l);
        ipc_part(l);
}

static void come_up(void)
{
        clock_ns += 10 * NSEC_PER_MSEC;
        if (up)
                connect_them();
        else
                up = waits == 7;
}

static void a_connection_waits_for_an_absent_daemon(void **state)
{
        struct ipc_link *l;

        up = false;
        then = come_up;
        l = ipc_meet(you);
        assert_non_null(l);
        assert_int_equal(peers, 1);
        assert_int_equal(waits, 11); /* two times 5 until it sees the daemon, 1 for the answer */
        ipc_part(l);
}

static void go_down_once(void)
{
        clock_ns += 10 * NSEC_PER_MSEC;
        if (waits == 1)
                go_down();
        else if (waits == 2)
                up = true;
        else if (peers == 2)
                connect_them();
}

static void a_question_lost_with_its_daemon_is_asked_again(void **state)
{
        struct ipc_link *l;

        then = go_down_once;
        l = ipc_meet(you);
        assert_non_null(l);
        assert_int_equal(peers, 2);
        ipc_part(l);
}

static void a_bystander_stops_waiting_for_a_connection(void **state)
{
        then = become_a_bystander;
        assert_null(ipc_meet(you));
        assert_int_equal(peers, 1);
}

static void stray_answers(void)
{
        uint32_t was = bell_listen(&core.changed);

        if (waits == 1) {
                refused(sequence + 1);
                peered(you, sequence + 1, connection());
                assert_int_equal(bell_listen(&core.changed), was);
                (void)close(theirs);
                bell_ring(&core.changed);
        } else {
                connect_them();
                was = bell_listen(&core.changed);
                refused(sequence); /* this question has been answered */
                assert_int_equal(bell_listen(&core.changed), was);
        }
}

static void a_connection_is_asked_for_once(void **state)
{
        struct ipc_link *l;

        then = stray_answers;
        l = ipc_meet(you);
        assert_non_null(l);
        assert_false(l->exporter);
        assert_memory_equal(l->name, you, IPC_NAME);
        assert_int_equal(request_kicks, 1); /* the agent must listen to one more connection */
        assert_true(ipc_poll_fd() >= 0);
        assert_ptr_equal(ipc_meet(you), l);
        assert_int_equal(peers, 1);
        then = refuse;
        assert_null(ipc_meet(other));
        l->lost = true; /* so a new connection is requested */
        assert_null(ipc_meet(you));
        ipc_part(l);
}

static void an_unexpected_connection_is_closed(void **state)
{
        int fd = connection();

        peered(you, 0, fd);
        assert_int_equal(fcntl(fd, F_GETFD), -1);
        (void)close(theirs);
        fd = connection();
        peered(you, sequence, fd);
        assert_int_equal(fcntl(fd, F_GETFD), -1);
        peered(NULL, 0, -1); /* without a descriptor */
        assert_int_equal(ipc_poll_fd(), -EBADF);
}

static void pass_what_is_no_socket(void)
{
        peered(you, sequence, open("/dev/null", O_RDONLY | O_CLOEXEC));
}

static void a_descriptor_that_is_no_socket_is_closed(void **state)
{
        then = pass_what_is_no_socket;
        assert_null(ipc_meet(you));
}

static sem_t sleeps, resume;

static void *meet_too(void *ret)
{
        lock_acquire(&core_lock);
        *(struct ipc_link **)ret = ipc_meet(you);
        lock_release(&core_lock);
        return NULL;
}

static struct ipc_link *met_by_thread;
static pthread_t second;

/* The second thread sleeps in its wait until the first one has their connection. */
static void wait_in_turn(const struct core_wait *w)
{
        if (waits == 0) {
                waits = 1;
                assert_int_equal(pthread_create(&second, NULL, meet_too, &met_by_thread), 0);
                (void)sem_wait(&sleeps);
                lock_acquire(&core_lock);
                connect_them();
                lock_release(&core_lock);
        } else if (waits == 1) {
                waits = 2;
                (void)sem_post(&sleeps);
                (void)sem_wait(&resume);
        } else {
                lock_acquire(&core_lock);
                peered(you, sequence, dup(theirs));
                lock_release(&core_lock);
        }
}

static void two_threads_share_a_connection_to_one_process(void **state)
{
        struct ipc_link *l;

        (void)sem_init(&sleeps, 0, 0);
        (void)sem_init(&resume, 0, 0);
        meanwhile = wait_in_turn;
        l = ipc_meet(you);
        lock_release(&core_lock);
        (void)sem_post(&resume);
        assert_int_equal(pthread_join(second, NULL), 0);
        lock_acquire(&core_lock);
        assert_non_null(l);
        assert_ptr_equal(met_by_thread, l);
        assert_int_equal(peers, 2); /* both asked, one after the other */
        ipc_part(l);
}

/* ---- messages that arrive ---- */

static void send_close(unsigned times)
{
        struct wire_message m = {.header = {.type = WIRE_CLOSE, .gpu = WIRE_NO_GPU}};

        for (unsigned i = 0; i < times; i++)
                assert_int_equal(link_send(theirs, &m, NULL, 0), 0);
}

static void messages_of_an_importer_are_handled(void **state)
{
        peered(NULL, 0, connection()); /* another process has asked for this one */
        assert_int_equal(request_kicks, 1);
        assert_false(ipc_step());
        send_close(1);
        assert_false(ipc_step());
        assert_int_equal(exports_heard, 1);
        assert_int_equal(heard.header.type, WIRE_CLOSE);
        assert_true(heard_of->exporter);
        then = refuse;
        assert_null(ipc_meet((const uint8_t[IPC_NAME]){0})); /* no process has this name */
        (void)close(theirs);
        theirs = -1;
        (void)ipc_step();
        assert_int_equal(exports_lost, 1);
        assert_ptr_equal(lost, heard_of);
        assert_int_equal(open_descriptors(), before + 1); /* the descriptor for polling */
}

static void descriptors_of_an_exporters_message_are_closed(void **state)
{
        struct wire_message m = {.header = {.type = WIRE_OPENED, .gpu = WIRE_NO_GPU}};
        struct ipc_link *l = ipc_meet(you);
        const int fds[] = {theirs, theirs};
        unsigned open;

        open = open_descriptors();
        assert_int_equal(link_send(theirs, &m, fds, 2), 0);
        (void)ipc_step();
        assert_int_equal(imports_heard, 1);
        assert_int_equal(came_along, 2);
        assert_ptr_equal(heard_of, l);
        assert_int_equal(open_descriptors(), open);
        ipc_part(l);
}

static void a_peer_with_many_messages_is_heard_in_turns(void **state)
{
        struct ipc_link *l = ipc_meet(you);

        send_close(65);
        (void)ipc_step();
        assert_int_equal(imports_heard, 64);
        (void)ipc_step();
        assert_int_equal(imports_heard, 65);
        (void)ipc_step();
        assert_int_equal(imports_heard, 65);
        ipc_part(l);
}

static void a_forbidden_message_ends_the_connection(void **state)
{
        struct wire_message m = {.header = {.type = WIRE_NAMED, .gpu = WIRE_NO_GPU}};
        struct ipc_link *l = ipc_meet(you);

        assert_int_equal(link_send(theirs, &m, NULL, 0), 0); /* only a daemon may send this */
        send_close(1);
        (void)ipc_step();
        assert_int_equal(imports_heard, 0);
        assert_int_equal(imports_lost, 1);
        assert_ptr_equal(lost, l);
}

static void a_lost_exporter_stays_as_long_as_its_memory(void **state)
{
        struct ipc_link *l = ipc_meet(you);
        struct pollfd listened;

        l->imports = 1;
        (void)close(theirs);
        theirs = -1;
        (void)ipc_step();
        assert_true(imports_lost > 0);
        assert_true(l->lost);
        assert_true(fcntl(l->fd, F_GETFD) >= 0);
        listened = (struct pollfd){.fd = ipc_poll_fd(), .events = POLLIN};
        assert_int_equal(poll(&listened, 1, 0), 0); /* the lost connection wakes no thread */
        then = refuse;
        assert_null(ipc_meet(you));
        l->imports = 0;
        ipc_part(l);
        imports_lost = 0;
        (void)ipc_step();
        assert_int_equal(imports_lost, 0);
}

static void a_step_tells_whether_more_messages_wait(void **state)
{
        int ends[16];

        for (unsigned i = 0; i < 16; i++) {
                peered(NULL, 0, connection());
                ends[i] = theirs;
                if (i < 15)
                        send_close(1);
        }
        assert_false(ipc_step());
        for (unsigned i = 0; i < 16; i++) {
                theirs = ends[i];
                send_close(1);
        }
        assert_true(ipc_step()); /* it handled as many as one poll returns */
        assert_false(ipc_step());
        assert_int_equal(exports_heard, 31);
        export_more = true;
        assert_true(ipc_step());
        for (unsigned i = 0; i < 16; i++)
                (void)close(ends[i]);
        theirs = -1;
        export_more = false;
        (void)ipc_step();
        assert_int_equal(exports_lost, 16);
}

static void a_message_reaches_the_peer_unchanged(void **state)
{
        struct ipc_link *l = ipc_meet(you);
        struct wire_message m = {0}, got;
        struct passed came;

        memcpy(m.CLOSE.secret, other, IPC_NAME);
        ipc_send(l, &m, WIRE_CLOSE, &theirs, 1);
        assert_int_equal(link_receive(theirs, WIRE_ACROSS, &got, &came), 1);
        assert_int_equal(got.header.type, WIRE_CLOSE);
        assert_int_equal(got.header.gpu, WIRE_NO_GPU);
        assert_memory_equal(got.CLOSE.secret, other, IPC_NAME);
        assert_int_equal(came.count, 1);
        passed_close(&came);
        l->lost = true;
        ipc_send(l, &m, WIRE_CLOSE, NULL, 0);
        assert_int_equal(link_receive(theirs, WIRE_ACROSS, &got, &came), 0);
        ipc_part(l);
}

static void a_peer_that_has_closed_its_end_is_lost(void **state)
{
        struct ipc_link *l = ipc_meet(you);
        struct wire_message m = {0};

        request_kicks = 0;
        ipc_send(l, &m, WIRE_CLOSE, NULL, 0);
        assert_false(l->lost);
        assert_int_equal(request_kicks, 0);
        (void)close(theirs);
        theirs = -1;
        ipc_send(l, &m, WIRE_CLOSE, NULL, 0);
        assert_true(l->lost);
        assert_int_equal(request_kicks, 1); /* wakes the agent, which cleans up */
        (void)ipc_step();
        assert_int_equal(imports_lost, 1);
}

static void messages_of_a_closed_connection_are_ignored(void **state)
{
        struct ipc_link *l = ipc_meet(you), nobody = {.fd = -1};
        int childs = dup(l->fd);

        ipc_part(&nobody);
        ipc_part(l);
        assert_int_equal(fcntl(childs, F_GETFD), 0);
        send_close(1); /* a child of the program still has the socket */
        (void)ipc_step();
        assert_int_equal(imports_heard, 0);
        (void)close(childs);
}

static void a_child_has_no_connections(void **state)
{
        struct ipc_link *l = ipc_meet(you);

        ipc_forget();
        then = refuse;
        assert_null(ipc_meet(you));
        assert_false(ipc_step());
        free(l);
}

#define LINK_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                LINK_TEST(a_process_without_a_name_sends_none),
                LINK_TEST(a_name_is_random_and_sent_once),
                LINK_TEST(a_process_waits_until_the_daemon_knows_its_name),
                LINK_TEST(a_process_does_not_wait_for_a_lost_daemon),
                LINK_TEST(an_unknown_process_gets_no_connection),
                LINK_TEST(no_connection_is_made_without_a_daemon),
                LINK_TEST(a_new_daemon_is_told_the_name),
                LINK_TEST(a_missing_process_is_asked_for_again_after_a_daemons_end),
                LINK_TEST(a_process_that_returns_in_time_is_connected),
                LINK_TEST(a_connection_waits_for_an_absent_daemon),
                LINK_TEST(a_question_lost_with_its_daemon_is_asked_again),
                LINK_TEST(a_bystander_stops_waiting_for_a_connection),
                LINK_TEST(a_connection_is_asked_for_once),
                LINK_TEST(an_unexpected_connection_is_closed),
                LINK_TEST(a_descriptor_that_is_no_socket_is_closed),
                LINK_TEST(two_threads_share_a_connection_to_one_process),
                LINK_TEST(messages_of_an_importer_are_handled),
                LINK_TEST(descriptors_of_an_exporters_message_are_closed),
                LINK_TEST(a_peer_with_many_messages_is_heard_in_turns),
                LINK_TEST(a_forbidden_message_ends_the_connection),
                LINK_TEST(a_lost_exporter_stays_as_long_as_its_memory),
                LINK_TEST(a_step_tells_whether_more_messages_wait),
                LINK_TEST(a_message_reaches_the_peer_unchanged),
                LINK_TEST(a_peer_that_has_closed_its_end_is_lost),
                LINK_TEST(messages_of_a_closed_connection_are_ignored),
                LINK_TEST(a_child_has_no_connections),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
