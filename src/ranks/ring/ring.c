/* ring.c: owns the rings, the flags and the list of both. Must never export memory other than a
 * ring.
 * Why: docs/decisions.md, "Ranks on several GPUs use rings in host memory". */
#include "ranks/ring/ring.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "ranks/real/real_functions.h"

#define PAGE       4096u
#define HUGE_BYTES (UINT64_C(2) << 20) /* granularity of memory that is exported */
#define FLAG_SET   1u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct ring *rings;
static uint64_t counted;

/* ---- flags ---- */

static size_t index_of(const struct ring *r, enum ring_flag flag, unsigned part, int from, int to)
{
        return (((size_t)flag * RING_PARTS + part) * (size_t)r->n + (size_t)from) * (size_t)r->n +
               (size_t)to;
}

/* The words of ring_waiting() are behind the flags. */
static size_t waiting_index(const struct ring *r)
{
        return (size_t)RING_FLAGS * RING_PARTS * (size_t)r->n * (size_t)r->n + (size_t)r->rank;
}

/* The word that says whether a rank was released is behind the words of ring_waiting(). */
static size_t released_index(const struct ring *r)
{
        return (size_t)RING_FLAGS * RING_PARTS * (size_t)r->n * (size_t)r->n + (size_t)r->n;
}

/* The bells are behind that word: each rank has 64 bits, at a multiple of 8 bytes. */
static size_t bells_index(const struct ring *r, int rank)
{
        return (released_index(r) + 2) / 2 * 2 + 2 * (size_t)rank;
}

CUdeviceptr ring_flag(const struct ring *r, enum ring_flag flag, unsigned part, int from, int to)
{
        return r->flags_device + index_of(r, flag, part, from, to) * sizeof(uint32_t);
}

CUdeviceptr ring_waiting(const struct ring *r)
{
        return r->flags_device + waiting_index(r) * sizeof(uint32_t);
}

CUdeviceptr ring_bells(const struct ring *r, int rank)
{
        return r->flags_device + bells_index(r, rank) * sizeof(uint32_t);
}

static uint32_t read_word(const uint32_t *word)
{
        return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static uint64_t *bells_of(const struct ring *r)
{
        return (uint64_t *)(void *)&r->flags[bells_index(r, r->rank)];
}

/* bells: a bit for each bell. */
static bool any_bell_is_set(const struct ring *r, unsigned bells)
{
        const uint64_t set = __atomic_load_n(bells_of(r), __ATOMIC_ACQUIRE);

        for (unsigned i = 0; i < RING_BELLS; i++)
                if ((bells >> i & 1) && (set >> 8 * i & 1))
                        return true;
        return false;
}

static bool any_flag_is_missing(const struct ring *r, enum ring_flag flag, unsigned part,
                                unsigned from)
{
        for (int i = 0; i < r->n; i++)
                if (i != r->rank && (from == RING_ALL || from == (unsigned)i) &&
                    !read_word(&r->flags[index_of(r, flag, part, i, r->rank)]))
                        return true;
        return false;
}

/* Returns the word that says what the stream waits for; 0: it does not wait. */
static uint32_t one_waits(const struct ring *r)
{
        const uint32_t word = r->flags ? read_word(&r->flags[waiting_index(r)]) : 0;
        const enum ring_flag flag = word >> 1 & 7;
        const unsigned part = word >> 4 & 1, from = word >> 8 & RING_ALL;

        if (!word || flag > RING_FLAGS ||
            !(flag == RING_FLAGS ? !any_bell_is_set(r, from)
                                 : any_flag_is_missing(r, flag, part, from)))
                return 0;
        /* The stream clears the flags after the word, so look at the word again. */
        return read_word(&r->flags[waiting_index(r)]) == word ? word : 0;
}

unsigned ring_waits(void)
{
        unsigned all = 0;

        if (pthread_mutex_trylock(&lock) != 0)
                return 0; /* a ring is made or freed: the program is not waiting */
        for (const struct ring *r = rings; r; r = r->next)
                all = all * 31 + one_waits(r);
        (void)pthread_mutex_unlock(&lock);
        return all;
}

bool ring_release(struct ring *r)
{
        bool any = false;

        /* Set this word first: other ranks read it after a worthless result has come. */
        if (r->flags)
                __atomic_store_n(&r->flags[released_index(r)], 1, __ATOMIC_RELEASE);
        for (unsigned flag = 0; flag < RING_FLAGS && r->flags; flag++)
                for (unsigned part = 0; part < RING_PARTS; part++)
                        for (int from = 0; from < r->n; from++) {
                                uint32_t *word = &r->flags[index_of(r, flag, part, from, r->rank)];

                                any = any || read_word(word) != FLAG_SET;
                                __atomic_store_n(word, FLAG_SET, __ATOMIC_RELEASE);
                        }
        if (r->flags)
                __atomic_store_n(bells_of(r), RING_ALL_BELLS, __ATOMIC_RELEASE);
        return any;
}

bool ring_is_released(const struct ring *r)
{
        return r->flags && read_word(&r->flags[released_index(r)]);
}

/* ---- memory ---- */

static CUresult map_on_card(struct ring *r, int of, CUmemGenericAllocationHandle handle)
{
        CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUdeviceptr at = 0;
        CUresult e = real_cuda()->cuCtxGetDevice(&access.location.id);

        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuMemAddressReserve(&at, r->bytes, 0, 0, 0);
        if (e != CUDA_SUCCESS)
                return e;
        e = real_cuda()->cuMemMap(at, r->bytes, 0, handle, 0);
        if (e == CUDA_SUCCESS) {
                e = real_cuda()->cuMemSetAccess(at, r->bytes, &access, 1);
                if (e != CUDA_SUCCESS)
                        (void)real_cuda()->cuMemUnmap(at, r->bytes);
        }
        if (e != CUDA_SUCCESS)
                (void)real_cuda()->cuMemAddressFree(at, r->bytes);
        else
                r->of[of] = at;
        return e;
}

/* Makes this rank's ring on the card. ret_fd: a descriptor for the others. */
static CUresult make_on_card(struct ring *r, int *ret_fd)
{
        CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes =
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
        CUresult e = real_cuda()->cuCtxGetDevice(&prop.location.id);

        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuMemCreate(&r->handles[r->rank], r->bytes, &prop, 0);
        if (e == CUDA_SUCCESS)
                e = map_on_card(r, r->rank, r->handles[r->rank]);
        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuMemExportToShareableHandle(
                        ret_fd, r->handles[r->rank], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        return e;
}

static CUresult open_on_card(struct ring *r, int of, int fd)
{
        CUresult e = real_cuda()->cuMemImportFromShareableHandle(
                &r->handles[of], (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

        return e == CUDA_SUCCESS ? map_on_card(r, of, r->handles[of]) : e;
}

/* Maps shared host memory and registers it. */
static CUresult open_host(int fd, size_t bytes, void **ret, CUdeviceptr *ret_device)
{
        void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CUresult e;

        if (at == MAP_FAILED)
                return CUDA_ERROR_OUT_OF_MEMORY;
        e = real_cuda()->cuMemHostRegister_v2(
                at, bytes, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE);
        if (e == CUDA_SUCCESS) {
                e = real_cuda()->cuMemHostGetDevicePointer_v2(ret_device, at, 0);
                if (e != CUDA_SUCCESS)
                        (void)real_cuda()->cuMemHostUnregister(at);
        }
        if (e != CUDA_SUCCESS)
                (void)munmap(at, bytes);
        else
                *ret = at;
        return e;
}

static void close_host(void *at, size_t bytes)
{
        if (!at)
                return;
        (void)real_cuda()->cuMemHostUnregister(at);
        (void)munmap(at, bytes);
}

static int new_host(const char *name, size_t bytes)
{
        _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC);

        if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
                return -errno;
        return TAKE_FD(fd);
}

static CUresult open_flags(struct ring *r, int fd)
{
        void *at = NULL;
        CUresult e = open_host(fd, r->flags_bytes, &at, &r->flags_device);

        r->flags = at;
        return e;
}

static CUresult open_rings_on_host(struct ring *r, int fd)
{
        CUdeviceptr at = 0;
        CUresult e = open_host(fd, r->host_bytes, &r->host, &at);

        for (int i = 0; i < r->n && e == CUDA_SUCCESS; i++)
                r->of[i] = at + (uint64_t)i * r->bytes;
        return e;
}

/* Opens the memory whose descriptors the others have sent. */
static CUresult open_all(struct ring *r, const int *fds)
{
        CUresult e = open_flags(r, fds[0]);

        if (e == CUDA_SUCCESS && r->on_host)
                return open_rings_on_host(r, fds[1]);
        for (int i = 0; i < r->n && e == CUDA_SUCCESS; i++)
                if (i != r->rank)
                        e = open_on_card(r, i, fds[i * MEET_FDS + 1]);
        return e;
}

/* ---- making and freeing ---- */

/* Returns three quarters of the bytes that are left, so the first communicator can move most at
 * once. */
uint64_t ring_room(uint64_t card_bytes)
{
        const uint64_t most = MIN(RING_MOST, card_bytes / RING_CARD_PART);
        uint64_t left;

        (void)pthread_mutex_lock(&lock);
        left = sub_sat(most, counted) / 4 * 3 & ~(HUGE_BYTES - 1);
        (void)pthread_mutex_unlock(&lock);
        return MAX(left, RING_LEAST);
}

uint64_t ring_half(uint64_t bytes)
{
        return MAX(bytes / 2 & ~(HUGE_BYTES - 1), RING_LEAST);
}

static void link_ring(struct ring *r)
{
        (void)pthread_mutex_lock(&lock);
        r->next = rings;
        rings = r;
        r->counted = r->bytes;
        counted += r->counted;
        (void)pthread_mutex_unlock(&lock);
}

static void unlink_ring(struct ring *r)
{
        (void)pthread_mutex_lock(&lock);
        for (struct ring **at = &rings; *at; at = &(*at)->next)
                if (*at == r) {
                        *at = r->next;
                        counted -= r->counted;
                        break;
                }
        (void)pthread_mutex_unlock(&lock);
}

void ring_free(struct ring *r)
{
        unlink_ring(r);
        for (int i = 0; i < r->n && !r->on_host; i++) {
                if (r->of[i]) {
                        (void)real_cuda()->cuMemUnmap(r->of[i], r->bytes);
                        (void)real_cuda()->cuMemAddressFree(r->of[i], r->bytes);
                }
                if (r->handles[i])
                        (void)real_cuda()->cuMemRelease(r->handles[i]);
        }
        close_host(r->host, r->host_bytes);
        close_host(r->flags, r->flags_bytes);
        *r = (struct ring){0};
}

/* Makes this rank's part. fds[0]: the flags, which rank 0 makes. fds[1]: this rank's ring or, in
 * host memory, all rings, which rank 0 makes. meet_all() needs descriptors without a gap, so a rank
 * with nothing of its own sends a file of one page. */
static CUresult make_own(struct ring *r, int fds[static MEET_FDS])
{
        fds[0] = new_host("sublet-ranks-flags", r->rank == 0 ? r->flags_bytes : PAGE);
        if (fds[0] < 0)
                return CUDA_ERROR_OPERATING_SYSTEM;
        if (!r->on_host)
                return make_on_card(r, &fds[1]);
        fds[1] = new_host("sublet-ranks-rings", r->rank == 0 ? r->host_bytes : PAGE);
        return fds[1] < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

/* Tells the others this rank's result. Returns 0: all succeeded; or an error of ring_make(). */
static int agree(struct meet *m, int n, CUresult mine, const int *fds, int *all_fds)
{
        int32_t results[MEET_RANKS_MAX], result = (int32_t)mine;
        unsigned n_fds = 0;
        int r;

        while (fds && n_fds < MEET_FDS && fds[n_fds] >= 0)
                n_fds++;
        r = meet_all(m, &result, sizeof(result), fds, n_fds, results, all_fds);
        if (r < 0)
                return r;
        for (int i = 0; i < n; i++)
                if (results[i] != CUDA_SUCCESS && r != -EIO)
                        r = results[i] == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO;
        return r;
}

static void close_fds(int *fds, int n)
{
        for (int i = 0; i < n; i++)
                if (fds[i] >= 0)
                        (void)close(fds[i]);
}

int ring_make(struct meet *m, int rank, int n, uint64_t bytes, bool on_host, struct ring *ret,
              CUresult *ret_error)
{
        int own[MEET_FDS] = {-EBADF, -EBADF}, all[MEET_RANKS_MAX * MEET_FDS], r;
        CUresult e;

        (void)memset(all, 0xff, sizeof(all));
        *ret = (struct ring){.rank = rank, .n = n, .on_host = on_host, .bytes = bytes};
        ret->flags_bytes = align_up(bells_index(ret, n) * sizeof(uint32_t), PAGE);
        ret->host_bytes = on_host ? (size_t)n * bytes : 0;
        e = make_own(ret, own);
        r = agree(m, n, e, own, all);
        close_fds(own, MEET_FDS);
        if (r == 0)
                e = open_all(ret, all);
        close_fds(all, n * MEET_FDS);
        if (r == 0)
                r = agree(m, n, e, NULL, NULL);
        *ret_error = e;
        if (r == 0)
                link_ring(ret);
        else
                ring_free(ret);
        return r;
}
