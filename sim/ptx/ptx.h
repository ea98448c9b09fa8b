/* ptx.h: parses and runs PTX.
 *
 * ptx_parse() turns one module's text into an immutable ptx_module. ptx_run() executes one launch
 * of one of its kernels on the CPU, thread block by thread block, and reaches memory through
 * callbacks. No I/O, no globals; several threads may run a module at once. An error message is a
 * sentence with the instruction and the line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PTX_ERROR_MAX 256

struct ptx_module;
struct ptx_kernel;

/* A .global or .const variable of module scope. The caller allocates its memory, and tells the
 * address with ptx_module_place(). */
struct ptx_variable {
        const char *name;
        uint64_t bytes, align;
        const uint8_t *initial; /* initial bytes; NULL: zeros */
        bool constant;
};

struct ptx_parameter {
        uint32_t offset, bytes, align;
};

struct ptx_kernel_info {
        const char *name;
        unsigned parameters;
        const struct ptx_parameter *parameter;
        uint32_t parameter_bytes;
        uint32_t static_shared_bytes;
        uint32_t local_bytes;
        uint32_t max_threads; /* threads by .maxntid; 1024 if it is absent */
};

/* Returns 0, -ENOMEM, or -EINVAL with an error such as "line 12: foo.bar: unknown instruction".
 * text need not end with a NUL. */
int ptx_parse(const char *text, size_t bytes, struct ptx_module **ret_module,
              char error[static PTX_ERROR_MAX]);
void ptx_module_free(struct ptx_module *m); /* m may be NULL */

const struct ptx_kernel *ptx_module_kernel(const struct ptx_module *m,
                                           const char *name); /* NULL: none */
const struct ptx_kernel *ptx_module_kernel_at(const struct ptx_module *m,
                                              size_t index); /* NULL: there are fewer */
const struct ptx_kernel_info *ptx_kernel_info(const struct ptx_kernel *k);

const struct ptx_variable *ptx_module_variable_at(const struct ptx_module *m,
                                                  size_t index); /* NULL: there are fewer */
/* Sets the device address of variable number index. Must precede the first run. Set all addresses
 * before copying any `initial`, because an initial value may be another variable's address. */
void ptx_module_place(struct ptx_module *m, size_t index, uint64_t address);

/* A running kernel's access to the device's global memory (and to host memory that the device may
 * use). */
struct ptx_memory {
        /* Returns a host pointer to the device address, for so many bytes; NULL: an illegal
         * address. The interpreter keeps the result for all device addresses of [*ret_start,
         * *ret_end) around it. It must stay valid until the launch ends or *epoch changes. */
        void *(*resolve)(void *context, uint64_t address, size_t bytes, bool write,
                         uint64_t *ret_start, uint64_t *ret_end);
        uint64_t (*globaltimer_ns)(void *context);
        /* Called regularly. True ends the launch with -ECANCELED: the process exits, or the device
         * is gone. */
        bool (*cancelled)(void *context);
        void *context;
        /* NULL, or a number that the callbacks change when earlier results of resolve() become
         * invalid. A result that resolve() returns together with the change is valid. */
        const uint64_t *epoch;
};

struct ptx_launch {
        uint32_t grid[3], block[3];
        uint32_t dynamic_shared_bytes;
        const void *parameters; /* parameter_bytes, in the layout of ptx_kernel_info */
};

/* Runs the whole grid. Returns 0, -EFAULT (illegal address), -EINVAL (bad launch shape), -ENOTSUP
 * (an instruction that only the parser knows), -ECANCELED, -EDEADLK (a barrier that some threads
 * cannot reach), -ENOMEM or -EILSEQ (a trap). Fills error on failure. */
int ptx_run(const struct ptx_kernel *k, const struct ptx_launch *launch,
            const struct ptx_memory *memory, char error[static PTX_ERROR_MAX]);
