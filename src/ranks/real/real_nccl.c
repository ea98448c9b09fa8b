/* real_nccl.c: owns the table of the real NCCL's functions. */
#include "ranks/real/real_nccl.h"

#include "base/macros.h"
#include "ranks/real/lookup.h"

#define NCCL(name, params, args, behaviour)       \
        static ncclResult_t missing_##name params \
        {                                         \
                return ncclInvalidUsage;          \
        }
#include "ranks/real/nccl_api.def"

static const char *missing_last(ncclComm_t comm)
{
        (void)comm;
        return "";
}

static struct real_nccl nccl = {
#define NCCL(name, params, args, behaviour) .name = missing_##name,
#include "ranks/real/nccl_api.def"
        .ncclGetLastError = missing_last,
};

static const char *const names[] = {
#define NCCL(name, params, args, behaviour) #name,
#include "ranks/real/nccl_api.def"
        "ncclGetLastError",
};
_Static_assert(sizeof(nccl) == sizeof(names), "one function for each name");

const struct real_nccl *real_nccl(void)
{
        static struct real_table table = {
                .soname = "libnccl.so.2",
                .n = ARRAY_SIZE(names),
                .names = names,
                .functions = (void **)&nccl,
        };

        real_table_open(&table);
        return &nccl;
}

bool real_nccl_is_there(void)
{
        return real_nccl()->ncclCommInitRank != missing_ncclCommInitRank;
}
