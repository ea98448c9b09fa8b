/* test_ipc_import.c: memory of another process, opened here: all of it is mapped or none, it is
 * closed with its last opener, and an importer that inherits it is charged for it. */
#include "unit.h"

#include <errno.h>
#include <unistd.h>

#include "base/macros.h"
#include "fakes/driver.h"
#include "fakes/preload.h"
#include "preload/hooks/hooks.h"
#include "preload/share/ipc_state.h"

#define PAGE   HEAP_GRANULARITY
#define PIECE  (2 * PAGE)
#define MAPPED (9 * PAGE) /* five pieces, the last one half as large */
#define OFFSET UINT64_C(512)
#define BYTES  (MAPPED - PAGE)
#define EACH   2u /* pieces that one message brings */
#define OWNER  ((CUcontext)(uintptr_t)0xc0)
#define OTHER  ((CUcontext)(uintptr_t)0xd0)
#define LAZY   CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

uint8_t ipc_name[IPC_NAME] = "me";

static struct gpu *const gpu = &core.gpus[2];
static struct ipc_link exporter, stranger;
static bool parted, met_nobody;
static unsigned opens, closes, inherits, answered, of_driver;
static struct wire_message last_open, answer; /* answer: sent instead of the right answer */
static unsigned changed;                      /* number of the message that it replaces; 0: none */
static bool dies;

/* ---- fakes of other modules ---- */

struct ipc_link *ipc_meet(const uint8_t name[static IPC_NAME])
{
        return met_nobody ? NULL : &exporter;
}

void ipc_part(struct ipc_link *l)
{
        assert_ptr_equal(l, &exporter);
        assert_int_equal(l->imports, 0);
        parted = true;
}

void ipc_send(struct ipc_link *l, struct wire_message *m, unsigned type, const int *fds,
              unsigned n_fds)
{
        assert_ptr_equal(l, &exporter);
        assert_int_equal(n_fds, 0);
        if (type == WIRE_OPEN)
                last_open = *m;
        opens += type == WIRE_OPEN;
        closes += type == WIRE_CLOSE;
        inherits += type == WIRE_INHERITED;
}

static CUresult fake_device(CUdevice *ret)
{
        *ret = 1;
        return CUDA_SUCCESS;
}

static CUresult fake_count(int *ret)
{
        *ret = 4;
        return CUDA_SUCCESS;
}

static CUresult fake_uuid(CUuuid *ret, CUdevice device)
{
        memset(ret, device + 1, sizeof(*ret));
        return CUDA_SUCCESS;
}

static CUresult fake_open(CUdeviceptr *ret, CUipcMemHandle handle, unsigned flags)
{
        of_driver++;
        return CUDA_SUCCESS;
}

static CUresult fake_close(CUdeviceptr at)
{
        of_driver++;
        return CUDA_ERROR_INVALID_VALUE;
}

/* ---- the exporter ---- */

static struct wire_message opened(unsigned first, unsigned pieces)
{
        struct wire_message m = {.header.type = WIRE_OPENED};

        memcpy(m.OPENED.secret, last_open.OPEN.secret, IPC_NAME);
        m.OPENED.first = first;
        m.OPENED.pieces = pieces;
        m.OPENED.piece = PIECE;
        m.OPENED.mapped = MAPPED;
        m.OPENED.offset = OFFSET;
        m.OPENED.bytes = BYTES;
        return m;
}

static void hear(struct ipc_link *l, const struct wire_message *m, unsigned fds, unsigned first)
{
        struct passed came = {0};

        for (unsigned i = 0; i < fds; i++)
                passed_add(&came, driver_foreign(PIECE, 100 * (first + i + 1)));
        lock_acquire(&core_lock);
        ipc_import_handle(l, m, &came);
        lock_release(&core_lock);
        passed_close(&came);
}

/* The exporter answers the last request, or dies. */
static void answers(const struct core_wait *w)
{
        unsigned first = last_open.OPEN.first, pieces = MIN(EACH, 5 - first);
        struct wire_message m = opened(first, pieces);

        if (dies) {
                lock_acquire(&core_lock);
                exporter.lost = true;
                ipc_import_lost(&exporter);
                lock_release(&core_lock);
                return;
        }
        if (++answered == changed) {
                m = answer;
                memcpy(m.OPENED.secret, last_open.OPEN.secret, IPC_NAME);
        }
        hear(&exporter, &m, pieces, first);
        hear(&exporter, &m, pieces, first); /* a repeated message has no effect */
}

static CUipcMemHandle handle_of(const char *name, uint8_t secret)
{
        struct ipc_handle h = {0};
        CUipcMemHandle handle;

        memcpy(h.magic, IPC_MAGIC, sizeof(h.magic));
        (void)snprintf((char *)h.name, sizeof(h.name), "%s", name);
        memset(h.secret, secret, sizeof(h.secret));
        memset(h.uuid, 3, sizeof(h.uuid));
        memcpy(&handle, &h, sizeof(handle));
        return handle;
}

static unsigned before; /* number of descriptors open when the test began */

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 4};
        driver_reset(GIB);
        driver.unlocked = true;
        driver.current = OWNER;
        gpu->index = 2;
        gpu->heap.reserve_bytes = GIB;
        gpu->heap.extent_bytes = PIECE;
        real.cuCtxGetDevice = fake_device;
        real.cuDeviceGetCount = fake_count;
        real.cuDeviceGetUuid_v2 = fake_uuid;
        real.cuIpcOpenMemHandle_v2 = real.cuIpcOpenMemHandle = fake_open;
        real.cuIpcCloseMemHandle = fake_close;
        exporter = stranger = (struct ipc_link){0};
        meanwhile = answers;
        parted = met_nobody = fake_capturing = dies = false;
        while_it_drains = NULL;
        opens = closes = inherits = answered = of_driver = changed = 0;
        before = open_descriptors();
        return 0;
}

static int end(void **state)
{
        assert_int_equal(driver_handles(), 0);
        assert_int_equal(driver_mappings(), 0);
        assert_int_equal(driver.reservations, 0);
        assert_int_equal(driver.relaxed, 0);
        assert_int_equal(open_descriptors(), before);
        assert_int_equal(core.unbooked, 0);
        assert_int_equal(exporter.imports, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        return 0;
}

static CUdeviceptr open_one(void)
{
        CUdeviceptr at = 0;

        assert_int_equal(hook_cuIpcOpenMemHandle_v2(&at, handle_of("you", 7), LAZY), CUDA_SUCCESS);
        return at;
}

static CUresult try_open(void)
{
        CUdeviceptr at;

        return hook_cuIpcOpenMemHandle_v2(&at, handle_of("you", 7), LAZY);
}

static void close_one(CUdeviceptr at)
{
        uint32_t heard = bell_listen(&core.changed);

        assert_int_equal(hook_cuIpcCloseMemHandle(at), CUDA_SUCCESS);
        if (closes)
                assert_int_not_equal(bell_listen(&core.changed), heard);
}

/* ---- tests ---- */

static void opened_memory_is_mapped_piece_by_piece(void **state)
{
        CUdeviceptr at = open_one();
        struct heap_place p;
        struct gpu *g;

        assert_int_equal(opens, 3);
        assert_int_equal(at % PAGE, OFFSET);
        for (unsigned i = 0; i < 9; i++)
                for (unsigned d = 0; d < 4; d++) {
                        const uint64_t *word = driver_word(at - OFFSET + i * PAGE, d);

                        assert_int_equal(word != NULL, d == 1 || d == 2);
                        if (word)
                                assert_int_equal(*word, 100 * (i / 2 + 1));
                }
        assert_int_equal(driver_mappings(), 5);
        assert_true(ipc_find(at, &p, &g) && ipc_find(at + BYTES - 1, &p, &g));
        assert_int_equal(p.start, at);
        assert_int_equal(p.bytes, BYTES);
        assert_ptr_equal(p.block->owner, OWNER);
        assert_ptr_equal(g, gpu);
        assert_false(ipc_find(at - 1, &p, &g) || ipc_find(at + BYTES, &p, &g));
        assert_int_equal(core.unbooked, 0);
        close_one(at);
        assert_int_equal(closes, 1);
        assert_true(parted);
        assert_false(ipc_find(at, &p, &g));
}

/* Returns the stretch around an address; from == to: the address belongs to nobody here. */
static struct stretch around(CUdeviceptr at)
{
        struct stretch s = {0, UINT64_MAX};

        return ipc_narrow(at, &s) ? s : (struct stretch){0, 0};
}

static void opened_memory_ends_where_its_allocation_ends(void **state)
{
        uint64_t changes = heap_changes;
        CUdeviceptr at, mapping;

        assert_true(around(4 * PAGE).to == UINT64_MAX);
        at = open_one();
        mapping = at - OFFSET;
        assert_int_not_equal(heap_changes, changes);
        for (unsigned i = 0; i < 2; i++) {
                const struct stretch s = around(i ? at + BYTES - 1 : at);

                assert_true(s.from == at && s.to == at + BYTES);
        }
        assert_int_equal(around(at - 1).to, 0);
        assert_int_equal(around(at + BYTES).to, 0);
        assert_int_equal(around(mapping + MAPPED - 1).to, 0);
        assert_true(around(mapping - 1).to == mapping);
        assert_true(around(mapping + MAPPED).from == mapping + MAPPED);
        close_one(at);
        assert_true(around(at).to == UINT64_MAX);
}

static void memory_stays_open_until_each_opener_has_closed_it(void **state)
{
        CUdeviceptr at = open_one(), again;

        assert_int_equal(open_one(), at);
        assert_int_equal(open_one(), at);
        assert_int_equal(opens, 3);
        assert_int_equal(hook_cuIpcOpenMemHandle(&again, handle_of("you", 7), LAZY),
                         CUDA_ERROR_ALREADY_MAPPED);
        close_one(at);
        close_one(at);
        assert_int_equal(closes, 0);
        assert_non_null(driver_word(at, 2));
        driver.current = OTHER; /* another context tries to open the same memory */
        assert_int_equal(try_open(), CUDA_ERROR_INVALID_HANDLE);
        driver.current = OWNER;
        close_one(at);
        assert_int_equal(closes, 1);
        assert_int_equal(hook_cuIpcCloseMemHandle(at), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(of_driver, 1);
        assert_int_equal(hook_cuIpcOpenMemHandle(&again, handle_of("you", 7), LAZY), CUDA_SUCCESS);
        close_one(again);
}

static void a_call_that_fails_leaves_nothing_open(void **state)
{
        unsigned n;

        for (n = 1;; n++) {
                CUresult r;

                parted = false;
                closes = 0;
                driver_fail(n, CUDA_ERROR_UNKNOWN);
                r = try_open();
                if (!driver.failed)
                        break;
                assert_int_equal(r, CUDA_ERROR_UNKNOWN);
                (void)end(NULL);
                assert_int_equal(closes, 1);
                assert_true(parted);
        }
        assert_int_equal(n, 13); /* 12 calls: a reservation, two for each piece, access */
        lock_acquire(&core_lock);
        ipc_context_dies(OWNER);
        lock_release(&core_lock);
}

static void an_open_fails_if_the_exporter_dies(void **state)
{
        dies = true;
        assert_int_equal(try_open(), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(gpu->unevictable, 0);
        met_nobody = true;
        assert_int_equal(try_open(), CUDA_ERROR_INVALID_HANDLE);
}

static void inconsistent_answers_are_refused(void **state)
{
        for (unsigned i = 0; i < 12; i++)
                for (changed = 1; changed <= 2; changed++) {
                        answer = opened(changed == 1 ? 0 : EACH, EACH);
                        switch (i) {
                        case 0:
                                answer.OPENED.pieces = EACH + 1; /* fewer descriptors came */
                                break;
                        case 1:
                                answer.OPENED.first++;
                                break;
                        case 2:
                                answer.OPENED.mapped = 0;
                                break;
                        case 3:
                                answer.OPENED.mapped = MAPPED + 1;
                                break;
                        case 4:
                                answer.OPENED.piece = 0;
                                break;
                        case 5:
                                answer.OPENED.piece = PAGE / 2;
                                break;
                        case 6:
                                answer.OPENED.mapped = GIB + PAGE;
                                break;
                        case 7:
                                answer.OPENED.offset = MAPPED + 1;
                                break;
                        case 8:
                                answer.OPENED.bytes = MAPPED - OFFSET + 1;
                                break;
                        case 9:
                                answer.OPENED.mapped = PAGE; /* the pieces hold more bytes */
                                break;
                        case 10:
                                answer.OPENED.bytes = UINT64_MAX - OFFSET + 2;
                                break;
                        default:
                                answer.OPENED.result = CUDA_ERROR_OUT_OF_MEMORY;
                                break;
                        }
                        answered = 0;
                        assert_int_not_equal(try_open(), CUDA_SUCCESS);
                        (void)end(NULL);
                }
}

static void messages_about_memory_that_is_not_open_do_nothing(void **state)
{
        CUdeviceptr at = open_one();
        struct wire_message m = {.header.type = WIRE_BEQUEATH};

        memcpy(m.BEQUEATH.secret, last_open.OPEN.secret, IPC_NAME);
        hear(&stranger, &m, 0, 0); /* another process sends it */
        assert_int_equal(gpu->unevictable, 0);
        memset(m.BEQUEATH.secret, 9, IPC_NAME);
        hear(&exporter, &m, 0, 0);
        assert_int_equal(gpu->unevictable, 0);
        close_one(at);
        memcpy(m.BEQUEATH.secret, last_open.OPEN.secret, IPC_NAME);
        hear(&exporter, &m, 0, 0);
        m = opened(0, EACH);
        hear(&exporter, &m, EACH, 0);
        assert_int_equal(gpu->unevictable, 0);
}

static void inherit_told(void)
{
        lock_acquire(&core_lock);
        ipc_told();
        lock_release(&core_lock);
}

static void bequeathed_memory_is_charged_before_the_exporter_is_told(void **state)
{
        CUdeviceptr at = open_one();
        struct wire_message m = {.header.type = WIRE_BEQUEATH};

        gpu->usage_dirty = false;
        inherit_told();
        assert_int_equal(inherits, 0);
        memcpy(m.BEQUEATH.secret, last_open.OPEN.secret, IPC_NAME);
        hear(&exporter, &m, 0, 0);
        hear(&exporter, &m, 0, 0);
        assert_int_equal(gpu->unevictable, MAPPED);
        assert_int_equal(gpu->unevictable_requested, MAPPED);
        assert_true(gpu->usage_dirty);
        inherit_told();
        assert_int_equal(inherits, 0); /* the daemon must be told first */
        gpu->usage_dirty = false;
        inherit_told();
        inherit_told();
        assert_int_equal(inherits, 1);
        close_one(at);
        assert_int_equal(gpu->unevictable, 0);
}

static void the_heir_of_a_lost_exporter_is_charged(void **state)
{
        for (unsigned heir = 0; heir < 2; heir++) {
                CUdeviceptr at;

                changed = heir ? 1 : 0;
                answer = opened(0, EACH);
                answer.OPENED.flags = WIRE_OPENED_HEIR;
                answered = 0;
                at = open_one();
                lock_acquire(&core_lock);
                ipc_import_lost(&stranger);
                assert_int_equal(gpu->unevictable, 0);
                ipc_import_lost(&exporter);
                ipc_import_lost(&exporter);
                lock_release(&core_lock);
                assert_int_equal(gpu->unevictable, heir ? MAPPED : 0);
                close_one(at);
                assert_int_equal(gpu->unevictable, 0);
        }
}

static void begin_capture(void)
{
        fake_capturing = true;
}

static void closing_fails_during_a_capture(void **state)
{
        CUdeviceptr at = open_one();
        uint32_t heard;

        fake_capturing = true;
        assert_int_equal(hook_cuIpcCloseMemHandle(at), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        assert_non_null(driver_word(at, 2));
        fake_capturing = false;
        while_it_drains = begin_capture; /* while the close waits for work */
        heard = bell_listen(&core.changed);
        assert_int_equal(hook_cuIpcCloseMemHandle(at), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        /* The failed close wakes threads that wait to open the memory. */
        assert_int_not_equal(bell_listen(&core.changed), heard);
        assert_non_null(driver_word(at, 2));
        fake_capturing = false;
        while_it_drains = NULL;
        assert_int_equal(open_one(), at);
        close_one(at);
        close_one(at);
        assert_int_equal(closes, 1);
}

static void memory_opened_in_a_context_is_closed_with_it(void **state)
{
        CUdeviceptr at = open_one(), another;

        driver.current = OTHER;
        assert_int_equal(hook_cuIpcOpenMemHandle_v2(&another, handle_of("you", 8), LAZY),
                         CUDA_SUCCESS);
        assert_int_equal(exporter.imports, 2);
        lock_acquire(&core_lock);
        ipc_context_dies(OWNER);
        lock_release(&core_lock);
        assert_null(driver_word(at, 2));
        assert_non_null(driver_word(another, 2));
        assert_false(parted);
        close_one(another);
}

static void new_peer_gpus_get_access_to_open_memory(void **state)
{
        CUdeviceptr at = open_one();
        unsigned calls = driver.calls;

        lock_acquire(&core_lock);
        ipc_import_reach(gpu);
        assert_int_equal(driver.calls, calls); /* all GPUs have the right access already */
        gpu->peers = 1 << 0;
        ipc_import_reach(&core.gpus[0]);
        assert_null(driver_word(at, 0));
        ipc_import_reach(gpu);
        lock_release(&core_lock);
        for (unsigned i = 0; i < 9; i++)
                assert_non_null(driver_word(at - OFFSET + i * PAGE, 0));
        assert_non_null(driver_word(at, 2));
        assert_null(driver_word(at, 3));
        close_one(at);
}

static CUresult (*give_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
static unsigned givers;

/* While one thread gives access, a card comes and another thread asks for access for it. */
static CUresult while_access_is_given(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *desc,
                                      size_t count)
{
        CUresult r;

        assert_int_equal(++givers, 1); /* only one thread may give access at a time */
        lock_acquire(&core_lock);
        gpu->peers |= 1 << 3;
        ipc_import_reach(gpu);
        lock_release(&core_lock);
        r = give_access(at, bytes, desc, count);
        givers--;
        return r;
}

static void the_thread_that_gives_access_also_handles_a_new_card(void **state)
{
        CUdeviceptr at = open_one();

        give_access = real.cuMemSetAccess;
        real.cuMemSetAccess = while_access_is_given;
        lock_acquire(&core_lock);
        gpu->peers = 1 << 0;
        ipc_import_reach(gpu);
        lock_release(&core_lock);
        assert_non_null(driver_word(at, 0));
        assert_non_null(driver_word(at, 3));
        close_one(at);
}

static void each_call_sets_the_library_up(void **state)
{
        CUipcMemHandle none = {0};
        CUdeviceptr at;

        core_setups = 0;
        (void)hook_cuIpcOpenMemHandle_v2(&at, none, LAZY);
        assert_int_equal(core_setups, 1);
        (void)hook_cuIpcOpenMemHandle(&at, none, LAZY);
        assert_int_equal(core_setups, 2);
        (void)hook_cuIpcCloseMemHandle(4096);
        assert_int_equal(core_setups, 3);
}

static void handles_get_the_answers_that_the_driver_would_give(void **state)
{
        CUipcMemHandle handle = handle_of("you", 7);
        CUdeviceptr at;

        driver.current = NULL;
        assert_int_equal(hook_cuIpcOpenMemHandle_v2(&at, handle, LAZY), CUDA_ERROR_INVALID_CONTEXT);
        driver.current = OWNER;
        assert_int_equal(hook_cuIpcOpenMemHandle_v2(&at, handle, 0), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuIpcOpenMemHandle_v2(NULL, handle, LAZY), CUDA_ERROR_INVALID_VALUE);
        assert_int_equal(hook_cuIpcOpenMemHandle_v2(&at, handle_of("me", 7), LAZY),
                         CUDA_ERROR_INVALID_CONTEXT);
        /* The process does not have this card. */
        memset(((struct ipc_handle *)&handle)->uuid, 9, 16);
        assert_int_equal(hook_cuIpcOpenMemHandle_v2(&at, handle, LAZY), CUDA_ERROR_INVALID_HANDLE);
        assert_int_equal(of_driver, 0);
        handle = handle_of("you", 7);
        ((struct ipc_handle *)&handle)->zero[3] = 1; /* a handle that the driver itself made */
        assert_int_equal(hook_cuIpcOpenMemHandle_v2(&at, handle, LAZY), CUDA_SUCCESS);
        assert_int_equal(hook_cuIpcOpenMemHandle(&at, handle, LAZY), CUDA_SUCCESS);
        assert_int_equal(of_driver, 2);
        assert_int_equal(opens, 0);
}

#define IMPORT_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                IMPORT_TEST(opened_memory_is_mapped_piece_by_piece),
                IMPORT_TEST(opened_memory_ends_where_its_allocation_ends),
                IMPORT_TEST(memory_stays_open_until_each_opener_has_closed_it),
                IMPORT_TEST(a_call_that_fails_leaves_nothing_open),
                IMPORT_TEST(an_open_fails_if_the_exporter_dies),
                IMPORT_TEST(inconsistent_answers_are_refused),
                IMPORT_TEST(messages_about_memory_that_is_not_open_do_nothing),
                IMPORT_TEST(bequeathed_memory_is_charged_before_the_exporter_is_told),
                IMPORT_TEST(the_heir_of_a_lost_exporter_is_charged),
                IMPORT_TEST(closing_fails_during_a_capture),
                IMPORT_TEST(memory_opened_in_a_context_is_closed_with_it),
                IMPORT_TEST(new_peer_gpus_get_access_to_open_memory),
                IMPORT_TEST(the_thread_that_gives_access_also_handles_a_new_card),
                IMPORT_TEST(each_call_sets_the_library_up),
                IMPORT_TEST(handles_get_the_answers_that_the_driver_would_give),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
