/* reduce_shared.h: what reduce.cu and its callers must agree on. It must include nothing: reduce.cu
 * is compiled without any other header. */
#pragma once

#define REDUCE_THREADS_MAX 512 /* threads of a block; an SM has registers for two such blocks */
#define REDUCE_SOURCES_MAX 64

/* The operations have the numbers of ncclRedOp_t. */
enum reduce_operation {
        REDUCE_SUM,
        REDUCE_PROD,
        REDUCE_MAX,
        REDUCE_MIN,
        REDUCE_OPERATIONS,
};
