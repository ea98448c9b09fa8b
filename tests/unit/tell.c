/* tell.c: calls to the driver are not told in unit tests. */
#include <stdbool.h>

bool tell_all;
__thread const char *tell_caller;
