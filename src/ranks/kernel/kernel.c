/* kernel.c: owns the modules that are loaded: for each context, those of the texts in use. */
#include "ranks/kernel/kernel.h"

#include <pthread.h>
#include <stdlib.h>

#include "ranks/real/real_functions.h"

struct module {
        struct module *next;
        const char *text;
        CUmodule module;
};

/* The modules of one context. They end with it, so none is unloaded. */
struct loaded {
        struct loaded *next;
        CUcontext context;
        unsigned long long id; /* 0: unknown, as with drivers before CUDA 12 */
        unsigned multiprocessors;
        struct module *modules;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct loaded *contexts;

static void forget_modules(struct loaded *l)
{
        while (l->modules) {
                struct module *m = l->modules;

                l->modules = m->next;
                free(m);
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
                forget_modules(l);
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
static CUresult load(struct loaded *l, const char *text, struct module **ret)
{
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        struct module *m = calloc(1, sizeof(*m));
        CUresult e;

        if (!m)
                return CUDA_ERROR_OUT_OF_MEMORY;
        e = real_cuda()->cuThreadExchangeStreamCaptureMode(&mode);
        if (e == CUDA_SUCCESS) {
                e = real_cuda()->cuModuleLoadData(&m->module, text);
                (void)real_cuda()->cuThreadExchangeStreamCaptureMode(&mode);
        }
        if (e != CUDA_SUCCESS) {
                free(m);
                return e;
        }
        m->text = text;
        m->next = l->modules;
        l->modules = m;
        *ret = m;
        return CUDA_SUCCESS;
}

static CUresult find(const char *text, const char *name, struct kernel *ret)
{
        struct loaded *l = NULL;
        struct module *m;
        CUresult e = find_context(&l);

        if (e != CUDA_SUCCESS)
                return e;
        for (m = l->modules; m && m->text != text; m = m->next)
                continue;
        if (!m)
                e = load(l, text, &m);
        if (e == CUDA_SUCCESS)
                e = real_cuda()->cuModuleGetFunction(&ret->function, m->module, name);
        ret->multiprocessors = l->multiprocessors;
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
