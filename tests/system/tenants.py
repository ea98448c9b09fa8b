"""Pods and Slurm jobs without a cluster: cgroups with the names and at the places that the kubelet and Slurm give them, and
processes in them. Nothing of them stays."""

import os
import time
import uuid

QUALITIES = ("burstable", "besteffort")
SHARED = ("kubepods", "kubepods.slice", *QUALITIES, *(f"kubepods-{q}.slice" for q in QUALITIES), "slurm")
NO_CGROUPS = "no cgroups can be made at the top of the tree here; as root outside of a container they run"


def _root():
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return "/sys/fs/cgroup"
    return next((path for path in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids") if os.path.ismount(path)), None)


def _version_2():
    """Returns where the hierarchy of version 2 is, also beside those of version 1; None: nowhere."""
    with open("/proc/self/mounts", encoding="utf-8") as f:
        return next((row[1] for row in map(str.split, f) if row[2] == "cgroup2"), None)


def _skip():
    import pytest  # imported here, because bench/reload.py does not need it

    pytest.skip(NO_CGROUPS)


class Tenants:
    """Makes cgroups, and removes them, with those above them that are empty, at the end."""

    def __init__(self, version_2=False):
        self.root = _version_2() if version_2 else _root()
        self.made = []
        self.uids = {}

    def make(self, path):
        """Makes the cgroup. Returns the words that start a command in it."""
        if not self.root:
            _skip()
        whole = self.root
        for part in path.strip("/").split("/"):
            whole = os.path.join(whole, part)
            try:
                os.mkdir(whole)
            except FileExistsError:
                pass
            except OSError:
                _skip()
            if whole not in self.made:
                self.made.append(whole)
        return ["sh", "-c", f'echo $$ > {whole}/cgroup.procs && exec "$@"', "sh"]

    def uid(self, name):
        """Returns the uid of the pod of this name."""
        return self.uids.setdefault(name, str(uuid.uuid4()))

    def pod(self, name, container="c1", below=""):
        """Returns the words that start a command in a container of the pod."""
        return self.make(f"kubepods/burstable/pod{self.uid(name)}/{container}{below}")

    def pod_of(self, driver, quality, name):
        """The same as pod(), for a kubelet with this driver of cgroups, and a pod of this quality of service."""
        uid = self.uid(name)
        if driver == "cgroupfs":
            return self.make(f"kubepods/{quality}/pod{uid}/{'c0' * 32}")
        slices = f"kubepods.slice/kubepods-{quality}.slice/kubepods-{quality}-pod{uid.replace('-', '_')}.slice"
        return self.make(f"{slices}/cri-containerd-{'c0' * 32}.scope")

    def job(self, number, user=0):
        return self.make(f"slurm/uid_{user}/job_{number}/step_0/task_0")

    def close(self):
        left = [path for path in reversed(self.made) if not self._remove(path)]
        assert not left, f"cgroups that cannot be removed: {left}"

    def _remove(self, path):
        """False if it stays, although no other run of the tests and no kubelet has cgroups in it."""
        for _ in range(250):  # a process that was killed leaves its cgroup a moment later
            try:
                os.rmdir(path)
                return True
            except FileNotFoundError:
                return True
            except OSError:
                if any(entry.is_dir() for entry in os.scandir(path)):
                    return os.path.basename(path) in SHARED or path.count("/uid_") == 1
            time.sleep(0.02)
        return False
