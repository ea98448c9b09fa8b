/* copies: makes every kind of copy and memset between two device blocks and host memory that is
 * pageable, pinned or registered. The CPU does the same on a model. */
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "program.h"

/* Two device blocks. Each has a model on the host: the contents that the block must have. */
static struct side {
        CUdeviceptr at;
        uint8_t *model;
} side[2];
static uint64_t bytes;
static uint64_t random_state;
static CUstream stream;
/* Host memory of three kinds: pageable, pinned, registered. */
static uint8_t *host[3];

static uint64_t pick(uint64_t bound)
{
        return program_random(&random_state) % bound;
}

static void host_fill(uint8_t *p, uint64_t n)
{
        for (uint64_t i = 0; i < n; i++)
                p[i] = (uint8_t)program_random(&random_state);
}

static void compare(const char *after)
{
        uint8_t *got = malloc(bytes);

        if (!got)
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        TRY(cu.StreamSynchronize(stream));
        for (unsigned i = 0; i < 2; i++) {
                TRY(cu.MemcpyDtoH(got, side[i].at, bytes));
                if (memcmp(got, side[i].model, bytes) != 0)
                        program_fail(PROGRAM_EXIT_WRONG, "block %u: wrong after %s", i, after);
        }
        free(got);
}

static void linear_copies(uint8_t *h)
{
        uint64_t n = 1 + pick(bytes / 4), from = pick(bytes - n), to = pick(bytes - n);

        host_fill(h, n);
        TRY(cu.MemcpyHtoD(side[0].at + to, h, n));
        memcpy(side[0].model + to, h, n);
        compare("cuMemcpyHtoD");

        host_fill(h, n);
        TRY(cu.MemcpyHtoDAsync(side[1].at + from, h, n, stream));
        TRY(cu.StreamSynchronize(stream));
        memcpy(side[1].model + from, h, n);
        compare("cuMemcpyHtoDAsync");

        TRY(cu.MemcpyDtoD(side[0].at + to, side[1].at + from, n));
        memcpy(side[0].model + to, side[1].model + from, n);
        compare("cuMemcpyDtoD");

        TRY(cu.MemcpyDtoDAsync(side[1].at + to, side[0].at + from, n, stream));
        memcpy(side[1].model + to, side[0].model + from, n);
        compare("cuMemcpyDtoDAsync");

        memset(h, 0, n);
        TRY(cu.MemcpyDtoH(h, side[0].at + from, n));
        if (memcmp(h, side[0].model + from, n) != 0)
                program_fail(PROGRAM_EXIT_WRONG, "wrong after cuMemcpyDtoH");
        memset(h, 0, n);
        TRY(cu.MemcpyDtoHAsync(h, side[1].at + to, n, stream));
        TRY(cu.StreamSynchronize(stream));
        if (memcmp(h, side[1].model + to, n) != 0)
                program_fail(PROGRAM_EXIT_WRONG, "wrong after cuMemcpyDtoHAsync");

        /* These copies find their direction by the addresses. */
        host_fill(h, n);
        TRY(cu.Memcpy(side[0].at + from, (CUdeviceptr)(uintptr_t)h, n));
        memcpy(side[0].model + from, h, n);
        compare("cuMemcpy");
        TRY(cu.MemcpyAsync(side[1].at + from, side[0].at + to, n, stream));
        memcpy(side[1].model + from, side[0].model + to, n);
        compare("cuMemcpyAsync");
}

static void rectangle(uint8_t *to, uint64_t to_pitch, const uint8_t *from, uint64_t from_pitch,
                      uint64_t width, uint64_t height)
{
        for (uint64_t y = 0; y < height; y++)
                memcpy(to + y * to_pitch, from + y * from_pitch, width);
}

static void pitched_copies(uint8_t *h)
{
        uint64_t pitch = 512, host_pitch = 640, width = 1 + pick(500), height = 1 + pick(20);
        CUDA_MEMCPY2D in = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                            .srcHost = h,
                            .srcPitch = host_pitch,
                            .srcXInBytes = 3,
                            .srcY = 1,
                            .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                            .dstDevice = side[0].at,
                            .dstPitch = pitch,
                            .dstXInBytes = 7,
                            .dstY = 2,
                            .WidthInBytes = width,
                            .Height = height};
        CUDA_MEMCPY2D across = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                                .srcDevice = side[0].at,
                                .srcPitch = pitch,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = side[1].at,
                                .dstPitch = 2 * pitch,
                                .dstY = 1,
                                .WidthInBytes = width,
                                .Height = height};
        CUDA_MEMCPY2D out = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = side[1].at,
                             .srcPitch = 2 * pitch,
                             .dstMemoryType = CU_MEMORYTYPE_HOST,
                             .dstHost = h,
                             .dstPitch = host_pitch,
                             .WidthInBytes = width,
                             .Height = height};
        CUDA_MEMCPY3D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                             .srcDevice = side[1].at,
                             .srcPitch = pitch,
                             .srcHeight = 8,
                             .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                             .dstDevice = side[0].at,
                             .dstPitch = pitch,
                             .dstHeight = 10,
                             .WidthInBytes = width,
                             .Height = 6,
                             .Depth = 3};

        host_fill(h, host_pitch * (height + 1));
        TRY(cu.Memcpy2D(&in));
        rectangle(side[0].model + 2 * pitch + 7, pitch, h + host_pitch + 3, host_pitch, width,
                  height);
        compare("cuMemcpy2D");
        TRY(cu.Memcpy2DAsync(&across, stream));
        rectangle(side[1].model + 2 * pitch, 2 * pitch, side[0].model, pitch, width, height);
        compare("cuMemcpy2DAsync");
        TRY(cu.Memcpy2DUnaligned(&out));
        for (uint64_t y = 0; y < height; y++)
                if (memcmp(h + y * host_pitch, side[1].model + y * 2 * pitch, width) != 0)
                        program_fail(PROGRAM_EXIT_WRONG, "wrong after cuMemcpy2DUnaligned");
        TRY(cu.Memcpy3D(&box));
        for (uint64_t z = 0; z < 3; z++)
                rectangle(side[0].model + z * 10 * pitch, pitch, side[1].model + z * 8 * pitch,
                          pitch, width, 6);
        compare("cuMemcpy3D");
}

static void model_set(uint8_t *at, uint32_t value, unsigned size, uint64_t n)
{
        for (uint64_t i = 0; i < n; i++)
                memcpy(at + i * size, &value, size); /* little-endian, as on the device */
}

static void model_set_2d(uint8_t *at, uint64_t pitch, uint32_t value, unsigned size, uint64_t n,
                         uint64_t height)
{
        for (uint64_t y = 0; y < height; y++)
                model_set(at + y * pitch, value, size, n);
}

static void sets(void)
{
        uint64_t n = 1 + pick(bytes / 8), at = pick(bytes - 4 * n) & ~UINT64_C(3);
        uint64_t pitch = 768, width = 1 + pick(100), height = 1 + pick(12);
        uint32_t v = (uint32_t)pick(UINT32_MAX);
        CUdeviceptr a = side[0].at + at, b = side[1].at + at;
        uint8_t *ma = side[0].model + at, *mb = side[1].model + at;

        TRY(cu.MemsetD8(a, (uint8_t)v, n));
        model_set(ma, v, 1, n);
        TRY(cu.MemsetD8Async(b, (uint8_t)v, n / 2, stream));
        model_set(mb, v, 1, n / 2);
        compare("cuMemsetD8");
        TRY(cu.MemsetD16(a, (uint16_t)(v >> 3), n));
        model_set(ma, v >> 3, 2, n);
        TRY(cu.MemsetD16Async(b, (uint16_t)(v >> 5), n / 2, stream));
        model_set(mb, v >> 5, 2, n / 2);
        compare("cuMemsetD16");
        TRY(cu.MemsetD32(a, v, n));
        model_set(ma, v, 4, n);
        TRY(cu.MemsetD32Async(b, ~v, n / 2, stream));
        model_set(mb, ~v, 4, n / 2);
        compare("cuMemsetD32");

        TRY(cu.MemsetD2D8(side[0].at, pitch, (uint8_t)v, width, height));
        model_set_2d(side[0].model, pitch, v, 1, width, height);
        TRY(cu.MemsetD2D16(side[1].at, pitch, (uint16_t)v, width, height));
        model_set_2d(side[1].model, pitch, v, 2, width, height);
        compare("cuMemsetD2D8, 16");
        TRY(cu.MemsetD2D32(side[0].at, pitch, v, width, height));
        model_set_2d(side[0].model, pitch, v, 4, width, height);
        TRY(cu.MemsetD2D8Async(side[1].at, pitch, (uint8_t)~v, width, height, stream));
        model_set_2d(side[1].model, pitch, ~v, 1, width, height);
        compare("cuMemsetD2D32, cuMemsetD2D8Async");
        TRY(cu.MemsetD2D16Async(side[0].at, pitch, (uint16_t)~v, width, height, stream));
        model_set_2d(side[0].model, pitch, ~v, 2, width, height);
        TRY(cu.MemsetD2D32Async(side[1].at, pitch, ~v, width, height, stream));
        model_set_2d(side[1].model, pitch, ~v, 4, width, height);
        compare("cuMemsetD2D16Async, cuMemsetD2D32Async");
}

/* Checks that questions about a pointer are answered as for ordinary memory. */
static void queries(void)
{
        CUdeviceptr base, pitched;
        size_t size, pitch;
        unsigned type = 0;

        TRY(cu.MemGetAddressRange(&base, &size, side[0].at + 12345));
        if (base != side[0].at || size != bytes)
                program_fail(PROGRAM_EXIT_WRONG, "cuMemGetAddressRange: %#llx, %zu", base, size);
        TRY(cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, side[0].at + 1));
        if (type != CU_MEMORYTYPE_DEVICE)
                program_fail(PROGRAM_EXIT_WRONG, "cuPointerGetAttribute: memory type %u", type);
        TRY(cu.MemAllocPitch(&pitched, &pitch, 1000, 16, 4));
        if (pitch < 1000 || pitch % 256)
                program_fail(PROGRAM_EXIT_WRONG, "cuMemAllocPitch: pitch %zu", pitch);
        TRY(cu.MemsetD2D8(pitched, pitch, 1, 1000, 16));
        TRY(cu.MemFree(pitched));
        /* The product of pitch and height overflows, but neither is more than a large card has. */
        TRY(cu.DeviceTotalMem(&size, 0));
        pitch = (size_t)1 << (63 - __builtin_clzll(size));
        if (cu.MemAllocPitch(&pitched, &pitch, pitch, UINT64_MAX / pitch + 1, 4) == CUDA_SUCCESS)
                program_fail(PROGRAM_EXIT_WRONG, "cuMemAllocPitch: more than there can be");
}

int main(int argc, char **argv)
{
        uint64_t round = 0;

        program_begin(argc, argv, &(struct options){.bytes = 2 * MIB, .rounds = 4}, false);
        bytes = MAX(options.bytes / 2, 128 * KIB);
        random_state = options.seed + 1;
        TRY(cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        host[0] = malloc(bytes);
        TRY(cu.MemHostAlloc((void **)&host[1], bytes, 0));
        host[2] = aligned_alloc(4096, bytes);
        if (!host[0] || !host[2])
                program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
        TRY(cu.MemHostRegister(host[2], bytes, 0));
        for (unsigned i = 0; i < 2; i++) {
                side[i].model = calloc(1, bytes);
                if (!side[i].model)
                        program_fail(PROGRAM_EXIT_SETUP, "out of host memory");
                TRY(cu.MemAlloc(&side[i].at, bytes));
                TRY(cu.MemsetD8(side[i].at, 0, bytes));
        }
        for (; program_more(round); round++) {
                for (unsigned i = 0; i < 3; i++) {
                        linear_copies(host[i]);
                        pitched_copies(host[i]);
                }
                sets();
                queries();
        }
        program_say("copied", "\"rounds\":%llu", (unsigned long long)round);
        TRY(cu.MemHostUnregister(host[2]));
        TRY(cu.MemFreeHost(host[1]));
        free(host[0]);
        free(host[2]);
        for (unsigned i = 0; i < 2; i++) {
                TRY(cu.MemFree(side[i].at));
                free(side[i].model);
        }
        TRY(cu.StreamDestroy(stream));
        program_end();
}
