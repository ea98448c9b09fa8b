"""`sublet status`: its JSON is as docs/status.schema.json says, and the table as people ask for it."""

import json
import os
import subprocess

import jsonschema
import pytest

from test_daemon import CARD, client, daemon, place  # noqa: F401 (fixtures)
from wireclient import MIB, obey_until, order
from world import BUILD, GENEROUS_S, ROOT, wait_for

with open(os.path.join(ROOT, "docs", "status.schema.json"), encoding="utf-8") as f:
    SCHEMA = json.load(f)


def valid(status):
    jsonschema.Draft202012Validator(SCHEMA).validate(status)
    return status


def seen(status, field):
    return {json.dumps(c[field]) for g in status["gpus"] for c in g["clients"]}


def test_the_schema_is_one_and_explains_every_field():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def fields(part):
        for name, field in part.get("properties", {}).items():
            yield name, field
            yield from fields(field)

    for part in (SCHEMA, *SCHEMA["$defs"].values()):
        for name, field in fields(part):
            assert "description" in field or field["type"] in ("object", "array"), name


def test_the_json_is_as_the_schema_says(world):
    world.start_daemon()
    assert not any(g["clients"] for g in valid(world.status())["gpus"])
    one = world.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    two = world.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE, SUBLET_SHARE="0.1:0.5",
                        SUBLET_WEIGHT="2", SUBLET_MEMORY_CAP="20MiB", SUBLET_GROUP="g", SUBLET_MEMORY="overflow")
    for p in (one, two):
        p.await_event("filled")
    assert world.sublet("pause", str(one.pid)).returncode == 0
    now = valid(world.status())
    assert len(now["gpus"][0]["clients"]) == 2 and len(seen(now, "frozen")) == 2
    assert world.sublet("resume", str(one.pid)).returncode == 0
    one.finish()
    two.finish()


def test_the_json_of_a_client_that_says_nothing_is_valid(daemon, client, place):  # noqa: F811
    d = daemon(*CARD)
    c = client("silent").start()
    c.allocate(8 * MIB)
    assert len(valid(d.status())["gpus"][0]["clients"]) == 1


def test_a_client_with_a_part_of_its_room_still_names_what_it_waits_for(daemon, client, place):  # noqa: F811
    d = daemon(*CARD)
    assert "value" in order(d.dir, order="set", quantum="60s")
    holder, other = client("holder").start(), client("other").start()
    holder.allocate(600 * MIB)
    obey_until([holder], lambda: holder.lease)
    other.allocate(700 * MIB)

    def row():
        return next(c for c in d.status()["gpus"][0]["clients"] if c["name"] == "other")

    obey_until([holder, other], lambda: 0 < other.backed < other.allocated and row()["state"] == "restoring")
    assert row()["waiting_for"] == holder.process.pid


# ---- the table ----


@pytest.fixture
def three(world):
    """Three programs that hold memory, and do nothing."""
    world.start_daemon()
    programs = [world.program("hold", "--bytes", f"{8 + i}MiB", "--block", "4MiB", stdin=subprocess.PIPE,
                              SUBLET_NAME=f"number-{i}") for i in range(3)]
    for p in programs:
        p.await_event("filled")
    yield programs
    for p in programs:
        p.finish()


def test_one_program_is_shown_by_its_pid(world, three):
    said = world.sublet("status", str(three[1].pid))
    assert said.returncode == 0 and "number-1" in said.stdout
    assert "number-0" not in said.stdout and "number-2" not in said.stdout
    said = world.sublet("status", "1")
    assert (said.returncode, said.stdout) == (1, "") and "no program with pid 1" in said.stderr
    for words in (("x",), ("1", "2"), ("1", "--json"), ("--watch", "--json")):
        said = world.sublet("status", *words)
        assert (said.returncode, said.stdout) == (2, "") and len(said.stderr.splitlines()) == 1, words


def test_watch_shows_the_table_again_and_ends_with_the_daemon(world, three):
    watch = world.start([os.path.join(BUILD, "sublet"), "status", "--watch"])
    wait_for(lambda: watch.out().count("number-0") >= 3, GENEROUS_S, "three tables", report=watch.report)
    assert "3 idle" in watch.out() or "3 run" in watch.out()
    assert "/s moved" in watch.out()
    assert world.sublet("stop").returncode == 0
    assert watch.wait() == 1 and "no subletd is running" in watch.err()


def test_a_status_without_programs_points_to_the_simulators_daemon(make_world, tmp_path):
    world = make_world()
    simulated, other = {"XDG_RUNTIME_DIR": str(tmp_path), "SUBLET_DIR": None}, str(tmp_path / "other")
    assert world.sublet("run", "--sim", "--", os.path.join(BUILD, "programs", "fill"), "--bytes", "8MiB", "--rounds", "1",
                        **simulated).returncode == 0
    hint = "sublet status --sim shows them"
    try:
        assert hint in world.sublet("status", **{**simulated, "SUBLET_DIR": other}).stderr
        for option in ("--sim", f"--daemon={other}"):
            assert hint not in world.sublet("status", option, **simulated).stderr
    finally:
        assert world.sublet("stop", "--sim", **simulated).returncode == 0
    wait_for(lambda: hint not in world.sublet("status", **{**simulated, "SUBLET_DIR": other}).stderr, GENEROUS_S,
             "the daemon to end")
