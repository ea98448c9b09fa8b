"""`sublet run --ranks`: a process sees a device of its own for each rank, on the simulated driver with a CUDA runtime
library of the tests."""

import json
import os
import re
import signal
import subprocess

import pytest
from world import BUILD, wait_for

DOORS = ["linked", "dlsym", "getproc"]
LIBRARIES = ":".join(os.path.join(BUILD, name) for name in ("libsublet-ranks.so", "libsublet.so"))


def devices(world, how="list", *args, ranks=4, **env):
    return world.program("devices", "--how", how, *args, LD_PRELOAD=LIBRARIES, SUBLET_RANKS=ranks and str(ranks), **env)


def names(p, kind="device"):
    """Returns the UUIDs of the runtime's devices, the driver's cards or NVML's devices, in the same form."""
    return [re.sub("^GPU|^MIG|-", "", e["uuid"]) for e in p.ok().events(kind)]


@pytest.mark.parametrize("door", DOORS)
def test_each_device_has_a_name_of_its_own(shared, door):
    p = devices(shared, door=door).ok()
    found = p.events("device")
    assert p.events("devices")[0]["n"] == len(found) == len(p.events("nvml")) == 4
    assert len(set(names(p))) == len({e["pci"] for e in found}) == 4
    assert [f"{d:04X}:{b:02X}:{s:02X}.0" for d, b, s in (e["numbers"] for e in found)] == [e["pci"] for e in found]
    assert {e["name"] for e in found} == {"Simulated H200"}


def test_the_driver_tells_the_truth_of_its_cards(shared):
    """The runtime library checks it, and refuses to start if it finds something else."""
    plain, p = devices(shared, ranks=None).ok(), devices(shared).ok()
    assert plain.events("card") == p.events("card") and p.events("devices")[0]["cards"] == 1
    assert set(names(p, "nvml")) == set(names(p, "card")), "NVML's devices are the card"


def test_all_processes_agree_on_the_names(shared):
    assert names(devices(shared)) == names(devices(shared))


@pytest.mark.parametrize("door", DOORS)
def test_memory_and_threads_belong_to_the_device_that_is_used(shared, door):
    """The program checks what it allocates and maps; with --how one it uses no other device of the card."""
    for device in range(4):
        devices(shared, "one", "--gpu", device, door=door).ok()


@pytest.mark.parametrize("door", DOORS)
def test_devices_of_one_card_work_side_by_side_in_a_process(shared, door):
    for first in (0, 2):
        peers = devices(shared, "all", "--gpu", first, door=door).ok().events("peers")
        assert len(peers) == 12 and not any(e["can"] for e in peers) and all(e["shared"] for e in peers)
    assert shared.card()["used"] == 0


def test_the_first_device_of_a_card_is_called_as_the_card(shared):
    plain = devices(shared, ranks=None).ok()
    assert plain.events("devices")[0]["n"] == 1
    assert names(plain)[0] == names(plain, "nvml")[0] == names(devices(shared))[0]


def test_a_launcher_selects_devices_with_cuda_visible_devices(shared):
    every = devices(shared).ok()
    uuids = names(every)
    text = "GPU-" + "-".join(re.match("(.{8})(.{4})(.{4})(.{4})(.{12})", uuids[2]).groups())
    for value, shown in (("3", [3]), ("2,0", [2, 0]), (text, [2]), (text[:14] + ",1", [2, 1]), ("1,-1,2", [1]), ("1,4", [1])):
        p = devices(shared, CUDA_VISIBLE_DEVICES=value).ok()
        assert names(p) == [uuids[i] for i in shown], value
        assert len(p.events("nvml")) == 4, "NVML does not heed the variable"
        # The simulated driver has read another value; children get the launcher's.
        assert p.events("devices")[0]["visible"] == value
    devices(shared, "one", CUDA_VISIBLE_DEVICES="3").ok()
    devices(shared, "all", CUDA_VISIBLE_DEVICES="3,1").ok()


@pytest.mark.parametrize("value", ["", "-1", "4", "GPU-00000000"])
def test_a_list_that_shows_no_device_leaves_none(shared, value):
    p = devices(shared, "one", CUDA_VISIBLE_DEVICES=value)
    assert p.wait() == 4 and "CUDA_ERROR_NO_DEVICE" in p.out()


def test_a_list_that_names_a_device_twice_is_refused_as_by_the_driver(make_world):
    world = make_world(gpus=2)
    world.start_daemon()
    for value, ranks in (("1,1", 4), ("3,0,3", 4), ("0,0", None)):
        p = devices(world, "one", ranks=ranks, CUDA_VISIBLE_DEVICES=value)
        assert p.wait() == 4 and "CUDA_ERROR_INVALID_DEVICE" in p.out(), value


def test_devices_are_dealt_out_to_two_cards_in_turn(make_world):
    world = make_world(gpus=2)
    world.start_daemon()
    p = devices(world).ok()
    numbers = [e["numbers"] for e in p.events("device")]
    assert numbers[0][1] == numbers[2][1] != numbers[1][1] == numbers[3][1], "the cards have different buses"
    assert names(p, "nvml") == names(p, "card") * 2
    p = devices(world, "all", "--gpu", "3").ok()
    for e in p.events("peers"):
        same = (e["a"] + e["b"]) % 2 == 0
        assert (e["shared"], e["can"]) == (same, not same), "the cards can reach each other"
    for device in range(4):
        p = devices(world, "one", "--gpu", device).ok()
        assert {e["gpu"] for e in world.traced("card", p.pid) if e["bytes"]} == {device % 2}


def test_a_launcher_selects_devices_of_two_cards(make_world):
    """Programs work on the right card, also if they choose no device or begin with the second card."""
    world = make_world(gpus=2)
    world.start_daemon()
    cards, uuids = names(devices(world), "card"), names(devices(world))
    for value, shown, used in (("3", [3], [1]), ("2", [2], [0]), ("1,0", [1, 0], [1, 0]), ("3,1", [3, 1], [1]), ("3,2,1", [3, 2, 1], [1, 0])):
        p = devices(world, CUDA_VISIBLE_DEVICES=value).ok()
        assert names(p) == [uuids[i] for i in shown] and names(p, "card") == [cards[i] for i in used], value
        assert p.events("devices")[0]["visible"] == value
        devices(world, "all", CUDA_VISIBLE_DEVICES=value).ok()
        for i, device in enumerate(shown):
            p = devices(world, "one", "--gpu", i, CUDA_VISIBLE_DEVICES=value).ok()
            assert {e["gpu"] for e in world.traced("card", p.pid) if e["bytes"]} == {used.index(device % 2)}, value


def test_the_gpus_that_were_given_are_behind_the_devices(make_world):
    world = make_world(gpus=2)
    world.start_daemon()
    second = names(devices(world))[1]
    p = devices(world, SUBLET_RANKS_GPUS="1").ok()
    assert names(p)[0] == second and set(names(p, "nvml")) == {second} and len(names(p)) == 4
    p = world.sublet("run", "--ranks", "2", "--gpu", "1", "--", os.path.join(BUILD, "programs", "devices"), CUDA_VISIBLE_DEVICES="0")
    found = [json.loads(line) for line in p.stdout.splitlines()]
    assert [e["uuid"] for e in found if e["event"] == "device"][0] == second
    assert [e["visible"] for e in found if e["event"] == "devices"] == ["unset"]


@pytest.mark.parametrize("variable", ["LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "PMI_LOCAL_RANK"])
def test_ranks_are_spread_over_mig_instances(make_world, variable):
    world = make_world()
    world.env["SIMCUDA_MIG"] = "2"
    world.start_daemon()
    instances = [gpu["uuid"] for gpu in world.status()["gpus"]]
    assert len(instances) == 2
    called = {tuple(names(devices(world, "list", **{variable: str(rank)}))) for rank in range(4)}
    assert len(called) == 1 and len(set(*called)) == 4, "all ranks agree on the names of four devices"
    for rank in range(4):
        devices(world, "one", "--gpu", rank, **{variable: str(rank)}).ok()
        assert instance_of(world, "--gpu", rank, **{variable: str(rank)}) == instances[rank % 2]
    assert instance_of(world) == instances[0], "a process without a rank is on the first instance"
    given = {"SUBLET_RANKS_GPUS": instances[1], variable: "2"}
    assert instance_of(world, **given) == instances[1], "only an instance that was given is used"


def instance_of(world, *args, **env):
    """Runs a program. Returns the UUID of the only GPU or instance on which the daemon knows it."""
    p = world.program("fill", "--bytes", "4MiB", "--block", "2MiB", "--until", world.path("end"), *args, LD_PRELOAD=LIBRARIES,
                      SUBLET_RANKS="4", **env)
    p.await_event("round")

    def on():
        return [gpu["uuid"] for gpu in world.status()["gpus"] if any(c["pid"] == p.pid for c in gpu["clients"])]

    found = wait_for(on, 20, "the daemon to know the program", report=p.report)
    p.send(signal.SIGKILL)
    p.wait()
    assert len(found) == 1
    return found[0]


def test_ranks_that_do_not_fit_the_card_together_take_turns(shared):
    """Each rank checks all its memory each round, on its own device."""
    ranks = [shared.program("fill", "--bytes", "80MiB", "--block", "4MiB", "--seconds", "2", "--seed", rank, "--gpu", rank, LD_PRELOAD=LIBRARIES,
                            SUBLET_RANKS="2") for rank in (0, 1)]
    for p in ranks:
        p.ok()
        shared.check_sums(p)
    assert shared.status()["gpus"][0]["handoffs"] > 0


def test_a_program_without_ranks_is_as_before(shared):
    libraries = devices(shared, "all", ranks=None).ok(), shared.program("devices", "--how", "all").ok()
    assert [p.events("devices")[0]["n"] for p in libraries] == [1, 1]


def test_the_library_exports_the_names_that_it_replaces_and_no_other():
    dynamic = subprocess.run(["nm", "-D", "--defined-only", os.path.join(BUILD, "libsublet-ranks.so")], stdout=subprocess.PIPE,
                             text=True, check=True).stdout
    exported = {line.split()[-1] for line in dynamic.splitlines()}
    assert {"sublet_front", "cuDeviceGet", "cuInit", "nvmlDeviceGetCount_v2", "cudaGetDeviceCount", "ncclAllReduce"} <= exported
    assert [name for name in exported if not re.match(r"cu(da)?[A-Z]|nvml[A-Z]|p?nccl[A-Z]|sublet_front$|nvshmemx_hostlib_init_attr$|_exit$|_Exit$", name)] == []
    needed = subprocess.run(["nm", "-D", "--undefined-only", os.path.join(BUILD, "libsublet-ranks.so")], stdout=subprocess.PIPE, text=True,
                            check=True).stdout
    assert [v for v in re.findall(r"GLIBC_(\d+)\.(\d+)", needed) if tuple(map(int, v)) > (2, 34)] == []
