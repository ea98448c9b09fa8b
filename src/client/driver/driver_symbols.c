/* driver_symbols.c: owns the reading of a driver's table of symbols. Must never call a symbol that
 * it finds. */
#include "client/driver/driver_symbols.h"

#include <ctype.h>
#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "cuda/cuda_versions.h"

static const char *const known[] = {
#define CU(name, symbol, ...)       #symbol,
#define CU_UNCAUGHT(symbol, reason) #symbol,
#include "cuda/cuda_api.def"
#include "cuda/cuda_uncaught.def"
};

/* The functions that sublet intercepts, by their names for cuGetProcAddress. */
static const char *const caught[] = {
#define CU_PASS(name)
#define CU_SUBMIT(name)                                #name,
#define CU_UNIFIED(name)                               #name,
#define CU_RETRY(name)                                 #name,
#define CU_CUSTOM(name)                                #name,
#define CU(name, symbol, since, flags, behaviour, ...) CU_##behaviour(name)
#include "cuda/cuda_api.def"
};

static bool is_known(const char *name)
{
        for (size_t i = 0; i < ARRAY_SIZE(known); i++)
                if (strcmp(known[i], name) == 0)
                        return true;
        return false;
}

/* Returns the number of symbols, from a table DT_GNU_HASH. No field of the table tells it. The
 * symbols lie in chains, and the last symbol is the end of the last chain. */
static size_t symbols_of_gnu_hash(const uint32_t *hash)
{
        uint32_t buckets = hash[0], first = hash[1], words = hash[2], last = 0;
        const uint32_t *bucket = (const uint32_t *)((const ElfW(Addr) *)&hash[4] + words);
        const uint32_t *chain = bucket + buckets;

        for (uint32_t i = 0; i < buckets; i++)
                last = MAX(last, bucket[i]);
        if (last < first)
                return first;
        while (!(chain[last - first] & 1))
                last++;
        return last + 1;
}

/* True for a version of a function that sublet intercepts; the library decides in the same way
 * (src/preload/entry/doors.c). */
static bool is_version_of_caught(const char *name)
{
        size_t n = cuda_stem(name);

        for (size_t i = 0; name[n] && i < ARRAY_SIZE(caught); i++)
                if (strncmp(caught[i], name, n) == 0 && caught[i][n] == '\0')
                        return true;
        return false;
}

static void add_name(char names[static 160], const char *name)
{
        static const char more[] = ", ...";
        size_t length = strlen(names), room = 160 - length;

        if (strstr(names, more))
                return;
        if (strlen(name) + sizeof(", ") + sizeof(more) <= room)
                (void)snprintf(names + length, room, "%s%s", length ? ", " : "", name);
        else
                (void)snprintf(names + length, room, "%s", more);
}

void driver_symbols_count(const char *name, struct driver_symbols *s)
{
        s->all++;
        if (is_known(name))
                return;
        if (is_version_of_caught(name)) {
                s->undecided++;
                add_name(s->versions, name);
        } else {
                s->unknown++;
                add_name(s->names, name);
        }
}

void driver_symbols(void *library, struct driver_symbols *ret)
{
        const ElfW(Sym) *symbols = NULL;
        const char *strings = NULL;
        struct link_map *map;
        size_t n = 0;

        *ret = (struct driver_symbols){0};
        if (dlinfo(library, RTLD_DI_LINKMAP, &map) < 0)
                return;
        for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++) {
                /* The C library has already added the load address to d_ptr. */
                const void *at = (const void *)d->d_un.d_ptr;

                if (d->d_tag == DT_SYMTAB)
                        symbols = at;
                else if (d->d_tag == DT_STRTAB)
                        strings = at;
                else if (d->d_tag == DT_GNU_HASH)
                        n = symbols_of_gnu_hash(at);
                else if (d->d_tag == DT_HASH && n == 0)
                        n = ((const uint32_t *)at)[1];
        }
        for (size_t i = 0; symbols && strings && i < n; i++) {
                const char *name = strings + symbols[i].st_name;

                /* Only functions of the API: names that begin with "cudbg" belong to the
                 * debugger. */
                if (symbols[i].st_shndx != SHN_UNDEF &&
                    ELF64_ST_TYPE(symbols[i].st_info) == STT_FUNC && strncmp(name, "cu", 2) == 0 &&
                    isupper((unsigned char)name[2]))
                        driver_symbols_count(name, ret);
        }
}
