/* test_host.c: the amount of host memory, read from files that the tests write in the form of the
 * kernel's. Must never read the machine's own files. */
#include "unit.h"

#include <errno.h>

#include "base/host.h"
#include "base/macros.h"

#define MEMINFO \
        "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n"
#define V2 "/sys/fs/cgroup"
#define V1 "/sys/fs/cgroup/memory"

static struct file {
        const char *path, *text;
} files[16];
static unsigned n_files, opened;

/* In place of the C library's function: opens /proc and /sys files that a test has written. */
FILE *fopen(const char *path, const char *mode)
{
        opened++;
        for (unsigned i = 0; i < n_files; i++)
                if (strcmp(path, files[i].path) == 0)
                        return fmemopen((void *)(uintptr_t)files[i].text, strlen(files[i].text),
                                        "r");
        errno = ENOENT;
        return NULL;
}

static void has(const char *path, const char *text)
{
        assert_in_range(n_files, 0, ARRAY_SIZE(files) - 1);
        files[n_files++] = (struct file){path, text};
}

static void expect(uint64_t total, uint64_t available)
{
        struct host_memory m;

        assert_int_equal(host_memory_read(&m), 0);
        assert_int_equal(m.total_bytes, total);
        assert_int_equal(m.available_bytes, available);
}

static int machine(void **state)
{
        n_files = 0;
        has("/proc/meminfo", MEMINFO);
        return 0;
}

static void without_a_cgroup_the_machines_figures_hold(void **state)
{
        expect(16 * GIB, 8 * GIB);
        has("/proc/self/cgroup", "no line of its kind\n7:no path\n");
        expect(16 * GIB, 8 * GIB);
}

static void missing_figures_are_errors_and_not_zeros(void **state)
{
        struct host_memory m = {.total_bytes = 1, .available_bytes = 2};

        n_files = 0;
        assert_int_equal(host_memory_read(&m), -ENOENT);
        has("/proc/meminfo", "MemTotal:       16777216 kB\n");
        assert_int_equal(host_memory_read(&m), -ENODATA);
        n_files = 0;
        has("/proc/meminfo", "MemAvailable:   16777216 kB\n");
        assert_int_equal(host_memory_read(&m), -ENODATA);
        assert_int_equal(m.total_bytes, 1);
        assert_int_equal(m.available_bytes, 2);
}

static void a_cgroups_limit_holds_and_its_cached_files_count_as_free(void **state)
{
        has("/proc/self/cgroup", "0::/job\n");
        has(V2 "/job/memory.max", "4294967296\n");
        has(V2 "/job/memory.current", "3221225472\n");
        expect(4 * GIB, GIB);
        /* All inactive file pages count as free, half of the active ones, and no other memory. */
        has(V2 "/job/memory.stat", "anon 1073741824\ninactive_anon 4096\ninactive_file "
                                   "536870912\nactive_file 536870912\n");
        expect(4 * GIB, GIB + 512 * MIB + 256 * MIB);
}

/* Above memory.high the kernel does not kill, but a program that pins memory there stands still. */
static void what_slows_a_cgroup_down_counts_as_its_limit(void **state)
{
        has("/proc/self/cgroup", "0::/job\n");
        has(V2 "/job/memory.max", "4294967296\n");
        has(V2 "/job/memory.high", "3221225472\n");
        has(V2 "/job/memory.current", "1073741824\n");
        expect(3 * GIB, 2 * GIB);
        n_files = 2;
        has(V2 "/job/memory.max", "max\n");
        has(V2 "/job/memory.high", "2147483648\n");
        has(V2 "/job/memory.current", "1073741824\n");
        expect(2 * GIB, GIB);
        n_files = 2;
        has(V2 "/job/memory.max", "4294967296\n");
        has(V2 "/job/memory.high", "max\n");
        has(V2 "/job/memory.current", "1073741824\n");
        expect(4 * GIB, 3 * GIB);
}

static void a_cgroup_that_is_over_its_limit_has_nothing_left(void **state)
{
        has("/proc/self/cgroup", "0::/job\n");
        has(V2 "/job/memory.max", "1073741824\n");
        has(V2 "/job/memory.current", "2147483648\n");
        expect(GIB, 0);
}

static void a_cgroup_with_more_than_the_machine_changes_nothing(void **state)
{
        has("/proc/self/cgroup", "0::/job\n");
        has(V2 "/job/memory.max", "max\n");
        has(V2 "/job/memory.current", "3221225472\n");
        expect(16 * GIB, 8 * GIB);
        n_files = 2;
        has(V2 "/job/memory.max", "1099511627776\n");
        has(V2 "/job/memory.current", "3221225472\n");
        expect(16 * GIB, 8 * GIB);
}

static void every_ancestors_limit_holds(void **state)
{
        has("/proc/self/cgroup", "0::/outer/inner\n");
        has(V2 "/outer/inner/memory.max", "6442450944\n");
        has(V2 "/outer/inner/memory.current", "1073741824\n");
        has(V2 "/outer/memory.max", "4294967296\n");
        has(V2 "/outer/memory.current", "2147483648\n");
        expect(4 * GIB, 2 * GIB);
        /* The root that a container sees is its own cgroup. */
        has(V2 "/memory.max", "3221225472\n");
        has(V2 "/memory.current", "2147483648\n");
        expect(3 * GIB, GIB);
}

static void an_ancestor_with_a_larger_limit_may_have_less_left(void **state)
{
        has("/proc/self/cgroup", "0::/outer/inner\n");
        has(V2 "/outer/inner/memory.max", "4294967296\n");
        has(V2 "/outer/inner/memory.current", "1073741824\n");
        has(V2 "/outer/memory.max", "6442450944\n");
        has(V2 "/outer/memory.current", "5368709120\n");
        expect(4 * GIB, GIB);
}

/* Evicting programs look again and again. */
static void no_file_is_read_that_changes_nothing(void **state)
{
        has("/proc/self/cgroup", "5:memory:/job\n");
        has(V1 "/job/memory.limit_in_bytes", "9223372036854771712\n");
        has(V1 "/memory.limit_in_bytes", "9223372036854771712\n");
        opened = 0;
        expect(16 * GIB, 8 * GIB);
        assert_int_equal(opened, 4);
        n_files = 2;
        has(V1 "/job/memory.limit_in_bytes", "12884901888\n");
        has(V1 "/job/memory.usage_in_bytes", "1073741824\n");
        opened = 0;
        expect(12 * GIB, 8 * GIB); /* more is left than the machine has, without memory.stat */
        assert_int_equal(opened, 5);
}

static void cgroup_version_1_uses_the_memory_controllers_group(void **state)
{
        has(V1 "/job/memory.limit_in_bytes", "4294967296\n");
        has(V1 "/job/memory.usage_in_bytes", "2147483648\n");
        has(V1 "/other/memory.limit_in_bytes", "1073741824\n");
        has(V1 "/other/memory.usage_in_bytes", "4096\n");
        has(V1 "/job/memory.stat", "total_inactive_file 1073741824\ninactive_file 4096\n");
        has("/proc/self/cgroup", "9:cpu,cpuacct:/other\n8:memory2,hugememory:/other\n"
                                 "7:name=memory:/other\n5:cpu,memory:/job\n");
        expect(4 * GIB, 3 * GIB);
}

static void half_of_the_machine_is_promised_and_never_its_margin(void **state)
{
        /* The margin is a GiB, or a sixteenth of the memory if that is more, or a quarter if that
         * is less. */
        const struct host_memory ample = {64 * GIB, 60 * GIB}, tight = {64 * GIB, 10 * GIB},
                                 small = {2 * GIB, GIB}, middle = {8 * GIB, 4 * GIB};

        assert_int_equal(host_memory_budget(&ample, 0), 32 * GIB);
        assert_int_equal(host_memory_budget(&tight, 0), 6 * GIB);
        assert_int_equal(host_memory_budget(&small, 0), 512 * MIB);
        assert_int_equal(host_memory_budget(&middle, 0), 3 * GIB);
        assert_int_equal(host_memory_budget(&(struct host_memory){64 * GIB, GIB}, 0), 0);
}

static void memory_promised_before_is_not_subtracted_twice(void **state)
{
        const struct host_memory tight = {64 * GIB, 10 * GIB};

        assert_int_equal(host_memory_budget(&tight, 20 * GIB), 20 * GIB);
        assert_int_equal(host_memory_budget(&tight, 5 * GIB), 6 * GIB);
        assert_int_equal(host_memory_budget(&tight, 50 * GIB), 32 * GIB);
}

static void a_client_may_use_half_of_the_margin(void **state)
{
        assert_int_equal(host_memory_room(&(struct host_memory){64 * GIB, 10 * GIB}), 8 * GIB);
        assert_int_equal(host_memory_room(&(struct host_memory){64 * GIB, GIB}), 0);
}

/* All of HOST_TAKERS programs may take a share of the last room: the margin has it. */
static void the_margin_is_enough_for_the_shares_of_many_programs(void **state)
{
        const uint64_t totals[] = {512 * MIB, 4 * GIB, 16 * GIB, 256 * GIB};

        for (unsigned i = 0; i < ARRAY_SIZE(totals); i++) {
                const struct host_memory free = {totals[i], totals[i]};
                const uint64_t kept = totals[i] - host_memory_room(&free);

                assert_true(host_memory_share(&free) > 0);
                assert_true(HOST_TAKERS * host_memory_share(&free) <= kept);
        }
}

static void a_share_is_never_more_than_the_room_nor_less_than_a_huge_page(void **state)
{
        const struct host_memory tiny = {64 * MIB, 64 * MIB}, last = {64 * GIB, 2 * GIB + 5},
                                 none = {64 * GIB, 2 * GIB};

        assert_int_equal(host_memory_share(&tiny), 2 * MIB);
        assert_int_equal(host_memory_share(&last), 5);
        assert_int_equal(host_memory_share(&none), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup(without_a_cgroup_the_machines_figures_hold, machine),
                cmocka_unit_test_setup(missing_figures_are_errors_and_not_zeros, machine),
                cmocka_unit_test_setup(a_cgroups_limit_holds_and_its_cached_files_count_as_free,
                                       machine),
                cmocka_unit_test_setup(what_slows_a_cgroup_down_counts_as_its_limit, machine),
                cmocka_unit_test_setup(a_cgroup_that_is_over_its_limit_has_nothing_left, machine),
                cmocka_unit_test_setup(a_cgroup_with_more_than_the_machine_changes_nothing,
                                       machine),
                cmocka_unit_test_setup(every_ancestors_limit_holds, machine),
                cmocka_unit_test_setup(an_ancestor_with_a_larger_limit_may_have_less_left, machine),
                cmocka_unit_test_setup(no_file_is_read_that_changes_nothing, machine),
                cmocka_unit_test_setup(cgroup_version_1_uses_the_memory_controllers_group, machine),
                cmocka_unit_test(half_of_the_machine_is_promised_and_never_its_margin),
                cmocka_unit_test(memory_promised_before_is_not_subtracted_twice),
                cmocka_unit_test(a_client_may_use_half_of_the_margin),
                cmocka_unit_test(the_margin_is_enough_for_the_shares_of_many_programs),
                cmocka_unit_test(a_share_is_never_more_than_the_room_nor_less_than_a_huge_page),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
