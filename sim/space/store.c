/* store.c: moves the bytes of managed memory between the two stores of a process, and models the
 * time of moves. In an eviction the stores may belong to another process. Must never write to a
 * file of another process that is not its store, nor hold a lock while it sleeps. */
#include "sim/space/store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "sim/session/session_time.h"
#include "sim/space/managed.h"

#define PIECE (256 * KIB) /* bytes copied at a time */
/* Time of a group of faults, besides the time of its bytes on the bus. The study that
 * test_managed.py repeats measured 3.72 s for 30,732 groups, of which 1.22 s were copies, on a
 * P100. */
#define FAULT_NS  (80 * NSEC_PER_USEC)
#define AHEAD_NS  (200 * NSEC_PER_USEC) /* shorter sleeps are not worth their cost */
#define BEHIND_NS (5 * NSEC_PER_MSEC)   /* oversleeping that later moves may make up for */

static struct {
        int host, card;
        uint8_t piece[PIECE];
} stores = {.host = -1, .card = -1};

/* Returns the offset of an address, which is the same in both stores. */
static off_t store_offset(uint64_t address)
{
        return (off_t)(address - space_start());
}

/* ---- regions ---- */

uint32_t regions_of(uint64_t start, uint64_t end)
{
        uint64_t first = start / FRAMES_REGION_BYTES;
        uint64_t last = (end + FRAMES_REGION_BYTES - 1) / FRAMES_REGION_BYTES;

        return (uint32_t)(((UINT64_C(1) << last) - 1) & ~((UINT64_C(1) << first) - 1));
}

uint64_t regions_bytes(uint32_t regions)
{
        return (uint64_t)__builtin_popcount(regions) * FRAMES_REGION_BYTES;
}

bool regions_next(uint32_t *regions, uint64_t *ret_offset, uint64_t *ret_bytes)
{
        unsigned first, n;

        if (!*regions)
                return false;
        first = (unsigned)__builtin_ctz(*regions);
        n = ~(*regions >> first) ? (unsigned)__builtin_ctz(~(*regions >> first)) : FRAMES_REGIONS;
        *regions &= ~(uint32_t)(((UINT64_C(1) << n) - 1) << first);
        *ret_offset = first * FRAMES_REGION_BYTES;
        *ret_bytes = n * FRAMES_REGION_BYTES;
        return true;
}

/* ---- bytes ---- */

static int copy(int from, int to, off_t block, uint32_t regions, uint8_t *piece)
{
        uint64_t offset, bytes;

        while (regions_next(&regions, &offset, &bytes)) {
                off_t at = block + (off_t)offset, end = at + (off_t)bytes;

                while (at < end) {
                        ssize_t n = pread(from, piece, (size_t)MIN(end - at, (off_t)PIECE), at);

                        if (n > 0)
                                n = pwrite(to, piece, (size_t)n, at);
                        if (n <= 0)
                                return n < 0 ? -errno : -EIO;
                        at += n;
                }
        }
        return 0;
}

/* Frees the memory that regions take in a store. */
static void punch(int fd, off_t block, uint32_t regions)
{
        uint64_t offset, bytes;

        while (regions_next(&regions, &offset, &bytes))
                (void)fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                block + (off_t)offset, (off_t)bytes);
}

int store_to_card(uint64_t block, uint32_t regions)
{
        off_t at = store_offset(block);
        int r = copy(stores.host, stores.card, at, regions, stores.piece);

        if (r == 0)
                punch(stores.host, at, regions);
        return r;
}

int store_to_host(uint64_t block, uint32_t regions)
{
        off_t at = store_offset(block);
        int r = copy(stores.card, stores.host, at, regions, stores.piece);

        if (r == 0)
                punch(stores.card, at, regions);
        return r;
}

void store_forget(uint64_t block, uint32_t regions)
{
        punch(stores.card, store_offset(block), regions);
        punch(stores.host, store_offset(block), regions);
}

uint64_t store_block(uint64_t block)
{
        return (uint64_t)store_offset(block) / FRAMES_BLOCK_BYTES;
}

/* ---- time ---- */

void store_pace(uint64_t *ready_ns, unsigned device, enum session_direction direction,
                uint64_t bytes, bool fault)
{
        uint64_t now = session_now_ns();

        if (!*ready_ns)
                *ready_ns = now;
        else if (*ready_ns + BEHIND_NS < now)
                *ready_ns = now - BEHIND_NS;
        if (bytes)
                *ready_ns = session_bus_claim(sim.session, device, direction, *ready_ns, bytes);
        if (fault)
                *ready_ns += FAULT_NS;
        if (*ready_ns > now + AHEAD_NS)
                session_sleep_until(*ready_ns);
}

void store_count(unsigned device, enum session_direction direction, uint64_t bytes)
{
        struct session_counters *n = &session_own(sim.session, device)->counters;

        if (!bytes)
                return;
        if (direction == SESSION_TO_DEVICE) {
                session_count(&n->h2d_bytes, bytes);
                session_count(&n->h2d_copies, 1);
                session_count(&n->managed_h2d_bytes, bytes);
                session_count(&n->managed_h2d_moves, 1);
        } else {
                session_count(&n->d2h_bytes, bytes);
                session_count(&n->d2h_copies, 1);
                session_count(&n->managed_d2h_bytes, bytes);
                session_count(&n->managed_d2h_moves, 1);
        }
}

/* ---- eviction ---- */

/* Opens a store of a process. -ESTALE: the file is gone. */
static int store_open(pid_t pid, const struct session_store *store)
{
        char path[64];
        struct stat st;
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, store->fd);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
                return errno == ENOENT ? -ESTALE : -errno;
        /* The descriptor number may now belong to another file, which must not be written. */
        if (fstat(fd, &st) < 0 || st.st_dev != store->device || st.st_ino != store->inode) {
                (void)close(fd);
                return -ESTALE;
        }
        return fd;
}

static int victim_move(const struct frames_victim *v)
{
        _cleanup_close_ int theirs_host = -EBADF, theirs_card = -EBADF;
        _cleanup_free_ uint8_t *piece = malloc(PIECE);
        off_t at = (off_t)(v->block * FRAMES_BLOCK_BYTES);
        int host = stores.host, card = stores.card, r;

        if (!piece)
                return -ENOMEM;
        if (v->pid != getpid()) {
                host = theirs_host = store_open(v->pid, &v->host);
                if (host < 0)
                        return host;
                card = theirs_card = store_open(v->pid, &v->card);
                if (card < 0)
                        return card;
        }
        r = copy(card, host, at, v->regions, piece);
        /* Free the card's bytes before the frame is freed. After that, the owner could write new
         * bytes at the same place of the store. */
        if (r == 0 && frames_copied(sim.session, v, regions_bytes(v->regions)))
                punch(card, at, v->regions);
        return r;
}

int store_evict(unsigned device, uint64_t *ready_ns)
{
        struct frames_victim v;
        int r = frames_victim(sim.session, device, &v);

        if (r < 0)
                return r;
        r = victim_move(&v);
        if (r == -ESTALE) {
                frames_victim_gone(sim.session, &v);
                return 0;
        }
        frames_victim_end(sim.session, &v, r == 0);
        if (r < 0) {
                sim_say("managed memory of process %d cannot be evicted: %s", (int)v.pid,
                        strerror(-r));
                return -EIO;
        }
        store_pace(ready_ns, device, SESSION_TO_HOST, regions_bytes(v.regions), false);
        return 0;
}

int managed_charge(unsigned device, uint64_t bytes)
{
        uint64_t ready_ns = 0, end_ns = session_now_ns() + STORE_PATIENCE_NS;

        for (;;) {
                uint32_t changes = frames_changes(sim.session);
                int r = session_charge(sim.session, device, bytes);

                if (r != -ENOMEM || bytes > session_device(sim.session, device)->total)
                        return r;
                r = store_evict(device, &ready_ns);
                if (r == -EBUSY && session_now_ns() < end_ns)
                        frames_wait(sim.session, changes);
                else if (r < 0)
                        return -ENOMEM;
        }
}

/* ---- this process's stores ---- */

static int store_make(const char *name, struct session_store *ret)
{
        struct stat st;
        int fd = memfd_create(name, MFD_CLOEXEC);

        if (fd < 0 || ftruncate(fd, (off_t)space_size()) < 0 || fstat(fd, &st) < 0) {
                if (fd >= 0)
                        (void)close(fd);
                return -errno;
        }
        *ret = (struct session_store){fd, st.st_dev, st.st_ino};
        return 0;
}

int store_setup(void)
{
        struct session_store host, card;
        int r;

        if (stores.host >= 0)
                return 0;
        r = store_make("simcuda-managed", &host);
        if (r < 0)
                return r;
        r = store_make("simcuda-managed-card", &card);
        if (r < 0) {
                (void)close(host.fd);
                return r;
        }
        stores.host = host.fd;
        stores.card = card.fd;
        frames_stores(sim.session, &host, &card);
        return 0;
}

void *store_map(uint64_t at, uint64_t bytes, enum store_side side, uint64_t address, int protection)
{
        void *p = mmap((void *)(uintptr_t)at, bytes, protection,
                       MAP_SHARED | MAP_NORESERVE | (at ? MAP_FIXED : 0),
                       side == STORE_CARD ? stores.card : stores.host, store_offset(address));

        if (p == MAP_FAILED)
                return NULL;
        (void)madvise(p, bytes, MADV_DONTFORK);
        (void)madvise(p, bytes, MADV_DONTDUMP);
        return p;
}
