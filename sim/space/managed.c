/* managed.c: moves managed memory between the host and the cards: faults of kernels and of the
 * processor, prefetches, evictions. Must never access the addresses that the program uses, because
 * that faults, nor wait for another process or another thread's work with its lock held. */
#include "sim/space/managed.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sim/call/objects.h"
#include "sim/space/store.h"

struct block_state {
        uint32_t valid;     /* regions that belong to the allocation */
        uint32_t populated; /* regions that were used, so that the host or a card has their bytes */
        uint32_t open;      /* regions that the program can access; none of them is on a card */
        bool on_card;       /* a card has regions, unless another process has evicted them */
        struct frames_place place;
        struct managed_advice advice[FRAMES_REGIONS];
};

struct managed {
        struct span span; /* the allocation, rounded up to whole regions */
        uint64_t reserved;
        uint8_t *mirror; /* mapping of the card's store */
        bool released;
        unsigned device; /* device of the context that allocated the memory */
        unsigned attach;
        size_t blocks;
        struct block_state block[];
};

static struct {
        pthread_mutex_t lock;
        struct table areas;
        uint64_t allocated;
        struct sigaction next; /* handler of faults that are not in managed memory */
} managed = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void lock(void)
{
        pthread_mutex_lock(&managed.lock);
}

static void unlock(void)
{
        pthread_mutex_unlock(&managed.lock);
}

static void catch_faults(void);

static uint64_t block_address(const struct managed *m, size_t n)
{
        return m->span.start + n * FRAMES_BLOCK_BYTES;
}

static int protect(const struct managed *m, size_t n, uint32_t regions, int protection)
{
        uint64_t offset, bytes;

        while (regions_next(&regions, &offset, &bytes))
                if (mprotect((void *)(uintptr_t)(block_address(m, n) + offset), bytes, protection) <
                    0)
                        return -errno;
        return 0;
}

/* Returns the regions that a fault moves, as the driver's prefetcher does. If more than half of an
 * aligned piece of a block is present, the rest of the piece moves, too. Pieces of 2, 4, ...
 * regions are tried, up to the whole block. So six faults bring a whole block. */
static uint32_t grow(uint32_t have, uint32_t wanted, uint32_t valid)
{
        uint32_t all = have | wanted;

        for (uint32_t left = wanted; left; left &= left - 1) {
                unsigned region = (unsigned)__builtin_ctz(left);

                for (unsigned size = 2; size <= FRAMES_REGIONS; size *= 2) {
                        uint32_t piece = (uint32_t)((UINT64_C(1) << size) - 1)
                                         << (region & ~(size - 1));

                        piece &= valid;
                        if (2 * __builtin_popcount(all & piece) > __builtin_popcount(piece))
                                all |= piece;
                }
        }
        return all;
}

/* ---- off a card ---- */

/* Moves regions of an own block from a card to the host. Returns 0, or -EBUSY if the block is in
 * use or being moved. Needs the lock. */
static int block_home(struct managed *m, size_t n, uint32_t regions, uint64_t *ret_bytes)
{
        struct block_state *b = &m->block[n];
        uint32_t there;
        int r = b->on_card ? frames_claim(sim.session, &b->place, &there) : -ENOENT;

        *ret_bytes = 0;
        if (r == -ENOENT) {
                b->on_card = false;
                return 0;
        }
        if (r < 0)
                return r;
        regions &= there;
        r = store_to_host(block_address(m, n), regions);
        if (r == 0) {
                *ret_bytes = regions_bytes(regions);
                store_count(b->place.device, SESSION_TO_HOST, *ret_bytes);
        }
        frames_remove(sim.session, &b->place, r == 0 ? regions : 0);
        if (r == 0 && regions == there)
                b->on_card = false;
        return r == -EBUSY ? -EIO : r;
}

/* ---- onto a card ---- */

void managed_drop(struct managed_hold *hold)
{
        if (!hold->count)
                return;
        for (unsigned i = 0; i < hold->count; i++)
                frames_unpin(sim.session, &hold->held[i]);
        hold->count = 0;
        hold->epoch++;
}

void managed_look(struct managed_hold *hold)
{
        uint32_t hunger;

        if (!hold->count)
                return;
        hunger = frames_hunger(sim.session, hold->device);
        if (hunger != hold->hunger)
                managed_drop(hold);
        hold->hunger = hunger;
}

/* Adds a frame that is already pinned to the hold. */
static void hold_add(struct managed_hold *hold, const struct frames_place *p)
{
        for (unsigned i = 0; i < hold->count; i++) {
                if (hold->held[i].block == p->block && hold->held[i].frame == p->frame) {
                        frames_unpin(sim.session, p);
                        return;
                }
        }
        hold->held[hold->count++] = *p;
}

/* Moves regions of a block to the card. The frame of the block must be pinned. Needs the lock. */
static int block_fetch(struct managed *m, size_t n, uint32_t regions, uint64_t *ret_bytes)
{
        struct block_state *b = &m->block[n];
        uint32_t bytes = regions & b->populated;
        int r = 0;

        /* Close the regions first, so that the program cannot write to them during the move. If
         * that fails, close the whole block: a closed region costs only a fault. */
        if (b->open & regions) {
                catch_faults();
                r = protect(m, n, b->open & regions, PROT_NONE);
                b->open &= ~regions;
                if (r < 0) {
                        r = protect(m, n, b->valid, PROT_NONE);
                        b->open = 0;
                }
                if (r < 0)
                        return r;
        }
        r = store_to_card(block_address(m, n), bytes);
        if (r < 0)
                return r;
        b->populated |= regions;
        frames_add(sim.session, &b->place, regions);
        *ret_bytes = regions_bytes(bytes);
        return 0;
}

/* Tries to pin a block and to move the wanted regions to the card. Returns 0, -EAGAIN (the caller
 * must make room), -EBUSY (it must wait), or another error. Needs the lock. */
static int block_try(struct managed *m, size_t n, uint32_t wanted, unsigned device,
                     enum managed_cause cause, uint32_t *ret_regions, uint64_t *ret_bytes,
                     bool *ret_fault)
{
        struct block_state *b = &m->block[n];
        uint32_t there = 0, moving;
        uint64_t out;
        int r = -ENOENT;

        if (m->released)
                return -EFAULT;
        if (b->on_card && b->place.device != device) {
                r = block_home(m, n, b->valid, &out);
                if (r < 0)
                        return r;
                r = -ENOENT;
        }
        if (b->on_card) {
                r = frames_pin(sim.session, &b->place, &there);
                if (r == -EBUSY)
                        return r;
        }
        if (r == -ENOENT) {
                r = frames_take(sim.session, device, store_block(block_address(m, n)),
                                regions_bytes(b->valid), &b->place);
                if (r < 0)
                        return r == -ENOMEM ? -EAGAIN : r;
                b->on_card = true;
                there = 0;
        }
        moving = cause == MANAGED_FAULT ? grow(there, wanted, b->valid) : there | wanted;
        moving &= ~there;
        if (!(wanted & ~there))
                moving = 0;
        if (moving) {
                r = block_fetch(m, n, moving, ret_bytes);
                if (r < 0) {
                        frames_unpin(sim.session, &b->place);
                        return r;
                }
                *ret_fault = cause != MANAGED_PREFETCH;
        }
        *ret_regions = there | moving;
        return 0;
}

static CUresult block_use(struct managed *m, size_t n, uint32_t wanted, enum managed_cause cause,
                          struct managed_hold *hold, uint32_t *ret_regions)
{
        unsigned device = hold->device;
        uint64_t end_ns = 0, bytes = 0;
        bool fault = false;

        if (hold->count == MANAGED_HELD)
                managed_drop(hold);
        for (;;) {
                uint32_t changes = frames_changes(sim.session);
                int r;

                if (context_cancelled(hold->context))
                        return CUDA_ERROR_DEINITIALIZED;
                lock();
                r = block_try(m, n, wanted, device, cause, ret_regions, &bytes, &fault);
                if (r == 0)
                        hold_add(hold, &m->block[n].place);
                unlock();
                if (r == 0)
                        break;
                if (r == -EAGAIN)
                        r = store_evict(device, &hold->ready_ns);
                if (r == 0)
                        continue;
                if (r != -EBUSY)
                        return r == -EFAULT ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_OUT_OF_MEMORY;
                managed_drop(hold); /* other processes may be waiting for these frames */
                if (!end_ns)
                        end_ns = clock_now_ns() + STORE_PATIENCE_NS;
                else if (clock_now_ns() > end_ns)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                frames_wait(sim.session, changes);
        }
        store_count(device, SESSION_TO_DEVICE, bytes);
        if (fault)
                session_count(&session_own(sim.session, device)->counters.gpu_faults, 1);
        if (bytes || fault)
                store_pace(&hold->ready_ns, device, SESSION_TO_DEVICE, bytes,
                           fault && cause == MANAGED_FAULT);
        return CUDA_SUCCESS;
}

void *managed_use(struct managed_hold *hold, struct managed *m, uint64_t address, uint64_t bytes,
                  enum managed_cause cause, uint64_t *ret_start, uint64_t *ret_end)
{
        uint64_t offset = address - m->span.start, start, end, epoch;
        size_t first = offset / FRAMES_BLOCK_BYTES,
               last = (offset + bytes - 1) / FRAMES_BLOCK_BYTES;
        uint32_t regions = 0;

        /* Bytes across a block boundary need both blocks at once, but making room for the second
         * block may have evicted the first. */
        do {
                epoch = hold->epoch;
                start = end = first * FRAMES_BLOCK_BYTES;
                for (size_t n = first; n <= last; n++) {
                        uint64_t block = n * FRAMES_BLOCK_BYTES;
                        uint64_t from = MAX(offset, block) - block;
                        uint64_t to = MIN(offset + bytes, block + FRAMES_BLOCK_BYTES) - block;
                        unsigned region;

                        hold->error = block_use(m, n, regions_of(from, to) & m->block[n].valid,
                                                cause, hold, &regions);
                        if (hold->error != CUDA_SUCCESS)
                                return NULL;
                        region = (unsigned)(from / FRAMES_REGION_BYTES);
                        while (n == first && region > 0 && (regions >> (region - 1) & 1))
                                region--;
                        if (n == first)
                                start = block + region * FRAMES_REGION_BYTES;
                        region = (unsigned)((to - 1) / FRAMES_REGION_BYTES) + 1;
                        while (region < FRAMES_REGIONS && (regions >> region & 1))
                                region++;
                        end = block + region * FRAMES_REGION_BYTES;
                }
        } while (last > first && epoch != hold->epoch);
        *ret_start = m->span.start + start;
        *ret_end = m->span.start + end;
        return m->mirror + offset;
}

/* ---- the processor ---- */

/* Opens regions of a block to the program. Needs the lock. */
static int block_open(struct managed *m, size_t n, uint32_t regions)
{
        struct block_state *b = &m->block[n];
        int r = protect(m, n, regions & ~b->open, PROT_READ | PROT_WRITE);

        if (r < 0)
                return r;
        b->populated |= regions;
        b->open |= regions;
        return 0;
}

/* Tries to make an address accessible to the processor. Returns 0, -EBUSY (the caller must wait),
 * -ENOENT (not managed memory), or another error. Needs the lock. */
static int host_try(uint64_t address, unsigned *ret_device, uint64_t *ret_bytes)
{
        struct managed *m = table_find(&managed.areas, address);
        uint32_t there = 0, wanted, all;
        struct block_state *b;
        size_t n;
        int r;

        if (!m)
                return -ENOENT;
        n = (address - m->span.start) / FRAMES_BLOCK_BYTES;
        b = &m->block[n];
        *ret_device = m->device;
        wanted = 1U << ((address - block_address(m, n)) / FRAMES_REGION_BYTES);
        if (b->on_card) {
                *ret_device = b->place.device;
                r = frames_look(sim.session, &b->place, &there);
                if (r == -EBUSY)
                        return r;
                if (r < 0) {
                        b->on_card = false;
                        there = 0;
                }
        }
        all = grow(b->populated & ~there, wanted, b->valid);
        if (!(there & wanted))
                all &= ~there;
        if (all & there) {
                r = block_home(m, n, all, ret_bytes);
                if (r < 0)
                        return r;
        }
        r = block_open(m, n, all);
        if (r == 0)
                return 0;
        /* The kernel limits the number of mappings, so make the whole block a single one. */
        r = block_home(m, n, b->valid, ret_bytes);
        return r < 0 ? r : block_open(m, n, b->valid);
}

/* Handles a fault of the processor. Returns false if the address is not in managed memory or cannot
 * be made accessible. */
static bool host_fault(uint64_t address)
{
        static __thread uint64_t ready_ns;
        unsigned device = 0;
        uint64_t bytes = 0;
        int r;

        for (;;) {
                uint32_t changes = frames_changes(sim.session);

                lock();
                r = host_try(address, &device, &bytes);
                unlock();
                if (r != -EBUSY)
                        break;
                if (atomic_load(&sim.exiting))
                        return false;
                frames_wait(sim.session, changes);
        }
        if (r < 0)
                return false;
        session_count(&session_own(sim.session, device)->counters.cpu_faults, 1);
        if (bytes)
                store_pace(&ready_ns, device, SESSION_TO_HOST, bytes, true);
        return true;
}

static void on_fault(int number, siginfo_t *info, void *context)
{
        static __thread bool passing_on;
        const struct sigaction *next = &managed.next;
        uint64_t address = (uintptr_t)info->si_addr;
        bool given_back = passing_on; /* the next handler has called this one again */
        int error = errno;

        if (info->si_code > 0 && space_is_device(address) && atomic_load(&sim.state) == SIM_READY &&
            host_fault(address)) {
                errno = error;
                return;
        }
        passing_on = true;
        if (!given_back && (next->sa_flags & SA_SIGINFO)) {
                next->sa_sigaction(number, info, context);
        } else if (!given_back && next->sa_handler != SIG_DFL && next->sa_handler != SIG_IGN) {
                next->sa_handler(number);
        } else {
                /* The instruction faults again, and ends the process as without a handler. */
                struct sigaction plain = {.sa_handler = SIG_DFL};

                (void)sigaction(number, &plain, NULL);
        }
        passing_on = false;
        errno = error;
}

/* Makes on_fault() the first handler. Must precede every step that can cause a fault, because a
 * program may set its own handler at any time. Needs the lock. */
static void catch_faults(void)
{
        struct sigaction now,
                ours = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};

        if (sigaction(SIGSEGV, NULL, &now) < 0 ||
            ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault))
                return;
        managed.next = now;
        (void)sigaction(SIGSEGV, &ours, NULL);
}

CUresult managed_bring_home(CUcontext c, struct managed *m, uint64_t address, uint64_t bytes)
{
        uint64_t offset = address - m->span.start, end = offset + bytes, ready_ns = 0;

        for (uint64_t at = offset; at < end;) {
                size_t n = at / FRAMES_BLOCK_BYTES;
                uint64_t block = n * FRAMES_BLOCK_BYTES;
                uint64_t to = MIN(end, block + FRAMES_BLOCK_BYTES);
                uint32_t regions = regions_of(at - block, to - block) & m->block[n].valid;
                uint32_t changes = frames_changes(sim.session);
                uint64_t moved = 0;
                unsigned device;
                int r = -EFAULT;

                if (context_stopped(c))
                        return CUDA_SUCCESS;
                lock();
                device = m->block[n].place.device;
                if (!m->released)
                        r = block_home(m, n, regions, &moved);
                if (r == 0)
                        r = block_open(m, n, regions);
                unlock();
                if (r == -EBUSY) {
                        frames_wait(sim.session, changes);
                        continue;
                }
                if (r < 0)
                        return r == -EFAULT ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_OUT_OF_MEMORY;
                if (moved)
                        store_pace(&ready_ns, device, SESSION_TO_HOST, moved, false);
                at = to;
        }
        return CUDA_SUCCESS;
}

/* ---- allocation ---- */

static uint64_t machine_bytes(void)
{
        return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

CUresult managed_new(CUcontext c, uint64_t bytes, unsigned attach, struct managed **ret)
{
        uint64_t whole = align_up(bytes, FRAMES_REGION_BYTES);
        uint64_t reserved = align_up(bytes, FRAMES_BLOCK_BYTES);
        size_t blocks = reserved / FRAMES_BLOCK_BYTES;
        struct managed *m;
        uint64_t at;

        if (bytes > machine_bytes())
                return CUDA_ERROR_OUT_OF_MEMORY;
        m = calloc(1, sizeof(*m) + blocks * sizeof(m->block[0]));
        if (!m)
                return CUDA_ERROR_OUT_OF_MEMORY;
        space_lock();
        at = space_reserve(reserved, FRAMES_BLOCK_BYTES, 0);
        space_unlock();
        if (!at) {
                free(m);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        m->span = (struct span){at, whole};
        m->reserved = reserved;
        m->device = c->device;
        m->attach = attach;
        m->blocks = blocks;
        for (size_t n = 0; n < blocks; n++) {
                uint64_t block = n * FRAMES_BLOCK_BYTES;

                m->block[n].valid = regions_of(0, MIN(FRAMES_BLOCK_BYTES, whole - block));
                for (unsigned i = 0; i < FRAMES_REGIONS; i++)
                        m->block[n].advice[i] = (struct managed_advice){
                                .preferred = CU_DEVICE_INVALID, .prefetched = CU_DEVICE_INVALID};
        }
        lock();
        if (managed.allocated + whole > machine_bytes() || store_setup() < 0)
                goto release;
        catch_faults();
        m->mirror = store_map(0, reserved, STORE_CARD, at, PROT_READ | PROT_WRITE);
        if (!m->mirror)
                goto release;
        if (!store_map(at, reserved, STORE_HOST, at, PROT_NONE) ||
            table_insert(&managed.areas, &m->span) < 0) {
                (void)munmap(m->mirror, reserved);
                space_shut(at, reserved);
                goto release;
        }
        managed.allocated += whole;
        unlock();
        *ret = m;
        return CUDA_SUCCESS;

release:
        unlock();
        space_lock();
        space_release(at);
        space_unlock();
        free(m);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

uint64_t managed_start(const struct managed *m)
{
        return m->span.start;
}

uint64_t managed_bytes(const struct managed *m)
{
        return m->span.bytes;
}

void managed_release(struct managed *m)
{
        lock();
        m->released = true;
        table_remove(&managed.areas, &m->span);
        for (size_t n = 0; n < m->blocks; n++) {
                if (m->block[n].on_card)
                        frames_forget(sim.session, &m->block[n].place);
                store_forget(block_address(m, n), m->block[n].populated);
        }
        managed.allocated -= m->span.bytes;
        space_shut(m->span.start, m->reserved);
        unlock();
        space_release(m->span.start);
}

void managed_destroy(struct managed *m)
{
        (void)munmap(m->mirror, m->reserved);
        free(m);
}

/* ---- advice ---- */

static struct managed_advice *advice_at(struct managed *m, uint64_t offset)
{
        return &m->block[offset / FRAMES_BLOCK_BYTES]
                        .advice[offset % FRAMES_BLOCK_BYTES / FRAMES_REGION_BYTES];
}

void managed_advise(struct managed *m, uint64_t address, uint64_t bytes,
                    void (*change)(struct managed_advice *a, int device), int device)
{
        uint64_t offset = address - m->span.start, end = offset + bytes;

        lock();
        for (offset &= ~(FRAMES_REGION_BYTES - 1); offset < end; offset += FRAMES_REGION_BYTES)
                change(advice_at(m, offset), device);
        unlock();
}

struct managed_advice managed_advice_of(struct managed *m, uint64_t address, uint64_t bytes)
{
        uint64_t offset = address - m->span.start, end = offset + bytes;
        struct managed_advice all;

        lock();
        offset &= ~(FRAMES_REGION_BYTES - 1);
        all = *advice_at(m, offset);
        for (; offset < end; offset += FRAMES_REGION_BYTES) {
                const struct managed_advice *a = advice_at(m, offset);

                if (a->preferred != all.preferred)
                        all.preferred = CU_DEVICE_INVALID;
                if (a->prefetched != all.prefetched)
                        all.prefetched = CU_DEVICE_INVALID;
                all.read_mostly = all.read_mostly && a->read_mostly;
                all.accessed_by &= a->accessed_by;
                all.accessed_by_host = all.accessed_by_host && a->accessed_by_host;
        }
        unlock();
        return all;
}

void managed_attach(struct managed *m, unsigned attach)
{
        lock();
        m->attach = attach;
        unlock();
}
