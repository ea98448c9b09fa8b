/* nvshmem.c: refuses NVSHMEM, whose kernels spin until another rank's memory changes: a rank that
 * spins keeps the card that the other one needs. */
#include "base/log.h"

int nvshmemx_hostlib_init_attr(unsigned flags, void *attributes);

/* The host library's function behind nvshmem_init() and nvshmemx_init_attr(). */
__attribute__((visibility("default"))) int nvshmemx_hostlib_init_attr(unsigned flags,
                                                                      void *attributes)
{
        (void)flags;
        (void)attributes;
        log_warning("NVSHMEM does not work between ranks that share a card (sublet run --ranks); "
                    "use NCCL");
        return 1;
}
