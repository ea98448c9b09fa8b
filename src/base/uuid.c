/* uuid.c: owns how UUIDs of GPUs are written and read. Must never accept a part of a UUID. */
#include "base/uuid.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int uuid_parse(const char *text, uint8_t ret[static 16])
{
        uint8_t uuid[16] = {0};
        unsigned digits = 0;

        if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
                text += 4;
        for (; *text; text++) {
                unsigned digit;

                if (*text == '-')
                        continue;
                if (!isxdigit((unsigned char)*text) || digits == 32)
                        return -EINVAL;
                digit = (unsigned)(isdigit((unsigned char)*text)
                                           ? *text - '0'
                                           : tolower((unsigned char)*text) - 'a' + 10);
                uuid[digits / 2] = (uint8_t)(uuid[digits / 2] << 4 | digit);
                digits++;
        }
        if (digits != 32)
                return -EINVAL;
        memcpy(ret, uuid, sizeof(uuid));
        return 0;
}

const char *uuid_format(const uint8_t uuid[static 16], char ret[static UUID_TEXT_MAX])
{
        char *p = stpcpy(ret, "GPU-");

        for (unsigned i = 0; i < 16; i++)
                p += snprintf(p, 4, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                              uuid[i]);
        return ret;
}
