/* replay.c: the main() of a fuzz target without libFuzzer: runs the given files, and all files of
 * the given folders, through the target. Must never pass if there was nothing to run. */
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"

#define INPUT_MAX (1u << 20)

static unsigned replayed;

static void cleanup_closedir(DIR **d)
{
        if (*d)
                (void)closedir(*d);
}

static int replay_file(const char *path)
{
        _cleanup_fclose_ FILE *f = fopen(path, "re");
        _cleanup_free_ uint8_t *all = malloc(INPUT_MAX), *exact = NULL;
        size_t size;

        if (!f || !all)
                return -errno;
        size = fread(all, 1, INPUT_MAX, f);
        /* The copy has the exact size, so that a sanitizer sees an access to the byte behind it. */
        exact = malloc(size ? size : 1);
        if (!exact)
                return -ENOMEM;
        memcpy(exact, all, size);
        (void)LLVMFuzzerTestOneInput(exact, size);
        replayed++;
        return 0;
}

static int replay(const char *path)
{
        _cleanup_(cleanup_closedir) DIR *d = NULL;
        const struct dirent *entry;
        struct stat st;
        int r = 0;

        if (stat(path, &st) < 0)
                return -errno;
        if (!S_ISDIR(st.st_mode))
                return replay_file(path);
        d = opendir(path);
        if (!d)
                return -errno;
        while (r == 0 && (entry = readdir(d))) {
                char file[4096];

                if (entry->d_name[0] == '.')
                        continue;
                (void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
                r = replay_file(file);
        }
        return r;
}

int main(int argc, char *argv[])
{
        for (int i = 1; i < argc; i++) {
                int r = replay(argv[i]);

                if (r < 0) {
                        (void)fprintf(stderr, "%s: %s\n", argv[i], strerror(-r));
                        return EXIT_FAILURE;
                }
        }
        (void)printf("%u inputs\n", replayed);
        return replayed ? EXIT_SUCCESS : EXIT_FAILURE;
}
