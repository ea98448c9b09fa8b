"""`sublet top` in a terminal: what it draws, what its keys do, and what it does without a daemon."""

import os
import re
import signal
import subprocess

import pytest

from terminal import Terminal
from world import BUILD, wait_for

COLOUR = re.compile(rb"\x1b\[[0-9;]*(3[0-8]|4[0-8])(;[0-9;]*)?m")
DOWN = "\x1bOB"


@pytest.fixture
def top(world):
    """Starts sublet top in a terminal of the world."""
    made = []

    def start(*options, columns=80, lines=24, **env):
        env = {**world.env, "TERM": Terminal.TERM, "LC_ALL": "C.UTF-8", **env}
        made.append(Terminal([os.path.join(BUILD, "sublet"), "top", "--interval", "200ms", *options], env, columns, lines))
        return made[-1]

    yield start
    for terminal in made:
        terminal.close()


def holder(world, name, **env):
    p = world.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE, SUBLET_NAME=name, **env)
    p.await_event("filled")
    return p


def row_of(text, name):
    return next((line for line in text.splitlines() if f" {name} " in line), "")


def row_has(name, *words):
    return lambda text: all(word in row_of(text, name) for word in words)


def test_keys_evict_pause_resume_and_set_the_selected_program(world, top):
    world.start_daemon()
    one, two = holder(world, "first"), holder(world, "second")
    wait_for(lambda: all(c["idle"] for c in world.clients().values()), 60, "the programs to be idle")
    screen = top("--sort", "name")
    screen.until(row_has("second", "10.0M"), "second program")
    screen.type("p")
    screen.until("select a program first", "hint")
    screen.type("j")
    screen.until(f"─ {one.pid} first ─", "details of the selected program")
    screen.type(DOWN)
    screen.until(f"─ {two.pid} second ─", "details of the selected program")
    screen.type("e")
    screen.until(f"evict {two.pid} (second): 10.0M leave the card", "answer")
    wait_for(lambda: world.clients()[two.pid]["backed"] == 0, 60, "the memory to leave", report=two.report)
    screen.type("p")
    screen.until(f"pause {two.pid} (second): ordered", "answer")
    screen.until(row_has("second", "paused"), "pause")
    assert "paused" not in row_of(screen.text(), "first")
    assert world.clients()[two.pid]["paused"] and not world.clients()[one.pid]["paused"]
    screen.type("r")
    screen.until(f"resume {two.pid} (second): ordered", "answer")
    wait_for(lambda: not world.clients()[two.pid]["paused"], 60, "the end of the pause")
    screen.type("--+")
    screen.until(f"{two.pid} has priority -1", "answer")
    wait_for(lambda: world.clients()[two.pid]["priority"] == -1, 60, "the priority")
    screen.type("/fir")
    screen.until(lambda text: row_of(text, "first") and not row_of(text, "second"), "filter")
    screen.type("\x1b")
    screen.until(row_has("second", " "), "end of the filter")
    screen.type("h")
    screen.until("any key goes back", "help")
    screen.type("x" + "q")
    assert screen.end() == 0
    assert b"\x1b[?1049l" in screen.sent  # the terminal shows again what it showed before


def test_an_order_that_is_refused_shows_the_daemons_reason(world, top):
    world.start_daemon()
    program = holder(world, "busy", SUBLET_FREEZE="off")
    screen = top()
    screen.until(row_has("busy", " "), "program")
    screen.type("jp")
    screen.until(f"refused: process {program.pid} cannot be paused", "reason")


def test_the_picture_follows_the_size_of_the_terminal(world, top):
    world.start_daemon()
    holder(world, "first")
    screen = top()
    screen.until(lambda text: row_of(text, "first") and "OVERFLOW" not in text, "narrow table")
    screen.resize(200, 50)
    screen.until(lambda text: "OVERFLOW" in text and "MANAGED" in text, "wide table")
    screen.resize(20, 4)
    screen.until(lambda text: "STATE" in text and "GPU" not in text, "tiny table")
    screen.resize(80, 24)
    screen.until(lambda text: row_of(text, "first") and "q quit" in text, "narrow table again")


def submitted(world, name):
    return world.start([os.path.join(BUILD, "sublet"), "submit", "--name", name, "--", "sleep", "1000"])


def test_submitted_jobs_that_wait_are_shown(world, top):
    world.start_daemon()
    screen = top(columns=120)
    running = submitted(world, "first")
    wait_for(lambda: [j["state"] for j in world.status()["jobs"]] == ["running"], 20, "the first job to run")
    waiting = submitted(world, "second")
    screen.until("queue: 1 waits, first second for", "the job that waits")
    screen.until("bound 0.70: GPU 0 has first; without a job file it runs alone", "why it waits")
    assert "queue: 1 waits, first second for" in world.sublet("top", "--snapshot").stdout
    waiting.send(signal.SIGTERM)
    waiting.wait()
    screen.until(lambda text: "queue:" not in text, "an empty queue")
    running.send(signal.SIGTERM)
    running.wait()


def test_colours_are_left_out_where_they_are_not_wanted(world, top):
    world.start_daemon()
    holder(world, "first")
    for env, coloured in (({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "vt100", "LC_ALL": "C"}, False)):
        screen = top(**env)
        screen.until(row_has("first", "10.0M"), "program")
        assert bool(COLOUR.search(screen.sent)) == coloured, env
        assert screen.sent.isascii() == (env.get("LC_ALL") == "C")


def test_it_waits_for_a_daemon_and_outlives_it(world, top):
    screen = top()
    screen.until("no subletd is running", "reason")
    world.start_daemon()
    screen.until("no program shares a GPU yet", "daemon")
    holder(world, "first")
    screen.until(row_has("first", "10.0M"), "program")
    assert world.sublet("stop").returncode == 0
    screen.until(lambda text: "no subletd is running" in text and row_of(text, "first"), "end of the daemon")
    world.start_daemon()
    screen.until(lambda text: "no subletd" not in text and row_of(text, "first"), "next daemon")


def test_a_daemon_that_does_not_answer_holds_up_no_key(world, top):
    daemon = world.start_daemon()
    holder(world, "first")
    screen = top()
    screen.until(row_has("first", "10.0M"), "program")
    daemon.send(signal.SIGSTOP)
    try:
        screen.type("/zzz")
        screen.until("filter: zzz_", "filter")
        screen.type("\r")
        screen.until("it does not answer", "reason")
        screen.type("q")
        assert screen.end() == 0
    finally:
        daemon.send(signal.SIGCONT)


def test_ctrl_c_gives_the_terminal_back(world, top):
    screen = top()
    screen.until("no subletd is running", "reason")
    screen.type("\x03")
    assert screen.end() == 0
    assert b"\x1b[?1049l" in screen.sent


def test_a_snapshot_is_plain_text_of_the_width_that_is_asked_for(world):
    assert "no subletd is running" in world.sublet("top", "--snapshot").stderr
    world.start_daemon()
    program = holder(world, "first")
    options = ("--snapshot", "--interval", "100ms")
    for args, env, width in (((), {"COLUMNS": "60"}, 60), (("--width", "200"), {"COLUMNS": "60"}, 200),
                             ((), {"COLUMNS": None}, 80)):
        done = world.sublet("top", *options, *args, LC_ALL="C.UTF-8", **env)
        assert done.returncode == 0, done.stderr
        assert str(program.pid) in row_of(done.stdout, "first") and "\x1b" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) == width
    assert world.sublet("top", *options, LC_ALL="C").stdout.isascii()
    assert "no program matches" in world.sublet("top", *options, "--filter", "zzz").stdout


@pytest.mark.parametrize("args, status, words", [
    ((), 1, "top needs a terminal"),
    (("--interval", "1ms"), 2, "--interval is a time from 100ms to 1h"),
    (("--sort", "colour"), 2, "--sort takes a column, not 'colour': gpu, pid, user, name"),
    (("--width", "0"), 2, "--width is a number from 1 to 1000"),
    (("5",), 2, 'unknown argument "5": sublet top --help lists what there is'),
])
def test_wrong_use_is_explained(world, args, status, words):
    done = world.sublet("top", *args)
    assert done.returncode == status and words in done.stderr, done.stderr


def test_the_use_of_a_card_is_what_its_kernels_use(world):
    world.start_daemon()
    assert all(g["utilization"] == 0 for g in world.status()["gpus"])
    program = world.program("spin", "--rounds", "1000000", "--ms", "20")
    wait_for(lambda: [g for g in world.status()["gpus"] if g["utilization"] > 0.2], 60, "kernels to be seen",
             report=program.report)
    program.send(signal.SIGSTOP)
    wait_for(lambda: world.status()["gpus"][0]["utilization"] == 0, 60, "the end of the kernels")
    program.send(signal.SIGCONT)
