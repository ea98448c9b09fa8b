/* test_ipc_export.c: memory that other processes open: which importers get it, which one inherits
 * it when it is freed, and how threads, two at once too, make it ready for export. */
#include "unit.h"

#include <errno.h>

#include "base/clock.h"
#include "base/macros.h"
#include "ipc_export_bench.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"

static void an_importer_with_a_part_of_freed_memory_is_refused_the_rest(void **state)
{
        ask(&first, 0);
        assert_int_equal(last_said(&first)->OPENED.pieces, WIRE_PASS_MAX);
        free_it();
        assert_int_equal(said(&first, WIRE_BEQUEATH), 0);
        ask(&first, WIRE_PASS_MAX);
        assert_int_equal(last_said(&first)->OPENED.result, CUDA_ERROR_INVALID_HANDLE);
        assert_false(first.lost);
        assert_int_equal(exports, 0);
}

static void an_importer_with_all_of_freed_memory_inherits_it(void **state)
{
        ask(&other, 0);
        ask(&first, 0);
        ask(&first, WIRE_PASS_MAX);
        assert_true(last_said(&first)->OPENED.flags & WIRE_OPENED_HEIR);
        free_it();
        assert_int_equal(said(&first, WIRE_BEQUEATH), 1);
        say(&first, WIRE_INHERITED);
        ask(&other, WIRE_PASS_MAX);
        assert_int_equal(last_said(&other)->OPENED.result, CUDA_ERROR_INVALID_HANDLE);
        assert_false(first.lost || other.lost);
        assert_int_equal(exports, 0);
}

static void the_gate_opens_when_the_last_export_has_replaced_its_memory(void **state)
{
        CUdeviceptr at = resident(4 * MIB), also = resident(4 * MIB);
        CUipcMemHandle ret;
        struct heap_place p;

        assert_true(heap_find(&gpu->heap, at, &p));
        p.block->extents[0].adopted = true;
        assert_true(heap_find(&gpu->heap, also, &p));
        p.block->extents[0].adopted = true;
        second = also;
        assert_int_equal(hook_cuIpcGetMemHandle(&ret, at), CUDA_SUCCESS);
        assert_true(held_again);
        assert_false(atomic_load(&gate_bits) & GATE_HELD);
}

/* ---- handles ---- */

static struct ipc_handle handle_of(CUdeviceptr at)
{
        struct ipc_handle h;

        assert_int_equal(hook_cuIpcGetMemHandle((CUipcMemHandle *)&h, at), CUDA_SUCCESS);
        return h;
}

static CUresult try_handle(CUdeviceptr at)
{
        struct ipc_handle h = {.magic = "none"};
        CUresult r = hook_cuIpcGetMemHandle((CUipcMemHandle *)&h, at);

        if (r != CUDA_SUCCESS)
                assert_string_equal((char *)h.magic, "none");
        return r;
}

static struct block *block_of(CUdeviceptr at)
{
        struct heap_place p;

        assert_true(heap_find(&gpu->heap, at, &p));
        return p.block;
}

static void a_handle_names_the_process_the_allocation_and_the_card(void **state)
{
        static const uint8_t zero[sizeof(handle.zero)];
        struct ipc_handle again = handle_of(start + 4097), another;

        assert_memory_equal(handle.magic, IPC_MAGIC, sizeof(handle.magic));
        assert_memory_equal(handle.name, ipc_name, IPC_NAME);
        assert_memory_equal(handle.uuid, gpu->uuid, sizeof(gpu->uuid));
        assert_memory_equal(handle.zero, zero, sizeof(zero));
        assert_memory_equal(&again, &handle, sizeof(handle));
        another = handle_of(resident(4 * MIB));
        assert_memory_not_equal(another.secret, handle.secret, IPC_NAME);
        again = handle_of(start);
        assert_memory_equal(&again, &handle, sizeof(handle));
}

static void calls_for_memory_that_is_not_ours_go_to_the_driver(void **state)
{
        struct block *b = block_of(start);

        core_setups = 0;
        assert_int_equal(hook_cuIpcGetMemHandle(NULL, start), CUDA_ERROR_INVALID_VALUE);
        assert_int_not_equal(core_setups, 0);
        assert_int_equal(try_handle(4096), CUDA_ERROR_INVALID_VALUE);
        b->kind = BLOCK_ADOPTED;
        assert_int_equal(try_handle(start), CUDA_ERROR_INVALID_VALUE);
        b->kind = BLOCK_LARGE;
        atomic_store(&core.bystander, true);
        assert_int_equal(try_handle(start), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(of_driver, 4);
}

static void memory_that_no_process_could_open_gets_no_handle(void **state)
{
        gpu->passes = false;
        assert_int_equal(try_handle(start), CUDA_ERROR_NOT_SUPPORTED);
        gpu->passes = true;
        block_of(start)->managed = true;
        assert_int_equal(try_handle(start), CUDA_ERROR_NOT_SUPPORTED);
        block_of(start)->managed = false;
        no_ipc = true;
        assert_int_equal(try_handle(start), CUDA_ERROR_NOT_SUPPORTED);
        no_ipc = false;
        named = -EIO;
        assert_int_equal(try_handle(start), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(of_driver, 0);
}

static void memory_freed_during_the_call_gets_no_handle(void **state)
{
        freed_meanwhile = resident(4 * MIB);
        assert_int_equal(try_handle(freed_meanwhile), CUDA_ERROR_INVALID_VALUE);
}

/* Checks that the last message to this importer refused its request. */
static void assert_refused(struct ipc_link *l, CUresult why)
{
        const struct wire_message *m = last_said(l);

        assert_int_equal(m->header.type, WIRE_OPENED);
        assert_int_equal(m->OPENED.result, why);
        assert_int_equal(m->OPENED.pieces, 0);
        assert_memory_equal(m->OPENED.secret, handle.secret, IPC_NAME);
        assert_int_equal(sent[sent_count - 1].fds, 0);
        assert_false(l->lost);
}

static void a_handle_of_freed_memory_opens_nothing(void **state)
{
        CUdeviceptr at = resident(4 * MIB);
        struct block *dead;
        struct ipc_handle later;

        handle = handle_of(at);
        ipc_export_freed(at + 1); /* no allocation begins at this address */
        ask(&first, 0);
        assert_int_equal(last_said(&first)->OPENED.result, CUDA_SUCCESS);
        say(&first, WIRE_CLOSE);
        assert_int_equal(heap_free(&gpu->heap, at, &dead), 0);
        heap_bury(&gpu->heap, dead);
        ask(&first, 0);
        assert_refused(&first, CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(resident(4 * MIB), at);
        ask(&first, 0); /* there is another allocation at this address */
        assert_refused(&first, CUDA_ERROR_INVALID_HANDLE);
        later = handle_of(at);
        assert_memory_not_equal(later.secret, handle.secret, IPC_NAME);
        handle = later;
        ipc_export_freed(at);
        ask(&first, 0);
        assert_refused(&first, CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(exports, 0);
}

/* ---- memory of other processes ---- */

static void adopted_memory_is_replaced_before_it_is_shared(void **state)
{
        struct extent *e = block_of(start)->extents;

        e[0].adopted = e[PIECES - 1].adopted = e[3].adopted = true;
        e[3].state = EXTENT_EVICTED; /* an evicted extent comes back as our own memory */
        assert_int_equal(try_handle(start), CUDA_SUCCESS);
        assert_int_equal(replaced, 2);
        assert_int_equal(request_releases, 2);
        for (unsigned i = 0; i < PIECES; i++)
                assert_true(e[i].own);
        assert_int_equal(try_handle(start), CUDA_SUCCESS);
        assert_int_equal(replaced, 2);
}

static void sharing_a_suballocation_shares_the_extents_around_it(void **state)
{
        const uint64_t page = HEAP_GRANULARITY;
        CUdeviceptr at = resident(MIB), next = resident(MIB), third;
        struct block *b = block_of(at);

        assert_ptr_equal(block_of(next), b);
        assert_int_equal(b->kind, BLOCK_SLAB);
        b->extents[0].adopted = true;
        third = at > next ? at : next;
        assert_true(third - b->address < page);
        handle = handle_of(third);
        assert_int_equal(replaced, 1);
        ask(&first, 0);
        assert_int_equal(last_said(&first)->OPENED.offset, third - b->address);
        assert_int_equal(last_said(&first)->OPENED.bytes, MIB);
        assert_int_equal(last_said(&first)->OPENED.mapped, b->bytes);
}

static unsigned waits;

static void come_to_rest(const struct core_wait *w)
{
        if (++waits < 3) {
                clock_ns += NSEC_PER_MSEC;
                return;
        }
        anybody_inside = false;
        quiesce_now = QUIESCE_DONE;
        block_of(start)->extents[0].busy = false;
        bell_ring(&core.changed);
}

static void an_export_waits_for_moves_and_calls_in_progress(void **state)
{
        struct extent *e = block_of(start)->extents;

        meanwhile = come_to_rest;
        e[0].busy = true;
        waits = 0;
        assert_int_equal(try_handle(start), CUDA_SUCCESS);
        assert_int_equal(waits, 3);
        assert_int_equal(replaced, 0); /* the memory was our own already */
        e[0].adopted = anybody_inside = true;
        waits = 0;
        assert_int_equal(try_handle(start), CUDA_SUCCESS);
        assert_int_equal(waits, 3);
        assert_int_equal(replaced, 1);
        e[0].adopted = true;
        quiesce_now = QUIESCE_BUSY;
        waits = 0;
        assert_int_equal(try_handle(start), CUDA_SUCCESS);
        assert_int_equal(waits, 3);
        assert_int_equal(replaced, 2);
}

static void a_second_passes(const struct core_wait *w)
{
        clock_ns += NSEC_PER_SEC;
        waits++;
}

static void begin_a_capture(const struct core_wait *w)
{
        fake_capturing = true;
}

static void memory_that_cannot_be_replaced_is_not_shared(void **state)
{
        struct extent *e = block_of(start)->extents;

        e[0].adopted = true;
        replace_error = -ENOMEM;
        assert_int_equal(try_handle(start), CUDA_ERROR_MAP_FAILED);
        assert_int_equal(replaced, 1);
        replace_error = 0;
        fake_capturing = true;
        assert_int_equal(try_handle(start), CUDA_ERROR_MAP_FAILED);
        fake_capturing = false;
        quiesce_now = QUIESCE_BUSY;
        meanwhile = begin_a_capture;
        assert_int_equal(try_handle(start), CUDA_ERROR_MAP_FAILED);
        fake_capturing = false;
        meanwhile = a_second_passes;
        waits = 0;
        assert_int_equal(try_handle(start), CUDA_ERROR_MAP_FAILED);
        assert_int_equal(waits, 10);
        assert_int_equal(replaced, 1);
        assert_int_equal(atomic_load(&gate_bits), 0);
}

/* ---- importers ---- */

static void an_importer_gets_the_sizes_of_the_memory(void **state)
{
        const struct wire_message *m;

        ask(&first, 0);
        m = last_said(&first);
        assert_int_equal(m->OPENED.mapped, PIECES * gpu->heap.extent_bytes);
        assert_int_equal(m->OPENED.bytes, PIECES * gpu->heap.extent_bytes);
        assert_int_equal(m->OPENED.offset, 0);
        assert_int_equal(m->OPENED.piece, gpu->heap.extent_bytes);
        assert_int_equal(m->OPENED.first, 0);
        assert_int_equal(m->OPENED.pieces, WIRE_PASS_MAX);
        assert_int_equal(m->OPENED.result, CUDA_SUCCESS);
        assert_int_equal(m->OPENED.flags, 0);
        assert_memory_equal(m->OPENED.secret, handle.secret, IPC_NAME);
        assert_int_equal(sent[0].fds, WIRE_PASS_MAX);
        assert_int_equal(request_releases, 1); /* the extents may be moved again */
        assert_int_equal(given, 1);
        ask(&first, WIRE_PASS_MAX);
        m = last_said(&first);
        assert_int_equal(m->OPENED.first, WIRE_PASS_MAX);
        assert_int_equal(m->OPENED.pieces, PIECES - WIRE_PASS_MAX);
        assert_int_equal(m->OPENED.flags, WIRE_OPENED_HEIR);
        ask(&first, PIECES); /* there are no more pieces */
        assert_int_equal(last_said(&first)->OPENED.result, CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(exports, 1);
        say(&first, WIRE_CLOSE);
        assert_int_equal(exports, 0);
        say(&first, WIRE_CLOSE); /* a second close has no effect */
        assert_int_equal(sent_count, 3);
        assert_false(first.lost);
}

static void an_importer_without_the_secret_gets_nothing(void **state)
{
        memset(handle.secret, 0xff, IPC_NAME);
        ask(&first, 0);
        assert_refused(&first, CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(exports, 0);
}

static void an_invalid_request_ends_the_connection(void **state)
{
        ask(&first, 1); /* begins in the middle of the memory */
        assert_true(first.lost);
        first.lost = false;
        ask(&first, 0);
        ask(&first, 0); /* repeats a request that was answered */
        assert_true(first.lost);
        first.lost = false;
        state_of_exports = EXPORT_WAITING;
        ask(&first, WIRE_PASS_MAX);
        assert_false(first.lost);
        ask(&first, WIRE_PASS_MAX); /* repeats a request before its answer */
        assert_true(first.lost);
        assert_int_equal(sent_count, 1);
        say(&other, WIRE_BEQUEATH); /* only exporters may send this */
        assert_true(other.lost);
}

static void an_importer_waits_until_the_memory_is_exported(void **state)
{
        state_of_exports = EXPORT_WAITING;
        ask(&first, 0);
        assert_int_equal(sent_count, 0);
        assert_int_equal(exports, 1);
        state_of_exports = EXPORT_READY;
        first.lost = true;
        assert_false(step());
        first.lost = false;
        assert_true(step());
        assert_int_equal(sent_count, 1);
        assert_false(step()); /* the importer has what it asked for */
        assert_int_equal(sent_count, 1);
}

static void memory_that_cannot_be_exported_is_refused(void **state)
{
        no_export = true;
        ask(&first, 0);
        assert_refused(&first, CUDA_ERROR_OUT_OF_MEMORY);
        no_export = false;
        state_of_exports = EXPORT_REFUSED;
        ask(&first, 0);
        assert_refused(&first, CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(exports, 0);
        state_of_exports = EXPORT_READY;
        ask(&first, 0); /* the importer tries again */
        assert_int_equal(last_said(&first)->OPENED.result, CUDA_SUCCESS);
        state_of_exports = EXPORT_REFUSED;
        assert_true(step());
        assert_int_equal(sent_count, 3); /* no request waited for an answer */
        assert_int_equal(exports, 0);
}

static void memory_that_the_driver_does_not_export_is_refused(void **state)
{
        export_fails_at = 3;
        ask(&first, 0);
        assert_refused(&first, CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(exports + given, 0);
        assert_int_equal(request_releases, 1);
        export_fails_at = exported + 1;
        ask(&first, 0);
        assert_refused(&first, CUDA_ERROR_INVALID_HANDLE);
        ask(&first, 0);
        export_fails_at = exported + PIECES - WIRE_PASS_MAX;
        ask(&first, WIRE_PASS_MAX);
        assert_refused(&first, CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(exports, 1); /* the importer will close the part that it has */
        ask(&first, WIRE_PASS_MAX);
        assert_int_equal(last_said(&first)->OPENED.pieces, PIECES - WIRE_PASS_MAX);
}

/* ---- heirs ---- */

static void open_all(struct ipc_link *l)
{
        ask(l, 0);
        ask(l, WIRE_PASS_MAX);
        assert_int_equal(last_said(l)->OPENED.result, CUDA_SUCCESS);
}

static void the_first_importer_with_all_of_the_memory_is_the_heir(void **state)
{
        ask(&first, 0);
        open_all(&other);
        assert_int_equal(last_said(&other)->OPENED.flags, WIRE_OPENED_HEIR);
        ask(&first, WIRE_PASS_MAX);
        assert_int_equal(last_said(&first)->OPENED.flags, 0);
        free_it();
        assert_int_equal(said(&other, WIRE_BEQUEATH), 1);
        assert_memory_equal(last_said(&other)->BEQUEATH.secret, handle.secret, IPC_NAME);
        assert_int_equal(said(&first, WIRE_BEQUEATH), 0);
        (void)step();
        assert_int_equal(said(&other, WIRE_BEQUEATH), 1);
        say(&first, WIRE_INHERITED); /* only the heir may report that */
        assert_int_equal(exports, 2);
        say(&other, WIRE_INHERITED);
        assert_int_equal(exports, 0);
}

static void nothing_is_inherited_before_it_is_bequeathed(void **state)
{
        open_all(&first);
        say(&first, WIRE_INHERITED);
        assert_int_equal(exports, 1);
        assert_false(first.lost);
}

static void the_next_importer_becomes_heir_when_the_heir_goes(void **state)
{
        open_all(&first);
        open_all(&other);
        say(&first, WIRE_CLOSE);
        assert_int_equal(last_said(&other)->OPENED.flags, WIRE_OPENED_HEIR);
        assert_int_equal(last_said(&other)->OPENED.pieces, 0);
        assert_memory_equal(last_said(&other)->OPENED.secret, handle.secret, IPC_NAME);
        open_all(&first);
        assert_int_equal(last_said(&first)->OPENED.flags, 0);
        sent_count = 0;
        say(&first, WIRE_CLOSE); /* an importer that is no heir is not told */
        assert_int_equal(sent_count, 0);
        open_all(&first);
        other.lost = true;
        ipc_export_lost(&other);
        assert_int_equal(last_said(&first)->OPENED.flags, WIRE_OPENED_HEIR);
        assert_int_equal(exports, 1);
}

static void a_lost_importer_does_not_become_heir(void **state)
{
        open_all(&first);
        open_all(&other);
        other.lost = true;
        sent_count = 0;
        say(&first, WIRE_CLOSE);
        assert_int_equal(sent_count, 0);
        assert_int_equal(exports, 1);
}

static void each_block_has_an_heir_of_its_own(void **state)
{
        open_all(&first);
        handle = handle_of(resident(4 * MIB));
        ask(&other, 0);
        assert_int_equal(last_said(&other)->OPENED.flags, WIRE_OPENED_HEIR);
        ipc_export_lost(&other);
        assert_int_equal(exports, 1); /* the first block is still exported */
        assert_int_equal(said(&first, WIRE_OPENED), 2);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                IPC_TEST(an_importer_with_a_part_of_freed_memory_is_refused_the_rest),
                IPC_TEST(an_importer_with_all_of_freed_memory_inherits_it),
                IPC_TEST(the_gate_opens_when_the_last_export_has_replaced_its_memory),
                IPC_TEST(a_handle_names_the_process_the_allocation_and_the_card),
                IPC_TEST(calls_for_memory_that_is_not_ours_go_to_the_driver),
                IPC_TEST(memory_that_no_process_could_open_gets_no_handle),
                IPC_TEST(memory_freed_during_the_call_gets_no_handle),
                IPC_TEST(a_handle_of_freed_memory_opens_nothing),
                IPC_TEST(adopted_memory_is_replaced_before_it_is_shared),
                IPC_TEST(sharing_a_suballocation_shares_the_extents_around_it),
                IPC_TEST(an_export_waits_for_moves_and_calls_in_progress),
                IPC_TEST(memory_that_cannot_be_replaced_is_not_shared),
                IPC_TEST(an_importer_gets_the_sizes_of_the_memory),
                IPC_TEST(an_importer_without_the_secret_gets_nothing),
                IPC_TEST(an_invalid_request_ends_the_connection),
                IPC_TEST(an_importer_waits_until_the_memory_is_exported),
                IPC_TEST(memory_that_cannot_be_exported_is_refused),
                IPC_TEST(memory_that_the_driver_does_not_export_is_refused),
                IPC_TEST(the_first_importer_with_all_of_the_memory_is_the_heir),
                IPC_TEST(nothing_is_inherited_before_it_is_bequeathed),
                IPC_TEST(the_next_importer_becomes_heir_when_the_heir_goes),
                IPC_TEST(a_lost_importer_does_not_become_heir),
                IPC_TEST(each_block_has_an_heir_of_its_own),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
