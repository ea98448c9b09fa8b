/* test_wire.c: checks of the codec with every message of the table. This file must never list the
 * messages itself: the table does. */
#include "unit.h"

#include <errno.h>

#include "base/macros.h"
#include "wire/wire.h"

static const struct row {
        unsigned type;
        enum wire_direction direction;
        enum wire_scope scope;
} rows[] = {
#define WIRE(name, number, direction, scope, fields) {number, WIRE_##direction, WIRE_SCOPE_##scope},
#include "wire/wire_messages.def"
#undef WIRE
};

/* Returns a valid message of this type. Every byte that has no bounds has a different value. */
static struct wire_message sample(unsigned type)
{
        struct wire_message m = {.header = {(uint16_t)type, 3, 0x01020304}};
        uint8_t *body = (uint8_t *)&m + offsetof(struct wire_message, HELLO);

        for (size_t i = 0; i < wire_size(type) - 8; i++)
                body[i] = (uint8_t)(i + 1);
        switch (type) {
#define U64(name)
#define U32(name)
#define BYTES(name, bytes)
#define TEXT(name, bytes)       (void)snprintf(b->name, bytes, "%0*d", (bytes)-1, 7);
#define IN64(name, least, most) b->name = (most);
#define IN32(name, least, most) b->name = (most);
#define FLAGS(name, known)      b->name = (known);
#define WIRE(name, number, direction, scope, fields) \
        case number: {                               \
                struct wire_##name *b = &m.name;     \
                fields;                              \
                (void)b;                             \
        } break;
#include "wire/wire_messages.def"
#undef WIRE
#undef TEXT
        }
        return m;
}

static void every_message_survives_a_round_trip(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct wire_message m = sample(rows[i].type), back;
                uint8_t packet[WIRE_SIZE_MAX];
                int n = wire_encode(&m, packet);

                assert_int_equal(n, wire_size(rows[i].type));
                memset(&back, 0xee, sizeof(back));
                assert_int_equal(wire_decode(packet, (size_t)n, rows[i].direction, &back), 0);
                assert_memory_equal(&m, &back, (size_t)n);
        }
}

static void messages_of_every_other_size_are_refused(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct wire_message m = sample(rows[i].type), back;
                uint8_t packet[WIRE_SIZE_MAX] = {0};
                size_t n = (size_t)wire_encode(&m, packet);

                for (size_t size = 0; size < sizeof(packet); size++) {
                        /* An exact copy on the heap, so that a sanitizer sees reads past it. */
                        uint8_t *exact = malloc(size ? size : 1);

                        assert_non_null(exact);
                        memcpy(exact, packet, size);
                        assert_int_equal(wire_decode(exact, size, rows[i].direction, &back),
                                         size == n ? 0 : -EBADMSG);
                        free(exact);
                }
        }
}

static void messages_in_the_wrong_direction_are_refused(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct wire_message m = sample(rows[i].type), back;
                uint8_t packet[WIRE_SIZE_MAX];
                size_t n = (size_t)wire_encode(&m, packet);

                for (enum wire_direction d = WIRE_UP; d <= WIRE_ACROSS; d++)
                        assert_int_equal(wire_decode(packet, n, d, &back),
                                         d == rows[i].direction ? 0 : -EBADMSG);
        }
}

#define UNKNOWN 200 /* larger than every number in use */

static void unknown_types_have_no_name_and_no_size(void **state)
{
        struct wire_message m = {.header.type = UNKNOWN};
        uint8_t packet[WIRE_SIZE_MAX] = {UNKNOWN};

        assert_null(wire_name(0));
        assert_null(wire_name(UNKNOWN));
        assert_null(wire_name(65535));
        assert_int_equal(wire_size(0), 0);
        assert_int_equal(wire_size(UNKNOWN), 0);
        assert_string_equal(wire_name(WIRE_DRAIN_FAILED), "DRAIN_FAILED");
        assert_int_equal(wire_encode(&m, packet), -EINVAL);
        assert_int_equal(wire_decode(packet, 16, WIRE_UP, &m), -EBADMSG);
}

static int decode_of(const struct wire_message *m, enum wire_direction direction)
{
        uint8_t packet[WIRE_SIZE_MAX];
        struct wire_message back;

        return wire_decode(packet, (size_t)wire_encode(m, packet), direction, &back);
}

static void gpu_numbers_past_the_end_are_refused(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct wire_message m = sample(rows[i].type);

                m.header.gpu = WIRE_GPUS_MAX - 1;
                assert_int_equal(decode_of(&m, rows[i].direction), 0);
                m.header.gpu = WIRE_GPUS_MAX;
                assert_int_equal(decode_of(&m, rows[i].direction), -EINVAL);
                m.header.gpu = 65534;
                assert_int_equal(decode_of(&m, rows[i].direction), -EINVAL);
        }
}

static void check_refused(const struct wire_message *m, enum wire_direction direction)
{
        assert_int_equal(decode_of(m, direction), -EINVAL);
}

static void values_out_of_their_bounds_are_refused(void **state)
{
#define TEXT(name, bytes)
#define IN64(field, least, most) \
        b->field = (most) + 1;   \
        check_refused(&m, d);    \
        b->field = (least)-1;    \
        check_refused(&m, d);    \
        b->field = (least);      \
        assert_int_equal(decode_of(&m, d), 0);
#define IN32 IN64
#define FLAGS(field, known)     \
        b->field = (known) + 1; \
        check_refused(&m, d);   \
        b->field = UINT32_MAX;  \
        check_refused(&m, d);   \
        b->field = 0;           \
        assert_int_equal(decode_of(&m, d), 0);
#define WIRE(name, number, direction, scope, fields)            \
        {                                                       \
                const enum wire_direction d = WIRE_##direction; \
                struct wire_message m = sample(number);         \
                struct wire_##name *b = &m.name;                \
                                                                \
                fields;                                         \
                assert_int_equal(decode_of(&m, d), 0);          \
                (void)b;                                        \
        }
#include "wire/wire_messages.def"
#undef WIRE
#undef U64
#undef U32
#undef TEXT
#undef BYTES
}

static void messages_about_a_gpu_must_name_one(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                struct wire_message m = sample(rows[i].type);
                const bool about =
                        rows[i].scope == WIRE_SCOPE_GPU || rows[i].scope == WIRE_SCOPE_NEW_GPU;

                m.header.gpu = WIRE_NO_GPU;
                assert_int_equal(decode_of(&m, rows[i].direction), about ? -EINVAL : 0);
        }
}

static void a_mode_of_freezing_is_one_of_three(void **state)
{
        static const char *const names[] = {[WIRE_FREEZE_OFF] = "off",
                                            [WIRE_FREEZE_PARK] = "park",
                                            [WIRE_FREEZE_MOVE] = "move"};
        static const uint64_t others[] = {0, WIRE_FREEZE_MOVE + 1,
                                          UINT64_C(1) << 32 | WIRE_FREEZE_MOVE, UINT64_MAX};
        struct wire_message m = sample(WIRE_FREEZE);
        enum wire_freeze mode;

        for (unsigned i = WIRE_FREEZE_OFF; i <= WIRE_FREEZE_MOVE; i++) {
                m.FREEZE.mode = i;
                assert_int_equal(decode_of(&m, WIRE_DOWN), 0);
                assert_string_equal(wire_freeze_name(i), names[i]);
                assert_int_equal(wire_parse_freeze(names[i], &mode), 0);
                assert_int_equal(mode, i);
        }
        for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
                m.FREEZE.mode = others[i];
                assert_int_equal(decode_of(&m, WIRE_DOWN), -EINVAL);
                assert_null(wire_freeze_name(others[i]));
        }
        assert_int_equal(wire_parse_freeze("", &mode), -EINVAL);
        assert_int_equal(wire_parse_freeze("parked", &mode), -EINVAL);
        assert_int_equal(mode, WIRE_FREEZE_MOVE); /* the result stays unchanged */
}

static void a_group_has_a_short_printable_name(void **state)
{
        char longest[WIRE_GROUP_MAX + 2] = {0};

        memset(longest, 'g', WIRE_GROUP_MAX);
        assert_true(wire_group_is_valid("ranks of 7"));
        assert_true(wire_group_is_valid(longest));
        longest[WIRE_GROUP_MAX] = 'g';
        assert_false(wire_group_is_valid(longest));
        assert_false(wire_group_is_valid(""));
        assert_false(wire_group_is_valid("a\nb"));
        assert_false(wire_group_is_valid("caf\xc3\xa9"));
}

static void a_wrong_magic_is_refused(void **state)
{
        struct wire_message h = sample(WIRE_HELLO), w = sample(WIRE_WELCOME),
                            r = sample(WIRE_REFUSED), turns = h;

        h.HELLO.magic ^= 1;
        turns.HELLO.takes_turns = 2;
        w.WELCOME.magic = 0;
        r.REFUSED.magic = UINT64_MAX;
        assert_int_equal(decode_of(&h, WIRE_UP), -EINVAL);
        assert_int_equal(decode_of(&turns, WIRE_UP), -EINVAL);
        assert_int_equal(decode_of(&w, WIRE_DOWN), -EINVAL);
        assert_int_equal(decode_of(&r, WIRE_DOWN), -EINVAL);
}

static void text_must_end_and_be_clean(void **state)
{
        struct wire_message m = sample(WIRE_HELLO), back;
        uint8_t packet[WIRE_SIZE_MAX];
        size_t n = (size_t)wire_encode(&m, packet), at = 8 + offsetof(struct wire_HELLO, name);

        memset(packet + at, 'a', 64);
        assert_int_equal(wire_decode(packet, n, WIRE_UP, &back), -EINVAL);
        packet[at + 63] = '\0';
        assert_int_equal(wire_decode(packet, n, WIRE_UP, &back), 0);
        packet[at + 5] = '\033';
        assert_int_equal(wire_decode(packet, n, WIRE_UP, &back), -EINVAL);
        packet[at + 5] = 0xc3;
        assert_int_equal(wire_decode(packet, n, WIRE_UP, &back), -EINVAL);
        packet[at + 6] = 0xa9;
        assert_int_equal(wire_decode(packet, n, WIRE_UP, &back), 0);
        packet[at + 5] = 0x7f;
        assert_int_equal(wire_decode(packet, n, WIRE_UP, &back), -EINVAL);
}

static void a_text_that_was_cut_within_a_character_can_be_sent(void **state)
{
        struct wire_message m = sample(WIRE_NOTICE), back;
        uint8_t packet[WIRE_SIZE_MAX];
        size_t n;

        memcpy(m.NOTICE.text, "abc\xc3", 5);
        n = (size_t)wire_encode(&m, packet);
        assert_int_equal(wire_decode(packet, n, WIRE_DOWN, &back), 0);
        assert_string_equal(back.NOTICE.text, "abc?");
}

static void bytes_behind_the_nul_are_neither_sent_nor_accepted(void **state)
{
        struct wire_message m = sample(WIRE_HELLO), back;
        uint8_t packet[WIRE_SIZE_MAX];
        size_t n, at = 8 + offsetof(struct wire_HELLO, name);

        memset(m.HELLO.name, 'S', sizeof(m.HELLO.name));
        m.HELLO.name[2] = '\0';
        n = (size_t)wire_encode(&m, packet);
        for (size_t i = 2; i < 64; i++)
                assert_int_equal(packet[at + i], 0);
        packet[at + 40] = 0xff;
        assert_int_equal(wire_decode(packet, n, WIRE_UP, &back), 0);
        assert_string_equal(back.HELLO.name, "SS");
        assert_int_equal(back.HELLO.name[40], 0);
}

static void a_text_without_room_for_its_nul_is_cut(void **state)
{
        struct wire_message m = sample(WIRE_HELLO), back;
        uint8_t packet[WIRE_SIZE_MAX];

        memset(m.HELLO.version, 'v', sizeof(m.HELLO.version));
        assert_int_equal(wire_decode(packet, (size_t)wire_encode(&m, packet), WIRE_UP, &back), 0);
        assert_int_equal(strlen(back.HELLO.version), sizeof(m.HELLO.version) - 1);
}

/* HELLO, WELCOME and REFUSED never change: these are their bytes. */
static void layouts_of_hello_welcome_and_refused_never_change(void **state)
{
        struct wire_message m = {.header = {WIRE_HELLO, WIRE_NO_GPU, 1},
                                 .HELLO = {.magic = WIRE_MAGIC,
                                           .previous_instance = 2,
                                           .protocol = 4,
                                           .takes_turns = 1,
                                           .pid = 6,
                                           .name = "n",
                                           .version = "v"}};
        uint8_t packet[WIRE_SIZE_MAX];
        static const uint8_t start[] = {1,   0, 0xff, 0xff, 1, 0, 0, 0, 1, 'S', 'U', 'B', 'L', 'E',
                                        'T', 0, 2,    0,    0, 0, 0, 0, 0, 0,   4,   0,   0,   0,
                                        1,   0, 0,    0,    6, 0, 0, 0, 0, 0,   0,   0,   'n', 0};

        assert_int_equal(wire_encode(&m, packet), 168);
        assert_memory_equal(packet, start, sizeof(start));
        assert_int_equal(packet[40 + 64], 'v');
        assert_int_equal(wire_size(WIRE_WELCOME), 64);
        assert_int_equal(wire_size(WIRE_REFUSED), 192);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_message_survives_a_round_trip),
                cmocka_unit_test(messages_of_every_other_size_are_refused),
                cmocka_unit_test(messages_in_the_wrong_direction_are_refused),
                cmocka_unit_test(unknown_types_have_no_name_and_no_size),
                cmocka_unit_test(gpu_numbers_past_the_end_are_refused),
                cmocka_unit_test(values_out_of_their_bounds_are_refused),
                cmocka_unit_test(messages_about_a_gpu_must_name_one),
                cmocka_unit_test(a_mode_of_freezing_is_one_of_three),
                cmocka_unit_test(a_group_has_a_short_printable_name),
                cmocka_unit_test(a_wrong_magic_is_refused),
                cmocka_unit_test(text_must_end_and_be_clean),
                cmocka_unit_test(a_text_that_was_cut_within_a_character_can_be_sent),
                cmocka_unit_test(bytes_behind_the_nul_are_neither_sent_nor_accepted),
                cmocka_unit_test(a_text_without_room_for_its_nul_is_cut),
                cmocka_unit_test(layouts_of_hello_welcome_and_refused_never_change),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
