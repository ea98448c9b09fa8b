/* way.c: owns the request for an MPS server, and the variables that name the server. Must never
 * change an array of the environment, because another thread may be reading it: it makes a new one.
 * Why: docs/decisions.md, "The library asks for MPS on a connection of its own". */
#include "preload/process/way.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/settings.h"
#include "preload/process/link.h"
#include "preload/process/name.h"

#define ANSWER_NS (12 * NSEC_PER_SEC) /* the daemon waits for 10 s */
#define PLACE_MAX (128 + 48)
#define PIPE      "CUDA_MPS_PIPE_DIRECTORY"
#define DEVICES   "CUDA_VISIBLE_DEVICES"

extern char **environ;

static struct {
        char **before, **own; /* the old array and ours; NULL: not set */
        char pipe[sizeof(PIPE) + PLACE_MAX], devices[sizeof(DEVICES) + 48];
} way;

static void tell_no_mps(const char *why)
{
        log_warning("MPS is not used: %s; this program runs without it", why);
}

static bool names(const char *entry, const char *variable)
{
        const size_t n = strlen(variable);

        return strncmp(entry, variable, n) == 0 && entry[n] == '=';
}

/* Sets both variables. If way.pipe is empty, the first one is removed; if way.devices is empty, the
 * second one stays. The old array does not change, because another thread may be reading it. 0 or
 * -ENOMEM. */
static int set_variables(void)
{
        char *volatile const *all = environ;
        size_t n = 0, kept = 0;
        char **copy;

        while (all && all[n])
                n++;
        copy = calloc(n + 3, sizeof(*copy)); /* the program may use it until it ends */
        if (!copy)
                return -ENOMEM;
        for (size_t i = 0; i < n && all[i]; i++)
                if (!names(all[i], PIPE) && !(way.devices[0] && names(all[i], DEVICES)))
                        copy[kept++] = all[i];
        if (way.pipe[0])
                copy[kept++] = way.pipe;
        if (way.devices[0])
                copy[kept] = way.devices;
        way.before = environ;
        way.own = copy;
        __atomic_store_n(&environ, copy, __ATOMIC_RELEASE);
        return 0;
}

static int send_question(int fd)
{
        const char *order = getenv("CUDA_DEVICE_ORDER"), *devices = getenv(DEVICES);
        struct wire_message m = {.header = {WIRE_HELLO, WIRE_NO_GPU, 1}};
        int r;

        m.HELLO.magic = WIRE_MAGIC;
        m.HELLO.protocol = WIRE_VERSION;
        m.HELLO.pid = (uint32_t)getpid();
        name_of_program(m.HELLO.name, sizeof(m.HELLO.name));
        (void)snprintf(m.HELLO.version, sizeof(m.HELLO.version), "%s", SUBLET_VERSION);
        r = link_send(fd, &m, NULL, 0);
        if (r < 0)
                return r;
        m = (struct wire_message){.header = {WIRE_JOIN, WIRE_NO_GPU, 2}};
        if (order && strcmp(order, "PCI_BUS_ID") == 0)
                m.JOIN.flags = WIRE_JOIN_PCI_ORDER;
        (void)snprintf(m.JOIN.devices, sizeof(m.JOIN.devices), "%s", devices ? devices : "");
        return link_send(fd, &m, NULL, 0);
}

/* Waits for JOINED, or a refusal, which becomes a JOINED that is not ready. */
static int receive_answer(int fd, struct wire_message *ret)
{
        const uint64_t until = clock_now_ns() + ANSWER_NS;
        struct passed came = {0};

        for (;;) {
                const int r = link_receive(fd, WIRE_DOWN, ret, &came);
                const uint64_t now = clock_now_ns();
                const struct timespec most = {.tv_sec = 1};
                struct pollfd p = {.fd = fd, .events = POLLIN};
                char text[sizeof(ret->REFUSED.text)];

                passed_close(&came);
                if (r < 0)
                        return r;
                if (r == 0) {
                        if (now >= until)
                                return -ETIMEDOUT;
                        (void)syscall(SYS_ppoll, &p, 1, &most, NULL, 0);
                        continue;
                }
                if (ret->header.type == WIRE_JOINED)
                        return 0;
                if (ret->header.type != WIRE_REFUSED)
                        continue;
                memcpy(text, ret->REFUSED.text, sizeof(text));
                *ret = (struct wire_message){.header.type = WIRE_JOINED};
                memcpy(ret->JOINED.why, text, sizeof(text));
                return 0;
        }
}

/* True if the environment names a control daemon that is not ours. A name of ours may come from the
 * program that started this one. */
static bool has_other(const char *folder)
{
        const char *pipe = getenv(PIPE);
        const size_t n = strlen(folder);

        return pipe && *pipe &&
               (strncmp(pipe, folder, n) != 0 || strncmp(pipe + n, "/mps/", 5) != 0);
}

void way_join(void)
{
        const char *devices = getenv(DEVICES);
        struct wire_message m, bye = {.header = {WIRE_BYE, WIRE_NO_GPU, 3}};
        _cleanup_close_ int fd = -EBADF;
        char where[128] = "", folder[PATH_MAX];
        bool found;
        int r;

        if (setting_choice(SETTING_WAY) == 0 || (devices && !*devices))
                return;
        r = link_connect(where, &fd);
        found = realpath(where, folder); /* the name may be relative */
        if (r == 0 && !found)
                r = -errno;
        if (found && has_other(folder))
                return;
        if (r == 0)
                r = send_question(fd);
        if (r == 0)
                r = receive_answer(fd, &m);
        if (r < 0) {
                tell_no_mps(r == -ETIMEDOUT ? "the daemon does not answer"
                                            : "there is no daemon to ask");
                if (found && getenv(PIPE))
                        (void)set_variables(); /* the server that PIPE names may have ended, too */
                return;
        }
        (void)link_send(fd, &bye, NULL, 0);
        if (!m.JOINED.ready) {
                tell_no_mps(m.JOINED.why);
                if (getenv(PIPE))
                        (void)set_variables(); /* the server is not for this program */
                return;
        }
        if (snprintf(way.pipe, sizeof(way.pipe), PIPE "=%s/%s", folder, m.JOINED.place) >=
            (int)sizeof(way.pipe)) {
                tell_no_mps("the daemon's directory has too long a name for MPS");
                return;
        }
        if (m.JOINED.devices[0])
                (void)snprintf(way.devices, sizeof(way.devices), DEVICES "=%s", m.JOINED.devices);
        if (set_variables() < 0)
                tell_no_mps("out of memory");
}

bool way_leave(int error)
{
        char why[64];

        if (!way.before || !way.pipe[0] || environ != way.own)
                return false;
        (void)snprintf(why, sizeof(why), "the driver cannot reach the server (error %d)", error);
        tell_no_mps(why);
        __atomic_store_n(&environ, way.before, __ATOMIC_RELEASE);
        way.before = NULL;
        return true;
}
