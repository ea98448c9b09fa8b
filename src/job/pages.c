/* pages.c: owns the reading of the library's files. Must never trust them: the program can write
 * there what it likes, so counts are bounded here. */
#include "job/pages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"

#define HEAD_BYTES offsetof(struct measure_page, kernels)

static void bound(struct measure_page *p)
{
        if (atomic_load(&p->kernel_count) > MEASURE_KERNELS)
                atomic_store(&p->kernel_count, MEASURE_KERNELS);
        if (atomic_load(&p->graph_count) > MEASURE_GRAPHS)
                atomic_store(&p->graph_count, MEASURE_GRAPHS);
        if (atomic_load(&p->node_count) > MEASURE_NODES)
                atomic_store(&p->node_count, MEASURE_NODES);
        p->gpu[sizeof(p->gpu) - 1] = 0;
        for (unsigned i = 0; i < MEASURE_KERNELS; i++)
                p->kernels[i].name[MEASURE_NAME_MAX - 1] = 0;
        for (unsigned i = 0; i < MEASURE_GRAPHS; i++) {
                struct measure_graph *g = &p->graphs[i];

                g->first = MIN(g->first, MEASURE_NODES);
                g->count = MIN(g->count, MEASURE_NODES - g->first);
        }
        for (unsigned i = 0; i < MEASURE_NODES; i++)
                p->nodes[i].kernel = MIN(p->nodes[i].kernel, MEASURE_KERNELS - 1);
}

/* Reads one file into the page of its process, which is made if it is missing. */
static void read_page(struct pages *p, int folder, const char *name, bool whole)
{
        _cleanup_close_ int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        const size_t bytes = whole ? sizeof(struct measure_page) : HEAD_BYTES;
        const uint32_t pid = (uint32_t)strtoul(name, NULL, 10);
        struct measure_page *page = (struct measure_page *)pages_find(p, pid);
        struct measure_page *fresh = NULL;

        if (fd < 0)
                return;
        if (!page) {
                if (p->n == PAGES_MAX)
                        return;
                page = fresh = calloc(1, sizeof(*page));
        }
        if (!page || pread(fd, page, bytes, 0) != (ssize_t)bytes ||
            atomic_load(&page->magic) != MEASURE_MAGIC) {
                free(fresh);
                return;
        }
        page->pid = pid;
        bound(page);
        if (fresh)
                p->page[p->n++] = fresh;
}

void pages_read(struct pages *p, const char *folder, bool whole)
{
        DIR *d = opendir(folder);

        if (!d)
                return;
        for (struct dirent *e; (e = readdir(d));)
                if (e->d_name[0] >= '1' && e->d_name[0] <= '9')
                        read_page(p, dirfd(d), e->d_name, whole);
        (void)closedir(d);
}

void pages_free(struct pages *p)
{
        for (unsigned i = 0; i < p->n; i++)
                free(p->page[i]);
        p->n = 0;
}

const struct measure_page *pages_find(const struct pages *p, uint32_t pid)
{
        for (unsigned i = 0; i < p->n; i++)
                if (p->page[i]->pid == pid)
                        return p->page[i];
        return NULL;
}

const struct measure_page *pages_leader(const struct pages *p, const struct pages *before)
{
        const struct measure_page *leader = NULL;
        uint64_t most = 0;

        for (unsigned i = 0; i < p->n; i++) {
                const struct measure_page *old = pages_find(before, p->page[i]->pid);
                uint64_t n = sub_sat(pages_get(&p->page[i]->submissions),
                                     old ? pages_get(&old->submissions) : 0);

                if (n > most) {
                        most = n;
                        leader = p->page[i];
                }
        }
        return leader;
}

void pages_remove(const char *folder)
{
        DIR *d = opendir(folder);

        if (!d)
                return;
        for (struct dirent *e; (e = readdir(d));)
                if (e->d_name[0] != '.')
                        (void)unlinkat(dirfd(d), e->d_name, 0);
        (void)closedir(d);
        (void)rmdir(folder);
}
