/* nccl.h: NCCL's functions, for the look-up by name. */
#pragma once

/* As front.h's replace(), for names that begin with nccl or pnccl. */
void *nccl_replace(const char *symbol, void *found);
