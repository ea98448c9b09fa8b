/* require.c: owns the answer to whether anybody forbids this program to run without sharing. Must
 * never let a variable outweigh the owner's word. */
#include "preload/process/require.h"

#include <errno.h>

#include "base/log.h"
#include "base/owner.h"
#include "base/settings.h"
#include "base/shares.h"
#include "base/units.h"

static _Atomic int known; /* enum owner_says */

void require_nothing(void)
{
        known = OWNER_SAYS_NO;
}

static bool owner_says(void)
{
        int says = known;

        if (says != OWNER_NOT_KNOWN)
                return says == OWNER_SAYS_YES;
        known = says = (int)owner_requires();
        if (says == OWNER_IN_DOUBT)
                log_warning("%s: `require` does not hold, because others than root may write the "
                            "file: chown root, chmod go-w",
                            OWNER_FILE);
        return says == OWNER_SAYS_YES;
}

bool require_daemon(void)
{
        return setting_is_on(SETTING_REQUIRE) || owner_says();
}

const char *require_sharing(void)
{
        if (owner_says())
                return OWNER_REQUIRES;
        if (setting_is_on(SETTING_REQUIRE))
                return "SUBLET_REQUIRE=1 is set";
        if (setting_text(SETTING_MEMORY_CAP))
                return "a memory cap is set";
        return NULL;
}

int require_cap(uint64_t *ret_bytes)
{
        const char *text = setting_text(SETTING_MEMORY_CAP);
        uint64_t bytes = 0;

        if (text && (units_parse_size(text, &bytes) < 0 || bytes == 0))
                return -EINVAL;
        *ret_bytes = bytes;
        return 0;
}

enum setting require_malformed(void)
{
        const char *share = setting_text(SETTING_SHARE);
        unsigned minimum, maximum;
        uint64_t bytes;

        if (require_cap(&bytes) < 0)
                return SETTING_MEMORY_CAP;
        if (share && shares_parse_range(share, &minimum, &maximum) < 0 && shares_may_bound(share))
                return SETTING_SHARE;
        return SETTING_COUNT;
}
