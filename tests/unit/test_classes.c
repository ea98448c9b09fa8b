/* test_classes.c: which program is in which class, the checks over all classes, the files in their
 * order, and the resource file. */
#include "unit.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "daemon/setup/resource_file.h"
#include "daemon/setup/sources.h"

static char error[CONFIG_ERROR_MAX];

static int read_text(struct config *c, const char *text, bool shared)
{
        _cleanup_fclose_ FILE *file = fmemopen((void *)text, strlen(text), "r");
        int r;

        assert_non_null(file);
        config_default(c);
        r = config_read(c, file, "x.conf", error);
        if (r == 0)
                r = config_check(c, shared, "x.conf", error);
        if (r < 0)
                config_free(c);
        return r;
}

static const char *class_of(const struct config *c, uid_t uid, const char *name, const char *cgroup)
{
        const struct class_subject who = {.uid = uid, .name = name, .cgroup = cgroup};
        const struct class *class = classes_find(&c->classes, &who);

        return class ? class->name : "none";
}

static void the_first_class_whose_every_kind_matches_wins(void **state)
{
        struct config c;

        assert_int_equal(read_text(&c,
                                   "[class ids]\nweight = 2\n"
                                   "[class both]\nuser = 7, 2000-2999\nname = train*, eval\n"
                                   "[class service]\ncgroup = /system.slice/*.service\n"
                                   "[class rest]\nuser = 2000-2999,\n  root\n",
                                   true),
                         0);
        assert_string_equal(class_of(&c, 2500, "train.py", "/"), "both");
        assert_string_equal(class_of(&c, 7, "eval", NULL), "both");
        assert_string_equal(class_of(&c, 2500, "other", "/"), "rest");
        assert_string_equal(class_of(&c, 0, "other", "/"), "rest");
        assert_string_equal(class_of(&c, 8, "eval", "/"), "none");
        assert_string_equal(class_of(&c, 8, "x", "/system.slice/a.service"), "service");
        assert_string_equal(class_of(&c, 8, "x", "/system.slice/a.service/b/c"), "service");
        assert_string_equal(class_of(&c, 8, "x", "/user.slice/system.slice/a.service"), "none");
        assert_string_equal(class_of(&c, 8, "x", "/system.slice/b/a.service"), "none");
        assert_string_equal(class_of(&c, 8, NULL, NULL), "none");
        assert_int_equal(classes_named(&c.classes, "ids")->settings.weight_permille, 2000);
        assert_null(classes_named(&c.classes, "id"));
        config_free(&c);
}

#define POD_A "0f9b3c1e-5a0d-4c6e-9d55-6f1f3e2a7b10"
#define POD_B "ffffffff-5a0d-4c6e-9d55-6f1f3e2a7b10"

static const char *class_in(const struct config *c, uid_t uid, enum tenant_kind kind,
                            const char *id)
{
        struct tenant t = {.kind = kind};
        const struct class_subject who = {.uid = uid, .name = "x", .tenant = &t};
        const struct class *class;

        (void)snprintf(t.id, sizeof(t.id), "%s", id);
        class = classes_find(&c->classes, &who);
        return class ? class->name : "none";
}

static void pods_and_jobs_are_classes_by_what_the_kernel_says(void **state)
{
        struct config c;

        assert_int_equal(read_text(&c,
                                   "[class bob]\nuser = 7\n"
                                   "[class a]\npod = " POD_A ",\n  " POD_B "\nname = x\n"
                                   "[class twice]\npod = " POD_B "\n"
                                   "[class job]\nslurm_job = 5, 4294967290\n"
                                   "[class alices]\nslurm_job = 6\nuser = 8\n"
                                   "[class rest]\nuser = 0-100\n",
                                   true),
                         0);
        assert_string_equal(class_in(&c, 0, TENANT_POD, POD_A), "a");
        assert_string_equal(class_in(&c, 9000, TENANT_POD, POD_B), "a");
        assert_string_equal(class_in(&c, 7, TENANT_POD, POD_A), "bob"); /* it stands first */
        assert_string_equal(class_in(&c, 0, TENANT_JOB, "5"), "job");
        assert_string_equal(class_in(&c, 9, TENANT_JOB, "4294967290"), "job");
        assert_string_equal(class_in(&c, 8, TENANT_JOB, "6"), "alices");
        assert_string_equal(class_in(&c, 200, TENANT_JOB, "6"), "none");
        assert_string_equal(class_in(&c, 9, TENANT_JOB, "6"), "rest");
        assert_string_equal(class_in(&c, 9, TENANT_JOB, "7"), "rest");
        assert_string_equal(class_in(&c, 200, TENANT_POD, "5"), "none");
        assert_string_equal(class_in(&c, 200, TENANT_NONE, ""), "none");
        config_free(&c);
}

static void a_job_is_known_by_its_number_if_a_class_tells_its_sluid(void **state)
{
        const struct tenant told = {TENANT_JOB, "sEKNKTV3WPV500"};
        const struct tenant unknown = {TENANT_JOB, "sEKNKTV3WPV501"};
        const struct tenant number = {TENANT_JOB, "12"};
        struct config c;

        assert_int_equal(read_text(&c,
                                   "[class first]\nslurm_job = 5, 12\nuser = 8\n"
                                   "[class slurm-12]\nslurm_job = 12\n"
                                   "slurm_sluid = sEKNKTV3WPV500\n",
                                   true),
                         0);
        assert_string_equal(classes_tenant(&c.classes, &told).id, "12");
        assert_string_equal(classes_tenant(&c.classes, &unknown).id, unknown.id);
        assert_string_equal(classes_tenant(&c.classes, &number).id, "12");
        assert_string_equal(class_in(&c, 9, TENANT_JOB, told.id), "slurm-12");
        assert_string_equal(class_in(&c, 8, TENANT_JOB, told.id), "first"); /* it stands first */
        assert_string_equal(class_in(&c, 9, TENANT_JOB, "12"), "slurm-12");
        assert_string_equal(class_in(&c, 9, TENANT_JOB, unknown.id), "none");
        config_free(&c);
}

static void each_of_many_pods_is_found(void **state)
{
        _cleanup_free_ char *text = NULL;
        const unsigned n = 3000;
        size_t size;
        FILE *out = open_memstream(&text, &size);
        struct config c;

        for (unsigned i = 0; i < n; i++)
                (void)fprintf(out, "[class p%u]\npod = %08x-0000-0000-0000-000000000000\n", i,
                              i * 2654435761u);
        assert_int_equal(fclose(out), 0);
        assert_int_equal(read_text(&c, text, true), 0);
        for (unsigned i = 0; i < n; i++) {
                char uid[TENANT_ID_MAX + 1], name[16];

                (void)snprintf(uid, sizeof(uid), "%08x-0000-0000-0000-000000000000",
                               i * 2654435761u);
                (void)snprintf(name, sizeof(name), "p%u", i);
                assert_string_equal(class_in(&c, 0, TENANT_POD, uid), name);
        }
        config_free(&c);
}

static void a_pod_has_the_names_of_its_last_section(void **state)
{
        const struct tenant a = {TENANT_POD, POD_A}, b = {TENANT_POD, POD_B}, none = {0};
        const struct class_pod *pod;
        struct config c;

        assert_int_equal(read_text(&c,
                                   "[pod " POD_B "]\nnamespace = old\nname = gone\n"
                                   "[class x]\npod = " POD_A "\n"
                                   "[pod " POD_A "]\nname = a-0.b\n"
                                   "[pod " POD_B "]\nnamespace = team\nname = web-1\n",
                                   true),
                         0);
        pod = classes_pod(&c.classes, &a);
        assert_non_null(pod);
        assert_string_equal(pod->name, "a-0.b");
        assert_string_equal(pod->namespace, "");
        pod = classes_pod(&c.classes, &b);
        assert_non_null(pod);
        assert_string_equal(pod->namespace, "team");
        assert_string_equal(pod->name, "web-1");
        assert_null(classes_pod(&c.classes, &none));
        config_free(&c);
        assert_int_equal(read_text(&c, "[daemon]\ngrace = 1s\n", true), 0);
        assert_null(classes_pod(&c.classes, &a));
        config_free(&c);
}

static void a_wrong_pod_or_job_is_refused(void **state)
{
        static const char *const bad[] = {
                "[class a]\npod = x\n",
                "[class a]\npod = " POD_A "0\n",
                "[class a]\npod =\n",
                "[class a]\nslurm_job = 0\n",
                "[class a]\nslurm_job = 5_1\n",
                "[class a]\nslurm_job = 12345678901\n",
                "[class a]\nslurm_job = 5\nslurm_sluid = 5\n",
                "[class a]\nslurm_job = 5, 6\nslurm_sluid = sEKNKTV3WPV500\n",
                "[class a]\nslurm_sluid = sEKNKTV3WPV500\n",
                "[pod x]\nname = y\n",
                "[pod " POD_A "]\nname = a\033b\n",
                "[pod " POD_A "]\nname = A/b\n",
                "[pod " POD_A "]\nweight = 2\n",
        };
        struct config c;

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                assert_int_equal(read_text(&c, bad[i], true), -EINVAL);
                assert_non_null(strstr(error, "x.conf:"));
        }
}

static void what_a_class_does_not_say_is_as_for_everybody(void **state)
{
        const struct class_settings *s;
        struct config c;

        assert_int_equal(
                read_text(&c,
                          "[default]\nmaximum = 40%\npriority = -3\n"
                          "[class a]\nuser = 1\n"
                          "[class b]\nminimum = 2.5%\nmaximum = 30%\nweight = 0.25\n"
                          "memory_cap = 1GiB\npriority = 4\nquantum = auto\n"
                          "idle_release = 2s\ngrace = 1s\nkill_overdue = no\nmps = yes\ngroup = "
                          "yes\nmode = exclusive\n",
                          false),
                0);
        assert_int_equal(c.classes.unmatched.maximum_permille, 400);
        assert_int_equal(c.classes.unmatched.priority, -3);
        assert_int_equal(c.classes.unmatched.priority_max, 0);
        s = &classes_named(&c.classes, "a")->settings;
        assert_int_equal(s->minimum_permille, 0);
        assert_int_equal(s->maximum_permille, 1000);
        assert_int_equal(s->weight_permille, 1000);
        assert_int_equal(s->memory_cap, 0);
        assert_int_equal(s->priority_max, 0);
        assert_true(s->quantum_ns == CLASS_AS_DAEMON && s->grace_ns == CLASS_AS_DAEMON);
        assert_int_equal(s->kill_overdue, -1);
        assert_int_equal(s->mps, -1);
        s = &classes_named(&c.classes, "b")->settings;
        assert_true(s->exclusive);
        assert_int_equal(s->minimum_permille, 25);
        assert_int_equal(s->weight_permille, 250);
        assert_int_equal(s->memory_cap, GIB);
        assert_int_equal(s->priority_max, 4);
        assert_int_equal(s->quantum_ns, 0);
        assert_int_equal(s->idle_release_ns, 2 * NSEC_PER_SEC);
        assert_int_equal(s->kill_overdue, 0);
        assert_int_equal(s->mps, 1);
        assert_true(s->group);
        config_free(&c);
}

static void a_later_section_of_the_same_name_overrides_key_by_key(void **state)
{
        struct config c;

        assert_int_equal(read_text(&c,
                                   "[class a]\nuser = 1\nweight = 2\n[class b]\nuser = 3\n"
                                   "[class a]\nuser = 2\nminimum = 10%\n",
                                   false),
                         0);
        assert_int_equal(c.classes.n, 2);
        assert_int_equal(c.classes.list[0].settings.weight_permille, 2000);
        assert_int_equal(c.classes.list[0].settings.minimum_permille, 100);
        assert_string_equal(class_of(&c, 1, "x", "/"), "none");
        assert_string_equal(class_of(&c, 2, "x", "/"), "a");
        config_free(&c);
}

static void a_list_goes_on_in_indented_lines(void **state)
{
        struct config c;

        assert_int_equal(read_text(&c,
                                   "[class a]\n  name = x,\n# no item\n\n    y\n  z*, u-v\n"
                                   "[class b]\n  name = w\nweight = 2 ; libinih leaves this out\n",
                                   false),
                         0);
        assert_string_equal(class_of(&c, 1, "y", "/"), "a");
        assert_string_equal(class_of(&c, 1, "zz", "/"), "a");
        assert_string_equal(class_of(&c, 1, "u-v", "/"), "a");
        assert_string_equal(class_of(&c, 1, "w", "/"), "b");
        config_free(&c);
}

static void a_wrong_class_is_named_with_file_and_line(void **state)
{
        static const struct {
                const char *text, *says;
        } bad[] = {
                {"[class a]\nminimum = 0.01%\n", "x.conf:2: malformed share"},
                {"[class a]\nminimum = 96%\n", "x.conf:2: malformed share"},
                {"[class a]\nmaximum = 0.5%\n", "x.conf:2: malformed share"},
                {"[class a]\nweight = 0\n", "x.conf:2: malformed weight"},
                {"[class a]\nweight = 0x1p3\n", "x.conf:2: malformed weight"},
                {"[class a]\npriority = 21\n", "x.conf:2: malformed priority"},
                {"[class a]\npriority = --1\n", "x.conf:2: malformed priority"},
                {"[class a]\nuser = no-such-user\n", "x.conf:2: unknown user \"no-such-user\""},
                {"[class a]\nuser = 5-3\n", "x.conf:2: malformed user \"5-3\""},
                {"[class a]\nuser = 1,,2\n", "x.conf:2: malformed user \"\""},
                {"[class a]\nuser =\n", "x.conf:2: malformed user \"\""},
                {"[class a]\nuser = 1\n   2x\n", "x.conf:3: malformed user \"2x\""},
                {"[class a]\ncgroup = *.slice\n", "x.conf:2: malformed path"},
                {"[class a]\ncolour = red\n", "x.conf:2: unknown key \"colour\""},
                {"[class a/b]\nuser = 1\n", "x.conf:2: malformed class \"a/b\""},
                {"[class 12345678901234567890123456789012]\nuser = 1\n",
                 "x.conf:2: malformed class"},
                {"user = 1\n", "x.conf:1: the line stands before the first section: settings"},
                {"[class a\nuser = 1\n", "x.conf:1: neither a line \"key = value\" nor"},
                {"[klass a]\nuser = 1\n", "x.conf:2: unknown section \"klass a\""},
                {"[default]\nminimum = 5%\n", "x.conf:2: unknown key \"minimum\""},
                {"[default]\nuser = 5\n", "x.conf:2: unknown key \"user\""},
                {"[class a]\nminimum = 50%\nmaximum = 40%\n",
                 "x.conf:3: class a: minimum is above"},
                {"[class a]\npriority = 5\npriority_max = 4\n", "x.conf:3: class a: priority is"},
                {"[class a]\nuser=1\nname = x\n[class b]\nname = y\n",
                 "x.conf:5: class b: a program"},
                {"[class a]\n  name = x\n  memory_cap = 1GiB\n",
                 "x.conf:3: the line begins with a"},
                {"[class a]\nname = x,\n\n ; y\n\tweigth: 2\n", "x.conf:5: the line begins with a "
                                                                "blank, so it belongs to the key "
                                                                "before it: remove the blank"},
                {"[class a]\nname = x\n [class b]\n", "x.conf:3: the line begins with a blank"},
                {"[class a]\nuser = 1\nmaximum = 50%\n 40%\n", "x.conf:4: the line begins with"},
                {"[daemon]\nresource_config = /a\n /b\n", "x.conf:3: the line begins with a blank"},
                {"[class a]\nname = x,\n  y # z\n", "x.conf:3: a comment needs a line of its own"},
                {"[class a]\nname = x # y\n", "x.conf:2: a comment needs a line of its own"},
                {"[class a]\nminimum = 50%\n[class b]\nminimum = 46%\n", "x.conf:4: class b: with "
                                                                         "this one the minima of "
                                                                         "all classes are 96.0%, "
                                                                         "but 95.0%"},
        };
        struct config c;

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                assert_int_equal(read_text(&c, bad[i].text, true), -EINVAL);
                if (strncmp(error, bad[i].says, strlen(bad[i].says)) != 0)
                        fail_msg("case %zu: %s", i, error);
        }
        assert_int_equal(read_text(&c, "[class b]\nname = y\n", false), 0);
        config_free(&c);
}

static void a_long_line_is_refused_and_not_cut(void **state)
{
        char text[512] = "[class a]\nname = ";
        struct config c;

        memset(text + strlen(text), 'x', 300);
        assert_int_equal(read_text(&c, text, false), -EINVAL);
        assert_non_null(strstr(error, "x.conf:2: the line has more than 198 characters"));
}

static void there_is_a_limit_on_classes(void **state)
{
        static char text[CLASSES_MAX * 32 + 64];
        size_t n = 0;
        struct config c;

        for (unsigned i = 0; i < CLASSES_MAX; i++)
                n += (size_t)sprintf(text + n, "[class c%u]\nuser = %u\n", i, i);
        assert_int_equal(read_text(&c, text, true), 0);
        assert_string_equal(class_of(&c, 4095, "x", "/"), "c4095");
        config_free(&c);
        (void)strcpy(text + n, "[class more]\nuser = 1\n");
        assert_int_equal(read_text(&c, text, true), -EINVAL);
        assert_non_null(strstr(error, "more than 4096 classes"));
}

/* ---- the resource file ---- */

static int read_resources(struct classes *c, const char *text)
{
        _cleanup_fclose_ FILE *file = fmemopen((void *)text, strlen(text), "r");

        assert_non_null(file);
        return resource_file_read(c, file, "r.txt", error);
}

static void each_line_of_a_resource_file_makes_a_class(void **state)
{
        const struct class *class;
        struct classes c;

        classes_init(&c);
        assert_int_equal(read_resources(&c, "2\nspace/pod-1 0.3 1.0 0\npod2\t.25 0.5 1073741824\n"),
                         0);
        assert_int_equal(c.n, 2);
        class = classes_named(&c, "space/pod-1");
        assert_non_null(class);
        assert_int_equal(class->settings.minimum_permille, 300);
        assert_int_equal(class->settings.maximum_permille, 1000);
        assert_int_equal(class->settings.memory_cap, 0);
        assert_true(class->settings.group);
        assert_int_equal(classes_named(&c, "pod2")->settings.memory_cap, GIB);
        classes_free(&c);
        classes_init(&c);
        assert_int_equal(read_resources(&c, "0\n"), 0);
        assert_int_equal(c.n, 0);
        classes_free(&c);
}

static void a_wrong_resource_file_is_named_with_its_line(void **state)
{
        static const struct {
                const char *text, *says;
        } bad[] = {
                {" ", "r.txt:1: the first line"},
                {"two\na 0.1 0.2 0\n", "r.txt:1: the first line"},
                {"1\n", "r.txt:1: there are fewer"},
                {"2\na 0.1 0.2 0\n", "r.txt:2: there are fewer"},
                {"1\na 0.1 0.2 0\nb 0.1 0.2 0\n", "r.txt:3: there are more"},
                {"1\na 0.1 0.2\n", "r.txt:2: not a line"},
                {"1\na 0.1 0.2 0 0\n", "r.txt:2: not a line"},
                {"1\na 1.5 1 0\n", "r.txt:2: the REQUEST"},
                {"1\na x 1 0\n", "r.txt:2: the REQUEST"},
                {"1\na 0.1 0 0\n", "r.txt:2: the LIMIT"},
                {"1\na 0.1 nan 0\n", "r.txt:2: the LIMIT"},
                {"1\na 0.1 1 1GiB\n", "r.txt:2: the GPU_MEM"},
                {"1\na 0.1 1 -1\n", "r.txt:2: the GPU_MEM"},
                {"2\na 0.1 1 0\na 0.1 1 0\n", "r.txt:3: another line"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
                struct classes c;

                classes_init(&c);
                assert_int_equal(read_resources(&c, bad[i].text), -EINVAL);
                if (strncmp(error, bad[i].says, strlen(bad[i].says)) != 0)
                        fail_msg("case %zu: %s", i, error);
                classes_free(&c);
        }
}

/* ---- the files and their order ---- */

static char dir[] = "/tmp/sublet-classes-XXXXXX";

static void put(const char *name, const char *text)
{
        _cleanup_free_ char *path = NULL;
        FILE *file;

        assert_true(asprintf(&path, "%s/%s", dir, name) > 0);
        file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

static int remove_path(const char *name)
{
        char path[96];

        (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
        return unlink(path);
}

static void drop_ins_override_by_name_and_the_command_line_overrides_them(void **state)
{
        char path[64], folder[64], link_path[80];
        struct sources s = {0};
        struct config c;

        assert_non_null(mkdtemp(dir));
        (void)snprintf(path, sizeof(path), "%s/s.conf", dir);
        (void)snprintf(folder, sizeof(folder), "%s/s.conf.d", dir);
        assert_int_equal(mkdir(folder, 0700), 0);
        put("s.conf", "[daemon]\ngrace = 1s\npatience = 1s\nlinger = 1s\nquantum_min = 90s\n");
        put("s.conf.d/10-a.conf", "[daemon]\npatience = 2s\nlinger = 2s\nquantum_max = 2min\n");
        put("s.conf.d/20-b.conf", "[daemon]\nlinger = 3s\n");
        put("s.conf.d/30-c.conf~", "not read");
        put("s.conf.d/.40.conf", "not read");
        put("s.conf.d/50-d", "not read");
        (void)snprintf(link_path, sizeof(link_path), "%s/60.conf", folder);
        assert_int_equal(mkdir(link_path, 0700), 0);

        assert_int_equal(sources_choose(&s, path, SOURCES_NONE, error), 0);
        assert_int_equal(sources_override(&s, "quantum", "soon", error), -EINVAL);
        assert_int_equal(sources_override(&s, "host_memory", "5GiB", error), 0);
        if (sources_read(&s, &c) < 0)
                fail_msg("%s", s.error);
        assert_int_equal(c.sched.grace_ns, NSEC_PER_SEC);
        assert_int_equal(c.sched.patience_ns, 2 * NSEC_PER_SEC);
        assert_int_equal(c.linger_ns, 3 * NSEC_PER_SEC);
        assert_int_equal(c.host_memory_bytes, 5 * GIB);
        config_free(&c);

        s.shared = true;
        assert_int_equal(chmod(path, 0666), 0);
        sources_forget(&s);
        assert_int_equal(sources_read(&s, &c), -EPERM);
        assert_non_null(strstr(s.error, "chmod o-w"));
        free(s.overrides);
}

static void programs_write_the_last_files_into_the_daemons_own_folder(void **state)
{
        char path[64], folder[64], file[80];
        struct sources s = {0};
        struct config c;

        (void)strcpy(dir, "/tmp/sublet-classes-XXXXXX");
        assert_non_null(mkdtemp(dir));
        (void)snprintf(path, sizeof(path), "%s/s.conf", dir);
        (void)snprintf(folder, sizeof(folder), "%s/conf.d", dir);
        (void)snprintf(file, sizeof(file), "%s/50-a.conf", folder);
        put("s.conf", "[daemon]\ngrace = 1s\nlinger = 1s\n");
        assert_int_equal(sources_choose(&s, path, SOURCES_NONE, error), 0);
        assert_int_equal(sources_in(&s, dir, false), 0);
        assert_int_equal(sources_override(&s, "linger", "3s", error), 0);
        assert_int_equal(sources_read(&s, &c), 0); /* there is no folder yet */
        config_free(&c);
        assert_int_equal(mkdir(folder, 0755), 0);
        put("conf.d/50-a.conf", "[daemon]\ngrace = 2s\nlinger = 2s\n[class a]\npod = " POD_A "\n");
        put("conf.d/.60-b.conf", "not read");
        assert_int_equal(sources_read(&s, &c), 0);
        assert_int_equal(c.sched.grace_ns, 2 * NSEC_PER_SEC);
        assert_int_equal(c.linger_ns, 3 * NSEC_PER_SEC);
        assert_string_equal(class_in(&c, 0, TENANT_POD, POD_A), "a");
        config_free(&c);

        /* nobody else may have written there, whoever the daemon serves */
        assert_int_equal(chmod(folder, 0777), 0);
        assert_int_equal(sources_read(&s, &c), -EPERM);
        assert_int_equal(chmod(folder, 0755), 0);
        assert_int_equal(chmod(file, 0666), 0);
        assert_int_equal(sources_read(&s, &c), -EPERM);
        assert_non_null(strstr(s.error, "chmod o-w"));
        assert_false(s.programs_good);
        if (getuid() == 0) {
                assert_int_equal(chmod(file, 0644), 0);
                assert_int_equal(chown(file, 4242, 4242), 0);
                assert_int_equal(sources_read(&s, &c), -EPERM);
                assert_int_equal(chown(file, 0, 0), 0);
                assert_int_equal(chown(folder, 4242, 4242), 0);
                assert_int_equal(sources_read(&s, &c), -EPERM);
        }
        assert_int_equal(s.found, SOURCES_LAST_GOOD);
        sources_forget(&s);
        free(s.overrides);
}

static void the_owners_last_good_files_hold_with_what_programs_write(void **state)
{
        char path[64], folder[64];
        struct sources s = {0};
        struct config c;

        (void)strcpy(dir, "/tmp/sublet-classes-XXXXXX");
        assert_non_null(mkdtemp(dir));
        (void)snprintf(path, sizeof(path), "%s/s.conf", dir);
        (void)snprintf(folder, sizeof(folder), "%s/conf.d", dir);
        assert_int_equal(mkdir(folder, 0700), 0);
        assert_int_equal(setenv("XDG_STATE_HOME", dir, 1), 0);
        put("s.conf", "[daemon]\ngrace = 1s\n");
        assert_int_equal(sources_choose(&s, path, SOURCES_NONE, error), 0);
        assert_int_equal(sources_in(&s, dir, false), 0);
        assert_int_equal(sources_read(&s, &c), 0);
        config_free(&c);
        sources_keep(&s);

        put("s.conf", "[daemon]\nlinger = 7s\ngrace = soon\n");
        put("conf.d/50-a.conf", "[class a]\npod = " POD_A "\n");
        sources_forget(&s); /* the next daemon finds it on disk */
        sources_read_first(&s, &c);
        assert_int_equal(s.found, SOURCES_LAST_GOOD);
        assert_true(s.programs_good);
        assert_non_null(strstr(s.error, "s.conf:3: malformed duration"));
        assert_int_equal(c.sched.grace_ns, NSEC_PER_SEC);
        assert_int_equal(c.linger_ns, 30 * NSEC_PER_SEC); /* no part of the wrong file */
        assert_string_equal(class_in(&c, 0, TENANT_POD, POD_A), "a");
        config_free(&c);

        /* nothing is good with this file of a program's, and no program may run without its class
         */
        put("conf.d/50-a.conf", "[class a]\nnonsense = 1\n");
        sources_read_first(&s, &c);
        assert_int_equal(s.found, SOURCES_NOTHING);
        assert_false(s.programs_good);
        config_free(&c);

        /* without a file of the owner's there is nothing to keep */
        assert_int_equal(remove_path("conf.d/50-a.conf"), 0);
        assert_int_equal(remove_path("s.conf"), 0);
        s.named = false;
        assert_int_equal(sources_read(&s, &c), 0);
        config_free(&c);
        sources_keep(&s);
        sources_forget(&s);
        put("s.conf", "nonsense\n");
        sources_read_first(&s, &c);
        assert_int_equal(s.found, SOURCES_NOTHING);
        config_free(&c);
        sources_forget(&s);
}

static void what_was_packed_is_unpacked_whole_or_not_at_all(void **state)
{
        struct text list[] = {{TEXT_SETTINGS, (char *)"/a b\n", (char *)"x\0y", 3},
                              {TEXT_RESOURCES, (char *)"", (char *)"", 0}};
        const struct texts t = {list, 2};
        _cleanup_free_ char *bytes = NULL;
        struct texts back = {0};
        size_t n;

        bytes = texts_pack(&t, &n);
        assert_non_null(bytes);
        for (size_t part = 0; part < n; part++)
                assert_int_equal(texts_unpack(bytes, part, &back), -EBADMSG);
        assert_int_equal(texts_unpack(bytes, n, &back), 0);
        assert_int_equal(back.n, 2);
        assert_string_equal(back.list[0].name, "/a b\n");
        assert_int_equal(back.list[0].n, 3);
        assert_memory_equal(back.list[0].bytes, "x\0y", 3);
        assert_non_null(texts_find(&back, TEXT_RESOURCES, ""));
        assert_null(texts_find(&back, TEXT_SETTINGS, ""));
        texts_free(&back);
        assert_int_equal(texts_unpack("0 18446744073709551615 2\n\nend\n", 32, &back), -EBADMSG);
        assert_int_equal(texts_unpack("0 1 99\na\nend\n", 13, &back), -EBADMSG);
}

static int remove_dir(void **state)
{
        char command[96];

        (void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
        return system(command);
}

static void the_users_own_file_is_read_only_from_the_users_own_folder(void **state)
{
        struct sources s = {0};

        assert_int_equal(setenv("XDG_CONFIG_HOME", "/tmp/no-such-folder", 1), 0);
        assert_int_equal(sources_choose(&s, NULL, SOURCES_USER, error), 0);
        assert_string_equal(s.file, "");
        assert_int_equal(unsetenv("XDG_CONFIG_HOME"), 0);
        assert_int_equal(sources_choose(&s, NULL, SOURCES_SYSTEM, error), 0);
        assert_string_equal(s.file, SOURCES_SYSTEM_FILE);
}

/* ---- the sample ---- */

/* Reads deploy/subletd.conf with the comments of its keys and sections taken away. */
static void the_sample_has_every_key_with_a_good_value(void **state)
{
        _cleanup_free_ char *path = NULL, *text = NULL, *help = NULL;
        _cleanup_fclose_ FILE *sample = NULL;
        size_t room = 0, used = 0, size = 0;
        char line[256], *save = NULL;
        FILE *out = open_memstream(&help, &size);
        struct config c;

        assert_true(asprintf(&path, "%s/deploy/subletd.conf", getenv("SUBLET_SOURCE")) > 0);
        sample = fopen(path, "r");
        assert_non_null(sample);
        while (fgets(line, sizeof(line), sample)) {
                const char *from = line[0] == '#' && line[1] != ' ' ? line + 1 : line;

                if (used + sizeof(line) > room)
                        text = realloc(text, room += 8192);
                assert_non_null(text);
                (void)strcpy(text + used, from);
                used += strlen(from);
        }
        if (read_text(&c, text, true) < 0)
                fail_msg("%s", error);
        assert_true(c.classes.n > 0);
        config_free(&c);

        config_print_help(out);
        classes_print_help(out);
        assert_int_equal(fclose(out), 0);
        for (char *row = strtok_r(help, "\n", &save); row; row = strtok_r(NULL, "\n", &save)) {
                char key[32], wanted[40];

                assert_int_equal(sscanf(row, " %31s", key), 1);
                (void)snprintf(wanted, sizeof(wanted), "\n%s =", key);
                if (!strstr(text, wanted))
                        fail_msg("deploy/subletd.conf lacks %s", key);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_first_class_whose_every_kind_matches_wins),
                cmocka_unit_test(pods_and_jobs_are_classes_by_what_the_kernel_says),
                cmocka_unit_test(a_job_is_known_by_its_number_if_a_class_tells_its_sluid),
                cmocka_unit_test(each_of_many_pods_is_found),
                cmocka_unit_test(a_pod_has_the_names_of_its_last_section),
                cmocka_unit_test(a_wrong_pod_or_job_is_refused),
                cmocka_unit_test(what_a_class_does_not_say_is_as_for_everybody),
                cmocka_unit_test(a_later_section_of_the_same_name_overrides_key_by_key),
                cmocka_unit_test(a_list_goes_on_in_indented_lines),
                cmocka_unit_test(a_wrong_class_is_named_with_file_and_line),
                cmocka_unit_test(a_long_line_is_refused_and_not_cut),
                cmocka_unit_test(there_is_a_limit_on_classes),
                cmocka_unit_test(each_line_of_a_resource_file_makes_a_class),
                cmocka_unit_test(a_wrong_resource_file_is_named_with_its_line),
                cmocka_unit_test_teardown(
                        drop_ins_override_by_name_and_the_command_line_overrides_them, remove_dir),
                cmocka_unit_test_teardown(programs_write_the_last_files_into_the_daemons_own_folder,
                                          remove_dir),
                cmocka_unit_test_teardown(the_owners_last_good_files_hold_with_what_programs_write,
                                          remove_dir),
                cmocka_unit_test(what_was_packed_is_unpacked_whole_or_not_at_all),
                cmocka_unit_test(the_users_own_file_is_read_only_from_the_users_own_folder),
                cmocka_unit_test(the_sample_has_every_key_with_a_good_value),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
