/* kernel.c: owns the kernels that are loaded: for each context, those in use. */
#include "ranks/kernel/kernel.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "ranks/real/real_functions.h"

struct known {
        struct known *next;
        const char *text, *name;
        CUmodule module; /* kernels of one text have one */
        CUfunction function;
};

/* The kernels of one context. Their modules end with it, so none is unloaded. */
struct loaded {
        struct loaded *next;
        CUcontext context;
        unsigned long long id; /* 0: unknown, as with drivers before CUDA 12 */
        unsigned multiprocessors;
        struct known *kernels;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct loaded *contexts;

static void forget_kernels(struct loaded *l)
{
        while (l->kernels) {
                struct known *k = l->kernels;

                l->kernels = k->next;
                free(k);
        }
}

static CUresult find_context(struct loaded **ret)
{
        CUcontext context = NULL;
        unsigned long long id = 0;
        CUdevice device;
        int sms = 1;
        CUresult e = real_cuda()->cuCtxGetCurrent(&context);
        struct loaded *l;

        if (e == CUDA_SUCCESS && real_cuda()->cuCtxGetId(context, &id) != CUDA_SUCCESS)
                id = 0;
        for (l = contexts; l && l->context != context; l = l->next)
                continue;
        *ret = l;
        /* A new context may get the handle of one that has ended, but not its id. */
        if (e != CUDA_SUCCESS || (l && l->id == id))
                return e;
        e = real_cuda()->cuCtxGetDevice(&device);
        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuDeviceGetAttribute(
                        &sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
        if (e != CUDA_SUCCESS)
                return e;
        if (l) {
                forget_kernels(l);
        } else {
                l = calloc(1, sizeof(*l));
                if (!l)
                        return CUDA_ERROR_OUT_OF_MEMORY;
                l->next = contexts;
                contexts = l;
        }
        l->context = context;
        l->id = id;
        l->multiprocessors = (unsigned)sms;
        *ret = l;
        return CUDA_SUCCESS;
}

/* Loading is not work of a stream, so it may happen while one is captured. */
static CUresult load(const char *text, CUmodule *ret)
{
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        CUresult e = real_cuda()->cuThreadExchangeStreamCaptureMode(&mode);

        if (e == CUDA_SUCCESS) {
                e = real_cuda()->cuModuleLoadData(ret, text);
                (void)real_cuda()->cuThreadExchangeStreamCaptureMode(&mode);
        }
        return e;
}

/* Adds a kernel to those of a context. */
static CUresult add(struct loaded *l, const char *text, const char *name, struct known **ret)
{
        const struct known *same = l->kernels;
        struct known *k = calloc(1, sizeof(*k));
        CUresult e;

        if (!k)
                return CUDA_ERROR_OUT_OF_MEMORY;
        while (same && same->text != text)
                same = same->next;
        *k = (struct known){.next = l->kernels, .text = text, .name = name};
        k->module = same ? same->module : NULL;
        e = same ? CUDA_SUCCESS : load(text, &k->module);
        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuModuleGetFunction(&k->function, k->module, name);
        if (e != CUDA_SUCCESS) {
                free(k);
                return e;
        }
        *ret = l->kernels = k;
        return CUDA_SUCCESS;
}

static CUresult find(const char *text, const char *name, struct kernel *ret)
{
        struct loaded *l = NULL;
        struct known *k;
        CUresult e = find_context(&l);

        if (e != CUDA_SUCCESS)
                return e;
        for (k = l->kernels; k && (k->text != text || strcmp(k->name, name) != 0); k = k->next)
                continue;
        if (!k)
                e = add(l, text, name, &k);
        if (e == CUDA_SUCCESS)
                *ret = (struct kernel){k->function, l->multiprocessors};
        return e;
}

CUresult kernel_find(const char *text, const char *name, struct kernel *ret)
{
        CUresult e;

        (void)pthread_mutex_lock(&lock);
        e = find(text, name, ret);
        (void)pthread_mutex_unlock(&lock);
        return e;
}
