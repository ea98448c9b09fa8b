/* test_owner.c: the library reads the key `require` as the daemon does: two readers, one file. */
#include "unit.h"

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "daemon/setup/config.h"
#include "base/owner.h"

static const struct {
        const char *text;
        bool yes;
} files[] = {
        {"", false},
        {"[daemon]\nrequire = yes\n", true},
        {"[daemon]\nrequire=yes", true},
        {"[daemon]\r\nrequire : yes \r\n", true},
        {"\xef\xbb\xbf[daemon]\nrequire = yes\n", true},
        {"[daemon] of this machine\nrequire = yes\n", true},
        {"# one\n; two\n\n[daemon]\nmode = auto\n# three\n\trequire\t=\tyes\n", false},
        {"# one\n[daemon]\nmode = auto\n\nrequire\t=\tyes\nquantum = 2s\n", true},
        {"[daemon]\nrequire = no\nrequire = yes\n", true},
        {"[daemon]\nrequire = yes\nrequire = no\n", false},
        {"[daemon]\nrequire = yes\n[default]\nweight = 2\n[daemon]\nquantum = 2s\n", true},
        {"[daemon]\n#require = yes\n", false},
        {"[daemon]\n;require = yes\n", false},
        {"[daemon]\nrequire = no\n", false},
};

static void library_and_daemon_read_the_same(void **state)
{
        for (unsigned i = 0; i < ARRAY_SIZE(files); i++) {
                const size_t n = strlen(files[i].text);
                FILE *f = n ? fmemopen((char *)files[i].text, n, "r") : fopen("/dev/null", "r");
                char error[CONFIG_ERROR_MAX] = "";
                struct config c;

                assert_non_null(f);
                config_default(&c);
                if (config_read(&c, f, "x", error) == 0 &&
                    (c.require != files[i].yes ||
                     owner_text_requires(files[i].text, n) != files[i].yes))
                        fail_msg("the daemon reads %d, the library %d of: %s", c.require,
                                 owner_text_requires(files[i].text, n), files[i].text);
                config_free(&c);
                (void)fclose(f);
        }
}

/* The daemon refuses these files. The library reads one key, and takes no other for it. */
static void no_other_line_counts(void **state)
{
        static const char *const texts[] = {
                "require = yes\n",
                "[default]\nrequire = yes\n",
                "[class daemon]\nrequire = yes\n",
                "[daemon\nrequire = yes\n",
                "[daemon]\nrequire = yes # maybe\n",
                "[daemon]\nrequire = Yes\n",
                "[daemon]\nrequire = yesterday\n",
                "[daemon]\nrequire\nyes\n",
                "[daemon]\nrequire_all = yes\n",
                "[daemon]\n = yes\n",
                "[daemon]\nrequire =",
                "[",
                "=",
        };

        for (unsigned i = 0; i < ARRAY_SIZE(texts); i++)
                if (owner_text_requires(texts[i], strlen(texts[i])))
                        fail_msg("%s", texts[i]);
        assert_false(owner_text_requires("[daemon]\nrequire = yes", 21)); /* not past its end */
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(library_and_daemon_read_the_same),
                cmocka_unit_test(no_other_line_counts),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
