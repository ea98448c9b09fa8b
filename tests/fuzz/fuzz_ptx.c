/* fuzz_ptx.c: any text as PTX leads to an error with a sentence, or to a module whose kernels run
 * on a small memory. A kernel may change that memory as it likes, but no other memory. */
#include "fuzz.h"

#include <string.h>

#include "base/macros.h"
#include "sim/ptx/ptx.h"

#define MEMORY_BASE   UINT64_C(0x7f0000000000)
#define MEMORY_BYTES  (UINT64_C(256) << 10)
#define PARAMETER_MAX 4096u
#define TEXT_MAX      (16u << 10)
#define LOOKS         8 /* a launch may call `cancelled` so often before it is cancelled */
#define KERNELS_MAX   4
#define BLOCK         40u /* threads: a full warp and a partial one */

static uint8_t memory[MEMORY_BYTES];

struct machine {
        unsigned looks;
        uint64_t now_ns;
};

static void *resolve(void *context, uint64_t address, size_t bytes, bool write, uint64_t *ret_start,
                     uint64_t *ret_end)
{
        uint64_t offset = address - MEMORY_BASE;

        (void)context;
        (void)write;
        if (offset > MEMORY_BYTES || bytes > MEMORY_BYTES - offset)
                return NULL;
        *ret_start = MEMORY_BASE;
        *ret_end = MEMORY_BASE + MEMORY_BYTES;
        return memory + offset;
}

static uint64_t globaltimer(void *context)
{
        struct machine *m = context;

        return m->now_ns += 1000;
}

static bool cancelled(void *context)
{
        struct machine *m = context;

        return ++m->looks > LOOKS;
}

/* Places the variables in the memory's second half, because the kernels' parameters may point to
 * the first. Returns false if the memory is too small for them. */
static bool place_variables(struct ptx_module *m)
{
        const struct ptx_variable *v;
        uint64_t used = MEMORY_BYTES / 2;

        for (size_t i = 0; (v = ptx_module_variable_at(m, i)); i++) {
                used = align_up(used, MAX(v->align, UINT64_C(16)));
                if (v->bytes > MEMORY_BYTES || used > MEMORY_BYTES - v->bytes)
                        return false;
                ptx_module_place(m, i, MEMORY_BASE + used);
                used += v->bytes;
        }
        used = MEMORY_BYTES / 2;
        for (size_t i = 0; (v = ptx_module_variable_at(m, i)); i++) {
                used = align_up(used, MAX(v->align, UINT64_C(16)));
                if (v->initial)
                        memcpy(memory + used, v->initial, v->bytes);
                used += v->bytes;
        }
        return true;
}

static void run_kernel(const struct ptx_kernel *k)
{
        const struct ptx_kernel_info *info = ptx_kernel_info(k);
        struct machine machine = {0};
        const struct ptx_memory access = {.resolve = resolve,
                                          .globaltimer_ns = globaltimer,
                                          .cancelled = cancelled,
                                          .context = &machine};
        uint64_t parameters[PARAMETER_MAX / 8];
        const struct ptx_launch launch = {.grid = {2, 1, 1},
                                          .block = {MIN(BLOCK, info->max_threads), 1, 1},
                                          .dynamic_shared_bytes = 64,
                                          .parameters = parameters};
        char error[PTX_ERROR_MAX] = "";

        FUZZ_CHECK(info->name && info->name[0]);
        for (unsigned i = 0; i < info->parameters; i++)
                FUZZ_CHECK((uint64_t)info->parameter[i].offset + info->parameter[i].bytes <=
                           info->parameter_bytes);
        if (info->parameter_bytes > sizeof(parameters))
                return;
        for (size_t i = 0; i < ARRAY_SIZE(parameters); i++)
                parameters[i] = MEMORY_BASE + i * 1024 % (MEMORY_BYTES / 2);
        if (ptx_run(k, &launch, &access, error) < 0)
                FUZZ_CHECK(memchr(error, '\0', sizeof(error)) && error[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct ptx_module *m = NULL;
        char error[PTX_ERROR_MAX] = "";

        if (size > TEXT_MAX)
                return 0;
        if (ptx_parse((const char *)data, size, &m, error) < 0) {
                FUZZ_CHECK(memchr(error, '\0', sizeof(error)) && error[0]);
                return 0;
        }
        if (place_variables(m)) {
                const struct ptx_kernel *k;

                for (size_t i = 0; i < KERNELS_MAX && (k = ptx_module_kernel_at(m, i)); i++)
                        run_kernel(k);
        }
        ptx_module_free(m);
        return 0;
}
