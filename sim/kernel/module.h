/* module.h: modules, their kernels and variables, and libraries. */
#pragma once

#include "sim/call/objects.h"
#include "sim/ptx/ptx.h"

#define FUNCTION_SHARED_DEFAULT 49152 /* dynamic, until the attribute says more */

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
        CUlibrary library; /* the library that it is an instance of; NULL */
        struct CUmod_st *next_of_context, *next_of_library;
};

/* The function that a handle means in the current context: a library's kernel may stand for it. */
CUresult function_resolve(CUcontext c, CUfunction handle, CUfunction *ret_function);
CUresult module_new(CUcontext c, const char *text, size_t bytes, CUmodule *ret_module,
                    char error[static PTX_ERROR_MAX]);
/* sim.lock held; the context's work is over. */
void module_free(CUmodule m);
void module_unload_all(CUcontext c);

/* Text of an image, if it is PTX. */
CUresult image_text(const void *image, const char **ret_text, size_t *ret_bytes);
CUresult image_read(const char *path, char **ret_text);
/* Fills the error log, if the options ask for one, and prints it on stderr. */
void image_report(const char *what, const char *error, unsigned options, CUjit_option *option,
                  void **value);

/* library.c */
void library_forget(CUmodule m);
CUresult kernel_function(CUcontext c, CUkernel kernel, CUfunction *ret_function);
#define MAGIC_KERNEL 0x4b45524eu
