/* test_agent_link.c: a daemon that is sought, lost, required or of another release, the program's
 * state without a daemon, and the effect of each of the daemon's answers. */
#include "unit.h"

#include "agent_bench.h"

#include <errno.h>
#include <unistd.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/freeze.h"
#include "fakes/preload.h"
#include "preload/agent/agent.h"
#include "preload/stream/gate.h"
#include "preload/state/daemon.h"

#define MS NSEC_PER_MSEC

static int unset(void **state)
{
        (void)unsetenv("SUBLET_REQUIRE");
        (void)unsetenv("SUBLET_MEMORY_CAP");
        (void)unsetenv("SUBLET_PRIORITY");
        (void)unsetenv("SUBLET_GROUP");
        return end_agent(state);
}
#define LINK_TEST(name) cmocka_unit_test_setup_teardown(name, begin_agent, unset)

static void lose(void)
{
        breaks = true;
        connects = -ECONNREFUSED;
        rounds(1);
        assert_int_equal(daemon_line.link, LINK_DOWN);
}

static void refuse(unsigned code, unsigned g, uint32_t of)
{
        struct wire_message *m = tell(WIRE_REFUSED);

        m->header.gpu = (uint16_t)g;
        m->REFUSED.code = code;
        m->REFUSED.of = of;
        (void)strcpy(m->REFUSED.text, "no");
        rounds(1);
}

/* ---- looking for the daemon ---- */

static void connect_anew(void)
{
        connects = 0;
        breaks = true;
        rounds(1); /* the agent finds the connection lost */
        now_ns += 100 * NSEC_PER_SEC;
        forget_sent();
        rounds(1);
}

static void a_priority_is_requested_at_the_start(void **state)
{
        static const struct {
                const char *text;
                int priority;
        } cases[] = {{"7", 7}, {"-3", -3}, {"", 0}, {"high", 0}, {"1000000", 0}};

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(setenv("SUBLET_PRIORITY", cases[i].text, 1), 0);
                connect_anew();
                assert_int_equal((int32_t)said(WIRE_HELLO)->HELLO.priority, cases[i].priority);
                assert_string_equal(said(WIRE_HELLO)->HELLO.version, SUBLET_VERSION);
        }
}

static void a_group_is_requested_at_the_start(void **state)
{
        static const struct {
                const char *text, *group;
        } cases[] = {{"job 7", "job 7"}, {"", ""}, {"a name of more than 31 characters", ""}};

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                assert_int_equal(setenv("SUBLET_GROUP", cases[i].text, 1), 0);
                connect_anew();
                assert_string_equal(said(WIRE_HELLO)->HELLO.group, cases[i].group);
        }
}

static void a_rank_is_in_the_group_of_its_job_unless_its_user_says_otherwise(void **state)
{
        static const struct {
                const char *text, *prefix;
        } cases[] = {{"", "slurm:"},
                     {"none", ""},
                     {"job 7", "job 7"},
                     {"a name of more than 31 characters", "slurm:"}};
        static const char *const rank[][2] = {{"SLURM_STEP_NUM_TASKS", "2"},
                                              {"SLURM_PROCID", "1"},
                                              {"SLURM_JOB_ID", "12"},
                                              {"SLURM_STEP_ID", "0"}};

        for (unsigned i = 0; i < ARRAY_SIZE(rank); i++)
                assert_int_equal(setenv(rank[i][0], rank[i][1], 1), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
                const char *group;

                assert_int_equal(setenv("SUBLET_GROUP", cases[i].text, 1), 0);
                connect_anew();
                group = said(WIRE_HELLO)->HELLO.group;
                assert_int_equal(group[0] != '\0', cases[i].prefix[0] != '\0');
                assert_memory_equal(group, cases[i].prefix, strlen(cases[i].prefix));
        }
        for (unsigned i = 0; i < ARRAY_SIZE(rank); i++)
                assert_int_equal(unsetenv(rank[i][0]), 0);
}

static void ranks_that_can_be_frozen_take_turns(void **state)
{
        static const char *const rank[][2] = {{"SLURM_STEP_NUM_TASKS", "2"},
                                              {"SLURM_PROCID", "1"},
                                              {"SLURM_JOB_ID", "12"},
                                              {"SLURM_STEP_ID", "0"}};

        for (unsigned i = 0; i < ARRAY_SIZE(rank); i++)
                assert_int_equal(setenv(rank[i][0], rank[i][1], 1), 0);
        fake_front = true;
        freezer.mode = WIRE_FREEZE_MOVE;
        connect_anew();
        assert_memory_equal(said(WIRE_HELLO)->HELLO.group, "slurm:", 6);
        assert_int_equal(said(WIRE_HELLO)->HELLO.takes_turns, 1);
        assert_int_equal(setenv("SUBLET_GROUP", "job 7", 1), 0);
        connect_anew();
        assert_string_equal(said(WIRE_HELLO)->HELLO.group, "job 7");
        assert_int_equal(said(WIRE_HELLO)->HELLO.takes_turns, 0);
        assert_int_equal(setenv("SUBLET_GROUP", "none", 1), 0);
        connect_anew();
        assert_string_equal(said(WIRE_HELLO)->HELLO.group, "");
        assert_int_equal(said(WIRE_HELLO)->HELLO.takes_turns, 1);
        assert_int_equal(unsetenv("SUBLET_GROUP"), 0);
        connect_anew();
        welcome();
        assert_int_equal(daemon_line.link, LINK_UP);
        freezer.mode = WIRE_FREEZE_PARK; /* the self-test has failed, or the daemon forbids it */
        wake();
        assert_int_equal(daemon_line.link, LINK_DOWN);
        forget_sent();
        now_ns = agent.retry_ns;
        rounds(1);
        assert_memory_equal(said(WIRE_HELLO)->HELLO.group, "slurm:", 6);
        assert_int_equal(said(WIRE_HELLO)->HELLO.takes_turns, 0);
        assert_int_equal(said(WIRE_HELLO)->HELLO.previous_instance, INSTANCE);
        welcome();
        rounds(2);
        assert_int_equal(daemon_line.link, LINK_UP);
        freezer.mode = WIRE_FREEZE_OFF;
        for (unsigned i = 0; i < ARRAY_SIZE(rank); i++)
                assert_int_equal(unsetenv(rank[i][0]), 0);
}

/* Checks that the next attempt comes after 0.5 to 1.5 times this span. */
static void assert_tries_after(uint64_t backoff_ns)
{
        assert_int_equal(agent.backoff_ns, backoff_ns);
        assert_in_range(agent.retry_ns - now_ns, backoff_ns / 2, backoff_ns + backoff_ns / 2 - 1);
        assert_int_equal(slept_ns, agent.retry_ns - now_ns);
        now_ns = agent.retry_ns - 1;
        forget_sent();
        rounds(1);
        assert_int_equal(slept_ns, 1); /* no attempt before its time */
        now_ns++;
        rounds(1);
}

static void a_lost_daemon_is_sought_at_most_every_second(void **state)
{
        begin_running();
        lose();
        for (uint64_t span = 50 * MS; span < NSEC_PER_SEC; span *= 2)
                assert_tries_after(span);
        for (unsigned i = 0; i < 3; i++)
                assert_tries_after(NSEC_PER_SEC);
        connects = 0;
        now_ns += 2 * NSEC_PER_SEC;
        rounds(1);
        welcome();
        assert_int_equal(beside.ipc_connected, 2);
        lose();
        assert_tries_after(50 * MS); /* the span has begun anew */
}

static void a_daemon_never_seen_is_sought_every_half_minute(void **state)
{
        lose();
        for (unsigned i = 0; i < 20; i++) {
                now_ns = agent.retry_ns;
                rounds(1);
        }
        assert_tries_after(30 * NSEC_PER_SEC);
}

static void a_required_daemon_is_sought_every_second(void **state)
{
        assert_int_equal(setenv("SUBLET_REQUIRE", "1", 1), 0);
        gpu->known = true;
        lose();
        for (unsigned i = 0; i < 30; i++) {
                now_ns = agent.retry_ns;
                rounds(1);
        }
        assert_tries_after(NSEC_PER_SEC);
        assert_false(gpu->managed || core.running || daemon_line.warned); /* the program waits */
        assert_true(atomic_load(&gate_bits) & GATE_NO_LEASE);
        assert_int_equal(setenv("SUBLET_REQUIRE", "yes", 1), 0);
        now_ns = agent.retry_ns;
        rounds(1);
        assert_true(gpu->managed && core.running);
}

static bool wakes_up;

/* Has the agent try once more while the thread waits. */
static void tries_again(const struct core_wait *w)
{
        wakes_up = true;
        rounds(1);
}

static void a_connection_that_is_refused_to_this_process_ends_the_wait(void **state)
{
        assert_int_equal(setenv("SUBLET_MEMORY_CAP", "1GiB", 1), 0);
        gpu->known = true;
        refuses = "socket";
        connects = -EMFILE;
        breaks = true;
        rounds(1);
        now_ns = agent.retry_ns;
        rounds(1);
        assert_true(agent.refused);
        assert_false(gpu->managed || core.running || daemon_line.warned);
        meanwhile = tries_again; /* the next attach makes one more attempt */
        wakes_up = false;
        lock_acquire(&core_lock);
        agent_attach(gpu);
        lock_release(&core_lock);
        assert_true(wakes_up && agent.refused);
        assert_false(gpu->managed || core.running || core_passive());
        refuses =
                NULL; /* the limit is raised, and now the daemon is missing: nobody keeps the cap */
        connects = -ENOENT;
        now_ns += 11 * NSEC_PER_SEC;
        lock_acquire(&core_lock);
        agent_attach(gpu);
        lock_release(&core_lock);
        assert_true(agent.refused);
        assert_false(gpu->managed || core.running || daemon_line.warned);
}

static void a_capped_program_that_loses_its_daemon_runs_on_and_does_not_grow(void **state)
{
        assert_int_equal(setenv("SUBLET_MEMORY_CAP", "1GiB", 1), 0);
        begin_running();
        lose();
        now_ns = agent.retry_ns + 11 * NSEC_PER_SEC;
        rounds(1);
        assert_true(core.running);
        assert_false(agent.refused || daemon_line.warned);
        assert_int_equal(gpu->limit, 64 * MIB);
        assert_int_not_equal(gpu->commit, UINT64_MAX);
}

static void a_program_that_need_not_be_shared_goes_on_without_the_connection(void **state)
{
        gpu->known = true;
        refuses = "socket";
        connects = -EMFILE;
        breaks = true;
        rounds(1);
        now_ns = agent.retry_ns + 11 * NSEC_PER_SEC;
        rounds(1);
        assert_true(gpu->managed && !agent.refused);
}

/* ---- without the daemon ---- */

static void without_a_daemon_a_program_gets_all_known_gpus(void **state)
{
        core.gpu_count = 2; /* the second GPU is not known */
        connects = -ENOENT;
        breaks = true;
        gpu->visible = 0;
        rounds(1);
        now_ns = agent.retry_ns + 11 * NSEC_PER_SEC;
        rounds(1);
        assert_true(gpu->managed);
        assert_int_equal(gpu->export_allowed, UINT64_MAX);
        assert_int_equal(gpu->visible, GIB);
        assert_int_equal(core.host.allowed, UINT64_MAX);
        assert_false(core.gpus[1].managed);
        core.gpu_count = 1;
        gpu->visible = 5 * MIB; /* the visible size must stay */
        core.host.most = 7;
        lock_acquire(&core_lock);
        agent_gpu_alone(gpu);
        lock_release(&core_lock);
        assert_int_equal(gpu->visible, 5 * MIB);
        assert_int_equal(core.host.most, 7);
}

static void evicted_memory_is_restored_before_a_program_runs_alone(void **state)
{
        put(EXTENT_EVICTED);
        connects = -ENOENT;
        breaks = true;
        rounds(1);
        now_ns = agent.retry_ns + 11 * NSEC_PER_SEC;
        rounds(1);
        assert_int_equal(gpu->limit, UINT64_MAX);
        assert_false(core.running);
        put(EXTENT_RESIDENT);
        beside.torture = OWN_RESTORES;
        now_ns = agent.retry_ns + 11 * NSEC_PER_SEC;
        rounds(1);
        assert_true(core.running); /* all its memory is back */
}

static void the_loss_of_the_daemon_voids_its_answers(void **state)
{
        unsigned before;
        uint32_t heard;

        begin_running();
        before = open_descriptors();
        passed_add(&gpu->leaving, driver_foreign(MIB * 2, 1));
        beside.overflow_cancelled = beside.ipc_disconnected = 0;
        heard = bell_listen(&core.changed);
        lose();
        assert_false(gpu->asked || gpu->attached);
        assert_int_equal(open_descriptors(), before - 1);
        assert_true(beside.overflow_cancelled > 0 && beside.ipc_disconnected > 0);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_true(is_kicked() || slept_ns < NSEC_PER_SEC);
        assert_int_equal(gpu->limit, 64 * MIB); /* a running program keeps its memory */
}

static void a_drain_for_torture_outlasts_the_daemon(void **state)
{
        begin_running();
        beside.torture = OWN_RESTORES;
        lock_acquire(&core_lock);
        agent_begin_drain(NSEC_PER_SEC, false);
        lock_release(&core_lock);
        lose();
        assert_true(agent.revoking);
        assert_int_equal(gpu->limit, 64 * MIB); /* the limit still lets memory come back */
        beside.torture = OWN_NONE;
}

static void a_waiting_program_keeps_its_resident_memory(void **state)
{
        begin_attached();
        limit(64 * MIB, 64 * MIB, 300 * MIB, 2);
        gpu->heap.backed = 24 * MIB;
        lose();
        assert_int_equal(gpu->limit, 24 * MIB);
        gpu->limit = UINT64_MAX; /* the program has been without a daemon for some time */
        gpu->managed = true;
        lock_acquire(&core_lock);
        core.running = false;
        lock_release(&core_lock);
        now_ns = agent.retry_ns;
        rounds(1);
        assert_int_equal(gpu->limit, UINT64_MAX);
}

static void a_daemon_that_is_slow_gets_a_second_try(void **state)
{
        begin_running();
        sends = -EAGAIN;
        send_tries = 1;
        agent.idle_said = true;
        submits();
        assert_int_equal(daemon_line.link, LINK_UP);
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        sends = -EAGAIN;
        send_tries = 2;
        agent.idle_said = true;
        connects = -ENOENT;
        submits();
        woken();
        assert_int_equal(daemon_line.link, LINK_DOWN);
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
        agent.idle_said = true;
        submits(); /* there is no daemon to report it to */
        assert_int_equal(times_said(WIRE_ACTIVE), 1);
}

/* ---- joining ---- */

static void a_new_client_reports_all_its_memory(void **state)
{
        unsigned before;

        memset(gpu->uuid, 7, sizeof(gpu->uuid));
        gpu->unevictable = 3 * MIB;
        gpu->unevictable_requested = 9 * MIB;
        gpu->error = CUDA_ERROR_ASSERT;
        core.waiters = 1;
        rounds(1);
        before = open_descriptors();
        passed_add(&gpu->leaving, driver_foreign(MIB * 2, 1));
        passed_add(&gpu->passed, driver_foreign(MIB * 2, 1));
        welcome();
        assert_int_equal(open_descriptors(), before);
        assert_int_equal(said(WIRE_ATTACH)->ATTACH.unevictable_requested, 9 * MIB);
        assert_int_equal(said(WIRE_ATTACH)->ATTACH.uuid[15], 7);
        assert_int_equal(said(WIRE_ATTACH)->ATTACH.flags, WIRE_FLAG_RUN | WIRE_FLAG_POISONED);
        assert_int_equal(beside.torture_cancelled, 1);
        assert_int_equal(beside.ipc_connected, 1);
        assert_true(gpu->asked);
        core.waiters = 0;
}

static void exported_bytes_are_reported_with_the_attachment(void **state)
{
        rounds(1);
        put(EXTENT_RESIDENT);
        extent->exported = true;
        gpu->export_granted = gpu->export_requested = extent->bytes;
        gpu->told.exported = 99;
        welcome();
        assert_int_equal(said(WIRE_EXPORT)->EXPORT.bytes, extent->bytes);
        assert_int_equal(said(WIRE_EXPORT)->EXPORT.flags, WIRE_EXPORT_HELD);
        assert_int_equal(gpu->export_allowed, extent->bytes);
        assert_int_equal(gpu->told.exported, extent->bytes);
        extent->exported = false;
        gpu->export_granted = gpu->export_requested = 0;
}

static void an_evicted_extent_is_no_longer_exported_at_the_attachment(void **state)
{
        rounds(1);
        put(EXTENT_EVICTED);
        extent->exported = true;
        gpu->export_granted = extent->bytes;
        gpu->told.exported = gpu->export_allowed = 99;
        welcome();
        assert_int_equal(times_said(WIRE_EXPORT), 0);
        assert_false(extent->exported);
        assert_int_equal(gpu->export_granted + gpu->told.exported + gpu->export_allowed, 0);
}

static void a_thread_that_attaches_a_gpu_sends_the_message_itself(void **state)
{
        rounds(1);
        gpu->known = false; /* the program has not used the GPU yet */
        welcome();
        assert_int_equal(times_said(WIRE_ATTACH), 0);
        gpu->known = true;
        (void)tell(WIRE_ATTACHED);
        lock_acquire(&core_lock);
        agent_attach(gpu);
        lock_release(&core_lock);
        assert_int_equal(times_said(WIRE_ATTACH), 1);
        assert_true(gpu->managed);
        /* Without a daemon the thread sends nothing. */
        gpu->managed = false;
        daemon_line.link = LINK_REFUSED;
        lock_acquire(&core_lock);
        agent_attach(gpu);
        lock_release(&core_lock);
        assert_true(gpu->managed);
        assert_int_equal(gpu->limit, UINT64_MAX);
        assert_int_equal(times_said(WIRE_ATTACH), 1);
        daemon_line.link = LINK_UP;
}

static void an_attachment_requests_the_earlier_commit_again(void **state)
{
        rounds(1);
        welcome();
        gpu->commit_requested = 100 * MIB;
        attached();
        assert_int_equal(gpu->commit_requested, 100 * MIB);
        assert_int_equal(said(WIRE_REQUEST)->REQUEST.commit, 100 * MIB);
        assert_false(said(WIRE_REQUEST)->REQUEST.flags & WIRE_FLAG_RUN);
        gpu->commit_requested = UINT64_MAX;
        tell(WIRE_ATTACHED)->ATTACHED.block_bytes = 1;
        rounds(1);
        assert_int_equal(gpu->commit_requested, 32 * MIB);
        assert_int_equal(gpu->block_bytes, HEAP_GRANULARITY);
}

/* A program that shares its card must wait for a turn from the first moment. */
static void the_first_attachment_shuts_the_gate_unless_the_program_runs(void **state)
{
        rounds(1);
        welcome();
        atomic_store(&gate_bits, 0);
        attached();
        assert_true(atomic_load(&gate_bits) & GATE_NO_LEASE);
        atomic_store(&gate_bits, 0);
        attached(); /* a repeated answer changes nothing */
        assert_int_equal(atomic_load(&gate_bits), 0);
        gpu->managed = false;
        core.running = true;
        attached();
        assert_int_equal(atomic_load(&gate_bits), 0);
}

/* The visible size depends on the amount of host memory. */
static void a_gpu_that_overflows_is_not_managed_before_the_host_is_known(void **state)
{
        struct wire_message *m;

        gpu->overflow = true;
        rounds(1);
        welcome();
        attached();
        assert_false(gpu->managed);
        assert_int_equal(times_said(WIRE_HOST), 1);
        m = tell(WIRE_HOST_LIMIT);
        m->HOST_LIMIT.most = 9 * GIB;
        rounds(1);
        assert_true(gpu->managed && core.host.known);
        assert_int_equal(core.host.most, 9 * GIB);
        assert_true(room_changes > 0);
        tell(WIRE_HOST_LIMIT)->HOST_LIMIT.most = 8 * GIB;
        rounds(1);
        assert_int_equal(core.host.most, 9 * GIB); /* the first figure stays */
}

/* ---- refusals ---- */

static void a_refusal_answers_only_the_request_that_it_names(void **state)
{
        uint32_t heard;

        begin_running();
        gpu->unevictable_requested = 400 * MIB;
        gpu->request_dirty = true;
        wake();
        refuse(WIRE_REFUSED_UNEVICTABLE, 0, gpu->told.request_sequence - 1);
        assert_int_equal(gpu->unevictable_requested,
                         400 * MIB); /* the last request is still unanswered */
        assert_int_equal(gpu->refused_unevictable.count, 0);
        heard = bell_listen(&core.changed);
        refuse(WIRE_REFUSED_UNEVICTABLE, 0, gpu->told.request_sequence);
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_int_equal(gpu->unevictable_requested, 300 * MIB);
        assert_int_equal(gpu->refused_unevictable.count, 1);
        assert_int_equal(gpu->refused_unevictable.bytes, 400 * MIB);
        assert_true(gpu->may_pass);
        refuse(WIRE_REFUSED_PASS, 0, 0);
        assert_false(gpu->may_pass);
        refuse(WIRE_REFUSED_PEER, 0, 0);
        assert_int_equal(beside.ipc_refused, 1);
        core.gpus[1].may_pass = true;
        for (unsigned code = 0; code < 20; code++)
                if (code != WIRE_REFUSED_VERSION)
                        refuse(code, 1, 0); /* there is no such GPU */
        assert_true(core.gpus[1].may_pass);
        assert_int_equal(core.gpus[1].refused_unevictable.count + core.gpus[1].refused_commit.count,
                         0);
        assert_true(core.running);
}

static void a_required_daemon_of_another_release_is_waited_out(void **state)
{
        assert_int_equal(setenv("SUBLET_REQUIRE", "1", 1), 0);
        begin_running();
        refuse(WIRE_REFUSED_VERSION, 0, 0);
        assert_int_equal(daemon_line.link, LINK_DOWN);
        assert_int_equal(core.lease, 0);
        assert_int_equal(gpu->limit, 64 * MIB);
        assert_true(agent.refusal_said);
        now_ns = agent.retry_ns;
        rounds(1);
        assert_int_equal(daemon_line.link, LINK_HELLO);
        welcome();
        assert_false(agent.refusal_said);
}

/* Several programs may have grown without a daemon, and none may have room for all its memory. */
static void a_program_with_evicted_memory_drains_before_it_runs_alone(void **state)
{
        begin_running();
        extent->state = EXTENT_EVICTED;
        core.waiters = 0;
        refuse(WIRE_REFUSED_VERSION, 0, 0);
        assert_int_equal(daemon_line.link, LINK_REFUSED);
        assert_true(agent.revoking);
        assert_int_equal(agent.patience_ns, 2 * NSEC_PER_SEC);
        extent->state = EXTENT_RESIDENT;
}

static void a_program_with_all_its_memory_resident_goes_on_alone(void **state)
{
        begin_running();
        refuse(WIRE_REFUSED_VERSION, 0, 0);
        assert_int_equal(daemon_line.link, LINK_REFUSED);
        assert_false(agent.revoking);
        assert_true(core.running);
        assert_false(daemon_may_answer());
}

/* A missing extent may be new memory that is not backed yet. */
static void a_program_that_runs_alone_gives_way_to_no_other(void **state)
{
        begin_running();
        refuse(WIRE_REFUSED_VERSION, 0, 0);
        assert_true(core.running);
        extent->state = EXTENT_EVICTED;
        core.waiters = 1;
        for (unsigned i = 0; i < 8; i++) {
                now_ns += NSEC_PER_SEC;
                rounds(1);
                assert_false(core.giveway.out);
                assert_int_equal(gpu->own_limit, UINT64_MAX);
        }
        extent->state = EXTENT_RESIDENT;
        core.waiters = 0;
}

/* ---- the connection ---- */

static void a_connection_that_fails_is_lost_at_once(void **state)
{
        struct wire_message m = {0};
        uint32_t said_as;

        assert_false(daemon_may_answer());
        begin_running();
        assert_true(daemon_is_up() && daemon_may_answer());
        lock_acquire(&core_lock);
        said_as = daemon_say(&m, WIRE_NAME);
        assert_int_not_equal(said_as, 0);
        assert_int_equal(said(WIRE_NAME)->header.sequence, said_as);
        sends = -EPIPE;
        connects = -ENOENT;
        assert_int_equal(daemon_say(&m, WIRE_NAME), 0); /* this send fails */
        lock_release(&core_lock);
        assert_true(is_kicked()); /* the agent has to look for a daemon */
        assert_false(daemon_is_up());
        assert_int_equal(daemon_line.link, LINK_LOST);
        assert_true(daemon_may_answer()); /* the daemon may come back */
        rounds(1);
        assert_int_equal(daemon_line.link, LINK_DOWN);
        daemon_line.warned = true;
        assert_false(daemon_may_answer());
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                LINK_TEST(a_priority_is_requested_at_the_start),
                LINK_TEST(a_group_is_requested_at_the_start),
                LINK_TEST(a_rank_is_in_the_group_of_its_job_unless_its_user_says_otherwise),
                LINK_TEST(ranks_that_can_be_frozen_take_turns),
                LINK_TEST(a_lost_daemon_is_sought_at_most_every_second),
                LINK_TEST(a_daemon_never_seen_is_sought_every_half_minute),
                LINK_TEST(a_required_daemon_is_sought_every_second),
                LINK_TEST(a_connection_that_is_refused_to_this_process_ends_the_wait),
                LINK_TEST(a_capped_program_that_loses_its_daemon_runs_on_and_does_not_grow),
                LINK_TEST(a_program_that_need_not_be_shared_goes_on_without_the_connection),
                LINK_TEST(without_a_daemon_a_program_gets_all_known_gpus),
                LINK_TEST(evicted_memory_is_restored_before_a_program_runs_alone),
                LINK_TEST(the_loss_of_the_daemon_voids_its_answers),
                LINK_TEST(a_drain_for_torture_outlasts_the_daemon),
                LINK_TEST(a_waiting_program_keeps_its_resident_memory),
                LINK_TEST(a_daemon_that_is_slow_gets_a_second_try),
                LINK_TEST(a_new_client_reports_all_its_memory),
                LINK_TEST(exported_bytes_are_reported_with_the_attachment),
                LINK_TEST(an_evicted_extent_is_no_longer_exported_at_the_attachment),
                LINK_TEST(a_thread_that_attaches_a_gpu_sends_the_message_itself),
                LINK_TEST(an_attachment_requests_the_earlier_commit_again),
                LINK_TEST(the_first_attachment_shuts_the_gate_unless_the_program_runs),
                LINK_TEST(a_gpu_that_overflows_is_not_managed_before_the_host_is_known),
                LINK_TEST(a_refusal_answers_only_the_request_that_it_names),
                LINK_TEST(a_required_daemon_of_another_release_is_waited_out),
                LINK_TEST(a_program_with_evicted_memory_drains_before_it_runs_alone),
                LINK_TEST(a_program_with_all_its_memory_resident_goes_on_alone),
                LINK_TEST(a_program_that_runs_alone_gives_way_to_no_other),
                LINK_TEST(a_connection_that_fails_is_lost_at_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
