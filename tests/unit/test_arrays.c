/* test_arrays.c: room for an array is requested before it is made, as many bytes as the driver will
 * take, and given back when the array is gone. */
#include "unit.h"

#include "base/macros.h"
#include "fakes/preload.h"
#include "preload/move/unevictable.h"
#include "preload/hooks/hooks.h"

#define PAGE  (2 * MIB)
#define OWNER ((CUcontext)(uintptr_t)0xc0)
#define ARRAY ((CUarray)(uintptr_t)0xa0)
#define MIPS  ((CUmipmappedArray)(uintptr_t)0xb0)

static struct gpu *const gpu = &core.gpus[0];
static CUresult answer;      /* the driver's answer */
static unsigned made;        /* calls that reached the driver */
static unsigned short_calls; /* calls that the driver fails at first for lack of memory */
static bool no_context;

/* ---- fakes of other modules ---- */

static CUresult fake_current(CUcontext *ret)
{
        *ret = OWNER;
        return no_context ? CUDA_ERROR_NOT_INITIALIZED : CUDA_SUCCESS;
}

static CUresult make(void)
{
        assert_int_equal(atomic_load(&core_lock.word), 0);
        if (gpu->unevictable > 0)
                assert_int_equal(core.unbooked, 1);
        made++;
        if (short_calls > 0) {
                short_calls--;
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        return answer;
}

static CUresult fake_3d(CUarray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
        *ret = ARRAY;
        return make();
}

static CUresult fake_2d(CUarray *ret, const CUDA_ARRAY_DESCRIPTOR *d)
{
        *ret = ARRAY;
        return make();
}

static CUresult fake_mips(CUmipmappedArray *ret, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned levels)
{
        *ret = MIPS;
        return make();
}

static CUresult fake_destroy(CUarray array)
{
        return make();
}

static CUresult fake_destroy_mips(CUmipmappedArray array)
{
        return make();
}

static int begin(void **state)
{
        core_lock = (struct lock){0};
        core = (struct core){.gpu_count = 1};
        gpu->total = GIB;
        answer = CUDA_SUCCESS;
        made = short_calls = 0;
        unevictable_room = UINT64_MAX;
        more_rooms = 4;
        current_gpu = gpu;
        no_context = false;
        real = (struct real_driver){.cuCtxGetCurrent = fake_current,
                                    .cuArray3DCreate_v2 = fake_3d,
                                    .cuArrayCreate_v2 = fake_2d,
                                    .cuMipmappedArrayCreate = fake_mips,
                                    .cuArrayDestroy = fake_destroy,
                                    .cuMipmappedArrayDestroy = fake_destroy_mips};
        return 0;
}

static int end(void **state)
{
        assert_int_equal(gpu->unevictable, 0);
        assert_int_equal(core.unbooked, 0);
        assert_int_equal(atomic_load(&core_lock.word), 0);
        return 0;
}

/* ---- the bytes of an array ---- */

static CUDA_ARRAY3D_DESCRIPTOR shape(size_t width, size_t height, size_t depth)
{
        return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width,
                                         .Height = height,
                                         .Depth = depth,
                                         .Format = CU_AD_FORMAT_UNSIGNED_INT8,
                                         .NumChannels = 1};
}

static uint64_t room_of(CUDA_ARRAY3D_DESCRIPTOR d)
{
        CUarray array;
        uint64_t bytes;

        assert_int_equal(hook_cuArray3DCreate_v2(&array, &d), CUDA_SUCCESS);
        bytes = gpu->unevictable;
        assert_int_equal(hook_cuArrayDestroy(array), CUDA_SUCCESS);
        assert_int_equal(gpu->unevictable, 0);
        return bytes;
}

static uint64_t room_of_mips(CUDA_ARRAY3D_DESCRIPTOR d, unsigned levels)
{
        CUmipmappedArray array;
        uint64_t bytes;

        assert_int_equal(hook_cuMipmappedArrayCreate(&array, &d, levels), CUDA_SUCCESS);
        bytes = gpu->unevictable;
        assert_int_equal(hook_cuMipmappedArrayDestroy(array), CUDA_SUCCESS);
        assert_int_equal(gpu->unevictable, 0);
        return bytes;
}

static void an_element_has_the_bits_of_its_format(void **state)
{
        static const struct {
                CUarray_format format;
                unsigned channels, bits;
        } formats[] = {
                {CU_AD_FORMAT_UNSIGNED_INT8, 1, 8},   {CU_AD_FORMAT_SIGNED_INT8, 4, 32},
                {CU_AD_FORMAT_UNSIGNED_INT16, 2, 32}, {CU_AD_FORMAT_SIGNED_INT16, 1, 16},
                {CU_AD_FORMAT_HALF, 4, 64},           {CU_AD_FORMAT_UNSIGNED_INT32, 1, 32},
                {CU_AD_FORMAT_SIGNED_INT32, 2, 64},   {CU_AD_FORMAT_FLOAT, 4, 128},
                {CU_AD_FORMAT_FLOAT, 0, 32},          {CU_AD_FORMAT_BC1_UNORM, 4, 4},
                {CU_AD_FORMAT_BC1_UNORM_SRGB, 4, 4},  {CU_AD_FORMAT_BC4_UNORM, 1, 4},
                {CU_AD_FORMAT_BC4_SNORM, 1, 4},       {CU_AD_FORMAT_BC2_UNORM, 4, 8},
                {CU_AD_FORMAT_BC3_UNORM_SRGB, 4, 8},  {CU_AD_FORMAT_BC5_UNORM, 2, 8},
                {CU_AD_FORMAT_BC7_UNORM_SRGB, 4, 8},  {CU_AD_FORMAT_UNORM_INT8X1, 1, 8},
                {CU_AD_FORMAT_SNORM_INT8X1, 1, 8},    {CU_AD_FORMAT_NV12, 3, 12},
                {CU_AD_FORMAT_UNORM_INT8X2, 2, 16},   {CU_AD_FORMAT_SNORM_INT8X2, 2, 16},
                {CU_AD_FORMAT_UNORM_INT16X1, 1, 16},  {CU_AD_FORMAT_SNORM_INT16X1, 1, 16},
                {CU_AD_FORMAT_NV16, 3, 16},           {CU_AD_FORMAT_YUY2, 3, 16},
                {CU_AD_FORMAT_P010, 3, 24},           {CU_AD_FORMAT_P016, 3, 24},
                {CU_AD_FORMAT_Y444_PLANAR8, 3, 24},   {CU_AD_FORMAT_YUV444_8bit_SemiPlanar, 3, 24},
                {CU_AD_FORMAT_Y444_PLANAR10, 3, 48},  {CU_AD_FORMAT_YUV444_16bit_SemiPlanar, 3, 48},
                {CU_AD_FORMAT_UNORM_INT16X4, 4, 64},  {CU_AD_FORMAT_SNORM_INT16X4, 4, 64},
                {CU_AD_FORMAT_Y416, 4, 64},           {CU_AD_FORMAT_UNORM_INT8X4, 4, 32},
                {CU_AD_FORMAT_UNORM_INT16X2, 2, 32},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(formats); i++) {
                CUDA_ARRAY3D_DESCRIPTOR d = shape(4096, 0, 0);

                d.Format = formats[i].format;
                d.NumChannels = formats[i].channels;
                assert_int_equal(room_of(d), 4096 / 8 * formats[i].bits);
        }
}

static void rows_are_whole_tiles_of_64_bytes(void **state)
{
        CUDA_ARRAY3D_DESCRIPTOR half = shape(129, 0, 0);

        assert_int_equal(room_of(shape(1, 0, 0)), 64);
        assert_int_equal(room_of(shape(64, 0, 0)), 64);
        assert_int_equal(room_of(shape(65, 0, 0)), 128);
        half.Format = CU_AD_FORMAT_BC4_UNORM; /* half a byte an element: 64.5 bytes */
        assert_int_equal(room_of(half), 128);
}

static void columns_are_tiles_of_8_rows_up_to_16_of_them(void **state)
{
        static const unsigned rows[][2] = {{1, 8},     {8, 8},     {9, 16},    {16, 16},
                                           {17, 32},   {64, 64},   {65, 128},  {128, 128},
                                           {129, 256}, {256, 256}, {257, 384}, {300, 384}};

        for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
                assert_int_equal(room_of(shape(64, rows[i][0], 0)), 64 * rows[i][1]);
        assert_int_equal(room_of(shape(64, 8, 3)), 3 * 64 * 8);
}

static void large_arrays_have_pages_of_their_own(void **state)
{
        assert_int_equal(room_of(shape(PAGE - 64, 0, 0)), PAGE - 64);
        assert_int_equal(room_of(shape(PAGE, 0, 0)), PAGE);
        assert_int_equal(room_of(shape(PAGE + 1, 0, 0)), 2 * PAGE);
        assert_int_equal(room_of(shape(4 * PAGE, 0, 0)), 4 * PAGE);
}

static void each_mipmap_level_halves_the_one_before(void **state)
{
        CUDA_ARRAY3D_DESCRIPTOR d = shape(256, 16, 4);

        assert_int_equal(room_of_mips(d, 0), 0);
        assert_int_equal(room_of_mips(d, 1), 256 * 16 * 4);
        assert_int_equal(room_of_mips(d, 2), 256 * 16 * 4 + 128 * 8 * 2);
        assert_int_equal(room_of_mips(d, 4), 256 * 16 * 4 + 128 * 8 * 2 + 64 * 8 + 64 * 8);
        d.Flags = CUDA_ARRAY3D_LAYERED; /* each level has all layers */
        assert_int_equal(room_of_mips(d, 2), 256 * 16 * 4 + 128 * 8 * 4);
        d.Flags = CUDA_ARRAY3D_CUBEMAP;
        assert_int_equal(room_of_mips(d, 2), 256 * 16 * 4 + 128 * 8 * 4);
        /* The driver refuses more levels than the size has bits. */
        assert_int_equal(room_of_mips(shape(1, 0, 0), 1000), 32 * 64);
}

static void a_flat_array_is_as_large_as_one_of_depth_zero(void **state)
{
        const CUDA_ARRAY_DESCRIPTOR d = {
                .Width = 100, .Height = 20, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 2};
        CUarray array;

        assert_int_equal(hook_cuArrayCreate_v2(&array, &d), CUDA_SUCCESS);
        assert_int_equal(gpu->unevictable, 832 * 32);
        assert_int_equal(hook_cuArrayDestroy(array), CUDA_SUCCESS);
}

static void arrays_that_get_their_memory_later_need_no_room(void **state)
{
        CUDA_ARRAY3D_DESCRIPTOR d = shape(PAGE, 0, 0);

        d.Flags = CUDA_ARRAY3D_SPARSE;
        assert_int_equal(room_of(d), 0);
        d.Flags = CUDA_ARRAY3D_DEFERRED_MAPPING;
        assert_int_equal(room_of(d), 0);
}

/* ---- calls of the program ---- */

static void an_array_larger_than_the_card_goes_to_the_driver(void **state)
{
        assert_int_equal(room_of(shape(GIB, 0, 0)), GIB);
        assert_int_equal(room_of(shape(GIB + 1, 0, 0)), 0);
        assert_int_equal(room_of(shape(SIZE_MAX / 64, SIZE_MAX / 64, 0)), 0);
        assert_int_equal(room_of(shape(1 << 20, 1 << 20, SIZE_MAX / 64)), 0);
        assert_int_equal(room_of_mips(shape(SIZE_MAX / 64, SIZE_MAX / 64, 0), 9), 0);
        assert_int_equal(made, 10);
}

static void an_array_that_cannot_be_counted_goes_to_the_driver(void **state)
{
        CUarray array;
        CUmipmappedArray mips;

        current_gpu = NULL;
        assert_int_equal(room_of(shape(1, 0, 0)), 0);
        current_gpu = gpu;
        no_context = true;
        assert_int_equal(room_of(shape(1, 0, 0)), 0);
        no_context = false;
        answer = CUDA_ERROR_INVALID_VALUE;
        assert_int_equal(hook_cuArray3DCreate_v2(&array, NULL), answer);
        assert_int_equal(hook_cuArrayCreate_v2(&array, NULL), answer);
        assert_int_equal(hook_cuMipmappedArrayCreate(&mips, NULL, 1), answer);
        assert_int_equal(made, 7);
}

static CUresult create(unsigned how)
{
        const CUDA_ARRAY3D_DESCRIPTOR d = shape(64, 0, 0);
        const CUDA_ARRAY_DESCRIPTOR flat = {
                .Width = 64, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};
        CUmipmappedArray mips;
        CUarray array;

        return how == 0   ? hook_cuArray3DCreate_v2(&array, &d)
               : how == 1 ? hook_cuArrayCreate_v2(&array, &flat)
                          : hook_cuMipmappedArrayCreate(&mips, &d, 1);
}

static void destroy(unsigned how)
{
        assert_int_equal(how < 2 ? hook_cuArrayDestroy(ARRAY) : hook_cuMipmappedArrayDestroy(MIPS),
                         answer);
}

static void each_call_sets_the_library_up(void **state)
{
        core_setups = 0;
        for (unsigned how = 0; how < 3; how++) {
                assert_int_equal(create(how), CUDA_SUCCESS);
                assert_int_equal(core_setups, 2 * how + 1);
                destroy(how);
                assert_int_equal(core_setups, 2 * how + 2);
        }
}

static void without_room_the_driver_is_not_asked(void **state)
{
        unevictable_room = 63;
        for (unsigned how = 0; how < 3; how++)
                assert_int_equal(create(how), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(made, 0);
}

static void an_array_that_the_driver_refuses_keeps_no_room(void **state)
{
        answer = CUDA_ERROR_INVALID_VALUE;
        for (unsigned how = 0; how < 3; how++) {
                assert_int_equal(create(how), answer);
                assert_int_equal(gpu->unevictable, 0);
        }
}

static void a_driver_that_lacks_memory_is_asked_again(void **state)
{
        for (unsigned how = 0; how < 3; how++) {
                short_calls = 1;
                assert_int_equal(create(how), CUDA_SUCCESS);
                assert_int_equal(gpu->unevictable, 64);
                destroy(how);
        }
        assert_int_equal(made, 9);
}

static void an_array_that_the_driver_keeps_stays_counted(void **state)
{
        for (unsigned how = 0; how < 3; how++) {
                assert_int_equal(create(how), CUDA_SUCCESS);
                answer = CUDA_ERROR_INVALID_HANDLE;
                destroy(how);
                assert_int_equal(gpu->unevictable, 64);
                assert_int_equal(core.unbooked, 0);
                answer = CUDA_SUCCESS;
                destroy(how);
                assert_int_equal(gpu->unevictable, 0);
        }
}

static void a_bystander_counts_nothing(void **state)
{
        assert_int_equal(create(0), CUDA_SUCCESS);
        atomic_store(&core.bystander, true);
        made = 0;
        answer = CUDA_ERROR_DEINITIALIZED;
        core.unbooked = 1; /* the fake driver expects it: the hook itself counts nothing here */
        destroy(0);
        core.unbooked = 0;
        assert_int_equal(made, 1);
        assert_int_equal(gpu->unevictable, 64);
        atomic_store(&core.bystander, false);
        answer = CUDA_SUCCESS;
        destroy(0);
}

#define ARRAY_TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
        const struct CMUnitTest tests[] = {
                ARRAY_TEST(an_element_has_the_bits_of_its_format),
                ARRAY_TEST(rows_are_whole_tiles_of_64_bytes),
                ARRAY_TEST(columns_are_tiles_of_8_rows_up_to_16_of_them),
                ARRAY_TEST(large_arrays_have_pages_of_their_own),
                ARRAY_TEST(each_mipmap_level_halves_the_one_before),
                ARRAY_TEST(a_flat_array_is_as_large_as_one_of_depth_zero),
                ARRAY_TEST(arrays_that_get_their_memory_later_need_no_room),
                ARRAY_TEST(an_array_larger_than_the_card_goes_to_the_driver),
                ARRAY_TEST(an_array_that_cannot_be_counted_goes_to_the_driver),
                ARRAY_TEST(each_call_sets_the_library_up),
                ARRAY_TEST(without_room_the_driver_is_not_asked),
                ARRAY_TEST(an_array_that_the_driver_refuses_keeps_no_room),
                ARRAY_TEST(a_driver_that_lacks_memory_is_asked_again),
                ARRAY_TEST(an_array_that_the_driver_keeps_stays_counted),
                ARRAY_TEST(a_bystander_counts_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
