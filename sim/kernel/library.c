/* library.c: libraries, whose PTX becomes a module in each context that uses it. */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "sim/kernel/module.h"
#include "sim/queue/stream.h"

struct CUkern_st {
        uint32_t magic;
        CUlibrary library;
        char *name;
        struct CUkern_st *next;
};

struct CUlib_st {
        uint32_t magic;
        char *text;
        size_t bytes;
        struct CUkern_st *kernels;
        struct CUmod_st *modules; /* list with one module per context */
        struct CUlib_st *next, **link;
};

static struct CUlib_st *library_all;

void library_forget(CUmodule m)
{
        struct CUmod_st **p = &m->library->modules;

        while (*p && *p != m)
                p = &(*p)->next_of_library;
        if (*p)
                *p = m->next_of_library;
}

static CUresult library_module(CUcontext c, CUlibrary l, CUmodule *ret_module)
{
        char error[PTX_ERROR_MAX];
        CUmodule m;
        CUresult r;

        pthread_mutex_lock(&sim.lock);
        c = context_owner(c);
        for (m = l->modules; m && m->context != c; m = m->next_of_library)
                ;
        pthread_mutex_unlock(&sim.lock);
        if (!m) {
                r = module_new(c, l->text, l->bytes, &m, error);
                if (r != CUDA_SUCCESS)
                        return r;
                pthread_mutex_lock(&sim.lock);
                m->library = l;
                m->next_of_library = l->modules;
                l->modules = m;
                pthread_mutex_unlock(&sim.lock);
        }
        *ret_module = m;
        return CUDA_SUCCESS;
}

static CUresult library_load(const char *function, const void *code, unsigned options,
                             CUjit_option *option, void **value, CUlibrary *ret_library)
{
        char error[PTX_ERROR_MAX] = "";
        struct ptx_module *parsed;
        const char *text;
        size_t bytes;
        CUlibrary l;
        CUresult r = image_text(code, &text, &bytes);

        if (r != CUDA_SUCCESS)
                return r;
        /* Errors are reported now, not at the first use. */
        if (ptx_parse(text, bytes, &parsed, error) < 0) {
                image_report(function, error, options, option, value);
                return CUDA_ERROR_INVALID_PTX;
        }
        l = calloc(1, sizeof(*l));
        if (!l) {
                ptx_module_free(parsed);
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        l->magic = MAGIC_LIBRARY;
        l->bytes = bytes;
        l->text = strdup(text);
        for (size_t i = 0; ptx_module_kernel_at(parsed, i); i++) {
                struct CUkern_st *k = calloc(1, sizeof(*k));

                if (!k)
                        break;
                k->magic = MAGIC_KERNEL;
                k->library = l;
                k->name = strdup(ptx_kernel_info(ptx_module_kernel_at(parsed, i))->name);
                k->next = l->kernels;
                l->kernels = k;
        }
        ptx_module_free(parsed);
        pthread_mutex_lock(&sim.lock);
        l->next = library_all;
        l->link = &library_all;
        if (l->next)
                l->next->link = &l->next;
        library_all = l;
        pthread_mutex_unlock(&sim.lock);
        *ret_library = l;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit_options,
                                  void **jit_options_values, unsigned int jit_option_count,
                                  CUlibraryOption *library_options, void **library_option_values,
                                  unsigned int library_option_count)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!library)
                return CUDA_ERROR_INVALID_VALUE;
        return library_load(__func__, code, jit_option_count, jit_options, jit_options_values,
                            library);
}

EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path,
                                      CUjit_option *jit_options, void **jit_options_values,
                                      unsigned int jit_option_count,
                                      CUlibraryOption *library_options,
                                      void **library_option_values,
                                      unsigned int library_option_count)
{
        _cleanup_free_ char *text = NULL;
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!library)
                return CUDA_ERROR_INVALID_VALUE;
        r = image_read(path, &text);
        return r != CUDA_SUCCESS ? r
                                 : library_load(__func__, text, jit_option_count, jit_options,
                                                jit_options_values, library);
}

static bool library_valid(CUlibrary l)
{
        return l && l->magic == MAGIC_LIBRARY;
}

EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!library_valid(library))
                return CUDA_ERROR_INVALID_HANDLE;
        pthread_mutex_lock(&sim.lock);
        while (library->modules) {
                CUmodule m = library->modules;
                struct CUmod_st **p = &m->context->modules;
                CUcontext c = m->context;

                pthread_mutex_unlock(&sim.lock);
                (void)context_wait(c);
                pthread_mutex_lock(&sim.lock);
                if (library->modules != m)
                        continue;
                while (*p && *p != m)
                        p = &(*p)->next_of_context;
                if (*p)
                        *p = m->next_of_context;
                module_free(m);
        }
        *library->link = library->next;
        if (library->next)
                library->next->link = library->link;
        pthread_mutex_unlock(&sim.lock);
        while (library->kernels) {
                struct CUkern_st *k = library->kernels;

                library->kernels = k->next;
                k->magic = 0;
                free(k->name);
                free(k);
        }
        library->magic = 0;
        free(library->text);
        free(library);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryGetKernel(CUkernel *ret_kernel, CUlibrary library, const char *name)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_kernel || !name)
                return CUDA_ERROR_INVALID_VALUE;
        if (!library_valid(library))
                return CUDA_ERROR_INVALID_HANDLE;
        for (struct CUkern_st *k = library->kernels; k; k = k->next)
                if (strcmp(k->name, name) == 0) {
                        *ret_kernel = k;
                        return CUDA_SUCCESS;
                }
        return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary library)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!count || !library_valid(library))
                return CUDA_ERROR_INVALID_VALUE;
        *count = 0;
        for (struct CUkern_st *k = library->kernels; k; k = k->next)
                ++*count;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryGetModule(CUmodule *ret_mod, CUlibrary library)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_mod)
                return CUDA_ERROR_INVALID_VALUE;
        return library_valid(library) ? library_module(c, library, ret_mod)
                                      : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *ret_ptr, size_t *bytes, CUlibrary library,
                                   const char *name)
{
        CUmodule m;
        CUresult r = cuLibraryGetModule(&m, library);

        return r != CUDA_SUCCESS ? r : cuModuleGetGlobal_v2(ret_ptr, bytes, m, name);
}

/* The interpreter accepts no PTX with managed variables. */
EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *ret_ptr, size_t *bytes, CUlibrary library,
                                    const char *name)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!name)
                return CUDA_ERROR_INVALID_VALUE;
        return library_valid(library) ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_HANDLE;
}

CUresult kernel_function(CUcontext c, CUkernel kernel, CUfunction *ret_function)
{
        CUmodule m;
        CUresult r;

        if (!kernel || kernel->magic != MAGIC_KERNEL)
                return CUDA_ERROR_INVALID_HANDLE;
        r = library_module(c, kernel->library, &m);
        return r != CUDA_SUCCESS ? r : cuModuleGetFunction(ret_function, m, kernel->name);
}

EXPORT CUresult cuKernelGetFunction(CUfunction *ret_func, CUkernel kernel)
{
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        return ret_func ? kernel_function(c, kernel, ret_func) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuKernelGetLibrary(CUlibrary *ret_lib, CUkernel kernel)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_lib || !kernel || kernel->magic != MAGIC_KERNEL)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_lib = kernel->library;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetName(const char **name, CUkernel func)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!name || !func || func->magic != MAGIC_KERNEL)
                return CUDA_ERROR_INVALID_VALUE;
        *name = func->name;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuKernelGetAttribute(int *ret_value, CUfunction_attribute attribute,
                                     CUkernel kernel, CUdevice device)
{
        CUresult r = device_check(device);

        return r != CUDA_SUCCESS
                       ? r
                       : cuFuncGetAttribute(ret_value, attribute, (CUfunction)(void *)kernel);
}

EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int val, CUkernel kernel,
                                     CUdevice device)
{
        CUresult r = device_check(device);

        return r != CUDA_SUCCESS ? r
                                 : cuFuncSetAttribute((CUfunction)(void *)kernel, attribute, val);
}
