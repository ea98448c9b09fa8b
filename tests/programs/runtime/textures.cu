/* textures: arrays of one, two and three dimensions, layered and mipmapped; textures over arrays, linear
 * memory and pitched memory; surfaces. */
#include "runtime.cuh"

enum { WIDTH = 128, HEIGHT = 64, DEPTH = 8 };

static __global__ void look(cudaTextureObject_t flat, cudaTextureObject_t volume,
                            cudaTextureObject_t linear, cudaTextureObject_t pitched,
                            cudaSurfaceObject_t surface, float *out)
{
        int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
        float v = tex2D<float>(flat, x + .25f, y + .75f) + tex3D<float>(volume, x, y, x % DEPTH) +
                  tex1Dfetch<float>(linear, (y * WIDTH + x) % 4096) + tex2D<float>(pitched, x, y);
        float before;

        surf2Dread(&before, surface, x * 4, y);
        surf2Dwrite(before * 0.5f + v, surface, x * 4, y);
        out[y * WIDTH + x] += v + before;
}

static cudaTextureObject_t texture(const cudaResourceDesc *r, cudaTextureFilterMode filter)
{
        cudaTextureDesc d = {};
        cudaTextureObject_t t;

        d.addressMode[0] = d.addressMode[1] = d.addressMode[2] = cudaAddressModeClamp;
        d.filterMode = filter;
        d.readMode = cudaReadModeElementType;
        TRY(cudaCreateTextureObject(&t, r, &d, NULL));
        return t;
}

int main(void)
{
        cudaChannelFormatDesc one = cudaCreateChannelDesc<float>();
        std::vector<float> host(WIDTH * HEIGHT * DEPTH);
        cudaArray_t flat, volume, target;
        cudaMipmappedArray_t mipmapped;
        float *linear, *pitched, *out;
        cudaResourceDesc r = {};
        cudaMemcpy3DParms p = {};
        size_t pitch;

        for (size_t i = 0; i < host.size(); i++)
                host[i] = (float)(i % 997) / 16;
        TRY(cudaMallocArray(&flat, &one, WIDTH, HEIGHT, 0));
        TRY(cudaMallocArray(&target, &one, WIDTH, HEIGHT, cudaArraySurfaceLoadStore));
        TRY(cudaMalloc3DArray(&volume, &one, make_cudaExtent(WIDTH, HEIGHT, DEPTH), 0));
        TRY(cudaMallocMipmappedArray(&mipmapped, &one, make_cudaExtent(WIDTH, HEIGHT, 0), 3, 0));
        TRY(cudaMalloc(&linear, 4096 * 4));
        TRY(cudaMallocPitch(&pitched, &pitch, WIDTH * 4, HEIGHT));
        TRY(cudaMalloc(&out, WIDTH * HEIGHT * 4));
        TRY(cudaMemset(out, 0, WIDTH * HEIGHT * 4));
        for (unsigned i = 0; i < 15; i++) {
                cudaTextureObject_t t[4];
                cudaSurfaceObject_t surface;

                TRY(cudaMemcpy2DToArray(flat, 0, 0, host.data() + i, WIDTH * 4, WIDTH * 4, HEIGHT,
                                        cudaMemcpyHostToDevice));
                TRY(cudaMemcpy2DToArray(target, 0, 0, host.data(), WIDTH * 4, WIDTH * 4, HEIGHT,
                                        cudaMemcpyHostToDevice));
                p = {};
                p.srcPtr = make_cudaPitchedPtr(host.data(), WIDTH * 4, WIDTH, HEIGHT);
                p.dstArray = volume;
                p.extent = make_cudaExtent(WIDTH, HEIGHT, DEPTH);
                p.kind = cudaMemcpyHostToDevice;
                TRY(cudaMemcpy3D(&p));
                TRY(cudaMemcpy(linear, host.data() + 3 * i, 4096 * 4, cudaMemcpyHostToDevice));
                TRY(cudaMemcpy2DFromArray(pitched, pitch, flat, 0, 0, WIDTH * 4, HEIGHT,
                                          cudaMemcpyDeviceToDevice));
                r = {};
                r.resType = cudaResourceTypeArray;
                r.res.array.array = flat;
                t[0] = texture(&r, cudaFilterModeLinear);
                r.res.array.array = volume;
                t[1] = texture(&r, cudaFilterModePoint);
                r.res.array.array = target;
                TRY(cudaCreateSurfaceObject(&surface, &r));
                r = {};
                r.resType = cudaResourceTypeLinear;
                r.res.linear.devPtr = linear;
                r.res.linear.desc = one;
                r.res.linear.sizeInBytes = 4096 * 4;
                t[2] = texture(&r, cudaFilterModePoint);
                r = {};
                r.resType = cudaResourceTypePitch2D;
                r.res.pitch2D.devPtr = pitched;
                r.res.pitch2D.desc = one;
                r.res.pitch2D.width = WIDTH;
                r.res.pitch2D.height = HEIGHT;
                r.res.pitch2D.pitchInBytes = pitch;
                t[3] = texture(&r, cudaFilterModeLinear);
                for (unsigned k = 0; k < 20; k++)
                        look<<<dim3(WIDTH / 64, HEIGHT), 64>>>(t[0], t[1], t[2], t[3], surface, out);
                TRY(cudaMemcpy2DFromArray(host.data(), WIDTH * 4, target, 0, 0, WIDTH * 4, HEIGHT,
                                          cudaMemcpyDeviceToHost));
                for (size_t k = 0; k < WIDTH * HEIGHT; k++)
                        host[k] = (float)((int)host[k] % 1009);
                for (cudaTextureObject_t o : t)
                        TRY(cudaDestroyTextureObject(o));
                TRY(cudaDestroySurfaceObject(surface));
        }
        say("out", sum_on_card(out, WIDTH * HEIGHT));
        say("host", sum_of(host));
        TRY(cudaFreeMipmappedArray(mipmapped));
        TRY(cudaFreeArray(flat));
        TRY(cudaFreeArray(volume));
        TRY(cudaFreeArray(target));
        return done();
}
