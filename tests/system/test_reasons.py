"""People are told why: a program that runs out of memory, once on stderr, which limit refused the memory; one that waits,
for whom; and who asks at the start, what is there. Names are shown as they are."""

import os
import re
import shutil
import subprocess

import pytest

from world import BUILD, GENEROUS_S, wait_for

SUBLET = os.path.join(BUILD, "sublet")
HOLD = os.path.join(BUILD, "programs", "hold")

LINE = re.compile(r"libsublet\[\d+\]: warning: out of memory: this program asks for (\d+) MiB of GPU 0 "
                  r"beside the (\d+) MiB that it holds, but (.+)")


def hold(world, mib, **env):
    return world.program("hold", "--bytes", f"{mib}MiB", "--block", "4MiB", stdin=subprocess.PIPE, **env)


def reason(p):
    """Returns the reason in the single line about memory on stderr."""
    lines = [found for found in map(LINE.search, p.err().splitlines()) if found]
    assert len(lines) == 1, p.report()
    return lines[0][3]


def test_a_program_larger_than_the_card_is_told_of_the_cards_size(make_world):
    w = make_world(memory="64MiB")
    w.start_daemon()
    p = hold(w, 80)
    assert p.wait() != 0
    assert re.fullmatch(r"it may use \d+ MiB there \(the GPU's size\): `sublet run --memory overflow` adds host memory",
                        reason(p)), p.report()


@pytest.mark.parametrize("config, why", (
    ({"host_memory": "16MiB"}, "the daemon may promise no more host memory"),
    ({"mode": "off"}, "the GPU has no room for it beside memory that cannot give way")))
def test_a_program_that_does_not_fit_beside_others_is_told_why(make_world, config, why):
    w = make_world(memory="128MiB")
    w.start_daemon(config=config)
    first = hold(w, 80)
    first.await_event("filled")
    second = hold(w, 80)
    assert second.wait() != 0
    assert reason(second).startswith(why), second.report()
    first.finish()
    assert "out of memory" not in first.err()


@pytest.mark.parametrize("how, why", (
    ("alloc", "it may use"), ("async", "it may use"), ("pool", "it may use"), ("handles", "it may use"),
    ("arrays", "the GPU has no room for so much memory that cannot be moved")))
def test_each_way_to_allocate_tells_the_reason_once(make_world, how, why):
    w = make_world(memory="64MiB")
    w.start_daemon()
    p = w.program("greedy", "--how", how, stdin=subprocess.PIPE)
    p.await_event("got")
    p.process.stdin.write(b"more\n")
    p.process.stdin.flush()
    wait_for(lambda: len(p.events("got")) == 2, GENEROUS_S, "the second attempt", report=p.report)
    assert reason(p).startswith(why), p.report()
    p.finish()


def test_memory_of_programs_outside_is_named_with_its_size(make_world):
    """The second program waits for it, as `sublet status` shows, while programs of another daemon may give way."""
    w = make_world(memory="128MiB")
    w.start_daemon()
    outside = w.program("hold", "--bytes", "80MiB", "--block", "4MiB", shared=False, stdin=subprocess.PIPE)
    outside.await_event("filled")
    wait_for(lambda: w.status()["gpus"][0]["foreign"] >= 80 << 20, GENEROUS_S, "the daemon to see the other's memory")
    p = hold(w, 60)
    assert p.wait() != 0
    assert re.fullmatch(r"programs outside its daemon hold (8\d) MiB of the GPU: end them, or run all under one daemon "
                        r"\(`subletd --shared`\)", reason(p)), p.report()
    outside.finish()
    wait_for(lambda: w.status()["gpus"][0]["foreign"] < 8 << 20, GENEROUS_S, "the daemon to see that it is gone")
    elsewhere = w.path("e")
    os.mkdir(elsewhere, 0o700)
    first = w.program("fill", "--bytes", "80MiB", "--block", "8MiB", "--until", w.path("end"))
    first.await_event("filled")
    w.start([os.path.join(BUILD, "subletd"), "--dir", elsewhere])
    wait_for(lambda: w.sublet("status", SUBLET_DIR=elsewhere).returncode == 0, GENEROUS_S, "the second daemon to listen")
    second = hold(w, 60, SUBLET_DIR=elsewhere)

    def waits():
        done = w.sublet("status", SUBLET_DIR=elsewhere)
        return "waits for memory held outside this daemon" in done.stdout

    wait_for(waits, GENEROUS_S, "the second program to wait", report=second.report)
    found = f"process {second.pid} (hold) waits for memory that programs outside its daemon hold -> "
    wait_for(lambda: found in w.sublet("doctor", SUBLET_DIR=elsewhere).stdout, GENEROUS_S, "doctor to say so")
    with open(w.path("end"), "w", encoding="utf-8"):
        pass
    first.ok()
    second.finish()


def test_a_verbose_start_tells_what_is_there_and_a_normal_one_nothing(shared):
    start = [SUBLET, "run", "--", HOLD, "--bytes", "8MiB"]
    silent = shared.start(start, stdin=subprocess.PIPE)
    silent.await_event("filled")
    line = r"sublet: GPU 0, shared with {}, \d+ of 118 MiB free now\n"
    done = shared.sublet("run", "-v", "true")
    assert done.returncode == 0 and re.fullmatch(line.format("1 other"), done.stderr), done
    assert silent.finish().err() == ""
    wait_for(lambda: not shared.clients(), GENEROUS_S, "it to leave")
    assert re.fullmatch(line.format("nobody"), shared.sublet("run", "--verbose", "--", "true").stderr)
    assert "no GPU is known here, or visible" in shared.sublet("run", "-v", "true", CUDA_VISIBLE_DEVICES="7").stderr


def test_names_are_shown_as_they_are(shared):
    """Text that a terminal would obey, or that is no text, is replaced."""
    names = ["Übung", "学習.py", "a\x1b[2Jb", b"\xdcbung", "up\u202edown", "é" * 40]
    shown = ["Übung", "学習.py", "a?[2Jb", "?bung", "up?down", "é" * 31]
    programs = []
    for name in names:
        path = os.path.join(shared.root.encode(), name if isinstance(name, bytes) else name.encode())
        shutil.copy(HOLD, path)
        programs.append(shared.program("hold", "--bytes", "4MiB", before=("/bin/sh", "-c", 'exec "$0" --bytes 4MiB', path.decode("utf-8", "surrogateescape")),
                                       stdin=subprocess.PIPE))
    for p in programs:
        p.await_event("filled")
    rows = shared.clients()
    assert [rows[p.pid]["name"] for p in programs] == shown
    table = shared.status_text()
    assert all(name in table for name in shown[:-1]), table
    for p in programs:
        p.finish()
    done = shared.sublet("run", "--name", "trainé", "--", HOLD, "--bytes", "4MiB")
    assert done.returncode == 0, done.stderr
    for name, why in (("a\nb", "UTF-8 without control characters, not 'a?b'"), ("é" * 32, "not the 64 of")):
        done = shared.sublet("run", "--name", name, "true")
        assert done.returncode == 2 and why in done.stderr, done


@pytest.mark.parametrize("command, words", (("set", ("auto", "exclusive", "off")), ("status", ("BACKED", "ARENA", "restoring"))))
def test_help_explains_what_a_command_shows(world, command, words):
    told = world.sublet("help", command).stdout
    assert all(re.search(rf"^  {word} +\w", told, re.M) for word in words), told
    assert told == world.sublet(command, "--help").stdout
