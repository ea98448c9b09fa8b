/* copies: copies in one, two and three dimensions, between host and card and on the card, on streams and
 * synchronously, in batches, to symbols. */
#include "runtime.cuh"

static __device__ uint32_t symbol[4096];
static __constant__ uint32_t constant[1024];

static __global__ void add_constant(uint32_t *at)
{
        at[threadIdx.x] += constant[threadIdx.x] ^ symbol[threadIdx.x];
}

enum { WIDTH = 1000, HEIGHT = 64, DEPTH = 16, BYTES = WIDTH * HEIGHT * DEPTH };

int main(void)
{
        std::vector<unsigned char> host(BYTES), back(BYTES);
        std::vector<uint32_t> numbers(4096);
        unsigned char *flat, *rows;
        cudaPitchedPtr volume, other;
        uint32_t *words;
        cudaStream_t s;
        size_t pitch;

        for (size_t i = 0; i < host.size(); i++)
                host[i] = (unsigned char)(i * 31 + (i >> 8));
        for (size_t i = 0; i < numbers.size(); i++)
                numbers[i] = (uint32_t)(i * i);
        TRY(cudaStreamCreate(&s));
        TRY(cudaMalloc(&flat, BYTES));
        TRY(cudaMallocPitch(&rows, &pitch, WIDTH, HEIGHT * DEPTH));
        TRY(cudaMalloc3D(&volume, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
        TRY(cudaMalloc3D(&other, make_cudaExtent(WIDTH, HEIGHT, DEPTH)));
        TRY(cudaMalloc(&words, 4096));
        TRY(cudaMemset(words, 0, 4096));
        for (unsigned i = 0; i < 12; i++) {
                cudaMemcpy3DParms p = {};

                TRY(cudaMemcpy(flat, host.data(), BYTES, cudaMemcpyHostToDevice));
                TRY(cudaMemcpy2DAsync(rows, pitch, flat, WIDTH, WIDTH, HEIGHT * DEPTH,
                                      cudaMemcpyDeviceToDevice, s));
                TRY(cudaMemcpy2DAsync(rows + 5 * pitch, pitch, host.data() + i, WIDTH, WIDTH / 2,
                                      20, cudaMemcpyHostToDevice, s));
                p.srcPtr = make_cudaPitchedPtr(rows, pitch, WIDTH, HEIGHT);
                p.dstPtr = volume;
                p.extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
                p.kind = cudaMemcpyDeviceToDevice;
                TRY(cudaMemcpy3DAsync(&p, s));
                p.srcPtr = volume;
                p.dstPtr = other;
                p.srcPos = make_cudaPos(0, 0, 1);
                p.extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH - 1);
                TRY(cudaMemcpy3DAsync(&p, s));
                p.srcPtr = volume;
                p.srcPos = p.dstPos = make_cudaPos(0, 0, DEPTH - 1);
                p.extent = make_cudaExtent(WIDTH, HEIGHT, 1);
                TRY(cudaMemcpy3DAsync(&p, s));
                p = {};
                p.srcPtr = other;
                p.dstPtr = make_cudaPitchedPtr(back.data(), WIDTH, WIDTH, HEIGHT);
                p.extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
                p.kind = cudaMemcpyDeviceToHost;
                TRY(cudaMemcpy3DAsync(&p, s));
                TRY(cudaStreamSynchronize(s));
                host.swap(back);
                TRY(cudaMemcpyToSymbol(symbol, numbers.data(), 16384));
                TRY(cudaMemcpyToSymbolAsync(constant, numbers.data() + i, 4000, 0,
                                            cudaMemcpyHostToDevice, s));
                add_constant<<<1, 1000, 0, s>>>(words);
                TRY(cudaStreamSynchronize(s));
                TRY(cudaMemcpyFromSymbol(numbers.data(), symbol, 16384));
                TRY(cudaMemcpyPeerAsync(flat, 0, words, 0, 4096, s));
                TRY(cudaMemcpy(numbers.data(), flat, 4000, cudaMemcpyDeviceToHost));
        }
        say("volume", sum_of(host));
        say("numbers", sum_of(numbers));
        say("words", sum_on_card(words, 1000));
        return done();
}
