/* test_ipc_export.c: memory that others open, freed before they have it all, and made ready for
 * them by two threads at once. */
#include "unit.h"

#include <fcntl.h>

#include "base/macros.h"
#include "preload/agent.h"
#include "preload/extent.h"
#include "preload/gate.h"
#include "preload/hooks.h"
#include "preload/ipc_state.h"
#include "preload/pin.h"
#include "preload/quiet.h"
#include "preload/swap.h"

#define PIECES    10u /* of an allocation, two more than a message brings */
#define SENT_MOST 16u

struct core core;
struct real_driver real;
_Atomic uint32_t gate_bits;
uint8_t ipc_name[IPC_NAME];

struct pin {
        struct block *block;
};

static struct gpu *const gpu = &core.gpus[0];
static enum pin_state state_of_pins;
static unsigned pins, held_again;
static CUdeviceptr second; /* what another thread wants while the first one is replaced */

static struct {
        const struct ipc_link *to;
        struct wire_message m;
} sent[SENT_MOST];
static unsigned sent_count;

/* ---- what it asks of its neighbours ---- */

int core_setup(void)
{
        return 0;
}

struct gpu *core_find(CUdeviceptr address, struct heap_place *ret)
{
        return heap_find(&gpu->heap, address, ret) ? gpu : NULL;
}

void core_wait(struct core_wait *w, uint64_t timeout_ns)
{
        fail();
}

void agent_kick(void)
{
}

void agent_released(void)
{
}

void gate_shut(enum gate_bits why)
{
        gate_bits |= why;
}

void gate_open(enum gate_bits why)
{
        gate_bits &= ~(uint32_t)why;
}

bool gate_anybody_inside(void)
{
        return false;
}

bool quiet_capturing(void)
{
        return false;
}

void quiet_begin(struct quiet_wait *w, bool still)
{
}

enum quiet quiet_poll(struct quiet_wait *w)
{
        return QUIET_DONE;
}

void swap_unused(struct gpu *g, struct extent *e)
{
}

int extent_export(const struct extent *e)
{
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int extent_replace(const struct gpu *g, struct extent *e)
{
        CUipcMemHandle handle;
        CUdeviceptr other = second;

        second = 0;
        if (other) {
                assert_int_equal(hook_cuIpcGetMemHandle(&handle, other), CUDA_SUCCESS);
                held_again = gate_bits & GATE_HELD;
        }
        e->adopted = false;
        return 0;
}

bool ipc_works(void)
{
        return true;
}

bool ipc_random(uint8_t bytes[static IPC_NAME])
{
        static uint8_t number;

        memset(bytes, ++number, IPC_NAME);
        return true;
}

int ipc_be_named(void)
{
        return 0;
}

void ipc_send(struct ipc_link *l, struct wire_message *m, unsigned type, const int *fds,
              unsigned n_fds)
{
        assert_true(sent_count < SENT_MOST);
        m->header.type = (uint16_t)type;
        sent[sent_count].to = l;
        sent[sent_count++].m = *m;
}

struct pin *pin_take(struct gpu *g, struct block *b, CUdeviceptr start, uint64_t bytes)
{
        struct pin *p = malloc(sizeof(*p));

        p->block = b;
        pins++;
        return p;
}

void pin_release(struct pin *p)
{
        free(p);
        pins--;
}

enum pin_state pin_state(const struct pin *p)
{
        return state_of_pins;
}

unsigned pin_extents(const struct pin *p)
{
        return p->block->extent_count;
}

struct extent *pin_extent(const struct pin *p, unsigned i)
{
        return &p->block->extents[i];
}

uint64_t pin_bytes(const struct pin *p)
{
        return p->block->bytes;
}

struct gpu *pin_gpu(const struct pin *p)
{
        return gpu;
}

bool pin_shares(const struct pin *a, const struct pin *b)
{
        return true;
}

void pin_given(struct pin *p)
{
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr wish,
                             unsigned long long flags)
{
        *ret = UINT64_C(0x700000000000);
        return CUDA_SUCCESS;
}

/* ---- the tests ---- */

static struct ipc_link first = {.exporter = true}, other = {.exporter = true};
static struct ipc_handle handle;

static CUdeviceptr resident(uint64_t bytes)
{
        struct heap_place p;
        CUdeviceptr at;
        uint64_t cost;

        assert_int_equal(heap_allocate(&gpu->heap, bytes, NULL, UINT64_MAX, &at, &cost), 0);
        assert_true(heap_find(&gpu->heap, at, &p));
        for (unsigned i = 0; i < p.block->extent_count; i++)
                p.block->extents[i].state = EXTENT_RESIDENT;
        return at;
}

static int one_allocation(void **state)
{
        core = (struct core){.gpu_count = 1};
        gpu->passes = true;
        heap_init(&gpu->heap, 1024 * MIB);
        real.cuMemAddressReserve = fake_reserve;
        first.lost = other.lost = false;
        state_of_pins = PIN_READY;
        sent_count = 0;
        gate_bits = 0;
        assert_int_equal(hook_cuIpcGetMemHandle((CUipcMemHandle *)&handle,
                                                resident(PIECES * gpu->heap.extent_bytes)),
                         CUDA_SUCCESS);
        return 0;
}

static int no_allocation(void **state)
{
        ipc_export_lost(&first);
        ipc_export_lost(&other);
        assert_int_equal(pins, 0);
        for (size_t i = 0; i < gpu->heap.count; i++) {
                ipc_export_freed(gpu->heap.blocks[i]->address);
                free(gpu->heap.blocks[i]->extents);
                free(gpu->heap.blocks[i]);
        }
        free(gpu->heap.blocks);
        return 0;
}

/* It asks for pieces from so many on; everything that follows from it is done. */
static void ask(struct ipc_link *l, uint32_t from)
{
        struct wire_message m = {.header.type = WIRE_OPEN};

        memcpy(m.OPEN.secret, handle.secret, IPC_NAME);
        m.OPEN.first = from;
        ipc_export_handle(l, &m);
        (void)ipc_export_step();
}

static void free_it(void)
{
        state_of_pins = PIN_GHOST;
        (void)ipc_export_step();
}

static void say(struct ipc_link *l, unsigned type)
{
        struct wire_message m = {.header.type = (uint16_t)type};

        memcpy(m.INHERITED.secret, handle.secret, IPC_NAME);
        ipc_export_handle(l, &m);
        (void)ipc_export_step();
}

static const struct wire_message *last_said(const struct ipc_link *l)
{
        assert_true(sent_count > 0);
        assert_ptr_equal(sent[sent_count - 1].to, l);
        return &sent[sent_count - 1].m;
}

static unsigned said(const struct ipc_link *l, unsigned type)
{
        unsigned n = 0;

        for (unsigned i = 0; i < sent_count; i++)
                n += sent[i].to == l && sent[i].m.header.type == type;
        return n;
}

static void who_has_a_part_of_what_is_freed_is_told_so_and_is_nobodys_heir(void **state)
{
        ask(&first, 0);
        assert_int_equal(last_said(&first)->OPENED.pieces, WIRE_PASS_MAX);
        free_it();
        assert_int_equal(said(&first, WIRE_BEQUEATH), 0);
        ask(&first, WIRE_PASS_MAX);
        assert_int_equal(last_said(&first)->OPENED.result, CUDA_ERROR_INVALID_HANDLE);
        assert_false(first.lost);
        assert_int_equal(pins, 0);
}

static void who_has_it_all_inherits_and_who_has_a_part_is_told(void **state)
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
        assert_int_equal(pins, 0);
}

static void the_gate_opens_when_the_last_one_is_through(void **state)
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
        assert_false(gate_bits & GATE_HELD);
}

#define IPC_TEST(name) cmocka_unit_test_setup_teardown(name, one_allocation, no_allocation)

int main(void)
{
        const struct CMUnitTest tests[] = {
                IPC_TEST(who_has_a_part_of_what_is_freed_is_told_so_and_is_nobodys_heir),
                IPC_TEST(who_has_it_all_inherits_and_who_has_a_part_is_told),
                IPC_TEST(the_gate_opens_when_the_last_one_is_through),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
