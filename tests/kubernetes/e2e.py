#!/usr/bin/python3
"""Takes sublet through a real Kubernetes 1.20 on the simulated driver: images, manifests, device plugin, webhook, pods
past the card's memory; the kubelet restarted, a pod killed and the DaemonSet upgraded while they run. Compares the
results of the pods' programs with those of the same programs alone. `./dev e2e-k8s` runs this as root.

    e2e.py BUILD KUBERNETES FOLDER [--page PAGE]

BUILD: sublet's build folder. KUBERNETES: the folder of build.sh. FOLDER: for everything else. PAGE: where to write the
page for docs/measurements. Ends with an exception at the first thing that does not hold."""

import argparse
import datetime
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/kubernetes"))
from cluster import NODE, Cluster, eventually, run  # noqa: E402

SIM = {"SIMCUDA_SESSION": "+cluster", "SIMCUDA_MEMORY": "256MiB", "SIMCUDA_GPUS": "1"}
DEPLOY = ROOT / "deploy/kubernetes"
RELEASE = re.search(r"project\(sublet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
# SIZE KEY PHASES SECONDS ROUNDS of sublet-demo-job: each needs more than half of the card.
JOBS = {"ada": "140MiB 1 30 0.5 4", "alan": "140MiB 2 30 0.5 4"}
log = []


def note(what, value=""):
    line = f"{time.strftime('%H:%M:%S')}  {what}{': ' if value != '' else ''}{value}"
    log.append((what, value))
    print(line, flush=True)


# ---- what goes into the cluster ----

def images(build, folder):
    run(DEPLOY / "images.sh", build, folder)
    work = folder / "work"
    for name in ("pause", "job"):
        (work / name).mkdir(parents=True)
    run("gcc", "-static", "-O2", "-o", work / "pause/pause", ROOT / "tests/kubernetes/pause.c")
    put(work / "job", build / "sublet-demo-job", "/usr/bin/sublet-demo-job")
    put(work / "job", build / "sim/libcuda.so.1", None)  # what the simulated driver needs
    store = ["buildah", "--storage-driver", "vfs", "--root", folder / "store", "--runroot", folder / "runroot"]
    for name, program in (("pause", "/pause"), ("job", "/usr/bin/sublet-demo-job")):
        container = run(*store, "from", "scratch").strip()
        run(*store, "copy", "-q", container, work / name, "/")
        run(*store, "config", "--entrypoint", json.dumps([program]), container)
        run(*store, "commit", "-q", container, f"docker-archive:{folder}/{name}.tar:sublet-test/{name}:1")
    return sorted(folder.glob("*.tar"))


def put(root, program, to):
    """A program and the libraries that it loads, as images.sh does; without `to` the libraries alone."""
    for line in [f"x => {program} (0)" if to else "", *run("ldd", program).splitlines()]:
        path = next((w for w in line.split() if w.startswith("/")), None)
        if path:
            target = root / (to if path == str(program) else path)[1:]
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(os.path.realpath(path), target)


def pod(name, namespace, resource, job, annotations=None, uid=0):
    environment = {**SIM, "LD_LIBRARY_PATH": "/sim"}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "containers": [{
                "name": "job", "image": "sublet-test/job:1", "args": job.split(),
                "env": [{"name": k, "value": v} for k, v in environment.items()],
                "securityContext": {"runAsUser": uid, "readOnlyRootFilesystem": True},
                "resources": {"limits": {resource: 1, "memory": "2Gi"}},
                "volumeMounts": [{"name": "sim", "mountPath": "/sim", "readOnly": True},
                                 {"name": "shm", "mountPath": "/dev/shm"}]}],
            "volumes": [{"name": "sim", "hostPath": {"path": "/sim"}}, {"name": "shm", "hostPath": {"path": "/dev/shm"}}],
        }}


# ---- what is asked ----

def alone(build, job):
    """The last line of the program without sublet: rounds, mismatches, digest."""
    done = subprocess.run([build / "sublet-demo-job", *job.split()], stdout=subprocess.PIPE, text=True, check=True,
                          env={**os.environ, **SIM, "SIMCUDA_SESSION": "alone", "LD_LIBRARY_PATH": str(build / "sim")})
    return done.stdout.splitlines()[-1]


def phase(cluster, namespace, name):
    return cluster.get("pod", name, "-n", namespace)["status"].get("phase")


def status(build):
    return json.loads(run(build / "sublet", "status", "--json", "--daemon", "/run/sublet"))


def stops(name):
    """The longest time between two lines that a pod's program printed, in seconds."""
    times = []
    for path in pathlib.Path("/var/log/pods").glob(f"*_{name}_*/*/*.log"):
        for line in path.read_text().splitlines():
            stamp = line.split(" ", 1)[0]
            times.append(datetime.datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00").timestamp())
    return max(b - a for a, b in zip(times, times[1:]))


def allocatable(cluster):
    return int(cluster.get("node", NODE)["status"]["allocatable"].get("sublet.dev/gpu", 0))


# ---- the course ----

def through(cluster, build, folder, archives):
    began = time.monotonic()
    cluster.start(archives)
    note("a cluster of one node is ready after", f"{time.monotonic() - began:.0f} s")
    cluster.mount(build / "sim", "/sim")
    run(DEPLOY / "webhook/certificate.sh")

    cluster.kubectl("apply", "-f", DEPLOY / "base/namespace.yaml")
    for overlay in [DEPLOY / "base", DEPLOY / "webhook", *sorted((DEPLOY / "overlays").iterdir())]:
        cluster.kubectl("apply", "--dry-run=server", "-k", overlay)
    for example in sorted((DEPLOY / "examples").glob("*.yaml")):
        cluster.kubectl("apply", "--dry-run=server", "-f", example)
    note("the API server accepts every overlay and example (--dry-run=server)")

    began = time.monotonic()
    cluster.kubectl("apply", "-k", ROOT / "tests/kubernetes/overlay")
    eventually("the node offers sublet.dev/gpu", lambda: allocatable(cluster) == 100)
    note("from kubectl apply to 100 sublet.dev/gpu on the node", f"{time.monotonic() - began:.1f} s")
    eventually("the webhook is ready", lambda: cluster.get("deployment", "sublet-webhook", "-n", "sublet-system")[
        "status"].get("readyReplicas") == 2)

    cluster.kubectl("create", "namespace", "team")
    cluster.kubectl("label", "namespace", "team", "sublet.dev/share=true")
    expected = {name: alone(build, job) for name, job in JOBS.items()}
    # One asks for sublet's resource; the other for nvidia.com/gpu, and the webhook changes it.
    apply(cluster, pod("ada", "team", "sublet.dev/gpu", JOBS["ada"], {"sublet.dev/memory-cap": "200Mi"}))
    apply(cluster, pod("alan", "team", "nvidia.com/gpu", JOBS["alan"], uid=1000))
    limits = cluster.get("pod", "alan", "-n", "team")["spec"]["containers"][0]["resources"]["limits"]
    assert limits["sublet.dev/gpu"] == "1" and "nvidia.com/gpu" not in limits, limits
    for name in JOBS:
        eventually(f"{name} runs", lambda name=name: phase(cluster, "team", name) == "Running")
    note("two pods of 140 MiB each run on one card of 256 MiB; one of them asked for nvidia.com/gpu")
    rows = eventually("both are known", lambda: known(build, 2))
    assert {(c.get("pod_namespace"), c.get("pod_name")) for c in rows} == {("team", "ada"), ("team", "alan")}, rows
    note("sublet status names the pods", ", ".join(sorted(f"{c['pod_namespace']}/{c['pod_name']}" for c in rows)))

    note("the kubelet restarted; the plugin has registered after", f"{restart_kubelet(cluster):.2f} s")

    apply(cluster, pod("killed", "team", "sublet.dev/gpu", "60MiB 3 100 0.2 4"))
    eventually("the third pod computes", lambda: "round" in cluster.logs("killed"))
    cluster.kubectl("delete", "pod", "killed", "-n", "team", "--grace-period=0", "--force")
    eventually("its memory is free", lambda: not any(c.get("pod_name") == "killed" for c in clients(build)))
    note("a third pod was killed while it computed; its memory is free")

    apply(cluster, pod("capped", "team", "sublet.dev/gpu", "100MiB 4 1 0 1", {"sublet.dev/memory-cap": "50Mi"}))
    eventually("the capped pod ends", lambda: phase(cluster, "team", "capped") in ("Succeeded", "Failed"))
    said = next(line for line in cluster.logs("capped").splitlines() if "memory cap" in line)
    note("a pod over its memory cap is told", said)

    # One that always fits: every stop that it makes is sublet's doing.
    apply(cluster, pod("steady", "team", "sublet.dev/gpu", "10MiB 5 1000 0.05 2"))
    eventually("the steady pod computes", lambda: "round 20" in cluster.logs("steady"))
    upgrade(cluster)
    note("a pod that need not wait for a turn stopped meanwhile for at most", f"{stops('steady'):.2f} s")
    cluster.kubectl("delete", "pod", "steady", "-n", "team", "--grace-period=0", "--force", "--wait=false")
    for name in JOBS:
        eventually(f"{name} ends", lambda name=name: phase(cluster, "team", name) == "Succeeded", 300)
        last = cluster.logs(name).splitlines()[-1]
        assert last == expected[name], f"{name}: {last}, alone: {expected[name]}"
        note(f"{name} ends with the result of a run alone; longest time between two lines, turns included",
             f"{stops(name):.1f} s")
    note("results", "; ".join(expected.values()))

    cluster.kubectl("scale", "deployment", "sublet-webhook", "-n", "sublet-system", "--replicas=0")
    eventually("no webhook is left", lambda: not cluster.get("pods", "-n", "sublet-system", "-l",
                                                             "app.kubernetes.io/name=sublet-webhook")["items"])
    apply(cluster, pod("unshared", "team", "nvidia.com/gpu", JOBS["ada"]))
    note("without the webhook pods are still created, as they were written")

    cluster.kubectl("delete", "-k", ROOT / "tests/kubernetes/overlay")
    eventually("nothing is left", lambda: "NotFound" in refused(cluster, "get", "namespace", "sublet-system"))
    note("kubectl delete -k removes it all")


def apply(cluster, document):
    cluster.kubectl("apply", "-f", "-", text=json.dumps(document))


def clients(build):
    return [c for gpu in status(build)["gpus"] for c in gpu["clients"]]


def known(build, n):
    rows = clients(build)
    return rows if len([c for c in rows if c.get("pod_name")]) == n else None


def registrations(cluster):
    """When the kubelet took registrations, by its log: seconds of the day."""
    found = re.findall(r"(\d\d):(\d\d):(\d\d\.\d+) .*Got registration request from device plugin",
                       (cluster.run / "kubelet.log").read_text())
    return [int(h) * 3600 + int(m) * 60 + float(s) for h, m, s in found]


def restart_kubelet(cluster):
    """Returns the time from the new kubelet's socket to the registration, in seconds."""
    before = len(registrations(cluster))
    socket = pathlib.Path("/var/lib/kubelet/device-plugins/kubelet.sock")
    old = socket.stat().st_ino
    cluster.end("kubelet")
    cluster.start_kubelet()
    eventually("the kubelet listens again", lambda: socket.stat().st_ino != old)
    listens = datetime.datetime.fromtimestamp(socket.stat().st_ctime)
    eventually("the plugin registers again", lambda: len(registrations(cluster)) > before)
    eventually("the node offers the resource again", lambda: allocatable(cluster) == 100)
    midnight = listens.replace(hour=0, minute=0, second=0, microsecond=0)
    return registrations(cluster)[-1] - (listens - midnight).total_seconds()


def refused(cluster, *arguments):
    try:
        return cluster.kubectl(*arguments)
    except RuntimeError as e:
        return str(e)


def upgrade(cluster):
    """A new release of the DaemonSet: the same images under another name."""
    began = time.monotonic()
    ctr = ["ctr", "--address", cluster.run / "containerd.sock", "-n", "k8s.io", "images", "tag"]
    for name in ("daemon", "device-plugin"):
        run(*ctr, f"docker.io/sublet/{name}:{RELEASE}", f"docker.io/sublet/{name}:next")
    cluster.kubectl("set", "image", "daemonset/sublet-node", "-n", "sublet-system", "daemon=sublet/daemon:next",
                    "plugin=sublet/device-plugin:next")
    cluster.kubectl("rollout", "status", "daemonset/sublet-node", "-n", "sublet-system", "--timeout=120s")
    eventually("the node offers the resource", lambda: allocatable(cluster) == 100)
    note("the DaemonSet was upgraded while both pods ran, in", f"{time.monotonic() - began:.1f} s")


def page(path):
    commit = run("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD").strip()
    rows = "\n".join(f"| {what} | {value} |" for what, value in log)
    pathlib.Path(path).write_text(f"""# A real Kubernetes, on the simulated driver

`./dev e2e-k8s` builds Kubernetes 1.20.2 from Debian's source package and takes sublet through it. The card is
**simulated**: manifests, images, plugin, webhook, pods, moved bytes and results are real, and no time says anything
about a GPU. Two shared processors. Commit {commit}, {datetime.date.today()}.

| step | |
|---|---|
{rows}
""")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("build", type=pathlib.Path)
    options.add_argument("kubernetes", type=pathlib.Path)
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("--page")
    options = options.parse_args()
    build, folder = options.build.resolve(), options.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    archives = images(build, folder)
    for archive in archives:
        note(f"image {archive.stem}", f"{archive.stat().st_size / 1e6:.1f} MB, "
             f"{len(gzip.compress(archive.read_bytes())) / 1e6:.1f} MB as a registry sends it")
    cluster = Cluster(options.kubernetes, folder / "cluster")
    try:
        through(cluster, build, folder, archives)
    except BaseException:
        if "api" in cluster.running:
            print(refused(cluster, "get", "pods", "-A", "-o", "wide"))
            print(refused(cluster, "get", "events", "-A"))
            for name in ("sublet-node", "sublet-webhook", *JOBS, "capped"):
                for log_file in pathlib.Path("/var/log/pods").glob(f"*_{name}*/*/*.log"):
                    print(log_file, "\n".join(log_file.read_text().splitlines()[-15:]), sep="\n")
        raise
    finally:
        cluster.stop()
    if options.page:
        page(options.page)


if __name__ == "__main__":
    main()
