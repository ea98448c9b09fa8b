"""`sublet trace`: who had the GPU when, and what moved, also after a program or the daemon was killed. The JSON obeys the
rules of the Trace Event Format, which Perfetto reads."""

import collections
import json
import os
import pwd
import re
import signal
import subprocess

from world import BUILD, MIB, wait_for

TURN = ("runs", "needs room", "runs, idle")
SPANS = TURN + ("waits", "waits for room", "restores", "paused", "gives way", "evicts")


def trace_of(world, *args):
    done = world.sublet("trace", *args, "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["traceEvents"]


def names_of(events):
    """Returns {(pid, tid): the thread's name}, the process of a GPU and the thread of a program."""
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}


def spans_of(events, program):
    """Returns the times of a program, in order."""
    threads = [thread for thread, name in names_of(events).items() if name == f"{program.name} ({program.pid})"]
    assert len(threads) == 1, "one GPU, and one line for each program"
    return sorted((e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == threads[0]), key=lambda e: e["ts"])


def check_rules(events):
    """What the format requires, and that nothing on one line overlaps: then times need no nesting."""
    threads, arrows, until = names_of(events), collections.defaultdict(list), collections.defaultdict(float)
    for e in sorted((e for e in events if e["ph"] != "M"), key=lambda e: e["ts"]):
        assert e["ph"] in ("X", "C", "i", "s", "f") and e["name"] and e["ts"] >= 0, e
        assert isinstance(e["pid"], int) and isinstance(e["tid"], int)
        line = (e["pid"], e["tid"])
        if e["ph"] == "X":
            assert line in threads and e["name"] in SPANS, e
            assert e["dur"] >= 0 and e["ts"] >= until[line] - 0.001, (until[line], e)
            until[line] = e["ts"] + e["dur"]
        elif e["ph"] == "C":
            assert all(isinstance(v, int) for v in e["args"].values())
        elif e["ph"] in "sf":
            arrows[e["id"]].append(e)
    for start, end in arrows.values():
        assert (start["ph"], end["ph"]) == ("s", "f") and start["ts"] <= end["ts"]
        assert start["tid"] != end["tid"] and end["bp"] == "e"


def test_programs_that_take_turns_are_shown_one_after_the_other(shared):
    programs = [shared.program("hold", "--bytes", "96MiB", "--block", "8MiB", "--seed", seed, stdin=subprocess.PIPE)
                for seed in ("1", "2")]
    for p in programs:
        p.await_event("filled")
    for p in programs * 3:
        p.order("touch")
    events = trace_of(shared)
    check_rules(events)
    spans = {p: spans_of(events, p) for p in programs}
    turns = sorted(((e["ts"], e["ts"] + e["dur"]) for p in programs for e in spans[p] if e["name"] in TURN))
    assert all(end <= begin + 0.001 for (_, end), (begin, _) in zip(turns, turns[1:])), "no two turns at once"
    for p in programs:
        wanted = ("waits", "restores", "runs", "gives way", "evicts")
        assert {e["name"] for e in spans[p]} >= set(wanted)
        clients = shared.clients()
        for name, field in (("evicted_bytes", "moved_out"), ("restored_bytes", "moved_in")):
            assert sum(e["args"].get(name, 0) for e in spans[p]) == clients[p.pid][field] > 2 * 40 * MIB
        assert max(e["args"].get("missing_bytes", 0) for e in spans[p] if e["name"] == "waits") > 40 * MIB
    assert any(e["ph"] == "s" for e in events), "an arrow shows who made way"
    memory = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
    assert max(memory) >= 96 * MIB and min(memory) < 40 * MIB

    text = shared.sublet("trace", "--last", "10min").stdout
    assert all(f"hold ({p.pid})" in text for p in programs) and " MiB out" in text and " MiB in" in text
    # A row may say more, where something is overdue or memory moves in both directions.
    assert max(len(line) for line in text.splitlines() if not re.search("overdue|out, .* in$", line)) <= 80, text
    assert re.search(r" \d\.\d{3}\+", text), "what the programs do now goes on"
    path = shared.path("trace.json")
    assert "ui.perfetto.dev" in shared.sublet("trace", path).stdout
    with open(path, encoding="utf-8") as f:
        check_rules(json.load(f)["traceEvents"])

    programs[0].send(signal.SIGKILL)
    wait_for(lambda: len(shared.clients()) == 1, 20, "the killed program to be gone")
    events = trace_of(shared)
    check_rules(events)
    assert len(spans_of(events, programs[0])) >= len(spans[programs[0]]), "its times are kept"
    left = [e for e in events if e["name"] == "leaves"]
    assert [names_of(events)[e["pid"], e["tid"]] for e in left] == [f"hold ({programs[0].pid})"]
    programs[1].finish()


def test_an_order_is_shown_with_who_gave_it(world):
    daemon = world.start_daemon()
    p = world.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    for words in (("pause", str(p.pid)), ("resume", str(p.pid)), ("set", "quantum", "1s"),
                  ("set", "--pid", str(p.pid), "weight", "2"), ("reload",)):
        assert world.sublet(*words).returncode == 0
    wait_for(lambda: world.sublet("evict", str(p.pid)).returncode == 0, 20, "it to be idle")
    me = pwd.getpwuid(os.getuid()).pw_name
    orders = [e["args"] for e in trace_of(world) if e["name"] == "is ordered"]
    assert [o["order"] for o in orders] == ["pause", "resume", "set", "set", "reload", "evict"]
    assert {o["by"] for o in orders} == {me}
    text = world.sublet("trace").stdout
    assert f"hold ({p.pid})" in text and f"is ordered: evict, by {me}" in text
    assert re.search(r" subletd +is ordered: reload", text)
    said = re.findall(rf"info: (.*), by user {os.getuid()}, process \d+", daemon.err())
    assert [re.sub(r".* (?=is|has)", "", line) for line in said] == [
        "is told to stand still", "is told to go on", "quantum = 1s from now on", "has weight = 2 from now on",
        "ordered to read the settings again", "is told to leave the card"]
    p.finish()


def test_an_allocation_that_is_refused_is_shown(world):
    world.start_daemon("--host-memory", "8MiB")
    world.program("hold", "--bytes", "96MiB", stdin=subprocess.PIPE).await_event("filled")
    assert world.program("hold", "--bytes", "96MiB").wait() != 0, "the host has no room for both"
    refused = [e for e in trace_of(world) if e["name"] == "is refused"]
    assert refused and all(e["args"]["why"] == "out of memory" for e in refused)


def test_what_came_before_the_daemon_was_killed_is_kept(world):
    program = world.program("hold", "--bytes", "16MiB", stdin=subprocess.PIPE,
                            SUBLET_DAEMON=os.path.join(BUILD, "subletd"))
    program.await_event("filled")
    before = spans_of(trace_of(world), program)
    os.kill(world.worker(), signal.SIGKILL)
    wait_for(lambda: world.sublet("status").returncode == 0 and program.pid in world.clients(), 30, "the program to be back")
    program.order("touch")
    events = trace_of(world)
    check_rules(events)
    assert sum(e["name"] == "starts" for e in events) == 2
    assert len(spans_of(events, program)) > len(before)
    program.finish()


def test_only_a_trace_that_can_be_made_is_written(shared):
    for args, status, message in ((["--last", "5"], 2, "a duration such as"), (["a", "b"], 2, "one file"),
                                  ([shared.path("no/such/folder")], 1, "cannot write")):
        done = shared.sublet("trace", *args)
        assert done.returncode == status and message in done.stderr, done.stderr
