/* module.c: modules from PTX text. Machine code is refused: the interpreter cannot run it. */
#include "sim/kernel/module.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "sim/memory/memory.h"
#include "sim/queue/stream.h"

#define FATBIN_WRAPPER 0x466243b1u
#define FATBIN         0xba55ed50u

CUresult image_text(const void *image, const char **ret_text, size_t *ret_bytes)
{
        const char *text = image;
        uint32_t magic;

        if (!image)
                return CUDA_ERROR_INVALID_VALUE;
        memcpy(&magic, image, sizeof(magic));
        if (magic == FATBIN_WRAPPER || magic == FATBIN || memcmp(image, "\177ELF", 4) == 0)
                return CUDA_ERROR_NO_BINARY_FOR_GPU;
        while (isspace((unsigned char)*text))
                text++;
        if (*text != '.' && *text != '/')
                return CUDA_ERROR_INVALID_IMAGE;
        *ret_text = image;
        *ret_bytes = strlen(image);
        return CUDA_SUCCESS;
}

CUresult image_read(const char *path, char **ret_text)
{
        _cleanup_fclose_ FILE *f = path ? fopen(path, "re") : NULL;
        _cleanup_free_ char *text = NULL;
        long bytes;

        if (!path)
                return CUDA_ERROR_INVALID_VALUE;
        if (!f || fseek(f, 0, SEEK_END) < 0)
                return CUDA_ERROR_FILE_NOT_FOUND;
        bytes = ftell(f);
        rewind(f);
        text = bytes < 0 ? NULL : malloc((size_t)bytes + 4);
        if (!text)
                return CUDA_ERROR_OUT_OF_MEMORY;
        if (fread(text, 1, (size_t)bytes, f) != (size_t)bytes)
                return CUDA_ERROR_FILE_NOT_FOUND;
        memset(text + bytes, 0, 4);
        *ret_text = TAKE_PTR(text);
        return CUDA_SUCCESS;
}

void image_report(const char *what, const char *error, unsigned options, CUjit_option *option,
                  void **value)
{
        char *log = NULL;
        size_t room = 0;

        sim_say("%s: %s", what, error);
        for (unsigned i = 0; i < options; i++) {
                if (option[i] == CU_JIT_ERROR_LOG_BUFFER)
                        log = value[i];
                else if (option[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
                        room = (size_t)(uintptr_t)value[i];
        }
        if (log && room)
                (void)snprintf(log, room, "%s", error);
}

void module_free(CUmodule m)
{
        if (m->library)
                library_forget(m);
        for (unsigned i = 0; i < m->variables; i++)
                if (m->variable[i].address)
                        (void)memory_free(m->variable[i].address);
        for (unsigned i = 0; i < m->functions; i++)
                m->function[i].magic = 0;
        ptx_module_free(m->ptx);
        free(m->variable);
        free(m->function);
        m->magic = 0;
        free(m);
}

void module_unload_all(CUcontext c)
{
        while (c->modules) {
                CUmodule m = c->modules;

                c->modules = m->next_of_context;
                module_free(m);
        }
}

/* Allocates memory for the module's variables, with their initial values. */
static CUresult variables_place(CUmodule m)
{
        for (unsigned i = 0; i < m->variables; i++) {
                const struct ptx_variable *v = ptx_module_variable_at(m->ptx, i);
                struct range *range;
                CUresult r;

                m->variable[i].bytes = v->bytes;
                r = memory_allocate(m->context, MAX(v->bytes, UINT64_C(1)),
                                    &m->variable[i].address);
                if (r != CUDA_SUCCESS)
                        return r;
                ptx_module_place(m->ptx, i, m->variable[i].address);
                range = space_pin(m->variable[i].address, m->context->device, true);
                if (!range)
                        return CUDA_ERROR_UNKNOWN;
                if (v->initial)
                        memcpy(range->at + (m->variable[i].address - range->span.start), v->initial,
                               v->bytes);
                else
                        memset(range->at + (m->variable[i].address - range->span.start), 0,
                               v->bytes);
                space_unpin(range);
        }
        return CUDA_SUCCESS;
}

CUresult module_new(CUcontext c, const char *text, size_t bytes, CUmodule *ret_module,
                    char error[static PTX_ERROR_MAX])
{
        CUmodule m = calloc(1, sizeof(*m));
        CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
        int r;

        if (!m)
                return CUDA_ERROR_OUT_OF_MEMORY;
        m->magic = MAGIC_MODULE;
        c = context_owner(c);
        m->context = c;
        r = ptx_parse(text, bytes, &m->ptx, error);
        if (r < 0) {
                free(m);
                return r == -ENOMEM ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_PTX;
        }
        while (ptx_module_kernel_at(m->ptx, m->functions))
                m->functions++;
        while (ptx_module_variable_at(m->ptx, m->variables))
                m->variables++;
        m->function = calloc(MAX(m->functions, 1u), sizeof(*m->function));
        m->variable = calloc(MAX(m->variables, 1u), sizeof(*m->variable));
        if (!m->function || !m->variable)
                goto free_module;
        for (unsigned i = 0; i < m->functions; i++) {
                const struct ptx_kernel *k = ptx_module_kernel_at(m->ptx, i);

                m->function[i] = (struct CUfunc_st){.magic = MAGIC_FUNCTION,
                                                    .module = m,
                                                    .ptx = k,
                                                    .info = ptx_kernel_info(k),
                                                    .dynamic_shared_most = FUNCTION_SHARED_DEFAULT,
                                                    .carveout = -1};
        }
        result = variables_place(m);
        if (result != CUDA_SUCCESS)
                goto free_module;
        pthread_mutex_lock(&sim.lock);
        m->next_of_context = c->modules;
        c->modules = m;
        pthread_mutex_unlock(&sim.lock);
        *ret_module = m;
        return CUDA_SUCCESS;

free_module:
        module_free(m);
        return result;
}

/* ---- modules ---- */

/* CUDA may wait for a context's work when it loads kernels; SIMCUDA_LOAD_WAITS=1 has it do so. */
static bool load_waits(void)
{
        const char *setting = getenv("SIMCUDA_LOAD_WAITS");

        return setting && strcmp(setting, "1") == 0;
}

static CUresult module_load(const char *function, const void *image, unsigned options,
                            CUjit_option *option, void **value, CUmodule *ret_module)
{
        char error[PTX_ERROR_MAX] = "";
        const char *text;
        size_t bytes;
        CUcontext c;
        CUresult r = api_enter(function, API_CONTEXT, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_module)
                return CUDA_ERROR_INVALID_VALUE;
        r = image_text(image, &text, &bytes);
        if (r == CUDA_SUCCESS && load_waits())
                r = context_wait(c);
        if (r != CUDA_SUCCESS)
                return r;
        r = module_new(c, text, bytes, ret_module, error);
        if (r == CUDA_ERROR_INVALID_PTX)
                image_report(function, error, options, option, value);
        return r;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
        return module_load(__func__, image, 0, NULL, NULL, module);
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int option_count,
                                   CUjit_option *options, void **option_values)
{
        return module_load(__func__, image, option_count, options, option_values, module);
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image)
{
        return module_load(__func__, image, 0, NULL, NULL, module);
}

EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
        _cleanup_free_ char *text = NULL;
        CUresult r = api_enter("cuModuleLoad", API_CONTEXT, NULL);

        if (r == CUDA_SUCCESS)
                r = image_read(path, &text);
        return r != CUDA_SUCCESS ? r : module_load("cuModuleLoadData", text, 0, NULL, NULL, module);
}

EXPORT CUresult cuModuleUnload(CUmodule module)
{
        struct CUmod_st **p;
        CUcontext c;
        CUresult r = api_enter(__func__, API_CONTEXT | API_UNSAFE, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (!module || module->magic != MAGIC_MODULE || module->library)
                return CUDA_ERROR_INVALID_HANDLE;
        r = context_wait(module->context); /* kernels of the module may be running */
        if (r != CUDA_SUCCESS)
                return r;
        pthread_mutex_lock(&sim.lock);
        for (p = &module->context->modules; *p && *p != module; p = &(*p)->next_of_context)
                ;
        if (*p)
                *p = module->next_of_context;
        module_free(module);
        pthread_mutex_unlock(&sim.lock);
        return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetFunction(CUfunction *func, CUmodule module, const char *name)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!func || !name)
                return CUDA_ERROR_INVALID_VALUE;
        if (!module || module->magic != MAGIC_MODULE)
                return CUDA_ERROR_INVALID_HANDLE;
        for (unsigned i = 0; i < module->functions; i++)
                if (strcmp(module->function[i].info->name, name) == 0) {
                        *func = &module->function[i];
                        return CUDA_SUCCESS;
                }
        return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule module)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!count || !module || module->magic != MAGIC_MODULE)
                return CUDA_ERROR_INVALID_VALUE;
        *count = module->functions;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int function_count,
                                           CUmodule module)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!functions || !module || module->magic != MAGIC_MODULE)
                return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < MIN(function_count, module->functions); i++)
                functions[i] = &module->function[i];
        return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *ret_ptr, size_t *bytes, CUmodule module,
                                     const char *name)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!name || (!ret_ptr && !bytes))
                return CUDA_ERROR_INVALID_VALUE;
        if (!module || module->magic != MAGIC_MODULE)
                return CUDA_ERROR_INVALID_HANDLE;
        for (unsigned i = 0; i < module->variables; i++) {
                if (strcmp(ptx_module_variable_at(module->ptx, i)->name, name) != 0)
                        continue;
                if (ret_ptr)
                        *ret_ptr = module->variable[i].address;
                if (bytes)
                        *bytes = module->variable[i].bytes;
                return CUDA_SUCCESS;
        }
        return CUDA_ERROR_NOT_FOUND;
}

EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!mode)
                return CUDA_ERROR_INVALID_VALUE;
        *mode = CU_MODULE_EAGER_LOADING;
        return CUDA_SUCCESS;
}
