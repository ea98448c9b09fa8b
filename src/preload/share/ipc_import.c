/* ipc_import.c: owns the memory of other processes that this one has open: the mappings, how often
 * each was opened, and what is charged to us when its owner frees it. Must never unmap memory that
 * submitted work may still use. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "base/macros.h"
#include "preload/move/extent.h"
#include "preload/driver/hook.h"
#include "preload/share/ipc_state.h"
#include "preload/stream/quiesce.h"
#include "preload/state/request.h"
#include "preload/process/lock.h"

enum import_state { IMPORT_OPENING, IMPORT_OPEN, IMPORT_CLOSING };

struct import {
        struct import *next;
        struct ipc_link *link;
        uint8_t secret[IPC_NAME];
        enum import_state state;
        unsigned opened;
        struct gpu *gpu;       /* the GPU that the memory is on */
        struct block as_block; /* owner, id and address, for pointer attributes */
        CUdeviceptr start;     /* start of the allocation */
        uint64_t bytes;
        CUdeviceptr mapping; /* address of all pieces; 0: none is mapped */
        uint64_t mapped, reserved;
        struct piece {
                CUmemGenericAllocationHandle handle;
                uint64_t bytes;
        } * piece;
        unsigned pieces, room;
        uint32_t access;   /* GPUs for which the memory is mapped, as bits 1 << ordinal */
        bool being_mapped; /* a thread maps the memory for more GPUs: do not unmap it */

        bool heir;    /* the bytes are charged to us when the exporter dies */
        bool charged; /* the bytes are charged to us */
        bool inherit; /* the exporter waits for our message that the bytes are charged to us */

        bool answered;
        struct wire_message answer;
        struct passed came;
};

static struct import *imports;
static uint64_t last_id;

static struct import *import_find(const uint8_t *secret)
{
        struct import *i = imports;

        while (i && memcmp(i->secret, secret, IPC_NAME) != 0)
                i = i->next;
        return i;
}

bool ipc_find(CUdeviceptr address, struct heap_place *ret, struct gpu **ret_gpu)
{
        for (struct import *i = imports; i; i = i->next) {
                if (i->state == IMPORT_OPENING || address - i->start >= i->bytes)
                        continue;
                *ret = (struct heap_place){
                        .start = i->start, .bytes = i->bytes, .block = &i->as_block};
                *ret_gpu = i->gpu;
                return true;
        }
        return false;
}

bool ipc_narrow(CUdeviceptr address, struct stretch *s)
{
        for (const struct import *i = imports; i; i = i->next) {
                if (i->state == IMPORT_OPENING)
                        continue;
                if (address - i->start < i->bytes)
                        *s = (struct stretch){i->start, i->start + i->bytes};
                else if (address - i->mapping < i->mapped)
                        return false; /* other memory of the exporter */
                else if (address < i->mapping)
                        s->to = MIN(s->to, i->mapping);
                else
                        s->from = MAX(s->from, i->mapping + i->mapped);
        }
        return true;
}

/* ---- the agent's side ---- */

/* The memory has no other owner any more: count it in our figures. */
static void charge(struct import *i) REQUIRES(core_lock)
{
        if (i->charged)
                return;
        i->charged = true;
        i->gpu->unevictable += i->mapped;
        i->gpu->unevictable_requested = MAX(i->gpu->unevictable_requested, i->gpu->unevictable);
        request_report(i->gpu);
}

void ipc_import_handle(struct ipc_link *l, const struct wire_message *m, struct passed *came)
{
        struct import *i =
                import_find(m->header.type == WIRE_OPENED ? m->OPENED.secret : m->BEQUEATH.secret);

        if (!i || i->link != l)
                return; /* the memory has been closed */
        if (m->header.type == WIRE_BEQUEATH) {
                if (i->state != IMPORT_OPENING) /* otherwise import_new() charges the bytes later */
                        charge(i);
                i->inherit = true;
        } else if (m->header.type == WIRE_OPENED && m->OPENED.result == 0 &&
                   m->OPENED.pieces == 0) {
                i->heir = true;
        } else if (m->header.type == WIRE_OPENED && !i->answered) {
                i->heir |= m->OPENED.flags & WIRE_OPENED_HEIR;
                i->answer = *m;
                i->came = *came;
                came->count = 0;
                i->answered = true;
                bell_ring(&core.changed);
        }
}

void ipc_import_lost(struct ipc_link *l)
{
        for (struct import *i = imports; i; i = i->next)
                if (i->link == l && i->heir && i->state != IMPORT_OPENING)
                        charge(i);
        bell_ring(&core.changed);
}

static void import_close(struct import *i) UNLOCKS(core_lock);

void ipc_told(void)
{
        for (struct import *i = imports; i; i = i->next) {
                struct wire_message m = {0};

                if (!i->inherit || !i->charged || i->gpu->usage_dirty)
                        continue; /* first the daemon has to know our figures */
                i->inherit = false;
                memcpy(m.INHERITED.secret, i->secret, IPC_NAME);
                ipc_send(i->link, &m, WIRE_INHERITED, NULL, 0);
        }
}

/* ---- mapping; core_lock not held ---- */

static void unmap(const struct import *i)
{
        uint64_t at = i->mapping;

        for (unsigned n = 0; n < i->pieces; at += i->piece[n++].bytes) {
                (void)real.cuMemUnmap(at, i->piece[n].bytes);
                (void)real.cuMemRelease(i->piece[n].handle);
        }
        if (i->mapping)
                (void)real.cuMemAddressFree(i->mapping, i->reserved);
}

static bool more_room(struct import *i, unsigned n)
{
        unsigned room = MAX(i->room * 2, i->pieces + n);
        struct piece *piece;

        if (i->pieces + n <= i->room)
                return true;
        piece = realloc(i->piece, room * sizeof(*piece));
        if (!piece)
                return false;
        i->piece = piece;
        i->room = room;
        return true;
}

/* Import one more piece, and map it behind the others. */
static CUresult map_piece(struct import *i, int fd)
{
        CUmemGenericAllocationHandle handle;
        uint64_t left = i->reserved - i->mapped;
        uint64_t bytes = MIN(left, i->answer.OPENED.piece);
        CUresult r = real.cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
                                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

        if (r != CUDA_SUCCESS)
                return r;
        r = bytes ? real.cuMemMap(i->mapping + i->mapped, bytes, 0, handle, 0)
                  : CUDA_ERROR_INVALID_VALUE;
        if (r != CUDA_SUCCESS) {
                (void)real.cuMemRelease(handle);
                return r;
        }
        i->piece[i->pieces++] = (struct piece){handle, bytes};
        i->mapped += bytes;
        return CUDA_SUCCESS;
}

static CUresult map_pieces(struct import *i, struct passed *came)
{
        CUresult r = more_room(i, came->count) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

        if (r == CUDA_SUCCESS && !i->mapping) {
                i->reserved = i->answer.OPENED.mapped;
                r = real.cuMemAddressReserve(&i->mapping, i->reserved, HEAP_GRANULARITY, 0, 0);
                if (r != CUDA_SUCCESS)
                        i->mapping = 0;
        }
        for (unsigned n = 0; r == CUDA_SUCCESS && n < came->count; n++)
                r = map_piece(i, came->fds[n]);
        passed_close(came);
        return r;
}

static CUresult give_access(const struct import *i)
{
        CUmemAccessDesc access[GPUS_MAX];

        return real.cuMemSetAccess(i->mapping, i->mapped, access, extent_access(i->access, access));
}

/* Allow access for these GPUs, and for all GPUs for which our own memory is mapped. */
static CUresult map_for(struct import *i, uint32_t devices) UNLOCKS(core_lock)
{
        CUresult r = CUDA_SUCCESS;

        for (devices |= i->gpu->peers; r == CUDA_SUCCESS && devices & ~i->access;
             devices = i->gpu->peers) {
                CUstreamCaptureMode mode;

                i->access |= devices;
                i->being_mapped = true;
                lock_release(&core_lock);
                mode = core_relax();
                r = give_access(i);
                core_unrelax(mode);
                lock_acquire(&core_lock);
                i->being_mapped = false;
                bell_ring(&core.changed);
        }
        return r;
}

void ipc_import_reach(const struct gpu *g)
{
        struct import *i = imports;

        while (i) {
                if (i->gpu != g || i->state != IMPORT_OPEN || i->being_mapped ||
                    !(g->peers & ~i->access)) {
                        i = i->next;
                        continue;
                }
                (void)map_for(i, 0);
                i = imports;
        }
}

/* ---- opening; core_lock held ---- */

static bool answer_is_sound(const struct import *i)
{
        const __typeof__(i->answer.OPENED) *a = &i->answer.OPENED;

        return i->came.count == a->pieces && a->pieces > 0 && a->first == i->pieces &&
               a->mapped > 0 && a->mapped % HEAP_GRANULARITY == 0 && a->piece > 0 &&
               a->piece % HEAP_GRANULARITY == 0 && a->mapped <= i->gpu->heap.reserve_bytes &&
               a->offset <= a->mapped && a->bytes <= a->mapped - a->offset &&
               (!i->reserved || i->reserved == a->mapped);
}

/* Request pieces from the next one on, and map them. */
static CUresult fetch(struct import *i) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "memory of another process"};
        struct wire_message m = {0};
        struct passed came;
        CUstreamCaptureMode mode;
        CUresult r;

        memcpy(m.OPEN.secret, i->secret, IPC_NAME);
        m.OPEN.first = i->pieces;
        i->answered = false;
        ipc_send(i->link, &m, WIRE_OPEN, NULL, 0);
        while (!i->answered && !i->link->lost && !core_passive())
                core_wait(&w, UINT64_MAX);
        if (!i->answered)
                return CUDA_ERROR_INVALID_HANDLE; /* the exporter has died */
        if (i->answer.OPENED.result == CUDA_SUCCESS && !answer_is_sound(i))
                i->answer.OPENED.result = CUDA_ERROR_INVALID_HANDLE;
        came = i->came;
        i->came.count = 0;
        if (i->answer.OPENED.result != CUDA_SUCCESS) {
                passed_close(&came);
                return (CUresult)i->answer.OPENED.result;
        }
        lock_release(&core_lock);
        mode = core_relax();
        r = map_pieces(i, &came);
        core_unrelax(mode);
        lock_acquire(&core_lock);
        return r;
}

static void import_free(struct import *i)
{
        struct import **at = &imports;
        struct ipc_link *l = i->link;

        while (*at && *at != i)
                at = &(*at)->next;
        if (*at)
                *at = i->next;
        passed_close(&i->came);
        if (--l->imports == 0)
                ipc_part(l);
        free(i->piece);
        free(i);
}

/* Unmap memory that no work uses any more, and tell the exporter. */
static void import_close(struct import *i) REQUIRES(core_lock)
{
        struct core_wait w = {.what = "a transfer of its own memory"};
        struct wire_message m = {0};
        CUstreamCaptureMode mode;

        i->state = IMPORT_CLOSING;
        while (i->being_mapped && !core_passive())
                core_wait(&w, UINT64_MAX);
        if (i->being_mapped)
                return; /* the GPU has failed */
        core.unbooked++;
        lock_release(&core_lock);
        mode = core_relax();
        unmap(i);
        core_unrelax(mode);
        lock_acquire(&core_lock);
        core.unbooked--;
        memcpy(m.CLOSE.secret, i->secret, IPC_NAME);
        ipc_send(i->link, &m, WIRE_CLOSE, NULL, 0);
        if (i->charged)
                request_return_unevictable(i->gpu, i->mapped);
        import_free(i);
        bell_ring(&core.changed);
}

static CUresult import_new(const struct ipc_handle *h, struct gpu *g, CUcontext owner,
                           CUdevice current, struct import **ret) UNLOCKS(core_lock)
{
        struct ipc_link *l = ipc_meet(h->name);
        struct import *i;
        CUresult r;

        if (!l)
                return CUDA_ERROR_INVALID_HANDLE;
        if (import_find(h->secret))
                return CUDA_ERROR_NOT_READY; /* another thread has opened the memory */
        i = calloc(1, sizeof(*i));
        if (!i) {
                if (l->imports == 0)
                        ipc_part(l);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        *i = (struct import){.link = l, .gpu = g, .next = imports};
        memcpy(i->secret, h->secret, IPC_NAME);
        imports = i;
        l->imports++;
        core.unbooked++; /* no audit now: who owns a piece is unknown until all are here */
        do
                r = fetch(i);
        while (r == CUDA_SUCCESS && i->mapped < i->reserved);
        if (r == CUDA_SUCCESS)
                r = map_for(i, UINT32_C(1) << g->index | UINT32_C(1) << current);
        if (r != CUDA_SUCCESS) {
                import_close(i);
                core.unbooked--;
                return r;
        }
        i->start = i->mapping + i->answer.OPENED.offset;
        i->bytes = i->answer.OPENED.bytes;
        i->as_block = (struct block){
                .address = i->mapping, .owner = owner, .id = (UINT64_C(1) << 31) + ++last_id};
        i->state = IMPORT_OPEN;
        heap_note_change();
        if (i->inherit || (l->lost && i->heir)) {
                charge(i);
                request_kick();
        }
        core.unbooked--;
        bell_ring(&core.changed);
        *ret = i;
        return CUDA_SUCCESS;
}

/* Opens memory, or counts one more open if the memory is open already. */
static CUresult open_handle(const struct ipc_handle *h, struct gpu *g, CUcontext owner,
                            CUdevice current, bool again, CUdeviceptr *ret) UNLOCKS(core_lock)
{
        struct core_wait w = {.what = "memory of another process"};

        for (;;) {
                struct import *i = import_find(h->secret);
                CUresult r;

                if (core_passive())
                        return CUDA_ERROR_INVALID_HANDLE;
                if (i && i->state != IMPORT_OPEN) {
                        core_wait(&w,
                                  UINT64_MAX); /* another thread is opening or closing the memory */
                        continue;
                }
                if (i && i->as_block.owner != owner)
                        return CUDA_ERROR_INVALID_HANDLE;
                if (i && !again)
                        return CUDA_ERROR_ALREADY_MAPPED;
                if (!i) {
                        r = import_new(h, g, owner, current, &i);
                        if (r == CUDA_ERROR_NOT_READY)
                                continue;
                        if (r != CUDA_SUCCESS)
                                return r;
                }
                i->opened++;
                *ret = i->start;
                return CUDA_SUCCESS;
        }
}

/* Finds the card by its UUID: the exporter may number the cards differently. */
static struct gpu *gpu_of(const struct ipc_handle *h)
{
        int n = 0;

        (void)real.cuDeviceGetCount(&n);
        for (int d = 0; d < n; d++) {
                CUuuid uuid;

                if ((real.cuDeviceGetUuid_v2(&uuid, d) == CUDA_SUCCESS ||
                     real.cuDeviceGetUuid(&uuid, d) == CUDA_SUCCESS) &&
                    memcmp(&uuid, h->uuid, sizeof(h->uuid)) == 0)
                        return core_attach(d);
        }
        return NULL;
}

static bool is_ours(const CUipcMemHandle *handle, struct ipc_handle *ret)
{
        static const uint8_t zero[sizeof(ret->zero)];

        memcpy(ret, handle, sizeof(*ret));
        return memcmp(ret->magic, IPC_MAGIC, sizeof(ret->magic)) == 0 &&
               memcmp(ret->zero, zero, sizeof(zero)) == 0;
}

/* Returns the driver's errors, checked in the driver's order (tests/unit/sim/ipc_facts.txt). */
static CUresult open_ours(CUdeviceptr *pdptr, const struct ipc_handle *h, unsigned flags,
                          bool again)
{
        CUcontext owner = NULL;
        CUdevice current;
        struct gpu *g;
        CUresult r = real.cuCtxGetCurrent(&owner);

        if (r == CUDA_SUCCESS && !owner)
                r = CUDA_ERROR_INVALID_CONTEXT;
        if (r == CUDA_SUCCESS)
                r = real.cuCtxGetDevice(&current);
        if (r != CUDA_SUCCESS)
                return r;
        if (!pdptr || !(flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
                return CUDA_ERROR_INVALID_VALUE;
        if (memcmp(h->name, ipc_name, IPC_NAME) == 0)
                return CUDA_ERROR_INVALID_CONTEXT;
        g = core_current_gpu() ? gpu_of(h) : NULL;
        if (!g)
                return CUDA_ERROR_INVALID_HANDLE;
        lock_acquire(&core_lock);
        r = open_handle(h, g, owner, current, again, pdptr);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuIpcOpenMemHandle_v2(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
        struct ipc_handle h;

        (void)core_setup();
        if (core_passive() || !is_ours(&handle, &h))
                return real.cuIpcOpenMemHandle_v2(pdptr, handle, Flags);
        return open_ours(pdptr, &h, Flags, true);
}

CUresult hook_cuIpcOpenMemHandle(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)
{
        struct ipc_handle h;

        (void)core_setup();
        if (core_passive() || !is_ours(&handle, &h))
                return real.cuIpcOpenMemHandle(pdptr, handle, Flags);
        return open_ours(pdptr, &h, Flags, false);
}

/* ---- closing ---- */

static struct import *import_at(CUdeviceptr start)
{
        struct import *i = imports;

        while (i && (i->state != IMPORT_OPEN || i->start != start))
                i = i->next;
        return i;
}

CUresult hook_cuIpcCloseMemHandle(CUdeviceptr dptr)
{
        CUresult r = CUDA_SUCCESS;
        struct import *i;

        (void)core_setup();
        if (core_passive())
                return real.cuIpcCloseMemHandle(dptr);
        lock_acquire(&core_lock);
        i = import_at(dptr);
        if (!i) {
                lock_release(&core_lock);
                return real.cuIpcCloseMemHandle(dptr);
        }
        if (i->opened > 1) {
                i->opened--;
        } else if (quiesce_capturing()) {
                r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; /* a capture allows no wait */
        } else {
                i->opened = 0;
                i->state = IMPORT_CLOSING; /* like the driver, wait for submitted work */
                quiesce_wait_all();
                if (quiesce_capturing()) { /* a capture has begun and ended the wait */
                        i->opened = 1;
                        i->state = IMPORT_OPEN;
                        bell_ring(&core.changed);
                        r = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
                } else {
                        import_close(i);
                }
        }
        lock_release(&core_lock);
        return r;
}

void ipc_context_dies(CUcontext context)
{
        for (struct import *i = imports; i;) {
                if (i->state == IMPORT_OPEN && i->as_block.owner == context) {
                        import_close(i);
                        i = imports;
                } else {
                        i = i->next;
                }
        }
}
