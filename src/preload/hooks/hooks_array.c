/* hooks_array.c: arrays and mipmapped arrays. Only the driver knows the layout of their bytes, so
 * they cannot be moved. They are counted as unevictable, and room is requested before they are
 * made. Must never refuse an array for which the card and the daemon have room.
 * Why: docs/decisions.md, "Unevictable memory of the driver is counted in two ways". */
#include <stdbool.h>

#include "base/macros.h"
#include "preload/pool/room.h"
#include "preload/state/core.h"
#include "preload/move/unevictable.h"
#include "preload/hooks/hooks.h"
#include "preload/stream/quiesce.h"

/* How the driver lays an array out (measured, CUDA 13.0 on an H200): in tiles of 64 bytes by 8
 * rows, with up to 16 tiles one above the other. An array of 2 MiB or more has pages of its own. */
#define TILE_BYTES     64u
#define TILE_ROWS      8u
#define TILE_ROWS_MOST 128u
#define PAGE_BYTES     (2 * MIB)

/* Returns the bits of one element. Some formats fix the bits, whatever the number of channels. */
static unsigned format_bits(CUarray_format format, unsigned channels)
{
        switch (format) {
        case CU_AD_FORMAT_UNSIGNED_INT8:
        case CU_AD_FORMAT_SIGNED_INT8:
                return 8 * channels;
        case CU_AD_FORMAT_UNSIGNED_INT16:
        case CU_AD_FORMAT_SIGNED_INT16:
        case CU_AD_FORMAT_HALF:
                return 16 * channels;
        case CU_AD_FORMAT_UNSIGNED_INT32:
        case CU_AD_FORMAT_SIGNED_INT32:
        case CU_AD_FORMAT_FLOAT:
                return 32 * channels;
        case CU_AD_FORMAT_BC1_UNORM:
        case CU_AD_FORMAT_BC1_UNORM_SRGB:
        case CU_AD_FORMAT_BC4_UNORM:
        case CU_AD_FORMAT_BC4_SNORM:
                return 4;
        case CU_AD_FORMAT_BC2_UNORM ... CU_AD_FORMAT_BC3_UNORM_SRGB:
        case CU_AD_FORMAT_BC5_UNORM ... CU_AD_FORMAT_BC7_UNORM_SRGB:
        case CU_AD_FORMAT_UNORM_INT8X1:
        case CU_AD_FORMAT_SNORM_INT8X1:
                return 8;
        case CU_AD_FORMAT_NV12:
                return 12;
        case CU_AD_FORMAT_UNORM_INT8X2:
        case CU_AD_FORMAT_SNORM_INT8X2:
        case CU_AD_FORMAT_UNORM_INT16X1:
        case CU_AD_FORMAT_SNORM_INT16X1:
        case CU_AD_FORMAT_NV16:
        case CU_AD_FORMAT_YUY2:
                return 16;
        case CU_AD_FORMAT_P010:
        case CU_AD_FORMAT_P016:
        case CU_AD_FORMAT_Y444_PLANAR8:
        case CU_AD_FORMAT_YUV444_8bit_SemiPlanar:
                return 24;
        case CU_AD_FORMAT_Y444_PLANAR10:
        case CU_AD_FORMAT_YUV444_16bit_SemiPlanar:
                return 48;
        case CU_AD_FORMAT_UNORM_INT16X4:
        case CU_AD_FORMAT_SNORM_INT16X4:
        case CU_AD_FORMAT_Y416:
                return 64;
        default:
                return 32;
        }
}

size_t hooks_array_element(CUarray array)
{
        CUDA_ARRAY3D_DESCRIPTOR d = {0};

        if (real.cuArray3DGetDescriptor_v2(&d, array) != CUDA_SUCCESS)
                return 1;
        return MAX(format_bits(d.Format, MAX(d.NumChannels, 1U)) / 8, 1U);
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned level)
{
        bool layers = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
        uint64_t width = MAX(d->Width >> level, (size_t)1);
        uint64_t rows = MAX(d->Height >> level, (size_t)1);
        uint64_t slices = MAX(layers ? d->Depth : d->Depth >> level, (size_t)1);
        uint64_t row, bytes;

        row = (width * format_bits(d->Format, MAX(d->NumChannels, 1U)) + 7) / 8;
        row = align_up(row, TILE_BYTES);
        if (d->Height) {
                uint64_t column = TILE_ROWS;

                while (column < rows && column < TILE_ROWS_MOST)
                        column *= 2;
                rows = align_up(rows, column);
        }
        /* The driver itself refuses sizes that overflow. */
        if (__builtin_mul_overflow(row, rows, &bytes) ||
            __builtin_mul_overflow(bytes, slices, &bytes) || bytes > UINT64_MAX / 2)
                return UINT64_MAX / 2;
        return bytes;
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
        uint64_t bytes = 0;

        /* Sparse and deferred arrays get their memory later, by other calls. */
        if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
                return 0;
        for (unsigned i = 0; i < MIN(levels, 32U); i++)
                bytes = MIN(bytes + level_bytes(d, i), UINT64_MAX / 2);
        return bytes < PAGE_BYTES ? bytes : align_up(bytes, PAGE_BYTES);
}

/* Requests room for an array. False: there is no room. *ret NULL: the array is not counted. */
static bool take_array_room(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels,
                            struct unevictable **ret)
{
        CUcontext owner = NULL;
        struct gpu *g;
        uint64_t bytes;

        *ret = NULL;
        (void)core_setup();
        g = d ? core_current_gpu() : NULL;
        if (!g || real.cuCtxGetCurrent(&owner) != CUDA_SUCCESS)
                return true;
        bytes = array_bytes(d, levels);
        if (bytes > g->total) /* let the driver refuse the array: its error says more */
                return true;
        lock_acquire(&core_lock);
        *ret = unevictable_ask(g, quiesce_owner(owner), bytes);
        core.unbooked += *ret != NULL;
        if (!*ret)
                room_tell_unevictable(g, bytes);
        lock_release(&core_lock);
        return *ret;
}

static CUresult taken(struct unevictable *f, CUresult r, const void *handle)
{
        lock_acquire(&core_lock);
        core.unbooked -= f != NULL;
        if (r == CUDA_SUCCESS)
                unevictable_list(f, handle);
        else
                unevictable_return(f);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuArray3DCreate_v2(CUarray *ret_array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
        struct unevictable *room;
        CUresult r;

        if (!take_array_room(shape, 1, &room))
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = HOOKS_RETRY(real.cuArray3DCreate_v2(ret_array, shape));
        return taken(room, r, r == CUDA_SUCCESS ? *ret_array : NULL);
}

CUresult hook_cuArrayCreate_v2(CUarray *ret_array, const CUDA_ARRAY_DESCRIPTOR *shape)
{
        CUDA_ARRAY3D_DESCRIPTOR d = {0};
        struct unevictable *room;
        CUresult r;

        if (shape)
                d = (CUDA_ARRAY3D_DESCRIPTOR){.Width = shape->Width,
                                              .Height = shape->Height,
                                              .Format = shape->Format,
                                              .NumChannels = shape->NumChannels};
        if (!take_array_room(shape ? &d : NULL, 1, &room))
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = HOOKS_RETRY(real.cuArrayCreate_v2(ret_array, shape));
        return taken(room, r, r == CUDA_SUCCESS ? *ret_array : NULL);
}

CUresult hook_cuMipmappedArrayCreate(CUmipmappedArray *ret_mipmap,
                                     const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned int levels)
{
        struct unevictable *room;
        CUresult r;

        if (!take_array_room(shape, levels, &room))
                return CUDA_ERROR_OUT_OF_MEMORY;
        r = HOOKS_RETRY(real.cuMipmappedArrayCreate(ret_mipmap, shape, levels));
        return taken(room, r, r == CUDA_SUCCESS ? *ret_mipmap : NULL);
}

/* Takes a handle off the list before its array is destroyed: once the driver has the handle back,
 * it may give it to another thread. */
static struct unevictable *leaving(const void *handle)
{
        struct unevictable *f = NULL;

        (void)core_setup();
        if (core_passive())
                return NULL;
        lock_acquire(&core_lock);
        f = unevictable_unlist(handle);
        core.unbooked += f != NULL;
        lock_release(&core_lock);
        return f;
}

static CUresult left(struct unevictable *f, CUresult r, const void *handle)
{
        if (!f)
                return r;
        lock_acquire(&core_lock);
        core.unbooked--;
        if (r == CUDA_SUCCESS)
                unevictable_return(f);
        else
                unevictable_list(f, handle);
        lock_release(&core_lock);
        return r;
}

CUresult hook_cuArrayDestroy(CUarray array)
{
        struct unevictable *f = leaving(array);

        return left(f, real.cuArrayDestroy(array), array);
}

CUresult hook_cuMipmappedArrayDestroy(CUmipmappedArray mipmap)
{
        struct unevictable *f = leaving(mipmap);

        return left(f, real.cuMipmappedArrayDestroy(mipmap), mipmap);
}
