/* doctor_processes.c: owns doctor's findings about other processes. */
#include "client/doctor/doctor_processes.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "base/text.h"
#include "client/figures/client_words.h"
#include "client/doctor/doctor_programs.h"
#include "client/doctor/finding.h"
#include "client/figures/figures.h"

#define USER_MAX 64

static const char *user_of(uid_t uid, char ret[static USER_MAX])
{
        const struct passwd *pw = getpwuid(uid);

        if (pw)
                return text_copy(ret, USER_MAX, pw->pw_name);
        (void)snprintf(ret, USER_MAX, "user %lu", (unsigned long)uid);
        return ret;
}

/* Reports a process whose memory must stay on the card because of a library that it has loaded. */
static void judge_hidden(int pid, const char *library, const char *what)
{
        finding_add(WARN,
                    "process %d has loaded %s (%s), whose work cannot be awaited: its memory stays "
                    "on the GPU",
                    pid, library, what);
        finding_remedy("programs that do not fit beside it wait until it ends");
}

static const json_t *now; /* the daemon's status, for judge_unshared() */

/* True if the process holds memory of a GPU outside the daemon. */
static bool is_outside(int pid)
{
        const json_t *gpu, *other;
        size_t i, k;

        json_array_foreach (json_object_get(now, "gpus"), i, gpu)
                json_array_foreach (json_object_get(gpu, "others"), k, other)
                        if ((int)figure_number(other, "pid") == pid)
                                return true;
        return false;
}

static void judge_unshared(const struct program_unshared *u)
{
        char user[USER_MAX];

        (void)user_of(u->uid, user);
        if (u->loaded) {
                /* A process without memory has only asked for the GPUs, and has no agent yet. */
                if (!is_outside(u->pid))
                        return;
                finding_add(WARN,
                            "process %d (%s) of %s has loaded libsublet.so, but could not reach "
                            "a daemon: it runs without sharing",
                            u->pid, u->name, user);
                finding_remedy(
                        "its stderr names the system call, and the limit or the sandbox that "
                        "forbids it: raise ulimit -n or -u, or allow the call, and start it "
                        "again");
                return;
        }
        if (u->musl) {
                finding_add(WARN,
                            "process %d (%s) of %s is built for the C library musl, which cannot "
                            "load libsublet.so: it runs without sharing",
                            u->pid, u->name, user);
                finding_remedy("use a build for glibc");
                return;
        }
        if (u->ours)
                finding_add(WARN,
                            "process %d (%s) of %s was started under sublet and uses the driver "
                            "without libsublet.so: it runs without sharing",
                            u->pid, u->name, user);
        else
                finding_add(WARN,
                            "process %d (%s) of %s uses the driver without libsublet.so: it runs "
                            "without sharing",
                            u->pid, u->name, user);
        if (u->ours)
                finding_remedy(
                        "if its file gives it privileges, start sublet from within, as in "
                        "'sudo sublet run'; if it is statically linked, use a dynamic build; "
                        "in a container, libsublet.so must have "
                        "the same path");
        else if (u->preloads)
                finding_remedy(
                        "its LD_PRELOAD is '%s'; a script that sets it under sublet run must "
                        "keep what is there: LD_PRELOAD=\"FILE:$LD_PRELOAD\"",
                        u->preload);
        else
                finding_remedy("start it with sublet run; behind env -i or env -u LD_PRELOAD put "
                               "sublet run after them");
}

static void judge_stopped(const json_t *client, const char *how)
{
        const json_t *uid = json_object_get(client, "uid");
        const char *name = json_string_value(json_object_get(client, "name"));
        char size[FIGURE_MAX], shown[FIGURE_MAX], user[USER_MAX];

        figure_text(name ? name : "another user's", shown);
        figure_size(figure_number(client, "backed") + figure_number(client, "unevictable"), size);
        finding_add(WARN, "process %d (%s)%s%s is stopped, and holds %s of the GPU's memory",
                    (int)figure_number(client, "pid"), shown, json_is_integer(uid) ? " of " : "",
                    json_is_integer(uid) ? user_of((uid_t)json_integer_value(uid), user) : "",
                    size);
        finding_remedy("%s", how);
}

static void judge_waiting(const json_t *client)
{
        const char *name = json_string_value(json_object_get(client, "name"));
        char shown[FIGURE_MAX];

        figure_text(name ? name : "another user's", shown);
        finding_add(WARN, "process %d (%s) waits for memory that programs outside its daemon hold",
                    (int)figure_number(client, "pid"), shown);
        finding_remedy("sublet status lists them as others: start them with sublet run, under one "
                       "daemon for all users (sudo subletd), or end them");
}

static void look_at_clients(const json_t *status)
{
        const json_t *gpu, *client;
        char text[STOP_TEXT_MAX];
        size_t i, k;

        json_array_foreach (json_object_get(status, "gpus"), i, gpu) {
                json_array_foreach (json_object_get(gpu, "clients"), k, client) {
                        if (client_stopped(client, text))
                                judge_stopped(client, text);
                        if (json_is_true(json_object_get(client, "waits_for_foreign")))
                                judge_waiting(client);
                }
        }
}

void processes_look(const json_t *status, const char *folder, bool simulated)
{
        unsigned refused;

        look_at_clients(status);
        now = status;
        refused = programs_look(folder, simulated, judge_hidden, judge_unshared);

        if (refused && geteuid() != 0)
                finding_add(OK,
                            "doctor may not look at %u process%s of other users, which may run "
                            "without sublet; run as root",
                            refused, refused == 1 ? "" : "es");
        else if (refused)
                finding_add(OK,
                            "doctor may not look at %u process%s of other users, which may run "
                            "without sublet; this root lacks CAP_SYS_PTRACE",
                            refused, refused == 1 ? "" : "es");
}
