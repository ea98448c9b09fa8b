/* freeze_watch.c: owns the watchdog's thread. Must never call libcuda. */
#include "preload/rm/freeze_watch.h"

#include <sys/prctl.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "preload/process/cpus.h"
#include "preload/process/libc_compat.h"
#include "preload/process/lock.h"
#include "preload/rm/rm.h"

static struct {
        struct lock lock;
        struct bell changed;
        bool started;
        uint64_t since_ns, until_ns; /* until_ns is 0 while no call is watched */
        uint64_t sleeps_until_ns;
        bool lets_go, late;
        uint64_t most_ns;
        const char *call;
} watch;

/* True while the calls of this thread are watched. */
static __thread bool mine __attribute__((tls_model("initial-exec")));

/* Thaws the program, or logs the name of the call. Lock held. */
static void too_late(void)
{
        const char *call = watch.call;

        if (watch.lets_go)
                (void)rm_thaw();
        else
                log_warning(
                        "%s has not returned for %llu s while this program is frozen on the GPU",
                        call ? call : "a driver call",
                        (unsigned long long)((clock_now_ns() - watch.since_ns) / NSEC_PER_SEC));
        if (watch.lets_go)
                log_debug("%s had to wait for the frozen program, which was let go for a moment",
                          call ? call : "a driver call");
        watch.late = watch.lets_go;
        watch.until_ns = 0;
}

static void *watch_main(void *unused)
{
        (void)prctl(PR_SET_NAME, "sublet-watch");
        cpus_settle();
        for (;;) {
                uint32_t heard = bell_listen(&watch.changed);
                uint64_t now = clock_now_ns(), wait_ns = UINT64_MAX;

                lock_acquire(&watch.lock);
                if (watch.until_ns && now >= watch.until_ns)
                        too_late();
                else if (watch.until_ns)
                        wait_ns = watch.until_ns - now;
                watch.sleeps_until_ns = wait_ns == UINT64_MAX ? wait_ns : now + wait_ns;
                lock_release(&watch.lock);
                bell_wait(&watch.changed, heard, wait_ns);
        }
        return NULL;
}

bool freeze_watch_start(void)
{
        if (!watch.started)
                watch.started = compat_thread_start(watch_main, NULL) == 0;
        return watch.started;
}

bool freeze_watch_runs(void)
{
        return watch.started;
}

void freeze_watch_begin(uint64_t most_ns, bool lets_go)
{
        bool wake;

        mine = true;
        lock_acquire(&watch.lock);
        watch.call = NULL;
        watch.most_ns = most_ns;
        watch.since_ns = clock_now_ns();
        watch.until_ns = watch.since_ns + most_ns;
        watch.lets_go = lets_go;
        watch.late = false;
        wake = watch.until_ns < watch.sleeps_until_ns;
        lock_release(&watch.lock);
        if (wake)
                bell_ring(&watch.changed);
}

void freeze_watch_call(const char *call)
{
        if (!mine)
                return;
        lock_acquire(&watch.lock);
        watch.call = call;
        if (watch.until_ns) {
                watch.since_ns = clock_now_ns();
                watch.until_ns = watch.since_ns + watch.most_ns;
        }
        lock_release(&watch.lock);
}

bool freeze_watch_end(void)
{
        bool late;

        mine = false;
        lock_acquire(&watch.lock);
        watch.until_ns = 0;
        late = watch.late;
        lock_release(&watch.lock);
        return late;
}

void freeze_watch_forget(void)
{
        watch.lock = (struct lock){0};
        watch.started = false;
}
