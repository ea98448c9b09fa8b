/* space.c: the table of device addresses and the memory behind them. Must never release memory that
 * running work has pinned. */
#include "sim/space/space.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/macros.h"
#include "sim/space/managed.h"
#include "sim/space/trace.h"

/* Address space costs nothing, so the region is large. If limits or sanitizers forbid that, a
 * smaller one is enough. */
#define REGION_MOST  (UINT64_C(16) << 40)
#define REGION_LEAST (UINT64_C(16) << 30)
#define SHARE_NAP_NS 100000
/* After this time memory becomes a file even if work still uses it. */
#define SHARE_PATIENCE_NS (2 * NSEC_PER_SEC)

static struct {
        pthread_rwlock_t lock;
        uint64_t start, end, next;
        struct table reservations, ranges;
        _Atomic uint64_t unmappings;
        _Atomic unsigned sharing; /* number of threads that turn memory into files */
} space = {.lock = PTHREAD_RWLOCK_INITIALIZER};

/* ---- tables ---- */

/* Returns the index of the first span that ends after the address. */
static size_t table_lower(const struct table *t, uint64_t address)
{
        size_t low = 0, high = t->count;

        while (low < high) {
                size_t middle = (low + high) / 2;
                const struct span *s = t->span[middle];

                if (s->start + s->bytes <= address)
                        low = middle + 1;
                else
                        high = middle;
        }
        return low;
}

void *table_find(const struct table *t, uint64_t address)
{
        size_t i = table_lower(t, address);

        return i < t->count && t->span[i]->start <= address ? t->span[i] : NULL;
}

int table_insert(struct table *t, struct span *span)
{
        size_t i = table_lower(t, span->start);

        if (i < t->count && t->span[i]->start < span->start + span->bytes)
                return -EEXIST;
        if (t->count == t->room) {
                size_t room = t->room ? 2 * t->room : 64;
                struct span **more = reallocarray(t->span, room, sizeof(struct span *));

                if (!more)
                        return -ENOMEM;
                t->span = more;
                t->room = room;
        }
        memmove(&t->span[i + 1], &t->span[i], (t->count - i) * sizeof(t->span[0]));
        t->span[i] = span;
        t->count++;
        return 0;
}

void table_remove(struct table *t, const struct span *span)
{
        size_t i = table_lower(t, span->start);

        if (i < t->count && t->span[i] == span) {
                t->count--;
                memmove(&t->span[i], &t->span[i + 1], (t->count - i) * sizeof(t->span[0]));
        }
}

/* ---- the region ---- */

int space_setup(void)
{
        for (uint64_t bytes = REGION_MOST; bytes >= REGION_LEAST; bytes /= 2) {
                void *p = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                               -1, 0);

                if (p == MAP_FAILED)
                        continue;
                space.start = align_up((uint64_t)(uintptr_t)p, SPACE_GRANULARITY);
                space.end = ((uint64_t)(uintptr_t)p + bytes) & ~(SPACE_GRANULARITY - 1);
                space.next = space.start;
                return 0;
        }
        return -ENOMEM;
}

void space_lock(void)
{
        pthread_rwlock_wrlock(&space.lock);
}

void space_lock_shared(void)
{
        pthread_rwlock_rdlock(&space.lock);
}

void space_unlock(void)
{
        pthread_rwlock_unlock(&space.lock);
}

bool space_is_device(uint64_t address)
{
        return address >= space.start && address < space.end;
}

uint64_t space_start(void)
{
        return space.start;
}

uint64_t space_size(void)
{
        return space.end - space.start;
}

void space_shut(uint64_t start, uint64_t bytes)
{
        (void)mmap((void *)(uintptr_t)start, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static uint64_t reserve_search(uint64_t from, uint64_t to, uint64_t bytes, uint64_t alignment)
{
        const struct table *t = &space.reservations;
        uint64_t at = align_up(from, alignment);

        for (size_t i = table_lower(t, at); at < to && bytes <= to - at; i++) {
                if (i >= t->count || t->span[i]->start - at >= bytes)
                        if (i >= t->count || t->span[i]->start >= at)
                                return at;
                at = align_up(t->span[i]->start + t->span[i]->bytes, alignment);
        }
        return 0;
}

uint64_t space_reserve(uint64_t bytes, uint64_t alignment, uint64_t wanted)
{
        uint64_t at = 0;
        struct span *s;

        alignment = MAX(alignment, SPACE_GRANULARITY);
        if (wanted && wanted % alignment == 0 && wanted >= space.start && wanted < space.end &&
            bytes <= space.end - wanted)
                at = reserve_search(wanted, wanted + bytes, bytes, alignment);
        /* Addresses are reused as late as possible, so that a stale pointer leads to no memory. */
        if (!at)
                at = reserve_search(space.next, space.end, bytes, alignment);
        if (!at)
                at = reserve_search(space.start, space.end, bytes, alignment);
        if (!at)
                return 0;
        s = malloc(sizeof(*s));
        if (!s)
                return 0;
        *s = (struct span){at, bytes};
        if (table_insert(&space.reservations, s) < 0) {
                free(s);
                return 0;
        }
        space.next = at + bytes;
        return at;
}

void space_release(uint64_t start)
{
        struct span *s = table_find(&space.reservations, start);

        if (s) {
                table_remove(&space.reservations, s);
                free(s);
        }
}

bool space_reserved(uint64_t start, uint64_t bytes, struct span *ret_reservation)
{
        struct span *s = table_find(&space.reservations, start);

        if (!s || bytes == 0)
                return false;
        *ret_reservation = *s;
        /* Adjacent reservations count as one; only space_release() tells them apart. */
        for (uint64_t end = start + bytes; s && s->start + s->bytes < end;)
                s = table_find(&space.reservations, s->start + s->bytes);
        return s != NULL;
}

/* ---- ranges ---- */

struct range *space_map(enum range_kind kind, uint64_t start, uint64_t bytes,
                        struct physical *physical, uint64_t offset, void *at)
{
        struct range *r = calloc(1, sizeof(*r));

        if (!r)
                return NULL;
        r->span = (struct span){start, bytes};
        r->kind = kind;
        r->physical = physical;
        r->offset = offset;
        r->at = at;
        atomic_init(&r->pins, 1);
        if (table_insert(&space.ranges, &r->span) < 0) {
                free(r);
                return NULL;
        }
        if (physical) {
                physical->maps++;
                atomic_fetch_add(&physical->pins, 1);
        }
        return r;
}

static void physical_unpin(struct physical *p)
{
        if (atomic_fetch_sub(&p->pins, 1) != 1)
                return;
        (void)munmap(p->at, p->bytes);
        if (p->fd >= 0)
                (void)close(p->fd);
        free(p);
}

void space_unpin(struct range *r)
{
        struct physical *p = r->physical;

        if (atomic_fetch_sub(&r->pins, 1) != 1)
                return;
        if (r->managed)
                managed_destroy(r->managed);
        free(r);
        if (p)
                physical_unpin(p);
}

void space_unmap(struct range *r)
{
        table_remove(&space.ranges, &r->span);
        if (r->host_access)
                space_shut(r->span.start, r->span.bytes);
        atomic_store(&r->gone, true);
        atomic_fetch_add(&space.unmappings, 1);
        if (r->physical) {
                r->physical->maps--;
                /* physical_drop() takes away the handle added here. The pin of the range keeps the
                 * memory alive until the end of this function. */
                r->physical->handles++;
                physical_drop(r->physical);
        }
        space_unpin(r);
}

struct range *space_range(uint64_t address)
{
        return table_find(&space.ranges, address);
}

struct range *space_range_at(size_t index)
{
        return index < space.ranges.count ? (struct range *)space.ranges.span[index] : NULL;
}

size_t space_range_lower(uint64_t address)
{
        return table_lower(&space.ranges, address);
}

uint64_t space_unmappings(void)
{
        return atomic_load_explicit(&space.unmappings, memory_order_relaxed);
}

bool space_sharing(void)
{
        return atomic_load_explicit(&space.sharing, memory_order_relaxed) > 0;
}

void space_share_nap(void)
{
        const struct timespec nap = {.tv_nsec = SHARE_NAP_NS};

        (void)nanosleep(&nap, NULL);
}

struct range *space_pin(uint64_t address, unsigned device, bool write)
{
        uint8_t need = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
        struct range *r;

        space_lock_shared();
        r = space_range(address);
        if (r && (r->access[device] & need) == need)
                atomic_fetch_add(&r->pins, 1);
        else
                r = NULL;
        space_unlock();
        return r;
}

/* ---- memory ---- */

/* Time until this process notices that the maker of imported memory has ended. */
#define INHERIT_NAP_NS 20000000

#define SHARED_NAME "simcuda-%u" /* name of a file with memory of that card */
#define HOST_NAME   "simcuda-host"

/* Memory is a file only once another process is to have it: the pages of a file are small, and
 * making them would be the most expensive part of a restore. */
CUresult physical_new(unsigned device, uint64_t bytes, struct physical **ret)
{
        struct physical *p = calloc(1, sizeof(*p));

        if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
        p->fd = -1;
        if (managed_charge(device, bytes) < 0)
                goto free_object;
        p->at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p->at == MAP_FAILED)
                goto uncharge;
        /* Neither a child nor a core dump gets the card's memory. */
        (void)madvise(p->at, bytes, MADV_DONTFORK);
        (void)madvise(p->at, bytes, MADV_DONTDUMP);
        (void)madvise(p->at, bytes, MADV_HUGEPAGE);
        p->bytes = bytes;
        p->device = device;
        p->handles = 1;
        atomic_init(&p->pins, 1);
        *ret = p;
        return CUDA_SUCCESS;

uncharge:
        session_uncharge(sim.session, device, bytes);
free_object:
        free(p);
        return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Turns memory into a file with the same contents, unless it is a file already. */
static int physical_share(struct physical *p)
{
        char name[sizeof(SHARED_NAME) + 10];
        uint8_t *aside;
        int fd;

        if (p->fd >= 0)
                return 0;
        (void)snprintf(name, sizeof(name), SHARED_NAME, session_card(sim.session, p->device));
        fd = memfd_create(name, MFD_CLOEXEC);
        aside = fd < 0 || ftruncate(fd, (off_t)p->bytes) < 0
                        ? MAP_FAILED
                        : mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (aside == MAP_FAILED)
                goto close_file;
        memcpy(aside, p->at, p->bytes);
        (void)munmap(aside, p->bytes);
        if (flock(fd, LOCK_EX) < 0 || mmap(p->at, p->bytes, PROT_READ | PROT_WRITE,
                                           MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED)
                goto close_file;
        (void)madvise(p->at, p->bytes, MADV_DONTFORK);
        p->fd = fd;
        return 0;

close_file:
        if (fd >= 0)
                (void)close(fd);
        return -ENOMEM;
}

static bool physical_used(const struct physical *p)
{
        for (size_t i = 0; i < space.ranges.count; i++) {
                const struct range *r = (const struct range *)space.ranges.span[i];

                if (r->physical == p && atomic_load(&r->pins) > 1)
                        return true;
        }
        return atomic_load(&p->pins) > 1 + p->maps; /* unmapped, but still in use */
}

int space_share(struct physical *(*find)(uint64_t key), uint64_t key, struct physical **ret)
{
        const uint64_t end_ns = clock_now_ns() + SHARE_PATIENCE_NS;
        struct physical *p;

        atomic_fetch_add(&space.sharing, 1);
        for (;;) {
                space_lock();
                p = find(key);
                if (!p || p->fd >= 0 || !physical_used(p) || clock_now_ns() >= end_ns)
                        break;
                space_unlock();
                space_share_nap();
        }
        atomic_fetch_sub(&space.sharing, 1);
        *ret = p;
        return p ? physical_share(p) : -EINVAL;
}

CUresult physical_new_host(uint64_t bytes, struct physical **ret)
{
        struct physical *p = calloc(1, sizeof(*p));

        if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
        /* The memory is a file, so that the processor can map it at the device address, too. */
        p->fd = memfd_create(HOST_NAME, MFD_CLOEXEC);
        p->at = p->fd < 0 || ftruncate(p->fd, (off_t)bytes) < 0
                        ? MAP_FAILED
                        : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                               p->fd, 0);
        if (p->at == MAP_FAILED) {
                if (p->fd >= 0)
                        (void)close(p->fd);
                free(p);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        (void)madvise(p->at, bytes, MADV_DONTFORK);
        p->host = true;
        p->bytes = bytes;
        p->handles = 1;
        atomic_init(&p->pins, 1);
        *ret = p;
        return CUDA_SUCCESS;
}

/* Opens the file again, because a duplicate of fd would share its lock. The lock shows which
 * process is charged. */
static int open_again(int fd)
{
        char path[64];

        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        return open(path, O_RDWR | O_CLOEXEC);
}

static unsigned device_of_file(int fd, bool *ret_host)
{
        char path[64], name[64] = "";
        unsigned device = 0;

        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, name, sizeof(name) - 1) < 0 ||
            sscanf(name, "/memfd:" SHARED_NAME, &device) != 1 || device >= SESSION_DEVICES)
                device = session_card(sim.session, 0);
        *ret_host = strncmp(name, "/memfd:" HOST_NAME, strlen("/memfd:" HOST_NAME)) == 0;
        return session_device_of(sim.session, device);
}

int physical_export(const struct physical *p)
{
        int fd = open_again(p->fd);

        return fd < 0 ? -errno : fd;
}

/* List of imported memory that is charged to its maker. When the maker has ended, an importing
 * process is charged. The maker sends no message at its end, so a thread checks for the end. */
static struct physical *imported;
static bool inheriting;

static void *inherit(void *unused)
{
        const struct timespec nap = {.tv_nsec = INHERIT_NAP_NS};

        (void)unused;
        while (!atomic_load(&sim.exiting)) {
                struct physical **at = &imported;

                space_lock();
                while (*at) {
                        struct physical *p = *at;

                        if (flock(p->fd, LOCK_EX | LOCK_NB) < 0) {
                                at = &p->next_imported;
                        } else if (session_charge(sim.session, p->device, p->bytes) < 0) {
                                (void)flock(p->fd, LOCK_UN); /* the card is full: try again */
                                at = &p->next_imported;
                        } else {
                                p->imported = false;
                                *at = p->next_imported;
                                trace_inherited(p);
                        }
                }
                space_unlock();
                (void)nanosleep(&nap, NULL);
        }
        return NULL;
}

/* Needs the space lock. */
static void imported_add(struct physical *p)
{
        pthread_t thread;
        sigset_t all, old;

        p->next_imported = imported;
        imported = p;
        if (inheriting)
                return;
        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        inheriting = pthread_create(&thread, NULL, inherit, NULL) == 0;
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (inheriting)
                (void)pthread_detach(thread);
}

static void imported_remove(struct physical *p)
{
        struct physical **at = &imported;

        while (*at && *at != p)
                at = &(*at)->next_imported;
        if (*at)
                *at = p->next_imported;
}

CUresult physical_import(int fd, uint64_t bytes, struct physical **ret)
{
        struct physical *p = calloc(1, sizeof(*p));

        if (!p)
                return CUDA_ERROR_OUT_OF_MEMORY;
        p->fd = open_again(fd);
        p->at = p->fd < 0 ? MAP_FAILED
                          : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                                 p->fd, 0);
        if (p->at == MAP_FAILED) {
                if (p->fd >= 0)
                        (void)close(p->fd);
                free(p);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        (void)madvise(p->at, bytes, MADV_DONTFORK);
        p->bytes = bytes;
        p->device = device_of_file(p->fd, &p->host);
        p->imported = !p->host && flock(p->fd, LOCK_EX | LOCK_NB) < 0;
        if (!p->host && !p->imported && session_charge(sim.session, p->device, bytes) < 0) {
                (void)munmap(p->at, bytes);
                (void)close(p->fd);
                free(p);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        p->handles = 1;
        atomic_init(&p->pins, 1);
        /* As with the driver, imported memory cannot be exported again. */
        p->prop = (CUmemAllocationProp){
                .type = CU_MEM_ALLOCATION_TYPE_PINNED,
                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE,
                .location = {p->host ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE,
                             (int)p->device}};
        p->origin = p->imported ? PHYSICAL_IMPORTED : PHYSICAL_CREATED;
        if (!p->host)
                trace_came(p);
        if (p->imported) {
                space_lock();
                imported_add(p);
                space_unlock();
        }
        *ret = p;
        return CUDA_SUCCESS;
}

void physical_drop(struct physical *p)
{
        if (--p->handles > 0 || p->maps > 0)
                return;
        if (p->imported) {
                imported_remove(p);
        } else if (!p->host) {
                session_uncharge(sim.session, p->device, p->bytes);
                if (p->fd >= 0)
                        (void)flock(p->fd, LOCK_UN);
        }
        trace_went(p);
        physical_unpin(p);
}
