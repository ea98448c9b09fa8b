/* module.h: modules, their kernels and variables, and libraries. */
#pragma once

#include "sim/call/objects.h"
#include "sim/ptx/ptx.h"

#define FUNCTION_SHARED_DEFAULT 49152 /* bytes of dynamic shared memory without the attribute */

struct variable {
        CUdeviceptr address;
        uint64_t bytes;
};

struct CUfunc_st {
        uint32_t magic;
        CUmodule module;
        const struct ptx_kernel *ptx;
        const struct ptx_kernel_info *info;
        int dynamic_shared_most, carveout;
};

struct CUmod_st {
        uint32_t magic;
        CUcontext context;
        struct ptx_module *ptx;
        struct CUfunc_st *function;
        struct variable *variable;
        unsigned functions, variables;
        CUlibrary library; /* the library of which the module is an instance; NULL: none */
        struct CUmod_st *next_of_context, *next_of_library;
};

/* Resolves a handle to a function of the current context. The handle may be a library's kernel. */
CUresult function_resolve(CUcontext c, CUfunction handle, CUfunction *ret_function);
CUresult module_new(CUcontext c, const char *text, size_t bytes, CUmodule *ret_module,
                    char error[static PTX_ERROR_MAX]);
/* Both functions need sim.lock, and may run only when the context's work is over. */
void module_free(CUmodule m);
void module_unload_all(CUcontext c);

/* Returns the text of an image, if that is PTX. */
CUresult image_text(const void *image, const char **ret_text, size_t *ret_bytes);
CUresult image_read(const char *path, char **ret_text);
/* Writes the error to the log buffer, if the options name one, and to stderr. */
void image_report(const char *what, const char *error, unsigned options, CUjit_option *option,
                  void **value);

/* ---- library.c ---- */
void library_forget(CUmodule m);
CUresult kernel_function(CUcontext c, CUkernel kernel, CUfunction *ret_function);
#define MAGIC_KERNEL 0x4b45524eu
