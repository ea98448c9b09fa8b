#!/usr/bin/python3
"""Builds the image of deploy/container with podman and runs its two ways on the simulated driver: all in one container,
and programs of two containers under a daemon of the host. `./dev package-test` runs this as root, in a mount namespace
of its own. Ends with an exception at the first thing that does not hold."""

import contextlib
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES, DEBIAN = ROOT / "build-package", ROOT / "build-package-root"
HOLDER = ROOT / "tests" / "package" / "holder.py"
SESSION = f"+containers-{os.getpid()}"
GENEROUS_S = 120

# What podman needs where it may not raise limits, and where cgroups are of both versions, as in many containers.
CONFIGURATION = """
[containers]
cgroups = "disabled"
netns = "host"
default_ulimits = ["nofile={0}:{0}", "memlock={1}:{1}", "nproc=10000:10000"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}"
    return done.stdout


def prepare(folder):
    limits = [resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_MEMLOCK)]
    (folder / "containers.conf").write_text(CONFIGURATION.format(*limits))
    os.environ["CONTAINERS_CONF"] = str(folder / "containers.conf")
    run("umount", "--recursive", "/sys/fs/cgroup")
    run("mount", "-t", "cgroup2", "none", "/sys/fs/cgroup")
    return ["podman", "--root", folder / "images", "--runroot", folder / "running"]


def build(podman):
    tree = subprocess.Popen(["tar", "-C", DEBIAN, "-c", "."], stdout=subprocess.PIPE)
    run(*podman, "import", "--quiet", "-", "base", stdin=tree.stdout)
    assert tree.wait(GENEROUS_S) == 0
    run(*podman, "build", "--isolation=chroot", "--build-arg", "BASE=localhost/base", "-t", "sublet",
        "-f", ROOT / "deploy/container/Containerfile", PACKAGES)


def all_in_one(podman):
    """Two programs of one container need more than the card has."""
    program = "echo on | sublet run --sim=memory=256MiB -- python3 /holder.py"
    said = run(*podman, "run", "--rm", "--volume", f"{HOLDER}:/holder.py:ro", "--entrypoint", "sh", "sublet", "-c",
               f"({program}) & ({program}); wait $!")
    assert said.count("the same") == 2, said
    said = run(*podman, "run", "--rm", "sublet", "--sim", "--", "sublet", "doctor", "--sim")
    assert "FAIL" not in said, said


@contextlib.contextmanager
def daemon(folder):
    """The host's daemon, of the package. Gives the sublet of the host and the folder of the library."""
    package, = PACKAGES.glob("sublet_*.deb")
    run("dpkg-deb", "-x", package, folder / "host")
    library, = (folder / "host").glob("usr/lib/*/sublet")
    env = os.environ | {"LD_LIBRARY_PATH": str(library / "sim"), "SIMCUDA_SESSION": SESSION}
    process = subprocess.Popen([folder / "host/usr/bin/subletd", "--shared", "--dir", folder / "run"], env=env)
    try:
        yield [folder / "host/usr/bin/sublet"], library
    finally:
        process.terminate()
        process.wait(GENEROUS_S)
        run(library / "sim/simcuda-stat", "--session", SESSION, "--remove")


def under_the_hosts_daemon(podman, folder):
    """The image need not have sublet: the socket and the library are mounted."""
    with daemon(folder) as (sublet, library):
        until = time.monotonic() + GENEROUS_S
        while not (folder / "run/client.sock").exists():
            assert time.monotonic() < until
            time.sleep(0.02)
        started = [subprocess.Popen([*podman, "run", "--rm", "--interactive",
                                     "--volume", f"{folder}/run/client.sock:/run/sublet/client.sock",
                                     "--volume", f"{library}/libsublet.so:/usr/lib/sublet/libsublet.so:ro",
                                     "--env", "LD_PRELOAD=/usr/lib/sublet/libsublet.so",
                                     # The simulated driver takes the place of the GPU.
                                     "--ipc=host", "--volume", f"{library}/sim:/sim:ro", "--env", "LD_LIBRARY_PATH=/sim",
                                     "--env", f"SIMCUDA_SESSION={SESSION}",
                                     "--volume", f"{HOLDER}:/holder.py:ro", "base", "python3", "/holder.py"],
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
        for p in started:
            assert p.stdout.readline() == "holds\n"
        said = json.loads(run(*sublet, "status", "--json", "--daemon", folder / "run"))
        assert len(said["gpus"][0]["clients"]) == 2, said
        for p in started:
            assert p.communicate("on\n", timeout=GENEROUS_S)[0] == "the same\n" and p.returncode == 0


def main():
    with tempfile.TemporaryDirectory(prefix="slt-containers-") as name:
        folder = pathlib.Path(name)
        podman = prepare(folder)
        try:
            build(podman)
            print("== all in one container", flush=True)
            all_in_one(podman)
            print("== two containers under the daemon of the host", flush=True)
            under_the_hosts_daemon(podman, folder)
        finally:
            subprocess.run([*podman, "rmi", "--all", "--force"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    print("containers: built and run", flush=True)


sys.exit(main())
