"""Pods and Slurm jobs without a cluster: cgroups with the names and at the places that the kubelet and Slurm give them, and
processes in them. Nothing of them stays."""

import os
import time
import uuid

NO_CGROUPS = "no cgroups can be made at the top of the tree here; as root outside of a container they run"


def _root():
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        return "/sys/fs/cgroup"
    return next((path for path in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids") if os.path.ismount(path)), None)


def _skip():
    import pytest  # imported here, because bench/reload.py does not need it

    pytest.skip(NO_CGROUPS)


class Tenants:
    """Makes cgroups, and removes them, with those above them that are empty, at the end."""

    def __init__(self):
        self.root = _root()
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
                    return os.path.basename(path) in ("kubepods", "burstable", "slurm") or path.count("/uid_") == 1
            time.sleep(0.02)
        return False
