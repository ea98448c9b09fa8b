"""`sublet set`: every setting of the daemon and of one program, shown and changed, and who may change what."""

import json
import subprocess

import pytest

from test_configuration import write
from test_daemon import CARD, client, daemon, place  # noqa: F401 (fixtures)
from wireclient import order
from world import GENEROUS_S, MIB, wait_for

CLASS = "[class all]\nuser = 0-4294967294\nminimum = 30%\npriority_max = 3\n"


def told(world, *words):
    done = world.sublet("set", *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def refused(world, *words, status=1):
    done = world.sublet("set", *words)
    assert done.returncode == status and done.stdout == "" and len(done.stderr.splitlines()) == 1, done
    return done.stderr


def settings(world, *words):
    return dict(line.split(None, 1) for line in told(world, *words).splitlines())


@pytest.fixture
def conf(world):
    path = world.path("s.conf")
    write(path, "[daemon]\ngrace = 3s\n" + CLASS)
    world.start_daemon("--config", path)
    return path


@pytest.fixture
def program(world, conf):
    p = world.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    yield p
    p.finish()


# ---- the daemon's ----


def test_all_settings_are_shown_as_they_are_written(world, conf):
    shown = settings(world)
    assert shown["grace"] == "3s" and shown["quantum"] == "auto" and shown["resource_config"] == "none"
    assert len(shown) == len(json.loads(json.dumps(order(world.dir, order="get")))["settings"]) >= 20
    assert told(world, "grace") == "3s\n"


def test_a_setting_changes_at_once_and_shows_what_the_files_say(world, conf):
    assert told(world, "grace", "2500ms") == "grace is 2500ms\n"
    assert settings(world)["grace"].split() == ["2500ms", "(the", "files", "say", "3s)"]
    assert told(world, "grace", "3s") == "grace is 3s\n"
    assert settings(world)["grace"] == "3s"


def test_what_was_set_outlives_a_crash_and_a_reload_of_other_keys(world, conf):
    for key, value in (("grace", "7s"), ("freeze", "park"), ("handoff_share", "2.5%"), ("kill_overdue", "yes")):
        told(world, key, value)
    world.daemon.process.kill()
    world.daemon.wait()
    world.start_daemon("--config", conf)
    again = settings(world)
    assert [again[k].split()[0] for k in ("grace", "freeze", "handoff_share", "kill_overdue")] == ["7s", "park", "2.5%", "yes"]
    write(conf, "[daemon]\ngrace = 4s\n" + CLASS)
    assert world.sublet("reload").returncode == 0
    again = settings(world)
    assert again["grace"] == "4s", "the files have changed this key"
    assert again["freeze"].split()[0] == "park"


@pytest.mark.parametrize("words, names", [
    (("colour", "red"), ("colour",)),
    (("colour",), ("colour", "sublet set shows all")),
    (("grace", "soon"), ("malformed", '"soon"', "250ms")),
    (("quantum", "2"), ("malformed", '"2"', "250ms")),
    (("host_pool", "20"), ("malformed", '"20"', "20GiB")),
    (("mode", "sideways"), ("sideways", "exclusive")),
    (("clients_max", "7"), ("clients_max", "restart the daemon")),
    (("resource_config", "/x"), ("resource_config", "sublet reload")),
    (("quantum_min", "50min"), ("quantum_min is above quantum_max",)),
    (("handoff_share", "90%"), ("class all", "30.0%")),
    (("--pid", "1", "weight", "2"), ("no program with pid 1",)),
])
def test_a_setting_that_is_not_possible_changes_nothing_and_says_why(world, conf, words, names):
    before = told(world)
    said = refused(world, *words)
    assert all(n in said for n in names), said
    assert told(world) == before


@pytest.mark.parametrize("words, names", [
    (("a", "b", "c"), ("'c'",)),
    (("--pid", "0"), ("'0'", "number nor the name")),
    (("order", "stop"), ("'order'",)),
])
def test_a_wrong_command_line_is_not_sent(world, words, names):
    said = refused(world, *words, status=2)
    assert all(n in said for n in names), said


# ---- a program's own ----


def test_what_a_program_has_of_its_own_is_shown_and_changed(world, program):
    pid = str(program.pid)
    assert settings(world, "--pid", pid) == {"minimum": "none", "maximum": "100%", "weight": "1", "memory_cap": "none",
                                             "priority": "0"}
    for key, value in (("maximum", "80%"), ("minimum", "30%"), ("weight", "2.5"), ("memory_cap", "20MiB"), ("priority", "-4")):
        assert told(world, "--pid", pid, key, value) == f"{key} is {value}\n"
        assert told(world, "--pid", pid, key) == value + "\n"
    row = world.clients()[program.pid]
    assert (row["weight"], row["maximum"], row["memory_cap"], row["priority"]) == (2.5, 0.8, 20 * MIB, -4)
    assert "weight 2.5" in world.sublet("status").stdout
    assert "minimum is above maximum" in refused(world, "--pid", pid, "maximum", "20%")
    assert "malformed" in refused(world, "--pid", pid, "weight", "0")
    assert "20GiB" in refused(world, "--pid", pid, "memory_cap", "20")
    assert "unknown key" in refused(world, "--pid", pid, "quantum", "2s")
    for key in "memory_cap", "minimum":
        assert told(world, "--pid", pid, key, "none") == f"{key} is none\n"


def test_a_lower_cap_of_a_program_counts_for_new_memory_on_each_connection(daemon, client, place):  # noqa: F811
    daemon(*CARD)
    c = client("capped").start()
    c.allocate(8 * MIB)
    pid = c.process.pid

    def cap(value):
        return order(place, order="set_program", pid=pid, memory_cap=value)

    assert cap("10MiB") == {"value": "10MiB", "lowered": False}
    assert not c.ask(16 * MIB) and c.ask(9 * MIB)
    c.disconnect()
    c.start()
    assert not c.ask(16 * MIB), "the order holds, whatever the program claims again"
    assert cap("none") == {"value": "none", "lowered": False}
    assert c.ask(16 * MIB)


def test_a_program_sees_another_cap_at_once(world, conf):
    p = world.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE, SUBLET_MEMORY_CAP="30MiB")
    p.await_event("filled")
    assert p.order("info")["free"] <= 22 * MIB
    told(world, "--pid", str(p.pid), "memory_cap", "none")
    wait_for(lambda: p.order("info")["free"] > 40 * MIB, GENEROUS_S, "the whole card")
    told(world, "--pid", str(p.pid), "memory_cap", "20MiB")
    wait_for(lambda: p.order("info")["free"] <= 12 * MIB, GENEROUS_S, "the smaller cap")
    p.finish()


def test_a_maximum_that_is_set_holds_a_program_that_computes_alone(world, conf):
    p = world.program("fill", "--bytes", "8MiB", "--block", "4MiB", "--until", world.path("end"))
    p.await_event("filled")
    told(world, "--pid", str(p.pid), "maximum", "10%")
    wait_for(lambda: (world.clients()[p.pid]["preempted"] or {"times": 0})["times"] > 2, GENEROUS_S, "the maximum to stop the program",
             report=world.status_text)
    told(world, "--pid", str(p.pid), "maximum", "100%")
    wait_for(lambda: world.clients()[p.pid]["state"] == "running", GENEROUS_S, "the program to run again")
    write(world.path("end"), "")
    p.ok()


def test_a_daemon_that_starts_again_has_what_the_program_asked_for(world, conf):
    """An order to one program is the daemon's alone, and ends with it. What the program asked for at its start returns."""
    p = world.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE, SUBLET_WEIGHT="3")
    p.await_event("filled")
    told(world, "--pid", str(p.pid), "weight", "7")
    world.daemon.process.kill()
    world.daemon.wait()
    world.start_daemon("--config", conf)
    wait_for(lambda: world.clients().get(p.pid, {}).get("weight") == 3, GENEROUS_S, "the program", report=world.status_text)
    p.finish()


def test_priority_is_a_command_of_its_own(world, program):
    said = world.sublet("priority", str(program.pid), "-4")
    assert (said.returncode, said.stdout, said.stderr) == (0, "priority is -4\n", "")
    assert world.clients()[program.pid]["priority"] == -4
    for words in ((), ("1",), ("0", "1"), (str(program.pid), "1", "2")):
        said = world.sublet("priority", *words)
        assert said.returncode == 2 and len(said.stderr.splitlines()) == 1, said
    assert "malformed" in world.sublet("priority", str(program.pid), "high").stderr


def test_stop_says_that_it_did(world, conf):
    said = world.sublet("stop")
    assert (said.returncode, said.stdout) == (0, "subletd stops; running programs go on\n")
