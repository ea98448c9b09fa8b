/* test_hand_rm.c: the hand's requests to RM, with a fake driver: which GPUs it finds, and how it
 * reads the answers. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/ioctl.h>

#include "base/macros.h"
#include "daemon/hand/hand_rm.h"

#define CTL      71
#define CLIENT   0xc1d00007u
#define FOREIGN  0xc1d00001u
#define SECRET   0x6a5e0001u
#define ANY      1
#define GPUS_ALL ((1u << HAND_GPUS) - 1)

/* ---- the fake driver ---- */

static const char *version;
static unsigned status_at;     /* of a short allocation */
static int ctl_error;          /* of an open of nvidiactl */
static bool fails;             /* each request does */
static uint32_t refusal;       /* RM's answer to controls */
static uint32_t no_client;     /* RM's answer to the making of a client */
static unsigned gpus;          /* a bit for each that there is */
static unsigned opened;        /* device files */
static uint32_t dup_of_others; /* RM's answer about objects that it has not */
static uint32_t objects[1 + 2 * HAND_GPUS];
static unsigned object_count; /* a new client has none */
static struct rm_disable_channels asked;
static uint32_t asked_object;

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
        assert_string_equal(name, "libnvidia-ml.so.1");
        return NULL;
}

int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
        assert_true(flags & O_CLOEXEC);
        if (strcmp(path, "/dev/nvidiactl") == 0) {
                errno = ctl_error;
                return ctl_error ? -1 : CTL;
        }
        assert_int_equal(strncmp(path, "/dev/nvidia", 11), 0);
        opened++;
        errno = ENOENT;
        return -1;
}

static bool is_ours(uint32_t object)
{
        for (unsigned i = 0; i < object_count; i++)
                if (objects[i] == object)
                        return true;
        return false;
}

static uint32_t make(struct rm_alloc *a)
{
        if (a->class == RM_CLASS_CLIENT_USER) {
                a->object = CLIENT;
                object_count = 0;
                return no_client;
        }
        assert_int_equal(a->client, CLIENT);
        if (a->class == RM_CLASS_DEVICE) {
                const struct rm_device_params *p = (void *)(uintptr_t)a->params;

                assert_int_equal(a->parent, CLIENT);
                if (!(gpus & 1u << p->instance))
                        return RM_INVALID_ARGUMENT;
        } else {
                assert_int_equal(a->class, RM_CLASS_SUBDEVICE);
                assert_true(is_ours(a->parent));
        }
        assert_false(is_ours(a->object));
        objects[object_count++] = a->object;
        return 0;
}

static void answer_alloc(void *argument)
{
        const uint32_t status = make(argument);

        memcpy((uint8_t *)argument + status_at, &status, sizeof(status));
}

static void answer_control(struct rm_control *k)
{
        assert_int_equal(k->command, RM_DISABLE_CHANNELS);
        assert_int_equal(k->client, CLIENT);
        assert_int_equal(k->params_size, sizeof(asked));
        memcpy(&asked, (void *)(uintptr_t)k->params, sizeof(asked));
        asked_object = k->object;
        k->status = refusal;
}

static void answer_dup(struct rm_dup *d)
{
        const bool ours = d->source_client == CLIENT && is_ours(d->source);

        assert_int_equal(d->client, CLIENT);
        d->status = ours || (d->source_client == FOREIGN && d->source == SECRET)
                            ? RM_INVALID_ARGUMENT
                            : dup_of_others;
}

int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
        va_list args;
        void *argument;

        va_start(args, request);
        argument = va_arg(args, void *);
        va_end(args);
        assert_int_equal(fd, CTL);
        assert_int_equal(_IOC_TYPE(request), RM_IOCTL_TYPE);
        if (fails) {
                errno = EPERM;
                return -1;
        }
        switch (_IOC_NR(request)) {
        case RM_ESCAPE_CHECK_VERSION:
                (void)memcpy(((struct rm_version *)argument)->text, version,
                             MIN(strlen(version) + 1, 64ul));
                return 0;
        case RM_ESCAPE_ALLOC:
                answer_alloc(argument);
                return 0;
        case RM_ESCAPE_CONTROL:
                assert_int_equal(request, hand_rm_requests[0]);
                answer_control(argument);
                return 0;
        case RM_ESCAPE_DUP:
                assert_int_equal(request, hand_rm_requests[1]);
                answer_dup(argument);
                return 0;
        }
        fail();
        return -1;
}

static int begin(void **state)
{
        version = "580.159.04";
        status_at = 28;
        ctl_error = 0;
        fails = false;
        refusal = no_client = 0;
        gpus = 1;
        opened = 0;
        dup_of_others = RM_NO_OBJECT;
        return 0;
}

static struct hand_rm a_hand(void)
{
        struct hand_rm r;

        assert_int_equal(hand_rm_setup(), 0);
        assert_int_equal(hand_rm_new(&r), 0);
        assert_int_equal(r.client, CLIENT);
        return r;
}

/* ---- the setup ---- */

static void the_setup_opens_all_device_files(void **state)
{
        assert_int_equal(hand_rm_setup(), 0);
        assert_in_range(opened, HAND_GPUS, 255);
}

static void a_control_device_that_cannot_be_opened_is_named_by_its_error(void **state)
{
        struct hand_rm r;

        assert_int_equal(hand_rm_setup(), 0);
        ctl_error = EACCES;
        assert_int_equal(hand_rm_new(&r), -EACCES);
        assert_int_equal(hand_rm_setup(), -EACCES);
        ctl_error = ENOENT;
        assert_int_equal(hand_rm_setup(), -ENOENT);
}

static void an_unknown_driver_is_refused(void **state)
{
        static const char *const unknown[] = {"", "514.1", "621.1", "x", "99999999999999999999"};

        for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
                version = unknown[i];
                assert_int_equal(hand_rm_setup(), -EPROTO);
        }
        version = "580.159.04";
        fails = true;
        assert_int_equal(hand_rm_setup(), -EPROTO);
}

static void a_text_without_an_end_is_read_to_its_end(void **state)
{
        static char long_text[65];

        memset(long_text, '5', 64);
        version = long_text;
        assert_int_equal(hand_rm_setup(), -EPROTO);
}

/* ---- objects ---- */

static void the_hand_knows_each_gpu_by_rms_number(void **state)
{
        struct hand_rm r;

        gpus = 1u << 0 | 1u << 3 | 1u << (HAND_GPUS - 1);
        r = a_hand();
        for (unsigned i = 0; i < HAND_GPUS; i++) {
                assert_int_equal(r.subdevices[i] != 0, (gpus >> i & 1) != 0);
                for (unsigned k = 0; k < i; k++)
                        assert_true(!r.subdevices[i] || r.subdevices[i] != r.subdevices[k]);
        }
}

static void without_a_gpu_or_a_client_there_is_no_hand(void **state)
{
        struct hand_rm r;

        assert_int_equal(hand_rm_setup(), 0);
        gpus = 0;
        assert_int_equal(hand_rm_new(&r), -EIO);
        gpus = GPUS_ALL;
        no_client = RM_NO_PERMISSION;
        assert_int_equal(hand_rm_new(&r), -EIO);
        no_client = 0;
        fails = true;
        assert_int_equal(hand_rm_new(&r), -EIO);
}

static void an_answer_is_read_where_the_driver_writes_it(void **state)
{
        struct hand_rm r;

        version = "530.41.03";
        status_at = 24;
        (void)a_hand();
        no_client = RM_NO_PERMISSION;
        assert_int_equal(hand_rm_new(&r), -EIO);
}

/* ---- requests ---- */

static void a_call_names_its_channels_on_its_gpu(void **state)
{
        struct hand_call c = {.device = 2, .count = RM_DISABLE_CHANNELS_MAX};
        struct hand_rm r;

        gpus = 1u << 0 | 1u << 2;
        r = a_hand();
        for (uint32_t i = 0; i < c.count; i++) {
                c.clients[i] = FOREIGN + i % 2;
                c.channels[i] = 100 + i;
        }
        assert_int_equal(hand_rm_switch(&r, &c, true), 0);
        assert_int_equal(asked_object, r.subdevices[2]);
        assert_int_equal(asked.disable, 1);
        assert_int_equal(asked.count, c.count);
        assert_memory_equal(asked.clients, c.clients, sizeof(c.clients));
        assert_memory_equal(asked.channels, c.channels, sizeof(c.channels));
        c.count = 1;
        assert_int_equal(hand_rm_switch(&r, &c, false), 0);
        assert_int_equal(asked.disable, 0);
        assert_int_equal(asked.count, 1);
        assert_int_equal(asked.clients[1], 0); /* no other name goes along */
        assert_int_equal(asked.event, 0);
}

static void a_refused_or_failed_call_is_an_error(void **state)
{
        const struct hand_call c = {.count = 1, .clients = {FOREIGN}, .channels = {ANY}};
        const struct hand_rm r = a_hand();

        refusal = RM_NO_CHANNEL;
        assert_int_equal(hand_rm_switch(&r, &c, true), RM_NO_CHANNEL);
        refusal = 0;
        fails = true;
        assert_int_not_equal(hand_rm_switch(&r, &c, true), 0);
        assert_int_not_equal(hand_rm_switch(&r, &c, true), RM_NO_CHANNEL);
}

static void only_an_object_that_is_there_is_seen(void **state)
{
        static const uint32_t answers[] = {0, RM_NO_OBJECT, RM_NO_CLIENT, RM_NO_PERMISSION, 0x33};
        const struct hand_rm r = a_hand();

        assert_true(hand_rm_sees(&r, FOREIGN, SECRET));
        for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
                dup_of_others = answers[i];
                assert_false(hand_rm_sees(&r, FOREIGN, SECRET + 1));
                assert_false(hand_rm_sees(&r, FOREIGN + 1, SECRET));
        }
        fails = true;
        assert_false(hand_rm_sees(&r, FOREIGN, SECRET));
}

static void a_driver_that_claims_to_have_all_objects_is_noticed(void **state)
{
        struct hand_rm r = a_hand();

        assert_true(hand_rm_is_right(&r, &r));
        dup_of_others = RM_INVALID_ARGUMENT;
        assert_false(hand_rm_is_right(&r, &r));
        dup_of_others = RM_NO_OBJECT;
        fails = true;
        assert_false(hand_rm_is_right(&r, &r));
        fails = false;
        memset(r.subdevices, 0, sizeof(r.subdevices));
        assert_false(hand_rm_is_right(&r, &r));
}

#define TEST(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(the_setup_opens_all_device_files),
                TEST(a_control_device_that_cannot_be_opened_is_named_by_its_error),
                TEST(an_unknown_driver_is_refused),
                TEST(a_text_without_an_end_is_read_to_its_end),
                TEST(the_hand_knows_each_gpu_by_rms_number),
                TEST(without_a_gpu_or_a_client_there_is_no_hand),
                TEST(an_answer_is_read_where_the_driver_writes_it),
                TEST(a_call_names_its_channels_on_its_gpu),
                TEST(a_refused_or_failed_call_is_an_error),
                TEST(only_an_object_that_is_there_is_seen),
                TEST(a_driver_that_claims_to_have_all_objects_is_noticed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
