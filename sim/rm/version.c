/* version.c: the version that the simulated kernel driver has, and the layouts that follow from it.
 * Must never be asked before rm_version_setup(). */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/rm/rm.h"

#define DEFAULT_VERSION "580.159.04"

static struct {
        char version[RM_VERSION_MAX];
        unsigned number[3];
} driver;

int rm_version_setup(void)
{
        const char *text = getenv("SIMCUDA_DRIVER");
        int end = 0;

        if (!text || !*text)
                text = DEFAULT_VERSION;
        if (strlen(text) >= sizeof(driver.version) ||
            sscanf(text, "%3u.%3u%n.%3u%n", &driver.number[0], &driver.number[1], &end,
                   &driver.number[2], &end) < 2 ||
            text[end]) {
                (void)fprintf(stderr, "simcuda: SIMCUDA_DRIVER is a version such as %s, not '%s'\n",
                              DEFAULT_VERSION, text);
                return -EINVAL;
        }
        strcpy(driver.version, text);
        return 0;
}

const char *rm_version(void)
{
        return driver.version;
}

bool rm_since(unsigned major, unsigned minor, unsigned patch)
{
        const unsigned wanted[3] = {major, minor, patch};

        for (int i = 0; i < 3; i++)
                if (driver.number[i] != wanted[i])
                        return driver.number[i] > wanted[i];
        return true;
}

struct rm_alloc_form rm_alloc_form(bool is_long)
{
#define FORM(type, params)                                                 \
        {                                                                  \
                sizeof(struct type), params, offsetof(struct type, status) \
        }
        static const struct rm_alloc_form forms[3][2] = {
                {FORM(rm_alloc_short_515, 0), FORM(rm_alloc_long_515, 0)},
                {FORM(rm_alloc_short_515, 0), FORM(rm_alloc_long_525, 0)},
                {FORM(rm_alloc_short_535, offsetof(struct rm_alloc_short_535, params_size)),
                 FORM(rm_alloc_long_535, offsetof(struct rm_alloc_long_535, params_size))},
        };

        return forms[rm_since(525, 0, 0) + rm_since(535, 0, 0)][is_long];
}
