"""How the library gets into containers: the file system of a container laid out by hand, with what the device plugin
answers for it, and a program in namespaces of its own."""

import os
import shlex
import shutil
import signal
import subprocess

import pytest

import kubelet as kubelet_module
from kubelet import PLUGIN, Kubelet
from roots import put_program
from world import BUILD, NO_PID_NAMESPACES, SANITIZER, wait_for

NEEDS = (kubelet_module.MISSING or ("needs root" if os.geteuid() else None) or
         (NO_PID_NAMESPACES if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], stderr=subprocess.DEVNULL,
                                              check=False).returncode else None))
pytestmark = pytest.mark.skipif(bool(NEEDS), reason=NEEDS or "")

JOB = os.path.join(BUILD, "sublet-demo-job")
CHROOT = shutil.which("chroot", path="/usr/sbin:/usr/bin")


class Container:
    def __init__(self, world, *options):
        self.world, self.root = world, world.path("root")
        world.start_daemon("--shared")
        self.kubelet = Kubelet(world.path("kubelet"))
        library = world.path("library")
        self.plugin = world.start([
            PLUGIN, "--dir", world.dir, "--host-dir", world.dir, "--kubelet-dir", self.kubelet.folder, "--proc", world.path("none"),
            "--bring", os.path.join(BUILD, "libsublet.so"), "--library", os.path.join(library, "libsublet.so"),
            "--preload-file", os.path.join(library, "ld.so.preload"), *options])
        device = self.kubelet.await_devices(lambda e: e["healthy"], "healthy devices")["healthy"][0]
        done = self.kubelet.allocate([device])
        assert done["code"] == 0, done
        self.answer = done["response"]["container_responses"][0]

    def start(self, *argv, **env):
        """The program in mount and pid namespaces of its own, on a read-only root. It has no variable but those of the
        answer and these: as an image's entry point leaves it that clears its environment."""
        lines = [f"mount --bind {shlex.quote(self.root)} {shlex.quote(self.root)}", f"cd {shlex.quote(self.root)}"]
        for m in self.answer["mounts"]:
            host, inside = shlex.quote(m["host_path"]), "." + shlex.quote(m["container_path"])
            # As container engines do: the place of a mount is made before the root becomes read-only.
            make = f"mkdir -p {inside}" if os.path.isdir(m["host_path"]) else f"mkdir -p $(dirname {inside}); : >>{inside}"
            lines += [make, f"mount --bind {host} {inside}", f"mount -o remount,bind,ro {inside}"]
        lines += ["mkdir -p ./proc ./dev/shm", "mount -t proc proc ./proc", "mount --bind /dev/shm ./dev/shm",
                  "mount -o remount,bind,ro .", f"exec {CHROOT} . " + " ".join(shlex.quote(a) for a in argv)]
        inner = {**{k: v for k, v in self.world.env.items()
                    if k in ("SIMCUDA_SESSION", "SIMCUDA_MEMORY", "SIMCUDA_GPUS")}, **self.answer["envs"], **env}
        script = "set -e\n" + "\n".join(lines[:-1]) + "\nexec env -i " + " ".join(
            shlex.quote(f"{k}={v}") for k, v in inner.items()) + lines[-1][len("exec"):]
        return self.world.start(["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script])

    def close(self):
        self.kubelet.kill()


@pytest.fixture
def make_container(make_world):
    made = []

    def make(*options):
        made.append(Container(make_world(), *options))
        return made[-1]

    yield make
    for container in made:
        container.close()


@pytest.mark.skipif(SANITIZER is not None, reason="the image has no sanitizer's library; in another build it runs")
@pytest.mark.parametrize("way", ["preload-file", "environment"])
def test_a_program_in_an_image_without_anything_else_shares_the_gpu(make_container, way):
    container = make_container("--inject", way)
    put_program(container.root, JOB)
    put_program(container.root, os.path.join(BUILD, "sim", "libcuda.so.1"))
    assert container.answer["envs"]["SUBLET_INJECTED"] == way
    assert ("LD_PRELOAD" in container.answer["envs"]) == (way == "environment")
    program = container.start(JOB, "16MiB", "1", "1000", "0.1", "1", LD_LIBRARY_PATH=os.path.join(BUILD, "sim"))
    wait_for(lambda: container.world.status()["gpus"][0]["clients"], 30, "the program to be a client", report=program.report)
    program.send(signal.SIGKILL)


def build_for_musl(root):
    """A program of musl, with its loader. Returns its path inside."""
    source = root + ".c"
    with open(source, "w", encoding="ascii") as f:
        f.write('#include <stdio.h>\nint main(void) { puts("it runs"); return 0; }\n')
    os.makedirs(root + "/lib", exist_ok=True)
    subprocess.run(["musl-gcc", source, "-o", root + "/program"], check=True)
    shutil.copy2(os.path.realpath("/lib/ld-musl-x86_64.so.1"), root + "/lib/ld-musl-x86_64.so.1")
    return "/program"


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="there is no musl-gcc")
def test_a_program_of_musl_runs_and_nothing_is_injected(make_container):
    container = make_container()
    program = container.start(build_for_musl(container.root))
    assert program.wait() == 0, program.report()
    assert program.out() == "it runs\n"
    assert not program.err()


@pytest.mark.skipif(not shutil.which("musl-gcc"), reason="there is no musl-gcc")
def test_a_program_of_musl_does_not_start_with_the_variable(make_container):
    container = make_container("--inject", "environment")
    program = container.start(build_for_musl(container.root))
    assert program.wait() != 0
    assert "it runs" not in program.out()
