/* front.c: a library in front of libsublet.so (cuda/front.h), for tests. It says that work in
 * flight waits for another rank as long as one of two words of the file FRONT_PAGE is greater on
 * this side than on the other, as with the program `pair`, or a third one is set. FRONT_SIDE is 1
 * or 2. Without FRONT_PAGE nothing ever waits. */
#include "cuda/front.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE  4096u
#define WORDS 16u /* from one side's words to the other's */

static const volatile uint32_t *mine, *others;

__attribute__((constructor)) static void map(void)
{
        const char *path = getenv("FRONT_PAGE"), *side = getenv("FRONT_SIDE");
        int fd = path && side ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
        const volatile uint32_t *page;

        if (fd < 0)
                return;
        if (ftruncate(fd, PAGE) < 0)
                abort();
        page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
        if (page == MAP_FAILED)
                abort();
        (void)close(fd);
        mine = side[0] == '1' ? page : page + WORDS;
        others = side[0] == '1' ? page + WORDS : page;
}

static void *replace(const char *symbol, void *found)
{
        (void)symbol;
        return found;
}

static unsigned waits(void)
{
        return mine && (mine[0] > others[0] || mine[1] > others[1] || mine[2]);
}

__attribute__((visibility("default"))) const struct front sublet_front = {
        .replace = replace,
        .waits = waits,
};
