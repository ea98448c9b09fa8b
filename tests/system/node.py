"""A node of a cluster: a world with a kubelet, the device plugin, and what /proc of the node shows."""

import os
import stat

import pytest

from kubelet import PLUGIN, Kubelet
from world import wait_for

FIRST = "0f9b3c1e-5a0d-4c6e-9d55-6f1f3e2a7b10"
SECOND = "1a2b3c4d-0000-4000-8000-000000000002"
THIRD = "2a2b3c4d-0000-4000-8000-000000000003"
MUSL = "/lib/ld-musl-x86_64.so.1"
LATE = "4a2b3c4d-0000-4000-8000-000000000005"


class Node:
    """A node of a cluster: a world with a kubelet, and the plugin."""

    def __init__(self, world, api=None, node=None):
        self.world, self.api = world, api
        self.kubelet = node or Kubelet(world.path("kubelet"))
        self.plugin = None
        if api:
            self.set_token(api.token)

    def set_token(self, token):
        path = self.world.path("token")
        with open(path + ".new", "w", encoding="ascii") as f:
            f.write(token + "\n")
        os.rename(path + ".new", path)

    def start_plugin(self, *args, before=(), **env):
        # An empty /proc: what other processes of this machine do must not count.
        os.makedirs(self.world.path("proc"), exist_ok=True)
        argv = [*before, PLUGIN, "--dir", self.world.dir, "--kubelet-dir", self.kubelet.folder, "--proc", self.world.path("proc")]
        if self.api:
            argv += ["--api-server", self.api.url, "--node", "node-1", "--token-file", self.world.path("token")]
        self.plugin = self.world.start(argv + list(args), **env)
        return self.plugin

    def says(self, text, times=1):
        wait_for(lambda: self.plugin.err().count(text) >= times, 30, f"the plugin to say {text!r}", report=self.plugin.report)

    def devices(self):
        return self.kubelet.await_devices(lambda e: e["healthy"], "healthy devices")["healthy"]

    def file(self):
        try:
            with open(os.path.join(self.world.dir, "conf.d", "50-kubernetes.conf"), encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def await_file(self, text, there=True):
        wait_for(lambda: (text in self.file()) == there, 30, f"{text!r} in the file: {there}",
                 report=lambda: self.file() + self.plugin.report())


def card_of(device):
    return device.rsplit("::", 1)[0]


def write(node, name, text):
    os.makedirs(os.path.dirname(node.world.path(name)), exist_ok=True)
    with open(node.world.path(name), "w", encoding="ascii") as f:
        f.write(text)


def group_of(uid):
    return f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid.replace('-', '_')}.slice/cri-x.scope\n"


def add_process(node, pid, uid, comm="python3", loader="/lib64/ld-linux-x86-64.so.2", **files):
    """Adds a process of this pod to the node's /proc. files: further ones, such as environ."""
    for name, text in {"comm": comm + "\n", "cgroup": group_of(uid), "maps": f"7f00-7f01 r-xp 0 0:0 1 {loader}\n", **files}.items():
        write(node, f"proc/{pid}/{name}", text)


def add_mps(node, pid, *cards, cgroup="0::/system.slice/mps.service\n", environ="A=1\0"):
    """Adds MPS that has these GPUs open to the node's /proc. The driver numbers the GPUs as NVML does."""
    dev = node.world.path("dev")
    os.makedirs(dev, exist_ok=True)
    for at, gpu in enumerate(node.world.status()["gpus"]):
        write(node, f"proc/driver/nvidia/gpus/0000:0{at}:00.0/information", f"GPU UUID: \t {gpu['uuid']}\nDevice Minor: \t {at}\n")
        if not os.path.exists(f"{dev}/nvidia{at}"):
            try:
                os.mknod(f"{dev}/nvidia{at}", stat.S_IFCHR | 0o600, os.makedev(195, at))
            except PermissionError:
                pytest.skip("no device files can be made here; as root of a machine they run")
    for name, text in (("comm", "nvidia-cuda-mps\n"), ("environ", environ), ("cgroup", cgroup)):
        write(node, f"proc/{pid}/{name}", text)
    os.makedirs(node.world.path(f"proc/{pid}/fd"))
    for n, card in enumerate(cards):
        os.symlink(f"{dev}/nvidia{card}", node.world.path(f"proc/{pid}/fd/{n}"))
