/* real_nccl.c: owns the table of the real NCCL's functions. */
#include "ranks/real/real_nccl.h"

#define TABLE     real_nccl
#define LIST      "ranks/real/nccl_api.def"
#define MORE_ROWS ROW(const char *, ncclGetLastError, (ncclComm_t comm), "")
#define LIBRARY   soname = "libnccl.so.2"
#include "ranks/real/real_table.h"

bool real_nccl_is_there(void)
{
        return real_nccl()->ncclCommInitRank != missing_ncclCommInitRank;
}
