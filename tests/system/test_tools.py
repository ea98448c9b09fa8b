"""The scripts that decide whether a change is good: they must be able to say no."""

import glob
import json
import os
import re
import subprocess
import sys

import pytest

from world import ROOT


def tool(name, *args):
    return subprocess.run([sys.executable, os.path.join(ROOT, "tools", name), *map(str, args)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)


CTEST = """<testsuite><testcase name="a" status="run"/><testcase name="b" status="{status}">{child}</testcase></testsuite>"""


@pytest.mark.parametrize("status, child, line, good", [
    ("run", "", "2 passed, 0 failed, 0 skipped", True),
    ("fail", '<failure message=""/>', "1 passed, 1 failed, 0 skipped", False),
    ("notrun", '<skipped message="SKIP_RETURN_CODE=77"/>', "1 passed, 0 failed, 1 skipped", True),
    ("notrun", '<skipped message="Unable to find executable"/>', "1 passed, 1 failed, 0 skipped", False),
])
def test_results_of_ctest_are_counted(tmp_path, status, child, line, good):
    report = tmp_path / "ctest.xml"
    report.write_text(CTEST.format(status=status, child=child))
    done = tool("count_tests.py", report)
    assert done.stdout.splitlines()[-1] == line
    assert (done.returncode == 0) == good


def test_results_of_both_are_summed(tmp_path):
    one, two = tmp_path / "ctest.xml", tmp_path / "pytest.xml"
    one.write_text(CTEST.format(status="run", child=""))
    two.write_text('<testsuites><testsuite><testcase name="c"/><testcase name="d"><skipped message="why"/></testcase>'
                   '<testcase name="e"><error message=""/></testcase></testsuite></testsuites>')
    assert tool("count_tests.py", one, two).stdout.splitlines()[-1] == "3 passed, 1 failed, 1 skipped"


@pytest.mark.parametrize("text", [None, "", "<testsuite/>", "<testsuite><testcase name='a'"])
def test_a_suite_that_did_not_run_is_a_failure(tmp_path, text):
    good, bad = tmp_path / "good.xml", tmp_path / "bad.xml"
    good.write_text(CTEST.format(status="run", child=""))
    if text is not None:
        bad.write_text(text)
    done = tool("count_tests.py", good, bad)
    assert done.returncode == 1
    assert ", 1 failed, " in done.stdout.splitlines()[-1]


def source(tmp_path, path, text):
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_a_layer_that_uses_what_it_may_not_is_named(tmp_path):
    source(tmp_path, "src/daemon/d.h", "")
    source(tmp_path, "src/base/b.h", "")
    source(tmp_path, "src/cli/a.c", '#include "base/b.h"\n')
    assert tool("check_layers.py", tmp_path).returncode == 0
    source(tmp_path, "src/cli/b.c", '#include "daemon/d.h"\n')
    done = tool("check_layers.py", tmp_path)
    assert done.returncode == 1
    assert "src/cli/b.c:1: src/cli may not use daemon" in done.stdout


def test_the_toolkits_headers_are_not_used(tmp_path):
    source(tmp_path, "src/cli/a.c", "#include <cuda.h>\n")
    assert tool("check_layers.py", tmp_path).returncode == 1


def test_nothing_to_look_at_is_a_failure(tmp_path):
    assert tool("check_layers.py", tmp_path).returncode == 1


@pytest.mark.parametrize("path, text", [
    ("src/preload/a.c", "/* a.c: owns. */\nvoid f(void)\n{\n        abort();\n}\n"),
    ("src/base/a.h", "/* a.h: is. */\n"),
    ("src/base/a.c", "int x;\n"),
    ("src/base/a.c", "/* a.c: owns. */\n/* " + "TO" + "DO */\n"),
    ("src/base/a.c", "/* a.c: owns. */\n" + "\n" * 900),
])
def test_a_source_that_reads_wrong_is_named(tmp_path, path, text):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    source(tmp_path, path, text)
    done = tool("check_sources.py", tmp_path)
    assert done.returncode == 1
    assert path in done.stdout


def test_dev_lists_its_commands_and_refuses_others():
    dev = os.path.join(ROOT, "dev")
    alone = subprocess.run([dev], stdout=subprocess.PIPE, text=True, timeout=20)
    assert alone.returncode == 0
    for name in ("demo", "test", "lint", "asan", "tsan", "bench", "gpu", "build", "install-deps"):
        assert f"  {name}" in alone.stdout
    wrong = subprocess.run([dev, "tset"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
    assert wrong.returncode == 2 and "'tset'" in wrong.stderr


def gpu_suite(*args):
    return subprocess.run([sys.executable, os.path.join(ROOT, "tests", "gpu", "run.py"), *map(str, args)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)


MEASURED = sorted(glob.glob(os.path.join(ROOT, "docs", "measurements", "h200-*.json")))


@pytest.mark.parametrize("figures", MEASURED, ids=lambda path: os.path.basename(path)[:-5])
def test_a_page_of_measurements_shows_what_its_json_holds(tmp_path, figures):
    done = gpu_suite("--render", figures, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = os.path.basename(figures)[:-5] + ".md"
    with open(os.path.join(os.path.dirname(figures), page), encoding="utf-8") as f:
        assert (tmp_path / page).read_text() == f.read()


MACHINE = {"gpu": "a", "gpu_memory": "b", "driver": "c", "processors": 1, "host_memory_gib": 1, "kernel": "d", "libc": "e",
           "commit": "f", "date": "g"}


def test_a_page_says_which_of_its_parts_are_of_an_earlier_run(tmp_path):
    def run(commit, **parts):
        results = tmp_path / "results.json"
        results.write_text(json.dumps({"machine": {**MACHINE, "commit": commit}, "seconds": 1.0, "parts": parts}))
        done = gpu_suite("--render", results, "--add", "--out", tmp_path)
        assert done.returncode == 0, done.stderr

    for commit, parts in (("first", ("programs", "main", "fit")), ("second", ("main",)), ("third", ("fit",))):
        run(commit, **{name: {"error": f"{name} of the {commit}"} for name in parts})
    said = (tmp_path / "h200-core.md").read_text()
    assert "Commit third, g. Every figure is from this run, but for those of `programs`, `main`;" in said
    assert re.search("Of `programs`: .* Commit first", said) and re.search("Of `main`: .* Commit second", said)
    for right in ("programs of the first", "main of the second", "fit of the third"):
        assert right in said
    assert "fit of the first" not in said


def pages_of(tmp_path, parts):
    """All that the pages say of such results."""
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"machine": MACHINE, "seconds": 1.0, "parts": parts}))
    done = gpu_suite("--render", results, "--out", tmp_path / "pages")
    assert done.returncode == 0, done.stderr
    return "".join(p.read_text() for p in (tmp_path / "pages").glob("*.md"))


def test_every_part_that_failed_has_a_page_that_says_so(tmp_path):
    parts = re.search("there are (.*)", gpu_suite("--only", "no such part").stderr).group(1).split(", ")
    said = pages_of(tmp_path, {name: {"error": f"why {name}"} for name in parts})
    assert [name for name in parts if f"why {name}" not in said] == []


def test_a_page_says_how_close_is_close(tmp_path):
    row = {"plain": "within 1.1e-07", "sublet": "close", "torture": "equal", "times": 1, "gib": 1.0, "seconds": {"plain": 1.0},
           "apart": {"plain": 1.1e-7, "sublet": 2.5e-6, "torture": 0.0}}
    said = pages_of(tmp_path, {"frameworks": {"torch-libraries": row}})
    assert "| within 1.1e-07 | close (2.5e-06) | equal |" in said
    assert "how far is said" in said


def test_books_that_are_apart_from_the_card_fall_short(tmp_path):
    def rests(*apart):
        return {"sums": {"rests": {"allocations": {"p": [{"after": "x", "books_mib": 600.0 + d, "nvml_mib": 600.0} for d in apart]}}}}

    assert "**short**" not in pages_of(tmp_path, rests(41, 40, 45))
    assert "-200.0 MiB | at most 128 MiB | **short** |" in pages_of(tmp_path, rests(40, -200))
    assert "20.0 MiB | at most 8 MiB | **short** |" in pages_of(tmp_path, rests(40, 60))


def test_what_one_gpu_cannot_show_is_said(tmp_path):
    assert "not run: this machine has one GPU" in pages_of(tmp_path, {"devices-peers": {"skipped": "this machine has one GPU"}})


def test_a_wrong_answer_of_mapped_memory_is_on_its_page(tmp_path):
    atomic = {"kind": "add", "shape": "many", "right": False, "host_ns": 1000.0, "card_ns": 1.0}
    said = pages_of(tmp_path, {"mapped": {"atomics": [atomic], "copies": [{"what": "a copy", "right": True}]}})
    assert "| add | 1,000.0, 1.0 | **wrong** |" in said and "| a copy | right |" in said
    assert "atomics: right on mapped host memory | 0 of 1 | all | **short** |" in said
