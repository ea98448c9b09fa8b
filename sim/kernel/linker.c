/* linker.c: joins pieces of PTX into one image. It concatenates the texts, and drops the heads of
 * all but the first. Must never accept anything but PTX text. */
#include <stdlib.h>
#include <string.h>

#include "sim/call/call.h"

struct CUlinkState_st {
        char *text;
        size_t bytes;
};

EXPORT CUresult cuLinkCreate_v2(unsigned int option_count, CUjit_option *options,
                                void **option_values, CUlinkState *ret_state)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!ret_state)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_state = calloc(1, sizeof(**ret_state));
        return *ret_state ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Skips the head of a module: the lines with version, target and address size. */
static const char *skip_head(const char *text)
{
        static const char *const words[] = {".version", ".target", ".address_size"};
        const char *end = text;

        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
                const char *line = strstr(text, words[i]);

                line = line ? strchr(line, '\n') : NULL;
                if (line && line > end)
                        end = line;
        }
        return end;
}

EXPORT CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                                 const char *name, unsigned int option_count, CUjit_option *options,
                                 void **option_values)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);
        const char *text = data;
        size_t bytes;
        char *more;

        if (r != CUDA_SUCCESS)
                return r;
        if (!state || !data || size == 0)
                return CUDA_ERROR_INVALID_VALUE;
        if (type != CU_JIT_INPUT_PTX || !memchr(data, '\0', size))
                return CUDA_ERROR_NO_BINARY_FOR_GPU;
        if (state->text)
                text = skip_head(text);
        bytes = strlen(text);
        more = realloc(state->text, state->bytes + bytes + 1);
        if (!more)
                return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(more + state->bytes, text, bytes + 1);
        state->text = more;
        state->bytes += bytes;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkComplete(CUlinkState state, void **ret_cubin, size_t *ret_bytes)
{
        CUresult r = api_enter(__func__, API_CONTEXT, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!state || !ret_cubin || !state->text)
                return CUDA_ERROR_INVALID_VALUE;
        *ret_cubin = state->text;
        if (ret_bytes)
                *ret_bytes = state->bytes + 1;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuLinkDestroy(CUlinkState state)
{
        CUresult r = api_enter(__func__, API_ANY, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!state)
                return CUDA_ERROR_INVALID_VALUE;
        free(state->text);
        free(state);
        return CUDA_SUCCESS;
}
