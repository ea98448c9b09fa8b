/* cli_bench.c: owns the records of the subcommands' tests: the text on stdout, the messages of
 * cli_fail(), and the paths of sublet's parts. Must never call a real part. */
#include "cli_bench.h"

#include "unit.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"

struct cli_bench cli_bench;
static int stdout_before = -1;
static FILE *kept;

int cli_fail(int status, const char *format, ...)
{
        va_list args;

        va_start(args, format);
        (void)vsnprintf(cli_bench.said, sizeof(cli_bench.said), format, args);
        va_end(args);
        cli_bench.failures++;
        return status;
}

int parts_find(enum part part, char ret[static PATH_MAX])
{
        (void)snprintf(ret, PATH_MAX, "%s", cli_bench.parts[part]);
        return ret[0] ? 0 : -ENOENT;
}

int cli_bench_begin(void **state)
{
        memset(&cli_bench, 0, sizeof(cli_bench));
        for (unsigned i = 0; i < ARRAY_SIZE(cli_bench.parts); i++)
                (void)snprintf(cli_bench.parts[i], sizeof(cli_bench.parts[i]), "/parts/%u", i);
        return 0;
}

void cli_bench_catch(void)
{
        (void)fflush(stdout);
        kept = tmpfile();
        assert_non_null(kept);
        stdout_before = dup(STDOUT_FILENO);
        assert_true(dup2(fileno(kept), STDOUT_FILENO) >= 0);
}

char *cli_bench_caught(void)
{
        char *text;
        long n;

        (void)fflush(stdout);
        assert_true(dup2(stdout_before, STDOUT_FILENO) >= 0);
        (void)close(stdout_before);
        (void)fseek(kept, 0, SEEK_END);
        n = ftell(kept);
        text = calloc(1, (size_t)n + 1);
        assert_non_null(text);
        rewind(kept);
        assert_int_equal(fread(text, 1, (size_t)n, kept), n);
        (void)fclose(kept);
        return text;
}

char *cli_bench_path(const char *folder, const char *name)
{
        static char path[128];

        (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
        return path;
}

void cli_bench_write(const char *path, const char *text)
{
        FILE *f = fopen(path, "w");

        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(chmod(path, 0700), 0);
}
