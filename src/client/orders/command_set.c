/* command_set.c: sublet set, and sublet priority. Must never know which settings there are: the
 * daemon tells. */
#include <string.h>

#include "base/macros.h"
#include "client/common/cli.h"
#include "client/talk/control_order.h"
#include "client/orders/programs.h"

struct request {
        struct target target;
        const char *program; /* its number or its name; NULL: the daemon's settings */
        int pid;             /* 0: the daemon's settings */
};

const struct option_row set_options[] = {
        TARGET_OPTION_ROWS(offsetof(struct request, target)),
        {"pid", "PID|NAME", "settings of this program, not of the daemon", options_set_text,
         offsetof(struct request, program)},
        {0},
};

void set_explain(FILE *out)
{
        (void)fputs("\nWithout VALUE it shows the value, and without KEY all of them.\n\n"
                    "mode is how programs share a GPU:\n"
                    "  auto       programs that fit together run together; others take turns\n"
                    "  exclusive  one program at a time, even if more would fit\n"
                    "  off        no turns, and nothing moves: what does not fit is out of memory\n"
                    "\nA size is such as 20GiB, a duration such as 250ms, 5s or 2min, a share such "
                    "as 5%.\nsubletd --help explains each key. What is set is kept until the "
                    "daemon ends;\nwrite it into the configuration to keep it longer.\n",
                    out);
}

static json_t *order(const struct request *q, const char *name)
{
        json_t *made = json_pack("{ss}", "order", name);

        if (q->pid)
                (void)json_object_set_new(made, "pid", json_integer(q->pid));
        return made;
}

static const char *text_of(const json_t *object, const char *field)
{
        const char *text = json_string_value(json_object_get(object, field));

        return text ? text : "";
}

/* Prints all settings, or the value of one. */
static int show(const struct request *q, const char *key, const char *unused)
{
        json_t *answer, *one;
        bool found = false;
        size_t i;
        int r = control_order(&q->target, order(q, "get"), &answer);

        if (r != CLI_OK)
                return r;
        json_array_foreach (json_object_get(answer, "settings"), i, one) {
                const char *files = json_string_value(json_object_get(one, "files"));

                if (key && strcmp(text_of(one, "key"), key) != 0)
                        continue;
                found = true;
                if (key)
                        (void)printf("%s\n", text_of(one, "value"));
                else if (files)
                        (void)printf("%-21s %s   (the files say %s)\n", text_of(one, "key"),
                                     text_of(one, "value"), files);
                else
                        (void)printf("%-21s %s\n", text_of(one, "key"), text_of(one, "value"));
        }
        json_decref(answer);
        if (key && !found)
                return cli_fail(CLI_FAILED, "there is no setting '%s': sublet set shows all", key);
        return CLI_OK;
}

static int change(const struct request *q, const char *key, const char *value)
{
        json_t *made = order(q, q->pid ? "set_program" : "set"), *answer;
        int r;

        (void)json_object_set_new(made, key, json_string(value));
        r = control_order(&q->target, made, &answer);
        if (r != CLI_OK)
                return r;
        (void)printf("%s is %s%s\n", key, text_of(answer, "value"),
                     json_is_true(json_object_get(answer, "lowered"))
                             ? ": the daemon's owner allows no more"
                             : "");
        json_decref(answer);
        return CLI_OK;
}

/* Calls act() for each program that was named, or for the daemon. */
static int each(struct request *q,
                int (*act)(const struct request *q, const char *key, const char *value),
                const char *key, const char *value)
{
        static struct programs named;
        int r = q->program ? programs_add(&named, &q->target, &q->program, 1) : CLI_OK;

        if (r == CLI_OK && !q->program)
                r = act(q, key, value);
        for (size_t i = 0; r == CLI_OK && i < named.n; i++) {
                q->pid = named.pid[i];
                if (named.n > 1)
                        (void)printf("%d: %s", q->pid, act == show && !key ? "\n" : "");
                r = act(q, key, value);
        }
        return r;
}

int set_main(const struct cli_command *self, int argc, char **argv)
{
        struct request q = {0};
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_WORDS, &q, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (words > 2)
                return cli_fail(CLI_USAGE, "set takes one setting and its value, not also '%s'",
                                argv[2]);
        if (words == 2 && (strcmp(argv[0], "order") == 0 || strcmp(argv[0], "pid") == 0))
                return cli_fail(CLI_USAGE, "there is no setting '%s': sublet set shows all",
                                argv[0]);
        return words == 2 ? each(&q, change, argv[0], argv[1])
                          : each(&q, show, words ? argv[0] : NULL, NULL);
}

int priority_main(const struct cli_command *self, int argc, char **argv)
{
        struct request q = {0};
        int words, r;

        r = cli_parse(self, argc, argv, OPTIONS_WORDS, &q.target, &words);
        if (r != CLI_OK)
                return cli_parsed(r);
        if (words != 2)
                return cli_fail(CLI_USAGE,
                                "priority takes a program, by number or name, and a number from "
                                "-20 to 20");
        q.program = argv[0];
        return each(&q, change, "priority", argv[1]);
}
