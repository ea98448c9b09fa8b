/* test_host_pool.c: host pools grow as far as their tenant may have memory, by turns, and what a
 * process leaves behind is taken away. With real memfds and a filler that works at once or later.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/macros.h"
#include "daemon/lend/filler.h"
#include "daemon/lend/host_pool.h"
#include "fakes/daemon.h"

#define CLIENTS 4u
#define PIECE   HOST_POOL_PIECE

static struct config config;
static struct server server;
static struct client clients[CLIENTS];
static pid_t processes[CLIENTS];
static struct wire_message sent[CLIENTS][64];
static int sent_fd[CLIENTS]; /* that came with the last HOST_POOL; -1: none */
static unsigned sent_count[CLIENTS];

/* ---- the filler ---- */

struct filler {
        filler_told told;
        bool busy;
};

static struct filler filler;
static unsigned orders[3]; /* how often each was given */
static bool no_room, no_process;
static struct {
        enum filler_order order;
        int fd; /* a duplicate */
        uint64_t offset, bytes;
} now;
static struct stat now_file; /* the memfd of the last order */

int filler_new(sd_event *event, filler_told told, void *userdata, struct filler **ret)
{
        assert_ptr_equal(userdata, &server);
        filler = (struct filler){.told = told};
        *ret = &filler;
        return 0;
}

void filler_free(struct filler *f)
{
}

bool filler_is_busy(const struct filler *f)
{
        return f->busy;
}

int filler_order(struct filler *f, enum filler_order order, int fd, uint64_t offset, uint64_t bytes)
{
        assert_false(f->busy);
        if (no_process)
                return -EAGAIN;
        orders[order]++;
        now.order = order;
        now.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        now.offset = offset;
        now.bytes = bytes;
        assert_int_equal(fstat(fd, &now_file), 0);
        f->busy = true;
        return 0;
}

/* Carries out the order that was given. */
static void work(void)
{
        int r = 0;
        uint64_t next = UINT64_MAX;
        off_t data;

        assert_true(filler.busy);
        if (now.order == FILLER_FILL) {
                r = no_room ? -ENOMEM : fallocate(now.fd, 0, (off_t)now.offset, (off_t)now.bytes);
                assert_in_range(now.bytes, 1, PIECE);
        } else if (now.order == FILLER_PUNCH) {
                assert_int_equal(fallocate(now.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                           (off_t)now.offset, (off_t)now.bytes),
                                 0);
                data = lseek(now.fd, (off_t)(now.offset + now.bytes), SEEK_DATA);
                next = data < 0 ? UINT64_MAX : (uint64_t)data;
        }
        (void)close(now.fd);
        filler.busy = false;
        filler.told(&server, r, next);
}

static void work_all(void)
{
        while (filler.busy)
                work();
}

/* ---- other modules ---- */

static unsigned number_of(const struct client *c)
{
        return (unsigned)(c - clients);
}

void client_send(struct client *c, struct wire_message *m)
{
        client_send_with(c, m, NULL, 0);
}

void client_send_with(struct client *c, struct wire_message *m, const int *fds, unsigned n_fds)
{
        const unsigned i = number_of(c);

        assert_true(sent_count[i] < ARRAY_SIZE(sent[i]));
        if (m->header.type == WIRE_HOST_POOL) {
                if (sent_fd[i] >= 0)
                        (void)close(sent_fd[i]);
                sent_fd[i] = n_fds ? fcntl(fds[0], F_DUPFD_CLOEXEC, 0) : -1;
        }
        sent[i][sent_count[i]++] = *m;
}

bool peer_ended(int pidfd)
{
        struct pollfd p = {.fd = pidfd, .events = POLLIN};

        return poll(&p, 1, 0) == 1;
}

ino_t peer_own_container(const struct peer *p)
{
        return p->container;
}

bool peer_same_account(const struct peer *a, const struct peer *b)
{
        return tenant_same(&a->tenant, &b->tenant);
}

/* ---- scenes ---- */

static int begin(void **state)
{
        memset(&config, 0, sizeof(config));
        config.host_pool_bytes = 1024 * MIB;
        config.connections_per_user = 3;
        server = (struct server){.config = &config, .host_budget_bytes = 64 * GIB};
        assert_int_equal(sd_event_new(&server.event), 0);
        memset(orders, 0, sizeof(orders));
        no_room = no_process = false;
        assert_int_equal(host_pools_new(&server), 0);
        for (unsigned i = 0; i < CLIENTS; i++) {
                processes[i] = fork();
                if (processes[i] == 0) {
                        (void)pause();
                        _exit(0);
                }
                clients[i] = (struct client){
                        .server = &server,
                        .id = i + 1,
                        .fd = 1,
                        .peer = {.pid = processes[i],
                                 .uid = 1000,
                                 .pidfd = (int)syscall(SYS_pidfd_open, processes[i], 0)},
                        .next = i + 1 < CLIENTS ? &clients[i + 1] : NULL};
                sent_fd[i] = -1;
                sent_count[i] = 0;
        }
        server.clients = &clients[0];
        return 0;
}

static void end_process(unsigned i)
{
        if (!processes[i])
                return;
        (void)kill(processes[i], SIGKILL);
        assert_int_equal(waitpid(processes[i], NULL, 0), processes[i]);
        processes[i] = 0;
}

static int end(void **state)
{
        host_pools_free(&server);
        for (unsigned i = 0; i < CLIENTS; i++) {
                end_process(i);
                (void)close(clients[i].peer.pidfd);
                if (sent_fd[i] >= 0)
                        (void)close(sent_fd[i]);
        }
        (void)sd_event_unref(server.event);
        filler.busy = false;
        return 0;
}

static const struct wire_message *last(unsigned i)
{
        assert_true(sent_count[i] > 0);
        return &sent[i][sent_count[i] - 1];
}

static int ask(unsigned i, uint64_t to, uint64_t kept)
{
        struct wire_message m = {.header = {.type = WIRE_FILL}, .FILL = {.end = to, .kept = kept}};

        return host_pool_fill(&clients[i], &m);
}

static void check_filled(unsigned i, uint64_t filled, bool refused)
{
        assert_int_equal(last(i)->header.type, WIRE_FILLED);
        assert_int_equal(last(i)->FILLED.filled, filled);
        assert_int_equal(last(i)->FILLED.refused, refused);
}

static uint64_t blocks(int fd)
{
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return (uint64_t)st.st_blocks * 512;
}

static void a_process_gets_one_sealed_memfd(void **state)
{
        host_pool_attached(&clients[0]);
        host_pool_attached(&clients[0]); /* its second GPU */
        assert_int_equal(sent_count[0], 1);
        assert_int_equal(last(0)->HOST_POOL.bytes, 1024 * MIB);
        assert_int_equal(last(0)->HOST_POOL.filled, 0);
        assert_true(sent_fd[0] >= 0);
        assert_int_equal(blocks(sent_fd[0]), 0);
        assert_int_equal(ftruncate(sent_fd[0], 0), -1);
        assert_int_equal(ftruncate(sent_fd[0], (off_t)(2 * HOST_POOL_SIZE)), -1);
        assert_int_equal(fcntl(sent_fd[0], F_ADD_SEALS, F_SEAL_WRITE), -1);
        assert_int_equal(host_pool_held(&clients[0]), 0);
        assert_int_equal(host_pool_held(&clients[1]), 0);
}

static void without_the_setting_nobody_gets_one(void **state)
{
        config.host_pool_bytes = 0;
        host_pool_attached(&clients[0]);
        assert_int_equal(sent_count[0], 0);
        assert_int_equal(ask(0, PIECE, 0), 0);
        assert_int_equal(sent_count[0], 0);
}

static void a_process_that_the_daemon_cannot_see_gets_none(void **state)
{
        const int pidfd = clients[0].peer.pidfd;

        clients[0].peer.pidfd = -EBADF;
        host_pool_attached(&clients[0]);
        clients[0].peer.pidfd = pidfd;
        clients[1].peer.pid = 0;
        host_pool_attached(&clients[1]);
        assert_int_equal(sent_count[0] + sent_count[1], 0);
}

/* SIGXFSZ would end the daemon. */
static void a_limit_of_file_sizes_allows_none(void **state)
{
        struct rlimit before, small;

        assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
        small = before;
        small.rlim_cur = GIB;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
        host_pool_attached(&clients[0]);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
        assert_int_equal(sent_count[0], 0);
        assert_null(clients[0].pool);
}

static void it_is_filled_piece_by_piece(void **state)
{
        host_pool_attached(&clients[0]);
        assert_int_equal(ask(0, 2 * PIECE + 4 * MIB, 0), 0);
        assert_int_equal(ask(0, 2 * PIECE + 4 * MIB, 0), 0); /* said again: no matter */
        work();
        check_filled(0, PIECE, false);
        work();
        check_filled(0, 2 * PIECE, false);
        work();
        check_filled(0, 2 * PIECE + 4 * MIB, false);
        assert_int_equal(last(0)->FILLED.end, 2 * PIECE + 4 * MIB);
        assert_false(filler.busy);
        assert_int_equal(blocks(sent_fd[0]), 2 * PIECE + 4 * MIB);
        assert_int_equal(host_pool_held(&clients[0]), 2 * PIECE + 4 * MIB);
        assert_int_equal(ask(0, PIECE, 0), 0); /* less: it has that */
        check_filled(0, 2 * PIECE + 4 * MIB, false);
        assert_int_equal(orders[FILLER_FILL], 3);
}

static void a_tenant_gets_no_more_than_the_bound(void **state)
{
        config.host_pool_bytes = PIECE + 7 * MIB;
        clients[2].peer.uid = 2000;
        for (unsigned i = 0; i < 3; i++)
                host_pool_attached(&clients[i]);
        assert_int_equal(ask(0, PIECE, 0), 0);
        work_all();
        assert_int_equal(ask(1, PIECE, 0), 0);
        work_all();
        check_filled(1, 6 * MIB, true); /* whole units */
        assert_int_equal(ask(2, PIECE, 0), 0);
        work_all();
        check_filled(2, PIECE, false); /* another user */
        /* What a process gives back, and what it touches itself, counts at once. */
        assert_int_equal(fallocate(sent_fd[0], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                                   (off_t)(8 * MIB)),
                         0);
        assert_int_equal(fallocate(sent_fd[0], 0, (off_t)GIB, (off_t)(4 * MIB)), 0);
        assert_int_equal(ask(1, PIECE, 0), 0);
        work_all();
        check_filled(1, 10 * MIB, true);
        /* So does what earlier daemons gave, as it says. */
        assert_int_equal(ask(0, PIECE, 3 * MIB), 0);
        assert_int_equal(host_pool_held(&clients[0]), PIECE - 4 * MIB + 3 * MIB);
        assert_int_equal(ask(1, 12 * MIB, 0), 0);
        check_filled(1, 10 * MIB, true);
}

static struct sched_account_view view;

int sched_account_view(const struct sched *s, sched_client id, unsigned gpu,
                       struct sched_account_view *ret)
{
        *ret = view;
        return 0;
}

static void what_a_frozen_program_cannot_give_back_does_not_count(void **state)
{
        config.host_pool_bytes = 2 * PIECE;
        server.gpus.n = 1;
        for (unsigned i = 0; i < 2; i++)
                host_pool_attached(&clients[i]);
        view.usage = (struct sched_usage){
                .arena = PIECE, .allocated = 8 * PIECE, .backed = 8 * PIECE - 8 * MIB};
        view.limit = UINT64_MAX;
        assert_int_equal(ask(0, 2 * PIECE, 0), 0);
        work_all();
        assert_int_equal(ask(1, 2 * PIECE, 0), 0);
        check_filled(1, 0, true);
        clients[0].frozen.since_ns = 1; /* but nobody has asked it for memory */
        assert_int_equal(ask(1, 2 * PIECE, 0), 0);
        check_filled(1, 0, true);
        clients[0].accounts[0].unpin_told = true;
        clients[0].frozen.since_ns = 0; /* it will give it back */
        assert_int_equal(ask(1, 2 * PIECE, 0), 0);
        check_filled(1, 0, true);
        clients[0].frozen.since_ns = 1;
        assert_int_equal(ask(1, 2 * PIECE, 0), 0);
        work_all();
        check_filled(1, PIECE - 8 * MIB, true);
        view.usage.arena = 100 * PIECE; /* that is not true: it holds two pieces */
        assert_int_equal(ask(1, 8 * PIECE, 0), 0);
        work_all();
        check_filled(1, 2 * PIECE, true);
        server.gpus.n = 0;
}

/* Of three clients that ask for the whole bound each. */
static void check_the_first_two_are_one_tenant(void)
{
        config.host_pool_bytes = PIECE;
        for (unsigned i = 0; i < 3; i++) {
                host_pool_attached(&clients[i]);
                assert_int_equal(ask(i, PIECE, 0), 0);
                work_all();
        }
        check_filled(0, PIECE, false);
        check_filled(1, 0, true);
        check_filled(2, PIECE, false);
}

static void a_container_is_a_tenant_whatever_its_users(void **state)
{
        for (unsigned i = 0; i < 3; i++) {
                clients[i].peer.uid = i;
                clients[i].peer.container = i < 2 ? 5 : 6;
        }
        check_the_first_two_are_one_tenant();
}

static void a_pod_is_a_tenant_with_all_its_containers(void **state)
{
        for (unsigned i = 0; i < 3; i++) {
                clients[i].peer.container = 5 + i;
                clients[i].peer.tenant = (struct tenant){TENANT_POD, {i < 2 ? '1' : '2'}};
        }
        check_the_first_two_are_one_tenant();
}

static void all_pools_together_stay_within_the_daemons_budget(void **state)
{
        server.host_budget_bytes = 2 * PIECE;
        server.host_mapped = PIECE / 2;
        for (unsigned i = 0; i < 2; i++) {
                clients[i].peer.uid = 1000 + i;
                host_pool_attached(&clients[i]);
        }
        assert_int_equal(ask(0, PIECE, 0), 0);
        work_all();
        assert_int_equal(ask(1, PIECE, 0), 0);
        work_all();
        check_filled(1, PIECE / 2, true);
        assert_int_equal(host_pools_held(&server), 3 * PIECE / 2);
}

static void without_memory_it_is_refused_and_may_ask_again(void **state)
{
        host_pool_attached(&clients[0]);
        no_room = true;
        assert_int_equal(ask(0, PIECE, 0), 0);
        work();
        check_filled(0, 0, true);
        assert_false(filler.busy);
        no_room = false;
        no_process = true;
        assert_int_equal(ask(0, PIECE, 0), 0);
        check_filled(0, 0, true);
        no_process = false;
        assert_int_equal(ask(0, PIECE, 0), 0);
        work();
        check_filled(0, PIECE, false);
}

/* Neither a large request nor many processes of one tenant keep another one waiting. */
static void tenants_get_their_pieces_by_turns(void **state)
{
        struct stat third;
        unsigned waited = 0;

        clients[2].peer.uid = 2000;
        for (unsigned i = 0; i < 3; i++)
                host_pool_attached(&clients[i]);
        assert_int_equal(ask(0, 7 * PIECE, 0), 0);
        assert_int_equal(ask(1, 7 * PIECE, 0), 0);
        work();
        work();
        assert_int_equal(ask(2, PIECE, 0), 0);
        assert_int_equal(fstat(sent_fd[2], &third), 0);
        while (now_file.st_ino != third.st_ino) {
                work();
                waited++;
        }
        assert_int_equal(waited, 1); /* the piece that was under way */
        work_all();
        check_filled(2, PIECE, false);
        check_filled(0, 7 * PIECE, false);
        check_filled(1, 7 * PIECE, false);
}

static void figures_that_cannot_be_are_refused(void **state)
{
        host_pool_attached(&clients[0]);
        assert_int_equal(ask(0, HOST_POOL_SIZE + 1, 0), -EINVAL);
        assert_int_equal(ask(0, 0, UINT64_MAX), -EINVAL);
        assert_int_equal(ask(0, HOST_POOL_SIZE, 0), 0);
        work_all();
        check_filled(0, 1024 * MIB, true);
}

static void the_process_keeps_its_pool_over_a_lost_connection(void **state)
{
        struct stat before, after;

        host_pool_attached(&clients[0]);
        assert_int_equal(ask(0, 4 * PIECE, 0), 0);
        work();
        assert_int_equal(fstat(sent_fd[0], &before), 0);
        /* The daemon still knows the record of the old connection. */
        clients[1].peer.pid = clients[0].peer.pid;
        host_pool_attached(&clients[1]);
        assert_null(clients[0].pool);
        assert_int_equal(fstat(sent_fd[1], &after), 0);
        assert_int_equal(after.st_ino, before.st_ino);
        work_all(); /* the piece that was under way */
        assert_int_equal(host_pool_held(&clients[1]), 2 * PIECE);
        /* It does not know the record any more. */
        host_pool_left(&clients[1]);
        assert_int_equal(host_pools_held(&server), 2 * PIECE);
        assert_false(filler.busy);
        clients[2].peer.pid = clients[0].peer.pid;
        host_pool_attached(&clients[2]);
        assert_int_equal(last(2)->HOST_POOL.filled, 2 * PIECE);
        assert_int_equal(fstat(sent_fd[2], &after), 0);
        assert_int_equal(after.st_ino, before.st_ino);
        assert_int_equal(blocks(sent_fd[2]), 2 * PIECE);
        assert_int_equal(ask(2, 3 * PIECE, 0), 0);
        work_all();
        check_filled(2, 3 * PIECE, false);
}

/* Another process may have inherited the memfd. */
static void what_a_process_leaves_behind_is_taken_away(void **state)
{
        host_pool_attached(&clients[0]);
        host_pool_attached(&clients[1]);
        assert_int_equal(ask(0, 6 * PIECE, 0), 0);
        work_all();
        assert_int_equal(pwrite(sent_fd[0], "x", 1, (off_t)(100 * GIB)), 1);
        assert_int_equal(ask(1, 6 * PIECE, 0), 0); /* under way */
        end_process(0);
        host_pool_left(&clients[0]);
        work_all();
        assert_int_equal(blocks(sent_fd[0]), 0);
        check_filled(1, 6 * PIECE, false);
        assert_int_equal(host_pools_held(&server), 6 * PIECE);
        assert_int_equal(orders[FILLER_CLOSE], 1);
}

static void a_process_that_ends_while_it_is_served_leaves_nothing(void **state)
{
        host_pool_attached(&clients[0]);
        assert_int_equal(ask(0, 6 * PIECE, 0), 0);
        work();
        end_process(0);
        host_pool_left(&clients[0]);
        assert_true(filler.busy);
        work_all();
        assert_int_equal(blocks(sent_fd[0]), 0);
        assert_int_equal(host_pools_held(&server), 0);
}

/* The connection has ended, and the record: the end of the process is seen by the loop. */
static void a_process_without_a_connection_is_watched(void **state)
{
        host_pool_attached(&clients[0]);
        assert_int_equal(ask(0, PIECE, 0), 0);
        work_all();
        host_pool_left(&clients[0]);
        assert_int_equal(sd_event_run(server.event, 0), 0);
        assert_int_equal(blocks(sent_fd[0]), PIECE);
        end_process(0);
        while (!filler.busy)
                assert_true(sd_event_run(server.event, UINT64_MAX) >= 0);
        work_all();
        assert_int_equal(blocks(sent_fd[0]), 0);
}

static void a_user_gets_only_so_many(void **state)
{
        for (unsigned i = 0; i < CLIENTS; i++) {
                host_pool_attached(&clients[i]);
                host_pool_left(&clients[i]);
        }
        assert_int_equal(sent_count[2], 1);
        assert_int_equal(sent_count[3], 0);
        clients[3].peer.trusted = true;
        host_pool_attached(&clients[3]);
        assert_int_equal(sent_count[3], 1);
}

static void a_reload_changes_the_bound_for_all(void **state)
{
        clients[3].id = 0; /* it has attached no GPU yet */
        config.host_pool_bytes = 0;
        host_pool_attached(&clients[0]);
        config.host_pool_bytes = PIECE;
        host_pool_changed(&server);
        assert_true(sent_fd[0] >= 0 && sent_fd[1] >= 0);
        assert_int_equal(sent_count[3], 0);
        assert_int_equal(ask(0, 2 * PIECE, 0), 0);
        work_all();
        check_filled(0, PIECE, true);
        config.host_pool_bytes = 2 * PIECE;
        host_pool_changed(&server);
        assert_int_equal(last(0)->HOST_POOL.bytes, 2 * PIECE);
        assert_int_equal(last(0)->HOST_POOL.filled, PIECE);
        assert_int_equal(sent_fd[0], -1); /* it has the memfd */
        assert_int_equal(ask(0, 2 * PIECE, 0), 0);
        work_all();
        check_filled(0, 2 * PIECE, false);
        config.host_pool_bytes = 0;
        host_pool_changed(&server);
        assert_int_equal(last(0)->HOST_POOL.bytes, 0);
        assert_int_equal(host_pool_held(&clients[0]), 2 * PIECE); /* it keeps what it has */
        assert_int_equal(ask(0, 3 * PIECE, 0), 0);
        check_filled(0, 2 * PIECE, true);
}

static void only_one_whose_memory_would_help_lacks_it(void **state)
{
        config.host_pool_bytes = PIECE;
        clients[2].peer.uid = 2000;
        for (unsigned i = 0; i < 3; i++)
                host_pool_attached(&clients[i]);
        assert_int_equal(ask(0, PIECE, 0), 0);
        assert_int_equal(ask(2, PIECE, 0), 0);
        work_all();
        assert_int_equal(host_pool_lack(&clients[1], MIB), HOST_POOL_LACKS_OF_TENANT);
        assert_true(host_pool_helps(&clients[0], &clients[1], HOST_POOL_LACKS_OF_TENANT));
        assert_false(host_pool_helps(&clients[2], &clients[1], HOST_POOL_LACKS_OF_TENANT));
        assert_true(host_pool_helps(&clients[1], &clients[0], HOST_POOL_LACKS_OF_TENANT)); /* own */
        assert_int_equal(host_pool_lack(&clients[3], MIB), HOST_POOL_LACKS_NOTHING); /* no pool */
        assert_false(host_pool_helps(&clients[0], &clients[3], HOST_POOL_LACKS_NOTHING));
        server.host_budget_bytes = 2 * PIECE + MIB - 1;
        assert_int_equal(host_pool_lack(&clients[1], MIB), HOST_POOL_LACKS_OF_ALL);
        assert_true(host_pool_helps(&clients[2], &clients[1], HOST_POOL_LACKS_OF_ALL));
}

#define POOL_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                POOL_TEST(a_process_gets_one_sealed_memfd),
                POOL_TEST(without_the_setting_nobody_gets_one),
                POOL_TEST(a_process_that_the_daemon_cannot_see_gets_none),
                POOL_TEST(a_limit_of_file_sizes_allows_none),
                POOL_TEST(it_is_filled_piece_by_piece),
                POOL_TEST(a_tenant_gets_no_more_than_the_bound),
                POOL_TEST(what_a_frozen_program_cannot_give_back_does_not_count),
                POOL_TEST(a_container_is_a_tenant_whatever_its_users),
                POOL_TEST(a_pod_is_a_tenant_with_all_its_containers),
                POOL_TEST(all_pools_together_stay_within_the_daemons_budget),
                POOL_TEST(without_memory_it_is_refused_and_may_ask_again),
                POOL_TEST(tenants_get_their_pieces_by_turns),
                POOL_TEST(figures_that_cannot_be_are_refused),
                POOL_TEST(the_process_keeps_its_pool_over_a_lost_connection),
                POOL_TEST(what_a_process_leaves_behind_is_taken_away),
                POOL_TEST(a_process_that_ends_while_it_is_served_leaves_nothing),
                POOL_TEST(a_process_without_a_connection_is_watched),
                POOL_TEST(a_user_gets_only_so_many),
                POOL_TEST(a_reload_changes_the_bound_for_all),
                POOL_TEST(only_one_whose_memory_would_help_lacks_it),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
