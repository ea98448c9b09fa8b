/* test_slurm.c: what a Slurm job asks for, what the administrator lets it have, and its file in the
 * daemon's directory. The steps are processes or descriptors of this test; the daemon is a fake. */
#include "unit.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/preload_list.h"
#include "slurm/job_bounds.h"
#include "slurm/slurm_jobs.h"
#include "slurm/wishes.h"

static char dir[64];

static int setup(void **state)
{
        char path[96];

        strcpy(dir, "/tmp/test_slurm.XXXXXX");
        if (!mkdtemp(dir))
                return -1;
        (void)snprintf(path, sizeof(path), "%s/conf.d", dir);
        return mkdir(path, 0755);
}

static int teardown(void **state)
{
        char command[96];

        (void)snprintf(command, sizeof(command), "rm -rf %s", dir);
        return system(command);
}

/* ---- wishes ---- */

static void a_job_asks_for_what_it_names(void **state)
{
        char error[WISHES_ERROR_MAX];
        struct wishes w;

        assert_int_equal(wishes_parse("share=0.5,cap=20G,priority=-1,weight=2", &w, error), 0);
        assert_int_equal(w.minimum, 500);
        assert_int_equal(w.maximum, 1000);
        assert_true(w.cap == 20 * GIB);
        assert_true(w.has_priority);
        assert_int_equal(w.priority, -1);
        assert_int_equal(w.weight, 2000);
        assert_false(w.off);
        assert_int_equal(wishes_parse("share=:0.3", &w, error), 0);
        assert_int_equal(w.minimum, 0);
        assert_int_equal(w.maximum, 300);
}

static void an_option_without_argument_asks_for_nothing(void **state)
{
        static const char *const texts[] = {NULL, "", "(null)"};

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
                char error[WISHES_ERROR_MAX];
                struct wishes w = {.cap = 7, .off = true};

                assert_int_equal(wishes_parse(texts[i], &w, error), 0);
                assert_true(w.cap == 0 && !w.minimum && !w.maximum && !w.has_priority && !w.off);
        }
}

static void a_bad_option_is_named_in_one_sentence(void **state)
{
        static const struct {
                const char *text, *sentence;
        } bad[] = {
                {"cap=x", "--sublet: cap is a size such as 20GiB, not 'x'"},
                {"cap=20", "--sublet: cap is a size such as 20GiB, not '20'"},
                {"cap", "--sublet: cap is a size such as 20GiB, not ''"},
                {"cap=0", "--sublet: cap is a size such as 20GiB, not '0'"},
                {"share=2", "--sublet: share is MIN:MAX such as 0.2:0.8, not '2'"},
                {"share=0.5,priority=99",
                 "--sublet: priority is a number from -20 to 20, not '99'"},
                {"weight=0", "--sublet: weight is a number from 0.01 to 100, not '0'"},
                {"share=0.5,off", "--sublet does not know 'off'; it takes share, weight, cap and "
                                  "priority, or off alone"},
                {"cap=1G,", "--sublet does not know ''; it takes share, weight, cap and priority, "
                            "or off alone"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                char error[WISHES_ERROR_MAX] = "";
                struct wishes w = {.cap = 7};

                assert_int_equal(wishes_parse(bad[i].text, &w, error), -EINVAL);
                assert_string_equal(error, bad[i].sentence);
                assert_true(w.cap == 7);
        }
}

/* ---- bounds ---- */

static const char *write_bounds(const char *text)
{
        static char path[96];
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/slurm.conf", dir);
        f = fopen(path, "w");
        assert_non_null(f);
        assert_true(fputs(text, f) >= 0);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(chmod(path, 0644), 0);
        return path;
}

static const struct wishes greedy = {.minimum = 900,
                                     .maximum = 1000,
                                     .weight = 50000,
                                     .cap = 500 * GIB,
                                     .has_priority = true,
                                     .priority = 20};

static void assert_defaults(const struct bounds_file *f, const char *account)
{
        struct bounds b = bounds_of(f, account);
        char less[BOUNDS_ERROR_MAX];
        struct granted g = bounds_grant(&b, &greedy, less);

        assert_int_equal(g.minimum, 0);
        assert_int_equal(g.maximum, 1000);
        assert_int_equal(g.weight, 1000);
        assert_int_equal(g.priority, 0);
        assert_int_equal(g.priority_most, 0);
        assert_false(b.always);
}

static void without_a_file_nobody_gets_more_than_the_defaults(void **state)
{
        char error[BOUNDS_ERROR_MAX];
        struct bounds_file f;

        assert_int_equal(bounds_read("/nowhere/slurm.conf", &f, error), 0);
        assert_defaults(&f, "physics");
        assert_false(f.refuse);
        bounds_free(&f);
}

static void an_account_has_its_own_bounds_and_the_others_of_default(void **state)
{
        char error[BOUNDS_ERROR_MAX], less[BOUNDS_ERROR_MAX];
        struct bounds_file f;
        struct bounds b;
        struct granted g;

        /* The account may stand before [default], and twice, and in capitals. */
        assert_int_equal(bounds_read(write_bounds("[account Physics]\nminimum_most = 30%\n"
                                                  "[default]\nminimum_most = 10%\n"
                                                  "memory_cap_most = 20GiB\nmaximum = 80%\n"
                                                  "[account physics]\npriority_most = 5\n"
                                                  "[plugin]\non_failure = refuse\n"),
                                     &f, error),
                         0);
        assert_true(f.refuse);
        b = bounds_of(&f, "physics");
        g = bounds_grant(&b, &greedy, less);
        assert_int_equal(g.minimum, 300);
        assert_int_equal(g.maximum, 800);
        assert_int_equal(g.priority, 5);
        assert_true(g.cap == 20 * GIB);
        assert_string_equal(less, "a minimum of 30% instead of 90%, a weight of 1 instead of 50, "
                                  "a memory cap of 20 GiB instead of 500 GiB, "
                                  "priority 5 instead of 20");
        b = bounds_of(&f, "chemistry");
        g = bounds_grant(&b, &greedy, less);
        assert_int_equal(g.minimum, 100);
        assert_int_equal(g.priority, 0);
        bounds_free(&f);
}

static void a_job_that_asks_for_less_gets_that(void **state)
{
        struct bounds b = {.minimum_most = 500,
                           .maximum = 900,
                           .weight_most = 4000,
                           .memory_cap_most = 20 * GIB,
                           .priority_most = 3};
        char less[BOUNDS_ERROR_MAX];
        struct granted g = bounds_grant(&b,
                                        &(struct wishes){.minimum = 200,
                                                         .maximum = 300,
                                                         .weight = 500,
                                                         .cap = GIB,
                                                         .has_priority = true,
                                                         .priority = -4},
                                        less);

        assert_string_equal(less, "");
        assert_int_equal(g.minimum, 200);
        assert_int_equal(g.maximum, 300);
        assert_int_equal(g.weight, 500);
        assert_true(g.cap == GIB);
        assert_int_equal(g.priority, -4);
        g = bounds_grant(&b, &(struct wishes){0}, less);
        assert_string_equal(less, "");
        assert_int_equal(g.minimum, 0);
        assert_int_equal(g.maximum, 900);
        assert_true(g.cap == 20 * GIB); /* the most that a job may have, not none */
        assert_int_equal(g.priority, 0);
}

static void a_file_that_is_wrong_anywhere_gives_nobody_more(void **state)
{
        static const struct {
                const char *text, *part;
        } wrong[] = {
                {"[default]\nminimum_most = 90%\nminimum = 5%\n", ":3: unknown key \"minimum\""},
                {"[account a]\nminimum_most = 90%\n[default]\nmaximum = 200%\n",
                 ":4: maximum \"200%\": write a percentage from 1% to 100%"},
                {"[default]\nminimum_most = 96%\n", ":2: minimum_most \"96%\""},
                {"[default]\nminimum_most = 5\n", ":2: minimum_most \"5\""},
                {"[accounts]\nmaximum = 20%\n", ":2: unknown section \"accounts\""},
                {"[default]\nmemory_cap_most = lots\n", ":2: memory_cap_most \"lots\""},
                {"[default]\nmemory_cap_most = 20\n", ":2: memory_cap_most \"20\""},
                {"[default]\nalways = maybe\n", ":2: always \"maybe\""},
                {"[plugin]\non_failure = ask\n", ":2: malformed on_failure \"ask\""},
                {"[default]\nminimum_most = 90%\nnonsense\n", ":3: neither a line"},
                {"[account a ]\nmaximum = 20%\n", ":2: malformed section \"account a \""},
                {"[account 12345678901234567890123456789012345678901]\nmaximum = 20%\n",
                 ":2: malformed section"},
                {"[account a]\nweight_most = 5\n  memory_cap_most = none\n",
                 ":3: the line begins with a blank, so it belongs to the key before it"},
                {"[account a]\nweight_most = 5 # for now\n", ":2: a comment needs a line"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
                char error[BOUNDS_ERROR_MAX] = "";
                struct bounds_file f;

                assert_true(bounds_read(write_bounds(wrong[i].text), &f, error) < 0);
                if (!strstr(error, wrong[i].part))
                        fail_msg("%s is not in: %s", wrong[i].part, error);
                assert_defaults(&f, "a");
                bounds_free(&f);
        }
}

static void a_long_line_is_refused_rather_than_split(void **state)
{
        char text[400], error[BOUNDS_ERROR_MAX];
        struct bounds_file f;

        (void)snprintf(text, sizeof(text), "[default]\n#%197s %s\n", "", "minimum_most = 90%");
        assert_true(bounds_read(write_bounds(text), &f, error) < 0);
        assert_non_null(strstr(error, ":2: the line has more than"));
        assert_defaults(&f, "a");
        bounds_free(&f);
}

static void a_file_that_others_may_write_counts_as_unreadable(void **state)
{
        char error[BOUNDS_ERROR_MAX];
        struct bounds_file f;
        const char *path = write_bounds("[default]\nminimum_most = 90%\n");

        assert_int_equal(chmod(path, 0666), 0);
        assert_int_equal(bounds_read(path, &f, error), -EPERM);
        assert_non_null(strstr(error, "only its owner may write it"));
        assert_defaults(&f, "a");
        bounds_free(&f);
        assert_true(bounds_read(dir, &f, error) < 0); /* a folder */
        assert_defaults(&f, "a");
        bounds_free(&f);
}

/* ---- files of jobs ---- */

/* The fake daemon: it counts, and refuses files with these words. */
static unsigned reloads;
static const char *refuses;
static int answer;

static char *slurp(uint32_t id)
{
        static char text[JOBS_TEXT_MAX + 1];
        char path[128];
        size_t n;
        FILE *f;

        (void)snprintf(path, sizeof(path), "%s/conf.d/60-slurm-%u.conf", dir, id);
        f = fopen(path, "r");
        if (!f)
                return NULL;
        n = fread(text, 1, JOBS_TEXT_MAX, f);
        text[n] = '\0';
        (void)fclose(f);
        return text;
}

static int fake_reload(const char *of, char reason[static JOBS_SENTENCE_MAX])
{
        assert_string_equal(of, dir);
        reloads++;
        for (uint32_t id = 1; refuses && id < 10; id++) {
                const char *text = slurp(id);

                if (text && strstr(text, refuses)) {
                        (void)snprintf(reason, JOBS_SENTENCE_MAX, "no %s here", refuses);
                        return -EPERM;
                }
        }
        return answer;
}

static int setup_jobs(void **state)
{
        reloads = 0;
        refuses = NULL;
        answer = 0;
        return setup(state);
}

static unsigned files(void)
{
        char path[96];
        unsigned n = 0;
        const struct dirent *e;
        DIR *d;

        (void)snprintf(path, sizeof(path), "%s/conf.d", dir);
        d = opendir(path);
        assert_non_null(d);
        while ((e = readdir(d)))
                n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
        (void)closedir(d);
        return n;
}

static struct job job_of(uint32_t id)
{
        return (struct job){.id = id,
                            .uid = 1000,
                            .account = "physics",
                            .granted = {.minimum = 205,
                                        .maximum = 800,
                                        .weight = 2500,
                                        .cap = 3 * GIB,
                                        .priority = -1,
                                        .priority_most = 2}};
}

static int enter(uint32_t id, char sentence[static JOBS_SENTENCE_MAX])
{
        struct job job = job_of(id);
        int lock = -1;

        assert_int_equal(jobs_enter(dir, &job, fake_reload, &lock, sentence), 0);
        assert_true(lock >= 0);
        return lock;
}

static void a_job_has_a_class_of_its_own(void **state)
{
        char sentence[JOBS_SENTENCE_MAX];
        int lock = enter(7, sentence);

        assert_string_equal(sentence, "");
        assert_int_equal(reloads, 1);
        assert_string_equal(
                slurp(7), "# Slurm job 7 of uid 1000, account physics. The file goes when the job "
                          "ends.\n[class slurm-7]\nslurm_job = 7\nminimum = 20.5%\n"
                          "maximum = 80.0%\nweight = 2.500\nmemory_cap = 3221225472B\n"
                          "priority = -1\npriority_max = 2\n");
        jobs_leave(dir, 7, fake_reload, lock);
        assert_int_equal(reloads, 2);
        assert_int_equal(files(), 0);
}

static void an_account_cannot_write_lines_into_the_file(void **state)
{
        struct job job = job_of(7);
        char text[JOBS_TEXT_MAX];

        job.account = "a\n[class all]\nuser = 0-4000000";
        assert_true(jobs_text(&job, true, text) < JOBS_TEXT_MAX);
        assert_null(strstr(text, "\n[class all]"));
}

static void the_file_tells_the_sluid_by_which_the_cgroup_names_the_job(void **state)
{
        struct job job = job_of(7);
        char text[JOBS_TEXT_MAX], sluid[TENANT_ID_MAX + 1];

        assert_false(jobs_sluid("", sluid));
        assert_false(jobs_sluid("0::/system.slice/slurmstepd.scope/job_7/step_0/slurm\n", sluid));
        assert_false(jobs_sluid("4:memory:/slurm/uid_0/job_7/step_0\n", sluid));
        (void)jobs_text(&job, true, text);
        assert_null(strstr(text, "sluid"));
        assert_true(jobs_sluid("0::/box/system.slice/n1_slurmstepd.scope/sEKNKTV3WPV500/step_0/"
                               "slurm\n",
                               sluid));
        job.sluid = sluid;
        assert_true(jobs_text(&job, true, text) < JOBS_TEXT_MAX);
        assert_non_null(strstr(text, "\nslurm_job = 7\nslurm_sluid = sEKNKTV3WPV500\n"));
}

static void the_file_stays_until_the_last_step_of_the_job_ends(void **state)
{
        char sentence[JOBS_SENTENCE_MAX];
        int first = enter(7, sentence), second = enter(7, sentence), other = enter(8, sentence);

        assert_int_equal(reloads, 2); /* the second step changes nothing */
        jobs_leave(dir, 7, fake_reload, first);
        assert_non_null(slurp(7));
        jobs_leave(dir, 7, fake_reload, second);
        assert_null(slurp(7));
        assert_non_null(slurp(8));
        jobs_leave(dir, 8, fake_reload, other);
        assert_int_equal(files(), 0);
}

static void files_of_killed_jobs_go_when_the_next_job_starts(void **state)
{
        char sentence[JOBS_SENTENCE_MAX], path[128];
        int killed = enter(7, sentence), lives = enter(8, sentence), next;
        FILE *f;

        assert_int_equal(close(killed), 0); /* as the kernel does for a killed slurmstepd */
        (void)snprintf(path, sizeof(path), "%s/conf.d/.60-slurm-5.new", dir);
        f = fopen(path, "w"); /* as of one that was killed while it wrote */
        assert_non_null(f);
        (void)fclose(f);
        (void)snprintf(path, sizeof(path), "%s/conf.d/50-kubernetes.conf", dir);
        f = fopen(path, "w");
        assert_non_null(f);
        (void)fclose(f);
        next = enter(9, sentence);
        assert_null(slurp(7));
        assert_non_null(slurp(8));
        assert_int_equal(files(), 5); /* two of each job that lives, and the other writer's */
        jobs_leave(dir, 9, fake_reload, next);
        assert_int_equal(close(lives), 0);
        jobs_sweep(dir, fake_reload);
        assert_int_equal(files(), 1);
}

static void a_requeued_job_starts_anew(void **state)
{
        char sentence[JOBS_SENTENCE_MAX];
        int lock = enter(7, sentence);

        assert_int_equal(close(lock), 0);
        lock = enter(7, sentence);
        assert_non_null(slurp(7));
        jobs_leave(dir, 7, fake_reload, lock);
        assert_int_equal(files(), 0);
}

static void a_job_whose_minimum_is_refused_goes_without(void **state)
{
        char sentence[JOBS_SENTENCE_MAX];
        int lock;

        refuses = "minimum";
        lock = enter(7, sentence);
        assert_string_equal(sentence, "job 7 gets no minimum of the GPU's time on this node, "
                                      "because other classes have it");
        assert_non_null(slurp(7));
        assert_null(strstr(slurp(7), "minimum"));
        assert_non_null(strstr(slurp(7), "memory_cap"));
        jobs_leave(dir, 7, fake_reload, lock);
}

static void a_class_that_is_refused_is_taken_back(void **state)
{
        char sentence[JOBS_SENTENCE_MAX];
        int lock;

        refuses = "slurm_job = 7\n";
        lock = enter(7, sentence);
        assert_non_null(strstr(sentence, "the daemon refuses them: no slurm_job = 7"));
        assert_null(slurp(7));
        assert_int_equal(reloads, 3); /* the last one gives the others' classes back */
        jobs_leave(dir, 7, fake_reload, lock);
        assert_int_equal(files(), 0);
}

static void a_daemon_that_restarts_reads_the_file_later(void **state)
{
        char sentence[JOBS_SENTENCE_MAX];
        int lock;

        answer = -ECONNREFUSED;
        lock = enter(7, sentence);
        assert_string_equal(sentence, "");
        assert_non_null(slurp(7));
        jobs_leave(dir, 7, fake_reload, lock);
        answer = -ETIMEDOUT;
        lock = enter(7, sentence);
        assert_non_null(strstr(sentence, "does not answer"));
        jobs_leave(dir, 7, fake_reload, lock);
        assert_int_equal(files(), 0);
}

static void without_a_daemon_there_is_one_sentence(void **state)
{
        char sentence[JOBS_SENTENCE_MAX];
        struct job job = job_of(7);
        int lock = -1;

        assert_int_equal(jobs_enter("/nowhere", &job, fake_reload, &lock, sentence), -ENOENT);
        assert_string_equal(sentence, "no sublet daemon runs on this node: no /nowhere/conf.d");
        assert_int_equal(lock, -1);
        assert_int_equal(reloads, 0);
}

static void a_folder_that_others_may_write_is_not_used(void **state)
{
        char sentence[JOBS_SENTENCE_MAX], path[96];
        struct job job = job_of(7);
        int lock = -1;

        (void)snprintf(path, sizeof(path), "%s/conf.d", dir);
        assert_int_equal(chmod(path, 0777), 0);
        assert_int_equal(jobs_enter(dir, &job, fake_reload, &lock, sentence), -EPERM);
        assert_int_equal(files(), 0);
}

/* ---- LD_PRELOAD ---- */

static void the_users_own_libraries_stay_preloaded(void **state)
{
        static const struct {
                const char *now, *library, *then;
        } cases[] = {
                {NULL, "/a/libsublet.so", "/a/libsublet.so"},
                {"/u/x.so", "/a/libsublet.so", "/a/libsublet.so:/u/x.so"},
                {"/b/libsublet.so /u/x.so:/u/y.so", "/a/libsublet.so",
                 "/a/libsublet.so:/u/x.so:/u/y.so"},
                {"/a/libsublet.so:/u/x.so", NULL, "/u/x.so"},
                {"/u/x.so:/a/libsublet.so:y.so", NULL, "/u/x.so:y.so"},
                {"/a/libsublet.so", NULL, ""},
                {"/a/libsublet-ranks.so:/a/libsublet.so:y.so", "/b/libsublet.so",
                 "/b/libsublet.so:y.so"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                char *text = preload_list(cases[i].now, cases[i].library);

                assert_string_equal(text, cases[i].then);
                free(text);
        }
}

#define IN_A_FOLDER(name) cmocka_unit_test_setup_teardown(name, setup_jobs, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_job_asks_for_what_it_names),
                cmocka_unit_test(an_option_without_argument_asks_for_nothing),
                cmocka_unit_test(a_bad_option_is_named_in_one_sentence),
                cmocka_unit_test(without_a_file_nobody_gets_more_than_the_defaults),
                IN_A_FOLDER(an_account_has_its_own_bounds_and_the_others_of_default),
                cmocka_unit_test(a_job_that_asks_for_less_gets_that),
                IN_A_FOLDER(a_file_that_is_wrong_anywhere_gives_nobody_more),
                IN_A_FOLDER(a_long_line_is_refused_rather_than_split),
                IN_A_FOLDER(a_file_that_others_may_write_counts_as_unreadable),
                IN_A_FOLDER(a_job_has_a_class_of_its_own),
                cmocka_unit_test(an_account_cannot_write_lines_into_the_file),
                cmocka_unit_test(the_file_tells_the_sluid_by_which_the_cgroup_names_the_job),
                IN_A_FOLDER(the_file_stays_until_the_last_step_of_the_job_ends),
                IN_A_FOLDER(files_of_killed_jobs_go_when_the_next_job_starts),
                IN_A_FOLDER(a_requeued_job_starts_anew),
                IN_A_FOLDER(a_job_whose_minimum_is_refused_goes_without),
                IN_A_FOLDER(a_class_that_is_refused_is_taken_back),
                IN_A_FOLDER(a_daemon_that_restarts_reads_the_file_later),
                IN_A_FOLDER(without_a_daemon_there_is_one_sentence),
                IN_A_FOLDER(a_folder_that_others_may_write_is_not_used),
                cmocka_unit_test(the_users_own_libraries_stay_preloaded),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
