/* kill_point.c: owns the one point that SUBLET_KILL_POINT names. Only subletd-test contains it; the
 * product must never link it. */
#include "daemon/setup/kill_point.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/settings.h"
#include "wire/wire.h"

#define EXIT_USAGE 2

static struct {
        bool read;
        char name[48];
        unsigned left; /* how often the point must be reached before it acts */
        int signal;
} point;

static bool point_exists(const char *name)
{
        static const struct {
                const char *name;
                bool message;
        } points[] = {
#define KILL_POINT(name_)                    {#name_, false},
#define KILL_POINT_MESSAGE(name_, direction) {#name_, true},
#include "daemon/setup/kill_points.def"
        };
        size_t n = strcspn(name, ".");

        for (size_t i = 0; i < ARRAY_SIZE(points); i++)
                if (strlen(points[i].name) == n && strncmp(points[i].name, name, n) == 0)
                        return points[i].message == (name[n] == '.');
        return false;
}

/* Reads the variable. A misspelt point is an error, because the test would pass without testing
 * anything. */
static void point_read(void)
{
        const char *text = setting_text(SETTING_KILL_POINT);
        char action[8];

        point.read = true;
        if (!text)
                return;
        if (sscanf(text, "%47[^:]:%u:%7s", point.name, &point.left, action) == 3 && point.left) {
                point.signal = strcmp(action, "kill") == 0   ? SIGKILL
                               : strcmp(action, "stop") == 0 ? SIGSTOP
                                                             : 0;
                if (point.signal && point_exists(point.name))
                        return;
        }
        (void)fprintf(stderr, "subletd-test: malformed SUBLET_KILL_POINT '%s'\n", text);
        exit(EXIT_USAGE);
}

void kill_point(const char *name)
{
        if (!point.read)
                point_read();
        if (point.left && strcmp(name, point.name) == 0 && --point.left == 0)
                (void)kill(getpid(), point.signal);
}

void kill_point_message(const char *name, unsigned message)
{
        char full[48];

        (void)snprintf(full, sizeof(full), "%s.%s", name, wire_name(message));
        kill_point(full);
}
