/* torture_left_out.c: owns the warning of a plain build when torture is asked for. Must never do
 * anything else: torture is for tests.
 * Why: docs/decisions.md, "Torture is left out of plain builds". */
#include "preload/extra/torture.h"

#include "base/log.h"
#include "base/settings.h"

void torture_left_out(void)
{
        if (setting_text(SETTING_TORTURE))
                log_warning("SUBLET_TORTURE has no effect: this build has no torture "
                            "(build with -DSUBLET_TESTS=ON)");
}
