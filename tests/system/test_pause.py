"""sublet pause and resume: how the daemon handles the order, for clients that obey it and for clients that do not."""

import contextlib
import fcntl
import os
import pathlib
import pty
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

import others
from counting import QUICK as QUICK_TURNS
from counting import assert_frozen, await_count, begin, counts, end, frozen_out, leave, take_the_card
from test_daemon import CARD, client, daemon, environment, place, wait_for  # noqa: F401
from wireclient import (BUILD, DETACHED, GENEROUS_S, IDLE, MIB, RUN, RUNNING, Client, obey_until, order)
from world import NO_PID_NAMESPACES
from world import wait_for as await_true

PAUSED, AWAY = 1, 2  # FROZEN.why
OFF, PARK, MOVE = 1, 2, 3  # FROZEN.mode
DRAIN_PAUSED = 5
STUCK = 2  # HOLDER.flags
TOOK_NS = 900_000


class Pausable(Client):
    """A client that pauses when it is told to, as the library does."""

    mode, paused, obedient, refused = PARK, False, True, 0

    def frozen(self, why=0, **changes):
        self.send("FROZEN", **(dict(for_ns=1 if why else 0, took_ns=TOOK_NS, why=why, mode=self.mode) | changes))

    def want_run(self):
        if self.paused:
            self.send("REQUEST", 0, need=self.allocated)
        else:
            super().want_run()

    def react(self, message):
        if message["type"] == "PAUSE" and self.obedient:
            self.obey_pause(bool(message["paused"]))
        elif message["type"] == "REVOKE" and message["lease"] == self.lease and self.paused and self.mode == PARK:
            self.refused += 1
            self.send("DRAIN_FAILED", lease=self.lease, reason=DRAIN_PAUSED)
        else:
            super().react(message)

    def obey_pause(self, paused):
        self.paused = paused
        self.frozen(PAUSED if paused else 0)
        if self.lease:
            self.send("IDLE" if paused else "ACTIVE", lease=self.lease)
        elif self.wants_run:
            self.want_run()

    def grown(self, size):
        """Grows the client to this size and waits until it has a lease. Returns the client."""
        self.allocate(size)
        obey_until([self], lambda: self.lease)
        self.usage()
        return self


@pytest.fixture
def pausable(place):  # noqa: F811
    made = []

    def make(name="fake", mode=PARK, **more):
        c = Pausable(place, name, **more)
        c.mode = mode
        made.append(c)
        return c

    yield make
    for c in made:
        c.end()


def pause(place, c):  # noqa: F811
    return order(place, order="pause", pid=c.process.pid)


def resume(place, c):  # noqa: F811
    return order(place, order="resume", pid=c.process.pid)


def shown(d, c):
    return d.client(c.process.pid)


def lose(d, c):
    """Closes the client's connection and reads all messages that came by it."""
    c.disconnect()
    wait_for(lambda: "lost" in shown(d, c)["flags"], what="the connection to be lost")
    while c.receive(0.2):
        pass


def come_back(c, *flags):
    c.connect()
    c.hello()
    c.attach(flags=RUNNING | IDLE | sum(flags), allocated=100 * MIB, backed=100 * MIB, wait=False)


def tally(d):
    return tuple(d.gpu()[kind] for kind in ("running", "waiting", "paused"))


# ---- orders ----


def test_the_daemon_tells_a_program_to_pause_and_to_go_on(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    c = pausable("train.py").start()
    assert shown(d, c)["frozen"] is None and shown(d, c)["freeze"] is None and shown(d, c)["paused"] is False
    c.frozen()
    c.grown(100 * MIB)
    assert pause(place, c) == {"name": "train.py", "already": False}
    obey_until([c], lambda: c.paused)
    wait_for(lambda: shown(d, c)["idle"], what="the client to be idle")
    now = shown(d, c)
    assert now["paused"] is True and now["freeze"] == "park" and now["freeze_off"] is None
    assert now["frozen"]["why"] == ["paused"] and now["frozen"]["took_s"] == TOOK_NS / 1e9
    assert now["state"] == "running" and tally(d) == (0, 0, 1), "it has its turn still, and does not count as running"
    assert wait_for(lambda: shown(d, c)["frozen"]["for_s"] > now["frozen"]["for_s"], what="time to pass")
    assert pause(place, c) == {"name": "train.py", "already": True}
    assert resume(place, c) == {"name": "train.py", "already": False}
    obey_until([c], lambda: not c.paused)
    wait_for(lambda: not shown(d, c)["idle"], what="the client to go on")
    assert shown(d, c)["frozen"]["why"] == [] and shown(d, c)["frozen"]["for_s"] == 0 and not shown(d, c)["paused"]
    assert tally(d) == (1, 0, 0)
    assert resume(place, c) == {"name": "train.py", "already": True}


def test_an_impossible_pause_gets_a_reason(daemon, pausable, place):  # noqa: F811
    daemon(*CARD)
    pid = os.getpid()
    assert order(place, order="pause", pid=pid)["error"] == f"no program with pid {pid} shares a GPU under this daemon: sublet status shows the pids"
    for bad in ({}, {"pid": "12"}, {"pid": 0}, {"pid": -1}, {"pid": 1 << 40}, {"pid": True}, {"pid": 1.5}, {"pid": None}):
        assert "number of a process" in order(place, order="pause", **bad)["error"]
        assert "number of a process" in order(place, order="resume", **bad)["error"]

    off = pausable("off", mode=OFF).start()
    off.frozen()
    odd = pausable("odd", mode=OFF).start()
    odd.frozen(off="the driver 999.1 is not known")
    for c, why in ((off, "it runs with SUBLET_FREEZE=off; start it with sublet run --freeze park"), (odd, "the driver 999.1 is not known")):
        wait_for(lambda: pause(place, c) == {"error": f"process {c.process.pid} cannot be paused: {why}"}, what=why)
        assert resume(place, c)["already"] is True
        assert "PAUSE" not in [m["type"] for m in c.seen]


def test_a_client_that_fails_to_pause_is_told_to_go_on(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    c = pausable().start()
    c.obedient = False
    assert pause(place, c)["already"] is False
    c.expect("PAUSE")
    c.frozen(PAUSED, for_ns=0, mode=OFF, off="the GPU did not stop")
    assert c.expect("PAUSE")["paused"] == 0, "the daemon lets the client go on"
    assert not shown(d, c)["paused"] and shown(d, c)["freeze_off"] == "the GPU did not stop"
    assert pause(place, c) == {"error": f"process {c.process.pid} cannot be paused: the GPU did not stop"}


def test_a_client_that_refuses_before_it_has_read_the_order_is_told_to_go_on(daemon, pausable, place):  # noqa: F811
    """Its report passes the order on the way. It would pause later, when freezing works again."""
    d = daemon(*CARD)
    c = pausable().start()
    c.obedient = False
    assert pause(place, c)["already"] is False
    c.frozen(off="the GPU did not stop")
    assert [c.expect("PAUSE")["paused"], c.expect("PAUSE")["paused"]] == [1, 0]
    assert not shown(d, c)["paused"]


def test_an_ended_process_cannot_be_paused(daemon, pausable, place):  # noqa: F811
    daemon(*CARD)
    c = pausable().start()
    c.kill()
    wait_for(lambda: "error" in pause(place, c), what="the end to be seen")
    assert "no program with pid" in pause(place, c)["error"]


@pytest.mark.parametrize("fields", [dict(why=4), dict(off="\x1b[2J"), dict(off="x" * 96)], ids=["why", "escape", "no end"])
def test_an_invalid_report_ends_the_clients_connection(daemon, pausable, fields):  # noqa: F811
    daemon(*CARD)
    c = pausable().start()
    c.frozen(**fields)
    assert c.expect("REFUSED")["code"] == 6
    c.expect("closed")


def test_figures_are_shown_as_no_older_than_the_process(daemon, pausable):  # noqa: F811
    d = daemon(*CARD)
    c = pausable().start()
    most = (1 << 64) - 1
    c.frozen(AWAY, for_ns=most, times=most, lost_ns=most, took_ns=most, mode=77)
    frozen = wait_for(lambda: shown(d, c)["frozen"], what="the report")
    assert all(0 <= frozen[f] < 3600 for f in ("for_s", "lost_s", "took_s")) and frozen["why"] == ["away"]
    assert shown(d, c)["freeze"] is None and not shown(d, c)["paused"]


# ---- connections that end ----


def test_a_process_that_comes_back_stays_paused(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    c = pausable().start().grown(100 * MIB)
    pause(place, c)
    obey_until([c], lambda: c.paused)
    lose(d, c)
    assert shown(d, c)["frozen"] is None and shown(d, c)["paused"] is True
    come_back(c)
    assert c.expect("PAUSE")["paused"] == 1
    assert shown(d, c)["paused"] is True
    resume(place, c)
    assert c.expect("PAUSE")["paused"] == 0


def test_a_process_resumed_while_disconnected_goes_on_when_it_is_back(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    c = pausable().start().grown(100 * MIB)
    pause(place, c)
    obey_until([c], lambda: c.paused)
    lose(d, c)
    assert resume(place, c)["already"] is False
    come_back(c)
    c.frozen(PAUSED)
    assert c.expect("PAUSE")["paused"] == 0
    assert not shown(d, c)["paused"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_a_restarted_daemon_believes_a_paused_process(daemon, pausable, place, how):  # noqa: F811
    d = daemon(*CARD)
    c = pausable().start().grown(100 * MIB)
    pause(place, c)
    obey_until([c], lambda: c.paused)
    d.end(how)
    c.expect("closed")
    d = daemon(*CARD)
    come_back(c, DETACHED)
    c.frozen(PAUSED)
    wait_for(lambda: shown(d, c)["paused"], what="the pause to be known")
    assert shown(d, c)["frozen"]["for_s"] > 0
    lose(d, c)  # the new daemon remembers the pause, too
    come_back(c)
    assert c.expect("PAUSE")["paused"] == 1
    assert resume(place, c)["already"] is False
    assert c.expect("PAUSE")["paused"] == 0


# ---- other clients that wait ----

QUICK = "[daemon]\nquantum = 200ms\npatience = 300ms\n"


@pytest.fixture
def quick(daemon, tmp_path):  # noqa: F811
    (tmp_path / "conf").write_text(QUICK)
    return lambda *options: daemon(*CARD, "--config", tmp_path / "conf", *options)


def obey_for(clients, seconds):
    end = time.monotonic() + seconds
    with contextlib.suppress(AssertionError):
        obey_until(clients, lambda: time.monotonic() >= end, timeout=seconds + GENEROUS_S)


def test_a_paused_program_gives_its_memory_away_in_mode_move(quick, pausable, place):
    d = quick()
    a, b = pausable("a", MOVE).start().grown(700 * MIB), pausable("b", MOVE).start()
    pause(place, a)
    obey_until([a], lambda: a.paused)
    b.allocate(700 * MIB)
    obey_until([a, b], lambda: b.lease and b.backed == 700 * MIB)
    a.frozen(PAUSED | AWAY)
    wait_for(lambda: (shown(d, a)["frozen"] or {}).get("why") == ["paused", "away"], what="the report")
    assert shown(d, a)["evicted"] > 0 and not a.refused
    obey_for([a, b], 1)
    assert b.lease and not b.revokes, "a paused client makes no request"
    resume(place, a)
    obey_until([a, b], lambda: a.lease and a.backed == 700 * MIB)


def test_a_paused_program_keeps_its_memory_in_mode_park_and_is_asked_once(quick, pausable, place):
    d = quick()
    a, b = pausable("a").start().grown(700 * MIB), pausable("b").start()
    pause(place, a)
    obey_until([a], lambda: a.paused)
    b.allocate(700 * MIB)
    obey_until([a, b], lambda: a.refused)
    wait_for(lambda: "unpreemptible" in shown(d, a)["flags"], what="the flag")
    obey_for([a, b], 4)
    assert a.refused == 1 and a.lease and a.backed == 700 * MIB and not b.lease
    assert "overdue" not in shown(d, a)["flags"]
    b.send("WHO")
    holder = b.expect("HOLDER")
    assert (holder["pid"], holder["flags"], holder["name"]) == (a.process.pid, STUCK, "a")
    resume(place, a)
    obey_until([a, b], lambda: b.lease and b.backed == 700 * MIB)
    assert "unpreemptible" not in shown(d, a)["flags"] and a.refused == 1


def test_a_client_that_refuses_without_a_pause_is_asked_again(quick, pausable, place):
    quick()
    a, b = pausable("a").start().grown(700 * MIB), pausable("b").start()
    a.paused = True  # the daemon has not told it to pause
    b.allocate(700 * MIB)
    obey_until([a, b], lambda: a.refused >= 2)


def test_in_exclusive_mode_nobody_waits_for_the_lease_of_a_paused_program(quick, pausable, place):
    d = quick()
    assert order(place, order="set", mode="exclusive") == {"value": "exclusive"}
    a, b = pausable("a").start().grown(100 * MIB), pausable("b").start()
    pause(place, a)
    obey_until([a], lambda: a.paused)
    b.allocate(100 * MIB)
    obey_until([a, b], lambda: b.lease)
    obey_for([a, b], 1)
    assert a.lease and a.refused == 1 and not b.revokes and shown(d, a)["state"] == "running"
    resume(place, a)
    obey_until([a, b], lambda: a.revokes + b.revokes > a.refused)


def test_a_client_paused_while_it_waits_leaves_the_queue(quick, pausable, place):
    d = quick()
    a, b, c = (pausable(name, MOVE).start() for name in "abc")
    a.grown(700 * MIB)
    for waiter in b, c:
        waiter.allocate(500 * MIB)
    pause(place, b)
    obey_until([a, b, c], lambda: b.paused and c.lease)
    obey_for([a, b, c], 1.5)
    assert not b.lease and shown(d, b)["state"] in ("idle", "evicting")
    resume(place, b)
    obey_until([a, b, c], lambda: b.lease)


# ---- the command line ----


def sublet(place, *args, **more):  # noqa: F811
    return subprocess.Popen([BUILD / "sublet", *args, "--daemon", place], env=environment(), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def ended(process, clients=()):
    until = time.monotonic() + GENEROUS_S
    while process.poll() is None:
        assert time.monotonic() < until, "sublet does not end"
        for c in clients:
            c.obey()
        time.sleep(0.002)
    out, err = process.communicate()
    return process.returncode, out, err


def test_the_command_says_when_a_program_is_paused_and_when_it_goes_on(daemon, pausable, place):  # noqa: F811
    daemon(*CARD)
    a, b = pausable("train.py").start().grown(50 * MIB), pausable("bench").start()
    pids = [str(c.process.pid) for c in (a, b)]
    # The command prints a line for each program as it answers.
    status, out, err = ended(sublet(place, "pause", *pids), [a, b])
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == sorted([f"paused {pids[0]} (train.py): it stands still, 900 us after the order",
                                               f"paused {pids[1]} (bench): it stands still, 900 us after the order"])
    status, out, err = ended(sublet(place, "pause", pids[0]), [a, b])
    assert (status, err) == (0, "") and out.startswith(f"paused {pids[0]} (train.py): it has stood still for "), out
    status, out, err = ended(sublet(place, "resume", *pids), [a, b])
    assert (status, err) == (0, "")
    assert sorted(out.splitlines()) == sorted([f"resumed {pids[0]} (train.py): it goes on", f"resumed {pids[1]} (bench): it goes on"])
    assert ended(sublet(place, "resume", pids[0]), [a, b]) == (0, f"resumed {pids[0]} (train.py): it was not paused\n", "")


def test_the_command_goes_on_past_a_program_that_it_cannot_pause(daemon, pausable, place):  # noqa: F811
    daemon(*CARD)
    a = pausable("a").start()
    status, out, err = ended(sublet(place, "pause", str(os.getpid()), str(a.process.pid)), [a])
    assert status == 1 and f"no program with pid {os.getpid()}" in err and len(err.splitlines()) == 1
    assert out == f"paused {a.process.pid} (a): it stands still, 900 us after the order\n"


def test_the_command_tells_why_a_program_does_not_pause(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    a = pausable("a").start()
    a.obedient = False
    began = time.monotonic()
    assert ended(sublet(place, "pause", str(a.process.pid)), [a]) == (
        1, "", f"sublet: process {a.process.pid} (a) was told to stand still and has not within 5 s: it does not answer; it "
               "waits for the driver; the order is withdrawn\n")
    assert time.monotonic() - began >= 5
    assert not shown(d, a)["paused"]
    told = [m["paused"] for m in a.seen if m["type"] == "PAUSE"]
    assert told == [1, 0] or told == [1] and a.expect("PAUSE")["paused"] == 0

    b = pausable("b").start()
    b.obedient = False
    running = sublet(place, "pause", str(b.process.pid))
    b.expect("PAUSE")
    b.frozen(off="the GPU did not stop")
    status, out, err = ended(running, [b])
    assert (status, out) == (1, "") and "cannot be paused: the GPU did not stop" in err

    c = pausable("c").start()
    c.obedient = False
    running = sublet(place, "pause", str(c.process.pid))
    c.expect("PAUSE")
    c.kill()
    assert "has ended" in ended(running)[2]

    e = pausable("e").start()
    e.obedient = False
    running = sublet(place, "pause", str(e.process.pid))
    e.expect("PAUSE")
    resume(place, e)
    assert "was told to go on meanwhile" in ended(running)[2]


def test_the_command_names_a_lost_connection(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    a = pausable("a").start()
    a.disconnect()
    wait_for(lambda: "lost" in shown(d, a)["flags"], what="the connection to be lost")
    status, _, err = ended(sublet(place, "pause", str(a.process.pid)))
    assert status == 1 and "it has lost its connection; the order is withdrawn" in err
    come_back(a)
    assert not shown(d, a)["paused"]


def test_an_interrupted_command_withdraws_its_order(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    a = pausable("a").start()
    a.obedient = False
    running = sublet(place, "pause", str(a.process.pid))
    assert a.expect("PAUSE")["paused"] == 1
    running.send_signal(signal.SIGINT)
    status, _, err = ended(running)
    assert status == 1 and "was told to stand still and has not so far: " in err and "the order is withdrawn" in err, err
    assert a.expect("PAUSE")["paused"] == 0 and not shown(d, a)["paused"]


def test_a_pause_that_another_order_began_stays_in_force(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    a = pausable("a").start()
    a.obedient = False
    pause(place, a)
    status, _, err = ended(sublet(place, "pause", str(a.process.pid)))
    assert status == 1 and "withdrawn" not in err and shown(d, a)["paused"]


def on_a_terminal(place, *args, columns=80):  # noqa: F811
    try:
        master, slave = pty.openpty()
    except OSError:
        pytest.skip("no terminal can be opened here; with /dev/pts mounted they run")
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([BUILD / "sublet", *args, "--daemon", place], env=environment(), stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    seen = b""
    with contextlib.suppress(OSError):  # the last process has closed the terminal
        while data := os.read(master, 4096):
            seen += data
    os.close(master)
    assert process.wait(GENEROUS_S) == 0
    return seen.decode().replace("\r\n", "\n")


def test_status_on_a_terminal_shows_paused_programs(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    a, b, c = (pausable(name).start() for name in ("parked", "moved", "told"))
    c.obedient = False
    for one in a, c:
        pause(place, one)
    obey_until([a], lambda: a.paused)
    b.frozen(AWAY)
    wait_for(lambda: shown(d, b)["frozen"] and (shown(d, a)["frozen"] or {}).get("for_s"), what="the reports")
    for columns in 60, 80, 120:
        lines = on_a_terminal(place, "status", columns=columns).splitlines()
        rows = {name: next(i for i, line in enumerate(lines) if f" {name} " in line) for name in ("parked", "moved", "told")}
        assert " paused " in lines[rows["parked"]] and "idle" not in lines[rows["parked"]]
        assert lines[rows["moved"] + 1].strip().startswith("frozen for ")
        assert lines[rows["moved"] + 1].endswith(", without its memory")
        assert lines[rows["told"] + 1].strip() == "told to pause"
        assert all(len(line) <= columns for line in lines[min(rows.values()) - 1:])


# ---- permissions ----


CONTAINED = f"""
import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
from wireclient import order
print(order(sys.argv[1], order=sys.argv[2], pid=int(sys.argv[3])))
"""


@others.needed
def test_root_of_a_container_pauses_nobody_outside(daemon, pausable, place):  # noqa: F811
    d = daemon(*CARD)
    c = pausable().start()
    for what in "pause", "resume":
        done = subprocess.run(["unshare", "--pid", "--fork", sys.executable, "-c", CONTAINED, place, what, str(c.process.pid)],
                              capture_output=True, text=True)
        if "unshare failed" in done.stderr or "Operation not permitted" in done.stderr:
            pytest.skip(NO_PID_NAMESPACES)
        assert "is another user's" in done.stdout, done
    assert not shown(d, c)["paused"]


# ---- real programs on the simulated driver ----


@pytest.fixture
def small(make_world):
    """A card that holds one of two programs of 32 MiB."""
    w = make_world(memory="64MiB")
    w.start_daemon(config=QUICK_TURNS)
    return w


def told(world, what, *programs):
    """Returns the output of `sublet pause` or `sublet resume` for programs that all obey."""
    done = world.sublet(what, *(str(p.pid) for p in programs))
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def of(world, p):
    return world.clients()[p.pid]


def is_paused(world, p):
    c = of(world, p)
    return c["paused"] and "paused" in c["frozen"]["why"]


def row(world, p):
    """Returns the program's line in the table, and the lines up to the next program's."""
    lines = world.status_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.split()[:1] == [str(p.pid)])
    more = []
    for line in lines[at + 1:]:
        if line.split()[:1] and line.split()[0].isdigit():
            break
        more.append(line.strip())
    return lines[at], " ".join(more)


@pytest.mark.parametrize("mode", ["park", "move"])
def test_a_kernel_does_not_run_while_its_program_is_paused(small, mode):
    p = counts(small, 1, SUBLET_FREEZE=mode)
    p.order("start")
    await_count(p)
    for turn in (1, 2):
        assert told(small, "pause", p).startswith(f"paused {p.pid} (counts): it stands still, ")
        assert_frozen(p, 0.5)
        assert is_paused(small, p) and of(small, p)["backed"] >= 32 * MIB and of(small, p)["frozen"]["times"] == turn - 1
        card = small.card()["processes"][0]
        assert card["freezes"] > card["thaws"]
        assert " paused " in row(small, p)[0] and row(small, p)[1] == ""
        assert told(small, "resume", p) == f"resumed {p.pid} (counts): it goes on\n"
        await_count(p)
        assert not of(small, p)["paused"] and of(small, p)["frozen"]["why"] == []
    end(small, p)
    assert [e["event"] for e in small.traced(pid=p.pid) if e["event"] in ("frozen", "thawed")] == ["frozen", "thawed"] * 2
    assert len(small.traced("freeze_test")) == 1


def test_work_submitted_during_a_pause_runs_after_it(small):
    p = counts(small, 1)
    p.order("start")
    told(small, "pause", p)
    p.order("call launch")
    p.await_event("begun")
    assert_frozen(p, 0.3)
    assert not p.events("returned")
    told(small, "resume", p)
    p.await_event("returned")
    end(small, p)


def test_two_programs_are_paused_and_only_one_resumed(small):
    pair = [counts(small, seed, mib=8) for seed in (1, 2)]
    for p in pair:
        p.order("start")
    assert len(told(small, "pause", *pair).splitlines()) == 2
    assert "it has stood still for " in told(small, "pause", pair[0])
    for p in pair:
        assert_frozen(p)
    told(small, "resume", pair[1])
    await_count(pair[1])
    assert_frozen(pair[0])
    told(small, "resume", pair[0])
    end(small, *pair)


def test_a_waiting_program_can_be_paused(small):
    """The paused program gets no turn before it is resumed."""
    rival = take_the_card(small)
    end_of_it = small.path("end-of-it")
    p = small.program("fill", "--bytes", "32MiB", "--block", "4MiB", "--until", end_of_it)
    await_true(lambda: p.pid in small.clients() and of(small, p)["state"] == "waiting", 60, "it to wait", report=small.status_text)
    assert "it stands still" in told(small, "pause", p)
    leave(small, rival)
    time.sleep(0.5)
    assert not p.events("round") and is_paused(small, p) and p.running()
    told(small, "resume", p)
    p.await_event("round")
    open(end_of_it, "w", encoding="ascii").close()
    assert small.check_sums(p.ok()) >= 1


def test_an_evicted_program_can_be_paused(small):
    p = counts(small, 1, SUBLET_FREEZE="move")
    begin(p)
    rival = take_the_card(small)
    await_true(lambda: frozen_out(small, p), 60, "it to be frozen")
    assert "frozen for " in row(small, p)[1] and "without its memory" in row(small, p)[1]
    assert "it stands still" in told(small, "pause", p)
    assert of(small, p)["frozen"]["why"] == ["paused", "away"]
    assert " paused " in row(small, p)[0]
    leave(small, rival)
    assert_frozen(p, 0.5)
    assert of(small, p)["evicted"] > 0, "a paused program does not ask for its memory"
    told(small, "resume", p)
    await_count(p)
    end(small, p)


def test_a_program_can_be_paused_during_its_restore(small):
    p = counts(small, 1, SUBLET_FREEZE="move")
    begin(p)
    rival = take_the_card(small)
    await_true(lambda: frozen_out(small, p), 60, "it to be frozen")
    small.slow_bus(f"in:10MB/s:60:{p.pid}")
    leave(small, rival)
    await_true(lambda: of(small, p)["state"] == "restoring", 60, "it to come back", interval=0, report=small.status_text)
    told(small, "pause", p)
    small.slow_bus(f"in:10MB/s:0:{p.pid}")
    assert_frozen(p, 0.5)
    told(small, "resume", p)
    await_count(p)
    end(small, p)


def test_another_program_takes_the_memory_of_a_paused_program_in_mode_move(small):
    p = counts(small, 1, SUBLET_FREEZE="move")
    begin(p)
    told(small, "pause", p)
    other = small.program("fill", "--bytes", "40MiB", "--block", "4MiB", "--rounds", 2).ok()
    assert small.check_sums(other) == 2
    assert_frozen(p)
    assert of(small, p)["evicted"] > 0 and of(small, p)["frozen"]["why"] == ["paused", "away"]
    told(small, "resume", p)
    await_count(p)
    end(small, p)
    assert not small.traced("drain_failed")


@pytest.mark.freeze("park")
def test_another_program_waits_for_a_paused_program_in_mode_park_and_is_told(small):
    """In mode park the paused program keeps its memory and loses only time."""
    p = counts(small, 1)
    p.order("start")
    await_count(p)
    told(small, "pause", p)
    other = small.program("fill", "--bytes", "40MiB", "--block", "4MiB", "--rounds", 2, SUBLET_QUIET=None)
    await_true(other.err, 60, "the notice", report=small.status_text)
    assert f"process {p.pid} (counts) holds it and cannot give way now" in other.err()
    assert_frozen(p)
    assert of(small, p)["backed"] >= 32 * MIB and not other.events("round") and not small.traced("evict_begin", p.pid)
    told(small, "resume", p)
    await_count(p)
    p.order("end")  # in mode park a turn lasts until its kernel ends
    assert small.check_sums(other.ok()) == 2
    p.finish()
    assert small.check_sums(p) == 1


@pytest.mark.parametrize("env, why", [(dict(SUBLET_FREEZE="off"), "it runs with SUBLET_FREEZE=off"),
                                      (dict(SIMCUDA_DRIVER="999.1.1"), "this release of sublet does not know the driver's calls"),
                                      (dict(SIMCUDA_FAIL="freeze:1+:forbid"), "the kernel driver or a sandbox does not allow it"),
                                      (dict(SIMCUDA_FAIL="freeze:8+:part=3"), "the GPU did not let go of the program in time")],
                         ids=["off", "unknown driver", "sandbox", "time-out"])
def test_a_program_that_cannot_be_paused_goes_on_and_says_why(small, env, why):
    p = counts(small, 1, mib=8, **env)
    p.order("start")
    await_count(p)
    for _ in range(2):
        done = small.sublet("pause", str(p.pid))
        assert (done.returncode, done.stdout) == (1, "") and f"cannot be paused: {why}" in done.stderr, done
        await_count(p)
    assert not of(small, p)["paused"] and of(small, p)["freeze"] == "off"
    end(small, p)


def test_a_program_without_a_context_can_be_paused(small):
    """The paused program makes no context before it is resumed."""
    p = counts(small, 1, mib=8)
    p.order("gone")
    told(small, "pause", p)
    p.process.stdin.write(b"fresh\n")
    p.process.stdin.flush()
    time.sleep(0.5)
    assert not p.events("round") and p.running()
    told(small, "resume", p)
    p.await_event("round")
    assert small.check_sums(p) == 1


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "ended"])
def test_a_paused_program_that_ends_leaves_all_to_others(small, how):
    p = counts(small, 1)
    p.order("start")
    await_count(p)
    told(small, "pause", p)
    p.send(how)
    p.wait()
    other = small.program("fill", "--bytes", "52MiB", "--block", "4MiB", "--rounds", 2).ok()
    assert small.check_sums(other) == 2


def test_a_program_stays_paused_when_the_worker_of_its_private_daemon_is_killed(make_world):
    world = make_world(memory="64MiB")
    world.env["SUBLET_DAEMON"] = str(BUILD / "subletd")
    p = counts(world, 1)
    p.order("start")
    await_count(p)
    told(world, "pause", p)
    os.kill(world.worker(), signal.SIGKILL)
    await_true(lambda: world.sublet("status", "--json").returncode == 0 and p.pid in world.clients() and is_paused(world, p), 60,
               "the new worker to know of it", report=world.status_text)
    assert_frozen(p, 0.5)
    told(world, "resume", p)
    await_count(p)
    end(world, p)


def test_a_paused_program_goes_on_when_there_is_no_daemon_any_more(small):
    p = counts(small, 1)
    p.order("start")
    await_count(p)
    told(small, "pause", p)
    small.daemon.process.kill()
    small.daemon.wait()
    assert_frozen(p, 3)
    await_count(p)
    assert "this program, which was paused, goes on" in p.err()
    end(small, p)
