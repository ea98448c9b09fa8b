/* elf.c: looks symbols up in the hash tables of loaded objects. Must never allocate, take a lock of
 * ours, or call a function of the C library other than dl_iterate_phdr(). A sanitizer calls dlsym()
 * to find the functions that it replaces, and its own strcmp() does not work until it has found
 * them. */
#include "preload/process/elf.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/auxv.h>

#include "base/macros.h"

#define VERSION_HIDDEN 0x8000 /* bit of a DT_VERSYM entry: not the default version of the name */

/* The entries of an object's dynamic section that a look-up needs. */
struct elf_tables {
        const char *strings;
        const ElfW(Sym) * symbols;
        const ElfW(Half) * versions; /* NULL: the object has none */
        const uint32_t *gnu_hash;    /* DT_GNU_HASH; NULL: none */
        const uint32_t *sysv_hash;   /* DT_HASH; NULL: none */
};

struct elf_query {
        const char *symbol;
        void *found;
};

/* Returns a pointer of the dynamic section. glibc relocates these pointers in place unless the
 * section is read-only (the vDSO). A value below the load address is not relocated yet. */
static const void *elf_pointer(ElfW(Addr) base, ElfW(Addr) value)
{
        return (const void *)(value < base ? value + base : value);
}

static bool elf_open(ElfW(Addr) base, const ElfW(Dyn) * dynamic, struct elf_tables *ret_tables)
{
        struct elf_tables t = {0};

        for (; dynamic->d_tag != DT_NULL; dynamic++) {
                const void *p = elf_pointer(base, dynamic->d_un.d_ptr);

                switch (dynamic->d_tag) {
                case DT_STRTAB:
                        t.strings = p;
                        break;
                case DT_SYMTAB:
                        t.symbols = p;
                        break;
                case DT_VERSYM:
                        t.versions = p;
                        break;
                case DT_GNU_HASH:
                        t.gnu_hash = p;
                        break;
                case DT_HASH:
                        t.sysv_hash = p;
                        break;
                default:
                        break;
                }
        }
        if (!t.strings || !t.symbols || (!t.gnu_hash && !t.sysv_hash))
                return false;
        *ret_tables = t;
        return true;
}

static bool elf_same(const char *a, const char *b)
{
        while (*a && *a == *b) {
                a++;
                b++;
        }
        return *a == *b;
}

static bool elf_matches(const struct elf_tables *t, uint32_t index, const char *symbol)
{
        const ElfW(Sym) *s = &t->symbols[index];

        return s->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(s->st_info) == STT_FUNC &&
               (!t->versions || !(t->versions[index] & VERSION_HIDDEN)) &&
               elf_same(t->strings + s->st_name, symbol);
}

/* The layout of the two tables: https://flapenguin.me/elf-dt-gnu-hash, and chapter "Hash Table" of
 * the System V gABI. The GNU table's filter words, which only make misses faster, are skipped. */
static uint32_t elf_find_gnu(const struct elf_tables *t, const char *symbol)
{
        const uint32_t *h = t->gnu_hash;
        uint32_t buckets = h[0], first = h[1], filter_words = h[2];
        const uint32_t *bucket = h + 4 + filter_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
        const uint32_t *chain = bucket + buckets;
        uint32_t hash = 5381, i;

        for (const char *c = symbol; *c; c++)
                hash = hash * 33 + (unsigned char)*c;
        i = bucket[hash % buckets];
        if (i < first)
                return STN_UNDEF;
        for (;; i++) {
                uint32_t other = chain[i - first];

                if ((other | 1) == (hash | 1) && elf_matches(t, i, symbol))
                        return i;
                if (other & 1)
                        return STN_UNDEF;
        }
}

static uint32_t elf_find_sysv(const struct elf_tables *t, const char *symbol)
{
        const uint32_t *bucket = t->sysv_hash + 2, *chain = bucket + t->sysv_hash[0];
        uint32_t hash = 0;

        for (const char *c = symbol; *c; c++) {
                hash = (hash << 4) + (unsigned char)*c;
                hash ^= (hash >> 24) & 0xf0;
                hash &= 0x0fffffff;
        }
        for (uint32_t i = bucket[hash % t->sysv_hash[0]]; i != STN_UNDEF; i = chain[i])
                if (elf_matches(t, i, symbol))
                        return i;
        return STN_UNDEF;
}

static bool elf_is_libc(const char *path)
{
        static const char *const names[] = {"libc.so.6", "libdl.so.2", "libpthread.so.0"};
        const char *name = path;

        for (; *path; path++)
                if (*path == '/')
                        name = path + 1;
        for (unsigned i = 0; i < ARRAY_SIZE(names); i++)
                if (elf_same(name, names[i]))
                        return true;
        return false;
}

/* True if the object belongs to the C library and has the symbol. */
static bool elf_search(const char *path, ElfW(Addr) base, const ElfW(Dyn) * dynamic,
                       struct elf_query *q)
{
        struct elf_tables t;
        uint32_t i;

        if (!path || !dynamic || !elf_is_libc(path) || !elf_open(base, dynamic, &t))
                return false;
        i = t.gnu_hash ? elf_find_gnu(&t, q->symbol) : elf_find_sysv(&t, q->symbol);
        if (i == STN_UNDEF)
                return false;
        q->found = (void *)(base + t.symbols[i].st_value);
        return true;
}

static const ElfW(Dyn) * elf_dynamic(ElfW(Addr) base, const ElfW(Phdr) * headers, size_t count)
{
        for (size_t i = 0; i < count; i++)
                if (headers[i].p_type == PT_DYNAMIC)
                        return (const void *)(base + headers[i].p_vaddr);
        return NULL;
}

/* Returns the loader's list of objects, found through the program's DT_DEBUG, as debuggers do.
 * NULL: the program has no DT_DEBUG. */
static const struct link_map *elf_objects(void)
{
        const ElfW(Phdr) *headers = (const void *)getauxval(AT_PHDR);
        size_t count = getauxval(AT_PHNUM);
        const ElfW(Dyn) * dynamic;
        ElfW(Addr) base = 0;

        for (size_t i = 0; headers && i < count; i++)
                if (headers[i].p_type == PT_PHDR)
                        base = (ElfW(Addr))headers - headers[i].p_vaddr;
        dynamic = headers ? elf_dynamic(base, headers, count) : NULL;
        for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++)
                if (dynamic->d_tag == DT_DEBUG && dynamic->d_un.d_ptr)
                        return ((const struct r_debug *)dynamic->d_un.d_ptr)->r_map;
        return NULL;
}

static int elf_visit(struct dl_phdr_info *info, size_t size, void *userdata)
{
        return elf_search(info->dlpi_name, info->dlpi_addr,
                          elf_dynamic(info->dlpi_addr, info->dlpi_phdr, info->dlpi_phnum),
                          userdata);
}

/* Walks the list without the loader's lock. That is safe: the C library's objects are loaded at the
 * start, so they come before every object that another thread could unload. */
void *elf_find_libc(const char *symbol)
{
        struct elf_query q = {.symbol = symbol};
        const struct link_map *objects = elf_objects();

        if (!objects)
                (void)dl_iterate_phdr(elf_visit, &q);
        for (const struct link_map *o = objects; o; o = o->l_next)
                if (elf_search(o->l_name, o->l_addr, o->l_ld, &q))
                        break;
        return q.found;
}
