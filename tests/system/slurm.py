"""Debian's own Slurm for one test: munged, slurmctld and slurmd with one node, with all their files in the world's
folder. Its jobs run on the world's simulated card, with the world's daemon, through sublet_spank.so."""

import contextlib
import glob
import os
import random
import shutil
import socket
import subprocess

from others import BUILD  # other users must reach the plugin, and the library beside it
from world import GENEROUS_S, wait_for

PLUGIN, LIBRARY = (os.path.join(BUILD, name) for name in ("sublet_spank.so", "libsublet.so"))
CGROUPS = "/sys/fs/cgroup"
# Version 2 only if asked for: its plugin may move processes of the machine into other cgroups when slurmd starts.
UNIFIED = os.environ.get("SUBLET_CGROUP2") == "1"
# The cgroup of a node, which slurmd makes, and the cgroups of its jobs in it.
TREE, JOBS = (f"{CGROUPS}/system.slice/%s_slurmstepd.scope", "[js]*[0-9]*") if UNIFIED else (f"{CGROUPS}/freezer/slurm_%s", "uid_*")
PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "salloc", "scancel", "squeue")

def _missing():
    if os.getuid() != 0:
        return "only root can start Slurm's daemons; as root (sudo ./dev test) they run"
    if not all(shutil.which(name) for name in PROGRAMS):
        return "Slurm is not installed; with Debian's slurmctld, slurmd, slurm-client and munge they run"
    if not os.path.exists(PLUGIN):
        return "this build has no sublet_spank.so; with libslurm-dev, and without a sanitizer, they run"
    if not os.access(f"{CGROUPS}/cgroup.procs" if UNIFIED else f"{CGROUPS}/freezer", os.W_OK):
        return "Slurm cannot make cgroups of version 1 here; where /sys/fs/cgroup/freezer is mounted they run"
    return None


MISSING = _missing()

CONF = """
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={root}/munge.sock
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd-%n.pid
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,sched_min_interval=1000
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
KillWait=2
BatchStartTimeout=60
PlugStackConfig={root}/plugstack.conf
GresTypes=gpu,shard
PartitionName=main Nodes=ALL Default=YES State=UP MaxTime=INFINITE
"""
NODE = "NodeName={node} NodeAddr=127.0.0.1 Port={port} CPUs=16 RealMemory=1000 Gres=gpu:1,shard:4 State=UNKNOWN\n"
CGROUP = "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n" if UNIFIED else f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={CGROUPS}\n"
GRES = "Name=gpu File=/dev/null\nName=shard Count=4\n"


def _named():
    """Returns the prefix of commands that submit jobs. slurmctld of Debian 13 stops for ten seconds if it cannot look up the name
    of the machine that a job comes from. Then the commands and slurmd, whose jobs have steps, see the name localhost."""
    try:
        socket.getaddrinfo(socket.gethostname(), None)
        return []
    except socket.gaierror:
        return ["unshare", "--uts", "sh", "-c", 'hostname localhost && exec "$@"', "sh"]


def _free_port():
    """Returns one below those that the kernel gives to connections: one of them could take it before Slurm does."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        end = int(f.read().split()[0])
    while True:
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("", random.randrange(end // 2, end)))
            return s.getsockname()[1]


class Slurm:
    def __init__(self, world, nodes=1):
        self.world = world
        # A node's name is in the name of its cgroup, so that two tests do not meet there. All nodes are this machine.
        self.nodes = [f"n{world.session[-8:]}{chr(ord('a') + i)}" for i in range(nodes)]
        self.root = world.path("slurm")
        self.named = _named()
        os.mkdir(self.root)
        os.chmod(world.root, 0o755)
        os.mkdir(os.path.join(self.root, "state"))
        self.limits = os.path.join(self.root, "sublet.conf")
        lines = "".join(NODE.format(node=node, port=_free_port()) for node in self.nodes)
        self.write("slurm.conf", CONF.format(root=self.root, controller=_free_port()) + lines)
        self.write("cgroup.conf", CGROUP)
        self.write("gres.conf", GRES)
        self.write("plugstack.conf", f"required {PLUGIN} dir={world.dir} config={self.limits}\n")
        with open(os.path.join(self.root, "munge.key"), "wb") as f:
            os.chmod(f.name, 0o400)
            f.write(os.urandom(1024))
        world.env["SLURM_CONF"] = os.path.join(self.root, "slurm.conf")
        world.start(["munged", "--foreground", "--force", f"--key-file={self.root}/munge.key", f"--socket={self.root}/munge.sock",
                     f"--pid-file={self.root}/munged.pid", f"--seed-file={self.root}/munged.seed", f"--log-file={self.root}/munged.log"])
        wait_for(lambda: os.path.exists(f"{self.root}/munge.sock"), GENEROUS_S, "munged")
        self.controller = world.start(["slurmctld", "-D", "-c"])
        self.slurmds = [world.start([*self.named, "slurmd", "-D", "-N", node]) for node in self.nodes]
        self.await_idle()

    def await_idle(self):
        def states():
            return self.run("sinfo", "-h", "-o", "%T")

        wait_for(lambda: states().stdout == "idle\n", GENEROUS_S, "the nodes to be idle", interval=0.1,
                 report=lambda: "\n".join([str(states()), *(p.report() for p in (self.controller, *self.slurmds))]))

    def write(self, name, text):
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as f:
            f.write(text)

    def limit(self, text):
        """Writes the administrator's file."""
        with open(self.limits, "w", encoding="utf-8") as f:
            os.chmod(f.name, 0o644)
            f.write(text)

    def run(self, *argv, **env):
        return subprocess.run([*self.named, *argv], env={**self.world.env, **env}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=GENEROUS_S, cwd=self.root, check=False)

    def srun(self, *argv, before=(), **env):
        """Starts srun. Output and input of the program are srun's."""
        return self.world.start([*self.named, *before, "srun", "--quiet", *argv], stdin=subprocess.PIPE,
                                **{"SUBLET_DIR": "/of/the/login/node", **env})

    def sbatch(self, script, *argv):
        """Submits a script that writes into a file. Returns the number of its job, and the file."""
        self.write("job.sh", script)
        out = os.path.join(self.root, "job-%A.out")
        done = self.run("sbatch", "--parsable", "-o", out, *argv, os.path.join(self.root, "job.sh"))
        assert done.returncode == 0, done.stderr
        number = int(done.stdout)
        return number, out.replace("%A", str(number))

    def files(self):
        """Returns what the plugin keeps in the daemon's directory."""
        return sorted(os.listdir(os.path.join(self.world.dir, "conf.d")))

    def classes(self):
        """Returns {number of the job: text of its file}."""
        found = {}
        for path in glob.glob(os.path.join(self.world.dir, "conf.d", "60-slurm-*.conf")):
            with open(path, encoding="utf-8") as f:
                found[int(path.rpartition("-")[2].removesuffix(".conf"))] = f.read()
        return found

    def jobs(self):
        return self.run("squeue", "-h", "-o", "%i %T").stdout.split("\n")[:-1]

    def nothing_left(self, killed=False):
        """Waits until no job is left, and then for no trace of one. killed: a slurmstepd was, so Slurm itself leaves the
        step's empty cgroup."""
        wait_for(lambda: not self.jobs(), GENEROUS_S, "all jobs to end", report=lambda: str(self.jobs()))
        wait_for(lambda: not self.files(), GENEROUS_S, "no file of a job", report=lambda: str(self.files()))
        if not killed:
            wait_for(lambda: not glob.glob(os.path.join(TREE % (self.nodes[0][:-1] + "*"), JOBS)), GENEROUS_S, "no cgroup of a job")
        assert self.world.sublet("reload").stdout == "reloaded: 0 classes\n"

    def close(self):
        for job in self.jobs():
            self.run("scancel", job.split()[0])
        wait_for(lambda: not self.jobs(), GENEROUS_S, "all jobs to end")
        for slurmd in self.slurmds if UNIFIED else ():  # it is itself in the node's tree
            slurmd.send(15)
            slurmd.wait()
        wait_for(self._remove_cgroups, GENEROUS_S, "slurmstepd to leave its cgroups", interval=0.1)

    def _remove_cgroups(self):
        """True if none is left. slurmd does not remove the cgroups of the nodes."""
        tops = [TREE % node for node in self.nodes]
        for top in tops:
            for path, _, _ in os.walk(top, topdown=False):
                try:
                    os.rmdir(path)
                except OSError:
                    pass  # a process is still in it, or it has gone since the listing
        return not any(map(os.path.exists, tops))
