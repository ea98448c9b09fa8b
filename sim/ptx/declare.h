/* declare.h: declarations of registers, variables and parameters. */
#pragma once

#include "sim/ptx/parser.h"

#define SHARED_ALIGN     256
#define SHARED_BYTES_MAX (UINT64_C(1) << 20)

enum linkage { LINKAGE_NONE, LINKAGE_EXTERN };

int declare_in_function(struct parser *p);
int declare_in_module(struct parser *p, enum linkage linkage);
/* Parses the list in parentheses that begins with the current token: the parameters of an entry or
 * of a function, or a function's results. */
int declare_parameters(struct parser *p, bool results);
