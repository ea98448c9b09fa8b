/* slurm_jobs.c: owns the files of jobs in the daemon's directory conf.d. Must never remove the file
 * of a job that has a step here, and never leave a file that the daemon refuses.
 * Why: docs/decisions.md, "Each step of a Slurm job holds a lock, and a job without locks has
 * ended". */
#include "slurm/slurm_jobs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask/ask.h"
#include "ask/conf_folder.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/daemon_paths.h"
#include "base/text.h"

#define NAME_LENGTH   40
#define PATIENCE_NS   (60 * NSEC_PER_SEC) /* systemd restarts a daemon that hangs within 30 s */
#define LOOK_EVERY_US 10000

/* The files of a job. The daemon reads no name that begins with a dot. */
enum job_file { FILE_CLASS, FILE_LOCK, FILE_NEW };
static const struct {
        const char *before, *after;
} job_files[] = {
        [FILE_CLASS] = {"60-slurm-", ".conf"},
        [FILE_LOCK] = {".60-slurm-", ".lock"},
        [FILE_NEW] = {".60-slurm-", ".new"},
};

/* ---- the text ---- */

/* Only Slurm moves slurmstepd between cgroups, so each of its cgroups is trusted. */
bool jobs_sluid(const char *cgroups, char ret[static TENANT_ID_MAX + 1])
{
        struct tenant t;

        tenant_of_cgroups(cgroups, cgroups, &t);
        return t.kind == TENANT_JOB && tenant_read_sluid(t.id, strlen(t.id), ret);
}

size_t jobs_text(const struct job *job, bool with_minimum, char ret[static JOBS_TEXT_MAX])
{
        const struct granted *g = &job->granted;
        char account[64], sluid[60] = "", minimum[40] = "", cap[40] = "";

        if (job->sluid)
                (void)snprintf(sluid, sizeof(sluid), "slurm_sluid = %s\n", job->sluid);

        if (with_minimum && g->minimum)
                (void)snprintf(minimum, sizeof(minimum), "minimum = %u.%u%%\n", g->minimum / 10,
                               g->minimum % 10);
        if (g->cap)
                (void)snprintf(cap, sizeof(cap), "memory_cap = %lluB\n",
                               (unsigned long long)g->cap);
        return (size_t)snprintf(
                ret, JOBS_TEXT_MAX,
                "# Slurm job %u of uid %u, account %s. The file goes when the job ends.\n"
                "[class slurm-%u]\nslurm_job = %u\n%s%smaximum = %u.%u%%\nweight = %u.%03u\n"
                "%spriority = %d\npriority_max = %d\n",
                job->id, job->uid,
                text_copy(account, sizeof(account),
                          job->account && job->account[0] ? job->account : "unknown"),
                job->id, job->id, sluid, minimum, g->maximum / 10, g->maximum % 10,
                g->weight / 1000, g->weight % 1000, cap, g->priority, g->priority_most);
}

/* ---- the daemon ---- */

int jobs_reload_daemon(const char *dir, char reason[static JOBS_SENTENCE_MAX])
{
        json_t *answer = NULL;
        const char *error;
        int r = ask_daemon(dir, PATHS_NAMED, json_pack("{ss}", "order", "reload"), &answer);

        if (r < 0)
                return r;
        error = json_string_value(json_object_get(answer, "error"));
        if (error)
                (void)text_copy(reason, JOBS_SENTENCE_MAX, error);
        json_decref(answer);
        return error ? -EPERM : 0;
}

/* ---- the directory ---- */

static const char *name_of(enum job_file file, uint32_t id, char ret[static NAME_LENGTH])
{
        (void)snprintf(ret, NAME_LENGTH, "%s%u%s", job_files[file].before, id,
                       job_files[file].after);
        return ret;
}

/* Opens conf.d and locks it. Others could put files there if root did not own it alone. */
static int lock_folder(const char *dir, int *ret)
{
        const uint64_t end = clock_now_ns() + PATIENCE_NS;
        char path[PATHS_DIR_MAX + sizeof("/" PATHS_CONFIG)];
        _cleanup_close_ int fd = -EBADF;
        struct stat st;
        int r = paths_join(dir, PATHS_CONFIG, path, sizeof(path));

        if (r < 0)
                return r;
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return -errno;
        if ((st.st_uid != 0 && st.st_uid != geteuid()) || st.st_mode & (S_IWGRP | S_IWOTH))
                return -EPERM;
        while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                if (errno != EWOULDBLOCK)
                        return -errno;
                if (clock_now_ns() > end)
                        return -ETIMEDOUT;
                (void)usleep(LOOK_EVERY_US);
        }
        *ret = TAKE_FD(fd);
        return 0;
}

/* True if a step of the job runs here. Call with the folder locked: then no step begins. */
static bool is_held(int folder, uint32_t id)
{
        char name[NAME_LENGTH];
        _cleanup_close_ int fd =
                openat(folder, name_of(FILE_LOCK, id, name), O_RDWR | O_CLOEXEC | O_NOFOLLOW);

        return fd >= 0 ? flock(fd, LOCK_EX | LOCK_NB) < 0 : errno != ENOENT;
}

/* Removes all files of the job. True if the daemon may have read one of them. */
static bool remove_files(int folder, uint32_t id)
{
        char name[NAME_LENGTH];
        const bool known = unlinkat(folder, name_of(FILE_CLASS, id, name), 0) == 0;

        (void)unlinkat(folder, name_of(FILE_NEW, id, name), 0);
        (void)unlinkat(folder, name_of(FILE_LOCK, id, name), 0);
        return known;
}

/* Reads the job's number from the name of one of its files. */
static bool is_ours(const char *name, uint32_t *ret_id)
{
        for (unsigned i = 0; i < ARRAY_SIZE(job_files); i++) {
                const size_t n = strlen(job_files[i].before);
                char again[NAME_LENGTH];
                unsigned long id = strncmp(name, job_files[i].before, n) == 0
                                           ? strtoul(name + n, NULL, 10)
                                           : 0;

                if (id == 0 || id > UINT32_MAX ||
                    strcmp(name_of((enum job_file)i, (uint32_t)id, again), name) != 0)
                        continue;
                *ret_id = (uint32_t)id;
                return true;
        }
        return false;
}

/* Removes the files of jobs that have ended. True if the daemon may have read one of them. */
static bool sweep(int folder, uint32_t but)
{
        int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *listing = again >= 0 ? fdopendir(again) : NULL;
        const struct dirent *e;
        bool known = false;
        uint32_t id;

        if (!listing) {
                if (again >= 0)
                        (void)close(again);
                return false;
        }
        while ((e = readdir(listing)))
                if (is_ours(e->d_name, &id) && id != but && !is_held(folder, id))
                        known |= remove_files(folder, id);
        (void)closedir(listing);
        return known;
}

static bool has_text(int folder, uint32_t id, const char *text, size_t n)
{
        char name[NAME_LENGTH], now[JOBS_TEXT_MAX + 1];
        _cleanup_close_ int fd =
                openat(folder, name_of(FILE_CLASS, id, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        return fd >= 0 && read(fd, now, sizeof(now)) == (ssize_t)n && memcmp(now, text, n) == 0;
}

static int write_text(int folder, uint32_t id, const char *text, size_t n)
{
        char name[NAME_LENGTH], fresh[NAME_LENGTH];

        return folder_put(folder, name_of(FILE_NEW, id, fresh), name_of(FILE_CLASS, id, name), text,
                          n);
}

/* Takes the step's share of the job's lock. */
static int hold(int folder, uint32_t id, int *ret)
{
        char name[NAME_LENGTH];
        _cleanup_close_ int fd = openat(folder, name_of(FILE_LOCK, id, name),
                                        O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

        if (fd < 0 || flock(fd, LOCK_SH | LOCK_NB) < 0)
                return -errno;
        *ret = TAKE_FD(fd);
        return 0;
}

/* ---- steps ---- */

/* Writes the file and tells the daemon. The daemon reads its files when it starts, so a missing
 * daemon is no fault. -EPERM: it refuses; -ETIMEDOUT: it gives no answer that can be read. */
static int put(const char *dir, int folder, uint32_t id, const char *text, size_t n,
               jobs_reload *reload, char reason[static JOBS_SENTENCE_MAX])
{
        int r = write_text(folder, id, text, n);

        if (r < 0)
                return r;
        r = reload(dir, reason);
        if (r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -EPIPE)
                return 0;
        return r < 0 && r != -EPERM ? -ETIMEDOUT : r;
}

/* Gives the job its class. If the daemon refuses it, tries without the minimum, and then gives
 * none: this job came last, and the classes of the others must stay. */
static int settle(const char *dir, int folder, const struct job *job, bool changed,
                  jobs_reload *reload, char sentence[static JOBS_SENTENCE_MAX])
{
        char text[JOBS_TEXT_MAX], reason[JOBS_SENTENCE_MAX] = "", name[NAME_LENGTH];
        size_t n = jobs_text(job, true, text);
        int r;

        if (has_text(folder, job->id, text, n)) {
                if (changed)
                        (void)reload(dir, reason);
                return 0;
        }
        r = put(dir, folder, job->id, text, n, reload, reason);
        if (r == -EPERM && job->granted.minimum) {
                n = jobs_text(job, false, text);
                r = put(dir, folder, job->id, text, n, reload, reason);
                if (r == 0)
                        (void)snprintf(sentence, JOBS_SENTENCE_MAX,
                                       "job %u gets no minimum of the GPU's time on this node, "
                                       "because other classes have it",
                                       job->id);
        }
        if (r == -EPERM) {
                (void)unlinkat(folder, name_of(FILE_CLASS, job->id, name), 0);
                (void)snprintf(sentence, JOBS_SENTENCE_MAX,
                               "job %u gets no limits and no share of its own on this node, "
                               "because the daemon refuses them: %.300s",
                               job->id, reason);
                (void)reload(dir, reason);
        } else if (r == -ETIMEDOUT) {
                (void)snprintf(sentence, JOBS_SENTENCE_MAX,
                               "the daemon of this node does not answer; job %u gets its share "
                               "when the daemon reads its files",
                               job->id);
        }
        return r == -EPERM || r == -ETIMEDOUT ? 0 : r;
}

int jobs_enter(const char *dir, const struct job *job, jobs_reload *reload, int *ret_lock,
               char sentence[static JOBS_SENTENCE_MAX])
{
        _cleanup_close_ int folder = -EBADF;
        _cleanup_close_ int lock = -EBADF;
        int r = lock_folder(dir, &folder);

        sentence[0] = '\0';
        if (r == 0)
                r = hold(folder, job->id, &lock);
        if (r == 0)
                r = settle(dir, folder, job, sweep(folder, job->id), reload, sentence);
        if (r == -ENOENT)
                (void)snprintf(sentence, JOBS_SENTENCE_MAX,
                               "no sublet daemon runs on this node: no %s/%s", dir, PATHS_CONFIG);
        else if (r < 0)
                (void)snprintf(sentence, JOBS_SENTENCE_MAX,
                               "the job's limits cannot be written into %s/%s: %s", dir,
                               PATHS_CONFIG, strerror(-r));
        if (r < 0)
                return r;
        *ret_lock = TAKE_FD(lock);
        return 0;
}

void jobs_leave(const char *dir, uint32_t id, jobs_reload *reload, int lock)
{
        char reason[JOBS_SENTENCE_MAX];
        _cleanup_close_ int folder = -EBADF;
        _cleanup_close_ int held = lock;

        if (lock_folder(dir, &folder) < 0 || flock(held, LOCK_EX | LOCK_NB) < 0)
                return;
        if (remove_files(folder, id))
                (void)reload(dir, reason);
}

void jobs_sweep(const char *dir, jobs_reload *reload)
{
        char reason[JOBS_SENTENCE_MAX];
        _cleanup_close_ int folder = -EBADF;

        if (lock_folder(dir, &folder) == 0 && sweep(folder, 0))
                (void)reload(dir, reason);
}
