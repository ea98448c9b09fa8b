/* nccl.h: NCCL's functions, for the look-up by name. */
#pragma once

/* Returns our function of this name; NULL: there is none. */
void *nccl_replace(const char *symbol);
