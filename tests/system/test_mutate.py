"""./dev mutate draws changes to the sources, and finds those that no test notices."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from world import ROOT

CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(tiny LANGUAGES C)
enable_testing()
add_executable(test_sum test_sum.c src/base/sum.c)
add_test(NAME test_sum COMMAND test_sum)
"""

SUM = """/* sum.c: two functions, of which one is tested. */
int tested(int a, int b)
{
        return a + b;
}

int untested(int a, int b)
{
        return a - b;
}
"""

SILENT = """/* said.c: says something. */
void said(int *ret, int a)
{
        /* a < 1 */
        log_debug("%d",
                  a + 1);
        if (log_enabled(a < 2))
                log_info("a && b");
        free(ret);
#if LEVEL > 3
        *ret = a;
#endif
}
"""

HOLDS = "int tested(int a, int b);\nint main(void) { return tested(2, 3) != 5; }\n"


@pytest.fixture
def tiny(tmp_path):
    for path, text in (("CMakeLists.txt", CMAKE), ("src/base/sum.c", SUM), ("test_sum.c", HOLDS), (".gitignore", "build-*/\n")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    return tmp_path


def mutate(root, *args):
    done = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "mutate.py"), "--root", str(root), *map(str, args)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_seed_alone_decides_the_draw():
    first = mutate(ROOT, "--list", "--seed", "1", "--count", "30")
    assert len(re.findall(r"^src/\S+:\d+ ", first, flags=re.M)) == 30
    assert mutate(ROOT, "--list", "--seed", "1", "--count", "30") == first
    assert mutate(ROOT, "--list", "--seed", "2", "--count", "30") != first


def test_a_change_elsewhere_leaves_the_draw_as_it_was(tiny):
    def drawn():
        return re.findall(r"^[-+] .*", mutate(tiny, "--list", "--seed", "1", "--count", "1"), flags=re.M)

    before = drawn()
    (tiny / "src/base/sum.c").write_text("/* A line more. */\n" + SUM)
    assert drawn() == before


def test_messages_and_comments_are_not_drawn(tiny):
    (tiny / "src/base/sum.c").unlink()
    (tiny / "src/base/said.c").write_text(SILENT)
    said = mutate(tiny, "--list", "--seed", "1", "--count", "9")
    assert re.findall(r"^- .*", said, flags=re.M) == ["-        *ret = a;"]


def no_namespaces():
    probe = ["unshare", "--map-root-user", "--user", "--pid", "--fork", "--mount-proc", "true"]
    return not shutil.which("unshare") or os.geteuid() != 0 and subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode


@pytest.mark.skipif(no_namespaces(), reason="needs namespaces for processes")
def test_a_change_that_no_test_notices_survives_and_is_shown(tiny):
    said = mutate(tiny, "--seed", "1", "--count", "2")
    assert re.search(r"caught +src/base/sum.c:4 .* by test_sum", said)
    assert re.search(r"survived +src/base/sum.c:9 ", said)
    assert "-        return a - b;" in said.split("1 survived")[1]
    assert re.search(r"^wire and base +2 +1 +1 +0 +50 %$", said, flags=re.M)
    assert (tiny / "src/base/sum.c").read_text() == SUM
    assert "[1/2]" not in mutate(tiny, "--seed", "1", "--count", "2"), "a change is tried only once"
    (tiny / "test_sum.c").write_text("int tested(int a, int b);\nint untested(int a, int b);\n"
                                     "int main(void) { return tested(2, 3) != 5 || untested(2, 3) != -1; }\n")
    assert "0 survived" in mutate(tiny, "--seed", "1", "--count", "2", "--again")
