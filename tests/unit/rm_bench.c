/* rm_bench.c: fakes of RM and libcuda, for the tests of the channel ledger and its door. */
#include "unit.h"

#include "rm_bench.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/ioctl.h>

#include "base/macros.h"
#include "preload/driver/real.h"

#define REQUEST(number, size) _IOC(_IOC_READ | _IOC_WRITE, 'F', number, size)
#define OBJECTS               8192u
#define ASKS                  0xa5c00001u /* client that libcuda makes to ask for the version */

const struct rm_family families[] = {
        {"515.43.04", 32, 24, 40, 32},  {"520.61.07", 32, 24, 40, 32},
        {"525.147.05", 32, 24, 40, 36}, {"530.41.03", 32, 24, 40, 36},
        {"535.43.02", 32, 28, 48, 40},  {"545.29.06", 32, 28, 48, 40},
        {"550.163.01", 32, 28, 48, 40}, {"555.58.02", 32, 28, 48, 40},
        {"560.35.03", 32, 28, 48, 40},  {"565.77", 32, 28, 48, 40},
        {"570.211.01", 32, 28, 48, 40}, {"575.64.05", 32, 28, 48, 40},
        {"580.159.04", 32, 28, 48, 40}, {"590.48.01", 32, 28, 48, 40},
        {"595.45.04", 32, 28, 48, 40},  {"610.57.04", 32, 28, 48, 40},
        {"615.62.00", 32, 28, 48, 40},  {"620.6.0", 32, 28, 48, 40},
};
const unsigned family_count = ARRAY_SIZE(families);
const struct rm_family *family;
static const char *version = "";
enum rm_form form;
struct rm_bench rm_bench;
_Atomic(real_ioctl_fn *) real_ioctl;

static struct object {
        uint32_t client, object, parent, class;
        unsigned count; /* disablings that nothing has undone */
        bool stands, told;
        uint64_t slice_us; /* of a group */
} objects[OBJECTS];
static unsigned object_count;
static uint32_t clients[128];
static unsigned client_count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* ---- RM's objects; called with the mutex held ---- */

static struct object *find(uint32_t client, uint32_t object)
{
        for (unsigned i = 0; i < object_count; i++)
                if (objects[i].client == client && objects[i].object == object)
                        return &objects[i];
        return NULL;
}

/* Ends an object and all its children. */
static void end(uint32_t client, uint32_t object)
{
        struct object *o = find(client, object);

        if (!o)
                return;
        *o = objects[--object_count];
        for (unsigned i = 0; i < object_count;)
                if (objects[i].client == client && objects[i].parent == object &&
                    objects[i].object != object) {
                        end(client, objects[i].object);
                        i = 0;
                } else {
                        i++;
                }
}

static bool is_channel(const struct object *o)
{
        return o->class == CHANNEL;
}

/* ---- RM's calls ---- */

static uint32_t word(const void *p, unsigned offset)
{
        uint32_t w;

        memcpy(&w, (const char *)p + offset, sizeof(w));
        return w;
}

static void put_word(void *p, unsigned offset, uint32_t w)
{
        memcpy((char *)p + offset, &w, sizeof(w));
}

static void *pointer(const void *p, unsigned offset)
{
        void *v;

        memcpy(&v, (const char *)p + offset, sizeof(v));
        return v;
}

static void answer_alloc(void *p, unsigned size)
{
        uint32_t class = word(p, 12), client = class == 0x41 ? word(p, 8) : word(p, 0);
        uint32_t status = rm_bench.status;

        assert_true(size == family->short_size || size == family->long_size);
        rm_bench.status = 0;
        (void)pthread_mutex_lock(&mutex);
        if (class != 0x41 && !find(client, word(p, 4)) && !status)
                status = 0x57;
        if (find(client, word(p, 8)) && !status)
                status = 0x19; /* the handle is in use */
        if (!status) {
                assert_true(object_count < OBJECTS);
                objects[object_count++] = (struct object){.client = client,
                                                          .object = word(p, 8),
                                                          .parent = word(p, 4),
                                                          .class = class,
                                                          .slice_us = RM_OWN_SLICE_US};
        }
        (void)pthread_mutex_unlock(&mutex);
        put_word(p, size == family->long_size ? family->long_status : family->short_status, status);
}

static void answer_free(void *p, unsigned size)
{
        assert_int_equal(size, 16);
        (void)pthread_mutex_lock(&mutex);
        put_word(p, 12, find(word(p, 0), word(p, 8)) ? rm_bench.free_status : 0x57);
        if (!rm_bench.free_status)
                end(word(p, 0), word(p, 8));
        (void)pthread_mutex_unlock(&mutex);
}

static struct object *channel_of(uint32_t client, uint32_t channel)
{
        struct object *o = find(client, channel);

        return o && is_channel(o) ? o : NULL;
}

/* Disables or enables the channels in order, until one does not exist. As on an H200 (580.159.04),
 * RM counts, and a control that fails counts for the channels before the missing one, but stops
 * none of them. */
static uint32_t switch_channels(const uint32_t *of, const uint32_t *channels, uint32_t count,
                                bool disable)
{
        uint32_t n = 0;

        if (count == 0)
                return 0x3a;
        while (n < count && channel_of(of[n], channels[n]))
                n++;
        for (uint32_t i = 0; i < n; i++) {
                struct object *o = channel_of(of[i], channels[i]);

                if (disable)
                        o->count++;
                else if (o->count > 0)
                        o->count--;
                else
                        rm_bench.too_many++;
                o->stands = o->count > 0 && (o->stands || (disable && n == count));
        }
        return n == count ? 0 : 0x21;
}

static uint32_t disable_channels(const struct rm_call *c, const char *params)
{
        uint32_t refuses = c->disable ? rm_bench.refuses : rm_bench.unrefuses, status, of[64];
        const struct object *subdevice;

        if (refuses) {
                if (rm_bench.refusals && --rm_bench.refusals == 0)
                        rm_bench.refuses = rm_bench.unrefuses = 0;
                return refuses;
        }
        memcpy(of, params + 24, c->count * sizeof(uint32_t));
        (void)pthread_mutex_lock(&mutex);
        subdevice = find(c->client, c->subdevice);
        if (!find(c->client, c->client))
                status = 0x23;
        else if (!subdevice || subdevice->class != 0x2080)
                status = 0x57;
        else
                status = switch_channels(of, c->channels, c->count, c->disable);
        (void)pthread_mutex_unlock(&mutex);
        return status;
}

static void answer_slice(void *p, bool set)
{
        struct object *o;
        uint64_t *at = pointer(p, 16);

        assert_int_equal(word(p, 24), sizeof(*at));
        (void)pthread_mutex_lock(&mutex);
        o = find(word(p, 0), word(p, 4));
        put_word(p, 28, o && o->class == 0xa06c ? 0 : 0x57);
        if (o && set)
                o->slice_us = *at;
        else if (o)
                *at = o->slice_us;
        (void)pthread_mutex_unlock(&mutex);
}

static void answer_control(int fd, void *p, unsigned size)
{
        const char *params = pointer(p, 16);
        struct rm_call c = {.fd = fd, .client = word(p, 0), .subdevice = word(p, 4)};

        assert_int_equal(size, 32);
        if (word(p, 8) == 0xa06c0103 || word(p, 8) == 0xa06c0104) {
                answer_slice(p, word(p, 8) == 0xa06c0103);
                return;
        }
        if (word(p, 8) != 0x2080110b) {
                put_word(p, 28, 0);
                return;
        }
        assert_int_equal(word(p, 24), 536);
        assert_int_equal(word(p, 12), 0); /* the call's flags */
        c.disable = params[0];
        c.count = word(params, 4);
        assert_true(c.count > 0 && c.count <= RM_DISABLE_CHANNELS_MAX);
        /* Neither "disable scheduling only" nor "throw away work" is set. */
        assert_int_equal(params[8] | params[9], 0);
        assert_null(pointer(params, 16));
        memcpy(c.channels, params + 280, c.count * sizeof(uint32_t));
        if (rm_bench.before)
                rm_bench.before(&c);
        c.status = disable_channels(&c, params);
        put_word(p, 28, c.status);
        (void)pthread_mutex_lock(&mutex);
        if (rm_bench.count < CALLS_MOST)
                rm_bench.calls[rm_bench.count] = c;
        rm_bench.count++;
        (void)pthread_mutex_unlock(&mutex);
}

static int answer(int fd, unsigned number, void *p, unsigned size)
{
        switch (number) {
        case 0x29:
                answer_free(p, size);
                return 0;
        case 0x2a:
                if (rm_bench.error && word(p, 8) == 0x2080110b) {
                        rm_bench.count++;
                        errno = rm_bench.error;
                        return -1;
                }
                answer_control(fd, p, size);
                return 0;
        case 0x2b:
                answer_alloc(p, size);
                return 0;
        case 210:
                assert_int_equal(size, 72);
                assert_int_equal(word(p, 0), '2');
                (void)snprintf((char *)p + 8, 64, "%s", version);
                return 0;
        case 211:
                assert_int_equal(size, 16);
                return answer(fd, word(p, 0), pointer(p, 8), word(p, 4));
        default:
                rm_bench.others++;
                return 0;
        }
}

int rm_of_the_bench(int fd, unsigned long request, ...)
{
        va_list list;
        void *p;

        va_start(list, request);
        p = va_arg(list, void *);
        va_end(list);
        if (fd == rm_bench.closed) {
                errno = EBADF;
                return -1;
        }
        return answer(fd, _IOC_NR(request), p, _IOC_SIZE(request));
}

/* ---- libcuda ---- */

static int call(int fd, unsigned number, void *p, unsigned size)
{
        char wrapped[16] = {0};

        if (form != RM_SHORT_WRAPPED && form != RM_LONG_WRAPPED)
                return ioctl(fd, REQUEST(number, size), p);
        put_word(wrapped, 0, number);
        put_word(wrapped, 4, size);
        memcpy(wrapped + 8, &p, sizeof(p));
        return ioctl(fd, REQUEST(211, sizeof(wrapped)), wrapped);
}

int say_version(const char *text)
{
        version = text;
        return made(5, 0, 0, ASKS, 0x41, 0) || freed(5, ASKS, ASKS);
}

int made(int fd, uint32_t client, uint32_t parent, uint32_t object, uint32_t class, uint32_t engine)
{
        bool is_long = form == RM_LONG || form == RM_LONG_WRAPPED;
        uint32_t params[14] = {[3] = class == 0x80 ? 0 : engine};
        const void *at = params;
        struct object *o;
        char p[48] = {0};

        if (class == 0x80)
                params[0] = engine; /* the number of the GPU */

        put_word(p, 0, client);
        put_word(p, 4, parent);
        put_word(p, 8, object);
        put_word(p, 12, class);
        memcpy(p + 16, &at, sizeof(at));
        put_word(p, is_long ? family->long_status : family->short_status, 0xffff);
        if (call(fd, 0x2b, p, is_long ? family->long_size : family->short_size) < 0)
                return -errno;
        (void)pthread_mutex_lock(&mutex);
        o = find(class == 0x41 ? object : client, object);
        if (o)
                o->told = true;
        (void)pthread_mutex_unlock(&mutex);
        return (int)word(p, is_long ? family->long_status : family->short_status);
}

void made_client(int fd, uint32_t client)
{
        (void)pthread_mutex_lock(&mutex);
        assert_true(client_count < ARRAY_SIZE(clients));
        clients[client_count++] = client;
        (void)pthread_mutex_unlock(&mutex);
        assert_int_equal(made(fd, 0, 0, client, 0x41, 0), 0);
        assert_int_equal(made(fd, client, client, DEVICE, 0x80, 0), 0);
        assert_int_equal(made(fd, client, DEVICE, SUBDEVICE, 0x2080, 0), 0);
}

void made_group(int fd, uint32_t client, uint32_t group, uint32_t engine, uint32_t channels)
{
        assert_int_equal(made(fd, client, DEVICE, group, 0xa06c, engine), 0);
        for (uint32_t i = 0; i < channels; i++)
                assert_int_equal(made(fd, client, group, group + 1 + i, CHANNEL, 0), 0);
}

uint64_t rm_slice_of(uint32_t client, uint32_t group)
{
        const struct object *o;
        uint64_t r;

        (void)pthread_mutex_lock(&mutex);
        o = find(client, group);
        r = o ? o->slice_us : 0;
        (void)pthread_mutex_unlock(&mutex);
        return r;
}

/* libcuda knows of an object and all its children, or no longer. Mutex held. */
static void tell(uint32_t client, uint32_t object, bool told)
{
        struct object *o = find(client, object);

        if (o)
                o->told = told;
        for (unsigned i = 0; i < object_count; i++)
                if (objects[i].client == client && objects[i].parent == object &&
                    objects[i].object != object)
                        tell(client, objects[i].object, told);
}

int freed(int fd, uint32_t client, uint32_t object)
{
        char p[16] = {0};
        int r;

        (void)pthread_mutex_lock(&mutex);
        tell(client, object, false);
        (void)pthread_mutex_unlock(&mutex);

        put_word(p, 0, client);
        put_word(p, 8, object);
        r = call(fd, 0x29, p, sizeof(p)) < 0 ? -errno : (int)word(p, 12);
        if (r == 0)
                return 0;
        (void)pthread_mutex_lock(&mutex);
        tell(client, object, true);
        (void)pthread_mutex_unlock(&mutex);
        return r;
}

int libcuda_controls(int fd, uint32_t client, uint32_t channel, bool disable)
{
        char p[32] = {0}, params[536] = {0};
        const void *at = params;

        params[0] = disable;
        put_word(params, 4, 1);
        put_word(params, 24, client);
        put_word(params, 280, channel);
        put_word(p, 0, client);
        put_word(p, 4, SUBDEVICE);
        put_word(p, 8, 0x2080110b);
        memcpy(p + 16, &at, sizeof(at));
        put_word(p, 24, sizeof(params));
        put_word(p, 28, 0xffff);
        if (call(fd, 0x2a, p, sizeof(p)) < 0)
                return -errno;
        return (int)word(p, 28);
}

/* ---- queries of RM's objects ---- */

bool rm_has(uint32_t client, uint32_t object)
{
        bool r;

        (void)pthread_mutex_lock(&mutex);
        r = find(client, object) != NULL;
        (void)pthread_mutex_unlock(&mutex);
        return r;
}

bool rm_stands(uint32_t client, uint32_t channel)
{
        const struct object *o;
        bool r;

        (void)pthread_mutex_lock(&mutex);
        o = find(client, channel);
        r = o && o->stands;
        (void)pthread_mutex_unlock(&mutex);
        return r;
}

static unsigned count(bool (*matters)(const struct object *o))
{
        unsigned n = 0;

        (void)pthread_mutex_lock(&mutex);
        for (unsigned i = 0; i < object_count; i++)
                n += is_channel(&objects[i]) && (!matters || matters(&objects[i]));
        (void)pthread_mutex_unlock(&mutex);
        return n;
}

static bool stands(const struct object *o)
{
        return o->stands;
}

static bool runs_and_was_told(const struct object *o)
{
        return o->told && !stands(o);
}

unsigned rm_count(uint32_t client, uint32_t channel)
{
        const struct object *o;
        unsigned r;

        (void)pthread_mutex_lock(&mutex);
        o = channel_of(client, channel);
        r = o ? o->count : UINT_MAX;
        (void)pthread_mutex_unlock(&mutex);
        return r;
}

static bool is_counted(const struct object *o)
{
        return o->count > 0;
}

unsigned rm_counted(void)
{
        return count(is_counted);
}

uint32_t rm_of_the_hand(uint32_t n, const uint32_t *of, const uint32_t *channels, bool disable)
{
        uint32_t status;

        (void)pthread_mutex_lock(&mutex);
        status = switch_channels(of, channels, n, disable);
        (void)pthread_mutex_unlock(&mutex);
        return status;
}

unsigned rm_standing(void)
{
        return count(stands);
}

unsigned rm_known(void)
{
        return count(NULL);
}

unsigned rm_running_told(void)
{
        return count(runs_and_was_told);
}

void rm_loses(uint32_t client, uint32_t object)
{
        (void)pthread_mutex_lock(&mutex);
        end(client, object);
        (void)pthread_mutex_unlock(&mutex);
}

/* ---- setup and teardown ---- */

int begin_rm(void **state)
{
        rm_bench = (struct rm_bench){.closed = -1};
        object_count = 0;
        form = RM_LONG;
        family = &families[12];
        atomic_store(&real_ioctl, rm_of_the_bench);
        assert_int_equal(say_version(family->version), 0);
        assert_int_equal(rm_channels(), 0);
        return 0;
}

int end_rm(void **state)
{
        rm_make_for(CHANNELS_PROGRAM);
        rm_bench = (struct rm_bench){.closed = -1};
        form = RM_LONG;
        family = &families[12];
        (void)say_version(family->version);
        (void)rm_thaw();
        while (client_count > 0) { /* the list includes clients that RM has lost */
                (void)made(5, 0, 0, clients[--client_count], 0x41, 0);
                (void)freed(5, clients[client_count], clients[client_count]);
        }
        return rm_channels() == 0 ? 0 : -1;
}
