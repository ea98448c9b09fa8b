/* log_form.c: owns what stands before the text of a line in the daemon's log. Must never write a
 * line itself. */
#include "daemon/setup/log_form.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/clock.h"
#include "base/log.h"

#define TAG "subletd"

static int before_in_journal(char *line, size_t n, enum log_kind kind)
{
        static const char *const priorities[] = {[LOG_KIND_ERROR] = SD_ERR,
                                                 [LOG_KIND_WARNING] = SD_WARNING,
                                                 [LOG_KIND_NOTICE] = SD_NOTICE,
                                                 [LOG_KIND_INFO] = SD_INFO,
                                                 [LOG_KIND_DEBUG] = SD_DEBUG};

        return snprintf(line, n, "%s", priorities[kind]);
}

/* Writes, for instance, "2026-11-27T12:33:53.123+0100 subletd[77]: info: ". */
static int before_elsewhere(char *line, size_t n, enum log_kind kind)
{
        char day[32], zone[8];
        struct timespec now;
        struct tm parts;

        (void)clock_gettime(CLOCK_REALTIME, &now);
        (void)localtime_r(&now.tv_sec, &parts);
        (void)strftime(day, sizeof(day), "%Y-%m-%dT%H:%M:%S", &parts);
        (void)strftime(zone, sizeof(zone), "%z", &parts);
        return snprintf(line, n, "%s.%03u%s " TAG "[%d]: %s: ", day,
                        (unsigned)((uint64_t)now.tv_nsec / NSEC_PER_MSEC), zone, (int)getpid(),
                        log_kind_names[kind]);
}

/* Compares fd with $JOURNAL_STREAM (systemd.exec(5)): a program that inherits this variable may
 * have another stderr. */
static bool is_journal(int fd)
{
        const char *stream = getenv("JOURNAL_STREAM");
        uintmax_t device, inode;
        struct stat st;

        return stream && sscanf(stream, "%ju:%ju", &device, &inode) == 2 && fstat(fd, &st) == 0 &&
               st.st_dev == device && st.st_ino == inode;
}

void log_form_open(void)
{
        log_open(TAG, LOG_LEVEL_INFO);
        log_begin_lines(is_journal(STDERR_FILENO) ? before_in_journal : before_elsewhere);
}
