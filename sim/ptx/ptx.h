/* ptx.h: PTX text to something that can run.
 *
 * ptx_parse() turns one module's text into an immutable ptx_module; ptx_run() executes one launch
 * of one of its kernels on the CPU, thread block by thread block, with its memory reached through
 * callbacks. No I/O, no globals; a module may be run by several threads at once. Errors are a
 * sentence with the instruction and the line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PTX_ERROR_MAX 256

struct ptx_module;
struct ptx_kernel;

/* A module-scope .global or .const variable; the caller gives it memory and says where
 * (ptx_module_place). */
struct ptx_variable {
        const char *name;
        uint64_t bytes, align;
        const uint8_t *initial; /* NULL: zeros */
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
        uint32_t max_threads; /* .maxntid, 1024 where absent */
};

/* 0, -EINVAL (with error, "line 12: unknown instruction 'foo.bar'"), -ENOMEM. text need not end
 * with a NUL. */
int ptx_parse(const char *text, size_t bytes, struct ptx_module **ret_module,
              char error[static PTX_ERROR_MAX]);
void ptx_module_free(struct ptx_module *m); /* NULL is a no-op */

const struct ptx_kernel *ptx_module_kernel(const struct ptx_module *m,
                                           const char *name); /* NULL: none */
const struct ptx_kernel *ptx_module_kernel_at(const struct ptx_module *m,
                                              size_t index); /* NULL past the last */
const struct ptx_kernel_info *ptx_kernel_info(const struct ptx_kernel *k);

const struct ptx_variable *ptx_module_variable_at(const struct ptx_module *m,
                                                  size_t index); /* NULL past the last */
/* Where variable number index lies in the device's address space. Before the first run, and for all
 * variables before any `initial` is copied, because an initial value may be another variable's
 * address. */
void ptx_module_place(struct ptx_module *m, size_t index, uint64_t address);

/* A running kernel's access to the device's global memory (and to host memory that the device may
 * use). */
struct ptx_memory {
        /* A pointer to [address, address + bytes) for reading or writing, or NULL: an illegal
         * address. The result stays valid until the launch ends, or *epoch changes. Called often:
         * the interpreter keeps the result for the range [*ret_start, *ret_end) around it (device
         * addresses; the pointer is for `address` itself). */
        void *(*resolve)(void *context, uint64_t address, size_t bytes, bool write,
                         uint64_t *ret_start, uint64_t *ret_end);
        uint64_t (*globaltimer_ns)(void *context);
        /* Polled now and then; true ends the launch with -ECANCELED (the process leaves, the device
         * is gone). */
        bool (*cancelled)(void *context);
        void *context;
        /* NULL, or a number that these callbacks change when earlier results of resolve() are no
         * longer valid; results given with the change are. */
        const uint64_t *epoch;
};

struct ptx_launch {
        uint32_t grid[3], block[3];
        uint32_t dynamic_shared_bytes;
        const void *parameters; /* parameter_bytes, laid out as ptx_kernel_info says */
};

/* Run the whole grid. 0; -EFAULT illegal address; -EINVAL bad launch shape; -ENOTSUP an instruction
 * that only the parser knows; -ECANCELED; -EDEADLK a barrier that cannot be reached; -ENOMEM;
 * -EILSEQ trap. error is filled on failure. */
int ptx_run(const struct ptx_kernel *k, const struct ptx_launch *launch,
            const struct ptx_memory *memory, char error[static PTX_ERROR_MAX]);
