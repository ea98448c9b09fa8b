/* ptx_machine.h: memory for kernels to run on, for the tests of src/ptx. */
#pragma once

#include "unit.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>

#include "sim/ptx/ptx.h"

#define MACHINE_BASE  UINT64_C(0x7f0000000000)
#define MACHINE_BYTES (UINT64_C(8) << 20)

struct machine {
        uint8_t *memory;
        uint64_t used;
        struct ptx_module *module;
        char error[PTX_ERROR_MAX];
        bool (*cancelled)(void *context);
};

static inline void *machine_resolve(void *context, uint64_t address, size_t bytes, bool write,
                                    uint64_t *ret_start, uint64_t *ret_end)
{
        struct machine *m = context;
        uint64_t offset = address - MACHINE_BASE;

        if (address < MACHINE_BASE || offset > MACHINE_BYTES || bytes > MACHINE_BYTES - offset)
                return NULL;
        *ret_start = MACHINE_BASE;
        *ret_end = MACHINE_BASE + MACHINE_BYTES;
        return m->memory + offset;
}

static inline char *machine_file(const char *folder, const char *name, size_t *ret_bytes)
{
        char path[512], *text;
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
        f = fopen(path, "re");
        if (!f)
                fail_msg("%s: %s", path, strerror(errno));
        text = malloc(1 << 20);
        assert_non_null(text);
        *ret_bytes = fread(text, 1, 1 << 20, f);
        (void)fclose(f);
        return text;
}

static inline char *machine_text(const char *name, size_t *ret_bytes)
{
        const char *source = getenv("SUBLET_SOURCE");
        char folder[256];

        assert_non_null(source);
        (void)snprintf(folder, sizeof(folder), "%s/tests/unit/ptx", source);
        return machine_file(folder, name, ret_bytes);
}

static inline uint64_t machine_allocate(struct machine *m, uint64_t bytes)
{
        uint64_t at = m->used;

        m->used += (bytes + 511) & ~UINT64_C(511);
        assert_true(m->used <= MACHINE_BYTES);
        return MACHINE_BASE + at;
}

static inline void *machine_at(const struct machine *m, uint64_t address)
{
        return m->memory + (address - MACHINE_BASE);
}

static inline void machine_load(struct machine *m, const char *text, size_t bytes)
{
        const struct ptx_variable *v;

        *m = (struct machine){.memory = aligned_alloc(4096, MACHINE_BYTES)};
        assert_non_null(m->memory);
        memset(m->memory, 0, MACHINE_BYTES);
        if (ptx_parse(text, bytes, &m->module, m->error) < 0)
                fail_msg("%s", m->error);
        for (size_t i = 0; ptx_module_variable_at(m->module, i); i++)
                ptx_module_place(m->module, i,
                                 machine_allocate(m, ptx_module_variable_at(m->module, i)->bytes));
        /* The variables were allocated in this order, so this finds the same addresses again. */
        m->used = 0;
        for (size_t i = 0; (v = ptx_module_variable_at(m->module, i)); i++) {
                uint64_t at = machine_allocate(m, v->bytes);

                if (v->initial)
                        memcpy(machine_at(m, at), v->initial, v->bytes);
        }
}

static inline void machine_open(struct machine *m, const char *fixture)
{
        size_t bytes;
        char *text = machine_text(fixture, &bytes);

        machine_load(m, text, bytes);
        free(text);
}

/* Loads a text of the library, or the file that test_kernels.py has had another compiler make. */
static inline void machine_open_embedded(struct machine *m, const char *file, const char *embedded)
{
        const char *folder = getenv("SUBLET_KERNELS");
        size_t bytes = strlen(embedded);
        char *made = folder ? machine_file(folder, file, &bytes) : NULL;

        machine_load(m, made ? made : embedded, bytes);
        free(made);
}

static inline void machine_close(struct machine *m)
{
        ptx_module_free(m->module);
        free(m->memory);
}

static inline bool machine_cancelled(void *context)
{
        struct machine *m = context;

        return m->cancelled && m->cancelled(m);
}

/* Runs a kernel. parameters: a struct with the layout of the kernel's parameters. */
static inline int machine_try(struct machine *m, const char *kernel, unsigned grid, unsigned block,
                              unsigned shared, const void *parameters)
{
        const struct ptx_memory memory = {
                .resolve = machine_resolve, .cancelled = machine_cancelled, .context = m};
        const struct ptx_launch launch = {.grid = {grid, 1, 1},
                                          .block = {block, 1, 1},
                                          .dynamic_shared_bytes = shared,
                                          .parameters = parameters};
        const struct ptx_kernel *k = ptx_module_kernel(m->module, kernel);

        if (!k)
                fail_msg("no kernel '%s'", kernel);
        return ptx_run(k, &launch, &memory, m->error);
}

static inline void machine_run(struct machine *m, const char *kernel, unsigned grid, unsigned block,
                               unsigned shared, const void *parameters)
{
        if (machine_try(m, kernel, grid, block, shared, parameters) != 0)
                fail_msg("%s: %s", kernel, m->error);
}

/* splitmix64: gives the same numbers on every machine. */
static inline uint64_t machine_random(uint64_t *state)
{
        uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

        x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
        return x ^ x >> 31;
}

/* Does something with a machine that has loaded what nvcc makes of a fixture. */
#define WITH_FIXTURE(fixture, m, ...)                  \
        {                                              \
                struct machine m;                      \
                                                       \
                machine_open(&m, fixture ".sm90.ptx"); \
                __VA_ARGS__                            \
                machine_close(&m);                     \
        }

static inline void same_float(float have, float want, unsigned i, unsigned k)
{
        if (memcmp(&have, &want, sizeof(have)) != 0 && !(isnan(have) && isnan(want)))
                fail_msg("input %u, result %u: %a, not %a", i, k, (double)have, (double)want);
}

static inline void same_double(double have, double want, unsigned i, unsigned k)
{
        if (memcmp(&have, &want, sizeof(have)) != 0 && !(isnan(have) && isnan(want)))
                fail_msg("input %u, result %u: %a, not %a", i, k, have, want);
}

static inline void same_integer(int64_t have, int64_t want, unsigned i, unsigned k)
{
        if (have != want)
                fail_msg("input %u, result %u: %llx, not %llx", i, k, (unsigned long long)have,
                         (unsigned long long)want);
}
