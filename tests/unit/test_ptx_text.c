/* test_ptx_text.c: errors in a module's text are reported with their line; broken text does no
 * harm. It must never depend on the time or on unseeded chance. */
#include "ptx_machine.h"

static const char *const fixture[] = {
        "control.sm90.ptx", "elementwise.sm90.ptx", "math.sm90.ptx", "reduce.sm90.ptx", "hand.ptx",
};

#define HEAD ".version 8.4\n.target sm_80\n.address_size 64\n"
/* The body starts on line 9. */
#define KERNEL(body)                                                                   \
        HEAD ".visible .entry k(.param .u64 p, .param .u32 n)\n{\n"                    \
             ".reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<4>; .reg .pred %p<4>;\n" \
             ".reg .b16 %h<4>; .reg .f64 %d<4>;\n.shared .align 4 .b8 s[64];\n" body "\nret;\n}\n"

static void invalid_ptx_is_refused_with_its_line_and_instruction(void **state)
{
        static const struct {
                const char *text, *says, *line;
        } wrong[] = {
                {KERNEL("frobnicate.u32 %r1, %r2;"), "frobnicate.u32: unknown instruction",
                 "line 9:"},
                {KERNEL("add.u32 %r1, %r2, %r3;\n\nadd.u99 %r1, %r2, %r3;"), "add.u99", "line 11:"},
                {KERNEL("add.f32 %f1, %f2, %d1;"), "'%d1' is .f64 where .f32 belongs", "line 9:"},
                {KERNEL("add.u32 %r1, %r2;"), "2 operands", "line 9:"},
                {KERNEL("add.u32 %r1, %r2, %r3"), "where ';' belongs", "line 10:"},
                {KERNEL("add.u32 %r1, %r2, %r9;"), "unknown register '%r9'", "line 9:"},
                {KERNEL("add.f32 %f1, %f2, 1;"), "an integer where a float belongs", "line 9:"},
                {KERNEL("add.rq.f32 %f1, %f2, %f3;"), "add.rq.f32", "line 9:"},
                {KERNEL("add.ftz.u32 %r1, %r2, %r3;"), "a modifier for floats", "line 9:"},
                {KERNEL("bra nowhere;"), "label 'nowhere' is not defined", "line 9:"},
                {KERNEL("L: L: ret;"), "'L' is declared twice", "line 9:"},
                {KERNEL("@%r1 bra L; L:"), "'%r1' is no predicate", "line 9:"},
                {KERNEL("ld.global.u32 %r1, [%h1];"), "as an address", "line 9:"},
                {KERNEL("ld.global.u64 %r1, [%rd1];"), "register '%r1' is .b32", "line 9:"},
                {KERNEL("ld.param.u64 %rd1, [n];"), "beyond the parameter's end", "line 9:"},
                {KERNEL("ld.param.u32 %r1, [p+100];"), "beyond the parameter's end", "line 9:"},
                {KERNEL("st.const.u32 [%rd1], %r1;"), "cannot be written", "line 9:"},
                {KERNEL("ld.global.v4.u32 {%r1, %r2}, [%rd1];"), "number of registers", "line 9:"},
                {KERNEL("ld.purple.u32 %r1, [%rd1];"), "unknown modifier '.purple'", "line 9:"},
                {KERNEL("atom.global.cas.f32 %f1, [%rd1], %f2, %f3;"), "not known", "line 9:"},
                {KERNEL("call nobody, (%r1);"), "the function is not declared", "line 9:"},
                {KERNEL("mov.u32 %r1, 0x;"), "", "line 9:"},
                {KERNEL("mov.u32 %r1, 99999999999999999999999;"), "", "line 9:"},
                {KERNEL("mov.f32 %f1, 0f3F8;"), "", "line 9:"},
                {KERNEL("mov.u32 %r1, %tid.w;"), "unknown register '%tid.w'", "line 9:"},
                {KERNEL("mov.u32 %r1, %clock64;"), "is 64 bits wide", "line 9:"},
                {KERNEL("wmma.load.a.sync.aligned.row.m16n16k16.f16 {%r1}, [%rd1];"), "wmma.load",
                 "line 9:"},
                {KERNEL("cp.async.ca.shared.global [%r1], [%rd1], 16;"), "cp.async", "line 9:"},
                {KERNEL(".shared .align 3 .b8 t[4];"), "no power of two", "line 9:"},
                {KERNEL(".shared .b8 t[99999999];"), "too much shared memory", "line 9:"},
                {KERNEL(".local .b8 t[99999999];"), "local memory", "line 9:"},
                {KERNEL(".reg .b32 %x<4000000000>;"), "too many registers", "line 9:"},
                {HEAD ".visible .entry k(\n.param .u64 p\n{ret;}", "where ')' belongs", "line 6:"},
                {HEAD ".entry k() {ret;} .entry k() {ret;}", "'k' is defined twice", "line 4:"},
                {HEAD ".global .u32 a[2] = {1, 2, 3};", "more initial values than 'a'", "line 4:"},
                {HEAD ".global .u32 a = b;", "'b' cannot be an initial value", "line 4:"},
                {HEAD ".extern .global .u32 a;", "'a' is defined in no module", "line 4:"},
                {HEAD ".visible .entry k() { add.u32", "the text ends", "line 4:"},
                {HEAD ".visible .entry k() { {", "", "line 4:"},
                {HEAD "nonsense", "'nonsense' where a directive belongs", "line 4:"},
                {".version 8.4\n.address_size 32\n", "64-bit addresses", "line 2:"},
                {"\x7f"
                 "ELF\x02\x01",
                 "directive", "line 1:"},
        };
        char error[PTX_ERROR_MAX];

        for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
                struct ptx_module *m = NULL;

                if (ptx_parse(wrong[i].text, strlen(wrong[i].text), &m, error) != -EINVAL)
                        fail_msg("case %zu is accepted: %s", i, wrong[i].text);
                if (!strstr(error, wrong[i].says) || !strstr(error, wrong[i].line))
                        fail_msg("case %zu: '%s' lacks '%s' or '%s'", i, error, wrong[i].says,
                                 wrong[i].line);
                assert_null(m);
        }
}

static void an_empty_module_has_no_kernels(void **state)
{
        char error[PTX_ERROR_MAX];
        struct ptx_module *m;

        assert_int_equal(ptx_parse("", 0, &m, error), 0);
        assert_null(ptx_module_kernel_at(m, 0));
        assert_null(ptx_module_kernel(m, "k"));
        assert_null(ptx_module_variable_at(m, 0));
        ptx_module_free(m);
        ptx_module_free(NULL);
}

static void a_kernel_tells_its_parameters_and_memory(void **state)
{
        static const char text[] =
                HEAD ".extern .shared .align 16 .b8 dynamic[];\n.shared .align 8 .b8 all[24];\n"
                     ".visible .entry k(.param .u8 a, .param .align 16 .b8 b[20], .param .u64 c)\n"
                     ".reqntid 32, 4\n{\n.shared .b32 own; .local .align 8 .b8 l[40];\n"
                     ".reg .b32 %r; mov.u32 %r, all; mov.u32 %r, dynamic; ret;\n}\n";
        char error[PTX_ERROR_MAX];
        const struct ptx_kernel_info *info;
        struct ptx_module *m;

        if (ptx_parse(text, sizeof(text), &m, error) < 0)
                fail_msg("%s", error);
        info = ptx_kernel_info(ptx_module_kernel(m, "k"));
        assert_string_equal(info->name, "k");
        assert_int_equal(info->parameters, 3);
        assert_int_equal(info->parameter[1].offset, 16);
        assert_int_equal(info->parameter[1].bytes, 20);
        assert_int_equal(info->parameter[1].align, 16);
        assert_int_equal(info->parameter[2].offset, 40);
        assert_int_equal(info->parameter_bytes, 48);
        assert_int_equal(info->max_threads, 128);
        assert_int_equal(info->local_bytes, 40);
        assert_true(info->static_shared_bytes >= 28);
        ptx_module_free(m);
}

static void variables_come_with_their_initial_bytes(void **state)
{
        static const char text[] =
                HEAD ".global .align 4 .u16 a[4] = {1, 0x203, -1};\n.const .f32 b = 1.5;\n"
                     ".global .u64 c = generic(a)+2;\n.visible .global .align 32 .b8 d[100];\n";
        static const uint8_t bytes[8] = {1, 0, 3, 2, 0xff, 0xff, 0, 0};
        char error[PTX_ERROR_MAX];
        struct ptx_module *m;
        float b;

        if (ptx_parse(text, sizeof(text), &m, error) < 0)
                fail_msg("%s", error);
        assert_string_equal(ptx_module_variable_at(m, 0)->name, "a");
        assert_int_equal(ptx_module_variable_at(m, 0)->bytes, 8);
        assert_memory_equal(ptx_module_variable_at(m, 0)->initial, bytes, 8);
        assert_true(ptx_module_variable_at(m, 1)->constant);
        memcpy(&b, ptx_module_variable_at(m, 1)->initial, 4);
        assert_true(b > 1.4F && b < 1.6F);
        ptx_module_place(m, 0, 0x7f1234567800);
        assert_int_equal(*(const uint64_t *)(const void *)ptx_module_variable_at(m, 2)->initial,
                         0x7f1234567802);
        assert_null(ptx_module_variable_at(m, 3)->initial);
        assert_int_equal(ptx_module_variable_at(m, 3)->align, 32);
        assert_null(ptx_module_variable_at(m, 4));
        ptx_module_free(m);
}

static void text_cut_anywhere_does_no_harm(void **state)
{
        for (size_t f = 0; f < sizeof(fixture) / sizeof(fixture[0]); f++) {
                char error[PTX_ERROR_MAX], *text, *cut;
                size_t bytes;

                text = machine_text(fixture[f], &bytes);
                for (size_t n = 0; n < bytes; n += 1 + n % 97) {
                        struct ptx_module *m = NULL;

                        /* A buffer of exactly this size, so that a sanitizer sees reads past its
                         * end. */
                        cut = malloc(n + 1);
                        memcpy(cut, text, n);
                        if (ptx_parse(cut, n, &m, error) == 0)
                                ptx_module_free(m);
                        else
                                assert_true(error[0]);
                        free(cut);
                }
                free(text);
        }
}

static size_t line_start(const char *text, size_t at)
{
        while (at > 0 && text[at - 1] != '\n')
                at--;
        return at;
}

/* Half of the changes probably still parse: another digit, lines in another order. */
static void mutate(char *text, size_t *bytes, size_t room, uint64_t *random)
{
        static const char spice[] = "0123456789%{}[]();,.@!|<>+-=:rduf \n\t$_\"/*";
        unsigned changes = 1 + (unsigned)(machine_random(random) % 4);

        for (unsigned i = 0; i<changes && * bytes> 300; i++) {
                size_t at = machine_random(random) % (*bytes - 200);
                size_t from = machine_random(random) % (*bytes - 200);
                size_t n = 1 + machine_random(random) % 60, digit = at;

                switch (machine_random(random) % 10) {
                case 0:
                        text[at] = spice[machine_random(random) % (sizeof(spice) - 1)];
                        break;
                case 1:
                        text[at] = (char)machine_random(random);
                        break;
                case 2:
                        memmove(text + at, text + from, n);
                        break;
                case 3:
                        memmove(text + at, text + at + n, *bytes - at - n);
                        *bytes -= n;
                        break;
                case 4:
                        at = line_start(text, at);
                        from = line_start(text, from);
                        n = (size_t)((char *)memchr(text + from, '\n', *bytes - from) - text) + 1 -
                            from;
                        if (*bytes + n > room || n > 200)
                                break;
                        memmove(text + at + n, text + at, *bytes - at);
                        memmove(text + at, text + from + (from >= at ? n : 0), n);
                        *bytes += n;
                        break;
                default:
                        while (digit < *bytes && (text[digit] < '0' || text[digit] > '9'))
                                digit++;
                        if (digit < *bytes)
                                text[digit] = (char)('0' + machine_random(random) % 10);
                }
        }
}

static unsigned polls;

static bool soon(void *context)
{
        return ++polls > 3;
}

static void *resolve_little(void *context, uint64_t address, size_t bytes, bool write,
                            uint64_t *ret_start, uint64_t *ret_end)
{
        uint8_t *memory = context;

        if (address < MACHINE_BASE || address - MACHINE_BASE > 4096 ||
            bytes > 4096 - (address - MACHINE_BASE))
                return NULL;
        *ret_start = MACHINE_BASE;
        *ret_end = MACHINE_BASE + 4096;
        return memory + (address - MACHINE_BASE);
}

/* Runs each kernel that still parses: with a good address in every parameter it must end and touch
 * nothing else. */
static unsigned run_all(struct ptx_module *m, uint8_t *memory)
{
        static uint64_t parameters[8192];
        const struct ptx_memory reach = {
                .resolve = resolve_little, .cancelled = soon, .context = memory};
        const struct ptx_launch launch = {.grid = {2, 1, 1},
                                          .block = {40, 1, 1},
                                          .dynamic_shared_bytes = 64,
                                          .parameters = parameters};
        char error[PTX_ERROR_MAX];
        unsigned good = 0;

        for (size_t i = 0; i < 8192; i++)
                parameters[i] = MACHINE_BASE;
        for (size_t i = 0; ptx_module_variable_at(m, i); i++)
                ptx_module_place(m, i, MACHINE_BASE + 1024);
        for (size_t i = 0; ptx_module_kernel_at(m, i); i++) {
                polls = 0;
                good += ptx_run(ptx_module_kernel_at(m, i), &launch, &reach, error) == 0;
        }
        return good;
}

static void text_changed_anywhere_does_no_harm(void **state)
{
        enum { ROOM = 1 << 16, ROUNDS = 400 };
        uint8_t *memory = calloc(1, 4096);
        char *text = malloc(ROOM);
        uint64_t random = 2026;
        unsigned parsed = 0, good = 0;

        for (size_t f = 0; f < sizeof(fixture) / sizeof(fixture[0]); f++) {
                char error[PTX_ERROR_MAX], *original;
                size_t bytes;

                original = machine_text(fixture[f], &bytes);
                assert_true(bytes < ROOM / 2);
                for (unsigned round = 0; round < ROUNDS; round++) {
                        struct ptx_module *m = NULL;
                        size_t n = bytes;

                        memcpy(text, original, bytes);
                        mutate(text, &n, ROOM, &random);
                        if (ptx_parse(text, n, &m, error) < 0) {
                                assert_true(error[0]);
                                continue;
                        }
                        parsed++;
                        good += run_all(m, memory);
                        ptx_module_free(m);
                }
                free(original);
        }
        /* The changes are small enough that many texts get as far as running. */
        assert_true(parsed > 100);
        assert_true(good > 100);
        free(text);
        free(memory);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(invalid_ptx_is_refused_with_its_line_and_instruction),
                cmocka_unit_test(an_empty_module_has_no_kernels),
                cmocka_unit_test(a_kernel_tells_its_parameters_and_memory),
                cmocka_unit_test(variables_come_with_their_initial_bytes),
                cmocka_unit_test(text_cut_anywhere_does_no_harm),
                cmocka_unit_test(text_changed_anywhere_does_no_harm),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
