/* test_bounds.c: which ranges a copy or fill may have, on a real heap, and when the answer is known
 * without the lock. */
#include "unit.h"

#include <pthread.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/heap/suballocator.h"
#include "preload/hooks/bounds.h"
#include "preload/hooks/hooks.h"
#include "preload/share/ipc.h"
#include "heap_end.h"

#define CARD    (128 * MIB)
#define PAGE    HEAP_GRANULARITY
#define OWNER   ((CUcontext)(uintptr_t)0xc1)
#define FOREIGN ((CUdeviceptr)UINT64_C(0x7000000))

static struct gpu *const gpu = &core.gpus[0];
static struct heap_place opened; /* memory of another process; bytes 0: none */
static struct block opened_block;
static CUcontext current;

bool ipc_find(CUdeviceptr address, struct heap_place *ret, struct gpu **ret_gpu)
{
        want_lock();
        *ret = opened;
        *ret_gpu = gpu;
        return address - opened.start < opened.bytes;
}

/* The mapping has a page before and a page behind the allocation. */
bool ipc_narrow(CUdeviceptr address, struct stretch *s)
{
        want_lock();
        if (!opened.bytes)
                return true;
        if (address - opened.start < opened.bytes)
                *s = (struct stretch){opened.start, opened.start + opened.bytes};
        else if (address - (opened.start - PAGE) < opened.bytes + 2 * PAGE)
                return false;
        else if (address < opened.start)
                s->to = MIN(s->to, opened.start - PAGE);
        else
                s->from = MAX(s->from, opened.start + opened.bytes + PAGE);
        return true;
}

static size_t element;
size_t hooks_array_element(CUarray array)
{
        want_no_lock();
        return element;
}

static CUresult fake_current(CUcontext *ret)
{
        *ret = current;
        return CUDA_SUCCESS;
}

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        driver_reset(CARD);
        real.cuCtxGetCurrent = fake_current;
        current = OWNER;
        gpu->known = gpu->managed = true;
        gpu->total = CARD;
        heap_init(&gpu->heap, CARD);
        heap_note_change(); /* the addresses of the last test begin again */
        opened = (struct heap_place){0};
        return 0;
}

static int end(void **state)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
        heap_end(&gpu->heap);
        return 0;
}

static CUdeviceptr take(uint64_t bytes)
{
        CUdeviceptr at = 0;
        uint64_t cost;

        lock_acquire(&core_lock);
        assert_int_equal(heap_allocate(&gpu->heap, bytes, OWNER, UINT64_MAX, &at, &cost), 0);
        lock_release(&core_lock);
        return at;
}

static void give(CUdeviceptr at)
{
        struct block *dead = NULL;

        lock_acquire(&core_lock);
        assert_int_equal(heap_free(&gpu->heap, at, &dead), 0);
        if (dead)
                heap_bury(&gpu->heap, dead);
        lock_release(&core_lock);
}

/* True if the range holds, and is known to hold: only a look-up takes the lock. */
static bool known(CUdeviceptr at, uint64_t bytes)
{
        const uint32_t looked = bounds_thread.looked;

        return bounds_hold(at, bytes) && bounds_thread.looked == looked;
}

static void a_range_holds_up_to_the_last_byte_of_its_allocation(void **state)
{
        const uint64_t sizes[] = {1000, 512, 1, MIB, 3 * MIB, 20 * MIB + 1};
        CUdeviceptr at[ARRAY_SIZE(sizes)];

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++)
                at[i] = take(sizes[i]);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                assert_true(bounds_hold(at[i], sizes[i]));
                assert_true(bounds_hold(at[i] + sizes[i] - 1, 1));
                assert_true(bounds_hold(at[i] + sizes[i] / 2, 0));
                assert_false(bounds_hold(at[i], sizes[i] + 1));
                assert_false(bounds_hold(at[i] + sizes[i] - 1, 2));
                assert_false(bounds_hold(at[i], 4 * CARD));
                assert_false(bounds_hold(at[i], UINT64_MAX));
        }
        /* The first three share a slab, and the next allocation begins where one ends. */
        assert_false(bounds_hold(at[0], at[1] + 1 - at[0]));
        assert_false(bounds_hold(at[1], at[2] + 1 - at[1]));
}

static void memory_that_is_not_allocated_is_refused(void **state)
{
        CUdeviceptr one = take(1000), two = take(1000), large = take(3 * MIB);

        assert_false(bounds_hold(one + 1000, 1)); /* behind the bytes that were asked for */
        assert_false(bounds_hold(large + 3 * MIB, 1));
        assert_true(bounds_hold(large + 3 * MIB, 0)); /* no bytes, so nothing to refuse */
        assert_true(bounds_hold(one, 1000));
        give(one);
        assert_false(bounds_hold(one, 1));
        assert_true(bounds_hold(two, 1000));
        give(large);
        assert_false(bounds_hold(large, 1));
}

static void other_addresses_are_left_to_the_driver(void **state)
{
        CUdeviceptr one, reserved;

        assert_true(bounds_hold(FOREIGN, GIB)); /* while there is no heap */
        one = take(1000);
        reserved = gpu->heap.blocks[0]->address;
        assert_true(bounds_hold(FOREIGN, MIB));
        assert_true(bounds_hold(UINT64_MAX - 10, 5));
        assert_true(bounds_hold(UINT64_MAX - 10, 100));
        assert_true(bounds_hold(0, 1));
        assert_true(bounds_hold(reserved - 10, 10));
        /* No memory of the driver's goes on in the heap's addresses. */
        assert_false(bounds_hold(reserved - 10, 11));
        assert_true(bounds_hold(one, 1000));
        /* All of host memory is one stretch. */
        assert_true(known(FOREIGN, GIB));
        assert_true(known(FOREIGN / 2, 64));
}

static void the_programs_own_managed_memory_is_left_to_the_driver(void **state)
{
        CUdeviceptr at = driver_managed(4 * MIB);
        uint64_t cost;

        lock_acquire(&core_lock);
        assert_int_equal(heap_adopt(&gpu->heap, at, 4 * MIB, OWNER, UINT64_MAX, &cost), 0);
        lock_release(&core_lock);
        assert_true(bounds_hold(at, 4 * MIB));
        assert_true(bounds_hold(at, 5 * MIB));
        assert_true(bounds_hold(at + 4 * MIB, 1));
        gpu->heap.blocks[0]->dying = true;
        assert_true(bounds_hold(at + MIB, 4 * MIB));
        gpu->heap.blocks[0]->dying = false;
}

static void suballocations_of_a_pool_have_their_own_ends(void **state)
{
        struct suballocator pool = {0};
        struct suballocation *one, *two;
        struct block *b = heap_take_pool(&gpu->heap, 64 * MIB, 8 * MIB);
        CUdeviceptr at;

        assert_int_equal(suballocator_add(&pool, b), 0);
        one = suballocator_take(&pool, suballocator_fit(&pool.common, 1000, false), 1000);
        two = suballocator_take(&pool, suballocator_fit(&pool.common, 1000, false), 1000);
        at = one->address;
        assert_true(bounds_hold(at, 1000) && bounds_hold(two->address, 1000));
        assert_false(bounds_hold(at, 1024));
        assert_false(bounds_hold(at, two->address + 1 - at));
        assert_true(known(at, 1000));
        suballocator_give(&pool, one, &pool.common, 0);
        assert_false(bounds_hold(at, 1000));
        assert_true(bounds_hold(two->address, 1000));
        suballocator_remove(&pool, b->chunk);
        suballocator_clear(&pool);
        assert_false(bounds_hold(at, 1));
}

static void memory_of_another_process_has_the_bounds_of_its_allocation(void **state)
{
        CUdeviceptr one = take(1000), start = one + GIB * 1024;

        assert_true(bounds_hold(start, 2 * PAGE)); /* the driver's, so far */
        opened = (struct heap_place){start, 3000, &opened_block};
        heap_note_change();
        assert_true(bounds_hold(start, 3000));
        assert_false(bounds_hold(start, 3001));
        assert_false(bounds_hold(start - 1, 1));
        assert_false(bounds_hold(start + 3000, 1));
        assert_true(bounds_hold(one, 1000));
        assert_true(bounds_hold(start + 4 * PAGE, MIB));
}

/* ---- what a thread remembers ---- */

static void a_known_range_takes_no_lock(void **state)
{
        CUdeviceptr at[BOUNDS_KNOWN];

        for (size_t i = 0; i < ARRAY_SIZE(at); i++)
                at[i] = take(1000 + i);
        for (size_t i = 0; i < ARRAY_SIZE(at); i++)
                assert_true(bounds_hold(at[i], 10));
        for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
                assert_true(known(at[i], 1000 + i));
                assert_true(known(at[i] + 500, 500 + i));
        }
        (void)take(2000); /* what is known of the others stays true */
        assert_true(known(at[0], 1000));
}

static void what_is_known_of_an_allocation_ends_with_it(void **state)
{
        CUdeviceptr one = take(1000), other = take(MIB), again;

        assert_true(bounds_hold(one, 1000) && bounds_hold(other, MIB));
        give(one);
        again = take(500);
        assert_int_equal(again, one);
        assert_false(bounds_hold(again, 1000));
        assert_true(bounds_hold(again, 500));
        assert_true(bounds_hold(other, MIB));
}

static void addresses_that_come_to_the_heap_are_no_longer_foreign(void **state)
{
        CUdeviceptr at = take(1000), far;

        assert_true(bounds_hold(at + GIB * 1024, 1));
        while ((far = take(CARD)) - at < 3 * CARD) /* until the heap has reserved more addresses */
                ;
        assert_true(bounds_hold(far, CARD));
        assert_false(bounds_hold(far, CARD + 1));
        assert_true(bounds_hold(at, 1000));
}

static void managed_memory_that_comes_to_the_heap_is_no_longer_foreign(void **state)
{
        CUdeviceptr at = driver_managed(PAGE);

        gpu->heap.managed = true;
        assert_true(bounds_hold(at, 1001));
        lock_acquire(&core_lock);
        assert_int_equal(heap_provide(&gpu->heap, at, PAGE), 0);
        lock_release(&core_lock);
        assert_int_equal(take(1000), at);
        assert_false(bounds_hold(at, 1001));
        assert_true(bounds_hold(at, 1000));
}

static void memory_ends_with_the_context_that_owns_it(void **state)
{
        CUdeviceptr at = take(3 * MIB);

        assert_true(bounds_hold(at, 3 * MIB));
        lock_acquire(&core_lock);
        assert_non_null(heap_orphan(&gpu->heap, OWNER));
        lock_release(&core_lock);
        assert_false(bounds_hold(at, 1));
}

enum { ROUNDS = 20000 };
static _Atomic bool stop;
static _Atomic unsigned wrong;

/* Checks the ranges of its own allocation, which stays, while others come and go. */
static void *check(void *argument)
{
        CUdeviceptr at = *(CUdeviceptr *)argument;

        while (!atomic_load(&stop))
                if (!bounds_hold(at, 1000) || bounds_hold(at, 1001) || !bounds_hold(FOREIGN, MIB))
                        atomic_fetch_add(&wrong, 1);
        return NULL;
}

static void threads_get_right_answers_while_others_allocate_and_free(void **state)
{
        CUdeviceptr at[2] = {take(1000), take(1000)};
        pthread_t threads[2];

        for (size_t i = 0; i < 2; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, check, &at[i]), 0);
        for (unsigned i = 0; i < ROUNDS; i++) {
                CUdeviceptr one = take(1 + i % 3000), two = take(i % 8 ? 600 : 3 * MIB);

                give(one);
                give(two);
        }
        atomic_store(&stop, true);
        for (size_t i = 0; i < 2; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(atomic_load(&wrong), 0);
}

/* ---- calls that the driver refuses for another reason ---- */

static void the_drivers_own_error_comes_first(void **state)
{
        CUdeviceptr at = take(1000);

        current = NULL;
        assert_true(bounds_hold(at, 4096));
        current = OWNER;
        assert_false(bounds_hold(at, 4096));
        gpu->ended = OWNER;
        assert_true(bounds_hold(at, 4096));
        gpu->ended = NULL;
        gpu->error = CUDA_ERROR_LAUNCH_FAILED;
        assert_true(bounds_hold(at, 4096));
}

static void a_passive_process_is_not_checked(void **state)
{
        CUdeviceptr at = take(1000);

        atomic_store(&core.bystander, true);
        assert_true(bounds_hold(at, 4096));
}

/* ---- the ranges of calls ---- */

static void rows_reach_from_the_first_byte_to_the_last(void **state)
{
        CUdeviceptr at = take(1000);

        assert_true(bounds_hold_rows(at, 256, 1, 200, 4));
        assert_true(bounds_hold_rows(at, 256, 4, 58, 4));
        assert_false(bounds_hold_rows(at, 256, 4, 59, 4));
        assert_false(bounds_hold_rows(at, 256, 1, 200, 5));
        assert_true(bounds_hold_rows(at, 256, 1, 0, 5));
        assert_true(bounds_hold_rows(at, 256, 1, 2000, 0));
        assert_true(bounds_hold_rows(at, SIZE_MAX, 1, 1000, 1));
        /* A product that wraps is not small. */
        assert_false(bounds_hold_rows(at, SIZE_MAX / 2, 1, 1, 5));
        assert_false(bounds_hold_rows(at, 0, 4, SIZE_MAX / 4 + 2, 1));
        assert_true(bounds_hold_rows(FOREIGN, 0, 4, SIZE_MAX / 4 + 2, 1));
}

static void both_sides_of_a_box_are_checked(void **state)
{
        CUdeviceptr to = take(1000), from = take(1000);
        const CUDA_MEMCPY3D fits = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                    .srcDevice = from,
                                    .srcXInBytes = 4,
                                    .srcY = 1,
                                    .srcPitch = 64,
                                    .srcHeight = 4,
                                    .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
                                    .dstDevice = to,
                                    .dstZ = 1,
                                    .dstPitch = 64,
                                    .dstHeight = 4,
                                    .WidthInBytes = 60,
                                    .Height = 3,
                                    .Depth = 2};
        CUDA_MEMCPY3D c = fits;
        CUDA_MEMCPY3D_PEER peer;

        assert_true(bounds_of_3d(&c)); /* up to 512 of the source, and 700 of the destination */
        c.dstZ = 2;
        assert_true(bounds_of_3d(&c)); /* up to 956 */
        c.dstXInBytes = 45;
        assert_false(bounds_of_3d(&c));
        memcpy(&peer, &c, sizeof(peer));
        assert_false(bounds_of_peer(&peer));
        c = fits;
        c.srcZ = 2;
        assert_false(bounds_of_3d(&c)); /* up to 1024 */
        c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        assert_true(bounds_of_3d(&c));
        c = fits;
        c.dstMemoryType = CU_MEMORYTYPE_HOST;
        c.dstHost = (void *)(uintptr_t)FOREIGN;
        assert_true(bounds_of_3d(&c));
        c.dstHost = (void *)(uintptr_t)(to + 500);
        assert_false(bounds_of_3d(&c));
        /* Without a pitch and a height there are no gaps. */
        c = fits;
        c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        c.dstPitch = c.dstHeight = c.dstZ = 0;
        c.Depth = 5;
        assert_true(bounds_of_3d(&c)); /* 900 bytes */
        c.Depth = 6;
        assert_false(bounds_of_3d(&c));
        c.Height = 0;
        assert_true(bounds_of_3d(&c));
}

static void rectangles_and_nodes_are_checked_like_boxes(void **state)
{
        CUdeviceptr to = take(1000), from = take(1000);
        CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from,
                           .srcPitch = 256,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to,
                           .dstPitch = 200,
                           .WidthInBytes = 200,
                           .Height = 4};
        CUDA_MEMSET_NODE_PARAMS set = {to, 256, 0, 4, 58, 4};
        CUgraphNodeParams node = {.type = CU_GRAPH_NODE_TYPE_KERNEL};

        assert_true(bounds_of_2d(&c));
        c.Height = 5;
        assert_false(bounds_of_2d(&c)); /* the source ends past its allocation */
        c.srcPitch = 200;
        assert_true(bounds_of_2d(&c));
        c.dstY = 1;
        assert_false(bounds_of_2d(&c));
        assert_true(bounds_of_set(&set));
        set.width++;
        assert_false(bounds_of_set(&set));
        node.memset.dst = to; /* a kernel's parameters are other words in this place */
        node.memset.elementSize = 2;
        node.memset.width = 501;
        node.memset.height = 1;
        assert_true(bounds_of_node(&node));
        node.type = CU_GRAPH_NODE_TYPE_MEMSET;
        node.memset.dst = to;
        node.memset.elementSize = 2;
        node.memset.width = 500;
        node.memset.height = 1;
        assert_true(bounds_of_node(&node));
        node.memset.width = 501;
        assert_false(bounds_of_node(&node));
        node = (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY};
        node.memcpy.copyParams = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                                 .srcDevice = from,
                                                 .WidthInBytes = 1000,
                                                 .Height = 1,
                                                 .Depth = 1};
        assert_true(bounds_of_node(&node));
        node.memcpy.copyParams.Height = 2;
        assert_false(bounds_of_node(&node));
}

static void a_batch_names_the_first_copy_that_is_refused(void **state)
{
        CUdeviceptr one = take(1000), two = take(1000);
        CUdeviceptr to[] = {one, FOREIGN, two, two}, from[] = {FOREIGN, two, FOREIGN, FOREIGN};
        size_t bytes[] = {1000, 1000, 1000, 1000}, failed = 99;

        assert_true(bounds_batch(0, to, from, bytes, 4, NULL, NULL, 0, &failed, NULL));
        assert_int_equal(failed, 99);
        bytes[1] = bytes[3] = 1001;
        assert_false(bounds_batch(0, to, from, bytes, 4, NULL, NULL, 0, &failed, NULL));
        assert_int_equal(failed, 1);
        bytes[1] = 1000;
        assert_false(bounds_batch(0, to, from, bytes, 4, NULL, NULL, 0, &failed, NULL));
        assert_int_equal(failed, 3);
        assert_false(bounds_batch(0, to, from, bytes, 4, NULL, NULL, 0, NULL, NULL));
        assert_false(bounds_batch_v2(0, to, from, bytes, 4));
        assert_true(bounds_batch_v2(0, to, from, bytes, 3));
        assert_true(bounds_batch_v2(0, NULL, from, bytes, 4)); /* the driver refuses these itself */
        assert_true(bounds_batch_v2(0, to, NULL, bytes, 4));
        assert_true(bounds_batch_v2(0, to, from, NULL, 4));
}

static void lengths_beside_an_array_count_its_elements(void **state)
{
        CUDA_MEMCPY3D_BATCH_OP op[2] = {{.src = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY},
                                         .dst = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER},
                                         .extent = {60, 4, 1}}};
        size_t failed = 99;

        op[0].dst.op.ptr.ptr = take(1000);
        op[0].dst.op.ptr.rowLength = 64;
        element = 4;
        assert_false(bounds_3d_one(0, op)); /* 1008 bytes */
        op[0].extent.width = 58;
        assert_true(bounds_3d_one(0, op));
        op[1] = (CUDA_MEMCPY3D_BATCH_OP){.src = op[0].dst, .dst = op[0].src, .extent = {58, 5, 1}};
        assert_false(bounds_3d_batch(0, 2, op, &failed, 0, NULL));
        assert_int_equal(failed, 1);
        assert_false(bounds_3d_batch_v2(0, 2, op, 0, NULL));
        op[1].dst = (CUmemcpy3DOperand){.type = CU_MEMCPY_OPERAND_TYPE_POINTER,
                                        .op.ptr = {.ptr = FOREIGN}};
        assert_true(bounds_3d_batch(0, 2, op, &failed, 0, NULL)); /* now they count bytes */
        assert_true(bounds_3d_batch(0, 2, NULL, &failed, 0, NULL));
}

#define BOUNDS_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                BOUNDS_TEST(a_range_holds_up_to_the_last_byte_of_its_allocation),
                BOUNDS_TEST(memory_that_is_not_allocated_is_refused),
                BOUNDS_TEST(other_addresses_are_left_to_the_driver),
                BOUNDS_TEST(the_programs_own_managed_memory_is_left_to_the_driver),
                BOUNDS_TEST(suballocations_of_a_pool_have_their_own_ends),
                BOUNDS_TEST(memory_of_another_process_has_the_bounds_of_its_allocation),
                BOUNDS_TEST(a_known_range_takes_no_lock),
                BOUNDS_TEST(what_is_known_of_an_allocation_ends_with_it),
                BOUNDS_TEST(addresses_that_come_to_the_heap_are_no_longer_foreign),
                BOUNDS_TEST(managed_memory_that_comes_to_the_heap_is_no_longer_foreign),
                BOUNDS_TEST(memory_ends_with_the_context_that_owns_it),
                BOUNDS_TEST(threads_get_right_answers_while_others_allocate_and_free),
                BOUNDS_TEST(the_drivers_own_error_comes_first),
                BOUNDS_TEST(a_passive_process_is_not_checked),
                BOUNDS_TEST(rows_reach_from_the_first_byte_to_the_last),
                BOUNDS_TEST(both_sides_of_a_box_are_checked),
                BOUNDS_TEST(rectangles_and_nodes_are_checked_like_boxes),
                BOUNDS_TEST(a_batch_names_the_first_copy_that_is_refused),
                BOUNDS_TEST(lengths_beside_an_array_count_its_elements),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
