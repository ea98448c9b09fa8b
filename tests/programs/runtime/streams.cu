/* streams: streams with priorities, blocking and non-blocking, events between them, callbacks, queries,
 * and the legacy stream between. */
#include "runtime.cuh"

static void CUDART_CB count(void *argument)
{
        __atomic_fetch_add((uint32_t *)argument, 1, __ATOMIC_RELAXED);
}

enum { STREAMS = 6, WORDS = 1 << 20 };

int main(void)
{
        uint32_t *at[STREAMS], called = 0;
        cudaStream_t stream[STREAMS];
        cudaEvent_t event[STREAMS], from, to;
        int least, greatest;
        float ms;

        TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        TRY(cudaEventCreate(&from));
        TRY(cudaEventCreate(&to));
        TRY(cudaEventRecord(from));
        for (int i = 0; i < STREAMS; i++) {
                TRY(cudaMalloc(&at[i], WORDS * 4));
                TRY(cudaStreamCreateWithPriority(
                        &stream[i], i % 2 ? cudaStreamNonBlocking : cudaStreamDefault,
                        i % 3 ? least : greatest));
                TRY(cudaEventCreateWithFlags(&event[i], cudaEventDisableTiming));
                fill<<<64, 256, 0, stream[i]>>>(at[i], WORDS, (uint32_t)i);
        }
        for (unsigned round = 0; round < 60; round++) {
                for (int i = 0; i < STREAMS; i++) {
                        step<<<64, 256, 0, stream[i]>>>(at[i], WORDS, round);
                        TRY(cudaEventRecord(event[i], stream[i]));
                        TRY(cudaLaunchHostFunc(stream[i], count, &called));
                }
                /* Each stream copies words of the next stream's buffer that no kernel writes then. */
                for (int i = 0; i < STREAMS; i++) {
                        TRY(cudaStreamWaitEvent(stream[i], event[(i + 1) % STREAMS], 0));
                        TRY(cudaMemcpyAsync(at[i], at[(i + 1) % STREAMS] + 4096, 4096,
                                            cudaMemcpyDeviceToDevice, stream[i]));
                        TRY(cudaEventRecord(event[i], stream[i]));
                }
                for (int i = 0; i < STREAMS; i++) {
                        TRY(cudaStreamWaitEvent(stream[i], event[(i + STREAMS - 1) % STREAMS], 0));
                        while (round % 10 == 9 && cudaStreamQuery(stream[i]) == cudaErrorNotReady)
                                ;
                }
                if (round % 7 == 0)
                        step<<<64, 256>>>(at[0], 1024, 1);
                if (round % 7 == 1)
                        TRY(cudaDeviceSynchronize());
                if (round % 20 == 19) { /* destroys streams with work in flight */
                        TRY(cudaStreamDestroy(stream[1]));
                        TRY(cudaDeviceSynchronize());
                        TRY(cudaStreamCreateWithFlags(&stream[1], cudaStreamNonBlocking));
                }
                TRY(cudaDeviceSynchronize());
        }
        TRY(cudaEventRecord(to));
        TRY(cudaEventSynchronize(to));
        TRY(cudaEventElapsedTime(&ms, from, to));
        if (!(ms > 0))
                fail("no time has passed");
        for (int i = 0; i < STREAMS; i++)
                say("stream", sum_on_card(at[i], WORDS));
        say("called", called);
        return done();
}
