/* command_jupyter.c: sublet jupyter. Owns the kernel specs that it writes. Must never replace a
 * kernel of somebody else without --force. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/folders.h"
#include "base/macros.h"
#include "client/common/cli.h"
#include "client/launch/launch.h"

struct jupyter {
        const char *name, *display_name, *python, *kernel, *prefix;
        bool user, sys_prefix, force;
        struct launch launch;
        json_t *run; /* the words before the kernel's own command */
};

static void json_free(json_t **j)
{
        json_decref(*j);
}
#define _cleanup_json_ _cleanup_(json_free)

/* ---- the command line ---- */

static int add_word(struct jupyter *j, const char *word)
{
        if (json_array_append_new(j->run, json_string(word)) < 0)
                return cli_fail(CLI_USAGE, "a kernel spec takes UTF-8, which '%s' is not", word);
        return CLI_OK;
}

/* Keeps an option of `sublet run` for the kernel, which Jupyter starts in another directory. */
static int keep_option(const struct option_row *row, void *jupyter, const char *value)
{
        struct jupyter *j = jupyter;
        bool path = row->argument &&
                    (strcmp(row->argument, "DIR") == 0 || strcmp(row->argument, "FILE") == 0);
        _cleanup_free_ char *whole = path && *value ? launch_absolute(value) : NULL;
        _cleanup_free_ char *word = NULL;
        int r = row->set(row, (char *)&j->launch + row->at, value);

        if (r != 0)
                return r;
        if (asprintf(&word, "--%s%s%s", row->name, value ? "=" : "",
                     whole   ? whole
                     : value ? value
                             : "") < 0)
                return cli_fail(CLI_FAILED, "out of memory");
        return add_word(j, word);
}

static bool is_kernel_name(const char *text)
{
        for (const char *c = text; *c; c++)
                if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
                        return false;
        return *text && *text != '.';
}

static int set_kernel_name(const struct option_row *row, void *field, const char *value)
{
        if (!is_kernel_name(value))
                return -EINVAL;
        *(const char **)field = value;
        return 0;
}

#define AT(field)   offsetof(struct jupyter, field)
#define KERNEL_NAME "of letters, digits, '.', '_' and '-'"

const struct option_row jupyter_options[] = {
        {"name", "NAME",
         "name of the kernel (default: sublet, or KERNEL-sublet); python3 replaces the kernel that "
         "new notebooks get",
         set_kernel_name, AT(name), .form = KERNEL_NAME},
        {"display-name", "TEXT", "how Jupyter's menus call the kernel", options_set_text,
         AT(display_name)},
        {"python", "PATH", "the Python of the kernel, with ipykernel (default: python3)",
         options_set_text, AT(python)},
        {"kernel", "KERNEL", "instead: run an installed kernel of Jupyter under sublet",
         set_kernel_name, AT(kernel), .form = KERNEL_NAME},
        {"user", NULL, "install it for you alone (the default)", options_set_true, AT(user)},
        {"sys-prefix", NULL, "install it in the environment of that Python, for all who use it",
         options_set_true, AT(sys_prefix)},
        {"prefix", "DIR", "install it in DIR/share/jupyter; /usr/local is for all users",
         options_set_text, AT(prefix)},
        {"force", NULL, "replace a kernel that sublet has not installed", options_set_true,
         AT(force)},
        {.set = keep_option, .more = launch_options},
};

static int begin_run(struct jupyter *j)
{
        char self[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
        int r;

        j->run = json_array();
        if (n < 0)
                return cli_fail(CLI_FAILED, "%s: %m", "/proc/self/exe");
        self[n] = 0;
        r = add_word(j, self);
        return r == CLI_OK ? add_word(j, "run") : r;
}

static int read_arguments(struct jupyter *j, const struct cli_command *self, int argc, char **argv)
{
        int words, r = begin_run(j);

        if (r == CLI_OK)
                r = cli_parse(self, argc, argv, OPTIONS_WORDS, j, &words);
        if (r != CLI_OK)
                return r;
        if (words == 0)
                return cli_fail(CLI_USAGE, "jupyter needs the word install");
        if (words > 1 || strcmp(argv[0], "install") != 0)
                return cli_fail(CLI_USAGE, "jupyter takes the word install, not '%s'",
                                argv[words - 1]);
        if (j->user + j->sys_prefix + !!j->prefix > 1)
                return cli_fail(CLI_USAGE, "--user, --sys-prefix and --prefix exclude each other");
        j->launch.gpu = NULL; /* chosen at the start of each kernel */
        r = launch_complete(&j->launch);
        return r == CLI_OK ? add_word(j, "--") : r;
}

/* ---- what Python knows ---- */

/* Prints Jupyter's folders, and the spec of ipykernel or of the kernel argv[1] with its folder. */
static const char question[] =
        "import json, os, sys, warnings\n"
        "warnings.simplefilter('ignore')  # jupyter_core 5 warns of its own plans\n"
        "sys.path = [p for p in sys.path if p]  # without the working directory\n"
        "os.environ['PYDEVD_DISABLE_FILE_VALIDATION'] = '1'  # ipykernel looks for a debugger\n"
        "answer = {'prefix': sys.prefix}\n"
        "try:\n"
        "    from jupyter_core.paths import jupyter_data_dir\n"
        "    answer['data'] = jupyter_data_dir()\n"
        "    if sys.argv[1]:\n"
        "        from jupyter_client.kernelspec import NoSuchKernel, get_kernel_spec\n"
        "        try:\n"
        "            spec = get_kernel_spec(sys.argv[1])\n"
        "            answer.update(spec=spec.to_dict(), folder=spec.resource_dir)\n"
        "        except NoSuchKernel:\n"
        "            pass\n"
        "    else:\n"
        "        from ipykernel.kernelspec import RESOURCES, get_kernel_dict\n"
        "        answer.update(spec=get_kernel_dict(), folder=RESOURCES)\n"
        "except ImportError as e:\n"
        "    answer['missing'] = e.name\n"
        "print(json.dumps(answer))\n";

/* Starts Python. Returns a descriptor that reads its stdout, or -errno. */
static int start_python(const struct jupyter *j, pid_t *ret_pid)
{
        const char *const argv[] = {j->python, "-c", question, j->kernel ? j->kernel : "", NULL};
        posix_spawn_file_actions_t actions;
        int ends[2], r;

        if (pipe2(ends, O_CLOEXEC) < 0)
                return -errno;
        (void)posix_spawn_file_actions_init(&actions);
        (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        r = posix_spawnp(ret_pid, j->python, &actions, NULL, (char *const *)argv, environ);
        (void)posix_spawn_file_actions_destroy(&actions);
        (void)close(ends[1]);
        if (r == 0)
                return ends[0];
        (void)close(ends[0]);
        return -r;
}

static int ask_python(const struct jupyter *j, json_t **ret)
{
        _cleanup_json_ json_t *answer = NULL;
        const char *missing;
        pid_t pid;
        int out = start_python(j, &pid);

        if (out < 0)
                return cli_fail(CLI_FAILED,
                                "cannot run '%s': %s; install ipykernel (on Debian: "
                                "python3-ipykernel), or name a Python that has it with --python",
                                j->python, strerror(-out));
        answer = json_loadfd(out, 0, NULL);
        (void)close(out);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                ;
        if (!answer)
                return cli_fail(CLI_FAILED, "'%s' does not say where Jupyter keeps its kernels",
                                j->python);
        missing = json_string_value(json_object_get(answer, "missing"));
        if (missing)
                return cli_fail(CLI_FAILED,
                                "'%s' has no module %s: install ipykernel there, or choose another "
                                "Python with --python",
                                j->python, missing);
        if (!json_is_object(json_object_get(answer, "spec")))
                return cli_fail(CLI_FAILED,
                                "there is no kernel '%s'; `jupyter kernelspec list` shows them",
                                j->kernel);
        *ret = TAKE_PTR(answer);
        return CLI_OK;
}

/* ---- the spec ---- */

static bool is_ours(const json_t *spec)
{
        return json_is_true(json_object_get(json_object_get(spec, "metadata"), "sublet"));
}

/* Returns the word with the kernel's folder in place of {resource_dir}. Jupyter would put the new
 * kernel's folder there, which lacks the kernel's files. */
static char *with_folder(const char *word, const char *folder)
{
        static const char placeholder[] = "{resource_dir}";
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return NULL;
        for (const char *at; (at = strstr(word, placeholder)); word = at + strlen(placeholder))
                (void)fprintf(f, "%.*s%s", (int)(at - word), word, folder);
        (void)fputs(word, f);
        return fclose(f) == 0 ? text : NULL;
}

/* Adds the kernel's own command. */
static int add_command(const struct jupyter *j, const json_t *spec, const char *folder)
{
        _cleanup_free_ char *whole = launch_absolute(folder);
        const json_t *word;
        size_t i;

        json_array_foreach (json_object_get(spec, "argv"), i, word) {
                const char *text = json_string_value(word);
                _cleanup_free_ char *changed = text && whole ? with_folder(text, whole) : NULL;

                if (!changed || json_array_append_new(j->run, json_string(changed)) < 0)
                        return -1;
        }
        return i > 0 ? 0 : -1;
}

/* Changes a kernel's spec so that the kernel runs under sublet. folder: the kernel's. */
static int change_spec(const struct jupyter *j, json_t *spec, const char *folder)
{
        const char *old = json_string_value(json_object_get(spec, "display_name"));
        _cleanup_free_ char *shown = NULL;
        json_t *metadata;

        if (is_ours(spec))
                return cli_fail(CLI_USAGE, "--kernel: '%s' runs under sublet already", j->kernel);
        if (j->display_name)
                shown = strdup(j->display_name);
        else if (asprintf(&shown, "%s under sublet", old ? old : j->kernel) < 0)
                shown = NULL;
        if (add_command(j, spec, folder ? folder : "") < 0 ||
            json_object_set(spec, "argv", j->run) < 0 ||
            json_object_set_new(spec, "display_name", json_string(shown)) < 0)
                return cli_fail(CLI_FAILED, "the kernel '%s' cannot run under sublet",
                                j->kernel ? j->kernel : j->python);
        metadata = json_object_get(spec, "metadata");
        if (!json_is_object(metadata)) {
                metadata = json_object();
                (void)json_object_set_new(spec, "metadata", metadata);
        }
        (void)json_object_set_new(metadata, "sublet", json_true());
        return CLI_OK;
}

/* ---- writing ---- */

static int write_spec(const char *folder, const json_t *spec)
{
        char path[PATH_MAX], temporary[PATH_MAX + 4];

        (void)snprintf(path, sizeof(path), "%s/kernel.json", folder);
        (void)snprintf(temporary, sizeof(temporary), "%s.new", path);
        if (json_dump_file(spec, temporary, JSON_INDENT(1) | JSON_PRESERVE_ORDER) < 0 ||
            rename(temporary, path) < 0)
                return -errno;
        return 0;
}

/* Copies a picture of the kernel. One that is missing is left out: Jupyter shows a letter then. */
static void copy_picture(const char *from, const char *to, const char *name)
{
        char source[PATH_MAX], target[PATH_MAX];
        _cleanup_close_ int in = -EBADF, out = -EBADF;
        struct stat st;

        (void)snprintf(source, sizeof(source), "%s/%s", from, name);
        (void)snprintf(target, sizeof(target), "%s/%s", to, name);
        in = open(source, O_RDONLY | O_CLOEXEC);
        if (in < 0 || fstat(in, &st) < 0)
                return;
        out = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (out >= 0)
                (void)!sendfile(out, in, NULL, (size_t)st.st_size);
}

static bool is_somebody_elses(const char *folder)
{
        _cleanup_json_ json_t *there = NULL;
        char path[PATH_MAX];

        (void)snprintf(path, sizeof(path), "%s/kernel.json", folder);
        there = json_load_file(path, 0, NULL);
        return access(path, F_OK) == 0 && !is_ours(there);
}

static int install(const struct jupyter *j, const json_t *answer)
{
        static const char *const pictures[] = {"logo-32x32.png", "logo-64x64.png", "logo-svg.svg"};
        const char *root =
                json_string_value(json_object_get(answer, j->sys_prefix ? "prefix" : "data"));
        const json_t *spec = json_object_get(answer, "spec");
        const char *from = json_string_value(json_object_get(answer, "folder"));
        _cleanup_free_ char *prefix = j->prefix ? launch_absolute(j->prefix) : NULL;
        char folder[PATH_MAX - 32];
        int r;

        (void)snprintf(folder, sizeof(folder), "%s%s/kernels/%s%s", prefix ? prefix : root,
                       prefix || j->sys_prefix ? "/share/jupyter" : "",
                       j->name     ? j->name
                       : j->kernel ? j->kernel
                                   : "sublet",
                       !j->name && j->kernel ? "-sublet" : "");
        if (!j->force && is_somebody_elses(folder))
                return cli_fail(CLI_FAILED,
                                "sublet has not installed the kernel in %s: --force replaces it, "
                                "--name chooses another name",
                                folder);
        r = folders_make(folder, 0777);
        if (r == 0)
                r = write_spec(folder, spec);
        if (r < 0)
                return cli_fail(CLI_FAILED,
                                "cannot write to %s: %s; --user and --prefix choose another folder",
                                folder, strerror(-r));
        for (size_t i = 0; from && i < ARRAY_SIZE(pictures); i++)
                copy_picture(from, folder, pictures[i]);
        (void)printf("kernel '%s' is in %s\n"
                     "load the notebook's page again, and choose it in the menu Kernel, Change "
                     "Kernel\n",
                     json_string_value(json_object_get(spec, "display_name")), folder);
        return CLI_OK;
}

int jupyter_main(const struct cli_command *self, int argc, char **argv)
{
        struct jupyter j = {.python = "python3"};
        json_t *answer = NULL;
        int r = read_arguments(&j, self, argc, argv);

        if (r == CLI_OK)
                r = ask_python(&j, &answer);
        if (r == CLI_OK)
                r = change_spec(&j, json_object_get(answer, "spec"),
                                json_string_value(json_object_get(answer, "folder")));
        if (r == CLI_OK)
                r = install(&j, answer);
        json_decref(answer);
        json_decref(j.run);
        launch_clear(&j.launch);
        return cli_parsed(r);
}
