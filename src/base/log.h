/* log.h: messages to stderr, one line each.
 *
 * SUBLET_LOG sets the level; the default is warning, and info in a daemon. The few warnings of the
 * preload library are part of its contract. Each line is one write(2), so that lines of
 * several processes do not mix. A line that cannot be written at once is dropped. Thread-safe; does
 * not allocate. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

/* Sets the tag: "subletd", "sublet" or "libsublet"; the string must never be freed. Reads
 * SUBLET_LOG and warns of an invalid level. */
void log_open(const char *tag, enum log_level default_level);
int log_enabled(enum log_level level);

/* What a line says. A notice is good news, at the level of warnings. */
enum log_kind {
        LOG_KIND_ERROR,
        LOG_KIND_WARNING,
        LOG_KIND_NOTICE,
        LOG_KIND_INFO,
        LOG_KIND_DEBUG,
};
extern const char *const log_kind_names[];
/* Makes lines begin with what before() writes, instead of the tag. before() returns the length, as
 * snprintf() does. */
void log_begin_lines(int (*before)(char *line, size_t n, enum log_kind kind));

/* Call it when a library is loaded into another program. That program may close stderr or begin
 * without it, and a file of its own then gets the number of stderr. From this call on, lines are
 * written only to the present stderr, or to a later one that is certainly no file of data. */
void log_guard_stderr(void);
/* Returns false if descriptor 2 is closed, or may be a file of the program's own. */
bool log_has_stderr(void);

void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Writes good news, at the level of warnings. */
void log_notice(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define log_error(...)   log_write(LOG_LEVEL_ERROR, __VA_ARGS__)
#define log_warning(...) log_write(LOG_LEVEL_WARNING, __VA_ARGS__)
#define log_info(...)    log_write(LOG_LEVEL_INFO, __VA_ARGS__)
#define log_debug(...)                                           \
        do {                                                     \
                if (log_enabled(LOG_LEVEL_DEBUG))                \
                        log_write(LOG_LEVEL_DEBUG, __VA_ARGS__); \
        } while (0)
