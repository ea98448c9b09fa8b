/* rm_hand.c: owns the page that the library shares with the daemon's hand, and the thread that
 * hears the hand. That thread makes no driver call, because such a call may wait for channels that
 * the hand has taken off the GPU.
 * Why: docs/decisions.md, "The daemon's hand". */
#include "preload/rm/rm_hand.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/macros.h"
#include "preload/process/cpus.h"
#include "preload/process/libc_compat.h"
#include "preload/process/nap.h"
#include "preload/rm/rm.h"
#include "wire/hand_page.h"

#define BUSY_NS   (NSEC_PER_MSEC / 20)
#define BUSY_MOST 10000 /* times BUSY_NS at least: a control takes up to 0.3 s */

static struct {
        struct hand_page *page; /* NULL: there is no hand */
        int line;
        bool leaving;
        int next_page, next_line;      /* an offer that waits for the end of this hand; -1: none */
        uint64_t names[HAND_CHANNELS]; /* those of the page, also while they are withdrawn */
        uint32_t top;                  /* names[top] and later ones are 0 */
} hand = {.line = -1, .next_page = -1, .next_line = -1};

_Static_assert(HAND_CHANNELS == CHANNELS_OBJECTS_MAX, "a name has the index of its object");

/* ---- the thread that hears the hand ---- */

static void *hear(void *line)
{
        const int fd = (int)(intptr_t)line;
        char byte;

        (void)prctl(PR_SET_NAME, "sublet-hand");
        cpus_settle();
        for (;;) {
                const long n = syscall(SYS_recvfrom, fd, &byte, sizeof(byte), 0, NULL, NULL);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        break;
                rm_hand_asks();
        }
        rm_hand_is_gone();
        return NULL;
}

static void ring(void)
{
        const char byte = 1;

        (void)syscall(SYS_sendto, hand.line, &byte, sizeof(byte), MSG_DONTWAIT | MSG_NOSIGNAL, NULL,
                      0);
}

static void close_one(int *fd)
{
        if (*fd >= 0)
                (void)syscall(SYS_close, *fd);
        *fd = -1;
}

/* A page that is too short would end the program with SIGBUS. The symbol fstat() is newer than some
 * C libraries that this library runs with. */
static bool is_page(int fd)
{
        struct stat st;

        return syscall(SYS_fstat, fd, &st) == 0 && st.st_size >= (off_t)sizeof(struct hand_page);
}

bool hand_take(int page, int line)
{
        void *p = MAP_FAILED;

        if (page >= 0 && line >= 0 && hand.page) {
                close_one(&hand.next_page);
                close_one(&hand.next_line);
                hand.next_page = page;
                hand.next_line = line;
                return false;
        }
        if (line >= 0 && is_page(page))
                p = mmap(NULL, sizeof(struct hand_page), PROT_READ | PROT_WRITE, MAP_SHARED, page,
                         0);
        close_one(&page);
        if (p != MAP_FAILED && compat_thread_start(hear, (void *)(intptr_t)line) != 0) {
                (void)munmap(p, sizeof(struct hand_page));
                p = MAP_FAILED;
        }
        if (p == MAP_FAILED) {
                close_one(&line);
                return false;
        }
        (void)madvise(p, sizeof(struct hand_page), MADV_DONTFORK);
        memset(hand.names, 0, hand.top * sizeof(hand.names[0]));
        hand.page = p;
        hand.line = line;
        return true;
}

bool hand_take_next(void)
{
        const int page = hand.next_page, line = hand.next_line;

        hand.next_page = hand.next_line = -1;
        return hand_take(page, line);
}

void hand_leave(void)
{
        if (!hand.page || hand.leaving)
                return;
        hand.leaving = true;
        (void)shutdown(hand.line, SHUT_WR);
}

bool hand_is_leaving(void)
{
        return hand.leaving;
}

bool hand_holds(void)
{
        return hand.page && atomic_load(&hand.page->holds);
}

void hand_left(void)
{
        if (hand.page)
                (void)munmap(hand.page, sizeof(*hand.page));
        close_one(&hand.line);
        hand.page = NULL;
        hand.leaving = false;
}

void hand_forget(void)
{
        hand.page = NULL; /* the child has no copy of it */
        close_one(&hand.line);
        close_one(&hand.next_page);
        close_one(&hand.next_line);
        hand.leaving = false;
}

void hand_ready(bool ready)
{
        if (hand.page && atomic_exchange(&hand.page->ready, ready) != ready)
                ring();
}

/* ---- names ---- */

static uint64_t name_of(const struct channels_object *o)
{
        if (!o->used || !channels_class(o->class) || o->owner != CHANNELS_PROGRAM)
                return 0;
        return (uint64_t)o->client << 32 | o->object;
}

void hand_mirror(const struct channels *t)
{
        bool changed = false;

        if (!hand.page)
                return;
        for (uint32_t i = 0; i < t->top; i++) {
                struct hand_name *n = &hand.page->names[i];
                const uint64_t name = name_of(&t->objects[i]);

                if (hand.names[i] == name && atomic_load(&n->name) == name)
                        continue;
                changed = true;
                if (hand.names[i] != name) { /* otherwise RM has refused to free the channel */
                        atomic_store(&n->name, 0);
                        atomic_store(
                                &n->off,
                                hand_off_with(atomic_load(&n->off) + HAND_OFF_MASK + 1, HAND_RUNS));
                        if (name)
                                atomic_store(&n->device, channels_device(t, &t->objects[i]));
                        hand.names[i] = name;
                }
                atomic_store(&n->name, name);
        }
        hand.top = t->top;
        atomic_store(&hand.page->top, t->top);
        if (changed)
                ring();
}

static void take_out(const struct channels *t, const struct channels_object *o)
{
        struct hand_name *n = &hand.page->names[o - t->objects];

        atomic_store(&n->name, 0);
        for (uint32_t i = o->child; i; i = t->objects[i - 1].sibling)
                take_out(t, &t->objects[i - 1]);
}

/* A hand that was killed stays busy; its thread here waits for our lock before it can tell. */
static bool is_dead(void)
{
        const struct timespec at_once = {0};
        struct pollfd p = {.fd = hand.line};

        return syscall(SYS_ppoll, &p, 1, &at_once, NULL, 0) == 1 && (p.revents & POLLHUP);
}

bool hand_withdraw(const struct channels *t, uint32_t client, uint32_t object)
{
        const struct channels_object *o =
                hand.page ? channels_find((struct channels *)t, client, object) : NULL;

        if (!o)
                return true;
        take_out(t, o);
        for (unsigned i = 0; atomic_load(&hand.page->busy); i++) {
                if (i == BUSY_MOST)
                        return false;
                if (i % 16 == 15 && is_dead())
                        break;
                (void)nap(BUSY_NS);
        }
        return true;
}

static struct hand_name *entry_of(const struct channels *t, uint32_t client, uint32_t object)
{
        const struct channels_object *o = channels_find((struct channels *)t, client, object);

        return hand.page && o ? &hand.page->names[o - t->objects] : NULL;
}

static bool set_off(struct hand_name *n, enum hand_off from, enum hand_off to)
{
        uint32_t off = atomic_load(&n->off);

        return (off & HAND_OFF_MASK) == from &&
               atomic_compare_exchange_strong(&n->off, &off, hand_off_with(off, to));
}

/* The hand sets `holds` and then reads the names; we write the name and then read `holds`. So one
 * of the two disables the channel, and the change of `off` says which one. */
bool hand_takes_new(const struct channels *t, uint32_t client, uint32_t object)
{
        struct hand_name *n = entry_of(t, client, object);

        return n && atomic_load(&hand.page->holds) && set_off(n, HAND_RUNS, HAND_PENDING);
}

bool hand_has_new(const struct channels *t, uint32_t client, uint32_t object, bool done)
{
        struct hand_name *n = entry_of(t, client, object);

        if (!n || !set_off(n, HAND_PENDING, done ? HAND_OFF : HAND_RUNS) || !done)
                return true;
        return atomic_load(&hand.page->holds) || !set_off(n, HAND_OFF, HAND_RUNS);
}

bool hand_gives_back(const struct channels *t, uint32_t client, uint32_t object)
{
        struct hand_name *n = entry_of(t, client, object);

        return n && !atomic_load(&hand.page->holds) && set_off(n, HAND_OFF, HAND_RUNS);
}

/* ---- proofs ---- */

/* Makes a device object of a client. Returns RM's status. */
static uint32_t make_device(const struct channels_object *client, uint32_t device, uint32_t handle,
                            const struct rm_layout *layout)
{
        struct rm_device_params params = {.instance = device};
        union {
                struct rm_alloc_short call;
                uint8_t bytes[sizeof(struct rm_alloc_short)];
        } a = {.call = {{client->object, client->object, handle, RM_CLASS_DEVICE,
                         (uint64_t)(uintptr_t)&params},
                        sizeof(params),
                        0}};
        uint32_t status = UINT32_MAX;

        memcpy(a.bytes + layout->short_status, &status, sizeof(status));
        if (rm_forward(client->fd, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_ALLOC, struct rm_alloc_short),
                       &a) < 0)
                return UINT32_MAX;
        memcpy(&status, a.bytes + layout->short_status, sizeof(status));
        return status;
}

static void free_device(const struct channels_object *client, uint32_t handle)
{
        struct rm_free f = {client->object, client->object, handle, 0};

        (void)rm_forward(client->fd, _IOWR(RM_IOCTL_TYPE, RM_ESCAPE_FREE, struct rm_free), &f);
}

/* Returns RM's number of a GPU that the client uses: the process has opened its device file. */
static uint32_t device_of_client(const struct channels *t, const struct channels_object *client)
{
        for (uint32_t i = client->child; i; i = t->objects[i - 1].sibling)
                if (t->objects[i - 1].class == RM_CLASS_DEVICE)
                        return t->objects[i - 1].device;
        return 0;
}

void hand_prove(struct channels *t, const struct rm_layout *layout)
{
        bool changed = false;

        for (unsigned i = 0; hand.page && i < HAND_CLIENTS; i++) {
                struct hand_proof *p = &hand.page->proofs[i];
                const uint32_t secret = atomic_load(&p->secret), made = atomic_load(&p->made),
                               number = atomic_load(&p->client);
                const struct channels_object *client = channels_find(t, number, number);

                if (!client || !secret)
                        continue;
                if (made == secret && atomic_load(&p->proved)) {
                        free_device(client, secret);
                        atomic_store(&p->made, 0);
                } else if (made != secret && !atomic_load(&p->proved)) {
                        changed |= make_device(client, device_of_client(t, client), secret,
                                               layout) == 0;
                        atomic_store(&p->made, secret);
                }
        }
        if (changed)
                ring();
}
