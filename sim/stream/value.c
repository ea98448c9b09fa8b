/* value.c: values in memory that streams write and wait for. */
#include "sim/queue/stream.h"

static CUresult value_submit(const char *function, enum work_kind kind, CUstream stream,
                             struct work_value value)
{
        struct work w = {.kind = kind, .value = value};
        CUcontext c;
        CUresult r = stream_enter(function, &stream, &c);

        if (r != CUDA_SUCCESS)
                return r;
        if (value.address % (value.wide ? 8 : 4))
                return CUDA_ERROR_INVALID_VALUE;
        return stream_submit(stream, &w, NULL, 0);
}

#define VALUE(bits, type)                                                                       \
        EXPORT CUresult cuStreamWriteValue##bits##_v2(CUstream stream, CUdeviceptr addr,        \
                                                      type value, unsigned int flags)           \
        {                                                                                       \
                struct work_value w = {addr, value, flags, (bits) == 64};                       \
                return value_submit(__func__, WORK_WRITE_VALUE, stream, w);                     \
        }                                                                                       \
        EXPORT CUresult cuStreamWaitValue##bits##_v2(CUstream stream, CUdeviceptr addr,         \
                                                     type value, unsigned int flags)            \
        {                                                                                       \
                struct work_value w = {addr, value, flags, (bits) == 64};                       \
                return value_submit(__func__, WORK_WAIT_VALUE, stream, w);                      \
        }                                                                                       \
        EXPORT CUresult cuStreamWriteValue##bits(CUstream stream, CUdeviceptr addr, type value, \
                                                 unsigned int flags)                            \
        {                                                                                       \
                return cuStreamWriteValue##bits##_v2(stream, addr, value, flags);               \
        }                                                                                       \
        EXPORT CUresult cuStreamWaitValue##bits(CUstream stream, CUdeviceptr addr, type value,  \
                                                unsigned int flags)                             \
        {                                                                                       \
                return cuStreamWaitValue##bits##_v2(stream, addr, value, flags);                \
        }

VALUE(32, cuuint32_t)
VALUE(64, cuuint64_t)

EXPORT CUresult cuStreamBatchMemOp_v2(CUstream stream, unsigned int count,
                                      CUstreamBatchMemOpParams *param_array, unsigned int flags)
{
        CUresult r = CUDA_SUCCESS;

        if (flags || (count && !param_array) || count > 256)
                return CUDA_ERROR_INVALID_VALUE;
        for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++) {
                const CUstreamBatchMemOpParams *p = &param_array[i];

                switch (p->operation) {
                case CU_STREAM_MEM_OP_WAIT_VALUE_32:
                        r = cuStreamWaitValue32_v2(stream, p->waitValue.address, p->waitValue.value,
                                                   p->waitValue.flags);
                        break;
                case CU_STREAM_MEM_OP_WAIT_VALUE_64:
                        r = cuStreamWaitValue64_v2(stream, p->waitValue.address,
                                                   p->waitValue.value64, p->waitValue.flags);
                        break;
                case CU_STREAM_MEM_OP_WRITE_VALUE_32:
                        r = cuStreamWriteValue32_v2(stream, p->writeValue.address,
                                                    p->writeValue.value, p->writeValue.flags);
                        break;
                case CU_STREAM_MEM_OP_WRITE_VALUE_64:
                        r = cuStreamWriteValue64_v2(stream, p->writeValue.address,
                                                    p->writeValue.value64, p->writeValue.flags);
                        break;
                case CU_STREAM_MEM_OP_BARRIER: /* a stream's operations are always in order */
                        break;
                default:
                        r = CUDA_ERROR_NOT_SUPPORTED;
                }
        }
        return r;
}

EXPORT CUresult cuStreamBatchMemOp(CUstream stream, unsigned int count,
                                   CUstreamBatchMemOpParams *param_array, unsigned int flags)
{
        return cuStreamBatchMemOp_v2(stream, count, param_array, flags);
}
