/* reader.c: owns the process that asks NVML, and the time limits on it. Must never wait for that
 * process, and never have more than one. */
#include "daemon/cards/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "daemon/people/child_process.h"

#define LATE_NS     (2 * NSEC_PER_SEC)   /* time after which a look is given up */
#define STUCK_NS    (120 * NSEC_PER_SEC) /* time after which a hanging process is replaced */
#define WAIT_NS     (NSEC_PER_SEC / 2)   /* pause before the next try, doubled each time */
#define WAIT_MAX_NS (64 * NSEC_PER_SEC)
#define CHILD_NAME  "subletd-nvml"

struct reader {
        sd_event *event;
        reader_told told;
        void *userdata;
        struct child_process process;
        sd_event_source *timer;
        struct nvml_look *look;   /* shared memory, where the present process writes the look */
        struct nvml_look *latest; /* the daemon's copy */
        uint64_t asked_ns;        /* when a look was requested; 0: no look is under way */
        bool again;               /* another look was requested during this one */
        bool late;                /* the log says that NVML does not answer */
        bool absent;              /* the log says that there is no NVML */
        uint64_t wait_ns, next_ns;
};

/* ---- the reading process ---- */

static void read_cards(int fd, pid_t parent, void *userdata)
{
        const struct reader *r = userdata;
        struct nvml *n = NULL;
        char byte;

        (void)prctl(PR_SET_NAME, CHILD_NAME);
        child_process_begin(fd, parent);
        if (nvml_open(&n) < 0)
                _exit(EXIT_FAILURE);
        while (read(CHILD_FD, &byte, 1) == 1) {
                nvml_read(n, r->look);
                if (send(CHILD_FD, &byte, 1, MSG_NOSIGNAL) != 1)
                        break;
        }
        _exit(EXIT_SUCCESS);
}

/* ---- the life of that process ---- */

static void arm(struct reader *r, uint64_t after_ns)
{
        (void)sd_event_source_set_time_relative(r->timer, after_ns / NSEC_PER_USEC);
        (void)sd_event_source_set_enabled(r->timer, SD_EVENT_ONESHOT);
}

static void put_off(struct reader *r)
{
        r->wait_ns = MIN(MAX(2 * r->wait_ns, WAIT_NS), WAIT_MAX_NS);
        r->next_ns = clock_now_ns() + r->wait_ns;
}

static void drop_process(struct reader *r)
{
        child_process_drop(&r->process);
        (void)sd_event_source_set_enabled(r->timer, SD_EVENT_OFF);
        r->asked_ns = 0;
        r->again = false;
        put_off(r);
}

static int on_answer(sd_event_source *src, int fd, uint32_t events, void *userdata);

static int start_process(struct reader *r)
{
        int result =
                child_process_start(&r->process, r->event, SOCK_STREAM, on_answer, read_cards, r);

        if (result >= 0)
                result = sd_event_source_set_priority(r->process.io, SD_EVENT_PRIORITY_IMPORTANT);
        if (result < 0)
                drop_process(r);
        return MIN(result, 0);
}

static bool send_question(struct reader *r)
{
        char byte = 0;

        if (send(r->process.fd, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
                return false;
        r->asked_ns = clock_now_ns();
        r->again = false;
        arm(r, LATE_NS);
        return true;
}

static void say_absent(struct reader *r)
{
        if (!r->absent)
                log_info("no NVML (libnvidia-ml.so.1): memory that programs without sublet use on "
                         "the GPUs is not seen");
        r->absent = true;
        r->late = false;
        r->told(r->userdata, NULL, clock_now_ns());
}

/* Copies a look, which NVIDIA's library may have corrupted. False: a count is too large. */
static bool copy_look(const struct nvml_look *from, struct nvml_look *to)
{
        to->n = from->n;
        if (to->n > ARRAY_SIZE(to->cards))
                return false;
        memcpy(to->cards, from->cards, to->n * sizeof(to->cards[0]));
        for (unsigned i = 0; i < to->n; i++) {
                struct nvml_card *card = &to->cards[i];

                card->uuid_text[sizeof(card->uuid_text) - 1] = '\0';
                card->name[sizeof(card->name) - 1] = '\0';
                if (card->n_processes > ARRAY_SIZE(card->processes))
                        return false;
        }
        return true;
}

/* One byte says that the look is complete; end of file says that the process has ended. */
static int on_answer(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct reader *r = userdata;
        uint64_t asked_ns = r->asked_ns;
        bool again;
        char byte;
        ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        if (n != 1 || !asked_ns || !copy_look(r->look, r->latest)) {
                drop_process(r);
                say_absent(r);
                return 0;
        }
        if (r->late)
                log_notice("NVML answers again");
        r->late = r->absent = false;
        r->wait_ns = 0;
        r->asked_ns = 0;
        again = r->again;
        r->again = false;
        (void)sd_event_source_set_enabled(r->timer, SD_EVENT_OFF);
        r->told(r->userdata, r->latest, asked_ns);
        if (again && !reader_ask(r))
                r->told(r->userdata, NULL, clock_now_ns());
        return 0;
}

static int on_timer(sd_event_source *src, uint64_t usec, void *userdata)
{
        struct reader *r = userdata;

        if (clock_now_ns() - r->asked_ns >= STUCK_NS) {
                log_warning("NVML does not answer: its process %d is replaced",
                            (int)r->process.pid);
                drop_process(r);
                return 0;
        }
        if (!r->late)
                log_warning("NVML has not answered for %llu s: its last figures hold meanwhile",
                            (unsigned long long)(LATE_NS / NSEC_PER_SEC));
        r->late = true;
        arm(r, STUCK_NS - LATE_NS);
        r->told(r->userdata, NULL, clock_now_ns());
        return 0;
}

/* ---- for the daemon ---- */

bool reader_ask(struct reader *r)
{
        if (r->asked_ns) {
                r->again = true;
                return !r->late;
        }
        if (r->process.fd < 0 &&
            (r->process.pid > 0 || clock_now_ns() < r->next_ns || start_process(r) < 0))
                return false;
        if (send_question(r))
                return !r->late;
        drop_process(r);
        return false;
}

void reader_restart(struct reader *r)
{
        drop_process(r);
        say_absent(r);
}

static struct nvml_look *map_look(void)
{
        void *p = mmap(NULL, sizeof(struct nvml_look), PROT_READ | PROT_WRITE,
                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        return p == MAP_FAILED ? NULL : p;
}

int reader_new(sd_event *event, reader_told told, void *userdata, struct reader **ret)
{
        struct reader *r = calloc(1, sizeof(*r));
        int result = -ENOMEM;

        if (!r)
                return result;
        r->event = event;
        r->told = told;
        r->userdata = userdata;
        child_process_init(&r->process);
        r->look = map_look();
        r->latest = calloc(1, sizeof(*r->latest));
        if (r->look && r->latest)
                result = sd_event_add_time_relative(event, &r->timer, CLOCK_MONOTONIC, 0, 1000,
                                                    on_timer, r);
        if (result >= 0)
                result = sd_event_source_set_enabled(r->timer, SD_EVENT_OFF);
        if (result < 0) {
                reader_free(r);
                return result;
        }
        *ret = r;
        return 0;
}

/* Does not wait for the process, which may never end. */
void reader_free(struct reader *r)
{
        if (!r)
                return;
        child_process_free(&r->process);
        (void)sd_event_source_disable_unref(r->timer);
        if (r->look)
                (void)munmap(r->look, sizeof(*r->look));
        free(r->latest);
        free(r);
}
