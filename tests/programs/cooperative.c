/* cooperative: launchex.c, by cooperative launches. */
#define LAUNCH_COOPERATIVE
#include "launchex.c"
