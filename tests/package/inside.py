#!/usr/bin/python3
"""Installs, upgrades, removes and purges the Debian packages on a machine with systemd, while programs run on the
simulated driver. `./dev package-test` starts a container in which systemd runs this as root. Prints each step on the
console. Ends with 1 at the first thing that does not hold."""

import glob
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request

sys.stdout = sys.stderr = open("/dev/console", "w", buffering=1)
HERE = pathlib.Path(__file__).resolve().parent
PACKAGES, TOOLS, HOLDER = HERE.parents[1] / "build-package", HERE.parents[1] / "tools", HERE / "holder.py"
NAMES = ("sublet", "subletd", "python3-sublet", "sublet-kubernetes", "sublet-pairing")
PROGRAMS = ("sublet", "subletd", "sublet-device-plugin", "sublet-webhook", "sublet-extender")
PAGES = ("1 sublet", "8 subletd", "5 subletd.conf", "8 sublet-device-plugin", "8 sublet-webhook", "8 sublet-extender")
UNITS = ("subletd.service", "subletd.socket", "subletd-control.socket")
RUN = pathlib.Path("/run/sublet")
GENEROUS_S = 60
USERS = (1001, 1002)


def named_sublet():
    """Returns all files named after sublet. man keeps pages that were read, whatever happens to their package."""
    return set(run("find", "/", "-xdev", "-path", "/var/cache/man", "-prune", "-o", "-name", "*sublet*", "-print").split())


def step(what):
    print(f"== {what}", flush=True)


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
                          env=os.environ | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"})
    assert done.returncode == 0, f"{' '.join(command)}: {done.returncode}\n{done.stdout}"
    return done.stdout


def wait_for(condition, what):
    until = time.monotonic() + GENEROUS_S
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def property_of(unit, name):
    return run("systemctl", "show", "--property", name, "--value", unit).strip()


def status():
    return json.loads(run("sublet", "status", "--json"))


def clients():
    return [client["pid"] for gpu in status()["gpus"] for client in gpu["clients"]]


def as_user(uid, *command):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command]


class Holder:
    """A program of a user that holds memory of the simulated card of all users."""

    def __init__(self, uid):
        env = os.environ | {"LD_LIBRARY_PATH": SIMULATOR, "SIMCUDA_SESSION": "+trial", "SUBLET_LOG": "info"}
        self.process = subprocess.Popen(as_user(uid, "sublet", "run", "--", "python3", HOLDER), env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.pid = self.process.pid  # setpriv and sublet become the program
        assert self.process.stdout.readline() == "holds\n"

    def go_on(self):
        said, _ = self.process.communicate("on\n", timeout=GENEROUS_S)
        assert said == "the same\n" and self.process.returncode == 0


def old_packages(version):
    """Makes packages of an earlier version out of the built ones: other numbers, the same code."""
    os.mkdir("/tmp/old")
    for name in NAMES:
        package, = glob.glob(f"{PACKAGES}/{name}_*.deb")
        run("dpkg-deb", "-R", package, f"/tmp/old/{name}")
        control = pathlib.Path(f"/tmp/old/{name}/DEBIAN/control")
        control.write_text(control.read_text().replace(version, OLD))
        for path in pathlib.Path(f"/tmp/old/{name}").rglob("*"):
            if path.is_file() and path.read_bytes()[:4] == b"\x7fELF":
                path.write_bytes(path.read_bytes().replace(version.encode(), OLD.encode()))
        run("dpkg-deb", "-b", f"/tmp/old/{name}", f"/tmp/old/{name}.deb")


def install(*packages):
    run("apt-get", "install", "-y", "--no-install-recommends", *packages)


def write_job(name):
    """Writes the job file of a job that computes on the host most of the time, so that it goes well with others."""
    path = pathlib.Path(f"/tmp/jobs/{name}.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({
        "sublet_job": 1, "name": name,
        "measured": {"time": "2026-11-27T19:00:00Z", "seconds": 10, "memory_bytes": 256 << 20, "bus_gb_s": 12.0},
        "steps": {"unit": "step", "count": 100, "per_second": 0.5}, "memory": {"peak_bytes": 16 << 20}, "gpu": {"busy": 0.05},
        "launch": {"per_second": 0.5, "idle": 0.95, "host_s_per_step": 1.9}, "kernels": [], "other_share": 0.0}))
    return path


def check_installed():
    for program in PROGRAMS:
        assert OLD in run(program, "--version")
        assert program in run(program, "--help").splitlines()[0]
    for page in PAGES:
        assert len(run("man", "--warnings", *page.split()).splitlines()) > 30
    assert "lead somewhere" in run("python3", f"{TOOLS}/check_links.py", "/usr/share/doc/sublet")
    assert run("python3", "-c", "import sublet; print(sublet.is_here())") == "False\n"
    assert run("sublet", "run", "--sim", "--", "python3", "-c", "import sublet; print(sublet.is_here())") == "True\n"
    assert "FAIL" not in run(*as_user(USERS[0], "sublet", "doctor", "--sim"))
    predicted = run("sublet", "predict", "--way", "turns", write_job("a"), write_job("b"))  # sublet-pairing says it
    assert all(name in predicted for name in ("turns", "a", "b")), predicted


def check_service():
    assert property_of("subletd.service", "UnitFileState") == "enabled"
    assert all(property_of(unit, "ActiveState") == "active" for unit in UNITS)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in RUN.glob("*.sock")}
    assert modes == {"client.sock": 0o666, "status.sock": 0o666, "control.sock": 0o600}, modes
    assert stat.S_IMODE(RUN.stat().st_mode) == 0o755
    score = re.search(r"exposure level for subletd.service: ([\d.]+)", run("systemd-analyze", "security", "subletd"))[1]
    assert float(score) < 3, score
    assert "Started subletd.service" in run("journalctl", "-u", "subletd")
    run("sublet", "reload")
    run("systemctl", "reload", "subletd")


def check_example():
    """As docs/notebooks.md leads through it, without Jupyter: two programs of a user take turns on a simulated card, and one
    command says what one of them waits for."""
    example = "/usr/share/doc/sublet/docs/examples/gpu.py"
    command = as_user(USERS[0], "sublet", "run", "--sim=memory=1GiB", "--", "python3", example, "700", "8")
    programs = [subprocess.Popen(command, text=True, stdout=subprocess.PIPE) for _ in range(2)]
    asked = as_user(USERS[0], "sublet", "status", "--sim")
    wait_for(lambda: "waits for pid" in subprocess.run(asked, text=True, capture_output=True, check=False).stdout,
             "nobody waits")
    for p in programs:
        said, _ = p.communicate(timeout=2 * GENEROUS_S)
        assert said.endswith(" rounds; all memory is as it must be\n") and p.returncode == 0, said
    run(*as_user(USERS[0], "sublet", "stop", "--sim"))
    folder = pathlib.Path(f"/tmp/sublet-sim-{USERS[0]}")
    wait_for(lambda: not (folder / "control.sock").exists(), "the daemon does not end")
    shutil.rmtree(folder)


def check_webhook():
    """The webhook answers with a certificate, as on a node."""
    certificate, key = "/tmp/tls.crt", "/tmp/tls.key"
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "1", "-subj", "/CN=webhook",
        "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "keyUsage=critical,keyCertSign,digitalSignature",
        "-keyout", key, "-out", certificate)
    trust = ssl.create_default_context(cafile=certificate)
    webhook = subprocess.Popen(["sublet-webhook", "--listen", "127.0.0.1:8443", "--certificate", certificate, "--key", key])

    def answers():
        assert webhook.poll() is None, "the webhook has ended"
        try:
            return urllib.request.urlopen("https://127.0.0.1:8443/readyz", context=trust).read() == b"ok\n"
        except urllib.error.URLError as e:
            assert isinstance(e.reason, ConnectionRefusedError), e
            return False

    wait_for(answers, "the webhook does not listen")
    webhook.terminate()
    assert webhook.wait(GENEROUS_S) == 0


def check_extender():
    """The extender serves with what its package depends on. No API server is here, so it is not ready."""
    extender = subprocess.Popen(["sublet-extender", "--jobs", write_job("a").parent, "--listen", "127.0.0.1:8444",
                                 "--api-server", "http://127.0.0.1:1", "--token-file", "/dev/null"])

    def lives():
        assert extender.poll() is None, "the extender has ended"
        try:
            return urllib.request.urlopen("http://127.0.0.1:8444/healthz").read() == b"ok\n"
        except urllib.error.URLError as e:
            assert isinstance(e.reason, ConnectionRefusedError), e
            return False

    wait_for(lives, "the extender does not listen")
    extender.terminate()
    assert extender.wait(GENEROUS_S) == 0


def check_device_plugin():
    """The plugin finds the daemon and its library where the packages have put them. No kubelet is here."""
    folder, library = pathlib.Path("/tmp/kubelet"), pathlib.Path("/tmp/brought/libsublet.so")
    folder.mkdir()
    plugin = subprocess.Popen(["sublet-device-plugin", "--kubelet-dir", folder, "--bring", f"{SIMULATOR}/../libsublet.so",
                               "--library", library, "--preload-file", library.with_name("ld.so.preload")])

    def serves():
        assert plugin.poll() is None, "the plugin has ended"
        return (folder / "sublet-gpu.sock").is_socket()

    wait_for(serves, "the plugin does not listen")
    plugin.terminate()
    assert plugin.wait(GENEROUS_S) == 0
    assert library.stat().st_size > 0
    shutil.rmtree(folder)
    shutil.rmtree(library.parent)


def check_slurm():
    """All libraries that Slurm's plugin needs are here. Slurm is not, so the plugin cannot be loaded."""
    assert "not found" not in run("ldd", f"{SIMULATOR}/../sublet_spank.so")


def check_queue():
    """The daemon's helper predicts inside the sandbox of the service: without it the second job would wait."""
    end = pathlib.Path("/tmp/end")
    wait = f"until [ -e {end} ]; do sleep 0.05; done"
    submitted = [subprocess.Popen(as_user(uid, "sublet", "submit", "--job", write_job(name), "--way", "turns", "--name", name,
                                          "--", "sh", "-c", wait)) for uid, name in zip(USERS, "ab")]

    def both_run():
        return [job["state"] for job in status()["jobs"] if job["beside"]] == ["running", "running"]

    wait_for(both_run, "the jobs do not run beside each other")
    end.touch()
    assert [job.wait(GENEROUS_S) for job in submitted] == [0, 0]
    end.unlink()


def check_lab_page():
    """What docs/lab.md tells who looks after a machine works, in its order: the file, the commands, what a program does
    without the daemon."""
    page = pathlib.Path("/usr/share/doc/sublet/docs/lab.md").read_text()
    blocks = [textwrap.dedent(block) for block in re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.M)]
    for name in ("alice", "bob", "carol", "dora"):
        run("useradd", "--create-home", name)
    pathlib.Path("/etc/sublet/subletd.conf").write_text(
        "".join(block for block in blocks if block.lstrip().startswith("[")).replace("require = yes\n", "require = yes\nnames = own\n"))
    typed = [line for block in blocks for line in block.splitlines() if line.startswith(("sudo ", "sublet status"))]
    for line in (line for line in typed if not re.search("apt |jupyter|--sim", line)):
        run("env", f"LD_LIBRARY_PATH={SIMULATOR}", "SIMCUDA_SESSION=+trial", *line.removeprefix("sudo ").split())
    alice = int(run("id", "-u", "alice"))
    hers = Holder(alice)
    client, = (client for gpu in status()["gpus"] for client in gpu["clients"] if client["pid"] == hers.pid)
    assert client["class"] == "vision", client
    hers.go_on()
    without = re.findall(r"`sudo (systemctl (?:restart|disable).*?)`", page)
    assert len(without) == 2, without
    for command in without:
        run(*command.split())
    waits = subprocess.Popen(as_user(alice, "env", f"LD_LIBRARY_PATH={SIMULATOR}", "SIMCUDA_SESSION=+trial", "sublet", "run", "--",
                                     "python3", HOLDER), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = waits.stderr.readline()
    assert "no daemon answers in /run/sublet, and the owner of this machine requires sharing" in said, said
    run("systemctl", "enable", "--now", "subletd.service", "subletd.socket")
    said, _ = waits.communicate("on\n", timeout=GENEROUS_S)
    assert said == "holds\nthe same\n" and waits.returncode == 0, said


def restarts():
    return int(property_of("subletd.service", "NRestarts"))


def main_pid():
    return int(property_of("subletd.service", "MainPID"))


def check_restarts(holder):
    """After each kind of end a new daemon knows the program."""
    for what, end in (("a kill", lambda: os.kill(main_pid(), signal.SIGKILL)),
                      ("a loop that stands still", lambda: os.kill(main_pid(), signal.SIGSTOP)),
                      ("sublet stop", lambda: run("sublet", "stop"))):
        step(f"the daemon restarts after {what}")
        before, sockets = restarts(), {path: path.stat().st_ino for path in RUN.glob("*.sock")}
        end()
        wait_for(lambda: restarts() > before, "no restart")
        wait_for(lambda: holder.pid in clients(), "the program does not come back")
        assert sockets == {path: path.stat().st_ino for path in RUN.glob("*.sock")}, "the sockets stay"


step("packages of an earlier version")
VERSION = re.search(r"_([\d.]+)-", os.path.basename(glob.glob(f"{PACKAGES}/sublet_*.deb")[0]))[1]
# As long as the version, so that it can replace it in the programs. The last number stays: there may be a text "0" in a
# program that the linker has made the end of "0.2.0".
OLD = "0.0." + VERSION.rsplit(".", maxsplit=1)[1]
assert len(VERSION) == len(OLD) and VERSION != OLD
old_packages(VERSION)
before_install = named_sublet()
for uid in USERS:
    run("useradd", "--create-home", "--uid", str(uid), f"user{uid}")

step("install")
install(*glob.glob("/tmp/old/*.deb"))
SIMULATOR, = glob.glob("/usr/lib/*/sublet/sim")
check_installed()
check_service()

step("the programs for Kubernetes, and Slurm's plugin")
check_webhook()
check_extender()
check_device_plugin()
check_slurm()

step("the example of the documentation")
check_example()

step("the machine's daemon pairs jobs of two users, and serves them on the simulated card")
drop_in = pathlib.Path("/etc/systemd/system/subletd.service.d/trial.conf")
drop_in.parent.mkdir()
drop_in.write_text(f"[Service]\nEnvironment=LD_LIBRARY_PATH={SIMULATOR} SIMCUDA_SESSION=+trial SIMCUDA_MEMORY=256MiB\n"
                   "WatchdogSec=1s\nTimeoutAbortSec=1s\nStartLimitBurst=100\n")
run("systemctl", "daemon-reload")
os.environ |= {"SIMCUDA_MEMORY": "256MiB"}
run("systemctl", "restart", "subletd")
check_queue()
holders = [Holder(uid) for uid in USERS]
run("systemctl", "restart", "subletd")
wait_for(lambda: {h.pid for h in holders} <= set(clients()), "the programs do not come back")
check_restarts(holders[0])

step("an upgrade while programs run")
assert status()["version"] == OLD
sockets = {path: path.stat().st_ino for path in RUN.glob("*.sock")}
install(*(package for name in NAMES for package in glob.glob(f"{PACKAGES}/{name}_*.deb")))
wait_for(lambda: {h.pid for h in holders} <= set(clients()), "the programs do not come back")
assert status()["version"] == VERSION
assert sockets == {path: path.stat().st_ino for path in RUN.glob("*.sock")}, "the sockets stay"
for h in holders:
    assert "libsublet.so (deleted)" in pathlib.Path(f"/proc/{h.pid}/maps").read_text(), "the program has the old library"
holders[0].go_on()
newer = Holder(USERS[0])
assert {newer.pid, holders[1].pid} <= set(clients())
newer.go_on()

step("docs/lab.md, as it stands")
check_lab_page()
wait_for(lambda: holders[1].pid in clients(), "the program does not come back")
pathlib.Path("/etc/sublet/subletd.conf").write_text("[daemon]\nquantum = 3s\n")

step("remove, while a program runs")
run("apt-get", "remove", "-y", *NAMES)
assert not RUN.exists() and not shutil.which("sublet")
assert "3s" in pathlib.Path("/etc/sublet/subletd.conf").read_text()
holders[1].go_on()

step("purge")
run("dpkg", "--purge", *NAMES)
drop_in.unlink()
drop_in.parent.rmdir()
shutil.rmtree("/tmp/old")
shutil.rmtree("/tmp/jobs")
assert named_sublet() == before_install
print("packages: installed, upgraded, removed and purged", flush=True)
