/* lobby.c: shared memory of the ranks and their parent. */
#include "lobby.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "program.h"

struct lobby *lobby;
int my_rank = -1;

void lobby_create(int n)
{
        lobby = mmap(NULL, sizeof(*lobby), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                     0);
        if (lobby == MAP_FAILED)
                program_fail(PROGRAM_EXIT_SETUP, "no shared memory");
        lobby->n = n;
}

void lobby_reset(void)
{
        int n = lobby->n;

        memset((void *)lobby, 0, sizeof(*lobby));
        lobby->n = n;
        lobby->present = (unsigned)n;
}

void lobby_clear_findings(void)
{
        for (int i = 0; i < lobby->n; i++) {
                struct seat *s = &lobby->seat[i];

                *s->failure = *s->note = '\0';
                s->skipped = false;
                s->cases = 0;
        }
}

void lobby_nap(void)
{
        (void)usleep(500);
}

void lobby_meet(void)
{
        unsigned generation = lobby->generation;

        if (atomic_fetch_add(&lobby->arrived, 1) + 1 >= lobby->present) {
                lobby->arrived = 0;
                lobby->generation = generation + 1;
        }
        while (lobby->generation == generation)
                lobby_nap();
}

void lobby_leave(void)
{
        lobby->seat[my_rank].leaves = true;
        atomic_fetch_sub(&lobby->present, 1);
}

__attribute__((format(printf, 3, 0))) static void write_text(char *text, size_t size,
                                                             const char *format, va_list ap)
{
        (void)vsnprintf(text, size, format, ap);
        for (char *p = text; *p; p++)
                if (*p == '"' || *p == '\\' || *p == '\n')
                        *p = '\'';
}

#define WRITE_TEXT(field)                                                                          \
        do {                                                                                       \
                va_list ap;                                                                        \
                                                                                                   \
                va_start(ap, format);                                                              \
                write_text(lobby->seat[my_rank].field, sizeof(lobby->seat[my_rank].field), format, \
                           ap);                                                                    \
                va_end(ap);                                                                        \
        } while (0)

void at(const char *format, ...)
{
        WRITE_TEXT(at);
}

void wrong(const char *format, ...)
{
        if (!*lobby->seat[my_rank].failure)
                WRITE_TEXT(failure);
}

void fatal(const char *format, ...)
{
        if (!*lobby->seat[my_rank].failure)
                WRITE_TEXT(failure);
        _exit(PROGRAM_EXIT_WRONG);
}

void skip(const char *format, ...)
{
        lobby->seat[my_rank].skipped = true;
        WRITE_TEXT(failure);
}

void note(const char *format, ...)
{
        WRITE_TEXT(note);
}

void count_case(void)
{
        lobby->seat[my_rank].cases++;
}
