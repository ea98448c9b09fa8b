/* stub.c: a libnccl.so.2 for tests, in place of NVIDIA's.
 *
 * It writes each call into the file NCCL_STUB_LOG, one line each: the process, the function and the
 * communicator's number of ranks and rank. It does the collectives slowly and right, through files
 * in NCCL_STUB_DIR, and each call waits until it is done. So it serves neither graphs nor ranks
 * that fail. NCCL_STUB_FAULT makes it wrong, so that a test sees the checks notice:
 *
 *   element   the last element of a reduction is another
 *   beyond    a byte after the results is written
 *   input     the first byte of the input is changed
 *   order     blocks of other ranks are in another order
 *   code      wrong arguments are answered with another code */
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "nccl.h"
#include "values.h"

#define EXPORT  __attribute__((visibility("default")))
#define OPS_MAX 64
/* Larger communicators cannot be shrunk. */
#define SHRINK_RANKS 8

#define N(result, member, needed, params) result nccl##member params;
#include "nccl.def"

struct ncclComm {
        int n, rank, device;
        CUcontext context;
        char folder[192];
        unsigned collectives, *sent, *received; /* so far, by peer */
        unsigned shrinks[1 << SHRINK_RANKS];    /* so far, by the set of ranks without which */
        struct {
                bool used, on_device;
                int type;
                unsigned char value[8];
                CUdeviceptr at;
        } op[OPS_MAX];
};

enum kind {
        ALL_REDUCE,
        REDUCE,
        REDUCE_SCATTER,
        ALL_GATHER,
        BROADCAST,
        GATHER,
        SCATTER,
        TO_ALL,
        SEND,
        RECV
};

struct call {
        enum kind kind;
        const void *send;
        void *recv;
        size_t count;
        int type, op, root;
        ncclComm_t comm;
        CUstream stream;
        double scalar; /* of an operation that may be gone when the group ends */
        CUdeviceptr scalar_at;
        bool premul;
};

/* Communicators that exist when the group ends. */
struct child {
        ncclComm_t parent, *ret;
        int color, key;
};

static __thread struct call calls[256];
static __thread struct child children[64];
static __thread unsigned call_n, child_n, depth;

/* ---- the driver ---- */

static void *driver(const char *name)
{
        static void *library;

        if (!library)
                library = dlopen("libcuda.so.1", RTLD_NOW);
        return dlsym(library ? library : RTLD_DEFAULT, name);
}

static void read_device(CUdeviceptr from, void *to, size_t bytes)
{
        CUresult (*copy)(void *, CUdeviceptr, size_t) = driver("cuMemcpyDtoH_v2");

        if (bytes && copy(to, from, bytes))
                abort();
}

static void write_device(CUdeviceptr to, const void *from, size_t bytes)
{
        CUresult (*copy)(CUdeviceptr, const void *, size_t) = driver("cuMemcpyHtoD_v2");

        if (bytes && copy(to, from, bytes))
                abort();
}

static void drain(CUstream s)
{
        CUresult (*synchronize)(CUstream) = driver("cuStreamSynchronize");

        if (synchronize(s))
                abort();
}

/* ---- files ---- */

static bool faulty(const char *fault)
{
        const char *chosen = getenv("NCCL_STUB_FAULT");

        return chosen && !strcmp(chosen, fault);
}

static void record(const char *function, const struct ncclComm *comm)
{
        const char *path = getenv("NCCL_STUB_LOG");
        char line[128];
        int fd, n;

        if (!path)
                return;
        n = snprintf(line, sizeof(line), "%d %s %d %d\n", (int)getpid(), function,
                     comm ? comm->n : 0, comm ? comm->rank : 0);
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        if (fd < 0 || write(fd, line, (size_t)n) != n)
                abort();
        (void)close(fd);
}

static void put(const char *folder, const char *name, const void *data, size_t bytes)
{
        char path[320], temporary[340];
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
        (void)snprintf(temporary, sizeof(temporary), "%s.new", path);
        f = fopen(temporary, "we");
        if (!f || fwrite(data, 1, bytes, f) != bytes || fclose(f) || rename(temporary, path))
                abort();
}

/* Waits for the file. */
static void get(const char *folder, const char *name, void *data, size_t bytes)
{
        char path[320];
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
        while (!(f = fopen(path, "re")))
                (void)usleep(200);
        if (fread(data, 1, bytes, f) != bytes)
                abort();
        (void)fclose(f);
}

static void drop(const char *folder, const char *name)
{
        char path[320];

        (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
        (void)unlink(path);
}

/* Each rank's bytes, in the order of the ranks. */
static void gather(ncclComm_t c, const void *mine, size_t bytes, unsigned char *all)
{
        char name[64];

        (void)snprintf(name, sizeof(name), "c%u-%d", c->collectives, c->rank);
        put(c->folder, name, mine, bytes);
        for (int i = 0; i < c->n; i++) {
                (void)snprintf(name, sizeof(name), "c%u-%d", c->collectives, i);
                get(c->folder, name, all + (size_t)i * bytes, bytes);
        }
        /* All ranks are here, so all have read what belongs to the collective before. */
        (void)snprintf(name, sizeof(name), "c%u-%d", c->collectives - 1, c->rank);
        drop(c->folder, name);
        c->collectives++;
}

/* ---- operations ---- */

static int64_t whole(int type, const void *at)
{
        unsigned shift = 64 - 8 * types[type].bytes;
        uint64_t bits = 0;

        memcpy(&bits, at, types[type].bytes);
        if (types[type].kind == UNSIGNED)
                return (int64_t)bits;
        return (int64_t)(bits << shift) >> shift;
}

static void combine(const struct call *c, const unsigned char *all, size_t stride, size_t bytes,
                    const double *scalars, unsigned char *out)
{
        const struct type *t = &types[c->type];

        for (size_t at = 0; at < bytes; at += t->bytes) {
                int64_t integer = 0;
                double number = 0;

                for (int i = 0; i < c->comm->n; i++) {
                        const unsigned char *from = all + (size_t)i * stride + at;
                        double v = t->kind == FLOAT ? value_decode(c->type, from) : 0;
                        int64_t w = t->kind == FLOAT ? 0 : whole(c->type, from);

                        if (c->premul) {
                                v *= scalars[i];
                                w *= (int64_t)scalars[i];
                        }
                        if (!i) {
                                number = v;
                                integer = w;
                        } else if (!c->premul && c->op == ncclProd) {
                                number *= v;
                                integer = (int64_t)((uint64_t)integer * (uint64_t)w);
                        } else if (!c->premul && c->op == ncclMax) {
                                number = fmax(number, v);
                                integer = MAX(integer, w);
                        } else if (!c->premul && c->op == ncclMin) {
                                number = fmin(number, v);
                                integer = MIN(integer, w);
                        } else {
                                number += v;
                                integer += w;
                        }
                }
                if (!c->premul && c->op == ncclAvg) {
                        number /= c->comm->n;
                        integer /= c->comm->n;
                }
                if (t->kind == FLOAT)
                        value_encode(c->type, value_limited(c->type, number), out + at);
                else
                        memcpy(out + at, &integer, t->bytes);
        }
        if (faulty("element") && bytes)
                out[bytes - t->bytes] ^= 1;
}

static void reduce(const struct call *c, size_t in_bytes, size_t first, size_t out_bytes,
                   bool receives)
{
        ncclComm_t comm = c->comm;
        unsigned char *mine = malloc(in_bytes + 1), *all = malloc(in_bytes * (size_t)comm->n + 1);
        unsigned char *out = malloc(out_bytes + 1);
        double scalar = c->scalar, scalars[64];
        unsigned char value[8];

        if (!mine || !all || !out)
                abort();
        if (c->scalar_at) {
                read_device(c->scalar_at, value, types[c->type].bytes);
                scalar = value_decode(c->type, value);
        }
        read_device((CUdeviceptr)(uintptr_t)c->send, mine, in_bytes);
        gather(comm, mine, in_bytes, all);
        gather(comm, &scalar, sizeof(scalar), (unsigned char *)scalars);
        combine(c, all + first, in_bytes, out_bytes, scalars, out);
        if (receives)
                write_device((CUdeviceptr)(uintptr_t)c->recv, out, out_bytes);
        free(mine);
        free(all);
        free(out);
}

/* Gathers what each rank gives, and takes one block of each rank that is wanted. */
static void copy(const struct call *c, size_t in_bytes, size_t block, int only, size_t first,
                 bool receives)
{
        ncclComm_t comm = c->comm;
        unsigned char *mine = malloc(in_bytes + 1), *all = malloc(in_bytes * (size_t)comm->n + 1);
        CUdeviceptr to = (CUdeviceptr)(uintptr_t)c->recv;

        if (!mine || !all)
                abort();
        memset(mine, 0, in_bytes + 1);
        if (c->send && (only < 0 || comm->rank == only))
                read_device((CUdeviceptr)(uintptr_t)c->send, mine, in_bytes);
        gather(comm, mine, in_bytes, all);
        for (int i = 0; receives && i < comm->n; i++) {
                int from = faulty("order") ? comm->n - 1 - i : i;

                if (only >= 0 && i != only)
                        continue;
                write_device(to, all + (size_t)(only >= 0 ? i : from) * in_bytes + first, block);
                to += block;
        }
        free(mine);
        free(all);
}

static void send_or_receive(const struct call *c)
{
        size_t bytes = c->count * types[c->type].bytes;
        unsigned char *data = malloc(bytes + 1);
        ncclComm_t comm = c->comm;
        char name[64];

        if (!data)
                abort();
        if (c->kind == SEND) {
                read_device((CUdeviceptr)(uintptr_t)c->send, data, bytes);
                (void)snprintf(name, sizeof(name), "s%d-%d-%u", comm->rank, c->root,
                               comm->sent[c->root]++);
                put(comm->folder, name, data, bytes);
        } else {
                (void)snprintf(name, sizeof(name), "s%d-%d-%u", c->root, comm->rank,
                               comm->received[c->root]++);
                get(comm->folder, name, data, bytes);
                drop(comm->folder, name);
                write_device((CUdeviceptr)(uintptr_t)c->recv, data, bytes);
        }
        free(data);
}

static void spoil(const struct call *c, size_t recv_bytes)
{
        unsigned char byte;

        if (faulty("beyond") && c->recv)
                write_device((CUdeviceptr)(uintptr_t)c->recv + recv_bytes, "\1", 1);
        if (faulty("input") && c->send && c->count && c->send != c->recv) {
                read_device((CUdeviceptr)(uintptr_t)c->send, &byte, 1);
                byte ^= 1;
                write_device((CUdeviceptr)(uintptr_t)c->send, &byte, 1);
        }
}

static void execute(const struct call *c)
{
        size_t block = c->count * types[c->type].bytes, n = (size_t)c->comm->n;
        size_t rank = (size_t)c->comm->rank;
        bool root = c->comm->rank == c->root;

        drain(c->stream);
        switch (c->kind) {
        case ALL_REDUCE:
                reduce(c, block, 0, block, true);
                spoil(c, block);
                break;
        case REDUCE:
                reduce(c, block, 0, block, root);
                break;
        case REDUCE_SCATTER:
                reduce(c, block * n, rank * block, block, true);
                break;
        case ALL_GATHER:
                copy(c, block, block, -1, 0, true);
                break;
        case GATHER:
                copy(c, block, block, -1, 0, root);
                break;
        case BROADCAST:
                copy(c, block, block, c->root, 0, true);
                break;
        case SCATTER:
                copy(c, block * n, block, c->root, rank * block, true);
                break;
        case TO_ALL:
                copy(c, block * n, block, -1, rank * block, true);
                break;
        default:
                send_or_receive(c);
        }
}

/* A thread's work for one communicator. Other communicators may be other ranks of this process. */
struct job {
        pthread_t thread;
        ncclComm_t comm;
        struct call *calls;
        unsigned n;
        const struct child *child;
};

static void split(const struct child *child);

/* All that only sends goes first, because receiving waits for the peer. */
static void *execute_of(void *argument)
{
        const struct job *job = argument;
        CUresult (*set)(CUcontext) = driver("cuCtxSetCurrent");

        if (set(job->comm->context))
                abort();
        if (job->child)
                split(job->child);
        for (unsigned i = 0; i < 2 * job->n; i++) {
                struct call *c = &job->calls[i % job->n];

                if (c->comm == job->comm && (c->kind == SEND) == (i < job->n))
                        execute(c);
        }
        return NULL;
}

static void start(struct job *job)
{
        if (pthread_create(&job->thread, NULL, execute_of, job))
                abort();
}

static void execute_all(void)
{
        struct job jobs[64];
        unsigned n = 0;

        for (unsigned i = 0; i < call_n; i++) {
                unsigned k = 0;

                while (k < n && jobs[k].comm != calls[i].comm)
                        k++;
                if (k == ARRAY_SIZE(jobs))
                        abort();
                if (k == n)
                        jobs[n++] =
                                (struct job){.comm = calls[i].comm, .calls = calls, .n = call_n};
        }
        for (unsigned i = 0; i < n; i++)
                start(&jobs[i]);
        for (unsigned i = 0; i < n; i++)
                (void)pthread_join(jobs[i].thread, NULL);
        call_n = 0;
}

/* Splits of one communicator come one after the other. */
static void split_all(void)
{
        struct job jobs[ARRAY_SIZE(children)];
        bool begun[ARRAY_SIZE(children)] = {false};

        for (unsigned left = child_n; left > 0;) {
                unsigned n = 0;

                for (unsigned i = 0; i < child_n; i++) {
                        unsigned k = 0;

                        while (k < n && jobs[k].comm != children[i].parent)
                                k++;
                        if (begun[i] || k < n)
                                continue;
                        begun[i] = true;
                        jobs[n] = (struct job){.comm = children[i].parent, .child = &children[i]};
                        start(&jobs[n++]);
                }
                for (unsigned i = 0; i < n; i++)
                        (void)pthread_join(jobs[i].thread, NULL);
                left -= n;
        }
        child_n = 0;
}

static ncclResult_t refuse(void)
{
        return faulty("code") ? ncclInternalError : ncclInvalidArgument;
}

static ncclResult_t take(const char *function, struct call c)
{
        bool reduces = c.kind <= REDUCE_SCATTER;

        record(function, c.comm);
        if (!c.comm || c.type < 0 || c.type >= ncclNumTypes || c.root < 0 || c.root >= c.comm->n)
                return refuse();
        if (reduces && (c.op < 0 || c.op >= ncclNumOps + OPS_MAX))
                return refuse();
        if (reduces && c.op >= ncclNumOps) {
                int i = c.op - ncclNumOps;

                if (!c.comm->op[i].used || c.comm->op[i].type != c.type)
                        return refuse();
                c.premul = true;
                if (c.comm->op[i].on_device)
                        c.scalar_at = c.comm->op[i].at;
                else
                        c.scalar = value_decode(c.type, c.comm->op[i].value);
        }
        if (call_n == ARRAY_SIZE(calls))
                abort();
        calls[call_n++] = c;
        if (!depth)
                execute_all();
        return ncclSuccess;
}

/* ---- NCCL's functions ---- */

EXPORT ncclResult_t ncclGetVersion(int *ret_version)
{
        record(__func__, NULL);
        if (!ret_version)
                return refuse();
        *ret_version = 22809;
        return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *ret_id)
{
        static unsigned n;

        record(__func__, NULL);
        if (!ret_id)
                return refuse();
        memset(ret_id, 0, sizeof(*ret_id));
        (void)snprintf(ret_id->internal, sizeof(ret_id->internal), "id-%d-%u", (int)getpid(), n++);
        return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result)
{
        static const char *const texts[] = {"0", "1", "2", "3", "4", "5", "6", "7"};

        return result < ARRAY_SIZE(texts) ? texts[result] : "unknown";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm)
{
        (void)comm;
        return "";
}

static ncclComm_t comm_new(const char *parent, const char *name, int n, int rank)
{
        CUresult (*device)(CUdevice *) = driver("cuCtxGetDevice");
        CUresult (*context)(CUcontext *) = driver("cuCtxGetCurrent");
        ncclComm_t c = calloc(1, sizeof(*c));

        if (!c || context(&c->context))
                abort();
        c->n = n;
        c->rank = rank;
        (void)snprintf(c->folder, sizeof(c->folder), "%.120s/%.60s", parent, name);
        (void)mkdir(c->folder, 0700);
        c->sent = calloc((size_t)n, sizeof(unsigned));
        c->received = calloc((size_t)n, sizeof(unsigned));
        if (!c->sent || !c->received || device(&c->device))
                abort();
        return c;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *ret_comm, int n, ncclUniqueId id, int rank,
                                           ncclConfig_t *config)
{
        const char *folder = getenv("NCCL_STUB_DIR");

        if (!ret_comm || n < 1 || rank < 0 || rank >= n ||
            (config &&
             (config->magic != 0xcafebeef || (config->blocking != NCCL_CONFIG_UNDEF_INT &&
                                              config->blocking != 0 && config->blocking != 1))))
                return refuse();
        *ret_comm = comm_new(folder ? folder : "/tmp", id.internal, n, rank);
        record("ncclCommInitRank", *ret_comm);
        return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *ret_comm, int n, ncclUniqueId id, int rank)
{
        return ncclCommInitRankConfig(ret_comm, n, id, rank, NULL);
}

EXPORT ncclResult_t ncclCommInitRankScalable(ncclComm_t *ret_comm, int n, int rank, int ids,
                                             ncclUniqueId *id, ncclConfig_t *config)
{
        (void)ids;
        return ncclCommInitRankConfig(ret_comm, n, id[0], rank, config);
}

EXPORT ncclResult_t ncclCommInitAll(ncclComm_t *ret_comms, int n, const int *devices)
{
        ncclUniqueId id;

        (void)devices;
        (void)ncclGetUniqueId(&id);
        for (int i = 0; i < n; i++)
                (void)ncclCommInitRank(&ret_comms[i], n, id, i);
        return ncclSuccess;
}

static void split(const struct child *child)
{
        int mine[2] = {child->color, child->key}, all[64][2], rank = 0, n = 0;
        ncclComm_t comm = child->parent;
        char name[60];

        (void)snprintf(name, sizeof(name), "split-%u-%d", comm->collectives, child->color);
        gather(comm, mine, sizeof(mine), (unsigned char *)all);
        for (int i = 0; i < comm->n; i++) {
                if (all[i][0] != child->color)
                        continue;
                n++;
                rank += all[i][1] < child->key || (all[i][1] == child->key && i < comm->rank);
        }
        if (child->color != NCCL_SPLIT_NOCOLOR)
                *child->ret = comm_new(comm->folder, name, n, rank);
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *ret_comm,
                                  ncclConfig_t *config)
{
        (void)config;
        record(__func__, comm);
        if (!comm || !ret_comm)
                return refuse();
        if (child_n == ARRAY_SIZE(children))
                abort();
        *ret_comm = NULL;
        children[child_n++] = (struct child){comm, ret_comm, color, key};
        if (!depth)
                split_all();
        return ncclSuccess;
}

/* The ranks without which do not call, so only the others count the call. */
EXPORT ncclResult_t ncclCommShrink(ncclComm_t comm, int *excluded, int n_excluded,
                                   ncclComm_t *ret_comm, ncclConfig_t *config, int flags)
{
        unsigned mask = 0;
        int rank = 0, n = 0;
        char name[60];

        (void)config;
        (void)flags;
        record(__func__, comm);
        if (!comm || !ret_comm || !excluded || n_excluded < 1 || comm->n > SHRINK_RANKS)
                return refuse();
        for (int i = 0; i < n_excluded; i++)
                mask |= 1u << excluded[i];
        if (mask >> comm->rank & 1)
                return refuse();
        for (int i = 0; i < comm->n; i++)
                if (!(mask >> i & 1)) {
                        n++;
                        rank += i < comm->rank;
                }
        (void)snprintf(name, sizeof(name), "shrink-%x-%u", mask, comm->shrinks[mask]++);
        *ret_comm = comm_new(comm->folder, name, n, rank);
        return ncclSuccess;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
        record(__func__, comm);
        return comm ? ncclSuccess : refuse();
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
        record(__func__, comm);
        if (comm) {
                free(comm->sent);
                free(comm->received);
        }
        free(comm);
        return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm)
{
        record(__func__, comm);
        return ncclCommDestroy(comm);
}

#define QUERY(function, type, value)                            \
        EXPORT ncclResult_t function(ncclComm_t comm, type ret) \
        {                                                       \
                if (!comm || !ret)                              \
                        return refuse();                        \
                *ret = value;                                   \
                return ncclSuccess;                             \
        }

QUERY(ncclCommGetAsyncError, ncclResult_t *, ncclSuccess)
QUERY(ncclCommCount, int *, comm->n)
QUERY(ncclCommUserRank, int *, comm->rank)
QUERY(ncclCommCuDevice, int *, comm->device)

EXPORT ncclResult_t ncclRedOpCreatePreMulSum(int *ret_op, void *scalar, int type, int residence,
                                             ncclComm_t comm)
{
        record(__func__, comm);
        if (!ret_op || !scalar || !comm || type < 0 || type >= ncclNumTypes)
                return refuse();
        for (int i = 0; i < OPS_MAX; i++) {
                if (comm->op[i].used)
                        continue;
                comm->op[i].used = true;
                comm->op[i].type = type;
                comm->op[i].on_device = residence == ncclScalarDevice;
                comm->op[i].at = (CUdeviceptr)(uintptr_t)scalar;
                if (residence == ncclScalarHostImmediate)
                        memcpy(comm->op[i].value, scalar, types[type].bytes);
                *ret_op = ncclNumOps + i;
                return ncclSuccess;
        }
        abort();
}

EXPORT ncclResult_t ncclRedOpDestroy(int op, ncclComm_t comm)
{
        record(__func__, comm);
        if (!comm || op < ncclNumOps || op >= ncclNumOps + OPS_MAX ||
            !comm->op[op - ncclNumOps].used)
                return refuse();
        comm->op[op - ncclNumOps].used = false;
        return ncclSuccess;
}

/* clang-format off */
EXPORT ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = ALL_REDUCE, .send = send, .recv = recv, .count = count, .type = type, .op = op, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclReduce(const void *send, void *recv, size_t count, int type, int op, int root, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = REDUCE, .send = send, .recv = recv, .count = count, .type = type, .op = op, .root = root, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = REDUCE_SCATTER, .send = send, .recv = recv, .count = count, .type = type, .op = op, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, int type, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = ALL_GATHER, .send = send, .recv = recv, .count = count, .type = type, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = BROADCAST, .send = send, .recv = recv, .count = count, .type = type, .root = root, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclBcast(void *at, size_t count, int type, int root, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = BROADCAST, .send = at, .recv = at, .count = count, .type = type, .root = root, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, int type, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = TO_ALL, .send = send, .recv = recv, .count = count, .type = type, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclGather(const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = GATHER, .send = send, .recv = recv, .count = count, .type = type, .root = root, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclScatter(const void *send, void *recv, size_t count, int type, int root, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = SCATTER, .send = send, .recv = recv, .count = count, .type = type, .root = root, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclSend(const void *at, size_t count, int type, int peer, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = SEND, .send = at, .count = count, .type = type, .root = peer, .comm = comm, .stream = stream});
}

EXPORT ncclResult_t ncclRecv(void *at, size_t count, int type, int peer, ncclComm_t comm, CUstream stream)
{
        return take(__func__, (struct call){.kind = RECV, .recv = at, .count = count, .type = type, .root = peer, .comm = comm, .stream = stream});
}
/* clang-format on */

EXPORT ncclResult_t ncclGroupStart(void)
{
        record(__func__, NULL);
        depth++;
        return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void)
{
        record(__func__, NULL);
        if (!depth)
                return ncclInvalidUsage;
        if (--depth == 0) {
                split_all();
                execute_all();
        }
        return ncclSuccess;
}
