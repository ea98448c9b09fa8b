/* explain.h: what the help of a subcommand says below its options. */
#pragma once

#include <stdio.h>

/* Prints nothing if there is no more to say. */
void explain(const char *command, FILE *out);
