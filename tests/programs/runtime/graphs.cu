/* graphs: captured graphs (across streams, with copies, sets and host functions), built graphs, child
 * graphs, memory nodes; parameters are changed, graphs updated and cloned. */
#include "runtime.cuh"

static void CUDART_CB count(void *argument)
{
        __atomic_fetch_add((uint32_t *)argument, 1, __ATOMIC_RELAXED);
}

enum { WORDS = 1 << 19 };

static cudaGraph_t captured(uint32_t *a, uint32_t *b, uint32_t *called, cudaStream_t s,
                            cudaStream_t other, cudaStreamCaptureMode mode, uint32_t add)
{
        cudaEvent_t fork, join;
        cudaGraph_t graph;

        TRY(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
        TRY(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
        TRY(cudaStreamBeginCapture(s, mode));
        step<<<64, 256, 0, s>>>(a, WORDS, add);
        TRY(cudaEventRecord(fork, s));
        TRY(cudaStreamWaitEvent(other, fork, 0));
        TRY(cudaMemsetAsync(b, 7, 4096, other));
        step<<<64, 256, 0, other>>>(b, WORDS, add);
        TRY(cudaEventRecord(join, other));
        TRY(cudaMemcpyAsync(a + 1000, a, 2000, cudaMemcpyDeviceToDevice, s));
        TRY(cudaStreamWaitEvent(s, join, 0));
        TRY(cudaMemcpyAsync(a + 5000, b + 100, 4000, cudaMemcpyDeviceToDevice, s));
        TRY(cudaLaunchHostFunc(s, count, called));
        TRY(cudaStreamEndCapture(s, &graph));
        TRY(cudaEventDestroy(fork));
        TRY(cudaEventDestroy(join));
        return graph;
}

int main(void)
{
        const cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal,
                                               cudaStreamCaptureModeThreadLocal,
                                               cudaStreamCaptureModeRelaxed};
        cudaGraphNode_t kernel_node, set_node, copy_node, child_node, alloc_node, use_node, free_node;
        uint32_t *a, *b, called = 0, add = 5;
        cudaKernelNodeParams kernel = {};
        cudaMemsetParams set = {};
        cudaMemAllocNodeParams alloc = {};
        cudaGraph_t graph, child, clone;
        cudaGraphExec_t exec;
        cudaStream_t s, other;
        size_t n = WORDS;

        TRY(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        TRY(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
        TRY(cudaMalloc(&a, WORDS * 4));
        TRY(cudaMalloc(&b, WORDS * 4));
        fill<<<64, 256, 0, s>>>(a, WORDS, 1);
        fill<<<64, 256, 0, s>>>(b, WORDS, 2);
        for (unsigned i = 0; i < 12; i++) {
                cudaGraphExecUpdateResultInfo info;

                graph = captured(a, b, &called, s, other, modes[i % 3], i);
                TRY(cudaGraphInstantiate(&exec, graph, 0));
                if (i % 2)
                        TRY(cudaGraphUpload(exec, s));
                for (unsigned k = 0; k < 10; k++)
                        TRY(cudaGraphLaunch(exec, s));
                TRY(cudaGraphDestroy(graph));
                graph = captured(a, b, &called, s, other, modes[i % 3], i + 100);
                TRY(cudaStreamSynchronize(s));
                TRY(cudaGraphExecUpdate(exec, graph, &info));
                TRY(cudaGraphLaunch(exec, s));
                TRY(cudaStreamSynchronize(s));
                TRY(cudaGraphExecDestroy(exec));
                TRY(cudaGraphDestroy(graph));
        }
        say("captured", sum_on_card(a, WORDS) ^ sum_on_card(b, WORDS));
        say("called", called);

        TRY(cudaGraphCreate(&graph, 0));
        TRY(cudaGraphCreate(&child, 0));
        void *arguments[] = {&a, &n, &add};
        kernel.func = (void *)step;
        kernel.gridDim = dim3(64);
        kernel.blockDim = dim3(256);
        kernel.kernelParams = arguments;
        TRY(cudaGraphAddKernelNode(&kernel_node, child, NULL, 0, &kernel));
        set.dst = b;
        set.value = 9;
        set.elementSize = 4;
        set.width = 1000;
        set.height = 1;
        TRY(cudaGraphAddMemsetNode(&set_node, graph, NULL, 0, &set));
        TRY(cudaGraphAddMemcpyNode1D(&copy_node, graph, &set_node, 1, a + 777, b, 8000,
                                     cudaMemcpyDeviceToDevice));
        TRY(cudaGraphAddChildGraphNode(&child_node, graph, &copy_node, 1, child));
        alloc.poolProps.allocType = cudaMemAllocationTypePinned;
        alloc.poolProps.location.type = cudaMemLocationTypeDevice;
        alloc.bytesize = 1 << 20;
        TRY(cudaGraphAddMemAllocNode(&alloc_node, graph, &child_node, 1, &alloc));
        TRY(cudaGraphAddMemcpyNode1D(&use_node, graph, &alloc_node, 1, alloc.dptr, a, 1 << 20,
                                     cudaMemcpyDeviceToDevice));
        cudaGraphNode_t back_node;
        TRY(cudaGraphAddMemcpyNode1D(&back_node, graph, &use_node, 1, b, alloc.dptr, 1 << 20,
                                     cudaMemcpyDeviceToDevice));
        TRY(cudaGraphAddMemFreeNode(&free_node, graph, &back_node, 1, alloc.dptr));
        TRY(cudaGraphInstantiate(&exec, graph, 0));
        for (unsigned i = 0; i < 30; i++)
                TRY(cudaGraphLaunch(exec, s));
        TRY(cudaStreamSynchronize(s));
        say("built", sum_on_card(a, WORDS) ^ sum_on_card(b, WORDS));
        TRY(cudaGraphExecDestroy(exec));
        TRY(cudaGraphDestroy(graph));
        TRY(cudaDeviceGraphMemTrim(0));

        TRY(cudaGraphClone(&clone, child));
        TRY(cudaGraphInstantiate(&exec, clone, 0));
        size_t nodes = 1;
        TRY(cudaGraphGetNodes(clone, &kernel_node, &nodes));
        for (add = 10; add < 40; add++) {
                TRY(cudaGraphExecKernelNodeSetParams(exec, kernel_node, &kernel));
                TRY(cudaGraphLaunch(exec, s));
        }
        TRY(cudaStreamSynchronize(s));
        say("changed", sum_on_card(a, WORDS));
        return done();
}
