/* test_name.c: the name of a program in `sublet status`. */
#include "unit.h"

#include "base/program_name.h"

#define LINE(words) words, sizeof(words)

static void expect(const char *line, size_t length, const char *name)
{
        char got[64];

        name_choose(line, length, "/home/ada/work/lab 3.ipynb", "fallback", got, sizeof(got));
        assert_string_equal(got, name);
}

static void a_program_is_named_after_its_file(void **state)
{
        expect(LINE("/usr/bin/hashcat\0-m\0"
                    "0"),
               "hashcat");
        expect(LINE("./train\0--lr=3"), "train");
        expect(LINE("ollama"), "ollama");
}

static void a_python_program_is_named_after_its_script_or_module(void **state)
{
        expect(LINE("python\0a.py"), "a.py");
        expect(LINE("/opt/conda/bin/python3.12\0-u\0/home/ada/train.py\0--lr\0"
                    "3"),
               "train.py");
        expect(LINE("python3\0-mtorch.distributed.run\0x.py"), "torch.distributed.run");
        expect(LINE("python3\0-um\0vllm.entrypoints.openai.api_server"),
               "vllm.entrypoints.openai.api_server");
        expect(LINE("python3\0-W\0ignore\0-X\0dev\0-Wonce\0-OO\0/usr/bin/jupyter-lab"),
               "jupyter-lab");
        expect(LINE("python3\0--check-hash-based-pycs\0always\0b.py"), "b.py");
}

static void a_jupyter_kernel_is_named_after_its_notebook(void **state)
{
        static const char line[] = "/usr/bin/python3\0-m\0ipykernel_launcher\0-f\0/x/kernel.json";
        char got[64];

        expect(line, sizeof(line), "lab 3.ipynb");
        name_choose(line, sizeof(line), NULL, "x", got, sizeof(got));
        assert_string_equal(got, "ipykernel_launcher");
}

static void python_without_a_script_is_named_after_python(void **state)
{
        expect(LINE("/usr/bin/python3"), "python3");
        expect(LINE("python3\0-c\0import torch\0-m\0x"), "python3");
        expect(LINE("python3\0-Ic\0x"), "python3");
        expect(LINE("python3\0-\0x"), "python3");
        expect(LINE("python3\0-m"), "python3");
        expect(LINE("python3\0-W"), "python3");
        expect(LINE("python3\0--check-hash-based-pycs"), "python3");
}

static void a_shell_is_named_after_its_script(void **state)
{
        expect(LINE("bash\0/home/ada/job.sh\0-c"), "job.sh");
        expect(LINE("/bin/sh\0-eu\0-o\0pipefail\0+x\0job.sh"), "job.sh");
        expect(LINE("bash\0--norc\0--rcfile\0rc\0--\0job.sh"), "job.sh");
        expect(LINE("bash\0-c\0python3 a.py"), "bash");
        expect(LINE("sh\0-lc\0python3 a.py"), "sh");
        expect(LINE("bash\0-s\0word"), "bash");
        expect(LINE("bash\0-o"), "bash");
        expect(LINE("bash"), "bash");
}

static void a_command_is_named_as_its_process_will_be(void **state)
{
        static char *const python[] = {"python3", "-u", "work/train.py", "--lr", "3", NULL};
        static char *const program[] = {"./run", NULL}, *const none[] = {NULL};
        static char word[2 * NAME_LINE_MAX];
        char *const many[] = {"python3", "a.py", word, NULL};
        char got[64];

        name_of_words(python, got, sizeof(got));
        assert_string_equal(got, "train.py");
        name_of_words(program, got, sizeof(got));
        assert_string_equal(got, "run");
        name_of_words(none, got, sizeof(got));
        assert_string_equal(got, "?");
        memset(word, 'x', sizeof(word) - 1);
        name_of_words(many, got, sizeof(got));
        assert_string_equal(got, "a.py");
}

static void a_useless_command_line_gives_the_fallback(void **state)
{
        char got[8];

        expect("", 0, "fallback");
        expect("\0x", 3, "fallback");
        expect("no end", 6, "fallback");
        expect("python3\0cut-off", 15, "python3");
        name_choose(LINE("python\0much-too-long.py"), NULL, "x", got, sizeof(got));
        assert_string_equal(got, "much-to");
        name_choose(LINE("python\0übergro\xc3\x9f.py"), NULL, "x", got, sizeof(got));
        assert_string_equal(got, "übergr");
}

static void control_characters_in_a_name_are_replaced(void **state)
{
        expect(LINE("python\0\x1b[2J\n\xd0\xb6.py"), "?[2J?ж.py");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_program_is_named_after_its_file),
                cmocka_unit_test(a_python_program_is_named_after_its_script_or_module),
                cmocka_unit_test(a_jupyter_kernel_is_named_after_its_notebook),
                cmocka_unit_test(python_without_a_script_is_named_after_python),
                cmocka_unit_test(a_shell_is_named_after_its_script),
                cmocka_unit_test(a_command_is_named_as_its_process_will_be),
                cmocka_unit_test(a_useless_command_line_gives_the_fallback),
                cmocka_unit_test(control_characters_in_a_name_are_replaced),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
