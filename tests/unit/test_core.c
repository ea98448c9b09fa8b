/* test_core.c: the library in a process: set-up, children, exit, the message in a long wait, and
 * the GPUs that are shared. */
#include "unit.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "heap_end.h"
#include "preload/process/python.h"
#include "preload/state/part.h"
#include "preload/state/request.h"

/* ---- the clock and sleep ---- */

#define FOR_EVER (UINT64_MAX / 2)

static uint64_t now_ns, slept_ns; /* slept_ns: timeout of the last sleep */
static _Atomic unsigned sleeps;

int clock_gettime(clockid_t which, struct timespec *ret)
{
        ret->tv_sec = (time_t)(now_ns / NSEC_PER_SEC);
        ret->tv_nsec = (long)(now_ns % NSEC_PER_SEC);
        return 0;
}

/* Waits on the bell return at once; all other calls go to the kernel. */
long syscall(long number, ...)
{
        long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
        const struct timespec *ts;
        long a[6];
        va_list list;

        va_start(list, number);
        for (unsigned i = 0; i < ARRAY_SIZE(a); i++)
                a[i] = va_arg(list, long);
        va_end(list);
        if (number != SYS_futex || (a[1] & FUTEX_CMD_MASK) != FUTEX_WAIT)
                return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
        sleeps++;
        if (a[0] != (long)&core.changed.rings)
                return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        ts = (const struct timespec *)a[3];
        slept_ns = ts ? (uint64_t)ts->tv_sec * NSEC_PER_SEC + (uint64_t)ts->tv_nsec : UINT64_MAX;
        if ((uint32_t)a[2] != core.changed.rings)
                slept_ns = 0; /* the bell has rung already */
        return 0;
}

/* ---- fakes of other modules ---- */

static char order[64]; /* one letter for each part that was set up or informed */
static int opens;      /* the result of opening the driver */
static void (*while_it_opens)(void);
static unsigned attaches, forgotten;
static bool attach_fails, swap_fails;
static CUresult total_says, memory_says;

static void note(char letter)
{
        size_t n = strlen(order);

        assert_true(n + 1 < sizeof(order));
        order[n] = letter;
        order[n + 1] = '\0';
}

int real_open(void)
{
        note('r');
        if (while_it_opens)
                while_it_opens();
        return opens;
}

void python_setup(void)
{
        note('p');
}

static void first_setup(void)
{
        note(strchr(order, 'p') ? 'f' : '!');
}

static void second_setup(void)
{
        note(strchr(order, 'f') ? 's' : '!');
}

static void forget(void)
{
        forgotten++;
}

static void first_exits(void)
{
        note(core_passive() ? 'x' : '!');
}

static void second_exits(void)
{
        note(atomic_load(&core.exiter) ? 'y' : '!');
}

static void attach(struct gpu *g)
{
        attaches++;
        assert_int_equal(atomic_load(&core_lock.word), 1);
        g->managed = !attach_fails;
}

static void first_learn(struct gpu *g)
{
        assert_int_equal(g->heap.reserve_bytes, 4 * GIB);
        note('m');
}

static void second_learn(struct gpu *g)
{
        g->swap = swap_fails ? NULL : (struct swap *)&swap_fails;
        note('v');
}

const struct part parts[] = {
        {.setup = first_setup, .exits = first_exits, .learn = first_learn, .forked = forget},
        {.attach = attach},
        {.setup = second_setup, .exits = second_exits, .learn = second_learn, .forked = forget},
};
const unsigned parts_count = ARRAY_SIZE(parts);

void request_close(void)
{
        forgotten++;
}

/* ---- messages to the user ---- */

static char log_text[512];

static bool guarded; /* the library looks at stderr when it is loaded */

void log_guard_stderr(void)
{
        guarded = true;
}

void log_open(const char *tag, enum log_level default_level)
{
}

void log_write(enum log_level level, const char *format, ...)
{
        va_list list;

        va_start(list, format);
        (void)vsnprintf(log_text, sizeof(log_text), format, list);
        va_end(list);
}

/* Returns the last message since the last call. */
static const char *log_said(void)
{
        static char text[sizeof(log_text)];

        memcpy(text, log_text, sizeof(text));
        log_text[0] = '\0';
        return text;
}

static void stderr_is_looked_at_before_the_program_begins(void **state)
{
        assert_true(guarded);
}

/* ---- children ---- */

static void must(bool holds, const char *what, int line)
{
        if (holds)
                return;
        (void)fprintf(stderr, "%s:%d: %s\n", __FILE__, line, what);
        _exit(1);
}
#define MUST(what) must(what, #what, __LINE__)

/* Runs a scene in a process of its own, because a process is set up only once. A scene that fails
 * ends its process with _exit(). */
static int in_child(void (*scene)(void))
{
        int status;
        pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
                (void)alarm(30);
                scene();
                _exit(0);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        return status;
}
#define IN_CHILD(scene) assert_int_equal(in_child(scene), 0)

static unsigned times(char letter)
{
        unsigned n = 0;

        for (const char *p = order; *p; p++)
                n += *p == letter;
        return n;
}

/* ---- set-up ---- */

static void set_up_twice(void)
{
        MUST(core_setup() == 0);
        MUST(strcmp(order, "r") != 0 && !times('!'));
        for (const char *each = "rpfs"; *each; each++)
                MUST(times(*each) == 1);
        MUST(!core_passive());
        MUST(core_setup() == 0);
        MUST(strlen(order) == 4);
}

static void a_process_is_set_up_once(void **state)
{
        IN_CHILD(set_up_twice);
}

static void set_up_without_a_driver(void)
{
        opens = -ENOENT;
        MUST(core_setup() == -ENOENT);
        MUST(core_passive());
        MUST(strcmp(order, "r") == 0);
        MUST(core_setup() == -ENOENT);
        MUST(strcmp(order, "r") == 0);
}

static void without_a_driver_every_call_passes_through(void **state)
{
        IN_CHILD(set_up_without_a_driver);
}

static _Atomic int others_answer = 1;

static void *set_up_too(void *unused)
{
        others_answer = core_setup();
        return NULL;
}

static void another_thread_comes(void)
{
        pthread_t other;

        MUST(pthread_create(&other, NULL, set_up_too, NULL) == 0);
        while (!sleeps && others_answer == 1)
                (void)sched_yield();
        MUST(others_answer == 1); /* no thread has an answer before the set-up is done */
}

static void two_threads_set_up(void)
{
        while_it_opens = another_thread_comes;
        MUST(core_setup() == 0);
        while (others_answer == 1)
                (void)sched_yield();
        MUST(others_answer == 0);
        MUST(strlen(order) == 4);
}

static void a_thread_that_comes_during_the_set_up_waits_for_it(void **state)
{
        IN_CHILD(two_threads_set_up);
}

static int status_of_child;

static void set_up_in_a_child(void)
{
        MUST(core_setup() == -ECHILD);
        MUST(core_passive());
}

static void a_child_is_made(void)
{
        while_it_opens = NULL;
        status_of_child = in_child(set_up_in_a_child);
}

static void fork_during_the_set_up(void)
{
        while_it_opens = a_child_is_made;
        MUST(core_setup() == 0);
        MUST(status_of_child == 0);
        MUST(!core_passive());
}

static void a_child_made_during_the_set_up_passes_through(void **state)
{
        IN_CHILD(fork_during_the_set_up);
}

static void live_as_a_child(void)
{
        MUST(core_passive());
        MUST(forgotten == 3);
        MUST(core_setup() == 0);
        lock_acquire(&core_lock); /* free, although a thread of the parent holds it */
}

static void fork_with_the_lock_held(void)
{
        MUST(core_setup() == 0);
        lock_acquire(&core_lock);
        MUST(in_child(live_as_a_child) == 0);
        MUST(!core_passive() && !forgotten);
}

static void a_child_passes_through_and_needs_no_lock_of_its_parent(void **state)
{
        IN_CHILD(fork_with_the_lock_held);
}

/* ---- the end ---- */

static const char *expected;
static uint32_t heard_at_exit;

static void look_last(void)
{
        MUST(strcmp(order, expected) == 0);
        MUST((bell_listen(&core.changed) != heard_at_exit) == (*expected != '\0'));
        _exit(0);
}

static void exit_is_expected(void)
{
        heard_at_exit = bell_listen(&core.changed);
        (void)atexit(look_last); /* handlers registered first run last */
        core_expect_exit();
        core_expect_exit();
}

static void exit_normally(void)
{
        expected = "xy";
        exit_is_expected();
        exit(1);
}

static void exit_as_bystander(void)
{
        expected = "";
        exit_is_expected();
        core.bystander = true;
        exit(1);
}

static void the_agent_is_stopped_before_the_driver_shuts_down(void **state)
{
        IN_CHILD(exit_normally);
        IN_CHILD(exit_as_bystander);
}

static void a_driver_that_has_shut_down_wakes_all_waiting_threads(void **state)
{
        uint32_t heard = bell_listen(&core.changed);

        memory_says = CUDA_ERROR_UNKNOWN;
        core_look_for_shutdown();
        assert_false(core_passive());
        memory_says = CUDA_ERROR_DEINITIALIZED;
        core_look_for_shutdown();
        assert_true(core_passive());
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_int_equal(request_kicks, 1);
}

/* ---- waiting ---- */

static uint64_t wait_for_long(struct core_wait *w, uint64_t timeout_ns)
{
        slept_ns = 1;
        lock_acquire(&core_lock);
        core_wait(w, timeout_ns);
        assert_int_equal(atomic_load(&core_lock.word), 1);
        lock_release(&core_lock);
        return slept_ns;
}

static void answer(const char *text)
{
        (void)strcpy(core.holder.text, text);
        core.holder.known = true;
}

static void a_wait_is_as_long_as_asked_and_ends_with_the_bell(void **state)
{
        struct core_wait w = {.what = "a turn"};
        uint32_t heard = bell_listen(&core.changed);

        assert_int_equal(wait_for_long(&w, 5 * NSEC_PER_MSEC), 5 * NSEC_PER_MSEC);
        bell_ring(&core.changed);
        assert_int_equal(wait_for_long(&w, 7 * NSEC_PER_MSEC), 7 * NSEC_PER_MSEC);
        lock_acquire(&core_lock);
        core_wait_since(&w, heard, 7 * NSEC_PER_MSEC);
        lock_release(&core_lock);
        assert_int_equal(slept_ns, 0);
}

static void after_ten_seconds_the_process_in_the_way_is_printed(void **state)
{
        struct core_wait w = {.what = "its turn"};

        assert_int_equal(wait_for_long(&w, UINT64_MAX), 10 * NSEC_PER_SEC);
        now_ns += 10 * NSEC_PER_SEC - 1;
        assert_int_equal(wait_for_long(&w, UINT64_MAX), 1);
        assert_false(core.holder.asked);
        now_ns++;
        assert_int_equal(wait_for_long(&w, UINT64_MAX), 5 * NSEC_PER_SEC);
        assert_true(core.holder.asked);
        now_ns += NSEC_PER_SEC;
        assert_int_equal(wait_for_long(&w, UINT64_MAX), 4 * NSEC_PER_SEC);
        assert_string_equal(log_said(), "");
        answer("process 7 (train) holds it");
        assert_true(wait_for_long(&w, UINT64_MAX) > FOR_EVER);
        assert_non_null(strstr(log_said(), "its turn: process 7 (train) holds it; "));
        now_ns += 100 * NSEC_PER_SEC;
        assert_true(wait_for_long(&w, UINT64_MAX) > FOR_EVER);
        assert_string_equal(log_said(), ""); /* the message comes once in a wait */
        assert_true(core.holder.asked);
}

static void without_an_answer_the_message_comes_five_seconds_later(void **state)
{
        struct core_wait w = {.what = "its turn"};

        (void)wait_for_long(&w, UINT64_MAX);
        now_ns += 12 * NSEC_PER_SEC;
        assert_int_equal(wait_for_long(&w, UINT64_MAX), 5 * NSEC_PER_SEC);
        now_ns += 5 * NSEC_PER_SEC;
        assert_true(wait_for_long(&w, UINT64_MAX) > FOR_EVER);
        assert_non_null(strstr(log_said(), "for its turn; "));
        assert_true(core.holder.asked);
        w = (struct core_wait){.what = "more"};
        (void)wait_for_long(&w, UINT64_MAX);
        now_ns += 10 * NSEC_PER_SEC;
        (void)wait_for_long(&w, UINT64_MAX);
        assert_false(core.holder.known); /* the answer of an earlier wait does not count */
        now_ns += 5 * NSEC_PER_SEC;
        assert_true(wait_for_long(&w, UINT64_MAX) > FOR_EVER);
        assert_non_null(strstr(log_said(), "for more; "));
}

static void sublet_quiet_suppresses_the_message(void **state)
{
        struct core_wait w = {.what = "its turn"}, other = {.what = "its turn"};

        assert_int_equal(setenv("SUBLET_QUIET", "1", 1), 0);
        (void)wait_for_long(&w, UINT64_MAX);
        now_ns += 10 * NSEC_PER_SEC;
        assert_true(wait_for_long(&w, UINT64_MAX) > FOR_EVER);
        now_ns += 10 * NSEC_PER_SEC;
        assert_true(wait_for_long(&w, UINT64_MAX) > FOR_EVER);
        assert_string_equal(log_said(), "");
        assert_false(core.holder.asked);
        assert_int_equal(setenv("SUBLET_QUIET", "0", 1), 0);
        (void)wait_for_long(&other, UINT64_MAX);
        now_ns += 10 * NSEC_PER_SEC;
        (void)wait_for_long(&other, UINT64_MAX);
        answer("somebody");
        (void)wait_for_long(&other, UINT64_MAX);
        assert_string_not_equal(log_said(), "");
        assert_int_equal(unsetenv("SUBLET_QUIET"), 0);
}

static CUresult fake_memory(size_t *ret_free, size_t *ret_total)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
        return memory_says;
}

/* Another thread ends the process. No message will come any more, so the wait ends when the driver
 * has shut down. */
static void a_wait_in_a_process_that_exits_ends_with_the_driver(void **state)
{
        struct core_wait w = {.what = "its turn"};

        memory_says = CUDA_ERROR_DEINITIALIZED;
        assert_int_equal(wait_for_long(&w, UINT64_MAX), 10 * NSEC_PER_SEC);
        assert_false(core_passive());
        core.exiter = 1;
        memory_says = CUDA_SUCCESS;
        assert_int_equal(wait_for_long(&w, UINT64_MAX), 50 * NSEC_PER_MSEC);
        assert_int_equal(wait_for_long(&w, NSEC_PER_MSEC), NSEC_PER_MSEC);
        assert_false(core_passive());
        memory_says = CUDA_ERROR_DEINITIALIZED;
        (void)wait_for_long(&w, UINT64_MAX);
        assert_true(core_passive());
}

/* ---- GPUs ---- */

static unsigned asked_total;
static bool no_uuid, no_uuid_v2, no_vmm;
static size_t granularity;
static CUdevice current_device;
static CUcontext current_context;
static int attribute_that_is; /* the optional attribute that the GPU has */

static CUresult fake_total(size_t *ret, CUdevice device)
{
        asked_total++;
        *ret = GIB;
        return total_says;
}

static CUresult fake_uuid(CUuuid *ret, CUdevice device)
{
        memset(ret, 1, sizeof(*ret));
        return no_uuid ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult fake_uuid_v2(CUuuid *ret, CUdevice device)
{
        memset(ret, 2, sizeof(*ret));
        return no_uuid_v2 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult fake_has(int *ret, CUdevice_attribute which, CUdevice device)
{
        *ret = which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
                       ? !no_vmm
                       : (int)which == attribute_that_is;
        return CUDA_SUCCESS;
}

static CUresult fake_granularity(size_t *ret, const CUmemAllocationProp *prop,
                                 CUmemAllocationGranularity_flags option)
{
        *ret = granularity;
        return granularity == 1 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult fake_device(CUdevice *ret)
{
        *ret = current_device;
        return current_device < 0 ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

static CUresult fake_current(CUcontext *ret)
{
        *ret = current_context;
        return CUDA_SUCCESS;
}

static void a_gpu_is_queried_and_attached_once(void **state)
{
        struct gpu *g = core_attach(3);

        assert_ptr_equal(g, &core.gpus[3]);
        assert_true(g->known && g->managed);
        assert_int_equal(g->index, 3);
        assert_int_equal(g->total, GIB);
        assert_int_equal(g->uuid[0], 2);
        assert_int_equal(g->own_limit, UINT64_MAX);
        assert_false(g->passes || g->rdma || g->unpacks);
        assert_string_equal(order, "mv");
        assert_int_equal(core.gpu_count, 4);
        assert_int_equal(attaches, 1);
        assert_ptr_equal(core_attach(3), g);
        assert_int_equal(attaches, 1);
        assert_int_equal(asked_total, 1);
        no_uuid_v2 = true;
        g = core_attach(1);
        assert_int_equal(g->uuid[0], 1);
        assert_int_equal(core.gpu_count, 4);
        assert_non_null(core_attach(GPUS_MAX - 1));
        assert_int_equal(core.gpu_count, GPUS_MAX);
        assert_int_equal(atomic_load(&core_lock.word), 0);
}

static void the_abilities_of_a_gpu_are_queried(void **state)
{
        attribute_that_is = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        assert_true(core_attach(0)->passes);
        attribute_that_is = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED;
        assert_true(core_attach(1)->rdma);
        assert_false(core.gpus[1].passes);
        attribute_that_is = CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK;
        assert_true(core_attach(2)->unpacks);
        assert_false(core.gpus[2].rdma);
}

static void gpus_beyond_the_protocol_are_not_attached(void **state)
{
        assert_null(core_attach(-1));
        assert_null(core_attach(GPUS_MAX));
        core.bystander = true;
        assert_null(core_attach(0));
        assert_int_equal(asked_total + attaches, 0);
}

static void a_gpu_that_cannot_be_shared_is_not_asked_again(void **state)
{
        bool *const flags[] = {&no_uuid, &no_vmm, &swap_fails};
        static const size_t granularities[] = {1, 0, 3 * MIB};
        CUdevice device = 4;

        for (unsigned i = 0; i < ARRAY_SIZE(flags); i++, device++) {
                *flags[i] = no_uuid_v2 = true;
                assert_null(core_attach(device));
                *flags[i] = no_uuid_v2 = false;
                assert_null(core_attach(device));
        }
        for (unsigned i = 0; i < ARRAY_SIZE(granularities); i++, device++) {
                granularity = granularities[i];
                assert_null(core_attach(device));
                granularity = 2 * MIB;
                assert_null(core_attach(device));
        }
        total_says = CUDA_ERROR_INVALID_DEVICE;
        assert_null(core_attach(device));
        total_says = CUDA_SUCCESS;
        assert_null(core_attach(device));
        assert_true(core_may_go_alone(device - 1));
        assert_int_equal(setenv("SUBLET_REQUIRE", "1", 1), 0);
        for (CUdevice d = 4; d < device; d++)
                assert_false(core_may_go_alone(d));
        assert_true(core_may_go_alone(device)); /* the driver knows no such device, and says so */
        assert_true(core_may_go_alone(-1) && core_may_go_alone(GPUS_MAX));
        core.bystander = true;
        assert_true(core_may_go_alone(4));
        core.bystander = false;
        assert_int_equal(unsetenv("SUBLET_REQUIRE"), 0);
        assert_int_equal(asked_total, 7);
        assert_int_equal(attaches, 0);
        assert_int_equal(core.gpu_count, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
}

static void a_program_that_calls_before_the_driver_is_initialized_may_call_again(void **state)
{
        total_says = CUDA_ERROR_NOT_INITIALIZED;
        assert_null(core_attach(0));
        assert_false(core.gpus[0].known);
        total_says = CUDA_SUCCESS;
        assert_non_null(core_attach(0));
}

static void a_gpu_that_failed_to_attach_is_attached_again_later(void **state)
{
        attach_fails = true;
        assert_null(core_attach(0));
        assert_true(core.gpus[0].known);
        attach_fails = false;
        assert_non_null(core_attach(0));
        assert_int_equal(attaches, 2);
        assert_int_equal(asked_total, 1);
}

static void memory_of_a_gpu_is_found_while_it_is_shared(void **state)
{
        struct heap_place p;
        CUdeviceptr at;
        uint64_t cost;
        struct gpu *g = core_attach(1);
        struct heap *h = &g->heap;

        assert_int_equal(heap_allocate(h, 32 * MIB, NULL, UINT64_MAX, &at, &cost), 0);
        assert_ptr_equal(core_find(at, &p), g);
        assert_null(core_find(at - 1, &p));
        assert_true(core_holds(at, 0));
        assert_true(core_holds(at, 1));
        assert_false(core_holds(at - 1, 0));
        assert_false(core_holds(at - 1, 1));
        assert_true(core_holds(at - 1, 2)); /* only the last byte is ours */
        g->managed = false;
        assert_null(core_find(at, &p));
        assert_false(core_holds(at, 1));
        g->managed = true;
        core.bystander = true; /* in a child the accounts may be in the middle of a change */
        assert_null(core_find(at, &p));
        assert_false(core_holds(at, 1));
}

static void host_memory_that_is_being_taken_counts_as_mapped(void **state)
{
        assert_int_equal(core_host_mapped(), 0);
        core.gpu_count = 2;
        core.gpus[0].heap.mapped = 3;
        core.gpus[1].heap.mapped = 40;
        core.gpus[2].heap.mapped = 500;
        core.host.taking = 6000;
        assert_int_equal(core_host_mapped(), 6043);
}

static void an_ended_context_has_no_current_gpu(void **state)
{
        CUcontext const ended = (CUcontext)&attaches;
        struct gpu *g;

        current_device = -1;
        assert_null(core_current_gpu());
        current_device = 2;
        current_context = NULL;
        g = core_current_gpu();
        assert_ptr_equal(g, &core.gpus[2]);
        g->ended = ended;
        assert_ptr_equal(core_current_gpu(), g);
        current_context = ended;
        assert_null(core_current_gpu());
        g->ended = NULL;
        assert_ptr_equal(core_current_gpu(), g);
        core.bystander = true;
        assert_null(core_current_gpu());
}

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){0};
        driver_reset(GIB);
        real.cuDeviceTotalMem_v2 = fake_total;
        real.cuDeviceGetUuid = fake_uuid;
        real.cuDeviceGetUuid_v2 = fake_uuid_v2;
        real.cuDeviceGetAttribute = fake_has;
        real.cuMemGetAllocationGranularity = fake_granularity;
        real.cuMemGetInfo_v2 = fake_memory;
        real.cuCtxGetDevice = fake_device;
        real.cuCtxGetCurrent = fake_current;
        now_ns = 1000 * NSEC_PER_SEC;
        order[0] = log_text[0] = '\0';
        opens = 0;
        while_it_opens = NULL;
        attaches = forgotten = asked_total = 0;
        request_kicks = 0;
        attach_fails = swap_fails = no_uuid = no_uuid_v2 = no_vmm = false;
        granularity = 2 * MIB;
        attribute_that_is = -1;
        total_says = memory_says = CUDA_SUCCESS;
        return 0;
}

static int end(void **state)
{
        for (unsigned i = 0; i < GPUS_MAX; i++)
                heap_end(&core.gpus[i].heap);
        return 0;
}

#define CORE_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(stderr_is_looked_at_before_the_program_begins),
                CORE_TEST(a_process_is_set_up_once),
                CORE_TEST(without_a_driver_every_call_passes_through),
                CORE_TEST(a_thread_that_comes_during_the_set_up_waits_for_it),
                CORE_TEST(a_child_made_during_the_set_up_passes_through),
                CORE_TEST(a_child_passes_through_and_needs_no_lock_of_its_parent),
                CORE_TEST(the_agent_is_stopped_before_the_driver_shuts_down),
                CORE_TEST(a_driver_that_has_shut_down_wakes_all_waiting_threads),
                CORE_TEST(a_wait_is_as_long_as_asked_and_ends_with_the_bell),
                CORE_TEST(after_ten_seconds_the_process_in_the_way_is_printed),
                CORE_TEST(without_an_answer_the_message_comes_five_seconds_later),
                CORE_TEST(sublet_quiet_suppresses_the_message),
                CORE_TEST(a_wait_in_a_process_that_exits_ends_with_the_driver),
                CORE_TEST(a_gpu_is_queried_and_attached_once),
                CORE_TEST(the_abilities_of_a_gpu_are_queried),
                CORE_TEST(gpus_beyond_the_protocol_are_not_attached),
                CORE_TEST(a_gpu_that_cannot_be_shared_is_not_asked_again),
                CORE_TEST(a_program_that_calls_before_the_driver_is_initialized_may_call_again),
                CORE_TEST(a_gpu_that_failed_to_attach_is_attached_again_later),
                CORE_TEST(memory_of_a_gpu_is_found_while_it_is_shared),
                CORE_TEST(host_memory_that_is_being_taken_counts_as_mapped),
                CORE_TEST(an_ended_context_has_no_current_gpu),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
