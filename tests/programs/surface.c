/* surface: calls every entry point that sublet intercepts, and checks the results. cuda_api.def
 * lists the entry points; tests/system/surface.txt lists those that are left out, and why. */
#include "surface.h"

#include <string.h>

struct playground play;

void play_fill(void)
{
        for (size_t i = 0; i < SURFACE_BYTES; i++)
                play.h[i] = (uint8_t)program_random(&play.random);
}

void play_expect(CUdeviceptr at, size_t bytes, const char *after)
{
        uint8_t got[SURFACE_BYTES];

        TRY(cu.CtxSynchronize());
        TRY(cu.MemcpyDtoH(got, at, bytes));
        if (memcmp(got, play.h, bytes) != 0)
                program_fail(PROGRAM_EXIT_WRONG, "wrong after %s", after);
}

uint32_t play_word(CUdeviceptr at)
{
        uint32_t word;

        TRY(cu.CtxSynchronize());
        TRY(cu.MemcpyDtoH(&word, at, sizeof(word)));
        return word;
}

int main(int argc, char **argv)
{
        static const struct {
                const char *name;
                void (*run)(void);
        } parts[] = {
                {"submit", submit_plain},
                {"submit per thread", submit_per_thread},
                {"modules", rest_modules},
                {"memory", rest_memory},
                {"virtual", rest_virtual},
                {"arrays", rest_arrays},
                {"graphs", rest_graphs},
                {"contexts", rest_contexts}, /* last, because it resets the primary context */
        };

        program_begin(argc, argv, &(struct options){.seed = 1}, false);
        surface_open();
        play.random = options.seed + 1;
        TRY(cu.CtxGetCurrent(&play.context));
        TRY(cu.DeviceGet(&play.device, 0));
        TRY(cu.StreamCreate(&play.s, CU_STREAM_NON_BLOCKING));
        TRY(cu.MemAlloc(&play.a, 16 * SURFACE_BYTES));
        TRY(cu.MemAlloc(&play.b, 16 * SURFACE_BYTES));
        TRY(cu.MemHostAlloc((void **)&play.h, SURFACE_BYTES, 0));
        TRY(cu.MemHostAlloc((void **)&play.h2, SURFACE_BYTES, 0));
        for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
                if (options.how && strcmp(options.how, parts[i].name) != 0)
                        continue; /* --how NAME: this part alone */
                parts[i].run();
                program_say("part", "\"name\":\"%s\"", parts[i].name);
        }
        program_say("end", "\"program\":\"surface\",\"ok\":true");
        return 0;
}
