/* nvml_door.c: open(), ioctl() and close() of the simulated libnvidia-ml.so.1, by which a process
 * without libcuda reaches the resource manager (RM). sim/CMakeLists.txt gives the functions these
 * names. Must never disturb a call that is not for NVIDIA's devices, nor make system calls for a
 * control of channels. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macros.h"
#include "sim/nvml/nvml_session.h"
#include "sim/rm/guard.h"
#include "sim/rm/rm.h"

#define FILES_MAX 64
#define CONTROL   (-1)

/* An open descriptor of a device. A duplicate of it is not known here. */
struct opened {
        bool used;
        bool inherited; /* from before fork(): the parent still has the file open */
        int fd;
        int card; /* or CONTROL */
        uint64_t file;
};

static struct {
        pthread_mutex_t setup; /* taken before the lock */
        pthread_mutex_t lock;
        struct opened list[FILES_MAX];
        uint64_t files; /* number of files that were ever opened */
        bool watches_fork;
} door = {.setup = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER};

EXPORT int nvml_door_open(const char *path, int flags, ...);
EXPORT int nvml_door_ioctl(int fd, unsigned long request, ...);
EXPORT int nvml_door_close(int fd);

static void forked(void)
{
        for (unsigned i = 0; i < FILES_MAX; i++)
                door.list[i].inherited = true;
}

/* Needs the lock. */
static struct opened *opened_find(int fd)
{
        for (unsigned i = 0; i < FILES_MAX; i++)
                if (door.list[i].used && door.list[i].fd == fd)
                        return &door.list[i];
        return NULL;
}

static uint32_t opened_cards(void)
{
        uint32_t mask = 0;

        for (unsigned i = 0; i < FILES_MAX; i++)
                if (door.list[i].used && door.list[i].card != CONTROL)
                        mask |= 1u << door.list[i].card;
        return mask;
}

/* True for "/dev/nvidiactl" and for "/dev/nvidia0" and so on. */
static bool is_device(const char *path, int *ret_card)
{
        static const char start[] = "/dev/nvidia";
        const char *rest = path + strlen(start);

        if (strncmp(path, start, strlen(start)) != 0)
                return false;
        if (strcmp(rest, "ctl") == 0) {
                *ret_card = CONTROL;
                return true;
        }
        *ret_card = rest[0] - '0';
        return rest[0] >= '0' && rest[0] <= '9' && !rest[1];
}

/* Joins the session, with calls of open() and close() that come back to this file. */
static int setup(void)
{
        int r;

        (void)pthread_mutex_lock(&door.setup);
        r = nvml_join(&sim.session);
        if (r == 0)
                r = rm_version_setup();
        if (r == 0)
                r = guard_by_caller();
        if (r == 0 && !door.watches_fork)
                r = -pthread_atfork(NULL, NULL, forked);
        door.watches_fork = door.watches_fork || r == 0;
        (void)pthread_mutex_unlock(&door.setup);
        return r;
}

/* Needs the lock. Returns a descriptor, -errno. */
static int open_device(int card, int flags)
{
        struct opened *o = door.list;
        int r;

        if (card != CONTROL && (unsigned)card >= session_card_count(sim.session))
                return -ENOENT;
        while (o < door.list + FILES_MAX && o->used)
                o++;
        if (o == door.list + FILES_MAX)
                return -EMFILE;
        r = memfd_create("nvidia", flags & O_CLOEXEC ? MFD_CLOEXEC : 0);
        if (r < 0)
                return -errno;
        *o = (struct opened){.used = true, .fd = r, .card = card, .file = ++door.files};
        return r;
}

int nvml_door_open(const char *path, int flags, ...)
{
        mode_t mode;
        va_list list;
        int card, r;

        va_start(list, flags);
        mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(list, mode_t) : 0;
        va_end(list);
        if (!is_device(path, &card))
                return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
        r = setup();
        if (r == 0) {
                (void)pthread_mutex_lock(&door.lock);
                r = open_device(card, flags);
                (void)pthread_mutex_unlock(&door.lock);
        }
        if (r < 0)
                errno = -r;
        return r < 0 ? -1 : r;
}

int nvml_door_ioctl(int fd, unsigned long request, ...)
{
        struct rm_caller from = {0};
        const struct opened *o;
        void *argument;
        int card = CONTROL, saved = errno, r;
        va_list list;

        va_start(list, request);
        argument = va_arg(list, void *);
        va_end(list);
        (void)pthread_mutex_lock(&door.lock);
        o = opened_find(fd);
        if (o) {
                card = o->card;
                from = (struct rm_caller){.file = o->file, .cards = opened_cards()};
        }
        (void)pthread_mutex_unlock(&door.lock);
        if (!o || _IOC_TYPE(request) != RM_TYPE || !argument)
                return (int)syscall(SYS_ioctl, fd, request, argument);
        r = card == CONTROL ? rm_answer(&from, _IOC_NR(request), argument, _IOC_SIZE(request))
                            : -EINVAL;
        errno = r < 0 ? -r : saved;
        return r < 0 ? -1 : 0;
}

int nvml_door_close(int fd)
{
        struct opened was = {0};
        struct opened *o;

        (void)pthread_mutex_lock(&door.lock);
        o = opened_find(fd);
        if (o) {
                was = *o;
                o->used = false;
        }
        (void)pthread_mutex_unlock(&door.lock);
        if (was.used && was.card == CONTROL && !was.inherited)
                rm_close(was.file);
        return (int)syscall(SYS_close, fd);
}
