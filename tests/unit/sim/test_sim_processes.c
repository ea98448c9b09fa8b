/* test_sim_processes.c: the processes of a session share memory, the bus and the counts. A killed
 * process gives its memory back. */
#include "sim_unit.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

#define MEMORY  (256 * UNIT_MIB)
#define CONTEXT (MEMORY / 256)

static void take_200_and_wait(void)
{
        CUdeviceptr p;

        (void)unit_begin();
        OK(cuMemAlloc_v2(&p, 200 * UNIT_MIB));
        unit_tell();
        unit_wait_told();
}

SIM_TEST_WITH(memory_of_another_process_is_not_free_until_it_exits, "SIMCUDA_MEMORY=256MiB")
{
        struct unit_peer peer = unit_peer_start(take_200_and_wait);
        size_t f, total;
        CUdeviceptr p;

        unit_peer_wait(&peer);
        (void)unit_begin();
        OK(cuMemGetInfo_v2(&f, &total));
        CHECK_EQUAL(f, MEMORY - 2 * CONTEXT - 200 * UNIT_MIB);
        CHECK_EQUAL(cuMemAlloc_v2(&p, 100 * UNIT_MIB), CUDA_ERROR_OUT_OF_MEMORY);
        unit_peer_tell(&peer);
        unit_peer_end(&peer);
        OK(cuMemAlloc_v2(&p, 100 * UNIT_MIB));
}

SIM_TEST_WITH(a_killed_process_gives_its_memory_back, "SIMCUDA_MEMORY=256MiB")
{
        struct unit_peer peer = unit_peer_start(take_200_and_wait);
        size_t f, total;
        CUdeviceptr p;

        unit_peer_wait(&peer);
        (void)unit_begin();
        CHECK_EQUAL(cuMemAlloc_v2(&p, 100 * UNIT_MIB), CUDA_ERROR_OUT_OF_MEMORY);
        unit_peer_kill(&peer);
        /* An allocation that lacks room looks for processes that have died. */
        OK(cuMemAlloc_v2(&p, 100 * UNIT_MIB));
        OK(cuMemGetInfo_v2(&f, &total));
        CHECK_EQUAL(f, MEMORY - CONTEXT - 100 * UNIT_MIB);
}

SIM_TEST_WITH(a_context_needs_room_on_the_card, "SIMCUDA_MEMORY=64MiB SIMCUDA_CONTEXT=40MiB")
{
        CUcontext c, d;

        OK(cuInit(0));
        OK(cuDevicePrimaryCtxRetain(&c, 0));
        CHECK_EQUAL(cuCtxCreate_v2(&d, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQUAL(unit_used(0), 40 * UNIT_MIB);
        OK(cuDevicePrimaryCtxRelease_v2(0));
        OK(cuCtxCreate_v2(&d, 0, 0));
}

static void map_some_and_be_killed(void)
{
        CUmemGenericAllocationHandle h;
        CUdeviceptr va;

        (void)unit_begin();
        va = unit_map(4 * UNIT_MIB, &h);
        OK(cuMemsetD8_v2(va, 1, 4 * UNIT_MIB));
        OK(cuCtxSynchronize());
        (void)unit_map(4 * UNIT_MIB, &h); /* SIMCUDA_FAIL kills this process here */
}

SIM_TEST_WITH(a_process_can_be_killed_at_a_named_call, "SIMCUDA_FAIL=cuMemMap:2:kill")
{
        struct unit_peer peer = unit_peer_start(map_some_and_be_killed);
        int status;

        CHECK_EQUAL(waitpid(peer.pid, &status, 0), peer.pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK_EQUAL(unit_used(0), 0);
        CHECK_EQUAL(unit_totals(0).creates, 2); /* the counts outlive the process */
        CHECK_EQUAL(unit_totals(0).maps, 1);
        CHECK_EQUAL(unit_totals(0).memsets, 1);
}

SIM_TEST_WITH(a_process_can_be_killed_after_a_named_call, "SIMCUDA_FAIL=cuMemMap@after:1:kill")
{
        struct unit_peer peer = unit_peer_start(map_some_and_be_killed);
        int status;

        CHECK_EQUAL(waitpid(peer.pid, &status, 0), peer.pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK_EQUAL(unit_used(0), 0);
        CHECK_EQUAL(unit_totals(0).maps, 1);
}

SIM_TEST_WITH(a_process_can_be_stopped_at_a_named_call_and_goes_on,
              "SIMCUDA_FAIL=cuMemMap@after:2:stop")
{
        struct unit_peer peer = unit_peer_start(map_some_and_be_killed);
        int status;

        CHECK_EQUAL(waitpid(peer.pid, &status, WUNTRACED), peer.pid);
        CHECK(WIFSTOPPED(status));
        CHECK_EQUAL(unit_totals(0).maps, 2);
        CHECK_EQUAL(kill(peer.pid, SIGCONT), 0);
        CHECK_EQUAL(waitpid(peer.pid, &status, 0), peer.pid);
        CHECK(WIFEXITED(status));
}

SIM_TEST_WITH(a_card_that_vanishes_answers_with_errors_for_ever, "SIMCUDA_FAIL=cuMemAlloc:1:lost")
{
        CUdeviceptr p;
        CUcontext c;

        (void)unit_begin();
        CHECK_EQUAL(cuMemAlloc_v2(&p, 64), CUDA_ERROR_LAUNCH_FAILED);
        CHECK_EQUAL(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
        CHECK_EQUAL(cuDevicePrimaryCtxRetain(&c, 0), CUDA_ERROR_DEVICE_UNAVAILABLE);
}

/* ---- the bus ---- */

#define BUS_BYTES (8 * UNIT_MIB)

static uint64_t copies_ns(bool in, unsigned count)
{
        static void *host;
        static CUdeviceptr p;
        uint64_t start;

        if (!host) {
                host = unit_pinned(BUS_BYTES);
                OK(cuMemAlloc_v2(&p, BUS_BYTES));
                OK(cuMemcpyHtoD_v2(p, host, BUS_BYTES)); /* touches the pages for the first time */
        }
        start = clock_now_ns();
        for (unsigned i = 0; i < count; i++)
                OK(in ? cuMemcpyHtoD_v2(p, host, BUS_BYTES) : cuMemcpyDtoH_v2(host, p, BUS_BYTES));
        return clock_now_ns() - start;
}

SIM_TEST_WITH(a_copy_takes_its_bytes_divided_by_the_bus_speed, "SIMCUDA_BUS=200MB/s")
{
        uint64_t expected = (uint64_t)(2.0 * BUS_BYTES / 200e6 * 1e9), ns;

        (void)unit_begin();
        (void)copies_ns(true, 1);
        ns = copies_ns(true, 2);
        CHECK(ns >= expected * 9 / 10);
        for (unsigned i = 0; i < 50 && ns > expected * 3; i++)
                ns = copies_ns(true, 2); /* a busy machine slows some tries, but not all of them */
        CHECK(ns <= expected * 3);
}

/* Makes 4 copies each time that the test asks, and reports when it is ready for the next. */
static void copy_when_told(bool in)
{
        (void)unit_begin();
        for ((void)copies_ns(in, 1);; (void)copies_ns(in, 4)) {
                unit_tell();
                unit_wait_told();
        }
}

static void copy_in_when_told(void)
{
        copy_when_told(true);
}

static void copy_out_when_told(void)
{
        copy_when_told(false);
}

/* Returns the time until both processes have made 4 copies, relative to 4 copies on an idle bus. */
static double together(struct unit_peer *peer)
{
        uint64_t began = clock_now_ns();

        unit_peer_tell(peer);
        (void)copies_ns(true, 4);
        unit_peer_wait(peer);
        return (double)(clock_now_ns() - began) / (4.0 * BUS_BYTES / 100e6 * 1e9);
}

SIM_TEST_WITH(two_processes_share_a_direction_of_the_bus, "SIMCUDA_BUS=100MB/s")
{
        struct unit_peer peer = unit_peer_start(copy_in_when_told);

        unit_peer_wait(&peer);
        (void)unit_begin();
        (void)copies_ns(true, 1);
        CHECK(together(&peer) > 1.8);
        unit_peer_kill(&peer);
}

SIM_TEST_WITH(the_two_directions_of_the_bus_do_not_disturb_each_other, "SIMCUDA_BUS=100MB/s")
{
        struct unit_peer peer = unit_peer_start(copy_out_when_told);
        double ratio;

        unit_peer_wait(&peer);
        (void)unit_begin();
        (void)copies_ns(true, 1);
        ratio = together(&peer);
        for (unsigned i = 0; i < 50 && ratio >= 1.8; i++)
                ratio = together(&peer); /* a busy machine slows some tries, but not all of them */
        CHECK(ratio < 1.8);
        unit_peer_kill(&peer);
}

/* ---- the session itself ---- */

static void observe(void)
{
        (void)unit_begin();
        unit_tell();
        unit_wait_told();
}

SIM_TEST_WITH(a_session_in_use_keeps_its_cards_and_an_empty_one_takes_new_ones,
              "SIMCUDA_MEMORY=64MiB")
{
        struct unit_peer peer = unit_peer_start(observe), next;
        char name[SESSION_NAME_MAX];
        struct session *s;

        unit_peer_wait(&peer);
        (void)setenv("SIMCUDA_MEMORY", "128MiB", 1);
        (void)setenv("SIMCUDA_GPUS", "3", 1);
        next = unit_peer_start(observe);
        unit_peer_wait(&next);
        CHECK_EQUAL(session_name(name), 0);
        CHECK_EQUAL(session_attach(name, &s), 0);
        CHECK_EQUAL(session_device(s, 0)->total, 64 * UNIT_MIB);
        CHECK_EQUAL(session_device_count(s), 1);
        CHECK_EQUAL(session_remove(name, false), -EBUSY);
        unit_peer_kill(&peer);
        unit_peer_kill(&next);
        next = unit_peer_start(observe);
        unit_peer_wait(&next);
        CHECK_EQUAL(session_device(s, 0)->total, 128 * UNIT_MIB);
        CHECK_EQUAL(session_device_count(s), 3);
        unit_peer_tell(&next);
        unit_peer_end(&next);
        CHECK_EQUAL(session_remove(name, false), 0);
        CHECK_EQUAL(session_remove(name, false), -ENOENT);
        session_detach(s);
}

static int look_for(const char *name)
{
        struct session *s;
        int r = session_attach(name, &s);

        if (r == 0)
                session_detach(s);
        return r;
}

SIM_TEST_WITH(a_session_ends_with_its_last_process, "SIMCUDA_KEEP=0")
{
        struct unit_peer first = unit_peer_start(observe), last;
        const char *name = getenv("SIMCUDA_SESSION");

        unit_peer_wait(&first);
        last = unit_peer_start(observe);
        unit_peer_wait(&last);
        unit_peer_tell(&first);
        unit_peer_end(&first);
        CHECK_EQUAL(look_for(name), 0);
        unit_peer_tell(&last);
        unit_peer_end(&last);
        CHECK_EQUAL(look_for(name), -ENOENT);
}

SIM_TEST_WITH(processes_that_end_at_once_leave_no_session, "SIMCUDA_KEEP=0")
{
        enum { COUNT = 12 };
        struct unit_peer peer[COUNT];

        for (unsigned i = 0; i < COUNT; i++)
                peer[i] = unit_peer_start(observe);
        for (unsigned i = 0; i < COUNT; i++)
                unit_peer_wait(&peer[i]);
        for (unsigned i = 0; i < COUNT; i++)
                unit_peer_tell(&peer[i]);
        for (unsigned i = 0; i < COUNT; i++)
                unit_peer_end(&peer[i]);
        CHECK_EQUAL(look_for(getenv("SIMCUDA_SESSION")), -ENOENT);
}

/* The first process of any session removes what killed ones have left: not a session in use, not
 * one that is to be kept. */
SIM_TEST_WITH(a_killed_session_is_removed_when_the_next_one_begins, "SIMCUDA_KEEP=0")
{
        char killed[SESSION_NAME_MAX], used[SESSION_NAME_MAX + 5], kept[SESSION_NAME_MAX + 5];
        char other[SESSION_NAME_MAX + 5];
        struct unit_peer peer = unit_peer_start(observe), user, keeper, next;

        CHECK_EQUAL(session_name(killed), 0);
        unit_peer_wait(&peer);
        (void)snprintf(used, sizeof(used), "%s-used", killed);
        (void)setenv("SIMCUDA_SESSION", used, 1);
        user = unit_peer_start(observe);
        unit_peer_wait(&user);
        (void)snprintf(kept, sizeof(kept), "%s-kept", killed);
        (void)setenv("SIMCUDA_SESSION", kept, 1);
        (void)setenv("SIMCUDA_KEEP", "1", 1);
        keeper = unit_peer_start(observe);
        unit_peer_wait(&keeper);
        unit_peer_kill(&keeper);
        unit_peer_kill(&peer);
        CHECK_EQUAL(look_for(killed), 0);

        (void)snprintf(other, sizeof(other), "%s-next", killed);
        (void)setenv("SIMCUDA_SESSION", other, 1);
        (void)setenv("SIMCUDA_KEEP", "0", 1);
        next = unit_peer_start(observe);
        unit_peer_wait(&next);
        CHECK_EQUAL(look_for(killed), -ENOENT);
        CHECK_EQUAL(look_for(used), 0);
        CHECK_EQUAL(session_remove(kept, false), 0);
        unit_peer_tell(&next);
        unit_peer_end(&next);
        unit_peer_tell(&user);
        unit_peer_end(&user);
        CHECK_EQUAL(look_for(used), -ENOENT);
}

static void observe_from_another_namespace(void)
{
        struct unit_peer inner;

        CHECK(unshare(CLONE_NEWPID) == 0);
        inner = unit_peer_start(observe);
        unit_peer_wait(&inner);
        unit_tell();
        unit_wait_told();
        unit_peer_tell(&inner);
        unit_peer_end(&inner);
}

/* Its number means another process here, or none. */
SIM_TEST_WITH(a_session_in_use_in_another_pid_namespace_is_not_removed, "SIMCUDA_KEEP=0")
{
        const char *name = getenv("SIMCUDA_SESSION");
        struct unit_peer peer, own;

        if (geteuid() != 0) {
                (void)fprintf(stderr, "left out, needs root to make a pid namespace\n");
                return;
        }
#ifdef __SANITIZE_ADDRESS__
        (void)fprintf(stderr, "left out, LeakSanitizer cannot work in a pid namespace\n");
        return;
#endif
        peer = unit_peer_start(observe_from_another_namespace);
        unit_peer_wait(&peer);
        own = unit_peer_start(observe);
        unit_peer_wait(&own);
        unit_peer_tell(&own);
        unit_peer_end(&own);
        CHECK_EQUAL(session_remove(name, false), -EBUSY);
        unit_peer_tell(&peer);
        unit_peer_end(&peer);
        CHECK_EQUAL(look_for(name), -ENOENT);
}

SIM_TEST_WITH(each_card_has_identifiers_of_its_own, "SIMCUDA_GPUS=2")
{
        CUuuid a, b;
        char id[16];
        CUdevice d;

        OK(cuInit(0));
        OK(cuDeviceGetUuid_v2(&a, 0));
        OK(cuDeviceGetUuid_v2(&b, 1));
        CHECK(memcmp(&a, &b, sizeof(a)) != 0);
        OK(cuDeviceGetPCIBusId(id, sizeof(id), 1));
        OK(cuDeviceGetByPCIBusId(&d, id));
        CHECK_EQUAL(d, 1);
        CHECK_EQUAL(cuDeviceGetUuid_v2(&a, 2), CUDA_ERROR_INVALID_DEVICE);
}

static void come_and_go(void)
{
        unit_wait_told();
        (void)unit_begin();
        unit_tell();
        unit_wait_told();
}

SIM_TEST(processes_that_start_at_once_share_one_session)
{
        enum { COUNT = 12 };
        struct unit_peer peer[COUNT];

        for (unsigned i = 0; i < COUNT; i++)
                peer[i] = unit_peer_start(come_and_go);
        for (unsigned i = 0; i < COUNT; i++)
                unit_peer_tell(&peer[i]);
        for (unsigned i = 0; i < COUNT; i++)
                unit_peer_wait(&peer[i]);
        CHECK_EQUAL(unit_used(0), COUNT * ((size_t)1 << 30) / 256);
        for (unsigned i = 0; i < COUNT; i++)
                unit_peer_tell(&peer[i]);
        for (unsigned i = 0; i < COUNT; i++)
                unit_peer_end(&peer[i]);
        CHECK_EQUAL(unit_used(0), 0);
}

static void (*before_fchmod)(void);

/* Another process joins before a new session's file has its final mode. */
int fchmod(int fd, mode_t mode)
{
        void (*first)(void) = before_fchmod;

        before_fchmod = NULL;
        if (first)
                first();
        return (int)syscall(SYS_fchmod, fd, mode);
}

static void join_and_leave(void)
{
        struct session *s;

        CHECK_EQUAL(session_join(true, &s), 0);
        session_leave(s);
        session_detach(s);
}

static void join_as_another(void)
{
        CHECK_EQUAL(setuid(1), 0);
        join_and_leave();
}

static void let_another_join(void)
{
        struct unit_peer peer = unit_peer_start(join_as_another);

        unit_peer_end(&peer);
}

SIM_TEST(another_user_may_join_while_a_session_is_made)
{
        char name[SESSION_NAME_MAX];

        if (geteuid() != 0) {
                (void)fprintf(stderr, "left out, needs root to be two users\n");
                return;
        }
        (void)snprintf(name, sizeof(name), "+%s", getenv("SIMCUDA_SESSION"));
        (void)setenv("SIMCUDA_SESSION", name, 1);
        before_fchmod = let_another_join;
        join_and_leave();
        CHECK(!before_fchmod);
        CHECK_EQUAL(session_remove(name, true), 0);
}

static void count_one(void)
{
        CUdeviceptr p;

        (void)unit_begin();
        OK(cuMemAlloc_v2(&p, 64));
        OK(cuMemcpyHtoD_v2(p, "0123456789", 10));
}

SIM_TEST(counts_outlive_more_processes_than_there_are_slots)
{
        if (unit_emulated("several hundred processes in time"))
                return;
        for (unsigned i = 0; i < SESSION_SLOTS + 20; i++) {
                struct unit_peer peer = unit_peer_start(count_one);

                unit_peer_end(&peer);
                (void)close(peer.in);
                (void)close(peer.out);
        }
        CHECK_EQUAL(unit_totals(0).h2d_bytes, 10 * (SESSION_SLOTS + 20));
}

SIM_TEST_WITH(simcuda_stat_prints_the_counts_of_a_session, "SIMCUDA_MEMORY=64MiB")
{
        struct unit_peer peer = unit_peer_start(count_one);
        char command[4096], out[8192] = "";
        FILE *stat;

        if (!getenv("SUBLET_BUILD"))
                /* A person has started the test in its folder. */
                (void)setenv("SUBLET_BUILD", "../..", 1);
        unit_peer_end(&peer);
        (void)snprintf(command, sizeof(command), "'%s/sim/simcuda-stat' --json",
                       getenv("SUBLET_BUILD"));
        stat = popen(command, "re");
        CHECK(stat);
        CHECK(fread(out, 1, sizeof(out) - 1, stat) > 0);
        CHECK_EQUAL(pclose(stat), 0);
        CHECK(strstr(out, "\"total\": 67108864"));
        CHECK(strstr(out, "\"h2d_bytes\": 10, "));
        CHECK(strstr(out, "\"live\": false"));
        (void)snprintf(command, sizeof(command),
                       "'%s/sim/simcuda-stat' --session no-such-session 2>/dev/null",
                       getenv("SUBLET_BUILD"));
        CHECK(system(command) != 0);
}

static void use_after_fork(void)
{
        CUdeviceptr p;
        pid_t child;
        int status;

        (void)unit_begin();
        OK(cuMemAlloc_v2(&p, 8 * UNIT_MIB));
        child = fork();
        if (child == 0) {
                CHECK_EQUAL(cuMemAlloc_v2(&p, 64), CUDA_ERROR_NOT_INITIALIZED);
                CHECK_EQUAL(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
                exit(0); /* the exit must free no memory of the parent */
        }
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        CHECK_EQUAL(status, 0);
        OK(cuMemsetD8_v2(p, 1, 64));
        OK(cuCtxSynchronize());
        CHECK(unit_used(0) >= 8 * UNIT_MIB);
}

SIM_TEST(a_forked_child_cannot_use_the_driver)
{
        use_after_fork();
}

static void leave_while_a_kernel_spins(void)
{
        unsigned *flag;
        CUstream s;

        (void)unit_begin();
        flag = unit_pinned(64);
        OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        OK(unit_launch(unit_kernel("wait_flag"), unit_address(flag), s));
        OK(cuStreamWaitValue32_v2(s, unit_address(flag), 1, CU_STREAM_WAIT_VALUE_GEQ));
        exit(0);
}

SIM_TEST(a_process_can_exit_while_its_kernel_never_ends)
{
        struct unit_peer peer = unit_peer_start(leave_while_a_kernel_spins);

        unit_peer_end(&peer);
        CHECK_EQUAL(unit_used(0), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(memory_of_another_process_is_not_free_until_it_exits),
                cmocka_unit_test(a_killed_process_gives_its_memory_back),
                cmocka_unit_test(a_context_needs_room_on_the_card),
                cmocka_unit_test(a_process_can_be_killed_at_a_named_call),
                cmocka_unit_test(a_process_can_be_killed_after_a_named_call),
                cmocka_unit_test(a_process_can_be_stopped_at_a_named_call_and_goes_on),
                cmocka_unit_test(a_card_that_vanishes_answers_with_errors_for_ever),
                cmocka_unit_test(a_copy_takes_its_bytes_divided_by_the_bus_speed),
                cmocka_unit_test(two_processes_share_a_direction_of_the_bus),
                cmocka_unit_test(the_two_directions_of_the_bus_do_not_disturb_each_other),
                cmocka_unit_test(a_session_in_use_keeps_its_cards_and_an_empty_one_takes_new_ones),
                cmocka_unit_test(a_session_ends_with_its_last_process),
                cmocka_unit_test(processes_that_end_at_once_leave_no_session),
                cmocka_unit_test(a_killed_session_is_removed_when_the_next_one_begins),
                cmocka_unit_test(a_session_in_use_in_another_pid_namespace_is_not_removed),
                cmocka_unit_test(each_card_has_identifiers_of_its_own),
                cmocka_unit_test(processes_that_start_at_once_share_one_session),
                cmocka_unit_test(another_user_may_join_while_a_session_is_made),
                cmocka_unit_test(counts_outlive_more_processes_than_there_are_slots),
                cmocka_unit_test(simcuda_stat_prints_the_counts_of_a_session),
                cmocka_unit_test(a_forked_child_cannot_use_the_driver),
                cmocka_unit_test(a_process_can_exit_while_its_kernel_never_ends),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
