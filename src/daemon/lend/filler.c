/* filler.c: owns the process that fills and empties host pools. Must never wait for that process,
 * and never have more than one.
 * Why: docs/decisions.md, "The host pool is a memfd for each process, and only the daemon fills
 * it". */
#include "daemon/lend/filler.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/descriptors.h"
#include "base/host.h"
#include "base/log.h"
#include "daemon/people/child_process.h"

#define CHILD_NAME "subletd-fill"

struct filler {
        sd_event *event;
        filler_told told;
        void *userdata;
        struct child_process process;
        bool busy;
};

struct order {
        uint64_t offset, bytes;
        uint32_t what, reserved;
};

struct result {
        uint64_t next;
        int32_t error;
        uint32_t reserved;
};

/* ---- the process ---- */

/* Returns the next offset with data. To lseek(), a page is data only after a client has touched
 * it. */
static uint64_t find_memory(int fd, uint64_t from)
{
        const off_t at = lseek(fd, (off_t)from, SEEK_DATA);

        return at < 0 ? UINT64_MAX : (uint64_t)at;
}

/* Looks for room first, because the kernel would end a process of this cgroup before fallocate()
 * failed. */
static int fill(int fd, const struct order *o)
{
        struct host_memory m;

        if (host_memory_read(&m) == 0 && host_memory_room(&m) < o->bytes)
                return -ENOMEM;
        return fallocate(fd, 0, (off_t)o->offset, (off_t)o->bytes) < 0 ? -errno : 0;
}

static struct result carry_out(int fd, const struct order *o)
{
        struct result r = {.next = UINT64_MAX};

        if (o->what == FILLER_FILL) {
                r.error = fill(fd, o);
        } else if (o->what == FILLER_PUNCH) {
                if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)o->offset,
                              (off_t)o->bytes) < 0)
                        r.error = -errno;
                r.next = find_memory(fd, o->offset + o->bytes);
        }
        return r;
}

static bool receive_order(struct order *ret, int *ret_fd)
{
        union descriptors room;
        struct iovec data = {ret, sizeof(*ret)};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        ssize_t n;

        descriptors_expect(&h, &room);
        n = recvmsg(CHILD_FD, &h, MSG_CMSG_CLOEXEC);
        return n == (ssize_t)sizeof(*ret) && descriptors_take(&h, 1, ret_fd) == 1;
}

/* Makes this process the first that the kernel ends if the daemon's cgroup has no memory left. */
static void offer_to_die(void)
{
        _cleanup_fclose_ FILE *f = fopen("/proc/self/oom_score_adj", "we");

        if (f)
                (void)fputs("1000", f);
}

static void serve(int fd, pid_t parent, void *userdata)
{
        struct order o;
        int pool;

        (void)prctl(PR_SET_NAME, CHILD_NAME);
        child_process_begin(fd, parent);
        offer_to_die();
        while (receive_order(&o, &pool)) {
                struct result r = carry_out(pool, &o);

                (void)close(pool);
                if (send(CHILD_FD, &r, sizeof(r), MSG_NOSIGNAL) != (ssize_t)sizeof(r))
                        break;
        }
        _exit(EXIT_SUCCESS);
}

/* ---- the life of that process ---- */

static int on_result(sd_event_source *src, int fd, uint32_t events, void *userdata)
{
        struct filler *f = userdata;
        struct result r;
        const ssize_t n = recv(fd, &r, sizeof(r), MSG_DONTWAIT);
        const bool was_busy = f->busy;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return 0;
        f->busy = false;
        if (n != (ssize_t)sizeof(r)) {
                log_warning("the process that fills the host pool has died: the daemon may have "
                            "too little memory for host_pool");
                child_process_drop(&f->process);
                r = (struct result){.next = UINT64_MAX, .error = -ENOMEM};
        }
        if (was_busy)
                f->told(f->userdata, r.error, r.next);
        return 0;
}

/* ---- for the daemon ---- */

bool filler_is_busy(const struct filler *f)
{
        return f->busy;
}

int filler_order(struct filler *f, enum filler_order order, int fd, uint64_t offset, uint64_t bytes)
{
        struct order o = {.what = order, .offset = offset, .bytes = bytes};
        union descriptors room;
        struct iovec data = {&o, sizeof(o)};
        struct msghdr h = {.msg_iov = &data, .msg_iovlen = 1};
        int r = 0;

        if (f->busy)
                return -EBUSY;
        if (f->process.fd < 0)
                r = child_process_start(&f->process, f->event, SOCK_SEQPACKET, on_result, serve, f);
        if (r < 0)
                return r;
        descriptors_attach(&h, &room, &fd, 1);
        if (sendmsg(f->process.fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(o)) {
                r = -errno;
                child_process_drop(&f->process);
                return r;
        }
        f->busy = true;
        return 0;
}

int filler_new(sd_event *event, filler_told told, void *userdata, struct filler **ret)
{
        struct filler *f = calloc(1, sizeof(*f));

        if (!f)
                return -ENOMEM;
        *f = (struct filler){.event = event, .told = told, .userdata = userdata};
        child_process_init(&f->process);
        *ret = f;
        return 0;
}

void filler_free(struct filler *f)
{
        if (!f)
                return;
        child_process_free(&f->process);
        free(f);
}
