/* lent.c: owns the memfd that the daemon lends memory by. Must never touch an offset that the
 * daemon has not filled: that memory would count against the limit of the program's own container.
 * Why: docs/decisions.md, "The host pool is a memfd for each process, and only the daemon fills
 * it". */
#include "preload/heap/lent.h"

#include <errno.h>
#include <linux/falloc.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/process/lock.h"

#define UNIT     (UINT64_C(2) << 20)
#define AGAIN_NS (100 * NSEC_PER_MSEC) /* how long to request nothing after a refusal */

static struct {
        struct lock lock;
        int fd; /* -EBADF: none */
        dev_t dev;
        ino_t ino;
        uint32_t pool; /* counts the memfds; 0: there never was one */
        bool parted;   /* the daemon that lends is not there */
        uint64_t most; /* what the daemon lends at most; 0: nothing */
        uint64_t used; /* all offsets below this one were mapped */
        uint64_t filled, wanted, said;
        uint64_t held, kept, kept_said; /* mapped bytes: of this memfd; of earlier ones; as told */
        uint64_t refused_ns;            /* 0: the last request was not refused */
} lender = {.fd = -EBADF};

/* True if the descriptor is still the memfd: a program may close all descriptors and use their
 * numbers for its own files. */
static bool is_ours(void)
{
        struct stat st;

        /* The symbol fstat() is newer than some C libraries that this library runs with. */
        return lender.fd >= 0 && syscall(SYS_fstat, lender.fd, &st) == 0 &&
               st.st_dev == lender.dev && st.st_ino == lender.ino;
}

static bool is_there(void)
{
        return lender.fd >= 0 && !lender.parted && lender.most > 0;
}

static uint64_t ready(void)
{
        return is_there() ? sub_sat(lender.filled, lender.used) / UNIT * UNIT : 0;
}

/* ---- for arenas ---- */

enum lent lent_want(uint64_t bytes)
{
        enum lent lent = LENT_ASKED;

        lock_acquire(&lender.lock);
        if (!is_there())
                lent = LENT_NONE;
        else if (ready() > 0)
                lent = LENT_READY;
        else if (lender.refused_ns && clock_now_ns() - lender.refused_ns < AGAIN_NS)
                lent = LENT_NONE;
        if (lent != LENT_NONE && lender.used + bytes > lender.wanted &&
            clock_now_ns() - lender.refused_ns >= AGAIN_NS) {
                lender.wanted = lender.used + bytes;
                lender.refused_ns = 0;
        }
        lock_release(&lender.lock);
        return lent;
}

uint64_t lent_ready(void)
{
        uint64_t bytes;

        lock_acquire(&lender.lock);
        bytes = ready();
        lock_release(&lender.lock);
        return bytes;
}

bool lent_is_there(void)
{
        bool there;

        lock_acquire(&lender.lock);
        there = is_there();
        lock_release(&lender.lock);
        return there;
}

uint64_t lent_left(uint64_t *ret_most)
{
        uint64_t left;

        lock_acquire(&lender.lock);
        *ret_most = is_there() ? lender.most : 0;
        left = sub_sat(*ret_most, lender.held + lender.kept);
        lock_release(&lender.lock);
        return left;
}

/* Maps at an aligned address: the kernel may have huge pages for shared memory. */
static char *map_aligned(uint64_t bytes, uint64_t offset)
{
        char *raw = mmap(NULL, bytes + UNIT, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1, 0);
        char *memory;

        if (raw == MAP_FAILED)
                return NULL;
        memory = (char *)align_up((uint64_t)(uintptr_t)raw, UNIT);
        if (mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, lender.fd,
                 (off_t)offset) == MAP_FAILED) {
                (void)munmap(raw, bytes + UNIT);
                return NULL;
        }
        if (memory > raw)
                (void)munmap(raw, (size_t)(memory - raw));
        if (memory < raw + UNIT)
                (void)munmap(memory + bytes, (size_t)(raw + UNIT - memory));
        (void)madvise(memory, bytes, MADV_DONTFORK);
        (void)madvise(memory, bytes, MADV_DONTDUMP);
        return memory;
}

char *lent_map(uint64_t bytes, uint32_t *ret_pool)
{
        char *memory = NULL;

        lock_acquire(&lender.lock);
        if (bytes <= ready()) {
                memory = is_ours() ? map_aligned(bytes, lender.used) : NULL;
                if (memory) {
                        lender.used += bytes;
                        lender.held += bytes;
                        *ret_pool = lender.pool;
                } else {
                        log_debug("the daemon's host memory cannot be mapped: it is used no more");
                        lender.parted = true;
                }
        }
        lock_release(&lender.lock);
        return memory;
}

static void punch(uint64_t offset, uint64_t bytes)
{
        if (bytes > 0 && is_ours())
                (void)syscall(SYS_fallocate, lender.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              offset, bytes);
}

void lent_unmap(char *memory, uint64_t bytes, uint32_t pool)
{
        if (madvise(memory, bytes, MADV_REMOVE) < 0) {
                (void)munlock(memory, bytes); /* the program may have called mlockall() */
                (void)madvise(memory, bytes, MADV_REMOVE);
        }
        (void)munmap(memory, bytes);
        lock_acquire(&lender.lock);
        if (pool == lender.pool)
                lender.held -= bytes;
        else
                lender.kept -= bytes;
        lock_release(&lender.lock);
}

uint64_t lent_give_back(void)
{
        uint64_t bytes;

        lock_acquire(&lender.lock);
        bytes = ready();
        punch(lender.used, bytes);
        lender.used += bytes;
        lender.wanted = MAX(lender.used, lender.filled);
        lock_release(&lender.lock);
        return bytes;
}

/* ---- for the agent ---- */

static void drop_fd(void)
{
        if (is_ours())
                (void)close(lender.fd);
        lender.fd = -EBADF;
}

/* Gives back memory that the earlier daemon has filled and nobody has mapped. Mapped memory stays.
 */
static void begin_pool(int fd, const struct stat *st)
{
        punch(lender.used, sub_sat(lender.wanted, lender.used));
        drop_fd();
        lender.fd = fd;
        lender.dev = st->st_dev;
        lender.ino = st->st_ino;
        lender.pool++;
        lender.kept += lender.held;
        lender.held = lender.used = lender.filled = lender.wanted = 0;
}

void lent_told(int fd, uint64_t most, uint64_t filled)
{
        struct stat st;

        lock_acquire(&lender.lock);
        if (fd >= 0 && syscall(SYS_fstat, fd, &st) < 0) {
                (void)close(fd);
                fd = -EBADF;
        }
        if (fd >= 0 && (!lender.pool || st.st_dev != lender.dev || st.st_ino != lender.ino)) {
                begin_pool(fd, &st);
        } else if (fd >= 0) {
                drop_fd();
                lender.fd = fd;
        }
        if (fd >= 0) {
                lender.parted = false;
                lender.wanted = lender.said = MAX(filled, lender.used);
                lender.kept_said = UINT64_MAX;
                lender.filled = filled;
        }
        lender.most = most;
        lender.refused_ns = 0;
        lock_release(&lender.lock);
}

void lent_filled(uint64_t filled, bool refused)
{
        lock_acquire(&lender.lock);
        if (!lender.parted) {
                lender.filled = MAX(lender.filled, filled);
                if (refused) {
                        lender.wanted = lender.said = MAX(lender.filled, lender.used);
                        lender.refused_ns = clock_now_ns();
                }
        }
        lock_release(&lender.lock);
}

void lent_parted(void)
{
        lock_acquire(&lender.lock);
        lender.parted = true;
        lock_release(&lender.lock);
}

bool lent_to_say(uint64_t *ret_end, uint64_t *ret_kept)
{
        bool say;

        lock_acquire(&lender.lock);
        say = is_there() && (lender.wanted != lender.said || lender.kept != lender.kept_said);
        if (say) {
                *ret_end = lender.said = lender.wanted;
                *ret_kept = lender.kept_said = lender.kept;
        }
        lock_release(&lender.lock);
        return say;
}

void lent_forget(void)
{
        drop_fd();
        lender.parted = true;
        lender.lock = (struct lock){0};
}
