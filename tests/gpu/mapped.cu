/* mapped: tests host memory that is mapped at a device address, as SUBLET_MEMORY=overflow maps it, but
 * without sublet: which CUDA operations work on it, and what they cost beside memory of the card.
 * Prints one JSON line for each finding. The argument names a test: copies, bulk, atomics, graphs or
 * speed. */
#include "../programs/runtime/runtime.cuh"

#include <cuda.h>

enum { HOST, CARD, SIDES };
static const char *const side_names[SIDES] = {"host", "card"};

/* ---- memory of either side ---- */

static void must(CUresult r, const char *what)
{
        if (r == CUDA_SUCCESS)
                return;
        (void)fprintf(stderr, "%s: error %d\n", what, (int)r);
        _exit(4);
}

static decltype(cuMemCreate) *mem_create;
static decltype(cuMemRelease) *mem_release;
static decltype(cuMemAddressReserve) *mem_reserve;
static decltype(cuMemMap) *mem_map;
static decltype(cuMemUnmap) *mem_unmap;
static decltype(cuMemSetAccess) *mem_set_access;
static decltype(cuStreamWriteValue32) *write_value;
static decltype(cuStreamWaitValue32) *wait_value;

static void find_entries(void)
{
        mem_create = entry<decltype(cuMemCreate)>("cuMemCreate", 10020);
        mem_release = entry<decltype(cuMemRelease)>("cuMemRelease", 10020);
        mem_reserve = entry<decltype(cuMemAddressReserve)>("cuMemAddressReserve", 10020);
        mem_map = entry<decltype(cuMemMap)>("cuMemMap", 10020);
        mem_unmap = entry<decltype(cuMemUnmap)>("cuMemUnmap", 10020);
        mem_set_access = entry<decltype(cuMemSetAccess)>("cuMemSetAccess", 10020);
        write_value = entry<decltype(cuStreamWriteValue32)>("cuStreamWriteValue32", 11070);
        wait_value = entry<decltype(cuStreamWaitValue32)>("cuStreamWaitValue32", 11070);
}

static CUmemGenericAllocationHandle create(int side, size_t bytes)
{
        CUmemAllocationProp what = {};
        CUmemGenericAllocationHandle h;
        int node = 0;

        TRY(cudaDeviceGetAttribute(&node, cudaDevAttrHostNumaId, 0));
        what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        what.location.type =
                side == HOST ? CU_MEM_LOCATION_TYPE_HOST_NUMA : CU_MEM_LOCATION_TYPE_DEVICE;
        what.location.id = side == HOST && node > 0 ? node : 0;
        must(mem_create(&h, bytes, &what, 0), "cuMemCreate");
        return h;
}

static void map_at(CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle h)
{
        CUmemAccessDesc access = {};

        access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
        access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        must(mem_map(at, bytes, 0, h, 0), "cuMemMap");
        must(mem_set_access(at, bytes, &access, 1), "cuMemSetAccess");
}

/* Returns whole pages of 2 MiB, which live until the process ends. */
static char *memory(int side, size_t bytes)
{
        CUdeviceptr at;

        must(mem_reserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve");
        map_at(at, bytes, create(side, bytes));
        TRY(cudaMemset((void *)at, 0, bytes));
        return (char *)at;
}

static void found(const char *what, bool right)
{
        (void)printf("{\"event\":\"finding\",\"what\":\"%s\",\"right\":%s}\n", what,
                     right ? "true" : "false");
        (void)fflush(stdout);
}

static double seconds_of(cudaEvent_t begin, cudaEvent_t end)
{
        float ms;

        TRY(cudaEventSynchronize(end));
        TRY(cudaEventElapsedTime(&ms, begin, end));
        return ms / 1e3;
}

/* ---- copies, fills, values ---- */

static const size_t MIB = 1 << 20, COPY = 4 * MIB;

static void pattern(char *at, size_t bytes, unsigned key)
{
        for (size_t i = 0; i < bytes; i++)
                at[i] = (char)(i * 7 + (i >> 8) + key);
}

static bool same(const char *device, const char *host, size_t bytes)
{
        std::vector<char> got(bytes);

        TRY(cudaMemcpy(got.data(), device, bytes, cudaMemcpyDeviceToHost));
        return !memcmp(got.data(), host, bytes);
}

static void copies(void)
{
        char *at = memory(HOST, COPY), *card, *pinned, *back;
        std::vector<char> a(COPY), b(COPY);
        cudaStream_t s;

        TRY(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        TRY(cudaMalloc(&card, COPY));
        TRY(cudaMallocHost(&pinned, COPY));
        TRY(cudaMallocHost(&back, COPY));

        pattern(a.data(), COPY, 1);
        TRY(cudaMemcpy(at, a.data(), COPY, cudaMemcpyHostToDevice));
        TRY(cudaMemcpy(b.data(), at, COPY, cudaMemcpyDeviceToHost));
        found("copies from and to pageable memory", a == b);

        pattern(a.data(), 100, 2);
        TRY(cudaMemcpy(at + 64, a.data(), 100, cudaMemcpyHostToDevice));
        TRY(cudaMemcpy(b.data(), at + 64, 100, cudaMemcpyDeviceToHost));
        found("copies of 100 bytes", !memcmp(a.data(), b.data(), 100));

        pattern(pinned, COPY, 3);
        TRY(cudaMemcpyAsync(at, pinned, COPY, cudaMemcpyHostToDevice, s));
        TRY(cudaMemcpyAsync(back, at, COPY, cudaMemcpyDeviceToHost, s));
        TRY(cudaStreamSynchronize(s));
        found("copies from and to pinned memory", !memcmp(pinned, back, COPY));

        TRY(cudaMemcpyAsync(card, at, COPY, cudaMemcpyDeviceToDevice, s));
        TRY(cudaStreamSynchronize(s));
        found("copies to memory of the card", same(card, pinned, COPY));
        pattern(pinned, COPY, 4);
        TRY(cudaMemcpy(card, pinned, COPY, cudaMemcpyHostToDevice));
        TRY(cudaMemcpyAsync(at, card, COPY, cudaMemcpyDeviceToDevice, s));
        TRY(cudaStreamSynchronize(s));
        found("copies from memory of the card", same(at, pinned, COPY));
        TRY(cudaMemcpyAsync(at, at + 2 * MIB, MIB, cudaMemcpyDeviceToDevice, s));
        TRY(cudaStreamSynchronize(s));
        found("copies within it", same(at, pinned + 2 * MIB, MIB));

        TRY(cudaMemcpy(at, card, COPY, cudaMemcpyDefault));
        TRY(cudaMemcpy2D(b.data(), 1000, at, 4096, 1000, 500, cudaMemcpyDeviceToHost));
        bool right = true;
        for (size_t i = 0; i < 500; i++)
                right &= !memcmp(b.data() + 1000 * i, pinned + 4096 * i, 1000);
        found("copies in two dimensions", right);

        cudaMemcpy3DParms cube = {};
        cube.srcPtr = make_cudaPitchedPtr(card, 4096, 4000, 16);
        cube.dstPtr = make_cudaPitchedPtr(at + 2 * MIB, 4096, 4000, 16);
        cube.extent = make_cudaExtent(4000, 16, 20);
        cube.kind = cudaMemcpyDeviceToDevice;
        TRY(cudaMemset(at + 2 * MIB, 0, 2 * MIB));
        TRY(cudaMemcpy3D(&cube));
        TRY(cudaMemcpy(b.data(), at + 2 * MIB, 2 * MIB, cudaMemcpyDeviceToHost));
        right = true;
        for (size_t i = 0; i < 16 * 20; i++)
                right &= !memcmp(b.data() + 4096 * i, pinned + 4096 * i, 4000) &&
                         b[4096 * i + 4000] == 0;
        found("copies in three dimensions", right);

        TRY(cudaMemset(at, 0x5a, COPY));
        TRY(cudaDeviceSynchronize()); /* because the stream does not wait for the default one */
        TRY(cudaMemset2DAsync(at + 8192, 1024, 7, 100, 50, s));
        TRY(cudaStreamSynchronize(s));
        TRY(cudaMemcpy(b.data(), at, COPY, cudaMemcpyDeviceToHost));
        right = true;
        for (size_t i = 0; i < COPY; i++) {
                bool inside = i >= 8192 && i < 8192 + 1024 * 50 && (i - 8192) % 1024 < 100;

                right &= b[i] == (inside ? 7 : 0x5a);
        }
        found("fills in one and two dimensions", right);

        must(write_value(s, (CUdeviceptr)at, 77, 0), "cuStreamWriteValue32");
        must(wait_value(s, (CUdeviceptr)at, 77, CU_STREAM_WAIT_VALUE_EQ), "cuStreamWaitValue32");
        TRY(cudaStreamSynchronize(s));
        uint32_t word;
        TRY(cudaMemcpy(&word, at, 4, cudaMemcpyDeviceToHost));
        found("stream memory operations: a value written and waited for", word == 77);
}

/* ---- bulk copies between mapped and shared memory, by the tensor memory accelerator ---- */

enum { BULK = 16384 };

static __global__ void bulk_kernel(const char *from, char *to)
{
#if __CUDA_ARCH__ >= 900
        __shared__ alignas(128) char staged[BULK];
        __shared__ alignas(8) uint64_t barrier;
        unsigned at = (unsigned)__cvta_generic_to_shared(staged);
        unsigned b = (unsigned)__cvta_generic_to_shared(&barrier);
        unsigned there = 0;

        if (threadIdx.x == 0) {
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(b) : "memory");
                asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b),
                             "r"(BULK)
                             : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                             "[%0], [%1], %2, [%3];" ::"r"(at),
                             "l"(__cvta_generic_to_global(from)), "r"(BULK), "r"(b)
                             : "memory");
                while (!there)
                        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, "
                                     "[%1], 0;"
                                     " selp.u32 %0, 1, 0, p; }"
                                     : "=r"(there)
                                     : "r"(b)
                                     : "memory");
                asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                                     __cvta_generic_to_global(to)),
                             "r"(at), "r"(BULK)
                             : "memory");
                asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        }
#endif
}

static void bulk(void)
{
        char *at[SIDES] = {memory(HOST, 2 * MIB), memory(CARD, 2 * MIB)};
        std::vector<char> a(BULK);
        int major;

        TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
        if (major < 9)
                return;
        for (unsigned i = 0; i < SIDES; i++) {
                pattern(a.data(), BULK, i);
                TRY(cudaMemcpy(at[i], a.data(), BULK, cudaMemcpyHostToDevice));
                bulk_kernel<<<1, 32>>>(at[i], at[!i] + MIB);
                TRY(cudaDeviceSynchronize());
                found(i == HOST ? "bulk (TMA) copies into shared memory"
                                : "bulk (TMA) copies out of shared memory",
                      same(at[!i] + MIB, a.data(), BULK));
        }
}

/* ---- atomics ---- */

enum kind { ADD, ADD64, FLOAT, DOUBLE, SYSTEM, MAX, OR, INC, EXCHANGE, CAS, CAS64, KINDS };
static const char *const kind_names[KINDS] = {"add, 32 bits",
                                              "add, 64 bits",
                                              "add, float",
                                              "add, double",
                                              "add, system scope",
                                              "max",
                                              "or",
                                              "inc",
                                              "exchange",
                                              "loop of compare-and-swap, 32 bits",
                                              "loop of compare-and-swap, 64 bits"};

template <kind K> static __device__ void hit_once(uint64_t *q, unsigned t)
{
        unsigned *word = (unsigned *)q;
        auto *wide = (unsigned long long *)q;

        if constexpr (K == ADD)
                atomicAdd(word, 1u);
        else if constexpr (K == ADD64)
                atomicAdd(wide, 1ull);
        else if constexpr (K == FLOAT)
                atomicAdd((float *)q, 1.0f);
        else if constexpr (K == DOUBLE)
                atomicAdd((double *)q, 1.0);
        else if constexpr (K == SYSTEM)
                atomicAdd_system(word, 1u);
        else if constexpr (K == MAX)
                atomicMax(word, t + 1);
        else if constexpr (K == OR)
                atomicOr(word, 1u << (t & 31));
        else if constexpr (K == INC)
                atomicInc(word, ~0u);
        else if constexpr (K == EXCHANGE)
                atomicExch(word, t + 1);
        else if constexpr (K == CAS) {
                unsigned old, seen = *(volatile unsigned *)q;

                do {
                        old = seen;
                        seen = atomicCAS(word, old, old + 1);
                } while (seen != old);
        } else {
                unsigned long long old, seen = *(volatile unsigned long long *)q;

                do {
                        old = seen;
                        seen = atomicCAS(wide, old, old + 1);
                } while (seen != old);
        }
}

enum { STRIDE = 8 }; /* distance between two addresses, in words of 64 bits */

template <kind K> static __global__ void hit(uint64_t *at, unsigned spread, unsigned times)
{
        unsigned t = blockIdx.x * blockDim.x + threadIdx.x;

        for (unsigned i = 0; i < times; i++)
                hit_once<K>(at + (size_t)(t % spread) * STRIDE, t);
}

/* True if `got` is the value that `threads` threads must leave at address number a. */
static bool is_right(kind k, uint64_t got, unsigned a, unsigned threads, unsigned spread,
                     unsigned times)
{
        uint64_t hits = (uint64_t)threads / spread * times;
        uint32_t low = (uint32_t)got, bits = 0;
        double wide;
        float narrow;

        memcpy(&wide, &got, 8);
        memcpy(&narrow, &low, 4);
        for (unsigned t = a; t < threads; t += spread)
                bits |= 1u << (t & 31);
        switch (k) {
        case ADD64:
        case CAS64:
                return got == hits;
        case FLOAT:
                return narrow == (float)hits;
        case DOUBLE:
                return wide == (double)hits;
        case MAX:
                return low == threads - spread + a + 1;
        case OR:
                return low == bits;
        case EXCHANGE:
                return low >= 1 && low <= threads && (low - 1) % spread == a;
        default:
                return low == hits;
        }
}

struct shape {
        const char *name;
        unsigned threads, spread, times;
};

template <kind K> static void atomics_of(char *const at[SIDES])
{
        const shape shapes[] = {{"32 threads on one address", 32, 1, 20},
                                {"1,024 threads on one address", 1024, 1, 1},
                                {"32,768 threads, each on its own", 32768, 32768, 10}};
        cudaEvent_t begin, end;

        TRY(cudaEventCreate(&begin));
        TRY(cudaEventCreate(&end));
        for (const shape &s : shapes) {
                const size_t bytes = (size_t)s.spread * STRIDE * 8;
                const unsigned each = s.threads < 256 ? s.threads : 256, blocks = s.threads / each;
                std::vector<uint64_t> got(bytes / 8);
                double ns[SIDES];
                bool right = true;

                for (int side = 0; side < SIDES; side++) {
                        auto *words = (uint64_t *)at[side];

                        TRY(cudaMemset(words, 0, bytes));
                        hit<K><<<blocks, each>>>(words, s.spread, 0);
                        TRY(cudaEventRecord(begin));
                        hit<K><<<blocks, each>>>(words, s.spread, s.times);
                        TRY(cudaEventRecord(end));
                        ns[side] = seconds_of(begin, end) * 1e9 / s.threads / s.times;
                        TRY(cudaMemcpy(got.data(), words, bytes, cudaMemcpyDeviceToHost));
                        for (unsigned a = 0; a < s.spread; a++)
                                right &= is_right(K, got[(size_t)a * STRIDE], a, s.threads,
                                                  s.spread, s.times);
                }
                (void)printf("{\"event\":\"atomic\",\"kind\":\"%s\",\"shape\":\"%s\",\"right\":%s,"
                             "\"host_ns\":%.1f,"
                             "\"card_ns\":%.1f}\n",
                             kind_names[K], s.name, right ? "true" : "false", ns[HOST], ns[CARD]);
                (void)fflush(stdout);
        }
}

static void atomics(void)
{
        char *at[SIDES] = {memory(HOST, 2 * MIB), memory(CARD, 2 * MIB)};

        atomics_of<ADD>(at);
        atomics_of<ADD64>(at);
        atomics_of<FLOAT>(at);
        atomics_of<DOUBLE>(at);
        atomics_of<SYSTEM>(at);
        atomics_of<MAX>(at);
        atomics_of<OR>(at);
        atomics_of<INC>(at);
        atomics_of<EXCHANGE>(at);
        atomics_of<CAS>(at);
        atomics_of<CAS64>(at);
}

/* ---- graphs made while the memory is on one side, launched while it is on the other ---- */

static const size_t GRAPH = 2 * MIB, WORDS = GRAPH / 4;

static __global__ void increment(uint32_t *at, size_t n)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x)
                at[i]++;
}

struct graph_memory {
        char *at, *card, *pinned, *out;
};

static void capture(cudaGraph_t *ret, const graph_memory &m, cudaStream_t s)
{
        TRY(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed));
        TRY(cudaMemcpyAsync(m.at, m.pinned, GRAPH, cudaMemcpyHostToDevice, s));
        increment<<<64, 256, 0, s>>>((uint32_t *)m.at, WORDS);
        TRY(cudaMemsetAsync(m.at, 5, 64, s));
        TRY(cudaMemcpyAsync(m.card, m.at, GRAPH, cudaMemcpyDeviceToDevice, s));
        TRY(cudaMemcpyAsync(m.at + MIB, m.card, MIB / 2, cudaMemcpyDeviceToDevice, s));
        TRY(cudaMemcpyAsync(m.out, m.at, GRAPH, cudaMemcpyDeviceToHost, s));
        TRY(cudaStreamEndCapture(s, ret));
}

static void build(cudaGraph_t *ret, const graph_memory &m)
{
        uint32_t *words = (uint32_t *)m.at;
        size_t n = WORDS;
        void *arguments[] = {&words, &n};
        cudaKernelNodeParams kernel = {};
        cudaMemsetParams set = {};
        cudaGraphNode_t node[6];

        kernel.func = (void *)increment;
        kernel.gridDim = dim3(64);
        kernel.blockDim = dim3(256);
        kernel.kernelParams = arguments;
        set.dst = m.at;
        set.value = 5;
        set.elementSize = 1;
        set.width = 64;
        set.height = 1;
        TRY(cudaGraphCreate(ret, 0));
        TRY(cudaGraphAddMemcpyNode1D(&node[0], *ret, NULL, 0, m.at, m.pinned, GRAPH,
                                     cudaMemcpyHostToDevice));
        TRY(cudaGraphAddKernelNode(&node[1], *ret, &node[0], 1, &kernel));
        TRY(cudaGraphAddMemsetNode(&node[2], *ret, &node[1], 1, &set));
        TRY(cudaGraphAddMemcpyNode1D(&node[3], *ret, &node[2], 1, m.card, m.at, GRAPH,
                                     cudaMemcpyDeviceToDevice));
        TRY(cudaGraphAddMemcpyNode1D(&node[4], *ret, &node[3], 1, m.at + MIB, m.card, MIB / 2,
                                     cudaMemcpyDeviceToDevice));
        TRY(cudaGraphAddMemcpyNode1D(&node[5], *ret, &node[4], 1, m.out, m.at, GRAPH,
                                     cudaMemcpyDeviceToHost));
}

static bool graph_right(const graph_memory &m, uint32_t turn)
{
        const uint32_t *out = (const uint32_t *)m.out;

        for (size_t i = 0; i < WORDS; i++) {
                size_t from = i >= MIB / 4 && i < MIB / 4 + MIB / 8
                                      ? i - MIB / 4
                                      : i; /* the value that the copy read */

                if (out[i] != (from < 16 ? 0x05050505 : (uint32_t)from * 3 + turn + 1))
                        return false;
        }
        return true;
}

static void graphs_of(int first, bool captured)
{
        CUmemGenericAllocationHandle h = create(first, GRAPH);
        std::vector<char> kept(GRAPH);
        cudaGraphExec_t exec;
        cudaGraph_t graph;
        graph_memory m;
        cudaStream_t s;
        CUdeviceptr at;

        TRY(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        must(mem_reserve(&at, GRAPH, 0, 0, 0), "cuMemAddressReserve");
        map_at(at, GRAPH, h);
        m.at = (char *)at;
        TRY(cudaMalloc(&m.card, GRAPH));
        TRY(cudaMallocHost(&m.pinned, GRAPH));
        TRY(cudaMallocHost(&m.out, GRAPH));
        if (captured)
                capture(&graph, m, s);
        else
                build(&graph, m);
        TRY(cudaGraphInstantiate(&exec, graph, 0));
        for (uint32_t turn = 0; turn < 4; turn++) {
                int side = (first + (int)turn) % SIDES;
                char what[160];

                if (turn) {
                        TRY(cudaMemcpy(kept.data(), m.at, GRAPH, cudaMemcpyDeviceToHost));
                        must(mem_unmap(at, GRAPH), "cuMemUnmap");
                        must(mem_release(h), "cuMemRelease");
                        h = create(side, GRAPH);
                        map_at(at, GRAPH, h);
                        TRY(cudaMemcpy(m.at, kept.data(), GRAPH, cudaMemcpyHostToDevice));
                        TRY(cudaDeviceSynchronize());
                }
                for (size_t i = 0; i < WORDS; i++)
                        ((uint32_t *)m.pinned)[i] = (uint32_t)i * 3 + turn;
                memset(m.out, 0, GRAPH);
                TRY(cudaGraphLaunch(exec, s));
                TRY(cudaStreamSynchronize(s));
                (void)snprintf(what, sizeof(what),
                               "a graph %s while the memory lay on the %s, launched for the %s "
                               "time, on the %s",
                               captured ? "captured" : "built of nodes", side_names[first],
                               turn == 0   ? "first"
                               : turn == 1 ? "second"
                               : turn == 2 ? "third"
                                           : "fourth",
                               side_names[side]);
                found(what, graph_right(m, turn));
        }
}

static void graphs(void)
{
        for (int first = 0; first < SIDES; first++)
                for (int captured = 0; captured < 2; captured++)
                        graphs_of(first, captured);
}

/* ---- costs ---- */

static const size_t LARGE = 1024 * MIB;
enum { GATHERS = 200 };

static __global__ void read_all(const uint4 *at, size_t n, uint32_t *sum)
{
        uint32_t s = 0;

        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x) {
                uint4 v = at[i];

                s += v.x ^ v.y ^ v.z ^ v.w;
        }
        if (s == 12345) /* uses s, so that the compiler keeps the reads */
                atomicAdd(sum, s);
}

static __global__ void write_all(uint4 *at, size_t n, uint32_t key)
{
        for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
             i += (size_t)gridDim.x * blockDim.x)
                at[i] = make_uint4(key, (uint32_t)i, key, (uint32_t)i);
}

static __global__ void gather(const uint64_t *at, size_t n, uint32_t *sum)
{
        uint64_t x = blockIdx.x * 7919ull + threadIdx.x * 104729ull, s = 0;

        for (unsigned i = 0; i < GATHERS; i++) {
                x = x * 6364136223846793005ull + 1442695040888963407ull;
                s += at[(x >> 20) % n];
        }
        if (s == 12345)
                atomicAdd(sum, 1u);
}

template <typename F> static double timed(F work)
{
        const unsigned times = 3;
        cudaEvent_t begin, end;

        TRY(cudaEventCreate(&begin));
        TRY(cudaEventCreate(&end));
        work(); /* the first run loads code and is not measured */
        TRY(cudaEventRecord(begin));
        for (unsigned i = 0; i < times; i++)
                work();
        TRY(cudaEventRecord(end));
        TRY(cudaGetLastError());
        return seconds_of(begin, end) / times;
}

static void cost(const char *what, const char *unit, double host, double card)
{
        (void)printf("{\"event\":\"cost\",\"what\":\"%s\",\"unit\":\"%s\",\"host\":%.2f,\"card\":%."
                     "2f}\n",
                     what, unit, host, card);
        (void)fflush(stdout);
}

static void speed(void)
{
        char *at[SIDES] = {memory(HOST, LARGE), memory(CARD, LARGE)}, *card = memory(CARD, LARGE),
             *pinned;
        double rate[6][SIDES];
        uint32_t *sum;

        TRY(cudaMalloc(&sum, 4));
        TRY(cudaMallocHost(&pinned, LARGE));
        for (int i = 0; i < SIDES; i++) {
                auto *p = (uint4 *)at[i];

                rate[0][i] =
                        LARGE / 1e9 / timed([&] { read_all<<<1056, 512>>>(p, LARGE / 16, sum); });
                rate[1][i] =
                        LARGE / 1e9 / timed([&] { write_all<<<1056, 512>>>(p, LARGE / 16, 7); });
                rate[2][i] = 528 * 512.0 * GATHERS / 1e9 /
                             timed([&] { gather<<<528, 512>>>((uint64_t *)p, LARGE / 8, sum); });
                rate[3][i] = LARGE / 1e9 / timed([&] {
                                     TRY(cudaMemcpyAsync(card, p, LARGE, cudaMemcpyDeviceToDevice));
                             });
                rate[4][i] = LARGE / 1e9 / timed([&] {
                                     TRY(cudaMemcpyAsync(pinned, p, LARGE, cudaMemcpyDeviceToHost));
                             });
                rate[5][i] = LARGE / 1e9 / timed([&] { TRY(cudaMemsetAsync(p, 1, LARGE)); });
        }
        cost("a kernel reads it in order", "GB/s", rate[0][HOST], rate[0][CARD]);
        cost("a kernel writes it in order", "GB/s", rate[1][HOST], rate[1][CARD]);
        cost("a kernel reads 8 bytes here and there", "thousand million loads/s", rate[2][HOST],
             rate[2][CARD]);
        cost("a copy to memory of the card", "GB/s", rate[3][HOST], rate[3][CARD]);
        cost("a copy to pinned memory", "GB/s", rate[4][HOST], rate[4][CARD]);
        cost("a fill", "GB/s", rate[5][HOST], rate[5][CARD]);
}

int main(int argc, char **argv)
{
        const struct {
                const char *name;
                void (*run)(void);
        } all[] = {{"copies", copies},
                   {"bulk", bulk},
                   {"atomics", atomics},
                   {"graphs", graphs},
                   {"speed", speed}};

        for (const auto &one : all)
                if (argc == 2 && !strcmp(argv[1], one.name)) {
                        TRY(cudaFree(NULL));
                        find_entries();
                        one.run();
                        return done();
                }
        fail("which one?");
}
