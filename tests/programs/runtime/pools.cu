/* pools: stream-ordered memory from the default pool and a pool of its own, used across streams, freed on
 * another stream, trimmed, with attributes. A pool's used bytes are not compared: in the driver
 * (580.159.04) memory that is given to cudaFree stays used for ever, under sublet it does not. */
#include "runtime.cuh"

int main(void)
{
        cudaMemPool_t pool, own;
        cudaMemPoolProps props = {};
        uint64_t keep = UINT64_MAX;
        cudaStream_t s, other;
        cudaEvent_t event;
        uint32_t *sums;

        TRY(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
        TRY(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
        TRY(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
        TRY(cudaDeviceGetDefaultMemPool(&pool, 0));
        props.allocType = cudaMemAllocationTypePinned;
        props.location.type = cudaMemLocationTypeDevice;
        TRY(cudaMemPoolCreate(&own, &props));
        TRY(cudaMalloc(&sums, 1 << 20));
        TRY(cudaMemset(sums, 0, 1 << 20));
        for (unsigned i = 0; i < 150; i++) {
                size_t n = (size_t)1024 << (i % 10);
                uint32_t *p, *q;

                if (i == 50)
                        TRY(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
                TRY(cudaMallocAsync(&p, n * 4, s));
                if (i % 2)
                        TRY(cudaMallocFromPoolAsync(&q, n * 4, own, s));
                else
                        TRY(cudaMallocAsync(&q, n * 4, s));
                fill<<<64, 256, 0, s>>>(p, n, i);
                TRY(cudaMemcpyAsync(q, p, n * 4, cudaMemcpyDeviceToDevice, s));
                TRY(cudaEventRecord(event, s));
                TRY(cudaStreamWaitEvent(other, event, 0));
                step<<<64, 256, 0, other>>>(q, n, i);
                TRY(cudaMemcpyAsync(sums + 1000 * (i % 100), q, 4000, cudaMemcpyDeviceToDevice,
                                    other));
                TRY(cudaFreeAsync(p, s));
                if (i % 5 == 4) {
                        TRY(cudaStreamSynchronize(other));
                        TRY(cudaFree(q)); /* allowed for memory of a pool, too */
                } else {
                        TRY(cudaFreeAsync(q, other));
                }
                TRY(cudaEventRecord(event, other));
                TRY(cudaStreamWaitEvent(s, event, 0));
                if (i % 30 == 29) {
                        TRY(cudaDeviceSynchronize());
                        TRY(cudaMemPoolTrimTo(pool, 0));
                }
        }
        TRY(cudaDeviceSynchronize());
        say("sums", sum_on_card(sums, 100000));
        TRY(cudaMemPoolDestroy(own));
        return done();
}
