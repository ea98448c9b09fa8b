"""The scripts that judge a change must be able to reject one."""

import glob
import json
import os
import re
import shutil
import subprocess
import sys
import time

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


def test_results_of_ctest_and_pytest_are_summed(tmp_path):
    one, two = tmp_path / "ctest.xml", tmp_path / "pytest.xml"
    one.write_text(CTEST.format(status="run", child=""))
    two.write_text('<testsuites><testsuite><testcase name="c"/><testcase name="d"><skipped message="why"/></testcase>'
                   '<testcase name="e"><error message=""/></testcase></testsuite></testsuites>')
    assert tool("count_tests.py", one, two).stdout.splitlines()[-1] == "3 passed, 1 failed, 1 skipped"


def test_skips_are_named_with_their_reason_before_the_last_line(tmp_path):
    ctest, system = tmp_path / "ctest.xml", tmp_path / "pytest.xml"
    ctest.write_text('<testsuite><testcase name="u" classname="u" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
                     '<system-out>more\nno readelf; with it it runs\n</system-out></testcase></testsuite>')
    case = '<testcase classname="tests.system.test_{}" name="n[{}]"><skipped message="no root; as root they run"/></testcase>'
    system.write_text("<testsuite>" + "".join(case.format(*a) for a in (("a", 1), ("a", 2), ("b", 1))) +
                      '<testcase classname="tests.system.test_b" name="wrong"><failure message=""/></testcase></testsuite>')
    assert tool("count_tests.py", ctest, system).stdout.splitlines() == [
        "failed: test_b: wrong",
        "skipped 1: no readelf; with it it runs (u: 1)",
        "skipped 3: no root; as root they run (test_a: 2, test_b: 1)",
        "0 passed, 1 failed, 4 skipped"]


def system_report(tmp_path, name, failed, passed=()):
    report = tmp_path / name
    case = '<testcase classname="tests.system.test_a" name="{}">{}</testcase>'
    report.write_text("<testsuite>" + "".join(case.format(n, '<failure message=""/>') for n in failed) +
                      "".join(case.format(n, "") for n in passed) + "</testsuite>")
    return report


def test_a_few_tests_that_fail_are_named_as_pytest_takes_them(tmp_path):
    few = system_report(tmp_path, "few.xml", ["one", "two[a b]@matrix"], ["three"])
    assert tool("count_tests.py", "--failed", few).stdout.splitlines() == [
        "tests/system/test_a.py::one", "tests/system/test_a.py::two[a b]"]
    many = system_report(tmp_path, "many.xml", [f"n{i}" for i in range(5)])
    assert tool("count_tests.py", "--failed", many).stdout == ""


def test_a_test_that_passes_alone_counts_as_passed_and_is_named(tmp_path):
    system = system_report(tmp_path, "system.xml", ["one", "two@matrix"], ["three"])
    alone = system_report(tmp_path, "alone.xml", ["one"], ["two"])
    done = tool("count_tests.py", system, "--alone", alone)
    assert done.returncode == 1
    assert done.stdout.splitlines() == ["failed: test_a: one", "passed only when it ran alone: test_a: two@matrix",
                                        "2 passed, 1 failed, 0 skipped"]
    alone.unlink()
    assert tool("count_tests.py", system, "--alone", alone).stdout.splitlines()[-1] == "1 passed, 2 failed, 0 skipped"
    system_report(tmp_path, "alone.xml", [], ["one", "two"])
    assert tool("count_tests.py", system, "--alone", alone).returncode == 0


def test_the_times_of_steps_and_of_the_slowest_files_come_before_the_last_line(tmp_path):
    system, steps = tmp_path / "system.xml", tmp_path / "steps"
    case = '<testcase classname="tests.system.test_{}" name="n" time="{}"/>'
    system.write_text("<testsuite>" + "".join(case.format(i, i) for i in range(12)) + case.format(3, 20) + "</testsuite>")
    now = int(time.time())
    steps.write_text(f"{now - 100} building in build\n{now - 40} system tests\n")
    lines = tool("count_tests.py", system, "--steps", steps).stdout.splitlines()
    assert lines[:2] == ["seconds of each step:", "    60 building in build"]
    assert re.fullmatch(r" +4\d system tests", lines[2]) and re.fullmatch(r" +10\d together", lines[3])
    assert lines[5:15] == ["    23 test_3"] + [f"{i:6} test_{i}" for i in (11, 10, 9, 8, 7, 6, 5, 4, 2)]
    assert lines[15:] == ["13 passed, 0 failed, 0 skipped"]
    steps.write_text(f"{now - 1600} building\n")
    lines = tool("count_tests.py", system, "--steps", steps).stdout.splitlines()
    assert re.match(r"slow: this took 16\d\d s, more than 1500 s", lines[-2]) and lines[-1] == "13 passed, 0 failed, 0 skipped"
    steps.unlink()
    done = tool("count_tests.py", system, "--steps", steps)
    assert done.stdout.startswith("the times are not known: ") and done.returncode == 0


def test_lint_reads_each_source_of_the_product_once(tmp_path):
    sources = ("src/a.c", "sim/b.c", "src/a.c", "src/a.S", "tests/c.c", "build/generated.c")
    commands = [{"directory": str(tmp_path), "file": f, "command": f"cc {n}"} for n, f in enumerate(sources)]
    source(tmp_path, "build/compile_commands.json", json.dumps(commands))
    done = tool("product_commands.py", tmp_path / "build", tmp_path)
    assert done.stdout.splitlines() == ["sim/b.c", "src/a.c"] and done.returncode == 0
    kept = json.loads((tmp_path / "build/product/compile_commands.json").read_text())
    assert [(c["file"], c["command"]) for c in kept] == [("src/a.c", "cc 0"), ("sim/b.c", "cc 1")]


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


TABLE = """
## Who may use whom

| folder | rooms | may use |
|---|---|---|
| `src/base` | - | - |
| `src/daemon` | net people | base |
| `src/cli` | - | base |
| `src/lab` | - | base daemon/net |
"""


@pytest.fixture
def layers(tmp_path):
    source(tmp_path, "docs/architecture.md", TABLE)
    return tmp_path


def test_a_folder_that_uses_a_forbidden_folder_is_named(layers):
    source(layers, "src/daemon/d.h", "")
    source(layers, "src/base/b.h", "")
    source(layers, "src/cli/a.c", '#include "base/b.h"\n')
    assert tool("check_layers.py", layers).returncode == 0
    source(layers, "src/cli/b.c", '#include "daemon/d.h"\n')
    done = tool("check_layers.py", layers)
    assert done.returncode == 1
    assert "src/cli/b.c:1: src/cli may not use daemon" in done.stdout


def test_a_subfolder_that_uses_one_above_it_is_named(layers):
    source(layers, "src/daemon/people/p.h", "")
    source(layers, "src/daemon/main.c", '#include "daemon/people/p.h"\n')
    assert tool("check_layers.py", layers).returncode == 0
    source(layers, "src/daemon/net/n.c", '#include "daemon/people/p.h"\n')
    assert "src/daemon/net/n.c:1: src/daemon/net may not use src/daemon/people" in tool("check_layers.py", layers).stdout
    source(layers, "src/daemon/attic/a.c", "")
    assert "src/daemon/attic/a.c: the table knows no such room" in tool("check_layers.py", layers).stdout


def test_a_folder_that_uses_another_room_than_its_row_names_is_named(layers):
    source(layers, "src/daemon/net/n.h", "")
    source(layers, "src/daemon/people/p.h", "")
    source(layers, "src/lab/a.c", '#include "daemon/net/n.h"\n')
    assert tool("check_layers.py", layers).returncode == 0
    source(layers, "src/lab/b.c", '#include "daemon/people/p.h"\n')
    done = tool("check_layers.py", layers)
    assert done.returncode == 1
    assert "src/lab/b.c:1: src/lab may not use daemon/people" in done.stdout


def build(root, objects):
    """Compiles the objects of a build: each file's functions, and the functions that it calls."""
    for path, (has, calls) in objects.items():
        text = "".join(f"void {f}(void);\n" for f in has + calls)
        text += "".join(f"void {f}(void) {{ {' '.join(c + '();' for c in calls)} }}\n" for f in has)
        source(root, path, text)
        top = "/".join(path.split("/")[:2])
        made = root / "build" / top / "CMakeFiles" / "it.dir" / path[len(top) + 1:]
        made.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-c", "-o", f"{made}.o", root / path], check=True)


def test_a_symbol_of_a_subfolder_above_and_a_circle_are_named(layers):
    build(layers, {"src/daemon/net/n.c": (["n"], ["p"]), "src/daemon/people/p.c": (["p"], [])})
    done = tool("check_layers.py", "--build", layers / "build", layers)
    assert done.returncode == 1
    assert "src/daemon/net/n.c may not use src/daemon/people/p.c: p" in done.stdout
    for n, status in ((3, 0), (4, 1)):
        root = layers / str(n)
        source(root, "docs/architecture.md", TABLE)
        build(root, {f"src/cli/{i}.c": ([f"f{i}"], [f"f{(i + 1) % n}"]) for i in range(n)})
        done = tool("check_layers.py", "--build", root / "build", root)
        assert done.returncode == status, done.stdout
        assert ("4 files use one another: src/cli/0.c src/cli/1.c" in done.stdout) == bool(status)


def test_an_empty_build_is_a_failure(layers):
    source(layers, "src/base/b.h", "")
    assert tool("check_layers.py", "--build", layers / "build", layers).returncode == 1


@pytest.fixture
def locks(tmp_path):
    """Runs check_locks.py on a file of src/preload with this text. Returns whether it found no fault, and its
    output."""
    if not shutil.which("clang"):
        pytest.skip("the analysis is clang's")
    for folder in ("base", "cuda", "preload/process", "preload/driver"):
        shutil.copytree(os.path.join(ROOT, "src", folder), tmp_path / "src" / folder)
    entry = {"directory": str(tmp_path), "file": "src/preload/a.c", "command": "cc -Isrc -D_GNU_SOURCE src/preload/a.c"}
    source(tmp_path, "compile_commands.json", json.dumps([entry]))

    def check(text):
        source(tmp_path, "src/preload/a.c", '#include "preload/driver/real.h"\n#include "preload/process/lock.h"\n' + text)
        done = tool("check_locks.py", tmp_path, tmp_path)
        assert done.returncode == (0 if done.stdout.startswith("locks: 1 files") else 1), done.stdout + done.stderr
        return done.returncode == 0, done.stdout

    return check


@pytest.mark.parametrize("body, good", [("int r;\nlock_acquire(&core_lock);\nr = n;\nlock_release(&core_lock);\nreturn r;", True),
                                        ("return n;", False), ("lock_acquire(&core_lock);\nreturn 0;", False)])
def test_a_variable_used_without_its_lock_is_named(locks, body, good):
    fine, says = locks("static int n GUARDED_BY(core_lock);\nint f(void);\nint f(void)\n{\n" + body + "\n}\n")
    assert fine == good and ("core_lock" in says) != good


def test_a_driver_call_that_may_block_under_the_lock_is_named(locks):
    held = "void f(void) REQUIRES(core_lock);\nvoid f(void)\n{{\n        (void)real.{};\n}}\n"
    assert locks(held.format("cuDeviceGetCount(NULL)"))[0]
    assert "real.cuMemFree_v2" in locks(held.format("cuMemFree_v2(0)"))[1]
    assert locks("void f(void);\nvoid f(void)\n{\n        (void)real.cuMemFree_v2(0);\n}\n")[0]


DROPS = "static void drop(void) {0}\n{{\n        lock_release(&core_lock);\n        lock_acquire(&core_lock);\n}}\n"
KEEPS = "static void keep(void) {0}\n{{\n        (void)real.cuDeviceGetCount(NULL);\n}}\n"
THROUGH = "void {1}(void) {0};\nvoid {1}(void)\n{{\n        {2};\n}}\n"
PARTS = "static const struct part {{ void (*step)(void) {0}; }} part = {{.step = {1}}};\n"
NEEDS, GIVES_UP, MAY = "REQUIRES(core_lock)", "UNLOCKS(core_lock)", "MAY_UNLOCK(core_lock)"


@pytest.mark.parametrize("text, says", [
    (DROPS.format(NEEDS), "src/preload/a.c: drop gives up core_lock: declare it UNLOCKS"),
    (DROPS.format(GIVES_UP) + THROUGH.format(NEEDS, "f", "drop()"), "src/preload/a.c: f gives up core_lock in drop: declare"),
    (DROPS.format(GIVES_UP) + THROUGH.format(GIVES_UP, "f", "drop()"), None),
    (DROPS.format(GIVES_UP) + THROUGH.format(GIVES_UP, "f", "drop()") + THROUGH.format(NEEDS, "g", "f()"), "g gives up core_lock in f"),
    (KEEPS.format(GIVES_UP), "src/preload/a.c: keep is declared UNLOCKS(core_lock), and never gives it up"),
    (KEEPS.format(NEEDS) + THROUGH.format(NEEDS, "f", "keep()"), None),
    (DROPS.format(GIVES_UP) + PARTS.format("", "drop"), "the member step points to drop, which gives up core_lock"),
    (DROPS.format(GIVES_UP) + PARTS.format(MAY, "drop") + THROUGH.format(NEEDS, "f", "part.step()"), "f gives up core_lock in step"),
    (DROPS.format(GIVES_UP) + PARTS.format(MAY, "drop") + THROUGH.format(GIVES_UP, "f", "part.step()"), None),
    (DROPS.format(GIVES_UP) + THROUGH.format(NEEDS, "f", "void (*p)(void) = drop;\n        p()"), "f takes the address of drop"),
    (KEEPS.format(NEEDS) + PARTS.format(MAY, "keep"), "the member step is declared MAY_UNLOCK(core_lock), and points to nothing"),
])
def test_a_function_says_whether_it_gives_up_its_callers_lock(locks, text, says):
    fine, said = locks(text)
    assert fine == (says is None), said
    assert says is None or says in said


def test_the_toolkits_headers_are_not_used(layers):
    source(layers, "src/cli/a.c", "#include <cuda.h>\n")
    assert tool("check_layers.py", layers).returncode == 1


def test_a_tree_without_sources_is_a_failure(layers):
    assert tool("check_layers.py", layers).returncode == 1


@pytest.mark.parametrize("path, text", [
    ("src/preload/a.c", "/* a.c: owns. */\nvoid f(void)\n{\n        abort();\n}\n"),
    ("src/base/a.h", "/* a.h: is. */\n"),
    ("src/base/a.c", "int x;\n"),
    ("src/base/a.c", "/* a.c: owns. */\n/* " + "TO" + "DO */\n"),
    ("src/base/a.c", "/* a.c: owns. */\n" + "\n" * 900),
])
def test_a_source_that_breaks_a_rule_is_named(tmp_path, path, text):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    source(tmp_path, path, text)
    done = tool("check_sources.py", tmp_path)
    assert done.returncode == 1
    assert path in done.stdout


PAGE = """# Decisions

## One lease

**Why.** Two would wait.

**Code.** [a.c](../src/a.c), [b.def](../src/b.def)

# Memory

## `free` waits

**Code.** [a.c](../src/a.c)
"""
HEAD_A = """/* a.c: owns a.
 * Why: docs/decisions.md, "One
 * lease" and "`free` waits". */
"""
HEAD_B = '# b.def: owns b.\n# Why: docs/decisions.md, "One lease".\n'


@pytest.fixture
def decisions(tmp_path):
    source(tmp_path, "docs/decisions.md", PAGE)
    source(tmp_path, "src/a.c", HEAD_A)
    source(tmp_path, "src/b.def", HEAD_B)
    return tmp_path


def test_decisions_and_sources_that_name_each_other_pass(decisions):
    done = tool("check_links.py", decisions)
    assert (done.returncode, done.stdout) == (0, "links: 6 lead somewhere\n"), done.stdout


@pytest.mark.parametrize("path, text, found", [
    ("src/a.c", HEAD_A.replace("waits", "hurries"), [
        'src/a.c: "`free` hurries": docs/decisions.md has no such section',
        'docs/decisions.md: "`free` waits": the head comment of src/a.c does not name this section']),
    ("src/b.def", "# b.def: owns b.\n",
     ['docs/decisions.md: "One lease": the head comment of src/b.def does not name this section']),
    ("src/c.c", '/* c.c: owns c.\n * Why: docs/decisions.md, "One lease". */\n',
     ['src/c.c: "One lease": the section does not link to this file']),
    ("src/c.c", '/* c.c: owns c. */\nint c;\n/* Why: docs/decisions.md, "One lease". */\n',
     ['src/c.c: its head comment does not end with Why: docs/decisions.md, "..." alone']),
    ("src/c.c", '/* c.c: owns c.\n * Why: docs/decisions.md, One lease. */\n',
     ['src/c.c: its head comment does not end with Why: docs/decisions.md, "..." alone']),
    ("docs/decisions.md", PAGE.replace(", [b.def](../src/b.def)", ""),
     ['src/b.def: "One lease": the section does not link to this file']),
], ids=["other heading", "no name", "other file", "not at the head", "other form", "no link"])
def test_a_decision_or_a_source_that_the_other_does_not_name_is_found(decisions, path, text, found):
    source(decisions, path, text)
    done = tool("check_links.py", decisions)
    assert (done.returncode, done.stdout.splitlines()) == (1, found)


def test_a_decisions_link_to_a_source_that_is_gone_is_found(decisions):
    (decisions / "src/b.def").unlink()
    done = tool("check_links.py", decisions)
    assert done.returncode == 1
    assert "docs/decisions.md: ../src/b.def: no such file" in done.stdout


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
def test_a_page_of_measurements_shows_the_figures_of_its_json(tmp_path, figures):
    done = gpu_suite("--render", figures, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = os.path.basename(figures)[:-5] + ".md"
    with open(os.path.join(os.path.dirname(figures), page), encoding="utf-8") as f:
        assert (tmp_path / page).read_text() == f.read()


MACHINE = {"gpu": "a", "gpu_memory": "b", "driver": "c", "processors": 1, "host_memory_gib": 1, "kernel": "d", "libc": "e",
           "commit": "f", "date": "g"}


def unwrapped(page):
    """Returns the page's text, with each paragraph, item or row of a table on one line."""
    return re.sub(r"(?<=[^\n|])\n(?! *[-|#\n]|$) *", " ", page.read_text())


def test_a_page_names_its_parts_of_an_earlier_run(tmp_path):
    def run(commit, **parts):
        results = tmp_path / "results.json"
        results.write_text(json.dumps({"machine": {**MACHINE, "commit": commit}, "seconds": 1.0, "parts": parts}))
        done = gpu_suite("--render", results, "--add", "--out", tmp_path)
        assert done.returncode == 0, done.stderr

    for commit, parts in (("first", ("programs", "main", "fit")), ("second", ("main",)), ("third", ("fit",))):
        run(commit, **{name: {"error": f"{name} of the {commit}"} for name in parts})
    said = unwrapped(tmp_path / "h200-core.md")
    assert "Commit third, g. Every figure is from this run, except those of `programs`, `main`." in said
    assert re.search(r"^`programs`: .* Commit first", said, re.M) and re.search(r"^`main`: .* Commit second", said, re.M)
    for right in ("programs of the first", "main of the second", "fit of the third"):
        assert right in said
    assert "fit of the first" not in said


def pages_of(tmp_path, parts):
    """Returns the text of all pages made from these results."""
    results = tmp_path / "results.json"
    results.write_text(json.dumps({"machine": MACHINE, "seconds": 1.0, "parts": parts}))
    done = gpu_suite("--render", results, "--out", tmp_path / "pages")
    assert done.returncode == 0, done.stderr
    return "".join(unwrapped(p) for p in (tmp_path / "pages").glob("*.md"))


def test_every_part_that_failed_has_a_page_that_says_so(tmp_path):
    parts = re.search("there are (.*)", gpu_suite("--only", "no such part").stderr).group(1).split(", ")
    said = pages_of(tmp_path, {name: {"error": f"why {name}"} for name in parts})
    assert [name for name in parts if f"why {name}" not in said] == []


def test_a_page_says_how_far_close_results_are_apart(tmp_path):
    row = {"plain": "within 1.1e-07", "sublet": "close", "torture": "equal", "times": 1, "gib": 1.0, "seconds": {"plain": 1.0},
           "apart": {"plain": 1.1e-7, "sublet": 2.5e-6, "torture": 0.0}}
    said = pages_of(tmp_path, {"frameworks": {"torch-libraries": row}})
    assert "| within 1.1e-07 | close (2.5e-06) | equal |" in said
    assert "In brackets: how far." in said


def judged(module, parts):
    """Returns {what was measured: whether it meets its goal} of a module of the suite."""
    return in_gpu_suite(f"import json, {module}\n"
                        f"print(json.dumps({{what: met for what, _, _, met in {module}.figures(json.loads({json.dumps(parts)!r}))}}))")


@pytest.mark.parametrize("points, met", (({"time": 1.0, "steps": 2.9}, True), ({"time": 1.0, "steps": 3.1}, False),
                                         ({"time": 1.0, "steps": None}, False)))
def test_a_share_is_judged_by_the_larger_of_its_errors(tmp_path, points, met):
    window = {"seconds": 60.0, "turn_s": 2.0, "asked_percent": [5, 95], "time_percent": [6.0, 94.0], "steps_percent": [8.0, None],
              "speed_percent_of_alone": [7.5, 86.0], "handoffs": 4, "lost_s": 1.2, "error_points": points}
    parts = {"shares": {"two": {"2s": window}}}
    said = pages_of(tmp_path, parts)
    assert list(judged("shares", parts).values()) == [met]
    assert f"points of the time, {points['steps']} of the steps |" in said
    assert "| 5, 95 | 2s | 2 s, 3.3 points | 6, 94 | 8, none | 7.5, 86 | 4 | 1.2 |" in said


RAN = {"result": "equal", "times": 1, "gib": 1.0}


def test_a_program_whose_plain_run_failed_is_equal_to_nothing(tmp_path):
    rows = {"a": {"plain": "well", "linked": RAN}, "b": {"plain": "b-plain ended with 4", "linked": RAN, "dlsym": RAN}}
    said = pages_of(tmp_path, {"torture-driver": rows})
    assert "equal to the plain driver's | 1 of 3 runs of 2 programs, tortured 3 times |" in said
    assert list(judged("torture", {"torture-driver": rows}).values()) == [False]
    assert "| a | equal: linked | 1 |" in said and "| b | **linked, dlsym: plain failed: b-plain ended with 4** | 2 |" in said
    assert "- `b` (linked, dlsym): plain failed: b-plain ended with 4" in said


def test_a_program_that_never_ran_is_not_counted_as_well(tmp_path):
    said = pages_of(tmp_path, {"torture-runtime": {"a": {"plain": "does not build: why"}}})
    assert "0 of 1 runs of 1 programs" in said and "- `a` (plain): does not build: why" in said


def test_a_program_without_a_plain_run_is_not_called_equal_to_it(tmp_path):
    said = pages_of(tmp_path, {"torture-driver": {"a": {"plain": "sums recomputed", "linked": RAN}}})
    assert "| a | sums right: linked | 1 |" in said and "recomputed sums right | 1 of 1 runs of 1 programs" in said
    assert "equal to the plain driver's |" not in said and "What is not equal" not in said


def test_a_workload_that_is_wrong_in_any_of_its_runs_is_counted_and_listed(tmp_path):
    good = {"plain": "equal", "sublet": "equal", "torture": "equal", "times": 1, "gib": 1.0, "seconds": {}}
    rows = {"jax": good, "cupy": {**good, "sublet": "fails: why"}, "numba": {"plain": "fails: who"}, "triton": {"plain": "not here: x"}}
    said = pages_of(tmp_path, {"frameworks": rows})
    assert "or close | 1 of 3 workloads, tortured 2 times, 2 GiB moved out |" in said
    assert list(judged("torture", {"frameworks": rows}).values()) == [False]
    assert "- `cupy` (sublet): fails: why" in said and "- `numba` (plain): fails: who" in said and "`triton` (" not in said


def in_gpu_suite(script):
    """Returns the output of code that runs beside the suite's modules."""
    done = subprocess.run([sys.executable, "-c", script], cwd=os.path.join(ROOT, "tests", "gpu"), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=20)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_run_is_not_compared_with_a_failed_plain_run():
    said = in_gpu_suite("""
import json, torture
class Run:
    def __init__(self, pid, fails=""):
        self.pid, self.fails, self.events = pid, fails, []
    def close(self):
        pass
    def wait(self, deadline):
        if self.fails:
            raise torture.Failure(self.fails)
    def kill(self):
        pass
class Part:
    deadline = 0
    def traced(self):
        return [{"event": "torture", "pid": 1, "bytes": 1}]
print(json.dumps([torture.compare(Part(), Run(0, fails), {"linked": Run(1)})["linked"]["result"] for fails in ("", "why")]))""")
    assert said == ["equal", "plain failed: why"]


def test_no_result_is_close_to_an_incomparable_one():
    said = in_gpu_suite("""
import json
from frameworks import apart, verdict
far, none = float("inf"), float("nan")
print(json.dumps([verdict(0.0, far, None), verdict(1e-9, far, None), verdict(far, 1e-9, None), verdict(1e-9, 1e-9, None),
                  verdict(1e-9, 0.0, None), apart({"a": {"hash": 1, "values": [1.0, none]}}, {"a": {"hash": 2, "values": [1.0, none]}}) == far]))""")
    assert said[0] == "equal" and said[3] == "close" and said[5]
    assert all(s.startswith("differs by up to") for s in (said[1], said[2], said[4]))


def test_the_list_of_measurements_names_the_commit_of_each():
    with open(os.path.join(ROOT, "docs", "measurements", "README.md"), encoding="utf-8") as f:
        rows = {m.group(1): line for line in f for m in [re.match(r"\| \[([\w-]+)\.md\]", line)] if m}
    for path in MEASURED:
        with open(path, encoding="utf-8") as f:
            found = json.load(f)
        own, earlier = found["machine"]["commit"], {}
        for part, machine in found.get("earlier", {}).items():
            if machine["commit"] != own:
                earlier.setdefault(machine["commit"], []).append(f"`{part}`")
        said = own + "".join(f"; {', '.join(parts)}: {commit}" for commit, parts in earlier.items())
        assert rows[os.path.basename(path)[:-5]].endswith(f"| {said} |\n"), path


def test_accounts_that_differ_from_the_cards_figure_fall_short(tmp_path):
    def rests(*apart):
        found = [{"after": "x", "accounts_mib": 600.0 + d, "nvml_mib": 600.0} for d in apart]
        return {"audit": {"rests": {"allocations": {"p": found}}}}

    assert list(judged("audit", rests(41, 40, 45)).values()) == [True, True]
    assert list(judged("audit", rests(-200, -200)).values()) == [False, True]
    assert list(judged("audit", rests(40, 60)).values()) == [True, False]
    assert "-200.0 MiB |" in pages_of(tmp_path, rests(40, -200))


def test_a_page_names_the_parts_that_one_gpu_cannot_run(tmp_path):
    assert "not run: this machine has one GPU" in pages_of(tmp_path, {"devices-peers": {"skipped": "this machine has one GPU"}})


def test_a_wrong_answer_of_mapped_memory_is_on_its_page(tmp_path):
    atomic = {"kind": "add", "shape": "many", "right": False, "host_ns": 1000.0, "card_ns": 1.0}
    said = pages_of(tmp_path, {"mapped": {"atomics": [atomic], "copies": [{"what": "a copy", "right": True}]}})
    assert "| add | 1,000.0, 1.0 | **wrong** |" in said and "| a copy | right |" in said
    assert "atomics: right on mapped host memory | 0 of 1 |" in said
