/* map.c: owns the arithmetic of virtual devices. Must give the same answers in all processes of a
 * job. Reads numbers itself, because the C library's functions for that have newer symbols. */
#include "ranks/devices/map.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/macros.h"

/* Distance between the PCI domains of copies: far from those of real cards, and 64 copies fit into
 * 16 bits. */
#define DOMAIN_STEP 0x100u

unsigned map_card(unsigned device, unsigned cards)
{
        return cards ? device % cards : 0;
}

struct identity map_identity(const struct identity *card, unsigned device, unsigned cards,
                             bool shared_bus)
{
        const unsigned copy = cards ? device / cards : 0;
        const unsigned moved = shared_bus ? device : copy;
        struct identity own = *card;
        uint64_t hash;

        if (copy) {
                hash = hash_add(hash_add(HASH_BASIS, card->uuid, sizeof(card->uuid)), &copy,
                                sizeof(copy));
                memcpy(own.uuid, &hash, sizeof(hash));
                hash = hash_add(hash, own.uuid, sizeof(own.uuid));
                memcpy(own.uuid + sizeof(hash), &hash, sizeof(hash));
        }
        own.domain = (card->domain & ~0xffffu) | ((card->domain + moved * DOMAIN_STEP) & 0xffffu);
        return own;
}

void map_uuid_text(const struct identity *of, char ret[static UUID_TEXT_MAX])
{
        size_t n = (size_t)snprintf(ret, UUID_TEXT_MAX, "%s", of->kind);

        for (unsigned i = 0; i < sizeof(of->uuid); i++)
                n += (size_t)snprintf(ret + n, UUID_TEXT_MAX - n, "%s%02x",
                                      i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                                      of->uuid[i]);
}

static int digit_of(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool map_read_uuid(const char *text, struct identity *ret)
{
        struct identity own = {.kind = ""};
        unsigned n = 0;

        if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
                return false;
        memcpy(own.kind, text, 3);
        for (text += 4; *text; text++) {
                const int digit = digit_of(*text);

                if (*text == '-')
                        continue;
                if (digit < 0 || n == 2 * sizeof(own.uuid))
                        return false;
                own.uuid[n / 2] = (uint8_t)(own.uuid[n / 2] << 4 | digit);
                n++;
        }
        if (n != 2 * sizeof(own.uuid))
                return false;
        *ret = own;
        return true;
}

/* Reads a hexadecimal number of at most 8 digits. Returns its end; NULL: there is none. */
static const char *read_hex(const char *text, unsigned *ret)
{
        unsigned n = 0;

        for (*ret = 0; digit_of(text[n]) >= 0; n++) {
                if (n == 8)
                        return NULL;
                *ret = *ret << 4 | (unsigned)digit_of(text[n]);
        }
        return n ? text + n : NULL;
}

bool map_read_bus_id(const char *text, unsigned *ret_domain, unsigned *ret_bus, unsigned *ret_slot)
{
        unsigned part[3], n = 0, function;

        for (; n < 3 && (text = read_hex(text, &part[n])); n++)
                if (*text++ != ':') {
                        text--;
                        n++;
                        break;
                }
        if (!text || n < 2 || (*text == '.' && !(text = read_hex(text + 1, &function))) || *text)
                return false;
        *ret_domain = n == 3 ? part[0] : 0;
        *ret_bus = part[n - 2];
        *ret_slot = part[n - 1];
        return true;
}

int map_read_number(const char *text)
{
        int value = 0;

        if (!*text)
                return -1;
        for (; *text; text++) {
                if (*text < '0' || *text > '9' || value > (INT_MAX - 9) / 10)
                        return -1;
                value = value * 10 + (*text - '0');
        }
        return value;
}

/* Returns the one device whose UUID begins with this text; -1: none, or several. Whether a UUID is
 * called a GPU's or an instance's does not matter. */
static int find_uuid(const struct identity *all, unsigned n, const char *text)
{
        int found = -1;

        if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
                return -1;
        for (unsigned i = 0; i < n; i++) {
                char whole[UUID_TEXT_MAX];

                map_uuid_text(&all[i], whole);
                if (strncasecmp(whole + 4, text + 4, strlen(text + 4)) != 0)
                        continue;
                if (found >= 0)
                        return -1;
                found = (int)i;
        }
        return found;
}

int map_visible(const char *list, const struct identity *all, unsigned n,
                uint8_t ret[static DEVICES_MAX])
{
        bool numbered[DEVICES_MAX];
        int shown = 0;

        for (unsigned i = 0; !list && i < n; i++)
                ret[shown++] = (uint8_t)i;
        while (list) {
                const size_t length = strcspn(list += strspn(list, " "), ",");
                char entry[UUID_TEXT_MAX];
                const uint8_t *there;
                bool is_number;
                int device;

                if (length >= sizeof(entry))
                        break;
                memcpy(entry, list, length);
                entry[length] = 0;
                entry[strcspn(entry, " ")] = 0;
                device = map_read_number(entry);
                is_number = device >= 0;
                if (!is_number)
                        device = find_uuid(all, n, entry);
                if (device < 0 || device >= (int)n)
                        break;
                there = memchr(ret, device, (size_t)shown);
                if (there && numbered[there - ret] == is_number)
                        return -ENOTUNIQ;
                if (there)
                        break;
                numbered[shown] = is_number;
                ret[shown++] = (uint8_t)device;
                list = list[length] ? list + length + 1 : NULL;
        }
        return shown;
}

unsigned map_order(const uint8_t devices[static DEVICES_MAX], unsigned n, unsigned cards,
                   uint8_t ret[static DEVICES_MAX], uint8_t ret_at[static DEVICES_MAX])
{
        unsigned kept = 0;

        for (unsigned i = 0; i < n; i++) {
                const uint8_t card = (uint8_t)map_card(devices[i], cards);
                unsigned k = 0;

                while (k < kept && ret[k] != card)
                        k++;
                ret[k] = card;
                ret_at[i] = (uint8_t)k;
                kept = MAX(kept, k + 1);
        }
        return kept;
}

unsigned map_local_rank(char *(*get)(const char *name))
{
        static const char *const names[] = {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
                                            "MPI_LOCALRANKID", "SLURM_LOCALID", "PMI_LOCAL_RANK"};

        for (unsigned i = 0; i < ARRAY_SIZE(names); i++) {
                const char *text = get(names[i]);
                const int rank = text ? map_read_number(text) : -1;

                if (rank >= 0)
                        return (unsigned)rank;
        }
        return 0;
}
