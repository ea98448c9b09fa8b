/* test_driver_ask.c: the command line reads a machine's cards from a driver and an NVML that a test
 * sets, and moved bytes from the simulated driver's counters. */
#include "unit.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "lab/demo/demo.h"
#include "client/driver/driver_ask.h"
#include "cli_bench.h"
#include "nvml/nvml_library.h"

static const char *const settings[] = {"GPUS",
                                       "KILL",
                                       "SHUT",
                                       "cuInit",
                                       "cuDeviceGet",
                                       "cuDeviceGetCount",
                                       "cuDeviceGetAttribute",
                                       "cuDeviceTotalMem_v2",
                                       "cuDeviceGetPCIBusId",
                                       "nvmlInit_v2",
                                       "nvmlDeviceGetHandleByPciBusId_v2",
                                       "nvmlDeviceGetMemoryInfo",
                                       "nvmlDeviceGetComputeMode"};
static struct driver_report report;

static void set(const char *name, const char *value)
{
        assert_int_equal(setenv(name, value, 1), 0);
}

static int begin(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
                (void)unsetenv(settings[i]);
        set("GPUS", "2");
        return cli_bench_begin(state);
}

static const struct driver_report *ask(void)
{
        memset(&report, 0xee, sizeof(report));
        assert_int_equal(driver_ask(STUB_FOLDER, &report), 0);
        return &report;
}

static void cards_are_described_by_driver_and_nvml(void **state)
{
        const struct driver_report *r = ask();

        assert_int_equal(r->stage, DRIVER_ANSWERED);
        assert_int_equal(r->version, 12040);
        assert_int_equal(r->hung, 0);
        assert_int_equal(r->signal, 0);
        assert_int_equal(r->nvml, 1);
        assert_int_equal(r->n_gpus, 2);
        for (unsigned i = 0; i < 2; i++) {
                assert_string_equal(r->gpus[i].name, i ? "card 101" : "card 100");
                assert_string_equal(r->gpus[i].pci_bus_id, i ? "0000:01:00.0" : "0000:00:00.0");
                assert_int_equal(r->gpus[i].vmm, 1);
                assert_int_equal(r->gpus[i].total_bytes, 10 * GIB);
                assert_int_equal(r->gpus[i].used_bytes, 3 * GIB);
                assert_int_equal(r->gpus[i].compute_mode, 3);
        }
        assert_true(r->symbols.all > 5);
}

static void missing_figures_stay_unknown(void **state)
{
        set("nvmlDeviceGetMemoryInfo", "1");
        set("nvmlDeviceGetComputeMode", "1");
        set("cuDeviceGetAttribute", "1");
        ask();
        assert_int_equal(report.gpus[0].total_bytes, 2 * GIB); /* the driver's own figure */
        assert_int_equal(report.gpus[1].total_bytes, 3 * GIB);
        assert_int_equal(report.gpus[0].used_bytes, DRIVER_UNKNOWN);
        assert_int_equal(report.gpus[0].compute_mode, -1);
        assert_int_equal(report.gpus[0].vmm, -1);
        assert_int_equal(report.nvml, 1);
        set("cuDeviceTotalMem_v2", "1");
        ask();
        assert_int_equal(report.gpus[0].total_bytes, 0);
        begin(state);
        set("nvmlInit_v2", "9");
        ask();
        assert_int_equal(report.nvml, 0);
        assert_int_equal(report.stage, DRIVER_ANSWERED);
        assert_int_equal(report.gpus[0].used_bytes, DRIVER_UNKNOWN);
        begin(state);
        set("cuDeviceGetPCIBusId", "1");
        ask();
        assert_int_equal(report.gpus[0].used_bytes, DRIVER_UNKNOWN);
}

/* The other cards are described as before. */
static void one_card_that_does_not_answer_hides_no_other(void **state)
{
        set("GPUS", "3");
        set("cuDeviceGet", "1");
        set("nvmlDeviceGetHandleByPciBusId_v2", "1");
        ask();
        assert_int_equal(report.n_gpus, 3);
        assert_string_equal(report.gpus[1].name, "");
        assert_int_equal(report.gpus[1].vmm, -1);
        assert_int_equal(report.gpus[1].used_bytes, DRIVER_UNKNOWN);
        assert_string_equal(report.gpus[2].name, "card 102");
        assert_int_equal(report.gpus[2].used_bytes, 3 * GIB);
}

static void more_cards_than_there_is_room_for_are_left_out(void **state)
{
        set("nvmlInit_v2", "1");
        set("GPUS", "17");
        assert_int_equal(ask()->n_gpus, DRIVER_GPUS_MAX);
        set("cuDeviceGetCount", "3");
        assert_int_equal(ask()->n_gpus, 0);
        assert_int_equal(report.stage, DRIVER_ANSWERED);
}

static void a_driver_that_does_not_start_says_why(void **state)
{
        set("cuInit", "100");
        ask();
        assert_int_equal(report.stage, DRIVER_NOT_STARTED);
        assert_int_equal(report.result, 100);
        assert_string_equal(report.reason, "CUDA_ERROR_NO_DEVICE");
        assert_int_equal(report.version, 12040);
        assert_int_equal(report.n_gpus, 0);
        set("cuInit", "4711");
        ask();
        assert_int_equal(report.result, 4711);
        assert_string_equal(report.reason, "which has no name here");
}

static void a_driver_that_crashes_ends_only_the_child(void **state)
{
        set("KILL", "1");
        ask();
        assert_int_equal(report.stage, DRIVER_NOT_STARTED);
        assert_int_equal(report.signal, SIGKILL);
        assert_int_equal(report.hung, 0);
}

static void a_missing_or_broken_driver_is_named(void **state)
{
        char folder[] = "/tmp/sublet-driver-XXXXXX", path[64];
        FILE *f;

        assert_non_null(mkdtemp(folder));
        assert_int_equal(driver_ask(folder, &report), 0);
        assert_int_equal(report.stage, DRIVER_NOT_FOUND);
        assert_non_null(strstr(report.reason, folder));
        (void)snprintf(path, sizeof(path), "%s/libcuda.so.1", folder);
        f = fopen(path, "w");
        assert_non_null(f);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(driver_ask(folder, &report), 0);
        assert_int_equal(report.stage, DRIVER_NOT_FOUND);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(folder), 0);
}

static void the_demo_reads_the_cards_use_from_nvml(void **state)
{
        struct demo_nvml *nvml = NULL;

        assert_int_equal(demo_nvml_open(STUB_FOLDER, "0000:00:00.0", &nvml), 0);
        assert_int_equal(demo_nvml_used(nvml), 3 * GIB);
        set("nvmlDeviceGetMemoryInfo", "1");
        assert_int_equal(demo_nvml_used(nvml), DEMO_UNKNOWN);
        assert_null(getenv("SHUT"));
        demo_nvml_close(nvml);
        assert_string_equal(getenv("SHUT"), "1");
        assert_int_equal(demo_nvml_used(NULL), DEMO_UNKNOWN);
        demo_nvml_close(NULL);
}

static void without_nvml_there_is_no_figure(void **state)
{
        struct demo_nvml *nvml = NULL;

        assert_int_equal(demo_nvml_open("/no/folder", "0000:00:00.0", &nvml), -ENOENT);
        set("nvmlDeviceGetHandleByPciBusId_v2", "1");
        assert_int_equal(demo_nvml_open(STUB_FOLDER, "0000:01:00.0", &nvml), -ENODEV);
        assert_string_equal(getenv("SHUT"), "1"); /* NVML was shut down again */
        set("nvmlInit_v2", "1");
        assert_int_equal(demo_nvml_open(STUB_FOLDER, "0000:00:00.0", &nvml), -ENOSYS);
        assert_null(nvml);
}

static void functions_that_nvml_lacks_return_an_error(void **state)
{
        struct nvml_library nvml;
        nvmlMemory_t memory;
        char name[8];

        assert_int_equal(nvml_library_load(STUB_FOLDER, &nvml), 0);
        assert_int_equal(nvml.nvmlDeviceGetMemoryInfo(NULL, &memory), NVML_SUCCESS);
        assert_int_equal(nvml.nvmlDeviceGetName(NULL, name, sizeof(name)),
                         NVML_ERROR_FUNCTION_NOT_FOUND);
        assert_int_equal(nvml_bus_bytes_s(&nvml, NULL), 0);
}

static void an_older_nvml_lists_processes_by_the_call_that_it_has(void **state)
{
        struct nvml_library nvml;
        nvmlProcessInfo_t infos[8];
        unsigned n = ARRAY_SIZE(infos);

        assert_int_equal(nvml_library_load(STUB_FOLDER, &nvml), 0);
        assert_int_equal(nvml.nvmlDeviceGetComputeRunningProcesses_v3(NULL, &n, infos),
                         NVML_SUCCESS);
        assert_int_equal(n, 7);
}

static int moved(const char *script, uint64_t *ret_in, uint64_t *ret_out)
{
        char path[] = "/tmp/sublet-stat-XXXXXX";
        int fd = mkstemp(path), r;

        assert_true(fd >= 0);
        assert_int_equal(dprintf(fd, "#!/bin/sh\n%s\n", script), 11 + (int)strlen(script));
        assert_int_equal(fchmod(fd, 0700), 0);
        assert_int_equal(close(fd), 0);
        (void)snprintf(cli_bench.parts[PART_SIMULATOR_STAT], sizeof(cli_bench.parts[0]), "%s",
                       path);
        r = demo_moved("s1", ret_in, ret_out);
        assert_int_equal(unlink(path), 0);
        return r;
}

static void moved_bytes_come_from_the_simulated_driver(void **state)
{
        uint64_t in = 1, out = 2;

        assert_int_equal(moved("[ \"$*\" = '--json --session s1' ] && echo '{\"devices\": "
                               "[{\"h2d_bytes\": 5, \"d2h_bytes\": 6}, {}]}'",
                               &in, &out),
                         0);
        assert_int_equal(in, 5);
        assert_int_equal(out, 6);
        assert_int_equal(moved("echo '{\"devices\": [{\"h2d_bytes\": 7, \"d2h_bytes\": 8}]}'; "
                               "exit 1",
                               &in, &out),
                         -EIO);
        assert_int_equal(moved("echo '{\"devices\": [{\"h2d_bytes\": 7}]}'", &in, &out), -EBADMSG);
        assert_int_equal(moved("echo '{\"devices\": [{\"d2h_bytes\": 7}]}'", &in, &out), -EBADMSG);
        assert_int_equal(moved("echo nonsense", &in, &out), -EBADMSG);
        assert_int_equal(in, 5);
        assert_int_equal(out, 6);
        assert_int_equal(demo_moved("", &in, &out), -ENOENT);
        cli_bench.parts[PART_SIMULATOR_STAT][0] = 0;
        assert_int_equal(demo_moved("s1", &in, &out), -ENOENT);
}

#define DRIVER_TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                DRIVER_TEST(cards_are_described_by_driver_and_nvml),
                DRIVER_TEST(missing_figures_stay_unknown),
                DRIVER_TEST(one_card_that_does_not_answer_hides_no_other),
                DRIVER_TEST(more_cards_than_there_is_room_for_are_left_out),
                DRIVER_TEST(a_driver_that_does_not_start_says_why),
                DRIVER_TEST(a_driver_that_crashes_ends_only_the_child),
                DRIVER_TEST(a_missing_or_broken_driver_is_named),
                DRIVER_TEST(the_demo_reads_the_cards_use_from_nvml),
                DRIVER_TEST(without_nvml_there_is_no_figure),
                DRIVER_TEST(functions_that_nvml_lacks_return_an_error),
                DRIVER_TEST(an_older_nvml_lists_processes_by_the_call_that_it_has),
                DRIVER_TEST(moved_bytes_come_from_the_simulated_driver),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
