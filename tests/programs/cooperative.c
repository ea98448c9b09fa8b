/* cooperative: launchex.c with cooperative launches. */
#define LAUNCH_COOPERATIVE
#include "launchex.c"
