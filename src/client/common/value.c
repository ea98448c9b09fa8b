/* value.c: owns the check of a setting's value. */
#include "client/common/value.h"

#include <stdint.h>

#include "base/shares.h"
#include "base/units.h"
#include "wire/wire.h"

/* The library has the same limit, DEVICES_MAX in ranks/devices/map.h. */
#define RANKS_MAX 64

static int check_ranks(const char *text)
{
        uint64_t n;

        return units_parse_count(text, &n) == 0 && n >= 1 && n <= RANKS_MAX;
}

static int check_size(const char *text)
{
        uint64_t bytes;

        return units_parse_size(text, &bytes) == 0 && bytes > 0;
}

bool value_is_good(enum setting s, const char *value)
{
        unsigned minimum, maximum, weight;
        int priority;

        switch (s) {
        case SETTING_GROUP:
                return wire_group_is_valid(value);
        case SETTING_PRIORITY:
                return shares_parse_priority(value, &priority) == 0;
        case SETTING_SHARE:
                return shares_parse_range(value, &minimum, &maximum) == 0;
        case SETTING_WEIGHT:
                return shares_parse_weight(value, &weight) == 0;
        case SETTING_MEMORY_CAP:
        case SETTING_KEEP:
                return check_size(value);
        case SETTING_RANKS:
                return check_ranks(value);
        default:
                return settings[s].kind != SETTING_CHOICE || setting_place(s, value) >= 0;
        }
}
