/* test_gate.c: a thread that has passed the gate may use memory until it leaves. The thread that
 * shuts the gate may take memory away once no thread is inside. Here many threads pass while one
 * shuts and opens the gate; in place of memory there is a flag, which no thread inside may see
 * down. */
#include "unit.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fakes/preload.h"
#include "preload/state/core.h"
#include "preload/stream/gate.h"
#include "preload/stream/interrupt.h"

#define THREADS 2
#define ROUNDS  4000

static _Atomic bool resource = true;
static _Atomic bool stop;
static _Atomic unsigned violations, passes;

/* ---- fakes of other modules ---- */

void core_wait_since(struct core_wait *w, uint32_t heard, uint64_t timeout_ns)
{
        lock_release(&core_lock);
        bell_wait(&core.changed, heard, timeout_ns);
        lock_acquire(&core_lock);
}

static void back_new(uint64_t work)
{
        gate_open(GATE_UNBACKED);
}

static _Atomic bool interrupted, turn_comes, signal_comes;

bool interrupt_ends(struct interrupt_wait *w, uint64_t *ret_timeout_ns)
{
        bool ends = atomic_load(&interrupted);

        *ret_timeout_ns = UINT64_MAX;
        if (atomic_exchange(&turn_comes, false)) { /* a turn comes while core_lock is given up */
                core.running = true;
                gate_open(GATE_NO_LEASE);
                bell_ring(&core.changed);
        }
        if (atomic_exchange(&signal_comes, false)) { /* a signal comes after the check */
                atomic_store(&interrupted, true);
                bell_ring(&core.changed);
        }
        return ends;
}

/* ---- tests ---- */

static void *passer(void *unused)
{
        while (!atomic_load(&stop)) {
                struct gate_thread *t = gate_enter(NULL, 0);

                for (int i = 0; i < 4; i++)
                        if (!atomic_load_explicit(&resource, memory_order_relaxed))
                                atomic_fetch_add(&violations, 1);
                gate_leave(t);
                atomic_fetch_add_explicit(&passes, 1, memory_order_relaxed);
        }
        return NULL;
}

static unsigned waiters(void)
{
        unsigned n;

        lock_acquire(&core_lock);
        n = core.waiters;
        lock_release(&core_lock);
        return n;
}

/* Shuts the gate for a moment; with until_waited, until a thread waits at it. */
static void shut_and_open(bool until_waited)
{
        unsigned seen = atomic_load(&passes);

        /* Threads that have just been woken pass the slow way, with full fences. Wait until they
         * pass the fast way again. */
        while (atomic_load_explicit(&passes, memory_order_relaxed) - seen < 100)
                (void)sched_yield();
        lock_acquire(&core_lock);
        core.running = false;
        lock_release(&core_lock);
        gate_shut(GATE_NO_LEASE);
        while (gate_anybody_inside())
                (void)sched_yield();
        atomic_store_explicit(&resource, false, memory_order_relaxed);
        for (volatile int i = 0; i < 500; i++)
                ;
        while (until_waited && waiters() == 0)
                (void)sched_yield();
        atomic_store_explicit(&resource, true, memory_order_relaxed);
        lock_acquire(&core_lock);
        core.running = true;
        gate_open(GATE_NO_LEASE);
        bell_ring(&core.changed);
        lock_release(&core_lock);
}

static void hammer(unsigned rounds)
{
        pthread_t threads[THREADS];
        unsigned before = atomic_load(&passes);

        atomic_store(&stop, false);
        for (unsigned i = 0; i < THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, passer, NULL), 0);
        for (unsigned i = 0; i < rounds; i++)
                shut_and_open(i + 1 == rounds);
        while (atomic_load(&passes) == before) /* on a busy machine no thread has run yet */
                (void)sched_yield();
        atomic_store(&stop, true);
        for (unsigned i = 0; i < THREADS; i++)
                pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&violations), 0);
        assert_true(atomic_load(&passes) != before); /* it may wrap on a slow machine */
        assert_false(gate_anybody_inside());
}

static void no_thread_is_inside_once_the_gate_is_shut(void **state)
{
        hammer(ROUNDS);
        assert_true(atomic_load(&request_kicks) > 0);
}

/* Forbids membarrier from now on, as the sandboxes of some container runtimes do. */
static int refuse_membarrier(void)
{
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const struct sock_fprog program = {.len = ARRAY_SIZE(filter), .filter = filter};

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
                return -1;
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void the_gate_holds_without_membarrier(void **state)
{
        int status;
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
                if (refuse_membarrier() < 0)
                        _exit(77);
                gate_setup();
                if (!(atomic_load(&gate_bits) & GATE_FENCE))
                        _exit(3);
                atomic_store(&violations, 0);
                hammer(ROUNDS);
                _exit(atomic_load(&violations) ? 1 : 0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                skip(); /* there is no seccomp, as under an emulator */
        assert_int_equal(status, 0);
}

/* A program may sandbox itself after its set-up. Threads that pass the fast way do not notice. */
static void the_gate_holds_if_membarrier_is_refused_later(void **state)
{
        int status;
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
                gate_setup();
                if (refuse_membarrier() < 0 || atomic_load(&gate_bits) & GATE_FENCE)
                        _exit(77);
                atomic_store(&violations, 0);
                hammer(ROUNDS / 4);
                if (!(atomic_load(&gate_bits) & GATE_FENCE))
                        _exit(3);
                _exit(atomic_load(&violations) ? 1 : 0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                skip(); /* no seccomp, or no membarrier to begin with */
        assert_int_equal(status, 0);
}

static void a_thread_inside_passes_again_while_the_gate_is_shut(void **state)
{
        struct gate_thread *outer = gate_enter(NULL, 0), *inner;

        gate_shut(GATE_NO_LEASE);
        inner = gate_enter(NULL, 0);
        assert_ptr_equal(inner, outer);
        gate_leave(inner);
        assert_true(gate_anybody_inside());
        gate_leave(outer);
        assert_false(gate_anybody_inside());
        gate_open(GATE_NO_LEASE);
}

static _Atomic bool through;

static void *come_through(void *unused)
{
        struct gate_thread *t = gate_enter(NULL, 0);

        atomic_store(&through, true);
        gate_leave(t);
        return NULL;
}

/* Not even a program with a lease may use memory that is being replaced. */
static void no_thread_passes_while_memory_is_held(void **state)
{
        pthread_t thread;

        core.running = false;
        atomic_store(&through, false);
        gate_shut(GATE_NO_LEASE | GATE_HELD);
        assert_int_equal(pthread_create(&thread, NULL, come_through, NULL), 0);
        while (waiters() == 0 && !atomic_load(&through))
                (void)usleep(1000);
        lock_acquire(&core_lock);
        core.running = true;
        gate_open(GATE_NO_LEASE);
        lock_release(&core_lock);
        for (unsigned i = 0; i < 10; i++) {
                bell_ring(&core.changed);
                (void)usleep(1000);
        }
        assert_false(atomic_load(&through));
        lock_acquire(&core_lock);
        gate_open(GATE_HELD);
        bell_ring(&core.changed);
        lock_release(&core_lock);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_true(atomic_load(&through));
}

static sigjmp_buf away;
static _Atomic bool jumped;

static void jump(int number)
{
        atomic_store(&jumped, true);
        siglongjmp(away, number);
}

/* Waits at the gate until a signal handler jumps out of the wait, and then waits again (how NULL)
 * or ends. */
static void *jumper(void *how)
{
        if (sigsetjmp(away, 1) == 0 || !how)
                gate_leave(gate_enter(NULL, 0));
        return NULL;
}

static void jump_out(bool ends)
{
        const struct sigaction action = {.sa_handler = jump};
        pthread_t thread;

        assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
        core.running = false;
        atomic_store(&jumped, false);
        atomic_store(&request_kicks, 0);
        gate_shut(GATE_NO_LEASE);
        assert_int_equal(pthread_create(&thread, NULL, jumper, ends ? &away : NULL), 0);
        while (waiters() == 0)
                (void)usleep(1000);
        /* This thread holds the lock, so that the other thread does not hold it when it jumps. */
        lock_acquire(&core_lock);
        assert_int_equal(pthread_kill(thread, SIGUSR1), 0);
        while (!atomic_load(&jumped))
                (void)usleep(1000);
        lock_release(&core_lock);
        if (ends)
                assert_int_equal(pthread_join(thread, NULL), 0);
        while (!ends && atomic_load(&request_kicks) < 2 && waiters() < 2)
                (void)usleep(1000); /* until the thread waits again */
        assert_int_equal(waiters(), ends ? 0 : 1);
        lock_acquire(&core_lock);
        core.running = true;
        gate_open(GATE_NO_LEASE);
        bell_ring(&core.changed);
        lock_release(&core_lock);
        if (!ends)
                assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(waiters(), 0);
}

static void a_signal_handler_may_jump_out_of_a_wait(void **state)
{
        jump_out(false);
        jump_out(true);
}

static pthread_key_t late_key; /* newer than the gate's key, so its destructor runs later */
static _Atomic unsigned late_rounds;
static struct gate_thread *_Atomic late_record;
static _Atomic bool late_goes_on;

/* A destructor that submits work. It sets its key again, so that it runs in every round. */
static void submit_late(void *value)
{
        struct gate_thread *t = gate_enter(NULL, 0);

        atomic_store(&late_record, t);
        while (!atomic_load(&late_goes_on))
                (void)sched_yield();
        gate_leave(t);
        if (atomic_fetch_add(&late_rounds, 1) + 1 < PTHREAD_DESTRUCTOR_ITERATIONS)
                (void)pthread_setspecific(late_key, value);
}

static void *end_with_destructors(void *unused)
{
        gate_leave(gate_enter(NULL, 0));
        (void)pthread_setspecific(late_key, &late_key);
        return NULL;
}

static void *take_record(void *ret)
{
        struct gate_thread *t = gate_enter(NULL, 0);

        *(struct gate_thread **)ret = t;
        gate_leave(t);
        return NULL;
}

static void a_thread_that_submits_while_it_ends_keeps_its_own_record(void **state)
{
        struct gate_thread *other = NULL;
        pthread_t ending, thread;

        assert_int_equal(pthread_key_create(&late_key, submit_late), 0);
        assert_int_equal(pthread_create(&ending, NULL, end_with_destructors, NULL), 0);
        while (!atomic_load(&late_record))
                (void)sched_yield();
        assert_int_equal(pthread_create(&thread, NULL, take_record, &other), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_ptr_not_equal(other, atomic_load(&late_record));
        assert_true(gate_anybody_inside());
        atomic_store(&late_goes_on, true);
        assert_int_equal(pthread_join(ending, NULL), 0);
        assert_int_equal(atomic_load(&late_rounds), PTHREAD_DESTRUCTOR_ITERATIONS);
        assert_false(gate_anybody_inside());
        assert_int_equal(pthread_key_delete(late_key), 0);
}

static void *end_inside(void *ret)
{
        *(struct gate_thread **)ret = gate_enter(NULL, 0);
        pthread_exit(NULL);
}

static void a_thread_that_ends_inside_no_longer_counts_as_inside(void **state)
{
        struct gate_thread *inside = NULL, *next = NULL;
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, end_inside, &inside), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_false(gate_anybody_inside());
        assert_ptr_equal(atomic_load(&forgotten_thread), inside);
        assert_int_equal(pthread_create(&thread, NULL, take_record, &next), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_ptr_equal(next, inside); /* the record is used again */
}

static struct gate_thread *_Atomic passed_as;

static void *enter_or_end(void *unused)
{
        struct gate_thread *t = gate_enter_or_end(NULL, 0);

        if (t != &gate_interrupted)
                gate_leave(t);
        atomic_store(&passed_as, t);
        return NULL;
}

static void an_interrupted_thread_has_not_passed_and_waits_no_more(void **state)
{
        pthread_t ends, stays;

        core.running = false;
        atomic_store(&through, false);
        gate_shut(GATE_NO_LEASE);
        assert_int_equal(pthread_create(&ends, NULL, enter_or_end, NULL), 0);
        assert_int_equal(pthread_create(&stays, NULL, come_through, NULL), 0);
        while (waiters() < 2)
                (void)usleep(1000);
        lock_acquire(&core_lock);
        atomic_store(&interrupted, true);
        bell_ring(&core.changed);
        lock_release(&core_lock);
        assert_int_equal(pthread_join(ends, NULL), 0);
        assert_ptr_equal(atomic_load(&passed_as), &gate_interrupted);
        assert_false(gate_anybody_inside());
        assert_int_equal(waiters(), 1); /* the thread whose call must not fail still waits */
        assert_false(atomic_load(&through));
        atomic_store(&interrupted, false);
        lock_acquire(&core_lock);
        core.running = true;
        gate_open(GATE_NO_LEASE);
        bell_ring(&core.changed);
        lock_release(&core_lock);
        assert_int_equal(pthread_join(stays, NULL), 0);
}

/* Starts a thread that waits for its turn. Returns the record with which it passes; NULL: it still
 * waits after 10 s. */
static struct gate_thread *passes_as(pthread_t *ret)
{
        core.running = false;
        atomic_store(&passed_as, NULL);
        gate_shut(GATE_NO_LEASE);
        assert_int_equal(pthread_create(ret, NULL, enter_or_end, NULL), 0);
        for (unsigned i = 0; i < 10000 && !atomic_load(&passed_as); i++)
                (void)usleep(1000);
        return atomic_load(&passed_as);
}

static void a_turn_that_comes_while_python_is_asked_is_not_missed(void **state)
{
        struct gate_thread *t;
        pthread_t thread;

        atomic_store(&turn_comes, true);
        t = passes_as(&thread);
        assert_non_null(t);
        assert_ptr_not_equal(t, &gate_interrupted);
        assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_signal_that_comes_just_before_the_wait_is_not_missed(void **state)
{
        struct gate_thread *t;
        pthread_t thread;

        atomic_store(&signal_comes, true);
        t = passes_as(&thread);
        atomic_store(&interrupted, false);
        assert_ptr_equal(t, &gate_interrupted);
        assert_int_equal(pthread_join(thread, NULL), 0);
        core.running = true;
        gate_open(GATE_NO_LEASE);
}

static void an_idle_client_reports_its_submission_and_goes_on(void **state)
{
        core.submits = false;
        gate_shut(GATE_TELL);
        gate_leave(gate_enter(NULL, 0));
        gate_leave(gate_enter(NULL, 0));
        assert_true(core.submits);
}

static void a_bystander_passes_without_being_counted(void **state)
{
        uint64_t before = gate_submissions();

        atomic_store(&core.bystander, true);
        gate_shut(GATE_NO_LEASE);
        assert_null(gate_enter(NULL, 0));
        gate_leave(NULL);
        assert_false(gate_anybody_inside());
        assert_int_equal(gate_submissions(), before);
        gate_open(GATE_NO_LEASE);
        atomic_store(&core.bystander, false);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(no_thread_is_inside_once_the_gate_is_shut),
                cmocka_unit_test(the_gate_holds_without_membarrier),
                cmocka_unit_test(the_gate_holds_if_membarrier_is_refused_later),
                cmocka_unit_test(a_thread_inside_passes_again_while_the_gate_is_shut),
                cmocka_unit_test(no_thread_passes_while_memory_is_held),
                cmocka_unit_test(a_signal_handler_may_jump_out_of_a_wait),
                cmocka_unit_test(a_thread_that_submits_while_it_ends_keeps_its_own_record),
                cmocka_unit_test(a_thread_that_ends_inside_no_longer_counts_as_inside),
                cmocka_unit_test(an_interrupted_thread_has_not_passed_and_waits_no_more),
                cmocka_unit_test(a_turn_that_comes_while_python_is_asked_is_not_missed),
                cmocka_unit_test(a_signal_that_comes_just_before_the_wait_is_not_missed),
                cmocka_unit_test(an_idle_client_reports_its_submission_and_goes_on),
                cmocka_unit_test(a_bystander_passes_without_being_counted),
        };

        core.running = true;
        gate_setup();
        gate_own(GATE_UNBACKED, back_new);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
