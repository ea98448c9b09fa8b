"""sublet-device-plugin, with a kubelet of another gRPC (kubelet.py) and a real daemon on the simulated GPU."""

import calendar
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest

import garbage
import kubelet as kubelet_module
import others
from kubelet import PLUGIN, ApiServer, pod
from node import FIRST, LATE, MUSL, SECOND, THIRD, Node, add_mps, add_process, card_of, group_of, write
from tenants import Tenants
from world import PATIENCE, SANITIZER, cpu_s, wait_for

pytestmark = pytest.mark.skipif(bool(kubelet_module.MISSING), reason=kubelet_module.MISSING or "")


@pytest.fixture
def make_node(make_world):
    """Returns a function that makes a node with a daemon, and with a plugin unless plugin=False."""
    nodes = []

    def make(*args, gpus=1, api=None, plugin=True, daemon=True, mig=None, compute_mode=None, **env):
        world = make_world(gpus=gpus)
        if compute_mode:
            world.env["SIMCUDA_COMPUTE_MODE"] = str(compute_mode)
        if mig:
            world.env["SIMCUDA_MIG"] = str(mig)
        if daemon:
            world.start_daemon()
        os.makedirs(world.dir, mode=0o700, exist_ok=True)
        os.makedirs(os.path.join(world.dir, "conf.d"), exist_ok=True)
        node = Node(world, api)
        nodes.append(node)
        if plugin:
            node.start_plugin(*args, **env)
            node.kubelet.await_event("register")
        return node

    yield make
    for node in nodes:
        node.kubelet.kill()
        if node.plugin and node.plugin.running():
            node.plugin.send(signal.SIGTERM)
            node.plugin.ok()  # a sanitizer that has found something ends it with another status


@pytest.fixture
def api():
    server = ApiServer()
    yield server
    server.close()


# ---- registration ----

def test_registers_and_lists_each_gpu_as_many_devices(make_node):
    node = make_node("--devices-per-gpu", "7", gpus=2)
    told = node.kubelet.await_event("register")
    assert told["resource"] == "sublet.dev/gpu" and told["endpoint"] == "sublet-gpu.sock"
    assert told["told"] == told["options"] == {"pre_start_required": True, "get_preferred_allocation_available": True}
    gpus = [gpu["uuid"] for gpu in node.world.status()["gpus"]]
    assert sorted(node.devices()) == sorted(f"{uuid}::{k}" for uuid in gpus for k in range(7))


def test_mig_instances_are_gpus_of_their_own(make_node):
    node = make_node("--devices-per-gpu", "2", mig=2)
    devices = node.devices()
    assert len(devices) == 4 and all(d.startswith("MIG-") for d in devices)


def test_registers_again_with_a_kubelet_that_restarts(make_node):
    """Also if it was away for a while, and if another one follows at once."""
    node = make_node()
    devices, took = node.devices(), []
    for pause in (0, 3, 0):
        node.kubelet.kill()
        time.sleep(pause)
        node.kubelet.start()  # removes the sockets of all plugins
        began = node.kubelet.of("ready")[0]["at"]
        took.append(node.kubelet.await_event("register")["at"] - began)
        assert node.devices() == devices
        assert node.kubelet.allocate(devices[:1])["code"] == 0
    assert min(took) <= 2 * PATIENCE, took  # a busy machine disturbs some
    assert node.plugin.running()


def test_a_removed_directory_of_kubelet_is_found_again(make_node):
    node = make_node()
    node.devices()
    node.kubelet.kill()
    os.rename(node.kubelet.folder, node.kubelet.folder + ".old")
    node.says("not registered with kubelet")
    os.mkdir(node.kubelet.folder)
    node.kubelet.start()
    node.kubelet.await_event("register")
    assert node.devices()


def test_a_stream_that_is_cut_is_registered_again(make_node):
    node = make_node()
    node.devices()
    node.kubelet.send(cut=True)
    node.kubelet.await_event("register", 2)
    wait_for(lambda: len(node.kubelet.of("list")) >= 2, 20, "the devices again")
    assert node.devices()


def test_a_plugin_that_was_killed_is_followed_by_the_next(make_node):
    node = make_node()
    devices = node.devices()
    node.plugin.send(signal.SIGKILL)
    node.plugin.wait()
    assert os.path.exists(os.path.join(node.kubelet.folder, "sublet-gpu.sock"))  # it is left there
    node.start_plugin()
    node.kubelet.await_event("register", 2)
    assert node.kubelet.allocate(devices[:1])["code"] == 0


def test_a_second_plugin_waits_until_the_first_has_ended(make_node, api):
    node = make_node(api=api)
    node.devices()
    wait_for(lambda: api.watches, 20, "the watch")
    first, asked = node.plugin, len(api.asked)
    second = node.start_plugin()
    waits = f"another sublet-device-plugin (process {first.pid}) serves {node.world.dir}: this one waits until it has ended"
    node.says(waits)
    third = node.start_plugin()
    node.says(waits)
    time.sleep(1)
    assert len(node.kubelet.of("register")) == 1 and len(api.asked) == asked, "neither does anything"
    node.kubelet.restart()
    node.kubelet.await_event("register")
    third.send(signal.SIGTERM)
    third.ok()
    assert node.kubelet.allocate(node.devices()[:1])["code"] == 0
    node.plugin = second
    first.send(signal.SIGKILL)
    first.wait()
    node.kubelet.await_event("register", 2)
    node.says("registered sublet.dev/gpu")
    assert node.kubelet.allocate(node.devices()[:1])["code"] == 0 and second.err().count("waits") == 1


def test_sigterm_ends_the_plugin_and_removes_its_socket(make_node):
    node = make_node()
    node.devices()
    node.plugin.send(signal.SIGTERM)
    node.plugin.ok()
    assert not os.path.exists(os.path.join(node.kubelet.folder, "sublet-gpu.sock"))
    assert node.kubelet.await_event("over")["code"] != 0


def test_a_kubelet_that_refuses_is_asked_again_and_told_once(make_node):
    node = make_node(plugin=False)
    # Another resource's plugin has the socket's name: the kubelet cannot ask back.
    folder = node.kubelet.folder
    os.mkdir(os.path.join(folder, "sublet-gpu.sock"))
    node.start_plugin()
    node.says("not registered with kubelet")
    time.sleep(3)
    assert node.plugin.err().count("not registered") == 1
    os.rmdir(os.path.join(folder, "sublet-gpu.sock"))
    node.kubelet.await_event("register")


# ---- health ----

def test_devices_are_unhealthy_while_the_daemon_is_gone(make_node):
    node = make_node(gpus=2)
    devices = node.devices()
    node.world.daemon.send(signal.SIGKILL)
    node.kubelet.await_devices(lambda e: e["devices"] == devices and not e["healthy"], "unhealthy devices")
    node.says("does not answer (Connection refused): all GPUs are unhealthy")
    node.world.start_daemon()
    assert node.kubelet.await_devices(lambda e: e["healthy"], "healthy devices")["healthy"] == devices


def test_a_plugin_that_starts_before_the_daemon_registers_when_it_knows_the_gpus(make_node):
    node = make_node(plugin=False, daemon=False)
    node.start_plugin()
    node.says("does not answer (No such file or directory)")
    assert not node.kubelet.of("register")
    node.world.start_daemon()
    node.kubelet.await_event("register")
    assert node.kubelet.await_event("list")["healthy"]  # the first list has them
    node.says("answers again")


def test_a_daemon_without_nvml_is_told_and_its_gpus_are_offered_later(make_node):
    node = make_node(plugin=False, daemon=False)
    node.world.start_daemon(SIMCUDA_FAIL="nvmlInit:1+:9")
    node.start_plugin()
    node.says("knows no GPU, so kubelet is offered none")
    assert not node.kubelet.await_event("list")["devices"]
    assert node.world.sublet("stop").returncode == 0
    node.world.start_daemon()
    assert node.devices()
    assert node.plugin.err().count("knows no GPU") == 1


def test_a_daemon_that_restarts_leaves_the_devices_healthy(make_node):
    node = make_node()
    node.devices()
    lists = 0
    for _ in range(5):
        began = time.monotonic()
        assert node.world.sublet("stop").returncode == 0
        node.world.start_daemon()
        if time.monotonic() - began < 2:  # a busy machine may need longer than the plugin waits, which is 3 s
            break
        node.devices()
        lists = len(node.kubelet.of("list"))
    else:
        pytest.skip("this machine is too busy to restart a daemon within 2 s; on another one they run")
    time.sleep(4)
    assert all(e["healthy"] for e in node.kubelet.of("list")[lists:]), node.plugin.report()


def test_a_daemon_that_hangs_counts_as_gone(make_node):
    node = make_node()
    node.devices()
    node.world.daemon.send(signal.SIGSTOP)
    node.kubelet.await_devices(lambda e: not e["healthy"], "unhealthy devices")
    # Kubelet's calls are answered meanwhile, and at once; a busy machine disturbs some of them.
    took = []
    for _ in range(5):
        began = time.monotonic()
        assert node.kubelet.allocate([node.kubelet.of("list")[0]["devices"][0]])["code"] == 0
        took.append(time.monotonic() - began)
    assert min(took) < 2 * PATIENCE, took
    node.world.daemon.send(signal.SIGCONT)
    node.devices()


def test_only_the_gpu_that_is_lost_is_unhealthy(make_node):
    node = make_node(gpus=2)
    before = node.devices()
    lost, other = (gpu["uuid"] for gpu in node.world.status()["gpus"])
    node.world.program("fill", "--bytes", "8MiB", "--rounds", "4", "--seed", "1", shared=False,
                       SIMCUDA_FAIL="cuLaunchKernel:1:lost").wait()
    left = node.kubelet.await_devices(lambda e: e["healthy"] and len(e["healthy"]) < len(before), "one GPU's devices")
    assert {card_of(d) for d in left["healthy"]} == {other} and left["devices"] == before
    node.says(f"GPU {lost} is unhealthy: ")


def test_a_gpu_of_mps_is_unhealthy_with_a_sentence(make_node):
    node = make_node(gpus=2, plugin=False)
    mine, other = (gpu["uuid"] for gpu in node.world.status()["gpus"])
    add_mps(node, 77, 0)
    node.start_plugin()
    left = node.kubelet.await_devices(lambda e: 0 < len(e["healthy"]) < len(e["devices"]), "one healthy GPU")
    assert {card_of(d) for d in left["healthy"]} == {other}
    node.says(f"GPU {mine} is unhealthy: MPS serves it")


def test_a_process_with_a_name_of_mps_and_no_gpu_makes_no_gpu_unhealthy(make_node):
    node = make_node(gpus=2, plugin=False)
    write(node, "nvidia0", "")
    add_process(node, 77, SECOND, comm="nvidia-cuda-mps")
    os.makedirs(node.world.path("proc/77/fd"))
    os.symlink(node.world.path("nvidia0"), node.world.path("proc/77/fd/3"))
    node.start_plugin()
    listed = node.kubelet.await_event("list")
    assert listed["devices"] == listed["healthy"]


def test_a_gpu_that_one_program_or_none_may_use_is_unhealthy_until_its_compute_mode_is_back(make_node, tmp_path):
    def set_modes(text):
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(tmp_path / "modes")

    set_modes("0,3")
    node = make_node(gpus=2, compute_mode=tmp_path / "modes")
    shared, other = (gpu["uuid"] for gpu in node.world.status()["gpus"])
    assert {card_of(d) for d in node.devices()} == {shared}
    node.says(f"GPU {other} is unhealthy: its compute mode is exclusive, so only one program can use it")
    set_modes("2,0")
    node.kubelet.await_devices(lambda e: {card_of(d) for d in e["healthy"]} == {other}, "the other GPU")
    node.says(f"GPU {shared} is unhealthy: its compute mode is prohibited, so no program can use it")
    node.says(f"GPU {other} is healthy again")
    said = node.world.sublet("status")
    assert "prohibited compute mode: no program at all" in said.stdout, said.stdout
    set_modes("0,0")
    node.kubelet.await_devices(lambda e: len(e["healthy"]) == len(e["devices"]), "both GPUs")
    assert [gpu["compute_mode"] for gpu in node.world.status()["gpus"]] == ["default", "default"]
    assert "compute mode" not in node.world.sublet("status").stdout


def test_a_server_of_mps_that_subletd_has_started_makes_no_gpu_unhealthy(make_node):
    node = make_node(gpus=2, plugin=False)
    uuids = [gpu["uuid"] for gpu in node.world.status()["gpus"]]
    for card, folder in enumerate((f"/run/sublet/mps/1000.0.{uuids[0][4:12]}", "/run/other/mps")):
        add_mps(node, 77 + card, card, environ=f"A=1\0CUDA_MPS_PIPE_DIRECTORY={folder}\0")
    node.start_plugin()
    left = node.kubelet.await_devices(lambda e: 0 < len(e["healthy"]) < len(e["devices"]), "one healthy GPU")
    assert {card_of(d) for d in left["healthy"]} == {uuids[0]}


# ---- what pods get ----

def test_several_devices_are_of_different_gpus(make_node):
    node = make_node("--devices-per-gpu", "3", gpus=4)
    devices = node.devices()
    chosen = node.kubelet.prefer(devices, 4)
    assert len({card_of(d) for d in chosen}) == 4
    assert len({card_of(d) for d in node.kubelet.prefer(devices, 6)}) == 4  # beyond: some twice
    assert len(set(node.kubelet.prefer(devices, 12))) == 12
    must = devices[-1]
    chosen = node.kubelet.prefer(devices, 2, [must])
    assert must in chosen and len({card_of(d) for d in chosen}) == 2


@pytest.mark.parametrize("place", ["spread", "pack"])
def test_the_place_follows_what_programs_hold(make_node, place):
    node = make_node("--place", place, gpus=2)
    devices = node.devices()
    hold = node.world.program("hold", "--bytes", "64MiB", stdin=subprocess.PIPE)
    hold.await_event("filled")
    busy = max(node.world.status()["gpus"], key=lambda gpu: gpu["committed"])["uuid"]

    def chosen():
        return (card_of(node.kubelet.prefer(devices, 1)[0]) == busy) == (place == "pack")

    wait_for(chosen, 20, f"{place} to see the busy GPU")  # the plugin asks the daemon each 2 s
    hold.finish()


def test_the_container_gets_library_socket_and_gpu(make_node):
    node = make_node("--library", "/opt/lib.so", "--host-dir", "/srv/sublet", "--preload-file", "/opt/preload", gpus=2)
    devices = node.devices()
    one, two = (card_of(devices[0]), card_of(devices[-1]))
    done = node.kubelet.allocate([devices[0], devices[-1], devices[1]], [devices[-1]])["response"]["container_responses"]
    mounts = {m["container_path"]: m["host_path"] for m in done[0]["mounts"]}
    assert mounts == {"/usr/lib/sublet/libsublet.so": "/opt/lib.so", "/run/sublet": "/srv/sublet/public", "/etc/ld.so.preload": "/opt/preload"}
    assert all(m["read_only"] for m in done[0]["mounts"])
    assert done[0]["envs"] == {"SUBLET_DIR": "/run/sublet", "SUBLET_INJECTED": "preload-file", "NVIDIA_VISIBLE_DEVICES": f"{one},{two}"}
    assert done[1]["envs"]["NVIDIA_VISIBLE_DEVICES"] == two
    assert not done[0]["devices"] and not done[0]["cdi_devices"] and not done[0]["annotations"]


def test_cdi_names_are_in_their_field_and_in_the_annotation(make_node):
    node = make_node("--gpu-access", "cdi", "--inject", "environment", gpus=2)
    devices = node.devices()
    done = node.kubelet.allocate([devices[0], devices[-1]])["response"]["container_responses"][0]
    names = [f"nvidia.com/gpu={card_of(d)}" for d in (devices[0], devices[-1])]
    assert [d["name"] for d in done["cdi_devices"]] == names
    assert done["annotations"] == {"cdi.k8s.io/sublet": ",".join(names)}
    assert done["envs"] == {"SUBLET_DIR": "/run/sublet", "SUBLET_INJECTED": "environment", "LD_PRELOAD": "/usr/lib/sublet/libsublet.so"}
    assert "/etc/ld.so.preload" not in [m["container_path"] for m in done["mounts"]]


def test_plain_nodes_are_named_by_the_drivers_numbers(make_node):
    node = make_node("--gpu-access", "devices", gpus=2, plugin=False)
    uuids = [gpu["uuid"] for gpu in node.world.status()["gpus"]]
    for at, uuid in enumerate(uuids):
        folder = node.world.path(f"proc/driver/nvidia/gpus/0000:0{at}:00.0")
        os.makedirs(folder)
        with open(os.path.join(folder, "information"), "w", encoding="ascii") as f:
            f.write(f"Model: \t\t A\nGPU UUID: \t {uuid}\nDevice Minor: \t {4 - at}\n")
    os.makedirs(node.world.path("dev"))
    open(node.world.path("dev/nvidia-uvm-tools"), "w", encoding="ascii").close()
    node.start_plugin("--gpu-access", "devices", "--dev", node.world.path("dev"))
    node.devices()
    done = node.kubelet.allocate([f"{uuids[1]}::3"])["response"]["container_responses"][0]
    assert [(d["host_path"], d["container_path"], d["permissions"]) for d in done["devices"]] == \
        [(f"/dev/{name}",) * 2 + ("rw",) for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia3")]
    assert "NVIDIA_VISIBLE_DEVICES" not in done["envs"]


def test_mig_is_refused_with_plain_nodes(make_node):
    node = make_node("--gpu-access", "devices", mig=2)
    refused = node.kubelet.allocate(node.devices()[:1])
    assert refused["code"] == 9 and "--gpu-access cdi or environment" in refused["details"]


def test_an_unknown_device_is_an_invalid_argument(make_node):
    node = make_node("--devices-per-gpu", "2")
    known = node.devices()[0]
    for wrong in ("GPU-nothing::0", "", "::", "::1", card_of(known) + "::2", card_of(known) + "::01", card_of(known) + ":: 1", known + "0"):
        refused = node.kubelet.allocate([known, wrong])
        assert refused["code"] == 3 and f'no device "{wrong}"' in refused["details"], refused
    assert node.kubelet.allocate([known])["code"] == 0


def test_unknown_methods_and_unreadable_messages_are_answered(make_node):
    node = make_node()
    node.devices()
    for name in ("/v1beta1.DevicePlugin/Nothing", "/other.Service/Allocate", "/x"):
        assert node.kubelet.ask(raw=name)["code"] == 12
    assert node.kubelet.ask(raw="/v1beta1.DevicePlugin/Allocate", hex="ffffff")["code"] == 3
    assert node.kubelet.ask(raw="/v1beta1.DevicePlugin/GetPreferredAllocation", hex="ffffff")["code"] == 3
    assert node.kubelet.ask(raw="/v1beta1.DevicePlugin/Allocate")["code"] == 0  # no container: nothing to give


def test_a_thousand_allocations_are_answered(make_node):
    """bench/plugin.py measures how fast."""
    node = make_node("--devices-per-gpu", "100", gpus=2)
    devices = node.devices()
    assert len(devices) == 200
    done = node.kubelet.ask(bench="Allocate", request={"container_requests": [{"devices_ids": devices[:100]}]}, times=1000)
    assert done["code"] == 0 and len(done["response"]) == 1000


def test_garbage_is_answered_or_its_connection_closed(make_node):
    """10,000 pieces of it: python3 tests/system/garbage.py."""
    node = make_node()
    devices = node.devices()
    garbage.throw(os.path.join(node.kubelet.folder, "sublet-gpu.sock"), 300, seed=18, alive=node.plugin.running)
    assert node.kubelet.allocate(devices[:1])["code"] == 0, node.plugin.report()


def test_more_connections_than_descriptors_do_not_stop_the_plugin(make_node):
    node = make_node(plugin=False)
    node.start_plugin(before=["prlimit", "--nofile=64"])
    devices = node.devices()
    many = []
    for _ in range(200):
        many.append(socket.socket(socket.AF_UNIX))
        many[-1].connect(os.path.join(node.kubelet.folder, "sublet-gpu.sock"))
    before = cpu_s(node.plugin.pid)
    time.sleep(1)
    assert node.kubelet.allocate(devices[:1])["code"] == 0
    assert cpu_s(node.plugin.pid) - before < 0.5
    for one in many:
        one.close()
    node.kubelet.restart()
    assert node.devices() == devices


# ---- the node's pods ----

def test_annotations_become_classes(make_node, api):
    api.put(pod("notebook", FIRST, minimum="30%", maximum="0.5", weight="0.5", memory_cap="20Gi", priority="-3"))
    api.put(pod("plain", SECOND, namespace="lab"))
    api.put(pod("other", THIRD, resource="cpu", minimum="10%"))
    node = make_node(api=api)
    node.await_file("[pod")
    text = node.file()
    assert re.search(rf"^\[class notebook-[0-9a-f]{{12}}\]\npod = {FIRST}\nminimum = 30.0%\nmaximum = 50.0%\nweight = 0.500\n"
                     rf"memory_cap = {20 << 30}B\npriority = -3$", text, re.M), text
    assert f"[pod {SECOND}]\nnamespace = lab\nname = plain\n" in text
    assert text.count("[class") == 1 and THIRD not in text


def test_pods_that_come_change_and_end_are_followed(make_node, api):
    node = make_node(api=api)
    node.await_file("# Written")
    api.put(pod("a", FIRST, priority="-1"))
    node.await_file("priority = -1")
    api.put(pod("a", FIRST, priority="-2"))
    node.await_file("priority = -2")
    api.put(pod("b", SECOND))
    node.await_file(SECOND)
    api.put(pod("a", FIRST, phase="Succeeded", priority="-2"))
    node.await_file(FIRST, there=False)
    api.remove(SECOND)
    node.await_file(SECOND, there=False)
    assert len(api.lists()) == 1 and not api.wrong


def test_pods_of_a_group_have_one_class(make_node, api):
    node = make_node(api=api)
    for name, uid, namespace in (("a", FIRST, "lab"), ("b", SECOND, "lab"), ("c", THIRD, "other")):
        api.put(pod(name, uid, namespace=namespace, group="ranks", created=f"2026-11-27T10:00:0{ord(name) % 10}Z"))
    node.await_file(THIRD)
    assert re.search(rf"\[class ranks-\w+\]\npod = {FIRST}\n +{SECOND}\ngroup = yes\n", node.file()), node.file()
    assert node.file().count("[class ranks-") == 2


def test_what_the_owner_does_not_allow_is_lowered_and_nonsense_left_out(make_node, api):
    api.put(pod("greedy", FIRST, minimum="90%", priority="20", weight="3", maximum="no", memory_cap="-1", group="a b\n[default]"))
    node = make_node("--priority-most", "5", "--minimum-most", "40%", "--weight-most", "2", api=api)
    node.await_file("minimum = 40.0%")
    assert "priority = 5" in node.file() and "weight = 2.000" in node.file()
    assert "maximum" not in node.file() and "default]" not in node.file()
    for text in ("minimum is 90%, more than", "priority is 20, more than", "weight is 3, more than", 'maximum is "no", not a share',
                 'memory-cap is "-1", not a size', 'group is "a b'):
        node.says(text)
    api.put(pod("greedy", FIRST, phase="Pending", minimum="90%", priority="20", weight="3", maximum="no", memory_cap="-1", group="a b\n[default]"))
    api.put(pod("next", SECOND))
    node.await_file(SECOND)
    assert node.plugin.err().count("minimum is 90%") == 1  # the same again is not told again


def test_requests_of_memory_become_minima(make_node, api):
    api.put(pod("a", FIRST, memory_request="32Mi"))
    node = make_node(api=api)  # a card of 128 MiB
    node.await_file("minimum = 23.7%")


def test_versions_that_are_too_old_are_listed_again(make_node, api):
    node = make_node(api=api)
    node.await_file("# Written")
    api.put(pod("a", FIRST))
    node.await_file(FIRST)
    with api.changed:  # what happens meanwhile is not told
        del api.pods[FIRST]
    api.forget()
    node.await_file(FIRST, there=False)
    api.put(pod("b", SECOND))
    node.await_file(SECOND)
    assert "cannot read" not in node.plugin.err()


def test_a_watch_that_is_cut_goes_on(make_node, api):
    node = make_node(api=api)
    node.await_file("# Written")
    wait_for(lambda: api.watches, 20, "the watch")
    api.cut()
    api.put(pod("a", FIRST))
    node.await_file(FIRST)


def test_tokens_are_read_again(make_node, api):
    node = make_node(api=api)
    node.await_file("# Written")
    api.token = "second"
    wait_for(lambda: api.watches, 20, "the watch")
    api.cut()
    node.says("401, the token in")
    node.set_token("second")
    api.put(pod("a", FIRST))
    node.await_file(FIRST)
    node.says("pods are read from")
    assert "first" not in node.plugin.err() and "second" not in node.plugin.err()


def test_an_api_server_in_trouble_is_told_once_and_asked_seldom(make_node, api):
    api.broken = 503
    node = make_node(api=api)
    node.says("it answers 503")
    wait_for(lambda: len(api.asked_at) >= 3, 30, "three requests")
    assert api.asked_at[2] - api.asked_at[0] >= 2, "a second and more between two requests"
    assert node.plugin.err().count("cannot read") == 1
    api.broken = None
    api.put(pod("a", FIRST))
    node.await_file(FIRST)


def test_many_pods_come_in_pages(make_node, api):
    for n in range(60):
        api.put(pod(f"p{n}", f"{n:08x}-0000-4000-8000-000000000000"))
    node = make_node(api=api)
    node.await_file(f"{59:08x}-0000")
    assert node.file().count("[pod ") == 60 and len([a for a in api.asked if "continue=" in a]) == 2


def test_large_pods_hide_no_other(make_node, api):
    def large(number, **annotations):
        one = pod(f"large{number}", f"{number:08x}-0000-4000-8000-000000000000", **annotations)
        one["spec"]["containers"][0]["env"] = [{"name": f"X{n}", "value": "v" * 1000} for n in range(400)]
        return one

    for number in range(25):  # a page of 10 MiB
        api.put(large(number))
    api.put(pod("huge", FIRST, minimum="v" * (1 << 20)))
    api.put(pod("a", SECOND, priority="-1"))
    node = make_node(api=api)
    node.await_file("priority = -1")
    assert node.file().count("[pod ") == 26 and FIRST not in node.file()
    node.says("this node's pods are read without default/huge: it is too large")
    wait_for(lambda: api.watches, 20, "the watch")
    api.put(pod("huge", FIRST, minimum="v" * (1 << 21)))  # and as events
    api.put(large(3, priority="-3"))
    node.await_file("priority = -3")
    assert node.plugin.err().count("default/huge") == 1 and len(api.lists()) == 1


def test_a_container_starts_after_the_daemon_knows_its_pod(make_node, api):
    node = make_node(api=api)
    node.await_file("# Written")
    wait_for(lambda: api.watches, 20, "the watch")
    with api.changed:  # only a list shows this pod
        api.pods[FIRST] = pod("a", FIRST, priority="-1")
    assert node.kubelet.call("PreStartContainer", devices_ids=node.devices()[:1])["code"] == 0
    assert "priority = -1" in node.file()


def test_a_container_starts_without_the_api_server_after_a_while(make_node, api):
    node = make_node(api=api)
    node.await_file("# Written")
    api.broken = 503
    began = time.monotonic()
    assert node.kubelet.call("PreStartContainer", devices_ids=node.devices()[:1])["code"] == 0
    assert time.monotonic() - began > 4
    node.says("starts before the daemon knows its pod")


def test_the_connection_to_the_api_server_is_checked(make_node, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("no openssl to make a certificate with; where it is installed they run")
    for name in ("right", "wrong"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                        "subjectAltName=DNS:localhost", "-keyout", tmp_path / f"{name}.key", "-out", tmp_path / f"{name}.crt"],
                       check=True, stderr=subprocess.DEVNULL, timeout=60)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "right.crt", tmp_path / "right.key")
    server = ApiServer(tls)
    try:
        server.put(pod("a", FIRST))
        node = make_node("--ca-file", str(tmp_path / "wrong.crt"), api=server)
        node.says("cannot read this node's pods")
        assert not server.asked
        node.plugin.send(signal.SIGTERM)
        node.plugin.ok()
        node.start_plugin("--ca-file", str(tmp_path / "right.crt"))
        node.await_file(FIRST)
    finally:
        server.close()


class FakeDaemon:
    """Answers status and reload; refuses files whose minima add up to more than `most` percent."""

    def __init__(self, folder, most):
        self.folder, self.most, self.reloads = folder, most, 0
        os.makedirs(os.path.join(folder, "conf.d"), exist_ok=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(os.path.join(folder, "control.sock"))
        self.socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                peer, _ = self.socket.accept()
            except OSError:
                return
            with peer, peer.makefile("rw") as f:
                order = json.loads(f.readline())["order"]
                f.write(json.dumps(getattr(self, "on_" + order)()) + "\n")

    def on_status(self):
        return {"schema": 1, "instance": "0123456789abcdef", "gpus": [
            {"uuid": "GPU-00000000-0000-0000-0000-000000000000", "nvml_index": 0, "measured_s_ago": 0.1, "total": 1 << 30,
             "committed": 0, "waiting": 0, "clients": []}]}

    def on_reload(self):
        self.reloads += 1
        with open(os.path.join(self.folder, "conf.d", "50-kubernetes.conf"), encoding="utf-8") as f:
            asked = sum(float(v) for v in re.findall(r"^minimum = ([\d.]+)%$", f.read(), re.M))
        return {"classes": 1} if asked <= self.most else {"error": f"minima of {asked} % are more than {self.most} %"}

    def on_stop(self):  # the world's end asks for it
        return {"error": "this is a test"}

    def close(self):
        self.socket.close()


def test_the_newest_minima_are_left_out_when_the_daemon_refuses(make_node, api):
    """And come back when there is room. The daemon's own classes take 30 % here, so 65 % are left."""
    node = make_node(api=api, daemon=False, plugin=False)
    daemon = FakeDaemon(node.world.dir, 65)
    try:
        for n, (uid, share) in enumerate(((FIRST, "40%"), (SECOND, "30%"), (THIRD, "20%"))):
            api.put(pod(f"p{n}", uid, minimum=share, priority="-1", created=f"2026-11-27T10:00:0{n}Z"))
        node.start_plugin()
        node.says("pod default/p1 goes without its minimum")
        node.says("pod default/p2 goes without its minimum")
        assert re.findall("^minimum.*$", node.file(), re.M) == ["minimum = 40.0%"] and node.file().count("priority = -1") == 3
        api.remove(FIRST)
        node.await_file("minimum = 30.0%")
        assert re.findall("^minimum.*$", node.file(), re.M) == ["minimum = 30.0%", "minimum = 20.0%"]
        assert node.plugin.err().count("goes without its minimum") == 2
    finally:
        daemon.close()


def test_a_daemon_that_takes_nothing_leaves_the_file_whole(make_node, api):
    node = make_node(api=api, daemon=False, plugin=False)
    daemon = FakeDaemon(node.world.dir, -1)
    try:
        api.put(pod("a", FIRST, minimum="20%"))
        node.start_plugin()
        node.says("it refuses")
        assert "minimum = 20.0%" in node.file()
    finally:
        daemon.close()


def await_another_look(node):
    """Waits until the plugin has looked at the processes again, and finds another pod with musl by then. It has looked at
    all other processes, too, when it asks for that pod's Event."""
    before = node.api.posts
    node.api.put(pod("late", LATE))
    node.await_file("name = late")
    add_process(node, 99, LATE, loader=MUSL)
    node.says("pod default/late runs on musl (process 99")
    wait_for(lambda: node.api.posts > before, 30, "the request for that pod's Event")


def test_a_pod_with_musl_is_told_once(make_node, api):
    api.put(pod("alpine", FIRST))
    api.put(pod("debian", SECOND))
    node = make_node(api=api, plugin=False)
    add_process(node, 40, FIRST, loader=MUSL)
    add_process(node, 41, FIRST, loader=MUSL)
    add_process(node, 42, SECOND)
    add_process(node, 43, SECOND, maps=f"7f00-7f01 r-xp 0 0:0 1 {MUSL}\n7f02-7f03 r-xp 0 0:0 1 /usr/lib/sublet/libsublet.so\n",
                cgroup=f"0::/kubepods/pod{SECOND}/x\n")
    node.start_plugin()
    node.says("pod default/alpine runs on musl (process 4")
    api.cut()  # another list of pods is no reason to tell it again
    await_another_look(node)
    assert node.plugin.err().count("alpine runs on musl") == node.plugin.err().count("late runs on musl") == 1
    assert node.plugin.err().count("runs on musl") == 2
    wait_for(lambda: len(api.events) == 2, 30, "both Events")
    assert api.posts == 2


@pytest.fixture
def version_2():
    made = Tenants(version_2=True)
    yield made
    made.close()


@others.needed
def test_a_process_of_a_pod_of_version_2_is_known_in_a_cgroup_namespace(version_2, make_node, api):
    api.put(pod("alpine", version_2.uid("alpine")))
    node = make_node(api=api, plugin=False)
    loader = node.world.path("ld-musl-x86_64.so.1")
    write(node, "ld-musl-x86_64.so.1", "no loader, but mapped as one")
    script = """
import mmap, sys, time
with open(sys.argv[1]) as f:
    mapped = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
print("mapped", flush=True)
time.sleep(600)
"""
    program = node.world.start([*version_2.pod_of("cgroupfs", "besteffort", "alpine"), sys.executable, "-c", script, loader])
    wait_for(program.out, 30, "the program's line", report=program.report)
    node.start_plugin("--proc", "/proc", before=[*version_2.pod_of("cgroupfs", "burstable", "sublet"), "unshare", "--cgroup"])
    node.says(f"pod default/alpine runs on musl (process {program.pid}, ")


def test_a_pod_with_musl_gets_an_event(make_node, api):
    api.put(pod("alpine", FIRST, namespace="lab"))
    node = make_node(api=api, plugin=False)
    add_process(node, 40, FIRST, loader=MUSL)
    node.start_plugin()
    wait_for(lambda: api.events, 30, "the Event", report=node.plugin.report)
    ((namespace, name), event), = api.events.items()
    when = event["firstTimestamp"]
    assert re.fullmatch(r"alpine\.[0-9a-f]{16}", name) and namespace == "lab"
    assert abs(calendar.timegm(time.strptime(when, "%Y-%m-%dT%H:%M:%SZ")) - time.time()) < 60
    assert event == {
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": "lab"}, "type": "Warning",
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": "lab", "name": "alpine", "uid": FIRST},
        "reason": "SubletNotInjected", "source": {"component": "sublet-device-plugin", "host": "node-1"},
        "message": "runs on musl (process 40, python3), where the library cannot be loaded: its programs are not shared, "
                   "and count as foreign; use an image with glibc",
        "reportingComponent": "sublet-device-plugin", "reportingInstance": "node-1",
        "firstTimestamp": when, "lastTimestamp": when, "count": 1}
    # The next plugin tells it again, to a server that has it.
    node.plugin.send(signal.SIGTERM)
    node.plugin.ok()
    node.start_plugin()
    wait_for(lambda: api.posts == 2, 30, "the Event again")
    node.says("runs on musl")
    assert len(api.events) == 1 and "no Event" not in node.plugin.err()


def test_a_server_that_takes_no_events_costs_one_line(make_node, request):
    """Two servers, each with a node, because the plugin looks at the processes every ten seconds only."""
    nodes = []
    for status, said in ((403, "403, the service account may not create events"), (500, "the API server answers 500")):
        api = ApiServer()
        request.addfinalizer(api.close)
        api.refuse_posts = status
        node = make_node(api=api, plugin=False)
        for n, uid in enumerate((FIRST, SECOND, THIRD)):
            api.put(pod(f"alpine-{n}", uid))
            add_process(node, 40 + n, uid, loader=MUSL)
        node.start_plugin()
        node.says(said)
        wait_for(lambda api=api: api.posts == 3, 30, "three requests")
        nodes.append(node)
    for node in nodes:
        await_another_look(node)
        assert node.api.posts == 4 and node.plugin.err().count("cannot make an Event for pod") == 1
        assert node.plugin.err().count("runs on musl") == 4
        node.api.put(pod("next", "3a2b3c4d-0000-4000-8000-000000000004"))
        node.await_file("name = next")  # pods are read as before


def test_a_server_that_is_slow_to_take_an_event_holds_up_nothing(make_node, api):
    api.hold_posts.clear()
    api.put(pod("alpine", FIRST))
    api.put(pod("alpine-too", SECOND))
    node = make_node(api=api, plugin=False)
    add_process(node, 40, FIRST, loader=MUSL)
    add_process(node, 41, SECOND, loader=MUSL)
    node.start_plugin()
    wait_for(lambda: api.posts == 1, 30, "the request")
    devices = node.devices()
    api.put(pod("next", THIRD))
    node.await_file(THIRD)
    assert node.kubelet.allocate(devices[:1])["code"] == 0
    assert node.kubelet.call("PreStartContainer", devices_ids=devices[:1])["code"] == 0
    assert "cannot make an Event" not in node.plugin.err(), "all that is done before the request's ten seconds are over"
    node.says("cannot make an Event for pod default/alpine")  # after 10 s
    # It ends while a request is under way.
    wait_for(lambda: api.posts == 2, 30, "the next request")
    node.plugin.send(signal.SIGTERM)
    node.plugin.ok()


def test_a_pod_that_starts_mps_for_itself_leaves_the_gpu_to_others(make_node, api):
    api.put(pod("greedy", FIRST))
    node = make_node(api=api, plugin=False)
    add_mps(node, 77, 0, cgroup=group_of(FIRST))
    # MPS of a pod that asks for no GPU of ours, as NVIDIA's plugin has one, serves the node.
    add_mps(node, 78, 0, cgroup=group_of(SECOND))
    node.start_plugin()
    wait_for(lambda: api.events, 30, "the Event", report=node.plugin.report)
    (event,) = api.events.values()
    assert event["reason"] == "SubletMPSNotSupported" and event["message"].startswith("runs MPS (process 77, nvidia-cuda-mps): ")
    node.kubelet.await_devices(lambda e: e["devices"] and not e["healthy"], "unhealthy devices")
    node.says("is unhealthy: MPS serves it")
    # That one ends, and nobody waits for it, so it keeps its name; the MPS of the greedy pod still runs.
    os.unlink(node.world.path("proc/78/fd/0"))
    node.devices()
    node.says("is healthy again")
    assert node.plugin.err().count("pod default/greedy runs MPS") == 1


# ---- the command line ----

@pytest.mark.parametrize("args, text", [
    (["--place", "here"], '--place: malformed value "here"'),
    (["--devices-per-gpu", "0"], "--devices-per-gpu is a number from 1 to 1000, not '0'"),
    (["--devices-per-gpu", "1001"], "--devices-per-gpu is a number from 1 to 1000, not '1001'"),
    (["--minimum-most", "96%"], "--minimum-most: malformed"),
    (["--weight-most", "0"], "--weight-most: malformed"),
    (["--dir", "relative"], "--dir: malformed"),
    (["--api-server", "ftp://x"], "--api-server: malformed"),
    (["--api-server", "http://x"], "--node NAME, or NODE_NAME"),
    (["--node"], "--node needs NAME"),
    (["--nothing"], 'unknown option "--nothing"'),
    (["word"], 'unknown argument "word"'),
])
def test_a_wrong_command_line_is_refused_in_one_sentence(args, text):
    done = subprocess.run([PLUGIN, *args], stderr=subprocess.PIPE, text=True, timeout=20)
    assert done.returncode == 2 and text in done.stderr and len(done.stderr.splitlines()) == 1


def test_memory_is_bounded(make_node, api):
    """Anonymous memory: what the process itself takes, and not the pages of the libraries that others share."""
    with open(PLUGIN, "rb") as f:
        sanitized = b"__asan_init" in f.read()
    if SANITIZER or sanitized:
        pytest.skip("a sanitizer takes memory of its own; in a build without one they run")
    for n in range(110):
        big = pod(f"p{n}", f"{n:08x}-0000-4000-8000-000000000000")
        big["metadata"]["managedFields"] = [{"k": "v" * 50}] * 200
        api.put(big)
    node = make_node(api=api, gpus=8)
    node.await_file(f"{109:08x}-0000")
    devices = node.devices()
    for _ in range(20):
        assert node.kubelet.call("PreStartContainer", devices_ids=devices[:1])["code"] == 0
        assert len(node.kubelet.prefer(devices, 8)) == 8
    with open(f"/proc/{node.plugin.pid}/status", encoding="ascii") as f:
        memory = dict(re.findall(r"^(\w+):\s+(\d+) kB$", f.read(), re.M))
    print(memory["VmRSS"], memory["RssAnon"])
    assert int(memory["RssAnon"]) <= 8 << 10
