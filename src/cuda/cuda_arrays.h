/* cuda_arrays.h: the driver's ABI for arrays, textures and surfaces, and for copies that may have
 * an array at either end. Part of cuda_abi.h, which includes it; the same test checks it against
 * cuda.h. */
#pragma once

typedef struct CUDA_ARRAY_DESCRIPTOR_st {
        size_t Width, Height;
        CUarray_format Format;
        unsigned int NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct CUDA_ARRAY3D_DESCRIPTOR_st {
        size_t Width, Height, Depth;
        CUarray_format Format;
        unsigned int NumChannels;
        unsigned int Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

#define CUDA_ARRAY3D_LAYERED          0x01
#define CUDA_ARRAY3D_SURFACE_LDST     0x02
#define CUDA_ARRAY3D_CUBEMAP          0x04
#define CUDA_ARRAY3D_TEXTURE_GATHER   0x08
#define CUDA_ARRAY3D_SPARSE           0x40
#define CUDA_ARRAY3D_DEFERRED_MAPPING 0x80

typedef struct CUDA_ARRAY_MEMORY_REQUIREMENTS_st {
        size_t size, alignment;
        unsigned int reserved[4];
} CUDA_ARRAY_MEMORY_REQUIREMENTS;

typedef struct CUDA_RESOURCE_DESC_st {
        CUresourcetype resType;
        union {
                struct {
                        CUarray hArray;
                } array;
                struct {
                        CUmipmappedArray hMipmappedArray;
                } mipmap;
                struct {
                        CUdeviceptr devPtr;
                        CUarray_format format;
                        unsigned int numChannels;
                        size_t sizeInBytes;
                } linear;
                struct {
                        CUdeviceptr devPtr;
                        CUarray_format format;
                        unsigned int numChannels;
                        size_t width, height, pitchInBytes;
                } pitch2D;
                struct {
                        int reserved[32];
                } reserved;
        } res;
        unsigned int flags;
} CUDA_RESOURCE_DESC;

typedef struct CUDA_TEXTURE_DESC_st {
        CUaddress_mode addressMode[3];
        CUfilter_mode filterMode;
        unsigned int flags;
        unsigned int maxAnisotropy;
        CUfilter_mode mipmapFilterMode;
        float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
        float borderColor[4];
        int reserved[12];
} CUDA_TEXTURE_DESC;

typedef struct CUDA_RESOURCE_VIEW_DESC_st {
        CUresourceViewFormat format;
        size_t width, height, depth;
        unsigned int firstMipmapLevel, lastMipmapLevel, firstLayer, lastLayer;
        unsigned int reserved[16];
} CUDA_RESOURCE_VIEW_DESC;

/* Row lengths and layer heights count elements of the array at the other end of the copy; only the
 * array tells their size. In a copy without an array they count bytes. */
typedef struct CUmemcpy3DOperand_st {
        CUmemcpy3DOperandType type;
        union {
                struct {
                        CUdeviceptr ptr;
                        size_t rowLength, layerHeight;
                        CUmemLocation locHint;
                } ptr;
                struct {
                        CUarray array;
                        struct CUoffset3D_st {
                                size_t x, y, z;
                        } offset;
                } array;
        } op;
} CUmemcpy3DOperand;

typedef struct CUDA_MEMCPY3D_BATCH_OP_st {
        CUmemcpy3DOperand src, dst;
        struct CUextent3D_st {
                size_t width, height, depth;
        } extent;
        CUmemcpySrcAccessOrder srcAccessOrder;
        unsigned int flags;
} CUDA_MEMCPY3D_BATCH_OP;
