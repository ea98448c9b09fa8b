"""Cgroups of version 1 or 2 for the tests, and programs in them."""

import os

import pytest

from world import BUILD, LIBRARY, wait_for


def no_cgroup(controller):
    pytest.skip(f"no cgroup with the controller {controller} can be made here; as root outside of a container they run")


class Cgroup:
    """A cgroup below the test's own cgroup. Skips the test if the machine does not allow one."""

    def __init__(self, controller, name):
        self.v2 = os.path.exists("/sys/fs/cgroup/cgroup.controllers")
        with open("/proc/self/cgroup", encoding="ascii") as f:
            rows = [line.strip().split(":", 2) for line in f]
        where = {controllers: path for _, controllers, path in rows}
        root = "/sys/fs/cgroup"
        if self.v2:
            parent = root + where[""]
        else:
            named = [(c, p) for c, p in where.items() if controller in c.split(",")]
            if not named:
                no_cgroup(controller)
            parent = f"{root}/{named[0][0]}{named[0][1]}"
        self.path = os.path.join(parent, name)
        try:
            os.mkdir(self.path)
        except OSError:
            no_cgroup(controller)
        if self.v2 and controller == "memory" and not os.path.exists(self.path + "/memory.max"):
            os.rmdir(self.path)
            no_cgroup(controller)

    def write(self, file, text):
        with open(os.path.join(self.path, file), "w", encoding="ascii") as f:
            f.write(str(text))

    def read(self, file):
        with open(os.path.join(self.path, file), encoding="ascii") as f:
            return f.read()

    def limit(self, size):
        self.write("memory.max" if self.v2 else "memory.limit_in_bytes", size)

    def used(self):
        return int(self.read("memory.current" if self.v2 else "memory.usage_in_bytes"))

    def killed(self):
        text = self.read("memory.events" if self.v2 else "memory.oom_control")
        return int(dict(line.split() for line in text.splitlines()).get("oom_kill", 0))

    def freeze(self, frozen):
        if self.v2:
            self.write("cgroup.freeze", int(frozen))
            wait_for(lambda: f"frozen {int(frozen)}" in self.read("cgroup.events"), 20, "the freezer")
        else:
            self.write("freezer.state", "FROZEN" if frozen else "THAWED")
            wait_for(lambda: self.read("freezer.state").strip() == ("FROZEN" if frozen else "THAWED"), 20, "the freezer")

    def remove(self):
        def gone():
            try:
                os.rmdir(self.path)
            except OSError:
                return False
            return True

        wait_for(gone, 20, f"{self.path} to be empty")


def inside(world, cgroup, program, *args, **more):
    """Starts a program of the world inside the cgroup from its first instruction on."""
    path = os.path.join(BUILD, "programs", program)
    return world.start(["sh", "-c", f'echo $$ > {cgroup.path}/cgroup.procs && exec "$@"', "sh", path, *args],
                       LD_PRELOAD=more.pop("LD_PRELOAD", LIBRARY), **more)
