/* columns.c: owns the width of texts. Must never change the locale of the process. */
#include "client/figures/columns.h"

#include <limits.h>
#include <locale.h>
#include <wchar.h>

size_t columns_fit(const char *text, int most, int *ret_used)
{
        static locale_t utf8;
        locale_t before;
        mbstate_t state = {0};
        size_t bytes = 0;

        if (!utf8)
                utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
        before = utf8 ? uselocale(utf8) : (locale_t)0;
        *ret_used = 0;
        while (text[bytes]) {
                wchar_t c = L'?';
                size_t n = mbrtowc(&c, text + bytes, MB_LEN_MAX, &state);
                int width;

                if (n > MB_LEN_MAX) { /* not UTF-8: count the byte */
                        n = 1;
                        c = L'?';
                        state = (mbstate_t){0};
                }
                width = wcwidth(c);
                if (*ret_used + (width > 0 ? width : 0) > most)
                        break;
                *ret_used += width > 0 ? width : 0;
                bytes += n;
        }
        if (before)
                (void)uselocale(before);
        return bytes;
}

int columns_of(const char *text)
{
        int used;

        (void)columns_fit(text, INT_MAX, &used);
        return used;
}
