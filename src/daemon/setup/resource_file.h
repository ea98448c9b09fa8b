/* resource_file.h: the resource file of Gemini and KubeShare (docs/configuration.md).
 *
 * The first line is a number N. N lines "ID REQUEST LIMIT GPU_MEM" follow: two fractions of the
 * time, and bytes; 0: no limit. Each line makes a class named ID, whose programs run together. */
#pragma once

#include <stdio.h>

#include "daemon/setup/classes.h"

/* Adds the classes of the file. 0, or -EINVAL, -E2BIG, -ENOMEM, -EIO with a sentence that names
 * file and line. */
int resource_file_read(struct classes *c, FILE *file, const char *name,
                       char error[static CONFIG_ERROR_MAX]);
