"""The device plugin's answer with CDI names, in a container of a real engine: podman reads the CDI file of the simulated
cards, and gets the answer's names, mounts and variables as its options."""

import json
import os
import shutil
import stat
import subprocess

import pytest

import podman
import test_injection
from kubelet import Kubelet
from manifests import MISSING, render
from roots import libraries, put_libraries, put_program
from test_injection import JOB, Container
from world import BUILD, NO_LEAKS, ROOT, SANITIZER, wait_for

NEEDS = test_injection.NEEDS or (None if podman.PODMAN else "there is no podman")
pytestmark = pytest.mark.skipif(bool(NEEDS), reason=NEEDS or "")

DRIVER = os.path.join(BUILD, "sim", "libcuda.so.1")
PEERS = os.path.join(BUILD, "programs", "peers")
SHARED = ("nvidiactl", "nvidia-uvm")  # the driver's device nodes that belong to no card


def device_nodes(cards):
    """Returns {the name of a device node that a container with these cards has: its number}."""
    return {"nvidiactl": os.makedev(195, 255), "nvidia-uvm": os.makedev(238, 0),
            **{f"nvidia{n}": os.makedev(195, n) for n in cards}}


def settings(world):
    """Returns the variables that say which simulated cards a program uses."""
    return {k: world.env[k] for k in ("SIMCUDA_SESSION", "SIMCUDA_MEMORY", "SIMCUDA_GPUS")}


def write_cdi(world, names=("index", "uuid", "all")):
    """Writes what `nvidia-ctk cdi generate` writes for the cards, without its hooks. Here the simulated driver is what
    is mounted; its cards are a file in /dev/shm."""
    dev = world.path("dev")
    os.makedirs(dev)
    uuids = [gpu["uuid"] for gpu in world.status()["gpus"]]
    for name, number in device_nodes(range(len(uuids))).items():
        os.mknod(os.path.join(dev, name), stat.S_IFCHR | 0o666, number)
    folder = os.path.dirname(next(path for path in libraries(DRIVER) if "libc.so" in path))

    def nodes(*of):
        return [{"hostPath": os.path.join(dev, name), "path": f"/dev/{name}"} for name in of]

    devices = []
    for n, uuid in enumerate(uuids):
        edits = {"deviceNodes": nodes(f"nvidia{n}")}
        devices += [{"name": name, "containerEdits": edits} for kind, name in (("index", str(n)), ("uuid", uuid))
                    if kind in names]
    if "all" in names:
        devices.append({"name": "all", "containerEdits": {"deviceNodes": nodes(*(f"nvidia{n}" for n in range(len(uuids))))}})
    os.makedirs(world.path("cdi"))
    with open(world.path("cdi/nvidia.json"), "w", encoding="ascii") as f:
        json.dump({
            "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices,
            "containerEdits": {
                "env": ["NVIDIA_VISIBLE_DEVICES=void", "SIMCUDA_DEV=/dev", *(f"{k}={v}" for k, v in settings(world).items())],
                "deviceNodes": nodes(*SHARED),
                "mounts": [{"hostPath": host, "containerPath": inside, "options": [access, "nosuid", "nodev", "bind"]}
                           for host, inside, access in ((DRIVER, f"{folder}/libcuda.so.1", "ro"), ("/dev/shm", "/dev/shm", "rw"))],
            }}, f)
    return uuids


class PodmanContainer(Container):
    """A node whose container engine is podman."""

    def start(self, *argv, **env):
        return start_client(self.world, self.answer, self.root, *argv, **env)


def start_client(world, answer, root, *argv, node=lambda path: path, **env):
    """Starts a container with what the plugin has answered. node: where a path of the node lies here."""
    options = ["--read-only", *(word for device in answer["cdi_devices"] for word in ("--device", device["name"])),
               *podman.mounts((node(m["host_path"]), m["container_path"], m["read_only"]) for m in answer["mounts"]),
               *podman.variables({**answer["envs"], **env, **(NO_LEAKS if SANITIZER else {})})]
    return podman.start(world, *options, root=root, argv=argv, cdi=world.path("cdi"))


@pytest.fixture
def make_container(make_world):
    """Returns a function that makes a container with these cards of a node."""
    made = []

    def make(*options, gpus=2, cards=(0,), names=("index", "uuid", "all")):
        world = make_world(gpus=gpus)
        one = PodmanContainer(world, "--gpu-access", "cdi", *options)
        made.append(one)
        uuids = write_cdi(world, names)
        done = one.kubelet.allocate([f"{uuids[n]}::0" for n in cards])
        assert done["code"] == 0, done
        one.answer, one.uuids = done["response"]["container_responses"][0], [uuids[n] for n in cards]
        put_libraries(one.root, DRIVER)
        return one

    yield make
    for container in made:
        container.close()


def clients(world):
    """Returns {the card's UUID: the rows of its clients}."""
    return {gpu["uuid"]: gpu["clients"] for gpu in world.status()["gpus"] if gpu["clients"]}


def alone(world, *job):
    """Returns the result of a job without sublet: rounds, mismatches, digest."""
    done = subprocess.run([JOB, *job], env={**world.env, "SIMCUDA_SESSION": world.session + "alone"}, stdout=subprocess.PIPE,
                          text=True, check=True)
    return done.stdout.splitlines()[-1]


def nodes_inside(pid):
    """Returns the driver's device nodes that a process sees, as device_nodes() does."""
    folder = f"/proc/{pid}/root/dev"
    return {name: os.stat(os.path.join(folder, name)).st_rdev for name in os.listdir(folder) if name.startswith("nvidia")}


@pytest.mark.parametrize("way", ["preload-file", "environment"])
def test_a_container_of_podman_shares_the_card_that_its_cdi_name_says(make_container, way):
    container = make_container("--inject", way, cards=[1])
    world, job = container.world, ("16MiB", "1", "2", "0.5", "1")
    put_program(container.root, JOB)
    program = container.start(JOB, *job)
    found = wait_for(lambda: clients(world), 30, "the program to be a client", report=program.report)
    assert list(found) == container.uuids
    (client,) = found[container.uuids[0]]
    assert client["name"] == "sublet-demo-job"
    assert nodes_inside(client["pid"]) == device_nodes([1])
    with open(f"/proc/{client['pid']}/environ", encoding="ascii") as f:
        inner = dict(line.split("=", 1) for line in f.read().split("\0") if line)
    assert inner["NVIDIA_VISIBLE_DEVICES"] == "void" and inner["SUBLET_INJECTED"] == way
    program.ok()
    assert program.out().splitlines()[-1] == alone(world, *job)


def test_containers_of_podman_that_do_not_fit_together_take_turns(make_container):
    container = make_container(gpus=1)
    world, jobs = container.world, [("72MiB", key, "2", "0.2", "1") for key in "12"]
    put_program(container.root, JOB)
    programs = [container.start(JOB, *job) for job in jobs]
    for program, job in zip(programs, jobs):
        program.ok()
        assert program.out().splitlines()[-1] == alone(world, *job)
    assert world.handoffs() >= 1


def test_a_container_with_two_cdi_names_has_two_gpus(make_container):
    container = make_container(gpus=3, cards=[0, 2])
    world, arguments = container.world, ["--bytes", "16MiB", "--block", "4MiB", "--seed", "5"]
    put_program(container.root, PEERS)
    expected = [e["sums"] for e in world.program("peers", *arguments, shared=False).ok().events("round")]
    program = container.start(PEERS, *arguments, "--until", "/run/sublet/end")
    program.await_event("filled")
    found = clients(world)
    assert sorted(found) == sorted(container.uuids)
    (pid,) = {client["pid"] for rows in found.values() for client in rows}
    assert nodes_inside(pid) == device_nodes([0, 2])
    with open(os.path.join(world.dir, "public/end"), "w", encoding="ascii"):
        pass
    program.ok()
    rounds = [e["sums"] for e in program.events("round")]
    assert rounds and rounds[:len(expected)] == expected[:len(rounds)], program.report()


def test_a_cdi_name_that_no_file_has_is_an_error_of_podman(make_container):
    """As with a file that names cards by their numbers only, which older releases of nvidia-ctk write."""
    container = make_container(names=("index", "all"))
    put_program(container.root, JOB)
    program = container.start(JOB, "16MiB")
    assert program.wait() != 0
    assert f"nvidia.com/gpu={container.uuids[0]}" in program.err() and "Error: " in program.err()
    assert not program.out() and "sublet:" not in program.err()
    assert not clients(container.world)


# ---- the daemon's and the plugin's container ----

DEPLOY = os.path.join(ROOT, "deploy", "kubernetes")


class ManifestNode:
    """A node with the containers of an overlay's DaemonSet, in podman: their images, arguments, rights and mounts."""

    def __init__(self, world, overlay, archives):
        self.world, self.kubelet, self.archives = world, Kubelet(world.path("kubelet")), archives
        documents = render(os.path.join(DEPLOY, overlay))
        (self.pod,) = (d["spec"]["template"]["spec"] for d in documents if d["kind"] == "DaemonSet")
        (config,) = (d["data"] for d in documents if d["kind"] == "ConfigMap")
        # Where paths of the node lie here. The simulated NVML is the node's.
        self.paths = {"/run/sublet": world.dir, "/var/lib/sublet": world.path("library"),
                      "/var/lib/subletd": world.path("state"),
                      "/var/lib/kubelet/device-plugins": self.kubelet.folder,
                      "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1": os.path.join(BUILD, "sim", "libnvidia-ml.so.1")}
        for folder in (world.dir, world.path("library"), world.path("state"), world.path("config")):
            os.makedirs(folder, mode=0o755)
        for name, text in config.items():
            with open(os.path.join(world.path("config"), name), "w", encoding="utf-8") as f:
                f.write(text)

    def path(self, path):
        """Returns where a path of the node lies here."""
        node = max((known for known in self.paths if path == known or path.startswith(known + "/")), key=len)
        return self.paths[node] + path[len(node):]

    def start(self, name, **env):
        (c,) = (c for c in self.pod["containers"] if c["name"] == name)
        rights = c["securityContext"]
        volumes = {v["name"]: self.path(v["hostPath"]["path"]) if "hostPath" in v else self.world.path("config")
                   for v in self.pod["volumes"] if "hostPath" in v or "configMap" in v}
        options = [*(["--pid=host"] if self.pod["hostPID"] else []),
                   *(["--read-only"] if rights["readOnlyRootFilesystem"] else []),
                   *(["--privileged"] if rights.get("privileged") else []),
                   *([] if rights["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges"]),
                   *(f"--cap-drop={word}" for word in rights["capabilities"]["drop"]),
                   *(f"--cap-add={word}" for word in rights["capabilities"]["add"]),
                   *podman.mounts((volumes[m["name"]], m["mountPath"], m.get("readOnly")) for m in c["volumeMounts"]
                                  if m["name"] in volumes),
                   *podman.mounts([("/dev/shm", "/dev/shm", False)]),  # the simulated cards
                   *podman.variables({e["name"]: e["value"] for e in c["env"] if "value" in e}),
                   *podman.variables({**settings(self.world), **env})]
        image = c["image"]
        archive = os.path.join(self.archives, os.path.basename(image).split(":")[0] + ".tar")
        return podman.start(self.world, *options, image=(f"docker.io/{image}", archive), argv=c.get("args", []), own_pids=False)


@pytest.fixture(scope="module", name="archives")
def _archives(tmp_path_factory):
    if MISSING or not shutil.which("buildah"):
        pytest.skip(MISSING or "there is no buildah")
    folder = tmp_path_factory.mktemp("images")
    subprocess.run([os.path.join(DEPLOY, "images.sh"), BUILD, folder], check=True, stdout=subprocess.DEVNULL)
    return str(folder)


def test_daemon_and_plugin_of_the_cdi_overlay_give_a_card_to_a_container(make_world, archives):
    world = make_world(gpus=2)
    node = ManifestNode(world, "overlays/cdi", archives)
    daemon = node.start("daemon")
    wait_for(lambda: world.sublet("status", "--json").returncode == 0, 30, "the daemon to answer", report=daemon.report)
    wait_for(lambda: len(world.status()["gpus"]) == 2, 30, "the daemon to know the GPUs by NVML", report=daemon.report)
    plugin = node.start("plugin", NODE_NAME="node-1")
    try:
        node.kubelet.await_devices(lambda e: e["healthy"], "healthy devices")
        uuids = write_cdi(world)
        done = node.kubelet.allocate([f"{uuids[1]}::0"])
        assert done["code"] == 0, done
        root = world.path("root")
        put_program(root, JOB)
        put_libraries(root, DRIVER)
        job = ("16MiB", "1", "2", "0.5", "1")
        program = start_client(world, done["response"]["container_responses"][0], root, JOB, *job, node=node.path)
        found = wait_for(lambda: clients(world), 30, "the program to be a client", report=lambda: program.report() + plugin.err())
        assert list(found) == [uuids[1]]
        program.ok()
        assert program.out().splitlines()[-1] == alone(world, *job)
    finally:
        node.kubelet.kill()
