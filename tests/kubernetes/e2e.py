#!/usr/bin/python3
"""Takes sublet through a real Kubernetes 1.20 on the simulated driver: images, manifests, device plugin, webhook, pods
past the card's memory; the kubelet restarted, a pod killed and the DaemonSet upgraded while they run; two notebooks; a
pod that leaves more than its memory limit; all removed. Compares the results of the pods' programs with those of the
same programs alone. `./dev e2e-k8s` runs this as root.

    e2e.py BUILD KUBERNETES FOLDER [--page PAGE]

BUILD: sublet's build folder, with the tests. KUBERNETES: the folder of build.sh. FOLDER: for everything else. PAGE: where
to write the page for docs/measurements. Ends with an exception at the first thing that does not hold."""

import argparse
import datetime
import gzip
import os
import pathlib
import re
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster import Cluster, eventually, run  # noqa: E402
from course import DEPLOY, HERE, RELEASE, ROOT, Course, job_pod  # noqa: E402
from host_pool_step import host_pool  # noqa: E402
from images import OURS, build_images  # noqa: E402
from notebooks_step import two_notebooks  # noqa: E402
from old_words import translate  # noqa: E402

OVERLAY = "tests/kubernetes/overlay"
# SIZE KEY PHASES SECONDS ROUNDS of sublet-demo-job: each needs more than half of the card.
JOBS = {"ada": "140MiB 1 30 0.5 4", "alan": "140MiB 2 30 0.5 4"}
WEBHOOK = "/usr/sbin/sublet-webhook"


def manifests(course):
    for part in ("webhook", "extender"):
        run(DEPLOY / part / "certificate.sh")
    for folder in (DEPLOY, HERE):
        shutil.copytree(folder, course.manifests / folder.relative_to(ROOT), ignore=shutil.ignore_patterns("node_modules"))
    translate(course.manifests)
    course.cluster.kubectl("apply", "-f", DEPLOY / "base/namespace.yaml")
    deploy = course.manifests / DEPLOY.relative_to(ROOT)
    for overlay in [deploy / "base", deploy / "webhook", *sorted((deploy / "overlays").iterdir())]:
        course.cluster.kubectl("apply", "--dry-run=server", "-k", overlay)
    for example in sorted((DEPLOY / "examples").glob("*.yaml")):
        course.cluster.kubectl("apply", "--dry-run=server", "-f", example)
    course.note("the API server accepts every overlay and example (--dry-run=server)")


def install(course):
    cluster, began = course.cluster, time.monotonic()
    cluster.kubectl("apply", "-k", course.manifests / OVERLAY)
    eventually("the node offers sublet.dev/gpu", lambda: course.allocatable() == 100)
    course.note("from kubectl apply to 100 sublet.dev/gpu on the node", f"{time.monotonic() - began:.1f} s")
    table = cluster.kubectl("get", "nodes", "-o", r"custom-columns=NODE:.metadata.name,GPUS:.status.allocatable.sublet\.dev/gpu")
    assert table.splitlines()[1].split() == ["node", "100"], table
    eventually("the webhook is ready", lambda: cluster.get("deployment", "sublet-webhook", "-n", "sublet-system")[
        "status"].get("readyReplicas") == 2)
    cluster.kubectl("create", "namespace", "team")
    cluster.kubectl("label", "namespace", "team", "sublet.dev/share=true")


def jobs(course):
    """Two pods that do not fit the card together. One asks for sublet's resource; the other for nvidia.com/gpu, and the
    webhook changes it."""
    course.apply(job_pod("ada", "team", "sublet.dev/gpu", JOBS["ada"], {"sublet.dev/memory-cap": "200Mi"}))
    course.apply(job_pod("alan", "team", "nvidia.com/gpu", JOBS["alan"], uid=1000))
    limits = course.cluster.get("pod", "alan", "-n", "team")["spec"]["containers"][0]["resources"]["limits"]
    assert limits["sublet.dev/gpu"] == "1" and "nvidia.com/gpu" not in limits, limits
    for name in JOBS:
        eventually(f"{name} runs", lambda name=name: course.phase("team", name) == "Running")
    course.note("two pods of 140 MiB each run on one card of 256 MiB; one of them asked for nvidia.com/gpu")
    eventually("both are known", lambda: course.clients_of("team/ada", "team/alan"))
    course.note("sublet status names the pods", "team/ada, team/alan")


def meanwhile(course):
    """What happens to a node while pods compute."""
    cluster = course.cluster
    course.note("the kubelet restarted; the plugin has registered after", f"{restart_kubelet(course):.2f} s")

    course.apply(job_pod("killed", "team", "sublet.dev/gpu", "60MiB 3 100 0.2 4"))
    eventually("the third pod computes", lambda: "round" in cluster.logs("killed"))
    cluster.kubectl("delete", "pod", "killed", "-n", "team", "--grace-period=0", "--force")
    eventually("its memory is free", lambda: not any(c.get("pod_name") == "killed" for c in course.clients()))
    course.note("a third pod was killed while it computed; its memory is free")

    course.apply(job_pod("capped", "team", "sublet.dev/gpu", "100MiB 4 1 0 1", {"sublet.dev/memory-cap": "50Mi"}))
    eventually("the capped pod ends", lambda: course.phase("team", "capped") in ("Succeeded", "Failed"))
    said = next(line for line in cluster.logs("capped").splitlines() if "memory cap" in line)
    course.note("a pod over its memory cap is told", said)

    # One that always fits: every stop that it makes is sublet's doing.
    course.apply(job_pod("steady", "team", "sublet.dev/gpu", "10MiB 5 1000 0.05 2"))
    eventually("the steady pod computes", lambda: "round 20" in cluster.logs("steady"))
    upgrade(course)
    course.note("a pod that need not wait for a turn stopped meanwhile for at most", f"{stops('steady'):.2f} s")
    course.remove("team", "steady")


def results(course):
    expected = {name: course.job_alone(job) for name, job in JOBS.items()}
    for name in JOBS:
        eventually(f"{name} ends", lambda name=name: course.phase("team", name) == "Succeeded", 300)
        last = course.cluster.logs(name).splitlines()[-1]
        assert last == expected[name], f"{name}: {last}, alone: {expected[name]}"
        course.note(f"{name} ends with the result of a run alone; longest time between two lines, turns included",
                    f"{stops(name):.1f} s")
    course.note("results", "; ".join(expected.values()))


def without_webhook(course):
    cluster = course.cluster
    cluster.kubectl("scale", "deployment", "sublet-webhook", "-n", "sublet-system", "--replicas=0")
    eventually("no webhook is left", lambda: not ours(WEBHOOK))
    course.apply(job_pod("unshared", "team", "nvidia.com/gpu", JOBS["ada"]))
    limits = cluster.get("pod", "unshared", "-n", "team")["spec"]["containers"][0]["resources"]["limits"]
    assert "nvidia.com/gpu" in limits, limits
    course.note("without the webhook pods are still created, as they were written")
    cluster.kubectl("scale", "deployment", "sublet-webhook", "-n", "sublet-system", "--replicas=2")
    eventually("the webhook is back", lambda: cluster.get("deployment", "sublet-webhook", "-n", "sublet-system")[
        "status"].get("readyReplicas") == 2, 120)


def remove(course):
    """The kubelet of 1.20.2 removes a pod only once its sandbox is gone. It may miss the sandbox's end, and then finds it
    when it looks for dead ones, once a minute (kubernetes/kubernetes#97288). So two times are taken."""
    began = time.monotonic()
    course.cluster.kubectl("delete", "-k", course.manifests / OVERLAY, "--wait=false")
    # If one ignored SIGTERM, it would be killed after 10 s, or the webhook after 30 s.
    eventually("daemon and plugin have ended", lambda: not ours("/usr/sbin/subletd", "/usr/sbin/sublet-device-plugin"), 8)
    node_s = time.monotonic() - began
    eventually("the webhook has ended", lambda: not ours(WEBHOOK), 15)
    course.note("after kubectl delete -k the node's programs have ended; and the webhook, which lingers for 5 s",
                f"{node_s:.1f} s; {time.monotonic() - began:.1f} s")
    eventually("nothing is left", lambda: "NotFound" in course.refused("get", "namespace", "sublet-system"), 180)
    course.note("nothing is left after (the kubelet of 1.20.2 needs up to a minute more at times, kubernetes#97288)",
                f"{time.monotonic() - began:.0f} s")


# ---- what the steps ask ----

def ours(*programs):
    """The processes of these programs."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes().split(b"\0")[0].decode() in programs:
                found.append(path.parent.name)
        except OSError:
            continue  # it has ended
    return found


def stops(name):
    """The longest time between two lines that a pod's program printed, in seconds."""
    times = []
    for path in pathlib.Path("/var/log/pods").glob(f"*_{name}_*/*/*.log"):
        for line in path.read_text().splitlines():
            stamp = line.split(" ", 1)[0]
            times.append(datetime.datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00").timestamp())
    return max(b - a for a, b in zip(times, times[1:]))


def registrations(cluster):
    """When the kubelet took registrations, by its log: seconds of the day."""
    found = re.findall(r"(\d\d):(\d\d):(\d\d\.\d+) .*Got registration request from device plugin",
                       (cluster.run / "kubelet.log").read_text())
    return [int(h) * 3600 + int(m) * 60 + float(s) for h, m, s in found]


def restart_kubelet(course):
    """Returns the time from the new kubelet's socket to the registration, in seconds."""
    cluster = course.cluster
    before = len(registrations(cluster))
    socket = pathlib.Path("/var/lib/kubelet/device-plugins/kubelet.sock")
    old = socket.stat().st_ctime_ns  # a new socket may have the old inode
    cluster.end("kubelet")
    cluster.start_kubelet()
    eventually("the kubelet listens again", lambda: socket.stat().st_ctime_ns != old)
    listens = datetime.datetime.fromtimestamp(socket.stat().st_ctime)
    eventually("the plugin registers again", lambda: len(registrations(cluster)) > before)
    eventually("the node offers the resource again", lambda: course.allocatable() == 100)
    midnight = listens.replace(hour=0, minute=0, second=0, microsecond=0)
    return registrations(cluster)[-1] - (listens - midnight).total_seconds()


def upgrade(course):
    """A new release of the DaemonSet: the same images under another name."""
    cluster, began = course.cluster, time.monotonic()
    ctr = ["ctr", "--address", cluster.run / "containerd.sock", "-n", "k8s.io", "images", "tag"]
    for name in ("daemon", "device-plugin"):
        run(*ctr, f"docker.io/sublet/{name}:{RELEASE}", f"docker.io/sublet/{name}:next")
    cluster.kubectl("set", "image", "daemonset/sublet-node", "-n", "sublet-system", "daemon=sublet/daemon:next",
                    "plugin=sublet/device-plugin:next")
    cluster.kubectl("rollout", "status", "daemonset/sublet-node", "-n", "sublet-system", "--timeout=120s")
    eventually("the node offers the resource", lambda: course.allocatable() == 100)
    course.note("the DaemonSet was upgraded while both pods ran, in", f"{time.monotonic() - began:.1f} s")


def page(path, found):
    commit = run("git", "-C", ROOT, "rev-parse", "--short=12", "HEAD").strip()
    rows = "\n".join(f"| {what} | {value} |" for what, value in found)
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
    cluster = Cluster(options.kubernetes, folder / "cluster")
    course = Course(cluster, build, folder)
    archives = build_images(build, folder)
    for name in OURS:
        archive = folder / f"{name}.tar"
        course.note(f"image {name}", f"{archive.stat().st_size / 1e6:.1f} MB, "
                    f"{len(gzip.compress(archive.read_bytes())) / 1e6:.1f} MB as a registry sends it")
    began = time.monotonic()
    try:
        cluster.start(archives)
        course.note("a cluster of one node is ready after", f"{time.monotonic() - began:.0f} s")
        cluster.mount(build / "sim", "/sim")
        for step in (manifests, install, jobs, meanwhile, results, two_notebooks, host_pool, without_webhook, remove):
            step(course)
    except BaseException:
        if "api" in cluster.running:
            print(course.refused("get", "pods", "-A", "-o", "wide"))
            print(course.refused("get", "events", "-A"))
            for log in pathlib.Path("/var/log/pods").glob("*/*/*.log"):
                print(log, "\n".join(log.read_text().splitlines()[-15:]), sep="\n")
        raise
    finally:
        cluster.stop()
    if options.page:
        page(options.page, course.found)


if __name__ == "__main__":
    main()
