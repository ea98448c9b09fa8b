/* ipc_export.c: owns the handles of this process's memory, the processes that have that memory
 * open, and which of them is charged for it when we free it. Must never give out a descriptor of
 * memory that is not exported, nor give one to a process that does not know the allocation's
 * secret.
 * Why: docs/decisions.md, "Exporting makes memory unevictable" and "CUDA IPC needs a daemon". */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/move/extent.h"
#include "preload/stream/gate.h"
#include "preload/driver/hook.h"
#include "preload/share/ipc_state.h"
#include "preload/move/export.h"
#include "preload/stream/quiesce.h"
#include "preload/move/swap.h"
#include "preload/state/request.h"
#include "preload/process/lock.h"

#define STILL_MOST_NS (10 * NSEC_PER_SEC)
#define STILL_NAP_NS  (200 * NSEC_PER_USEC)

/* An allocation that has a handle. */
struct export
{
        struct export *next;
        uint8_t secret[IPC_NAME];
        struct gpu *gpu;
        uint64_t block_id;
        CUdeviceptr start;
        uint64_t bytes;
};

/* A process that has an allocation open, or waits for it. A piece is the memory of one extent. */
struct reference {
        struct reference *next;
        struct ipc_link *link;
        struct export *export;
        uint8_t secret[IPC_NAME];
        uint64_t offset, bytes, piece;
        bool pending; /* pieces from number `first` on are requested and not yet sent */
        bool whole;   /* the process has all pieces */
        uint32_t first;
        /* heir: the process is charged for the memory after we free it. bequeathed: the process was
         * told so. */
        bool heir, bequeathed;
};

static struct export *exports;
static struct reference *references;
static unsigned holders; /* threads that keep the gate shut */

/* ---- handles ---- */

static struct export *export_find(const uint8_t *secret)
{
        struct export *e = exports;

        while (e && memcmp(e->secret, secret, IPC_NAME) != 0)
                e = e->next;
        return e;
}

/* True if the export's allocation still exists. The block's id shows whether the block is still the
 * same. In a block with several allocations, a new one at the same address is recognized only by a
 * different size. */
static bool export_lives(const struct export *e, struct heap_place *ret)
{
        return heap_find(&e->gpu->heap, e->start, ret) && ret->block->id == e->block_id &&
               ret->start == e->start && ret->bytes == e->bytes;
}

static void forget_dead_exports(void)
{
        struct export **at = &exports;

        while (*at) {
                struct export *e = *at;
                struct heap_place p;

                if (export_lives(e, &p)) {
                        at = &e->next;
                } else {
                        *at = e->next;
                        free(e);
                }
        }
}

static struct export *export_of(struct gpu *g, const struct heap_place *p)
{
        struct export *e;

        forget_dead_exports();
        for (e = exports; e; e = e->next)
                if (e->gpu == g && e->start == p->start)
                        return e;
        e = calloc(1, sizeof(*e));
        if (!e || !ipc_random(e->secret)) {
                free(e);
                return NULL;
        }
        e->gpu = g;
        e->block_id = p->block->id;
        e->start = p->start;
        e->bytes = p->bytes;
        e->next = exports;
        exports = e;
        return e;
}

void ipc_export_freed(CUdeviceptr start)
{
        struct export **at = &exports;

        while (*at && (*at)->start != start)
                at = &(*at)->next;
        if (*at) {
                struct export *e = *at;

                *at = e->next;
                free(e);
        }
}

/* ---- memory that the driver will not export ---- */

/* Returns the first extent of an allocation; *ret_end is the extent behind the last. */
static unsigned extents_of(const struct heap_place *p, unsigned *ret_end)
{
        uint64_t from = p->start - p->block->address;

        *ret_end = (unsigned)((from + p->bytes - 1) / p->block->extent_bytes) + 1;
        return (unsigned)(from / p->block->extent_bytes);
}

/* Returns an extent of the allocation that is busy or that the driver will not export, or NULL.
 * From now on the allocation's extents are restored only to memory of our own. */
static struct extent *find_adopted(const struct heap_place *p)
{
        unsigned end, i = extents_of(p, &end);
        struct extent *found = NULL;

        for (; i < end; i++) {
                struct extent *e = &p->block->extents[i];

                e->own = true;
                if (e->busy || (e->state == EXTENT_RESIDENT && e->adopted))
                        found = e;
        }
        return found;
}

/* Shuts the gate until let_move(), and waits until no work is in flight. False: that is not
 * possible now. Call let_move() in either case. */
static bool hold_still(void) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "its own work"};
        uint64_t until = clock_now_ns() + STILL_MOST_NS;
        struct quiesce_wait drained;
        bool begun = false;

        holders++;
        gate_shut(GATE_HELD);
        while (!core_passive() && !quiesce_capturing() && clock_now_ns() < until) {
                if (!gate_anybody_inside()) {
                        if (!begun)
                                quiesce_begin(&drained, false);
                        begun = true;
                        if (quiesce_poll(&drained) != QUIESCE_BUSY)
                                return !quiesce_capturing();
                }
                core_wait(&w, STILL_NAP_NS);
        }
        return false;
}

static void let_move(void)
{
        if (--holders > 0)
                return;
        gate_open(GATE_HELD);
        bell_ring(&core.changed);
}

/* Replaces memory that came from another process by memory of our own, at the same address. */
static int make_exportable(struct gpu *g, CUdeviceptr start) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "a transfer of its own memory"};
        struct heap_place p;
        struct extent *e;
        int r = hold_still() ? 0 : -EBUSY;

        while (r == 0 && core_find(start, &p) == g && (e = find_adopted(&p))) {
                if (e->busy) {
                        core_wait(&w, NSEC_PER_SEC);
                        continue;
                }
                e->busy = true;
                lock_release(&core_lock);
                r = extent_replace(g, e);
                lock_acquire(&core_lock);
                e->busy = false;
                swap_unused(g, e);
                request_released();
        }
        let_move();
        return r;
}

/* True for an allocation for which the driver would give out a handle. */
static bool is_shareable(const struct gpu *g, const struct heap_place *p)
{
        return g && (p->block->kind == BLOCK_LARGE || p->block->kind == BLOCK_SLAB);
}

static CUresult handle_of(CUdeviceptr ptr, struct ipc_handle *ret) UNLOCKS(core_lock)
{
        struct heap_place p;
        struct export *e;
        struct gpu *g = core_find(ptr, &p);

        if (!is_shareable(g, &p))
                return CUDA_ERROR_NOT_FOUND; /* not in our heap: the driver handles the call */
        if (!g->passes || p.block->managed || !ipc_works()) {
                static bool said;

                if (!said)
                        log_warning("CUDA IPC needs a daemon, and memory that is not managed: "
                                    "memory of "
                                    "this program cannot be shared with other processes");
                said = true;
                return CUDA_ERROR_NOT_SUPPORTED;
        }
        if (ipc_be_named() < 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (core_find(ptr, &p) == g && find_adopted(&p) && make_exportable(g, p.start) < 0)
                return CUDA_ERROR_MAP_FAILED;
        if (core_find(ptr, &p) != g)
                return CUDA_ERROR_INVALID_VALUE; /* freed while we waited */
        e = export_of(g, &p);
        if (!e)
                return CUDA_ERROR_OUT_OF_MEMORY;
        memset(ret, 0, sizeof(*ret));
        memcpy(ret->magic, IPC_MAGIC, sizeof(ret->magic));
        memcpy(ret->name, ipc_name, IPC_NAME);
        memcpy(ret->secret, e->secret, IPC_NAME);
        memcpy(ret->uuid, g->uuid, sizeof(ret->uuid));
        return CUDA_SUCCESS;
}

CUresult hook_cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
        CUresult r = CUDA_ERROR_NOT_FOUND;
        struct ipc_handle h;

        (void)core_setup();
        if (pHandle && !core_passive()) {
                lock_acquire(&core_lock);
                r = handle_of(dptr, &h);
                lock_release(&core_lock);
        }
        if (r == CUDA_SUCCESS)
                memcpy(pHandle, &h, sizeof(h));
        return r == CUDA_ERROR_NOT_FOUND ? real.cuIpcGetMemHandle(pHandle, dptr) : r;
}

/* ---- references; the agent's thread ---- */

static void reference_drop(struct reference *r) REQUIRES(core_lock)
{
        struct reference **at = &references;

        while (*at != r)
                at = &(*at)->next;
        *at = r->next;
        if (r->export)
                export_release(r->export);
        free(r);
}

static void answer(struct reference *r, CUresult result, uint64_t mapped, const int *fds,
                   unsigned n)
{
        struct wire_message m = {0};

        m.OPENED.mapped = mapped;
        m.OPENED.offset = r->offset;
        m.OPENED.bytes = r->bytes;
        m.OPENED.piece = r->piece;
        memcpy(m.OPENED.secret, r->secret, IPC_NAME);
        m.OPENED.first = r->first;
        m.OPENED.pieces = n;
        m.OPENED.result = result;
        m.OPENED.flags = r->heir ? WIRE_OPENED_HEIR : 0;
        ipc_send(r->link, &m, WIRE_OPENED, fds, n);
}

/* Chooses the heir: the first process that has all of the memory open. The heir is charged for the
 * memory after we free it. Sends the heir a message, unless the heir is `asking`: then the answer
 * to its request tells it. */
static void name_heir(struct export *p, struct reference *asking)
{
        struct wire_message m = {0};
        struct reference *heir = NULL;

        for (struct reference *r = references; r; r = r->next) {
                if (!export_shares(r->export, p) || !r->whole || r->link->lost)
                        continue;
                if (r->heir)
                        return;
                heir = r; /* later references in the list are older */
        }
        if (!heir)
                return;
        heir->heir = true;
        if (heir == asking)
                return;
        memcpy(m.OPENED.secret, heir->secret, IPC_NAME);
        m.OPENED.flags = WIRE_OPENED_HEIR;
        ipc_send(heir->link, &m, WIRE_OPENED, NULL, 0);
}

static struct reference *reference_find(struct ipc_link *l, const uint8_t *secret)
{
        struct reference *r = references;

        while (r && (r->link != l || memcmp(r->secret, secret, IPC_NAME) != 0))
                r = r->next;
        return r;
}

static void on_open(struct ipc_link *l, const struct wire_message *m) REQUIRES(core_lock)
{
        struct reference *r = reference_find(l, m->OPEN.secret);
        struct export *e = export_find(m->OPEN.secret);
        struct reference nobody = {.link = l};
        struct heap_place p;

        memcpy(nobody.secret, m->OPEN.secret, IPC_NAME);
        if (r ? m->OPEN.first == 0 || r->pending : m->OPEN.first > 0) {
                l->lost = true; /* a request that our library never sends */
                return;
        }
        if (r) {
                r->pending = true;
                r->first = m->OPEN.first;
                return;
        }
        if (!e || !export_lives(e, &p)) {
                answer(&nobody, CUDA_ERROR_INVALID_HANDLE, 0, NULL, 0);
                return;
        }
        r = calloc(1, sizeof(*r));
        if (r)
                *r = (struct reference){.link = l,
                                        .export = export_take(e->gpu, p.block, p.start, p.bytes),
                                        .offset = (p.start - p.block->address) %
                                                  p.block->extent_bytes,
                                        .piece = p.block->extent_bytes,
                                        .bytes = p.bytes,
                                        .pending = true};
        if (!r || !r->export) {
                free(r);
                answer(&nobody, CUDA_ERROR_OUT_OF_MEMORY, 0, NULL, 0);
                return;
        }
        memcpy(r->secret, m->OPEN.secret, IPC_NAME);
        r->next = references;
        references = r;
}

static void let_go(struct reference *r) REQUIRES(core_lock)
{
        bool was_heir = r->heir;
        struct reference *other = NULL;

        for (struct reference *o = references; o && was_heir; o = o->next)
                if (o != r && export_shares(o->export, r->export))
                        other = o;
        reference_drop(r);
        if (other)
                name_heir(other->export, NULL);
}

/* The heir is charged for the bytes now, so subtract them from our figures. A process that has only
 * some of the pieces learns that the memory is freed when it asks for the rest. */
static void on_inherited(struct ipc_link *l, const struct wire_message *m) REQUIRES(core_lock)
{
        struct reference *heir = reference_find(l, m->INHERITED.secret);

        if (!heir || !heir->bequeathed)
                return;
        for (struct reference *o = references, *next; o; o = next) {
                next = o->next;
                if (o != heir && o->whole && export_shares(o->export, heir->export) &&
                    export_state(o->export) == EXPORT_GHOST)
                        reference_drop(o);
        }
        reference_drop(heir);
}

void ipc_export_handle(struct ipc_link *l, const struct wire_message *m)
{
        struct reference *r;

        switch (m->header.type) {
        case WIRE_OPEN:
                on_open(l, m);
                break;
        case WIRE_CLOSE:
                r = reference_find(l, m->CLOSE.secret);
                if (r)
                        let_go(r);
                break;
        case WIRE_INHERITED:
                on_inherited(l, m);
                break;
        default:
                l->lost = true;
                break;
        }
}

void ipc_export_lost(struct ipc_link *l)
{
        for (bool found = true; found;) {
                found = false;
                for (struct reference *r = references; r; r = r->next)
                        if (r->link == l) {
                                let_go(r);
                                found = true;
                                break;
                        }
        }
}

/* Send descriptors of the next pieces. Gives up the lock while it exports them: the export keeps
 * the block, and the pieces are marked busy. */
static void give_pieces(struct reference *r) UNLOCKS(core_lock)
{
        unsigned all = export_extents(r->export), got = 0;
        unsigned n = r->first < all ? MIN(all - r->first, (unsigned)WIRE_PASS_MAX) : 0;
        struct extent *e[WIRE_PASS_MAX];
        int fds[WIRE_PASS_MAX];

        for (unsigned i = 0; i < n; i++) {
                e[i] = export_extent(r->export, r->first + i);
                e[i]->busy = true;
        }
        lock_release(&core_lock);
        for (; got < n; got++) {
                fds[got] = extent_export(e[got]);
                if (fds[got] < 0)
                        break;
        }
        lock_acquire(&core_lock);
        for (unsigned i = 0; i < n; i++) {
                e[i]->busy = false;
                swap_unused(export_gpu(r->export), e[i]);
        }
        request_released();
        r->pending = false;
        if (got > 0 && got == n) {
                r->whole = r->first + n == all;
                export_given(r->export);
                name_heir(r->export, r);
                answer(r, CUDA_SUCCESS, export_bytes(r->export), fds, n);
        } else {
                answer(r, CUDA_ERROR_INVALID_HANDLE, 0, NULL, 0);
                if (r->first == 0)
                        let_go(r);
        }
        while (got-- > 0)
                (void)syscall(SYS_close, fds[got]);
}

/* Answers a request if that is possible now. True: it was answered, and may have been freed. */
static bool serve(struct reference *r) UNLOCKS(core_lock)
{
        if (r->link->lost)
                return false;
        switch (export_state(r->export)) {
        case EXPORT_WAITING:
                return false;
        case EXPORT_READY:
                if (!r->pending)
                        return false;
                give_pieces(r);
                return true;
        case EXPORT_REFUSED:
                if (r->pending)
                        answer(r, CUDA_ERROR_OUT_OF_MEMORY, 0, NULL, 0);
                reference_drop(r);
                return true;
        case EXPORT_GHOST:
                if (r->pending) {
                        answer(r, CUDA_ERROR_INVALID_HANDLE, 0, NULL, 0);
                        let_go(r);
                        return true;
                }
                if (r->heir && !r->bequeathed) {
                        struct wire_message m = {0};

                        r->bequeathed = true;
                        memcpy(m.BEQUEATH.secret, r->secret, IPC_NAME);
                        ipc_send(r->link, &m, WIRE_BEQUEATH, NULL, 0);
                }
                return false;
        }
        return false;
}

bool ipc_export_step(void)
{
        bool again = true, any = false;

        while (again) {
                again = false;
                for (struct reference *r = references, *next; r && !again; r = next) {
                        next = r->next;
                        again = serve(r);
                }
                any |= again;
        }
        return any;
}
