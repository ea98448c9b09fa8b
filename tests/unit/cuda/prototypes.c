/* prototypes.c: compiles only if each row of cuda_api.def agrees with the toolkit: its prototype
 * with cuda.h, its name and version with the types of cudaTypedefs.h. */

/* Declares the functions under their exported names, in all versions and per-thread variants. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
#include <cudaProfilerTypedefs.h>
#include <cudaTypedefs.h>

/* Declarations of cudaGL.h and cudaVDPAU.h, which need the headers of OpenGL and VDPAU. */
typedef CUresult(gl_context)(CUcontext *, unsigned int, CUdevice);
typedef CUresult(vdpau_context)(CUcontext *, unsigned int, CUdevice, uint32_t, void *);
extern gl_context cuGLCtxCreate, cuGLCtxCreate_v2;
extern vdpau_context cuVDPAUCtxCreate, cuVDPAUCtxCreate_v2;
typedef gl_context *PFN_cuGLCtxCreate_v2000, *PFN_cuGLCtxCreate_v3020;
typedef vdpau_context *PFN_cuVDPAUCtxCreate_v3010, *PFN_cuVDPAUCtxCreate_v3020;

/* The types of per-thread variants end in _ptds or _ptsz, which the table does not distinguish. */
#define VERSION_0(base, symbol, since)               \
        extern PFN_##base##_v##since since_##symbol; \
        PFN_##base##_v##since since_##symbol = symbol;
#define VERSION_CU_API_BLOCKS(base, symbol, since) VERSION_0(base, symbol, since)
#define VERSION_CU_API_PTSZ(base, symbol, since)
#define VERSION_CU_API_PTSZ_BLOCKS(base, symbol, since)
#define DECLARED(symbol, params, version)                \
        extern CUresult(*const check_##symbol) params;   \
        CUresult(*const check_##symbol) params = symbol; \
        version

/* Skips rows of functions that CUDA 13.0 does not have. */
#define NEWER_13010 ~, NEWER
#define NEWER_13020 ~, NEWER
#define NEWER_13030 ~, NEWER
#define NEWER_13040 ~, NEWER
#define NEWER(...)
#define SECOND(a, b, ...) b
#define WHICH(...)        SECOND(__VA_ARGS__)
#define CU(base, symbol, since, flags, behaviour, stream, params, args) \
        WHICH(NEWER_##since, DECLARED, ~)(symbol, params, VERSION_##flags(base, symbol, since))
#include "cuda/cuda_api.def"
