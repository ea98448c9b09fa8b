/* freeze_known.c: owns the file that remembers on which drivers and GPUs freezing works. Must never
 * block a process or make it fail: a file that cannot be read counts as empty. */
#include "base/freeze_known.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/daemon_paths.h"
#include "base/xdg.h"

#define TEXT_MAX 16384u
#define KEY_MAX  96u
#define LINES    64u /* the file keeps this many results, the newest */

/* The file's words for each result. Earlier releases wrote a file named `freeze`. They did not test
 * whether the driver counts. */
static const char *const words[] = {
        [FREEZE_WORKS] = "works with the hand", [FREEZE_WORKS_ALONE] = "works without the hand"};

static bool find_folder(char ret[static PATH_MAX])
{
        static const char own[] = "/sublet";

        if (xdg_folder(XDG_CACHE, ret, PATH_MAX - sizeof(own)) < 0)
                return false;
        (void)strcat(ret, own);
        return true;
}

static void make_key(const char *driver, const uint8_t uuid[static 16], char ret[static KEY_MAX])
{
        int n = snprintf(ret, KEY_MAX, "%.40s ", driver);

        for (unsigned i = 0; i < 16; i++)
                n += snprintf(ret + n, KEY_MAX - (size_t)n, "%02x", uuid[i]);
        (void)snprintf(ret + n, KEY_MAX - (size_t)n, " ");
}

/* Reads the whole file; "" if there is none. */
static void read_all(const char *path, char ret[static TEXT_MAX])
{
        int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
        ssize_t n = fd >= 0 ? read(fd, ret, TEXT_MAX - 1) : 0;

        ret[MAX(n, (ssize_t)0)] = '\0';
        if (fd >= 0)
                (void)close(fd);
}

enum freeze_known freeze_known(const char *driver, const uint8_t uuid[static 16],
                               char ret_why[static FREEZE_WHY_MAX])
{
        char folder[PATH_MAX], path[PATH_MAX], text[TEXT_MAX], key[KEY_MAX], *rest = text, *line;

        ret_why[0] = '\0';
        if (!driver[0] || !find_folder(folder) ||
            paths_join(folder, "freezing", path, sizeof(path)) < 0)
                return FREEZE_NOT_KNOWN;
        read_all(path, text);
        make_key(driver, uuid, key);
        while ((line = strsep(&rest, "\n")))
                if (strncmp(line, key, strlen(key)) == 0) {
                        line += strlen(key);
                        for (size_t i = FREEZE_WORKS; i < ARRAY_SIZE(words); i++)
                                if (strcmp(line, words[i]) == 0)
                                        return (enum freeze_known)i;
                        (void)snprintf(ret_why, FREEZE_WHY_MAX, "%s", line);
                        return *line ? FREEZE_FAILS : FREEZE_NOT_KNOWN;
                }
        return FREEZE_NOT_KNOWN;
}

/* Makes the folder and the one above it, but no more: a guest makes nobody's home folder. */
static bool make_folders(const char *folder)
{
        char parent[PATH_MAX];

        if (mkdir(folder, 0700) == 0 || errno == EEXIST)
                return true;
        (void)snprintf(parent, sizeof(parent), "%s", folder);
        *strrchr(parent, '/') = '\0';
        return mkdir(parent, 0700) == 0 && mkdir(folder, 0700) == 0;
}

void freeze_learn(const char *driver, const uint8_t uuid[static 16], enum freeze_known result,
                  const char *why)
{
        char folder[PATH_MAX], path[PATH_MAX], fresh[PATH_MAX], text[TEXT_MAX], key[KEY_MAX];
        char name[32], *rest = text, *line;
        int fd;

        (void)snprintf(name, sizeof(name), "freezing.%d", (int)getpid());
        if (!driver[0] || !find_folder(folder) || !make_folders(folder) ||
            paths_join(folder, "freezing", path, sizeof(path)) < 0 ||
            paths_join(folder, name, fresh, sizeof(fresh)) < 0)
                return;
        read_all(path, text);
        make_key(driver, uuid, key);
        fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return;
        (void)dprintf(fd, "%s%s\n", key, result == FREEZE_FAILS ? why : words[result]);
        for (unsigned n = 1; n < LINES && (line = strsep(&rest, "\n"));)
                if (*line && strncmp(line, key, strlen(key)) != 0) {
                        (void)dprintf(fd, "%s\n", line);
                        n++;
                }
        (void)close(fd);
        if (rename(fresh, path) < 0)
                (void)unlink(fresh);
}
