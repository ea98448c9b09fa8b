/* text.c: owns what counts as text that may be shown. Must never depend on a locale: the daemon and
 * the preload library may have any locale. */
#include "base/text.h"

#include <stdint.h>
#include <string.h>

#include "base/macros.h"

/* Characters that a terminal obeys, or that make a line look like another one: Unicode's controls,
 * separators of lines and paragraphs, and controls of the writing direction (UAX #9). */
static const struct range {
        uint32_t first, last;
} unclean[] = {
        {0x00, 0x1f},     {0x7f, 0x9f},     {0x61c, 0x61c},   {0x200e, 0x200f},
        {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb},
};

static bool is_clean(uint32_t code)
{
        for (size_t i = 0; i < ARRAY_SIZE(unclean); i++)
                if (code >= unclean[i].first && code <= unclean[i].last)
                        return false;
        return true;
}

/* Reads a character. Returns how many bytes it has; 0: no valid UTF-8 begins here (RFC 3629). Reads
 * no byte behind a NUL. */
static size_t read_character(const char *text, uint32_t *ret_code)
{
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        const unsigned char first = (unsigned char)text[0];
        const size_t n = first < 0x80             ? 1
                         : (first & 0xe0) == 0xc0 ? 2
                         : (first & 0xf0) == 0xe0 ? 3
                         : (first & 0xf8) == 0xf0 ? 4
                                                  : 0;
        uint32_t code = n == 1 ? first : first & (0x7fU >> n);

        for (size_t i = 1; i < n; i++) {
                if (((unsigned char)text[i] & 0xc0) != 0x80)
                        return 0;
                code = code << 6 | ((unsigned char)text[i] & 0x3f);
        }
        if (n == 0 || code < least[n] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
                return 0;
        *ret_code = code;
        return n;
}

bool text_is_clean(const char *text)
{
        uint32_t code;

        for (size_t n; *text; text += n) {
                n = read_character(text, &code);
                if (n == 0 || !is_clean(code))
                        return false;
        }
        return true;
}

size_t text_fit(const char *text, size_t most)
{
        size_t used = 0;

        while (text[used]) {
                uint32_t code;
                size_t n = read_character(text + used, &code);

                n = n ? n : 1;
                if (used + n > most)
                        break;
                used += n;
        }
        return used;
}

char *text_copy(char *ret, size_t n, const char *text)
{
        size_t used = 0;

        while (*text) {
                uint32_t code = 0;
                size_t length = read_character(text, &code);
                const bool clean = length && is_clean(code);

                length = length ? length : 1;
                if (used + (clean ? length : 1) >= n)
                        break;
                if (clean)
                        memcpy(ret + used, text, length);
                else
                        ret[used] = '?';
                used += clean ? length : 1;
                text += length;
        }
        ret[used] = '\0';
        return ret;
}

/* The optimal string alignment distance: F. J. Damerau, "A technique for computer detection and
 * correction of spelling errors" (1964). */
unsigned text_distance(const char *a, const char *b)
{
        unsigned rows[3][48];
        const size_t m = strlen(a), n = MIN(strlen(b), ARRAY_SIZE(rows[0]) - 1);

        for (size_t k = 0; k <= n; k++)
                rows[0][k] = (unsigned)k;
        for (size_t i = 1; i <= m; i++) {
                const unsigned *above = rows[(i - 1) % 3];
                unsigned *row = rows[i % 3];

                row[0] = (unsigned)i;
                for (size_t k = 1; k <= n; k++) {
                        row[k] = MIN(MIN(above[k], row[k - 1]) + 1,
                                     above[k - 1] + (a[i - 1] != b[k - 1]));
                        if (i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1])
                                row[k] = MIN(row[k], rows[(i - 2) % 3][k - 2] + 1);
                }
        }
        return rows[m % 3][n];
}
