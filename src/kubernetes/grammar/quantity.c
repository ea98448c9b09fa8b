/* quantity.c: owns the grammar of Kubernetes' quantities (apimachinery's resource.Quantity). Must
 * never depend on a locale. */
#include "kubernetes/grammar/quantity.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/macros.h"
#include "base/units.h"

#define DIGITS_MAX 18 /* more significant digits are no amount of memory */

static const struct suffix {
        const char *text;
        unsigned shift; /* a power of 2 */
        int decimal;    /* a power of 10 */
} suffixes[] = {
        {"", 0, 0},    {"n", 0, -9},  {"u", 0, -6},  {"m", 0, -3},  {"k", 0, 3},   {"M", 0, 6},
        {"G", 0, 9},   {"T", 0, 12},  {"P", 0, 15},  {"E", 0, 18},  {"Ki", 10, 0}, {"Mi", 20, 0},
        {"Gi", 30, 0}, {"Ti", 40, 0}, {"Pi", 50, 0}, {"Ei", 60, 0},
};

static bool is_digit(char c)
{
        return c >= '0' && c <= '9';
}

/* Reads an exponent such as "e9", "E+9" or "e-3". 0 or -EINVAL. */
static int read_exponent(const char *text, int *ret)
{
        bool negative = text[1] == '-';
        int value = 0;

        text += 1 + (text[1] == '-' || text[1] == '+');
        if (!is_digit(*text))
                return -EINVAL;
        for (; is_digit(*text); text++)
                if (value < 1000)
                        value = value * 10 + (*text - '0');
        if (*text)
                return -EINVAL;
        *ret = negative ? -value : value;
        return 0;
}

static int read_suffix(const char *text, unsigned *ret_shift, int *ret_decimal)
{
        for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
                if (strcmp(text, suffixes[i].text) != 0)
                        continue;
                *ret_shift = suffixes[i].shift;
                *ret_decimal = suffixes[i].decimal;
                return 0;
        }
        if (*text != 'e' && *text != 'E')
                return -EINVAL;
        *ret_shift = 0;
        return read_exponent(text, ret_decimal);
}

struct number {
        uint64_t value; /* below 10^18 */
        unsigned shift; /* the value counts times 2^shift */
        int decimal;    /* the value counts times 10^decimal */
};

static int read_number(const char *text, struct number *ret)
{
        const char *p = text + (*text == '+');
        struct number n = {0};
        unsigned digits = 0;
        int behind_point = 0;
        bool any = false, point = false;

        for (; is_digit(*p) || (*p == '.' && !point); p++) {
                if (*p == '.') {
                        point = true;
                        continue;
                }
                any = true;
                digits += digits || *p != '0';
                if (digits > DIGITS_MAX)
                        return -ERANGE;
                n.value = n.value * 10 + (unsigned)(*p - '0');
                behind_point += point;
        }
        if (!any || n.value == 0 || read_suffix(p, &n.shift, &n.decimal) < 0)
                return -EINVAL;
        n.decimal -= behind_point;
        *ret = n;
        return 0;
}

/* Writes the whole part, and whether a fraction remains. 0 or -ERANGE. */
static int work_out(const struct number *n, unsigned __int128 *ret, bool *ret_rest)
{
        unsigned __int128 whole = (unsigned __int128)n->value << n->shift; /* below 2^120 */
        bool rest = false;

        for (int i = n->decimal; i > 0; i--) {
                if (whole > (unsigned __int128)UINT64_MAX << 20)
                        return -ERANGE;
                whole *= 10;
        }
        for (int i = n->decimal; i < 0 && whole; i++) {
                rest = rest || whole % 10;
                whole /= 10;
        }
        *ret = whole;
        *ret_rest = rest;
        return 0;
}

static int read_bytes(const char *text, unsigned __int128 *ret, bool *ret_rest)
{
        struct number n;
        int r = read_number(text, &n);

        return r < 0 ? r : work_out(&n, ret, ret_rest);
}

int quantity_bytes(const char *text, uint64_t *ret_bytes)
{
        unsigned __int128 bytes = 0;
        bool rest = false;
        int r = read_bytes(text, &bytes, &rest);

        if (r < 0 || bytes == 0)
                return r < 0 ? r : -EINVAL;
        if (bytes + rest > UINT64_MAX)
                return -ERANGE;
        *ret_bytes = (uint64_t)(bytes + rest);
        return 0;
}

int quantity_size(const char *text, uint64_t *ret_bytes)
{
        size_t n = strlen(text);
        uint64_t bytes;
        char copy[64];
        int r;

        if (n >= sizeof(copy))
                return -EINVAL;
        n -= n > 0 && text[n - 1] == 'B';
        memcpy(copy, text, n);
        copy[n] = '\0';
        r = quantity_bytes(copy, &bytes);
        if (r == 0 && bytes < MIB)
                return -EDOM;
        if (r == 0)
                *ret_bytes = bytes;
        return r;
}

int quantity_mib(const char *text, uint64_t *ret_mib)
{
        unsigned __int128 bytes = 0;
        bool rest = false;
        int r = read_bytes(text, &bytes, &rest);

        if (r < 0)
                return r;
        if (bytes < MIB)
                return -EDOM;
        bytes = (bytes + rest + MIB - 1) / MIB;
        if (bytes > UINT64_MAX / MIB)
                return -ERANGE;
        *ret_mib = (uint64_t)bytes;
        return 0;
}

int quantity_portion(const char *text, unsigned *ret_millionths)
{
        unsigned __int128 millionths = 0;
        struct number n;
        bool rest = false;
        int r = read_number(text, &n);

        if (r < 0)
                return r;
        n.decimal += 6;
        r = work_out(&n, &millionths, &rest);
        if (r < 0 || millionths >= 1000000)
                return -ERANGE;
        *ret_millionths = (unsigned)millionths;
        return 0;
}

int quantity_count(const char *text, uint64_t *ret_count)
{
        uint64_t count;
        int r = units_parse_count(text, &count);

        if (r < 0 || count == 0)
                return r < 0 ? r : -EINVAL;
        *ret_count = count;
        return 0;
}
