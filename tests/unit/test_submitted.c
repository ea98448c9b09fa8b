/* test_submitted.c: job files that are announced and do not come, on real sockets. A second of the
 * daemon's timer takes no time here. */
#include "unit.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/queue/state.h"
#include "daemon/queue/submit.h"

#define SECONDS     20
#define PATIENCE_US UINT64_C(30000000)
#define FILE        "{\"no\":\"job file\"}"

static struct server server;
static struct config config;
static int end; /* the job's */

/* ---- what the queue uses ---- */

void server_arm_once(sd_event_source *timer, bool wanted, uint64_t usec)
{
        (void)sd_event_source_set_time_relative(timer, 0);
        (void)sd_event_source_set_enabled(timer, wanted ? SD_EVENT_ONESHOT : SD_EVENT_OFF);
}

int matcher_new(sd_event *event, const struct matcher_calls *calls, struct matcher **ret)
{
        *ret = NULL;
        return 0;
}

void matcher_free(struct matcher *m)
{
}

bool matcher_add(struct matcher *m, uint32_t id, const char *file, size_t size, const char *gpu)
{
        assert_int_equal(size, strlen(FILE));
        assert_memory_equal(file, FILE, size);
        return true;
}

void matcher_forget(struct matcher *m, uint32_t id)
{
}

bool matcher_ask(struct matcher *m, const struct queue *q, double capacity_bytes)
{
        return false;
}

void matcher_rest(struct matcher *m)
{
}

bool submit_has_program(const struct peer *peer, pid_t named)
{
        return false;
}

void submit_look_at_gpus(struct submits *all, bool second)
{
}

void submit_apply_turns(struct submits *all)
{
}

double submit_capacity(const struct server *s)
{
        return 0;
}

json_t *submit_number(double n)
{
        return json_real(n);
}

void submit_count(const struct submits *all, struct server_jobs *ret)
{
}

const char *submission_name(const struct submission *m, const struct peer *viewer)
{
        return m->wish.name;
}

void submit_reason(const struct submission *m, char ret[static SUBMIT_SAID_MAX])
{
}

/* ---- scenes ---- */

static int begin(void **state)
{
        struct sched_config sched;

        sched_config_default(&sched);
        server = (struct server){
                .config = &config, .users = users_new(8), .sched = sched_new(&sched)};
        assert_true(server.users && server.sched);
        assert_true(sd_event_new(&server.event) >= 0);
        assert_int_equal(submit_new(&server), 0);
        return 0;
}

static int finish(void **state)
{
        submit_free(&server);
        (void)sd_event_unref(server.event);
        sched_free(server.sched);
        users_free(server.users);
        if (end >= 0)
                (void)close(end);
        return 0;
}

static void announce(void)
{
        const struct peer peer = {.pid = getpid(), .uid = 1000, .outside = true, .pidfd = -EBADF};
        json_t *order =
                json_pack("{ss ss si}", "order", "submit", "name", "x", "bytes", (int)strlen(FILE));
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        end = pair[1];
        assert_null(submit_take(&server, order, &peer, pair[0]));
        json_decref(order);
        assert_int_equal(server.submits->file_bytes, strlen(FILE));
}

static void a_second_passes(void)
{
        int enabled = SD_EVENT_OFF;

        do {
                assert_true(sd_event_run(server.event, PATIENCE_US) > 0);
                (void)sd_event_source_get_enabled(server.submits->timer, &enabled);
        } while (enabled != SD_EVENT_OFF);
        submit_settle(&server);
}

/* Returns all that the job was told. */
static const char *told(void)
{
        static char text[1024];
        size_t used = 0;
        ssize_t n;

        while ((n = recv(end, text + used, sizeof(text) - used - 1, MSG_DONTWAIT)) > 0)
                used += (size_t)n;
        text[used] = '\0';
        return text;
}

static void a_file_that_does_not_come_gives_its_room_back(void **state)
{
        announce();
        for (unsigned i = 0; i < SECONDS && server.submits->list; i++) {
                if (i < strlen(FILE) / 2)
                        assert_int_equal(send(end, FILE + i, 1, MSG_NOSIGNAL), 1);
                a_second_passes();
        }
        assert_null(server.submits->list);
        assert_int_equal(server.submits->file_bytes, 0);
        assert_non_null(strstr(told(), "the job file has not come within 10 s"));
}

static void a_connection_that_ends_gives_the_room_back(void **state)
{
        announce();
        assert_int_equal(close(end), 0);
        end = -1;
        for (unsigned i = 0; i < SECONDS / 2 && server.submits->list; i++)
                a_second_passes();
        assert_null(server.submits->list);
        assert_int_equal(server.submits->file_bytes, 0);
}

static void a_job_whose_file_has_come_stays(void **state)
{
        announce();
        for (unsigned i = 0; i < SECONDS; i++) {
                if (i == 5)
                        assert_int_equal(send(end, FILE, strlen(FILE), MSG_NOSIGNAL), strlen(FILE));
                a_second_passes();
        }
        assert_non_null(server.submits->list);
        assert_true(server.submits->list->id > 0);
        assert_null(strstr(told(), "error"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, finish)
        const struct CMUnitTest tests[] = {
                TEST(a_file_that_does_not_come_gives_its_room_back),
                TEST(a_connection_that_ends_gives_the_room_back),
                TEST(a_job_whose_file_has_come_stays),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
