/* session.c: the shared segment of a simulated machine: its processes, their memory, the bus. Must
 * never trust a slot's process to have cleaned up, nor wait for another process while holding the
 * lock. */
#include "sim/session/session.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macros.h"
#include "base/units.h"
#include "sim/session/segment.h"
#include "sim/session/session_time.h"

#define SESSION_MAGIC   UINT64_C(0x73696d637564610a)
#define DEFAULT_MEMORY  GIB
#define DEFAULT_BUS     UINT64_C(12000000000)
#define CONTEXT_DIVISOR 256
#define MIG_FIRST       64 /* numbers from which the UUIDs of MIG instances are made */

struct settings {
        unsigned devices; /* cards, or MIG instances of all cards */
        unsigned mig;     /* MIG instances of each card; 0: MIG is off */
        uint64_t memory, bus, context;
        bool keep;
        bool given[4]; /* whether the environment names devices, memory, bus, context */
};

int session_name(char ret_name[static SESSION_NAME_MAX])
{
        const char *name = getenv("SIMCUDA_SESSION");

        if (!name || !*name)
                name = "default";
        if (strlen(name) >= SESSION_NAME_MAX)
                return -EINVAL;
        for (const char *c = name + segment_is_public(name); *c; c++)
                if (!isalnum((unsigned char)*c) && !strchr("._-", *c))
                        return -EINVAL;
        strcpy(ret_name, name);
        return 0;
}

static int setting_error(const char *variable, const char *wanted, const char *value)
{
        (void)fprintf(stderr, "simcuda: %s is %s, not '%s'\n", variable, wanted, value);
        return -EINVAL;
}

static int settings_read(struct settings *ret)
{
        struct settings s = {.devices = 1, .memory = DEFAULT_MEMORY, .bus = DEFAULT_BUS};
        const char *gpus = getenv("SIMCUDA_GPUS"), *memory = getenv("SIMCUDA_MEMORY");
        const char *bus = getenv("SIMCUDA_BUS"), *context = getenv("SIMCUDA_CONTEXT");
        const char *mig = getenv("SIMCUDA_MIG"), *keep = getenv("SIMCUDA_KEEP");

        s.keep = keep && strcmp(keep, "1") == 0;
        if (gpus && *gpus) {
                char *end;
                unsigned long n = strtoul(gpus, &end, 10);

                if (*end || n < 1 || n > SESSION_DEVICES)
                        return setting_error("SIMCUDA_GPUS", "a number from 1 to 8", gpus);
                s.devices = (unsigned)n;
                s.given[0] = true;
        }
        if (memory && *memory) {
                if (units_parse_size(memory, &s.memory) < 0 || s.memory < 16 * MIB)
                        return setting_error("SIMCUDA_MEMORY", "a size from 16MiB", memory);
                s.given[1] = true;
        }
        if (bus && *bus) {
                if (units_parse_rate(bus, &s.bus) < 0 || s.bus == 0)
                        return setting_error("SIMCUDA_BUS", "a rate such as 12GB/s", bus);
                s.given[2] = true;
        }
        if (mig && *mig) {
                char *end;
                unsigned long n = strtoul(mig, &end, 10);

                if (*end || n < 1 || n * s.devices > SESSION_DEVICES)
                        return setting_error("SIMCUDA_MIG",
                                             "a number that makes up to 8 instances of all GPUs",
                                             mig);
                s.mig = (unsigned)n;
                s.devices *= s.mig;
                s.memory = s.memory / s.mig / (2 * MIB) * (2 * MIB);
        }
        s.context = s.memory / CONTEXT_DIVISOR;
        if (context && *context) {
                if (units_parse_size(context, &s.context) < 0)
                        return setting_error("SIMCUDA_CONTEXT", "a size", context);
                s.given[3] = true;
        }
        *ret = s;
        return 0;
}

/* Finds when a live process began, and where its stack begins; 0: we may not see the stack. exec()
 * changes only the stack. Returns false if the process is gone or a zombie. A zombie main thread
 * counts as a live process while other threads run. */
bool process_look(pid_t pid, uint64_t *ret_start, uint64_t *ret_stack)
{
        char path[64], text[1024], *field;
        _cleanup_close_ int fd = -EBADF;
        unsigned long long start = 0, stack = 0;
        long threads = 0;
        char state = 0;
        ssize_t n;

        (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        n = read(fd, text, sizeof(text) - 1);
        if (n <= 0)
                return false;
        text[n] = 0;
        field = strrchr(text, ')'); /* the process's name may contain brackets, too */
        if (!field || sscanf(field + 1,
                             " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                             "%ld %*d %llu %*s %*s %*s %*s %*s %llu",
                             &state, &threads, &start, &stack) != 4)
                return false;
        if (state == 'X' || (state == 'Z' && threads <= 1))
                return false;
        *ret_start = start;
        *ret_stack = stack;
        return true;
}

/* True if the slot's process lives and has not called exec(). exec() closes NVIDIA's devices, which
 * frees the process's memory on the cards. */
static bool slot_process_lives(const struct session_slot *slot)
{
        uint64_t start, stack;

        return process_look(slot->pid, &start, &stack) && start == slot->start &&
               (stack == slot->stack || !stack || !slot->stack);
}

void segment_lock(struct session_segment *g)
{
        /* All sums are computed from the slots. So if a process is killed while it holds the lock,
         * the segment is still valid. */
        if (pthread_mutex_lock(&g->lock) == EOWNERDEAD)
                (void)pthread_mutex_consistent(&g->lock);
}

void segment_unlock(struct session_segment *g)
{
        (void)pthread_mutex_unlock(&g->lock);
}

/* Needs segment_lock(). */
static void slot_end(struct session_segment *g, struct session_slot *slot)
{
        frames_slot_ends(g, slot);
        for (unsigned d = 0; d < SESSION_DEVICES; d++) {
                atomic_store(&slot->device[d].used, 0);
                atomic_store(&slot->device[d].managed, 0);
                atomic_store(&slot->device[d].contexts, 0);
        }
        slot->ended = ++g->endings;
        atomic_store_explicit(&slot->state, SLOT_ENDED, memory_order_release);
}

/* Ends the slots of dead processes. Returns the number of live ones. Needs the lock. */
static unsigned segment_reap(struct session_segment *g)
{
        unsigned live = 0;

        for (unsigned i = 0; i < SESSION_SLOTS; i++) {
                struct session_slot *slot = &g->slot[i];

                if (!slot_live(slot))
                        continue;
                if (slot_process_lives(slot))
                        live++;
                else
                        slot_end(g, slot);
        }
        return live;
}

void session_slot_totals(const struct session_slot *slot, unsigned device,
                         struct session_totals *ret_totals)
{
        const struct session_counters *c = &slot->device[device].counters;

#define X(name) ret_totals->name = atomic_load_explicit(&c->name, memory_order_relaxed);
        SESSION_COUNTERS(X)
#undef X
}

static void totals_add(struct session_totals *sum, const struct session_totals *t)
{
#define X(name) sum->name += t->name;
        SESSION_COUNTERS(X)
#undef X
}

/* Returns a free slot. If there is none, returns the slot that ended longest ago, after adding its
 * counts to the counts of the devices. Needs the lock. */
static struct session_slot *segment_take_slot(struct session_segment *g)
{
        struct session_slot *best = NULL;

        for (unsigned i = 0; i < SESSION_SLOTS; i++) {
                struct session_slot *slot = &g->slot[i];

                if (slot_live(slot))
                        continue;
                if (atomic_load(&slot->state) == SLOT_FREE)
                        return slot;
                if (!best || slot->ended < best->ended)
                        best = slot;
        }
        for (unsigned d = 0; best && d < SESSION_DEVICES; d++) {
                struct session_totals t;

                session_slot_totals(best, d, &t);
                totals_add(&g->device[d].forgotten, &t);
        }
        return best;
}

static uint64_t mix(uint64_t x)
{
        x += UINT64_C(0x9e3779b97f4a7c15);
        x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
        return x ^ (x >> 31);
}

static void uuid_make(const char *name, unsigned ordinal, uint8_t ret_uuid[static 16])
{
        uint64_t h = mix(((uint64_t)segment_owner(name) << 8) + ordinal), words[2];

        for (const char *c = name; *c; c++)
                h = mix(h ^ (uint8_t)*c);
        words[0] = mix(h);
        words[1] = mix(words[0] ^ h);
        memcpy(ret_uuid, words, 16);
        ret_uuid[6] = (uint8_t)((ret_uuid[6] & 0x0f) | 0x40);
        ret_uuid[8] = (uint8_t)((ret_uuid[8] & 0x3f) | 0x80);
}

static void segment_configure(struct session_segment *g, const struct settings *s)
{
        g->devices = s->devices;
        g->mig = s->mig;
        for (unsigned d = 0; d < SESSION_DEVICES; d++) {
                struct session_device *dev = &g->device[d];

                dev->total = s->memory;
                dev->context_bytes = s->context;
                dev->bus_bytes_per_s = s->bus;
                atomic_store(&dev->lost, false);
                uuid_make(g->name, d, g->gpu_uuid[d]);
                uuid_make(g->name, s->mig ? MIG_FIRST + d : d, dev->uuid);
        }
}

static void segment_check(const struct session_segment *g, const struct settings *s)
{
        const struct session_device *d = &g->device[0];
        const struct {
                const char *variable;
                bool ignored;
        } all[] = {
                {"SIMCUDA_GPUS", s->given[0] && s->devices != g->devices},
                {"SIMCUDA_MEMORY", s->given[1] && s->memory != d->total},
                {"SIMCUDA_BUS", s->given[2] && s->bus != d->bus_bytes_per_s},
                {"SIMCUDA_CONTEXT", s->given[3] && s->context != d->context_bytes},
        };
        char size[UNITS_TEXT_MAX];

        for (size_t i = 0; i < ARRAY_SIZE(all); i++)
                if (all[i].ignored)
                        (void)fprintf(stderr,
                                      "simcuda: %s=%s is ignored: session '%s' is in use, and "
                                      "keeps %u x %s until its last process and its daemon end\n",
                                      all[i].variable, getenv(all[i].variable), g->name, g->devices,
                                      units_format_size(d->total, size));
}

static int segment_init(struct session_segment *g, const char *name)
{
        pthread_mutexattr_t attr;
        int r;

        /* The frames of a new file are zero already. Writing them would cost every session
         * megabytes. */
        memset(g, 0, offsetof(struct session_segment, device));
        strcpy(g->name, name);
        r = pthread_mutexattr_init(&attr);
        if (r)
                return -r;
        (void)pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
        (void)pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
        r = pthread_mutex_init(&g->lock, &attr);
        (void)pthread_mutexattr_destroy(&attr);
        if (r)
                return -r;
        r = rm_table_init(&g->rm);
        if (r < 0)
                return r;
        g->magic = SESSION_MAGIC;
        return 0;
}

/* Ends the slots that this process had before it called exec(). Needs the lock. */
static void segment_end_own(struct session_segment *g, bool cuda)
{
        for (unsigned i = 0; i < SESSION_SLOTS; i++)
                if (slot_live(&g->slot[i]) && g->slot[i].pid == getpid() &&
                    atomic_load(&g->slot[i].cuda) == cuda)
                        slot_end(g, &g->slot[i]);
}

static void own_name(char ret_name[static 16])
{
        _cleanup_close_ int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, ret_name, 15);

        ret_name[n > 0 ? n - 1 : 0] = 0;
}

/* An observer sees all cards, in NVML's order. */
static void session_all(struct session *s)
{
        s->all = true;
        for (unsigned i = 0; i < SESSION_DEVICES; i++)
                s->card[i] = (uint8_t)i;
}

int session_join(bool cuda, struct session **ret_session)
{
        _cleanup_free_ struct session *s = calloc(1, sizeof(*s));
        char name[SESSION_NAME_MAX];
        _cleanup_close_ int fd = -EBADF;
        struct session_segment *g = NULL;
        struct settings settings;
        struct session_slot *slot;
        unsigned live;
        int r;

        if (!s)
                return -ENOMEM;
        r = session_name(name);
        if (r < 0)
                return setting_error("SIMCUDA_SESSION", "letters, digits, '-', '_' and '.'",
                                     getenv("SIMCUDA_SESSION"));
        r = settings_read(&settings);
        if (r < 0)
                return r;
        r = segment_open(name, true, &fd);
        if (r < 0)
                return r;
        r = segment_map(fd, &g);
        if (r < 0)
                return r;
        if (g->magic != SESSION_MAGIC) {
                r = segment_init(g, name);
                if (r < 0)
                        goto unmap;
        }

        r = segment_use(fd, &s->use);
        if (r < 0)
                goto unmap;
        segment_lock(g);
        live = segment_reap(g);
        if (live == 0)
                segment_configure(g, &settings);
        else
                segment_check(g, &settings);
        g->keep = settings.keep || (live > 0 && g->keep);
        segment_end_own(g, cuda);
        slot = segment_take_slot(g);
        if (!slot) {
                segment_unlock(g);
                segment_unuse(s->use);
                r = -EUSERS;
                goto unmap;
        }
        memset(slot, 0, sizeof(*slot));
        slot->pid = getpid();
        (void)process_look(slot->pid, &slot->start, &slot->stack);
        slot->cuda = cuda;
        slot->uid = geteuid();
        own_name(slot->name);
        atomic_store_explicit(&slot->state, SLOT_LIVE, memory_order_release);
        segment_unlock(g);
        segment_opened(fd);
        if (live == 0)
                segments_remove_left();

        s->segment = g;
        s->own = slot;
        if (!cuda) {
                session_all(s);
        } else {
                r = visible_cards(g, getenv("SIMCUDA_DEV"), getenv("CUDA_VISIBLE_DEVICES"),
                                  s->card);
                if (r < 0) {
                        session_leave(s);
                        goto unmap;
                }
                s->visible = (unsigned)r;
        }
        *ret_session = TAKE_PTR(s);
        return 0;

unmap:
        (void)munmap(g, sizeof(*g));
        return r;
}

struct rm_table *session_rm(struct session *s)
{
        return &s->segment->rm;
}

void session_note_mps(struct session *s)
{
        atomic_store(&s->own->mps, true);
}

int session_attach(const char *name, struct session **ret_session)
{
        _cleanup_free_ struct session *s = calloc(1, sizeof(*s));
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (!s)
                return -ENOMEM;
        r = segment_open(name, false, &fd);
        if (r < 0)
                return r;
        r = segment_map(fd, &s->segment);
        if (r < 0)
                return r;
        if (s->segment->magic != SESSION_MAGIC) {
                (void)munmap(s->segment, sizeof(*s->segment));
                return -ENOENT;
        }
        segment_opened(fd);
        session_all(s);
        *ret_session = TAKE_PTR(s);
        return 0;
}

void session_detach(struct session *s)
{
        (void)munmap(s->segment, sizeof(*s->segment));
        free(s);
}

void session_leave(struct session *s)
{
        /* A forked child has the parent's session, but no slot of its own to end. */
        if (!s->own || s->own->pid != getpid())
                return;
        segment_lock(s->segment);
        slot_end(s->segment, s->own);
        segment_unlock(s->segment);
        segment_leave(s->segment->name, TAKE_PTR(s->use));
}

unsigned session_device_count(const struct session *s)
{
        return s->all ? s->segment->devices : s->visible;
}

unsigned session_card_count(const struct session *s)
{
        return s->segment->devices;
}

unsigned session_card(const struct session *s, unsigned device)
{
        return s->card[device];
}

unsigned session_device_of(const struct session *s, unsigned card)
{
        for (unsigned i = 0; i < session_device_count(s); i++)
                if (s->card[i] == card)
                        return i;
        return 0;
}

unsigned session_mig(const struct session *s)
{
        return s->segment->mig;
}

const uint8_t *session_gpu_uuid(const struct session *s, unsigned gpu)
{
        return s->segment->gpu_uuid[gpu];
}

struct session_device *session_device(struct session *s, unsigned device)
{
        return &s->segment->device[s->card[device]];
}

struct session_use *session_own(struct session *s, unsigned device)
{
        return &s->own->device[s->card[device]];
}

/* Needs segment_lock(). */
static uint64_t segment_used(struct session_segment *g, unsigned device)
{
        uint64_t sum = 0;

        for (unsigned i = 0; i < SESSION_SLOTS; i++)
                if (slot_live(&g->slot[i]))
                        sum += atomic_load(&g->slot[i].device[device].used);
        return sum;
}

int segment_charge(struct session *s, unsigned device, uint64_t bytes)
{
        struct session_segment *g = s->segment;
        unsigned card = s->card[device];
        struct session_device *dev = &g->device[card];
        struct session_use *own = &s->own->device[card];
        uint64_t sum = segment_used(g, card), used;

        if (bytes > sub_sat(dev->total, sum)) {
                (void)segment_reap(g);
                sum = segment_used(g, card);
        }
        if (bytes > sub_sat(dev->total, sum))
                return -ENOMEM;
        used = atomic_fetch_add(&own->used, bytes) + bytes;
        if (used > atomic_load(&own->peak))
                atomic_store(&own->peak, used);
        if (sum + bytes > atomic_load(&dev->peak))
                atomic_store(&dev->peak, sum + bytes);
        return 0;
}

int session_charge(struct session *s, unsigned device, uint64_t bytes)
{
        int r;

        segment_lock(s->segment);
        r = segment_charge(s, device, bytes);
        segment_unlock(s->segment);
        return r;
}

void session_uncharge(struct session *s, unsigned device, uint64_t bytes)
{
        segment_lock(s->segment);
        /* After session_leave() the slot may belong to another process. */
        if (slot_live(s->own) && s->own->pid == getpid())
                atomic_fetch_sub(&s->own->device[s->card[device]].used, bytes);
        segment_unlock(s->segment);
}

uint64_t session_charged(struct session *s, unsigned device)
{
        const struct session_use *use = &s->own->device[s->card[device]];
        uint64_t bytes;

        segment_lock(s->segment);
        bytes = atomic_load(&use->used) - atomic_load(&use->managed);
        segment_unlock(s->segment);
        return bytes;
}

uint64_t session_used(struct session *s, unsigned device)
{
        uint64_t sum;

        segment_lock(s->segment);
        (void)segment_reap(s->segment);
        sum = segment_used(s->segment, s->card[device]);
        segment_unlock(s->segment);
        return sum;
}

void session_bus_slow(struct session *s, enum session_direction direction, uint64_t bytes_per_s,
                      uint64_t ns, pid_t pid)
{
        for (unsigned d = 0; d < session_device_count(s); d++) {
                struct session_slow *slow = &s->segment->device[d].slow[direction];

                atomic_store(&slow->until_ns, 0);
                atomic_store(&slow->pid, pid);
                atomic_store(&slow->bytes_per_s, bytes_per_s);
                atomic_store(&slow->until_ns, session_now_ns() + ns);
        }
}

static uint64_t bus_rate(const struct session_device *dev, enum session_direction direction)
{
        const struct session_slow *slow = &dev->slow[direction];
        uint64_t until = atomic_load_explicit(&slow->until_ns, memory_order_acquire);
        pid_t pid;

        if (likely(!until) || session_now_ns() >= until)
                return dev->bus_bytes_per_s;
        pid = atomic_load(&slow->pid);
        return pid && pid != getpid() ? dev->bus_bytes_per_s
                                      : MIN(dev->bus_bytes_per_s, atomic_load(&slow->bytes_per_s));
}

uint64_t session_bus_claim(struct session *s, unsigned device, enum session_direction direction,
                           uint64_t ready_ns, uint64_t bytes)
{
        struct session_device *dev = session_device(s, device);
        _Atomic uint64_t *busy = &dev->busy_until_ns[direction];
        uint64_t ns = (uint64_t)((double)bytes * 1e9 / (double)bus_rate(dev, direction));
        uint64_t was = atomic_load(busy), end;

        do {
                end = MAX(was, ready_ns) + ns;
        } while (!atomic_compare_exchange_weak(busy, &was, end));
        return end;
}

void session_reap(struct session *s)
{
        segment_lock(s->segment);
        (void)segment_reap(s->segment);
        segment_unlock(s->segment);
}

const struct session_slot *session_slot(const struct session *s, unsigned index)
{
        return &s->segment->slot[index];
}

void session_totals(struct session *s, unsigned device, struct session_totals *ret_totals)
{
        struct session_segment *g = s->segment;

        segment_lock(g);
        *ret_totals = g->device[device].forgotten;
        for (unsigned i = 0; i < SESSION_SLOTS; i++) {
                struct session_totals t;

                if (atomic_load(&g->slot[i].state) == SLOT_FREE)
                        continue;
                session_slot_totals(&g->slot[i], device, &t);
                totals_add(ret_totals, &t);
        }
        segment_unlock(g);
}
