/* front_calls.h: asks the library in front of this one, if there is one (cuda/front.h). Any thread.
 */
#pragma once

#include <stdbool.h>

bool front_is_there(void);
/* Returns what the program gets for this name. found: what it would get without that library. */
void *front_replace(const char *symbol, void *found);
/* While work in flight waits for another rank, returns a number that the next wait does not have.
 * Otherwise returns 0. */
unsigned front_waits(void);
