#!/bin/sh
# cmocka's assert_in_range(value, minimum, maximum) takes integers. The guess: 0 is in the range from -5 to 5.
#
# cmocka 1.1.5 converts all three to an unsigned type of 64 bits, so -5 becomes the largest of the three, and the
# range is empty. assert_in_range() fails for each value, which one notices. assert_not_in_range() holds for each
# value, so such a test can never fail. Debian 12's libcmocka0 1.1.5-2.1.
#
# Seen: zero_is_in_range fails, zero_is_not_in_range passes
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
apt-get -qq download libcmocka-dev=1.1.5-2.1 libcmocka0=1.1.5-2.1 2>/dev/null
for package in *.deb; do dpkg -x "$package" .; done
cat >range.c <<'END'
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void zero_is_in_range(void **state)
{
        (void)state;
        assert_in_range(0, -5, 5);
}

static void zero_is_not_in_range(void **state)
{
        (void)state;
        assert_not_in_range(0, -5, 5);
}

int main(void)
{
        const struct CMUnitTest tests[] = {cmocka_unit_test(zero_is_in_range), cmocka_unit_test(zero_is_not_in_range)};

        return cmocka_run_group_tests(tests, NULL, NULL);
}
END
cc -Iusr/include -o range range.c -Lusr/lib/x86_64-linux-gnu -lcmocka
LD_LIBRARY_PATH=$dir/usr/lib/x86_64-linux-gnu ./range >out 2>&1 && exit 1
cat out
grep -q "OK ] zero_is_not_in_range" out
grep -q "FAILED  ] zero_is_in_range" out
