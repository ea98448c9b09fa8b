/* ipc_export_bench.c: the fakes that ipc_export_bench.h describes. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>

#include "base/clock.h"
#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "heap_end.h"
#include "ipc_export_bench.h"
#include "preload/move/extent.h"
#include "preload/stream/gate.h"
#include "preload/hooks/hooks.h"
#include "preload/share/ipc_state.h"
#include "preload/move/export.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"

uint8_t ipc_name[IPC_NAME] = "our name";

struct export
{
        struct block *block;
};

enum export_state state_of_exports;
unsigned exports, given, held_again, replaced, of_driver;
unsigned export_fails_at; /* number of the piece whose export fails; 0: none fails */
unsigned exported;
CUdeviceptr second; /* address that another thread exports while extent_replace() runs; 0: none */
bool no_export;
int named, replace_error;
CUdeviceptr freed_meanwhile; /* address that another thread frees while we get our name; 0: none */
uint64_t clock_ns;

struct sent sent[SENT_MOST];
unsigned sent_count;

/* The build makes the library call this function for the time. */
int __wrap_clock_gettime(clockid_t which, struct timespec *ret);
int __wrap_clock_gettime(clockid_t which, struct timespec *ret)
{
        *ret = (struct timespec){.tv_sec = (time_t)(clock_ns / NSEC_PER_SEC),
                                 .tv_nsec = (long)(clock_ns % NSEC_PER_SEC)};
        return 0;
}

/* ---- fakes of other modules ---- */

/* The library calls this for extents that became unused while busy, and only once they are idle. */
void swap_unused(struct gpu *g, struct extent *e)
{
        assert_ptr_equal(g, gpu);
        assert_false(e->busy);
}

static void assert_in_hands(const struct extent *e)
{
        assert_true(e->busy);
        assert_int_equal(atomic_load(&core_lock.word), 0);
}

int extent_export(const struct extent *e)
{
        assert_in_hands(e);
        return ++exported == export_fails_at ? -EIO : open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int extent_replace(const struct gpu *g, struct extent *e)
{
        CUipcMemHandle unused;
        CUdeviceptr wanted = second;

        assert_in_hands(e);
        assert_true(atomic_load(&gate_bits) & GATE_HELD);
        second = 0;
        if (wanted) {
                assert_int_equal(hook_cuIpcGetMemHandle(&unused, wanted), CUDA_SUCCESS);
                held_again = atomic_load(&gate_bits) & GATE_HELD;
        }
        replaced++;
        e->adopted = replace_error != 0;
        return replace_error;
}

bool ipc_random(uint8_t bytes[static IPC_NAME])
{
        static uint8_t number;

        memset(bytes, ++number, IPC_NAME);
        return true;
}

int ipc_be_named(void)
{
        struct block *dead;

        if (freed_meanwhile) {
                assert_int_equal(heap_free(&gpu->heap, freed_meanwhile, &dead), 0);
                heap_bury(&gpu->heap, dead);
        }
        freed_meanwhile = 0;
        return named;
}

void ipc_send(struct ipc_link *l, struct wire_message *m, unsigned type, const int *fds,
              unsigned n_fds)
{
        assert_true(sent_count < SENT_MOST);
        m->header.type = (uint16_t)type;
        for (unsigned i = 0; i < n_fds; i++)
                assert_true(fcntl(fds[i], F_GETFD) >= 0);
        sent[sent_count].to = l;
        sent[sent_count].fds = n_fds;
        sent[sent_count++].m = *m;
}

struct export *export_take(struct gpu *g, struct block *b, CUdeviceptr at, uint64_t bytes)
{
        struct export *p = no_export ? NULL : malloc(sizeof(*p));

        assert_ptr_equal(g, gpu);
        if (!p)
                return NULL;
        p->block = b;
        exports++;
        return p;
}

void export_release(struct export *p)
{
        free(p);
        exports--;
}

enum export_state export_state(const struct export *p)
{
        return state_of_exports;
}

unsigned export_extents(const struct export *p)
{
        return p->block->extent_count;
}

struct extent *export_extent(const struct export *p, unsigned i)
{
        return &p->block->extents[i];
}

uint64_t export_bytes(const struct export *p)
{
        return p->block->bytes;
}

struct gpu *export_gpu(const struct export *p)
{
        return gpu;
}

bool export_shares(const struct export *a, const struct export *b)
{
        return a->block == b->block;
}

void export_given(struct export *p)
{
        given++;
}

static CUresult fake_reserve(CUdeviceptr *ret, size_t bytes, size_t alignment, CUdeviceptr request,
                             unsigned long long flags)
{
        *ret = UINT64_C(0x700000000000);
        return CUDA_SUCCESS;
}

static CUresult fake_handle(CUipcMemHandle *ret, CUdeviceptr at)
{
        of_driver++;
        return CUDA_ERROR_INVALID_VALUE;
}

static CUresult fake_relax(CUstreamCaptureMode *mode)
{
        return CUDA_SUCCESS;
}

/* ---- what the tests do ---- */

struct ipc_link first = {.exporter = true}, other = {.exporter = true};
struct ipc_handle handle;
CUdeviceptr start;      /* start of the handle's block */
static unsigned before; /* open descriptors when the test began */

CUdeviceptr resident(uint64_t bytes)
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

int one_allocation(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        gpu->passes = true;
        memset(gpu->uuid, 3, sizeof(gpu->uuid));
        heap_init(&gpu->heap, 1024 * MIB);
        real = (struct real_driver){.cuMemAddressReserve = fake_reserve,
                                    .cuIpcGetMemHandle = fake_handle,
                                    .cuThreadExchangeStreamCaptureMode = fake_relax};
        first.lost = other.lost = false;
        state_of_exports = EXPORT_READY;
        sent_count = given = request_releases = replaced = of_driver = exported = export_fails_at =
                0;
        anybody_inside = no_ipc = no_export = fake_capturing = false;
        quiesce_now = QUIESCE_DONE;
        named = replace_error = 0;
        meanwhile = NULL;
        atomic_store(&gate_bits, 0);
        before = open_descriptors();
        start = resident(PIECES * gpu->heap.extent_bytes);
        assert_int_equal(hook_cuIpcGetMemHandle((CUipcMemHandle *)&handle, start), CUDA_SUCCESS);
        return 0;
}

int no_allocation(void **state)
{
        ipc_export_lost(&first);
        ipc_export_lost(&other);
        assert_int_equal(exports, 0);
        assert_int_equal(open_descriptors(), before);
        assert_int_equal(atomic_load(&gate_bits), 0);
        for (size_t i = 0; i < gpu->heap.count; i++) {
                ipc_export_freed(gpu->heap.blocks[i]->address);
                for (unsigned k = 0; k < gpu->heap.blocks[i]->extent_count; k++)
                        assert_false(gpu->heap.blocks[i]->extents[k].busy);
        }
        heap_end(&gpu->heap);
        return 0;
}

/* Calls ipc_export_step() as the agent does. True: a message was answered. */
bool step(void)
{
        bool any;

        lock_acquire(&core_lock);
        any = ipc_export_step();
        lock_release(&core_lock);
        return any;
}

/* The peer asks for pieces from this one on; all consequences are handled on return. */
void ask(struct ipc_link *l, uint32_t from)
{
        struct wire_message m = {.header.type = WIRE_OPEN};

        memcpy(m.OPEN.secret, handle.secret, IPC_NAME);
        m.OPEN.first = from;
        ipc_export_handle(l, &m);
        (void)step();
}

void free_it(void)
{
        state_of_exports = EXPORT_GHOST;
        (void)step();
}

void say(struct ipc_link *l, unsigned type)
{
        struct wire_message m = {.header.type = (uint16_t)type};

        memcpy(m.INHERITED.secret, handle.secret, IPC_NAME);
        ipc_export_handle(l, &m);
        (void)step();
}

const struct wire_message *last_said(const struct ipc_link *l)
{
        assert_true(sent_count > 0);
        assert_ptr_equal(sent[sent_count - 1].to, l);
        return &sent[sent_count - 1].m;
}

unsigned said(const struct ipc_link *l, unsigned type)
{
        unsigned n = 0;

        for (unsigned i = 0; i < sent_count; i++)
                n += sent[i].to == l && sent[i].m.header.type == type;
        return n;
}
