/* fuzz_wire.c: any packet, in all directions: an accepted packet survives encoding and decoding. */
#include "fuzz.h"

#include <string.h>

#include "wire/wire.h"

static void check_packet(const uint8_t *data, size_t size, enum wire_direction direction)
{
        struct wire_message m = {.header = {0}}, again = {.header = {0}};
        uint8_t packet[WIRE_SIZE_MAX];
        int n;

        if (wire_decode(data, size, direction, &m) < 0)
                return;
        FUZZ_CHECK(wire_name(m.header.type) != NULL);
        FUZZ_CHECK(wire_size(m.header.type) == size);
        n = wire_encode(&m, packet);
        FUZZ_CHECK(n >= 0 && (size_t)n == size);
        FUZZ_CHECK(wire_decode(packet, size, direction, &again) == 0);
        FUZZ_CHECK(memcmp(&m, &again, size) == 0);
        /* A packet is valid in one direction only. */
        FUZZ_CHECK(wire_decode(packet, size, direction == WIRE_UP ? WIRE_ACROSS : WIRE_UP, &again) <
                   0);
}

/* Encodes any message that the daemon could hold in memory. The packet must have the message's
 * size, and must not contain bytes that follow the NUL of a text. */
static void check_message(const uint8_t *data, size_t size)
{
        struct wire_message m;
        uint8_t packet[WIRE_SIZE_MAX];
        int n;

        memset(&m, 0, sizeof(m));
        memcpy(&m, data, size < sizeof(m) ? size : sizeof(m));
        n = wire_encode(&m, packet);
        FUZZ_CHECK(n < 0 ? wire_size(m.header.type) == 0 : (size_t)n == wire_size(m.header.type));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        check_packet(data, size, WIRE_UP);
        check_packet(data, size, WIRE_DOWN);
        check_message(data, size);
        return 0;
}
