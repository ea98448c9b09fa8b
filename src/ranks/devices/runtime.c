/* runtime.c: owns the answers to the runtime library's private question. Must never write to memory
 * that no longer holds the answer. Nothing documents the table: what is known of it was seen in the
 * runtime library of CUDA 13.0. */
#include "ranks/devices/runtime.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/macros.h"
#include "ranks/devices/cards.h"

#define ANSWERS_MAX 512

/* The table's first word is its size in bytes; its third is this function. */
#define PRIMARY 2
typedef CUresult primary_fn(CUcontext *ret, CUdevice device);

static const unsigned char table_id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                           0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};

static struct {
        pthread_mutex_t lock;
        uintptr_t copy[64]; /* of the driver's table */
        primary_fn *real;
        unsigned n;
        struct answer {
                CUcontext *at, last;
                CUdevice device;
        } answers[ANSWERS_MAX];
} runtime = {.lock = PTHREAD_MUTEX_INITIALIZER};

static char names[DEVICES_MAX][8];

bool runtime_is_name(CUcontext ctx)
{
        return (uintptr_t)ctx - (uintptr_t)names < sizeof(names);
}

/* True if the program has another device on the card of this one. */
static bool has_twin(CUdevice device)
{
        for (CUdevice d = 0; d < (CUdevice)devices_count(); d++)
                if (d != device && devices_share(d, device))
                        return true;
        return false;
}

static CUresult find_primary(CUcontext *ret, CUdevice device)
{
        CUcontext name;
        bool noted;

        if (!ret || !devices_identity(device) || !has_twin(device) ||
            devices_first(device) == device)
                return runtime.real(ret, devices_card(device));
        name = (CUcontext)(void *)names[device];
        (void)pthread_mutex_lock(&runtime.lock);
        noted = runtime.n < ANSWERS_MAX;
        if (noted) {
                runtime.answers[runtime.n++] = (struct answer){ret, name, device};
                *ret = name;
        }
        (void)pthread_mutex_unlock(&runtime.lock);
        return noted ? CUDA_SUCCESS : runtime.real(ret, devices_card(device));
}

const void *runtime_table(const CUuuid *id, const void *table)
{
        const uintptr_t *words = table;

        if (!cards_ranks() || memcmp(id->bytes, table_id, sizeof(table_id)) != 0 ||
            words[0] > sizeof(runtime.copy) || words[0] <= PRIMARY * sizeof(*words) ||
            !words[PRIMARY])
                return table;
        (void)pthread_mutex_lock(&runtime.lock);
        if (!runtime.real) {
                memcpy(runtime.copy, words, words[0]);
                runtime.real = (primary_fn *)words[PRIMARY];
                runtime.copy[PRIMARY] = (uintptr_t)find_primary;
        }
        (void)pthread_mutex_unlock(&runtime.lock);
        return runtime.copy;
}

/* A library that was unloaded has taken its memory with it. */
static bool is_mapped(const void *at)
{
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);

        return msync((void *)((uintptr_t)at & ~(page - 1)), 1, MS_ASYNC) == 0;
}

void runtime_learn(CUdevice device, CUcontext ctx)
{
        (void)pthread_mutex_lock(&runtime.lock);
        for (unsigned i = runtime.n; i-- > 0;) {
                struct answer *a = &runtime.answers[i];

                if (a->device != device)
                        continue;
                if (is_mapped(a->at) && *a->at == a->last)
                        *a->at = a->last = ctx;
                else
                        *a = runtime.answers[--runtime.n];
        }
        (void)pthread_mutex_unlock(&runtime.lock);
}
