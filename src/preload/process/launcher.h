/* launcher.h: the job of which this process is a rank, as its launcher's variables tell. */
#pragma once

#include "wire/wire.h"

/* SUBLET_GROUP with this value: the process is in no group, not even in that of its job. */
#define LAUNCHER_NONE "none"

/* Returns the name of the job's group: the launcher, a colon and 16 hexadecimal digits. All ranks
 * of a job on this machine get the same name, and ranks of different jobs get different ones. "" if
 * the process is no rank, or the only one. Any thread may call this. */
void launcher_group(char ret[static WIRE_GROUP_MAX + 1]);
