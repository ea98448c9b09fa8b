/* test_sim_checkpoint.c: a process leaves the card whole, and comes back. */
#include "sim_unit.h"

#include <unistd.h>

#include "sim/session/session.h"

static CUprocessState state_of(pid_t pid)
{
        CUprocessState state = CU_PROCESS_STATE_FAILED;

        OK(cuCheckpointProcessGetState(pid, &state));
        return state;
}

static void lock_and_save(pid_t pid)
{
        CUcheckpointLockArgs args = {.timeoutMs = 10000};

        OK(cuCheckpointProcessLock(pid, &args));
        CHECK_EQUAL(state_of(pid), CU_PROCESS_STATE_LOCKED);
        OK(cuCheckpointProcessCheckpoint(pid, NULL));
        CHECK_EQUAL(state_of(pid), CU_PROCESS_STATE_CHECKPOINTED);
}

static void restore_and_unlock(pid_t pid)
{
        OK(cuCheckpointProcessRestore(pid, NULL));
        CHECK_EQUAL(state_of(pid), CU_PROCESS_STATE_LOCKED);
        OK(cuCheckpointProcessUnlock(pid, NULL));
        CHECK_EQUAL(state_of(pid), CU_PROCESS_STATE_RUNNING);
}

SIM_TEST_WITH(a_process_can_save_itself, "SIMCUDA_MEMORY=256MiB")
{
        const pid_t own = getpid();
        CUdeviceptr p;
        unsigned value = 0;
        CUfunction f;

        (void)unit_begin();
        f = unit_kernel("add_one");
        OK(cuMemAlloc_v2(&p, 100 * UNIT_MIB));
        OK(cuMemsetD32_v2(p, 41, 1));
        CHECK(unit_used(0) > 100 * UNIT_MIB);
        lock_and_save(own);
        CHECK_EQUAL(unit_used(0), 0);
        restore_and_unlock(own);
        CHECK(unit_used(0) > 100 * UNIT_MIB);
        OK(unit_launch(f, p, NULL));
        OK(cuMemcpyDtoH_v2(&value, p, sizeof(value)));
        CHECK_EQUAL(value, 42);
        CHECK(unit_totals(0).d2h_bytes > 100 * UNIT_MIB);
}

static void wait_and_add(void)
{
        CUdeviceptr p;
        unsigned value = 0;

        (void)unit_begin();
        OK(cuMemAlloc_v2(&p, 100 * UNIT_MIB));
        OK(cuMemsetD32_v2(p, 6, 1));
        unit_tell();
        unit_wait_told();
        OK(cuMemcpyDtoH_v2(&value, p, sizeof(value))); /* waits until the process is unlocked */
        CHECK_EQUAL(value, 6);
        unit_tell();
        unit_wait_told();
}

SIM_TEST_WITH(another_process_saves_one, "SIMCUDA_MEMORY=256MiB")
{
        struct unit_peer peer = unit_peer_start(wait_and_add);
        pid_t thread;
        CUdeviceptr p;

        unit_peer_wait(&peer);
        (void)unit_begin();
        OK(cuCheckpointProcessGetRestoreThreadId(peer.pid, &thread));
        CHECK(thread != peer.pid);
        lock_and_save(peer.pid);
        OK(cuMemAlloc_v2(&p, 200 * UNIT_MIB));
        OK(cuMemFree_v2(p));
        unit_peer_tell(&peer);
        restore_and_unlock(peer.pid);
        unit_peer_wait(&peer);
        unit_peer_tell(&peer);
        unit_peer_end(&peer);
        CHECK_EQUAL(cuCheckpointProcessLock(peer.pid, NULL), CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST_WITH(a_killed_process_is_nobody, "SIMCUDA_MEMORY=256MiB")
{
        struct unit_peer peer = unit_peer_start(wait_and_add);

        unit_peer_wait(&peer);
        OK(cuInit(0));
        lock_and_save(peer.pid);
        unit_peer_kill(&peer);
        CHECK_EQUAL(cuCheckpointProcessRestore(peer.pid, NULL), CUDA_ERROR_INVALID_VALUE);
}

SIM_TEST(each_step_needs_the_one_before)
{
        const pid_t own = getpid();

        (void)unit_begin();
        CHECK_EQUAL(cuCheckpointProcessCheckpoint(own, NULL), CUDA_ERROR_ILLEGAL_STATE);
        CHECK_EQUAL(cuCheckpointProcessRestore(own, NULL), CUDA_ERROR_ILLEGAL_STATE);
        CHECK_EQUAL(cuCheckpointProcessUnlock(own, NULL), CUDA_ERROR_ILLEGAL_STATE);
        OK(cuCheckpointProcessLock(own, NULL));
        CHECK_EQUAL(cuCheckpointProcessLock(own, NULL), CUDA_ERROR_ILLEGAL_STATE);
        CHECK_EQUAL(cuCheckpointProcessRestore(own, NULL), CUDA_ERROR_ILLEGAL_STATE);
        OK(cuCheckpointProcessUnlock(own, NULL));
        OK(cuCtxSynchronize());
}

SIM_TEST(a_lock_waits_for_work_until_its_time_is_up)
{
        CUcheckpointLockArgs args = {.timeoutMs = 50};
        unsigned *flag;
        CUfunction f;

        (void)unit_begin();
        f = unit_kernel("wait_flag");
        flag = unit_pinned(sizeof(*flag));
        OK(unit_launch(f, unit_address(flag), NULL));
        CHECK_EQUAL(cuCheckpointProcessLock(getpid(), &args), CUDA_ERROR_NOT_READY);
        CHECK_EQUAL(state_of(getpid()), CU_PROCESS_STATE_RUNNING);
        unit_set_flag(flag);
        OK(cuCtxSynchronize());
        lock_and_save(getpid());
        restore_and_unlock(getpid());
}

SIM_TEST(a_process_with_managed_memory_is_refused_unharmed)
{
        CUdeviceptr p;

        (void)unit_begin();
        OK(cuMemAllocManaged(&p, 4 * UNIT_MIB, CU_MEM_ATTACH_GLOBAL));
        OK(cuCheckpointProcessLock(getpid(), NULL));
        CHECK_EQUAL(cuCheckpointProcessCheckpoint(getpid(), NULL), CUDA_ERROR_NOT_SUPPORTED);
        OK(cuCheckpointProcessUnlock(getpid(), NULL));
        OK(cuMemFree_v2(p));
        lock_and_save(getpid());
        restore_and_unlock(getpid());
}

SIM_TEST_WITH(a_process_that_finds_no_room_is_lost, "SIMCUDA_MEMORY=256MiB")
{
        struct unit_peer peer = unit_peer_start(wait_and_add);
        CUdeviceptr p;

        unit_peer_wait(&peer);
        (void)unit_begin();
        lock_and_save(peer.pid);
        OK(cuMemAlloc_v2(&p, 200 * UNIT_MIB));
        CHECK_EQUAL(cuCheckpointProcessRestore(peer.pid, NULL), CUDA_ERROR_OUT_OF_MEMORY);
        CHECK_EQUAL(state_of(peer.pid), CU_PROCESS_STATE_FAILED);
        unit_peer_kill(&peer);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_process_can_save_itself),
                cmocka_unit_test(another_process_saves_one),
                cmocka_unit_test(a_killed_process_is_nobody),
                cmocka_unit_test(each_step_needs_the_one_before),
                cmocka_unit_test(a_lock_waits_for_work_until_its_time_is_up),
                cmocka_unit_test(a_process_with_managed_memory_is_refused_unharmed),
                cmocka_unit_test(a_process_that_finds_no_room_is_lost),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
