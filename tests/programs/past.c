/* past: works as `fill` does, but makes its stream, launches and waits without the entry points
 * that can be intercepted. It reads the addresses of these functions from the driver's symbol
 * table. It allocates through entry points, then pauses for --ms, then bypasses them. */
#include <elf.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "program.h"

struct wanted {
        const char *name;
        void *address;
};

/* Finds the symbol table, which ends where the symbols' names begin. */
static int look(struct dl_phdr_info *info, size_t size, void *userdata)
{
        struct wanted *w = userdata;
        const char *names = NULL;
        const ElfW(Sym) *symbols = NULL;

        if (!strstr(info->dlpi_name, "libcuda.so"))
                return 0;
        for (unsigned i = 0; i < info->dlpi_phnum; i++) {
                const ElfW(Dyn) *d = (void *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);

                if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
                        continue;
                for (; d->d_tag != DT_NULL; d++) {
                        names = d->d_tag == DT_STRTAB ? (const char *)d->d_un.d_ptr : names;
                        symbols = d->d_tag == DT_SYMTAB ? (void *)d->d_un.d_ptr : symbols;
                }
        }
        for (const ElfW(Sym) *s = symbols; s && (const char *)s < names; s++)
                if (s->st_shndx != SHN_UNDEF && strcmp(names + s->st_name, w->name) == 0)
                        w->address = (void *)(info->dlpi_addr + s->st_value);
        return w->address != NULL;
}

static void *past_every_door(const char *name)
{
        struct wanted w = {.name = name};

        (void)dl_iterate_phdr(look, &w);
        if (!w.address)
                program_fail(PROGRAM_EXIT_SETUP, "the driver has no %s", name);
        return w.address;
}

int main(int argc, char **argv)
{
        struct blocks b;
        uint64_t round = 0;

        program_begin(argc, argv,
                      &(struct options){.bytes = 16 * MIB, .block = 2 * MIB, .rounds = 3}, false);
        blocks_allocate(&b, options.bytes, options.block, 0);
        blocks_fill(&b, 0); /* through an entry point, so that new allocations are backed */
        (void)usleep((useconds_t)(options.ms * 1000));
        cu.LaunchKernel = past_every_door("cuLaunchKernel");
        cu.StreamSynchronize = past_every_door("cuStreamSynchronize");
        cu.StreamCreate = past_every_door("cuStreamCreate");
        TRY(cu.StreamCreate(&b.stream, CU_STREAM_NON_BLOCKING));
        program_say("filled", "\"at\":%llu", (unsigned long long)program_now_ns());
        while (program_more(round + 1)) {
                program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"",
                            (unsigned long long)round, (unsigned long long)blocks_step(&b, round));
                round++;
        }
        program_say("round", "\"round\":%llu,\"sum\":\"%016llx\"", (unsigned long long)round,
                    (unsigned long long)blocks_verify(&b, round));
        program_end();
}
