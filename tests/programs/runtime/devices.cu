/* devices: every device that the runtime sees, one after the other and then all again: its context
 * is the current device's, and memory and kernels of one device do not touch another one's. Prints
 * sums that do not depend on the number of devices. */
#include "runtime.cuh"

#define WORDS (1 << 16)

static void expect(int got, int wanted, const char *what)
{
        if (got == wanted)
                return;
        (void)fprintf(stderr, "%s: %d, not %d\n", what, got, wanted);
        _exit(1);
}

static void check(uint32_t *at, int device, uint64_t *sum)
{
        cudaPointerAttributes a;
        int now = -1;
        uint64_t s;

        TRY(cudaSetDevice(device));
        TRY(cudaGetDevice(&now));
        expect(now, device, "the current device");
        TRY(cudaPointerGetAttributes(&a, at));
        expect(a.device, device, "the pointer's device");
        step<<<32, 128>>>(at, WORDS, 1);
        TRY(cudaDeviceSynchronize());
        s = sum_on_card(at, WORDS);
        if (*sum && s != *sum)
                fail("the sums of two devices differ");
        *sum = s;
}

int main(void)
{
        std::vector<uint32_t *> at;
        uint64_t first = 0, second = 0;
        int n = 0;

        TRY(cudaGetDeviceCount(&n));
        for (int d = n - 1; d >= 0; d--) {
                uint32_t *p;

                TRY(cudaSetDevice(d));
                TRY(cudaMalloc(&p, WORDS * 4));
                fill<<<32, 128>>>(p, WORDS, 5);
                at.insert(at.begin(), p);
        }
        for (int d = 0; d < n; d++)
                check(at[d], d, &first);
        for (int d = 0; d < n; d++)
                check(at[d], d, &second);
        say("first", first);
        say("second", second);
        TRY(cudaSetDevice(0));
        return done();
}
