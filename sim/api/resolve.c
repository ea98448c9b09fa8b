/* resolve.c: cuGetProcAddress: the table of entry points, checked against the symbols that this
 * library exports.
 *
 * Addresses are read from the library's own symbol table, because the linker could resolve a
 * reference, weak or not, to a library preloaded before this one. */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "sim/call/objects.h"

struct row {
        const char *base, *symbol;
        int since;
        unsigned flags;
};

static const struct row rows[] = {
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        {#base, #symbol, since, flags},
#include "cuda/cuda_api.def"
};

static void *addresses[ARRAY_SIZE(rows)];
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct symbols {
        uintptr_t load;
        const ElfW(Sym) * symbol;
        const char *text;
        const uint32_t *hash; /* DT_HASH, which --hash-style=both provides */
};

static uint32_t elf_hash(const char *name)
{
        uint32_t h = 0, g;

        for (; *name; name++) {
                h = (h << 4) + (uint8_t)*name;
                g = h & 0xf0000000;
                h ^= g >> 24;
                h &= ~g;
        }
        return h;
}

static void *symbols_find(const struct symbols *s, const char *name)
{
        uint32_t buckets = s->hash[0];
        const uint32_t *bucket = s->hash + 2, *chain = bucket + buckets;

        for (uint32_t i = bucket[elf_hash(name) % buckets]; i; i = chain[i])
                if (s->symbol[i].st_shndx != SHN_UNDEF &&
                    strcmp(s->text + s->symbol[i].st_name, name) == 0)
                        return (void *)(s->load + s->symbol[i].st_value);
        return NULL;
}

static void addresses_find(void)
{
        struct symbols s = {0};
        struct link_map *map;
        Dl_info info;

        if (!dladdr1((void *)(uintptr_t)rows, &info, (void **)&map, RTLD_DL_LINKMAP))
                return;
        s.load = map->l_addr;
        /* glibc has relocated the addresses in the dynamic section. */
        for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
                if (d->d_tag == DT_SYMTAB)
                        s.symbol = (const ElfW(Sym) *)d->d_un.d_ptr;
                else if (d->d_tag == DT_STRTAB)
                        s.text = (const char *)d->d_un.d_ptr;
                else if (d->d_tag == DT_HASH)
                        s.hash = (const uint32_t *)d->d_un.d_ptr;
        }
        if (!s.symbol || !s.text || !s.hash)
                return;
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
                addresses[i] = symbols_find(&s, rows[i].symbol);
}

/* Stands for a newer driver's function that SIMCUDA_NEWER names. It is never called. */
static CUresult newer(void)
{
        return CUDA_ERROR_UNKNOWN;
}

static bool is_newer(const char *name, int version)
{
        const char *only = getenv("SIMCUDA_NEWER");

        return only && version >= 99000 && strcmp(name, only) == 0;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **ret_fn, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *ret_status)
{
        bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
        bool known = false, varies = false;
        size_t best = ARRAY_SIZE(rows);

        if (!name || !ret_fn || (flags & ~(cuuint64_t)3) || version > device_driver_version())
                return CUDA_ERROR_INVALID_VALUE;
        (void)pthread_once(&once, addresses_find);
        /* Find the newest variant that the requested version knows: a per-thread variant, if such
         * variants are requested and exist. */
        for (size_t i = 0; i < ARRAY_SIZE(rows) && per_thread; i++)
                varies = varies || (addresses[i] && (rows[i].flags & CU_API_PTSZ) &&
                                    strcmp(rows[i].base, name) == 0);
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                const struct row *r = &rows[i], *b = &rows[best];

                if (!addresses[i] || strcmp(r->base, name) != 0 ||
                    !(r->flags & CU_API_PTSZ) == varies)
                        continue;
                known = true;
                if (r->since > version)
                        continue;
                if (best == ARRAY_SIZE(rows) || r->since >= b->since)
                        best = i;
        }
        if (best == ARRAY_SIZE(rows)) {
                *ret_fn = NULL;
                if (ret_status)
                        *ret_status = known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                                            : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
                return CUDA_SUCCESS; /* the caller sees the failure in the status or the pointer */
        }
        *ret_fn = is_newer(name, version) ? (void *)newer : addresses[best];
        if (ret_status)
                *ret_status = CU_GET_PROC_ADDRESS_SUCCESS;
        return CUDA_SUCCESS;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **ret_fn, int version, cuuint64_t flags)
{
        void *fn = NULL;
        CUresult r = cuGetProcAddress_v2(name, ret_fn ? &fn : NULL, version, flags, NULL);

        if (r != CUDA_SUCCESS)
                return r;
        if (!fn)
                return CUDA_ERROR_NOT_FOUND;
        *ret_fn = fn;
        return CUDA_SUCCESS;
}
