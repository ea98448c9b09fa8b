"""Several GPUs: `sublet run --gpu` chooses one, names it for CUDA, and the daemon's ledger is the UUID's."""

import collections
import os
import subprocess

import pytest

import world as world_module
from world import BUILD, MIB, wait_for

SUBLET = os.path.join(BUILD, "sublet")
SHOW = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
HOLD = [os.path.join(BUILD, "programs", "hold"), "--bytes", "8MiB"]


@pytest.fixture
def make():
    """Returns a function that makes a machine with these cards."""
    worlds = []

    def made(**settings):
        mig = settings.pop("mig", None)
        w = world_module.World(**settings)
        w.env["SUBLET_DAEMON"] = os.path.join(BUILD, "subletd")
        if mig:
            w.env["SIMCUDA_MIG"] = str(mig)
        worlds.append(w)
        return w

    yield made
    for w in worlds:
        w.close()


@pytest.fixture
def four(make):
    w = make(gpus=4)
    os.mkdir(w.path("dev"))
    for n in range(4):
        with open(w.path(f"dev/nvidia{n}"), "w", encoding="ascii"):
            pass
    w.env["SIMCUDA_DEV"] = w.path("dev")
    w.start_daemon()
    return w


def uuids(w):
    return [gpu["uuid"] for gpu in w.status()["gpus"]]


def chosen(w, *args, **env):
    """Returns what `sublet run --gpu ARGS` sets CUDA_VISIBLE_DEVICES to."""
    done = w.sublet("run", "--gpu", *args, *SHOW, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refused(w, *args, **env):
    done = w.sublet("run", "--gpu", *args, *SHOW, **env)
    assert done.returncode != 0 and not done.stdout
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def clients_of(w):
    """Returns the pids of the clients of each GPU."""
    return [[c["pid"] for c in gpu["clients"]] for gpu in w.status()["gpus"]]


def hold(w, *before, **env):
    p = w.start([*before, *HOLD], stdin=subprocess.PIPE, **env)
    p.await_event("filled")
    return p


def test_a_number_or_the_beginning_of_a_uuid_becomes_the_full_uuid(four):
    """With an order of the user's, in which numbers could mean other GPUs."""
    other = {"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}
    all_of_them = uuids(four)
    assert [chosen(four, str(n), **other) for n in range(4)] == all_of_them
    assert chosen(four, all_of_them[2][:20], **other) == all_of_them[2]
    assert chosen(four, f"3,{all_of_them[0]}", **other) == f"{all_of_them[3]},{all_of_them[0]}"
    assert chosen(four, "1", CUDA_VISIBLE_DEVICES="0", **other) == all_of_them[1], "an explicit GPU wins"
    done = four.sublet("env", "--gpu", "2", **other)
    assert f"export CUDA_VISIBLE_DEVICES='{all_of_them[2]}'" in done.stdout.splitlines()


def test_a_program_that_understands_numbers_only_gets_numbers(four):
    all_of_them = uuids(four)
    assert chosen(four, f"3,{all_of_them[0]},3") == "3,0"
    assert chosen(four, "auto") == "0"
    assert chosen(four, "1", CUDA_DEVICE_ORDER="PCI_BUS_ID") == "1"
    lines = four.sublet("env", "--gpu", "2").stdout.splitlines()
    assert "export CUDA_VISIBLE_DEVICES='2'" in lines and "export CUDA_DEVICE_ORDER='PCI_BUS_ID'" in lines
    held = hold(four, SUBLET, "run", "--gpu", "2")
    assert [len(pids) for pids in clients_of(four)] == [0, 0, 1, 0]
    held.finish()


def test_a_container_with_some_of_the_gpus_gets_uuids(four):
    os.remove(four.path("dev/nvidia1"))
    assert chosen(four, "2") == uuids(four)[2]
    held = hold(four, SUBLET, "run", "--gpu", "2")
    assert [len(pids) for pids in clients_of(four)] == [0, 0, 1, 0]
    held.finish()


def test_a_gpu_that_is_not_there_is_named_beside_those_that_are(four):
    for wrong in ("4", "-1", "GPU-zz", "1x", "0,9"):
        said = refused(four, wrong)
        assert f"'{wrong.split(',')[-1]}' names no GPU; the GPUs here: 0 (" in said
        assert all(f"{n} ({uuid})" in said for n, uuid in enumerate(uuids(four)))
    assert "'GPU-' names more than one GPU" in refused(four, "GPU-")
    assert "--gpu needs auto|N|UUID" in refused(four, "")


def test_auto_chooses_among_the_visible_gpus(four):
    all_of_them = uuids(four)
    assert chosen(four, "auto", CUDA_VISIBLE_DEVICES=all_of_them[3]) == "3"
    assert chosen(four, "auto", CUDA_VISIBLE_DEVICES="2,9,0") == "2", "an invalid entry ends the list"
    assert "shows no GPU" in refused(four, "auto", CUDA_VISIBLE_DEVICES="-1")


def test_ten_programs_that_start_together_spread_over_four_gpus(four):
    started = [four.start([SUBLET, "run", "--gpu", "auto", *HOLD], stdin=subprocess.PIPE) for _ in range(10)]
    for p in started:
        p.await_event("filled")
    assert sorted(map(len, clients_of(four))) == [2, 2, 3, 3]
    for p in started:
        p.finish()


def test_auto_prefers_the_gpu_that_has_most_room(four):
    full = four.start([SUBLET, "run", "--gpu", "0", HOLD[0], "--bytes", "64MiB"], stdin=subprocess.PIPE)
    full.await_event("filled")
    little = [hold(four, SUBLET, "run", "--gpu", str(n)) for n in (1, 3)]
    assert chosen(four, "auto") == "2"
    for p in (full, *little):
        p.finish()


def test_a_reservation_ends_with_its_process(four):
    for _ in range(6):
        assert chosen(four, "auto") == "0"
    wait_for(lambda: four.status()["gpus"][0]["reserved"] == 0, 20, "the last reservation to end")
    waiting = four.start([SUBLET, "run", "--gpu", "auto", "sleep", "600"])
    wait_for(lambda: four.status()["gpus"][0]["reserved"] == 1, 20, "the reservation")
    assert chosen(four, "auto") == "1"
    waiting.process.kill()
    waiting.process.wait()
    assert chosen(four, "auto") == "0"


def test_auto_starts_a_private_daemon_where_there_is_none(make):
    w = make(gpus=2)
    os.mkdir(w.dir, 0o700)
    p = hold(w, SUBLET, "run", "--gpu", "auto")
    assert clients_of(w) == [[p.pid], []]
    p.finish()


def test_auto_without_any_gpu_says_so(make):
    w = make()
    os.mkdir(w.dir, 0o700)
    said = refused(w, "auto", LD_LIBRARY_PATH=None)
    assert "no GPU is known here" in said


def test_where_no_daemon_may_be_started_one_sentence_names_the_folder(make):
    w = make()
    os.mkdir(w.dir, 0o755)
    for gpu in ("auto", "0"):
        assert f"no subletd is running at {w.dir}" in refused(w, gpu), "others may enter the folder"


def test_clients_with_other_numbers_for_one_card_share_its_ledger(four):
    """CUDA's numbers are a process's own; the UUID says which card is meant."""
    all_of_them = uuids(four)
    ways = ["1", f"{all_of_them[1]},0", all_of_them[1][:16], "1,-1,2", "1,9,1"]
    holders = [four.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE, CUDA_VISIBLE_DEVICES=way) for way in ways]
    for p in holders:
        p.await_event("filled")
    assert [len(pids) for pids in clients_of(four)] == [0, len(ways), 0, 0]
    assert four.status()["gpus"][1]["foreign"] == 0
    assert len({p["pid"] for p in four.driver()["devices"][1]["processes"]}) >= len(ways)
    for p in holders:
        p.finish()


@pytest.mark.parametrize("nothing", ["", "-1", "9", "GPU-", "MIG-00"])
def test_a_list_without_a_valid_entry_shows_the_driver_no_gpu(four, nothing):
    p = four.program("hold", "--bytes", "8MiB", shared=False, CUDA_VISIBLE_DEVICES=nothing)
    assert p.wait() != 0


# ---- MIG, with the simulated NVML only ----


def test_mig_instances_are_cards_of_their_own(make):
    w = make(gpus=2, mig=2)
    w.start_daemon()
    gpus = w.status()["gpus"]
    assert [gpu["total"] for gpu in gpus] == [64 * MIB] * 4
    assert all(gpu["uuid"].startswith("MIG-") for gpu in gpus) and len(set(uuids(w))) == 4
    holders = [hold(w, SUBLET, "run", "--gpu", "auto") for _ in range(4)]
    assert [len(pids) for pids in clients_of(w)] == [1, 1, 1, 1]
    named = hold(w, SUBLET, "run", "--gpu", gpus[2]["uuid"][:12])
    assert named.pid in clients_of(w)[2]
    assert "name the GPUs by UUID" in refused(w, "auto", CUDA_VISIBLE_DEVICES="0"), "to CUDA a number is a whole card"
    first = w.program("hold", "--bytes", "8MiB", stdin=subprocess.PIPE)
    first.await_event("filled")
    assert first.pid in clients_of(w)[0], "without a list a program sees the first instance"
    for p in (*holders, named, first):
        p.finish()


def test_foreign_processes_count_on_their_instance_alone(make):
    w = make(gpus=1, mig=2)
    w.start_daemon()
    keeps = hold(w, SUBLET, "run", "--gpu", "0")
    foreign = w.program("hold", "--bytes", "24MiB", shared=False, stdin=subprocess.PIPE, CUDA_VISIBLE_DEVICES=uuids(w)[1])
    foreign.await_event("filled")
    wait_for(lambda: w.status()["gpus"][1]["foreign"] >= 24 * MIB, 30, "the foreign bytes")
    assert w.status()["gpus"][0]["foreign"] == 0
    assert collections.Counter(map(len, clients_of(w))) == {1: 1, 0: 1}
    for p in (keeps, foreign):
        p.finish()
