"""A pod leaves more of a card than its memory limit: what leaves goes to the daemon's memory, the host pool.

The simulated card keeps its memory in its programs' own memory, so the limit has to cover the card, and some 10 MiB for
each program. So the pod has eight programs. All keep their memory until the last has filled its own: together they have
twice the limit. The control is the same pod without a host pool."""

import json
import time

from cluster import eventually
from course import job_pod

PROGRAMS, EACH_MIB, CARD_MIB, LIMIT_MIB = 8, 100, 256, 384
LEFT_MIB = PROGRAMS * EACH_MIB - CARD_MIB
POOL = "64GiB"  # as in deploy/kubernetes/base/subletd.conf
FILL = ["--bytes", f"{EACH_MIB}MiB", "--block", "10MiB"]
PATIENCE_S = 10
assert LEFT_MIB > LIMIT_MIB


def host_pool(course):
    without(course)

    folder = begin(course, "small")
    eventually("all programs are past the first round", lambda: filled(folder, 2) == PROGRAMS, 180)
    pool = sum(c["host_pool"] for c in course.clients_of("team/small"))
    assert pool >= LEFT_MIB << 20, f"only {pool >> 20} MiB are in the host pool"
    (folder / "end").touch()
    eventually("the pod ends", lambda: course.phase("team", "small") in ("Succeeded", "Failed"), 180)
    assert not killed(course, "small"), course.cluster.logs("small")
    for seed in range(PROGRAMS):
        check(course, folder, seed)
    course.note(f"{PROGRAMS} programs of {EACH_MIB} MiB in one pod, memory limit {LIMIT_MIB} MiB, card {CARD_MIB} MiB: all "
                "compute what they compute alone; in the host pool while all of them had their memory", f"{pool >> 20} MiB")
    eventually("the pool is empty", lambda: course.status()["host_memory"]["pool"] == 0)


def without(course):
    """Without a host pool the limit is in the way."""
    course.sublet("set", "host_pool", "0")
    folder = begin(course, "unpooled")
    eventually("the pod lacks host memory", lambda: "no host memory" in course.cluster.logs("unpooled") or
               killed(course, "unpooled"), 120)
    time.sleep(PATIENCE_S)
    have = filled(folder, 1)
    assert have < PROGRAMS, "the limit was not in the way"
    course.note(f"the same pod without a host pool, after {PATIENCE_S} s more", "killed for memory"
                if killed(course, "unpooled") else f"{have} of {PROGRAMS} programs have their memory")
    course.remove("team", "unpooled")
    eventually("its programs are gone", lambda: not any(c.get("pod_name") == "unpooled" for c in course.clients()))
    course.sublet("set", "host_pool", POOL)


def begin(course, name):
    """Starts the pod, and returns the node's folder with what its programs print; a file `end` there ends them."""
    folder = course.folder / name
    folder.mkdir()
    seeds = " ".join(str(seed) for seed in range(PROGRAMS))
    fill = " ".join(["/usr/bin/fill", *FILL, "--seed $seed --until /out/end >/out/$seed"])
    pod = job_pod(name, "team", "sublet.dev/gpu", ["/bin/sh", "-c", f"for seed in {seeds}; do {fill} & done; wait"],
                  memory=f"{LIMIT_MIB}Mi")
    pod["spec"]["volumes"].append({"name": "out", "hostPath": {"path": str(folder)}})
    pod["spec"]["containers"][0]["volumeMounts"].append({"name": "out", "mountPath": "/out"})
    course.apply(pod)
    eventually(f"{name} runs", lambda: len(list(folder.iterdir())) == PROGRAMS)
    return folder


def sums(text):
    """The sums of the rounds that a program has done."""
    events = [json.loads(line) for line in text.splitlines()]
    return [e["sum"] for e in events if e["event"] == "round"]


def filled(folder, rounds):
    """How many programs have done so many rounds, and so have all their memory."""
    return sum(len(sums((folder / str(seed)).read_text())) >= rounds for seed in range(PROGRAMS))


def check(course, folder, seed):
    found = sums((folder / str(seed)).read_text())
    expected = sums(course.alone(course.build / "programs/fill", *FILL, "--seed", seed, "--rounds", len(found)))
    assert found == expected, f"program {seed}: {found}, alone: {expected}"


def killed(course, name):
    states = course.cluster.get("pod", name, "-n", "team")["status"].get("containerStatuses", [])
    return any(s["state"].get("terminated", {}).get("reason") == "OOMKilled" for s in states)
