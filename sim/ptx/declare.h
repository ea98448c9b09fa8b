/* declare.h: declarations of registers, variables and parameters. */
#pragma once

#include "sim/ptx/parser.h"

#define SHARED_ALIGN     256
#define SHARED_BYTES_MAX (UINT64_C(1) << 20)

enum linkage { LINKAGE_NONE, LINKAGE_EXTERN };

int declare_in_function(struct parser *p);
int declare_in_module(struct parser *p, enum linkage linkage);
/* The list in parentheses that is the current token: an entry's parameters, a function's
 * parameters or its results. */
int declare_parameters(struct parser *p, bool results);
