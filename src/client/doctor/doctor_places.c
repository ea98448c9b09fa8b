/* doctor_places.c: owns doctor's findings about where daemons of this user are. Must never report a
 * daemon that nobody uses. */
#include "client/doctor/doctor_places.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "ask/ask.h"
#include "base/places.h"
#include "client/figures/client_words.h"
#include "client/doctor/finding.h"

void places_look_at_runtime(void)
{
        const char *runtime = getenv("XDG_RUNTIME_DIR");
        const struct paths_input in = paths_input_here();
        char place[PATHS_DIR_MAX] = "";
        struct stat st;

        (void)paths_private_dir(&in, "", place, sizeof(place));
        if (!runtime || !runtime[0]) {
                finding_add(OK, "no XDG_RUNTIME_DIR; %s is used instead", place);
        } else if (runtime[0] != '/' || stat(runtime, &st) < 0) {
                finding_add(OK, "XDG_RUNTIME_DIR=%s cannot be used; %s is used instead", runtime,
                            place);
        } else if (!S_ISDIR(st.st_mode) || st.st_uid != getuid()) {
                finding_add(WARN, "XDG_RUNTIME_DIR=%s is not a directory of yours and not used",
                            runtime);
                finding_remedy("unset it, or log in as the user that it belongs to");
        }
}

/* True if programs use the daemon. A daemon that nobody uses any more ends soon. One that does not
 * answer counts as used. */
static bool has_programs(const char *dir)
{
        json_t *answer = NULL;
        const int r = ask_daemon(dir, PATHS_NAMED, json_pack("{ss}", "order", "status"), &answer);
        const bool used = r < 0 || clients_use(answer);

        json_decref(answer);
        return used;
}

void places_look_at_others(const struct target *target, const char *dir, enum paths_kind kind)
{
        const bool asked = target->daemon || target->simulated; /* asked about one daemon */
        const struct paths_input in = paths_input_here();
        struct private_place places[PLACES_MAX];
        const unsigned n = asked ? 0 : places_look(&in, places);

        for (unsigned i = 0; i < n; i++) {
                const struct private_place *p = &places[i];

                if (p->elsewhere) {
                        finding_add(WARN,
                                    "your process %d is in another mount namespace (a container?) "
                                    "and under a daemon in %s there: programs here take no "
                                    "turns with it",
                                    p->pid, p->dir);
                        finding_remedy("let the machine have one daemon (sudo subletd), and mount "
                                       "its socket there: docs/install.md, Containers");
                } else if (p->error == 0 && strcmp(p->dir, dir) != 0 && has_programs(p->dir)) {
                        finding_add(WARN,
                                    "your programs are under two daemons: those in %s and those in "
                                    "%s take no turns, and lack each other's memory",
                                    p->dir, dir);
                        if (p->named || kind == PATHS_NAMED)
                                finding_remedy(PLACES_ONE);
                        else
                                finding_remedy(PLACES_JOIN, p->dir);
                }
        }
}
