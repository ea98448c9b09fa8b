/* surface_rest.c: the entry points that have no variants for per-thread default streams: code,
 * allocation and questions about it, arrays, graphs, contexts. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "surface.h"

static const char text[] = ".version 7.0\n.target sm_70\n.address_size 64\n"
                           ".visible .global .align 4 .u32 variable = 7;\n"
                           ".visible .entry one_more(.param .u64 p)\n{\n"
                           ".reg .b64 %rd<3>;\n.reg .b32 %r<3>;\n"
                           "ld.param.u64 %rd1, [p];\ncvta.to.global.u64 %rd2, %rd1;\n"
                           "ld.global.u32 %r1, [%rd2];\nadd.s32 %r2, %r1, 1;\n"
                           "st.global.u32 [%rd2], %r2;\nret;\n}\n";

static void must(bool condition, const char *what)
{
        if (!condition)
                program_fail(PROGRAM_EXIT_WRONG, "%s", what);
}

/* Writes the file that cuModuleLoad and cuLibraryLoadFromFile read. */
static void text_file(char path[static 64])
{
        FILE *f;

        (void)snprintf(path, 64, "/tmp/surface-%d.ptx", (int)getpid());
        f = fopen(path, "we");
        if (!f || fputs(text, f) < 0 || fclose(f) != 0)
                program_fail(PROGRAM_EXIT_SETUP, "%s: cannot be written", path);
}

static void launch_of(CUfunction f)
{
        CUdeviceptr counter = play.a;

        TRY(cu.MemsetD8(counter, 0, 4));
        TRY(cu.LaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&counter}, NULL));
        must(play_word(counter) == 1, "a loaded kernel has not counted");
}

static void launch_from(CUmodule m)
{
        CUdeviceptr variable;
        CUfunction f;
        size_t bytes;

        TRY(all.cuModuleGetFunction(&f, m, "one_more"));
        TRY(all.cuFuncLoad(f));
        TRY(all.cuModuleGetGlobal_v2(&variable, &bytes, m, "variable"));
        must(bytes == 4 && play_word(variable) == 7, "a variable has another value");
        launch_of(f);
        TRY(cu.ModuleUnload(m));
}

static void launch_library(CUlibrary l)
{
        CUdeviceptr variable;
        CUfunction f;
        CUkernel k;
        CUmodule m;
        size_t bytes;

        TRY(all.cuLibraryGetKernel(&k, l, "one_more"));
        TRY(all.cuKernelGetFunction(&f, k));
        TRY(all.cuLibraryGetModule(&m, l));
        TRY(all.cuLibraryGetGlobal(&variable, &bytes, l, "variable"));
        must(bytes == 4 && play_word(variable) == 7, "a variable of a library has another value");
        MAY(cuLibraryGetManaged, (&variable, &bytes, l, "variable"));
        launch_of(f);
        TRY(all.cuLibraryUnload(l));
}

static void linked(void)
{
        CUlinkState state;
        CUmodule m;
        void *image;
        size_t bytes;

        TRY(all.cuLinkCreate_v2(0, NULL, NULL, &state));
        TRY(all.cuLinkAddData_v2(state, CU_JIT_INPUT_PTX, (void *)text, sizeof(text), "text", 0,
                                 NULL, NULL));
        TRY(all.cuLinkComplete(state, &image, &bytes));
        TRY(cu.ModuleLoadData(&m, image));
        TRY(all.cuLinkDestroy(state));
        launch_from(m);
}

void rest_modules(void)
{
        char path[64];
        CUlibrary l;
        CUmodule m;

        text_file(path);
        TRY(all.cuModuleLoad(&m, path));
        launch_from(m);
        TRY(all.cuModuleLoadData(&m, text));
        launch_from(m);
        TRY(all.cuModuleLoadDataEx(&m, text, 0, NULL, NULL));
        launch_from(m);
        /* Some drivers take only machine code here. */
        if (all.cuModuleLoadFatBinary(&m, text) == CUDA_SUCCESS)
                launch_from(m);
        TRY(all.cuLibraryLoadData(&l, text, NULL, NULL, 0, NULL, NULL, 0));
        launch_library(l);
        TRY(all.cuLibraryLoadFromFile(&l, path, NULL, NULL, 0, NULL, NULL, 0));
        launch_library(l);
        linked();
        TRY(all.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
        (void)unlink(path);
}

/* ---- allocation and questions ---- */

/* Prints the driver's answers about the kind of memory. With one driver and device they are the
 * same for all memory that was allocated in the same way. */
static void kind(CUdeviceptr p)
{
        static const CUpointer_attribute names[] = {
                CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                CU_POINTER_ATTRIBUTE_IS_MANAGED,
                CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                CU_POINTER_ATTRIBUTE_MAPPED,
                CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
                CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
        };
        unsigned answer[ARRAY_SIZE(names)] = {0};

        for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
                TRY(all.cuPointerGetAttribute(&answer[i], names[i], p));
        program_say("pointer",
                    "\"type\":%u,\"managed\":%u,\"device\":%u,\"ipc\":%u,\"mapped\":%u,\"rdma\":%u,"
                    "\"access\":%u,\"unpack\":%u",
                    answer[0], answer[1], answer[2], answer[3], answer[4], answer[5], answer[6],
                    answer[7]);
}

static void about(CUdeviceptr p, size_t offset, size_t bytes)
{
        CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                       CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                       CU_POINTER_ATTRIBUTE_SYNC_MEMOPS};
        unsigned type = 0, sync = 9;
        size_t range = 0, size;
        CUdeviceptr start;
        CUcontext owner;
        unsigned yes = 1;

        TRY(all.cuPointerGetAttributes(3, names, (void *[]){&type, &range, &sync}, p + offset));
        if (type != CU_MEMORYTYPE_DEVICE || range != bytes || sync != 0)
                program_fail(PROGRAM_EXIT_WRONG, "of %zu bytes: type %u, %zu bytes, sync %u", bytes,
                             type, range, sync);
        TRY(all.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p + offset));
        must(owner == play.context, "the context of a pointer");
        TRY(all.cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, p + offset));
        must(start <= p, "the mapping of a pointer");
        kind(p + offset);
        TRY(all.cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p + offset));
        TRY(all.cuPointerGetAttribute(&sync, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p));
        must(sync == 1, "an attribute that was set");
        TRY(all.cuMemGetAddressRange_v2(&start, &size, p + offset));
        must(start == p && size == bytes, "the range of a pointer");
        must(all.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p + bytes) ==
                     CUDA_ERROR_INVALID_VALUE,
             "a pointer behind an allocation");
        must(all.cuPointerGetAttributes(1, names, (void *[]){NULL}, p) == CUDA_ERROR_INVALID_VALUE,
             "no room for an attribute");
}

/* Exports memory for other processes. The exporter cannot open it; the program `share` does. */
static void exported(void)
{
        CUipcMemHandle handle;
        CUdeviceptr p;
        CUresult r = all.cuIpcGetMemHandle(&handle, play.a);

        if (r == CUDA_ERROR_NOT_SUPPORTED) /* without a daemon no process can open it */
                return;
        TRY(r);
        if (all.cuIpcOpenMemHandle)
                must(all.cuIpcOpenMemHandle(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
                             CUDA_SUCCESS,
                     "memory of its own opened");
        must(all.cuIpcOpenMemHandle_v2(&p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) !=
                     CUDA_SUCCESS,
             "memory of its own opened");
        must(all.cuIpcCloseMemHandle(play.b) != CUDA_SUCCESS, "memory of its own closed");
}

/* Exports memory for a device other than a GPU; the program `share` checks what happens to it. */
static void for_devices(void)
{
        const size_t bytes = 4 * MIB; /* whole pages for every allocator */
        CUdeviceptr p;
        int fd = -1;

        TRY(cu.MemAlloc(&p, bytes));
        MAY(cuMemGetHandleForAddressRange, (&fd, p, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0));
        must(fd < 0 || close(fd) == 0, "a descriptor of memory");
        TRY(cu.MemFree(p));
}

/* Tests a pool of the program itself. surface_submit.inc makes the calls that take a stream. */
static void pool(void)
{
        const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                      .location = {CU_MEM_LOCATION_TYPE_DEVICE, play.device}};
        const CUmemAccessDesc both = {props.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        uint64_t threshold = 4 * MIB, told = 0;
        CUmemoryPool mine;

        TRY(all.cuMemPoolCreate(&mine, &props));
        TRY(all.cuMemPoolSetAttribute(mine, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
        TRY(all.cuMemPoolGetAttribute(mine, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &told));
        must(told == threshold, "an attribute of a pool");
        TRY(all.cuMemPoolSetAccess(mine, &both, 1));
        TRY(all.cuMemPoolTrimTo(mine, 0));
        TRY(all.cuMemPoolDestroy(mine));
}

void rest_memory(void)
{
        size_t free_bytes, total, seen, pitch;
        CUdeviceptr p;

        TRY(all.cuDeviceTotalMem_v2(&seen, play.device));
        TRY(all.cuMemGetInfo_v2(&free_bytes, &total));
        must(seen == total && free_bytes <= total, "the memory there is");
        TRY(all.cuMemAlloc_v2(&p, 1000));
        about(p, 999, 1000);
        TRY(all.cuMemFree_v2(p));
        TRY(all.cuMemAlloc_v2(&p, 5 * MIB + 100));
        about(p, 3 * MIB, 5 * MIB + 100);
        TRY(all.cuMemFree_v2(p));
        TRY(all.cuMemAllocPitch_v2(&p, &pitch, 1000, 10, 4));
        must(pitch == 1024, "the pitch");
        about(p, 0, 10240);
        TRY(all.cuMemFree_v2(p));
        exported();
        for_devices();
        pool();
}

/* Tests memory to decompress into, if the driver supports it. */
static void unpacked(CUdeviceptr at, CUmemLocation on)
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .location = on,
                                          .allocFlags.usage = CU_MEM_CREATE_USAGE_HW_DECOMPRESS};
        const CUmemAccessDesc both = {on, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUmemGenericAllocationHandle handle;
        CUmemAllocationProp told;

        if (all.cuMemCreate(&handle, 2 * MIB, &prop, 0) != CUDA_SUCCESS)
                return;
        TRY(all.cuMemMap(at, 2 * MIB, 0, handle, 0));
        TRY(all.cuMemSetAccess(at, 2 * MIB, &both, 1));
        kind(at);
        TRY(all.cuMemGetAllocationPropertiesFromHandle(&told, handle));
        program_say("handle", "\"usage\":%u", told.allocFlags.usage);
        TRY(all.cuMemUnmap(at, 2 * MIB));
        TRY(all.cuMemRelease(handle));
}

/* Memory that the program maps itself. */
void rest_virtual(void)
{
        const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                          .requestedHandleTypes =
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                          .location = {CU_MEM_LOCATION_TYPE_DEVICE, play.device}};
        const CUmemAccessDesc both = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CUmemGenericAllocationHandle handle, again;
        unsigned long long access = 0;
        CUmemAllocationProp told;
        CUdeviceptr at;
        int fd;

        TRY(all.cuMemAddressReserve(&at, 4 * MIB, 0, 0, 0));
        TRY(all.cuMemCreate(&handle, 2 * MIB, &prop, 0));
        TRY(all.cuMemMap(at, 2 * MIB, 0, handle, 0));
        TRY(all.cuMemSetAccess(at, 2 * MIB, &both, 1));
        TRY(all.cuMemGetAccess(&access, &both.location, at));
        must(access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "access to mapped memory");
        TRY(all.cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
        TRY(all.cuMemGetAllocationPropertiesFromHandle(&told, again));
        must(told.requestedHandleTypes == prop.requestedHandleTypes, "properties of memory");
        TRY(all.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                             0));
        (void)close(fd);
        TRY(all.cuMemRelease(again));
        TRY(all.cuMemRelease(handle));
        TRY(cu.MemsetD8(at, 5, SURFACE_BYTES));
        must(play_word(at) == 0x05050505, "mapped memory");
        TRY(all.cuMemUnmap(at, 2 * MIB));
        unpacked(at, prop.location);
        TRY(all.cuMemAddressFree(at, 4 * MIB));
}

/* ---- arrays ---- */

void rest_arrays(void)
{
        const CUDA_ARRAY3D_DESCRIPTOR flat = {.Width = 64,
                                              .Height = SURFACE_BYTES / 256,
                                              .Format = CU_AD_FORMAT_FLOAT,
                                              .NumChannels = 1};
        CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                           .srcHost = play.h,
                           .srcPitch = 256,
                           .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                           .WidthInBytes = 256,
                           .Height = flat.Height};
        CUDA_RESOURCE_DESC resource = {.resType = CU_RESOURCE_TYPE_ARRAY};
        const CUDA_TEXTURE_DESC how = {.addressMode = {CU_TR_ADDRESS_MODE_CLAMP}};
        CUDA_ARRAY3D_DESCRIPTOR shape;
        CUmipmappedArray mipmap;
        CUtexObject texture;
        CUsurfObject surface;
        CUarray array;

        TRY(all.cuArray3DCreate_v2(&array, &flat));
        TRY(all.cuArray3DGetDescriptor_v2(&shape, array));
        must(shape.Width == 64 && shape.Height == flat.Height, "the shape of an array");
        play_fill();
        c.dstArray = array;
        TRY(all.cuMemcpy2D_v2(&c));
        c = (CUDA_MEMCPY2D){.srcMemoryType = CU_MEMORYTYPE_ARRAY,
                            .srcArray = array,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .dstDevice = play.a,
                            .dstPitch = 256,
                            .WidthInBytes = 256,
                            .Height = flat.Height};
        TRY(all.cuMemcpy2D_v2(&c));
        play_expect(play.a, SURFACE_BYTES, "copies to and from an array");
        resource.res.array.hArray = array;
        TRY(all.cuTexObjectCreate(&texture, &resource, &how, NULL));
        TRY(all.cuTexObjectDestroy(texture));
        TRY(all.cuSurfObjectCreate(&surface, &resource));
        TRY(all.cuSurfObjectDestroy(surface));
        TRY(all.cuArrayDestroy(array));
        must(all.cuArrayDestroy(NULL) == CUDA_ERROR_INVALID_HANDLE, "no array destroyed");

        TRY(all.cuMipmappedArrayCreate(&mipmap, &flat, 4));
        TRY(all.cuMipmappedArrayGetLevel(&array, mipmap, 3));
        TRY(all.cuArray3DGetDescriptor_v2(&shape, array));
        must(shape.Width == 8, "the shape of a level");
        TRY(all.cuMipmappedArrayDestroy(mipmap));
}

/* ---- graphs ---- */

static void expect_word(CUgraphExec exec, uint32_t want, const char *after)
{
        TRY(cu.MemsetD8(play.a, 0, SURFACE_BYTES));
        TRY(cu.CtxSynchronize());
        TRY(cu.GraphLaunch(exec, play.s));
        if (play_word(play.a) != want)
                program_fail(PROGRAM_EXIT_WRONG, "a graph wrong after %s", after);
}

/* Tests a graph inside another graph: a launch writes 0x66 to all bytes. */
static void nested(CUgraph inner)
{
        CUgraph copy, outer;
        CUgraphNode node;
        CUgraphExec exec;

        TRY(all.cuGraphClone(&copy, inner));
        TRY(cu.GraphCreate(&outer, 0));
        TRY(all.cuGraphAddChildGraphNode(&node, outer, NULL, 0, copy));
        TRY(all.cuGraphInstantiateWithFlags(&exec, outer, 0));
        expect_word(exec, 0x66666666, "cuGraphAddChildGraphNode");
        MAY(cuGraphExecChildGraphNodeSetParams, (exec, node, inner));
        expect_word(exec, 0x66666666, "cuGraphExecChildGraphNodeSetParams");
        TRY(cu.GraphExecDestroy(exec));
        TRY(cu.GraphDestroy(outer));
        TRY(cu.GraphDestroy(copy));
}

/* Tests a graph that writes words without a kernel. */
static void values(void)
{
        CUstreamBatchMemOpParams word = {
                .writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = play.a}};
        CUDA_BATCH_MEM_OP_NODE_PARAMS params = {
                .ctx = play.context, .count = 1, .paramArray = &word};
        CUgraphNode node = NULL;
        CUgraphExec exec;
        CUgraph graph;

        TRY(cu.GraphCreate(&graph, 0));
        word.writeValue.value = 0x77777777;
        MAY(cuGraphAddBatchMemOpNode, (&node, graph, NULL, 0, &params));
        word.writeValue.value = 0x11111111;
        MAY(cuGraphBatchMemOpNodeSetParams, (node, &params));
        TRY(all.cuGraphInstantiateWithFlags(&exec, graph, 0));
        if (node)
                expect_word(exec, 0x11111111, "cuGraphBatchMemOpNodeSetParams");
        word.writeValue.value = 0x22222222;
        MAY(cuGraphExecBatchMemOpNodeSetParams, (exec, node, &params));
        if (node)
                expect_word(exec, 0x22222222, "cuGraphExecBatchMemOpNodeSetParams");
        TRY(cu.GraphExecDestroy(exec));
        TRY(cu.GraphDestroy(graph));
}

/* Tests graphs of a fill and a copy of its result: a launch leaves a word of the fill's value. */
void rest_graphs(void)
{
        CUDA_MEMSET_NODE_PARAMS set = {
                .dst = play.b, .value = 0x11, .elementSize = 1, .width = 64, .height = 1};
        CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                              .srcDevice = play.b,
                              .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                              .dstDevice = play.a,
                              .WidthInBytes = 64,
                              .Height = 1,
                              .Depth = 1};
        CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
        CUgraphExecUpdateResultInfo info;
        CUgraphExecUpdateResult result;
        CUgraphNode fill, copied, error;
        CUgraphExec exec, other;
        CUgraph graph;
        char log[64];

        TRY(cu.GraphCreate(&graph, 0));
        TRY(all.cuGraphAddMemsetNode(&fill, graph, NULL, 0, &set, play.context));
        TRY(all.cuGraphAddMemcpyNode(&copied, graph, &fill, 1, &copy, play.context));
        TRY(all.cuGraphInstantiateWithFlags(&exec, graph, 0));
        expect_word(exec, 0x11111111, "cuGraphInstantiateWithFlags");

        set.value = 0x22;
        TRY(all.cuGraphExecMemsetNodeSetParams(exec, fill, &set, play.context));
        TRY(all.cuGraphExecMemcpyNodeSetParams(exec, copied, &copy, play.context));
        expect_word(exec, 0x22222222, "cuGraphExecMemsetNodeSetParams");

        set.value = 0x33;
        TRY(all.cuGraphMemsetNodeSetParams(fill, &set));
        TRY(all.cuGraphMemcpyNodeSetParams(copied, &copy));
        TRY(all.cuGraphExecUpdate_v2(exec, graph, &info));
        expect_word(exec, 0x33333333, "cuGraphExecUpdate_v2");
        if (all.cuGraphExecUpdate) {
                set.value = 0x44;
                TRY(all.cuGraphMemsetNodeSetParams(fill, &set));
                TRY(all.cuGraphExecUpdate(exec, graph, &error, &result));
                expect_word(exec, 0x44444444, "cuGraphExecUpdate");
        }
        any.memset.dst = play.b;
        any.memset.value = 0x55;
        any.memset.elementSize = 1;
        any.memset.width = 64;
        any.memset.height = 1;
        any.memset.ctx = play.context;
        TRY(all.cuGraphExecNodeSetParams(exec, fill, &any));
        expect_word(exec, 0x55555555, "cuGraphExecNodeSetParams");
        any.memset.value = 0x66;
        TRY(all.cuGraphNodeSetParams(fill, &any));
        TRY(all.cuGraphInstantiate(&other, graph, &error, log, sizeof(log)));
        expect_word(other, 0x66666666, "cuGraphNodeSetParams and cuGraphInstantiate");
        TRY(cu.GraphExecDestroy(other));
        TRY(all.cuGraphInstantiate_v2(&other, graph, &error, log, sizeof(log)));
        expect_word(other, 0x66666666, "cuGraphInstantiate_v2");
        TRY(cu.GraphExecDestroy(other));
        TRY(cu.GraphExecDestroy(exec));
        TRY(cu.GraphDestroy(graph));

        for (unsigned version = 1; version <= 2; version++) {
                TRY(cu.GraphCreate(&graph, 0));
                any.memset.dst = play.a;
                if (version == 2)
                        TRY(all.cuGraphAddNode_v2(&fill, graph, NULL, NULL, 0, &any));
                else if (all.cuGraphAddNode)
                        TRY(all.cuGraphAddNode(&fill, graph, NULL, 0, &any));
                else
                        continue;
                TRY(cu.GraphInstantiateWithFlags(&exec, graph, 0));
                expect_word(exec, 0x66666666, "cuGraphAddNode");
                TRY(cu.GraphExecDestroy(exec));
                nested(graph);
                TRY(cu.GraphDestroy(graph));
        }
        values();
}

/* ---- contexts ---- */

/* Tests a context of the program: memory allocated in it ends with it, other memory does not. */
static void own_context(CUcontext c, CUresult (*destroy)(CUcontext))
{
        CUdeviceptr mine, outside;
        CUstream s, t;
        CUcontext now;

        TRY(all.cuMemAlloc_v2(&mine, 3 * MIB));
        TRY(all.cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
        TRY(all.cuStreamCreateWithPriority(&t, CU_STREAM_NON_BLOCKING, 0));
        TRY(cu.MemsetD8Async(mine, 1, 3 * MIB, s));
        TRY(cu.MemsetD8Async(play.a, 2, SURFACE_BYTES, t));
        TRY(all.cuStreamDestroy_v2(t));
        if (all.cuStreamDestroy) {
                TRY(all.cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
                TRY(all.cuStreamDestroy(t));
        }
        must(play_word(mine) == 0x01010101 && play_word(play.a) == 0x02020202,
             "memory of two contexts");
        TRY(destroy(c));
        TRY(cu.CtxGetCurrent(&now));
        must(now == play.context, "the context below");
        must(all.cuPointerGetAttribute(&now, CU_POINTER_ATTRIBUTE_CONTEXT, mine) ==
                     CUDA_ERROR_INVALID_VALUE,
             "memory of a dead context");
        must(all.cuMemFree_v2(mine) == CUDA_ERROR_INVALID_VALUE, "memory of a dead context freed");
        TRY(all.cuMemAlloc_v2(&outside, 64));
        TRY(all.cuMemFree_v2(outside));
}

static void attached(void)
{
        CUcontext c, again;
        CUdeviceptr p;

        if (!all.cuCtxAttach || !all.cuCtxDetach)
                return;
        TRY(all.cuCtxCreate_v2(&c, 0, play.device));
        TRY(all.cuMemAlloc_v2(&p, 64));
        TRY(all.cuCtxAttach(&again, 0));
        must(again == c, "another context attached");
        TRY(all.cuCtxDetach(c));
        must(play_word(p) == play_word(p), "memory of a context that is still attached");
        TRY(all.cuCtxDetach(c));
        must(all.cuMemFree_v2(p) == CUDA_ERROR_INVALID_VALUE, "memory of a detached context");
}

/* Tests a green context: a part of the processors, with work of its own and memory of the primary
 * one. */
static void green(void)
{
        CUcontext c, owner;
        CUdevResource resource;
        CUdevResourceDesc desc;
        CUgreenCtx part;
        CUdeviceptr p;
        CUstream s;

        TRY(all.cuDeviceGetDevResource(play.device, &resource, CU_DEV_RESOURCE_TYPE_SM));
        TRY(all.cuDevResourceGenerateDesc(&desc, &resource, 1));
        TRY(all.cuGreenCtxCreate(&part, desc, play.device, CU_GREEN_CTX_DEFAULT_STREAM));
        TRY(all.cuGreenCtxStreamCreate(&s, part, CU_STREAM_NON_BLOCKING, 0));
        TRY(all.cuCtxFromGreenCtx(&c, part));
        must(c != play.context, "a green context that is the primary one");
        TRY(cu.CtxSetCurrent(c));
        TRY(all.cuMemAlloc_v2(&p, 2 * MIB));
        TRY(all.cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
        must(owner == play.context, "memory of a green context is not the primary one's");
        TRY(cu.MemsetD8Async(p, 6, 2 * MIB, s));
        TRY(cu.StreamSynchronize(s));
        TRY(cu.MemsetD8Async(p + MIB, 7, MIB, NULL));
        TRY(cu.CtxSynchronize());
        TRY(cu.CtxSetCurrent(play.context));
        TRY(all.cuStreamDestroy_v2(s));
        TRY(all.cuGreenCtxDestroy(part));
        must(play_word(p) == 0x06060606 && play_word(p + MIB) == 0x07070707,
             "memory of a green context that is gone");
        TRY(all.cuMemFree_v2(p));
}

/* Resets the primary context. The next retain makes the old handle valid again. A reset leaves the
 * retain count unchanged (measured). Whether the retain after the reset is counted is not known, so
 * this function retains once more than needed. */
static void reset(CUresult (*reset_it)(CUdevice), CUresult (*release)(CUdevice))
{
        CUcontext c, again;
        CUdeviceptr p;

        TRY(all.cuDevicePrimaryCtxRetain(&c, play.device));
        must(c == play.context, "another primary context");
        TRY(all.cuDevicePrimaryCtxRetain(&c, play.device));
        TRY(reset_it(play.device));
        must(cu.CtxSynchronize() == CUDA_ERROR_CONTEXT_IS_DESTROYED, "a context after its reset");
        must(cu.MemAlloc(&p, 64) == CUDA_ERROR_CONTEXT_IS_DESTROYED, "memory after a reset");
        TRY(all.cuDevicePrimaryCtxRetain(&again, play.device));
        must(again == c, "another context after a reset");
        TRY(release(play.device)); /* undoes the retain from before the reset */
        TRY(all.cuMemAlloc_v2(&p, 2 * MIB));
        TRY(cu.MemsetD8(p, 3, 2 * MIB));
        must(play_word(p) == 0x03030303, "memory of a context that was retained in time");
        TRY(release(play.device));
        must(play_word(p) == 0x03030303, "memory of a context that one still holds");
        TRY(cu.MemFree(p));
}

void rest_contexts(void)
{
        CUexecAffinityParam none[1];
        CUctxCreateParams plain = {0};
        CUcontext c;

        TRY(all.cuInit(0));
        TRY(all.cuCtxCreate_v2(&c, 0, play.device));
        own_context(c, all.cuCtxDestroy_v2);
        if (all.cuCtxCreate_v3) {
                TRY(all.cuCtxCreate_v3(&c, none, 0, 0, play.device));
                own_context(c, all.cuCtxDestroy_v2);
        }
        TRY(all.cuCtxCreate_v4(&c, &plain, 0, play.device));
        own_context(c, all.cuCtxDestroy ? all.cuCtxDestroy : all.cuCtxDestroy_v2);
        attached();
        if (all.cuGreenCtxCreate && all.cuGreenCtxStreamCreate)
                green();
        reset(all.cuDevicePrimaryCtxReset_v2, all.cuDevicePrimaryCtxRelease_v2);
        if (all.cuDevicePrimaryCtxReset && all.cuDevicePrimaryCtxRelease)
                reset(all.cuDevicePrimaryCtxReset, all.cuDevicePrimaryCtxRelease);
}
