"""sublet submit: jobs that wait, start where they fit, and run; what users and crashes do to the queue.

There is no model of the simulated card, so pairs are predicted by the model of turns alone: a job that computes on the
host most of the time goes well with others, and two busy jobs do not."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess

import pytest

import others
import toy_pairs
import trained
from world import BUILD, MIB, NO_LEAKS, NO_PID_NAMESPACES, PAIRING, children, name_of, wait_for

SUBLET = os.path.join(BUILD, "sublet")
pytestmark = pytest.mark.skipif(not os.path.exists(os.path.join(BUILD, PAIRING)), reason="sublet-pairing is not built")


def job_file(world, name, busy=False, memory=16 * MIB, **changes):
    """Writes a job file of a job that is busy all the time, or for a twentieth of it."""
    gap, burst = (0, 0.5) if busy else (1.9, 0.1)
    rate = 1 / (gap + burst)
    job = {"sublet_job": 1, "name": name, "measured": {"time": "2026-11-27T19:00:00Z", "seconds": 10,
                                                       "memory_bytes": 128 * MIB, "bus_gb_s": 12.0},
           "steps": {"unit": "step", "count": 100, "per_second": rate}, "memory": {"peak_bytes": memory},
           "gpu": {"busy": burst * rate}, "launch": {"per_second": rate, "idle": 1 - burst * rate, "host_s_per_step": gap},
           "kernels": [], "other_share": 0.0}
    for key, value in changes.items():
        job[key] = {**job[key], **value}
    path = world.path(f"{name}.job.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump(job, f)
    return path


def submit(world, name, *command, file=None, options=("--way", "turns"), **env):
    """Submits a job. Without a command it runs until its end is set (end()). The model of turns predicts jobs that fit
    together only if they may do nothing else."""
    command = command or ("sh", "-c", f"until [ -e '{world.path(name + '.end')}' ]; do sleep 0.05; done")
    job = ("--job", file) if file else ()
    return world.start([SUBLET, "submit", "--name", name, *job, *options, "--", *command], **env)


def end(world, name, p, status=0):
    with open(world.path(name + ".end"), "w", encoding="utf-8"):
        pass
    assert p.wait() == status, p.report()


def jobs(world):
    return {j["name"]: j for j in world.status()["jobs"]}


def await_jobs(world, **states):
    """Waits until each job is in this state; None: it is gone."""
    def look():
        now = jobs(world)
        return now if all((now[n]["state"] if n in now else None) == s for n, s in states.items()) else None

    return wait_for(look, 30, f"jobs to be {states}", report=lambda: json.dumps(jobs(world), indent=1))


def answers(world):
    wait_for(lambda: world.sublet("status").returncode == 0, 20, "a daemon")


def await_gone(world):
    wait_for(lambda: not world.status()["jobs"], 20, "the queue to be empty")


def pairing(world):
    found = [child for child in children(world.worker()) if name_of(child) == PAIRING]
    return found[0] if found else None


@pytest.fixture
def queue(world):
    world.start_daemon()
    return world


# ---- starting ----

@pytest.mark.parametrize("words, name, text", [
    (("python3", "-u", "{script}"), "train.py", "import os, time\nwhile not os.path.exists({end!r}):\n    time.sleep(0.05)\n"),
    (("sh", "-e", "{script}"), "train.py", "until [ -e '{end}' ]; do sleep 0.05; done\n"),
    (("sh", "-c", ". {script}"), "sh", "until [ -e '{end}' ]; do sleep 0.05; done\n"),
])
def test_a_job_without_a_file_is_named_after_its_script(queue, words, name, text):
    script = queue.path("train.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(text.format(end=queue.path("x.end")))
    p = queue.start([SUBLET, "submit", "--", *(w.format(script=script) for w in words)])
    wait_for(lambda: list(jobs(queue)) == [name], 60, "the job's name", report=p.report)
    end(queue, "x", p)



def test_a_job_runs_alone_at_once_and_ends_with_its_status(queue):
    uuid = queue.status()["gpus"][0]["uuid"]
    # As sublet run --gpu: by UUID if numbers could mean other GPUs.
    for order, shown in (("PCI_BUS_ID", "0"), ("FASTEST_FIRST", uuid)):
        p = submit(queue, "a", "sh", "-c", 'echo "gpu $CUDA_VISIBLE_DEVICES"; exit 3', CUDA_DEVICE_ORDER=order,
                   SIMCUDA_DEV=queue.path("none"))
        assert p.wait() == 3, p.report()
        assert p.out().strip() == f"gpu {shown}"
        assert p.err() == ""  # nothing to tell: the terminal is the program's
        await_gone(queue)


def test_two_jobs_that_go_well_together_share_a_gpu_and_a_third_waits_for_a_place(queue):
    a = submit(queue, "a", file=job_file(queue, "a"))
    await_jobs(queue, a="running")
    b = submit(queue, "b", file=job_file(queue, "b"))
    now = await_jobs(queue, a="running", b="running")
    assert now["a"]["beside"] == now["b"]["id"] and now["b"]["beside"] == now["a"]["id"]
    assert now["a"]["way"] == "turns" and now["a"]["gpu"] == now["b"]["gpu"] == 0
    assert 0.7 <= now["a"]["predicted"] < 1 and 0.7 <= now["b"]["predicted"] < 1
    c = submit(queue, "c", file=job_file(queue, "c"))
    now = await_jobs(queue, c="waiting")
    assert now["c"]["place"] == 1 and now["c"]["why"] == "place 1: GPU 0 has a and b"
    wait_for(lambda: "the job waits, place 1: GPU 0 has a and b" in c.err(), 10, "the reason", report=c.report)
    end(queue, "a", a)
    now = await_jobs(queue, b="running", c="running")
    assert now["c"]["beside"] == now["b"]["id"]
    assert "beside b (turns)" in c.err()
    end(queue, "b", b)
    end(queue, "c", c)
    await_gone(queue)


def test_a_job_whose_bound_no_pair_keeps_waits_for_a_gpu_of_its_own(queue):
    a = submit(queue, "a", file=job_file(queue, "a", busy=True))
    await_jobs(queue, a="running")
    b = submit(queue, "b", file=job_file(queue, "b", busy=True))
    await_jobs(queue, b="waiting")
    wait_for(lambda: "beside no job would both keep their bounds" in b.err(), 10, "the reason", report=b.report)
    c = submit(queue, "c", file=job_file(queue, "c"))  # goes well with both, so it overtakes
    await_jobs(queue, a="running", b="waiting", c="running")
    end(queue, "a", a)
    now = await_jobs(queue, b="running", c="running")
    assert now["b"]["predicted"] >= 0.7
    for name, p in (("b", b), ("c", c)):
        end(queue, name, p)


def test_a_lower_bound_lets_two_busy_jobs_pair(queue):
    low = ("--qos", "0.3", "--way", "turns")
    a = submit(queue, "a", file=job_file(queue, "a", busy=True), options=low)
    await_jobs(queue, a="running")
    b = submit(queue, "b", file=job_file(queue, "b", busy=True), options=low)
    now = await_jobs(queue, b="running")
    assert 0.3 <= now["b"]["predicted"] <= 0.6
    for name, p in (("a", a), ("b", b)):
        end(queue, name, p)


def test_jobs_past_memory_pair_only_if_the_model_of_turns_keeps_both_bounds(queue):
    """Moving 100 MiB each way takes 9 ms at 12 GB/s, and 9 s at 12 MB/s. All ways are allowed."""
    slow = {"measured": {"bus_gb_s": 0.012}}
    a = submit(queue, "a", file=job_file(queue, "a", memory=100 * MIB), options=())
    await_jobs(queue, a="running")
    b = submit(queue, "b", file=job_file(queue, "b", memory=100 * MIB), options=())
    await_jobs(queue, b="running")
    for name, p in (("a", a), ("b", b)):
        end(queue, name, p)
    await_gone(queue)
    c = submit(queue, "c", file=job_file(queue, "c", memory=100 * MIB, **slow), options=())
    await_jobs(queue, c="running")
    d = submit(queue, "d", file=job_file(queue, "d", memory=100 * MIB, **slow), options=())
    await_jobs(queue, d="waiting")
    wait_for(lambda: "beside no job" in d.err(), 10, "the reason", report=d.report)
    for name, p in (("c", c), ("d", d)):
        end(queue, name, p)


def test_jobs_without_a_file_run_alone_in_the_order_in_which_they_came(make_world):
    world = make_world(gpus=2)
    world.start_daemon()
    running = {}
    for name in "abcd":
        running[name] = submit(world, name)
        await_jobs(world, **{name: "running" if name in "ab" else "waiting"})
    now = jobs(world)
    assert {now["a"]["gpu"], now["b"]["gpu"]} == {0, 1} and now["d"]["place"] == 2
    end(world, "b", running["b"])
    now = await_jobs(world, c="running", d="waiting")
    assert now["c"]["gpu"] == 1 and now["c"]["beside"] is None
    for name in "acd":
        end(world, name, running[name])


def test_a_gpu_that_a_program_outside_of_the_queue_uses_is_taken_until_it_ends(queue):
    other = queue.program("fill", "--until", queue.path("other-ends"), "--ms", 20)
    other.await_event("round")
    a = submit(queue, "a")
    wait_for(lambda: "GPU 0 has programs that were not submitted" in a.err(), 20, "the reason", report=a.report)
    assert jobs(queue)["a"]["state"] == "waiting"
    with open(queue.path("other-ends"), "w", encoding="utf-8"):
        pass
    other.ok()
    await_jobs(queue, a="running")
    end(queue, "a", a)


def test_a_jobs_own_programs_do_not_take_its_gpu_even_if_their_parent_has_ended(queue):
    fill = f"{BUILD}/programs/fill --ms 20 --until {queue.path('a.end')}"
    a = submit(queue, "a", "sh", "-c", f"(setsid {fill} &) ; until [ -e {queue.path('a.end')} ]; do sleep 0.05; done",
               file=job_file(queue, "a"))
    wait_for(queue.clients, 30, "the orphan to attach")
    b = submit(queue, "b", file=job_file(queue, "b"))
    await_jobs(queue, a="running", b="running")
    for name, p in (("b", b), ("a", a)):
        end(queue, name, p)


# ---- leaving ----


def test_ctrl_c_leaves_the_queue_and_a_signal_reaches_the_program(queue):
    a = submit(queue, "a", "sh", "-c", "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.05; done")
    wait_for(lambda: "ready" in a.out(), 20, "the program", report=a.report)
    b = submit(queue, "b")
    await_jobs(queue, b="waiting")
    b.send(signal.SIGINT)
    assert b.wait() == 128 + signal.SIGINT
    await_jobs(queue, b=None)
    a.send(signal.SIGTERM)
    assert a.wait() == 7 and "told" in a.out()
    await_gone(queue)


def test_a_job_killed_by_a_signal_ends_as_in_a_shell(queue):
    assert submit(queue, "a", "sh", "-c", "kill -9 $$").wait() == 128 + signal.SIGKILL


def test_wait_at_most_gives_up(queue):
    a = submit(queue, "a")
    await_jobs(queue, a="running")
    b = submit(queue, "b", options=("--wait-at-most", "1s"))
    assert b.wait() == 1 and "has not started within the time of --wait-at-most" in b.err()
    end(queue, "a", a)


def test_a_killed_submit_leaves_the_queue_and_the_next_job_starts(queue):
    a = submit(queue, "a", "sleep", "1000")
    await_jobs(queue, a="running")
    b = submit(queue, "b")
    await_jobs(queue, a="running", b="waiting")
    program, = wait_for(lambda: children(a.pid), 10, "the program")
    a.send(signal.SIGKILL)
    await_jobs(queue, a=None, b="running")
    os.kill(program, signal.SIGKILL)
    end(queue, "b", b)


# ---- crashes ----


def test_jobs_survive_a_new_daemon_and_those_that_wait_come_again(queue):
    a = submit(queue, "a", file=job_file(queue, "a", busy=True))
    await_jobs(queue, a="running")
    b = submit(queue, "b", file=job_file(queue, "b", busy=True))
    await_jobs(queue, b="waiting")
    started = queue.status()["instance"]
    queue.daemon.send(signal.SIGKILL)
    queue.daemon.wait()
    wait_for(lambda: "the daemon has ended; the job waits for the next" in b.err(), 20, "word of it", report=b.report)
    answers(queue)  # the job that waits has started a private daemon
    assert queue.status()["instance"] != started
    now = await_jobs(queue, a="running", b="waiting")
    assert now["a"]["gpu"] == 0 and a.running()
    end(queue, "a", a)
    await_jobs(queue, b="running")
    end(queue, "b", b)


def test_a_job_in_a_pid_namespace_comes_back_to_a_new_daemon(queue):
    unshare = ("unshare", "--pid", "--fork", "--kill-child")
    if subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip(NO_PID_NAMESPACES)
    a = queue.start([*unshare, SUBLET, "submit", "--name", "a", "--way", "turns", "--", "sh", "-c",
                     f"until [ -e '{queue.path('a.end')}' ]; do sleep 0.05; done"], **NO_LEAKS)
    await_jobs(queue, a="running")
    started = queue.status()["instance"]
    queue.daemon.send(signal.SIGKILL)
    queue.daemon.wait()
    queue.start_daemon()
    assert queue.status()["instance"] != started
    await_jobs(queue, a="running")
    end(queue, "a", a)


def test_the_helper_is_started_anew_and_serves_only_while_jobs_have_files(queue):
    a = submit(queue, "a", file=job_file(queue, "a"))
    await_jobs(queue, a="running")
    first = wait_for(lambda: pairing(queue), 10, "the helper")
    with open(f"/proc/{first}/status", encoding="ascii") as f:
        status = dict(line.split(":", 1) for line in f)
    assert status["Uid"].split()[1] == str(os.geteuid() or 65534)  # root's helper reads files of all users: it is nobody
    assert int(status["CapPrm"], 16) == 0 and int(status["NoNewPrivs"]) == 1
    os.kill(first, signal.SIGKILL)
    b = submit(queue, "b", file=job_file(queue, "b"))
    await_jobs(queue, b="running")  # after a pause a new one says so
    assert pairing(queue) != first
    for name, p in (("a", a), ("b", b)):
        end(queue, name, p)
    wait_for(lambda: not pairing(queue), 10, "the helper to end")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user; as root (sudo ./dev test) it runs")
def test_the_helper_of_a_service_that_may_not_change_its_user_has_no_capabilities(world):
    """As under the systemd unit."""
    world.start_daemon(prefix=("setpriv", "--bounding-set", "-setuid,-setgid", "--"))
    a = submit(world, "a", file=job_file(world, "a"))
    helper = wait_for(lambda: pairing(world), 10, "the helper")
    with open(f"/proc/{helper}/status", encoding="ascii") as f:
        status = dict(line.split(":", 1) for line in f)
    assert int(status["CapPrm"], 16) == int(status["CapEff"], 16) == 0
    end(world, "a", a)


def test_a_helper_that_hangs_costs_two_seconds_and_no_job(make_world):
    world = make_world(gpus=2)
    world.start_daemon()
    running = {"a": submit(world, "a", file=job_file(world, "a", busy=True))}
    await_jobs(world, a="running")
    helper = wait_for(lambda: pairing(world), 10, "the helper")
    os.kill(helper, signal.SIGSTOP)
    for name in "bc":
        running[name] = submit(world, name, file=job_file(world, name, busy=True))
    wait_for(lambda: sorted(j["state"] for j in jobs(world).values()) == ["running", "running", "waiting"], 20, "the other GPU")
    wait_for(lambda: "did not answer within 2 s" in world.daemon.err(), 20, "word of it")
    wait_for(lambda: pairing(world) not in (None, helper), 20, "another helper")
    for name, p in running.items():
        end(world, name, p)


# In place of sublet-pairing: takes the jobs, and answers each question with the pairs of pairs(question).
HELPER = """#!/usr/bin/python3
import json, sys
def say(text):
    print(text, flush=True)
{pairs}
while True:
    line = sys.stdin.buffer.readline()
    if not line:
        break
    order = json.loads(line)
    if "add" in order:
        sys.stdin.buffer.read(order["bytes"])
        say(json.dumps(dict(added=order["add"])))
    elif "question" in order:
        say(json.dumps(dict(answer=order["question"], pairs=pairs(order))))
"""
# Proposes that the first job that waits joins the first that runs, and keeps all.
SLICED = """
def pairs(q):
    a, b = [[j["id"] for j in q["jobs"] if j["runs"] == runs] for runs in (False, True)]
    return [dict(a=a[0], b=b[0], way="sliced", progress=[0.9, 0.9], host_bytes=0, why="")] if a and b else []
"""


def start_daemon_beside(world, folder, helper=None, config=None):
    """Starts a daemon beside which this helper stands; "": a copy of sublet-pairing; None: none does."""
    for name in ["subletd"] + [PAIRING] * (helper == ""):
        shutil.copy(os.path.join(BUILD, name), folder)
    if helper:
        (folder / PAIRING).write_text(HELPER.replace("{pairs}", helper))
        (folder / PAIRING).chmod(0o755)
    # Root's helper runs as nobody. It need not be able to enter the folders above its own, but Python opens a script by its
    # whole path.
    for entered in (folder, *list(folder.parents)[:3 if helper else 0]):
        entered.chmod(0o755)
    world.start_daemon(binary=str(folder / "subletd"), config=config)


def test_without_sublet_pairing_each_job_runs_alone_and_the_log_says_so_once(make_world, tmp_path):
    world = make_world()
    start_daemon_beside(world, tmp_path)
    a = submit(world, "a", file=job_file(world, "a"))
    await_jobs(world, a="running")
    b = submit(world, "b", file=job_file(world, "b"))
    wait_for(lambda: "nothing says which jobs go well together" in b.err(), 20, "the reason", report=b.report)
    end(world, "a", a)
    await_jobs(world, b="running")
    end(world, "b", b)
    assert world.daemon.err().count("no sublet-pairing is installed") == 1, world.daemon.err()


@pytest.mark.parametrize("pairs", [
    "pairs = lambda q: [dict(a=j['id'], b=j['id'], way='turns', progress=[1, 1], host_bytes=0) for j in q['jobs']]",
    "pairs = lambda q: [dict(a=2, b=1, way='turns', progress=[1, 0.1], host_bytes=0)]",
    "pairs = lambda q: [dict(a=2, b=1, way='turns', progress=[1e308, None], host_bytes=0)]",
    "pairs = lambda q: [dict(a=2, b=1, way='turns', progress=[1, 1], host_bytes=1e30)]",
    "pairs = lambda q: [dict(a=2, b=1, way='together', progress=[1, 1])] * 100000",
    "pairs = lambda q: [dict(a=-1, b=1 << 60, way='turns', progress='x'), 7, None, []]",
    "pairs = lambda q: {}",
    "pairs = lambda q: say('nonsense')",
    "pairs = lambda q: say('x' * 3000000)",
    "pairs = lambda q: say('{\"answer\":12345,\"pairs\":[]}')",
    "pairs = lambda q: sys.exit(0)",
])
def test_a_helper_that_lies_makes_no_pair_and_does_not_end_the_daemon(make_world, tmp_path, pairs):
    world = make_world()
    start_daemon_beside(world, tmp_path, pairs)
    a = submit(world, "a", file=job_file(world, "a"))
    await_jobs(world, a="running")
    b = submit(world, "b", file=job_file(world, "b"))
    wait_for(lambda: "the job waits" in b.err(), 20, "the reason", report=b.report)
    await_jobs(world, a="running", b="waiting")
    end(world, "a", a)
    await_jobs(world, b="running")
    end(world, "b", b)
    assert world.daemon.running()


def test_a_trained_model_pairs_jobs_as_sublet_predict_does(make_world, tmp_path, tmp_path_factory, monkeypatch):
    """The model is of a toy, whose figures say nothing about a real card."""
    toy_model, _ = trained.small(tmp_path_factory)
    monkeypatch.setitem(toy_pairs.CARD, "gpu", "Simulated H200")
    world = make_world()
    model = tmp_path / "models" / "simulated-h200.json"
    model.parent.mkdir()
    model.write_text(json.dumps(json.loads(toy_model.read_text()) | {"gpu": "Simulated H200"}))
    model.chmod(0o644)
    start_daemon_beside(world, tmp_path, "")
    files = {}
    for number, (family, job) in enumerate(toy_pairs.jobs(12, seed=9)):
        job["memory"] = {"peak_bytes": 16 * MIB}
        files[f"{family}-{number}"] = path = world.path(f"{number}.job.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(job, f)
    options, made = ("--qos", "0.4", "--way", "sliced"), None
    first, *others = files
    a = submit(world, first, file=files[first], options=options)
    await_jobs(world, **{first: "running"})
    waiting = {name: submit(world, name, file=files[name], options=options) for name in others}
    made = wait_for(lambda: [j for j in jobs(world).values() if j["beside"]], 30, "a pair")
    other = next(j for j in made if j["name"] != first)
    assert other["way"] == "sliced" and all(0.4 <= j["predicted"] <= 1 for j in made)
    told = json.loads(world.sublet("predict", files[first], files[other["name"]], "--way", "sliced", "--json", "--model",
                                   str(model), "--capacity", "128MiB").stdout)
    predicted = [next(j["predicted"] for j in made if j["name"] == name) for name in (first, other["name"])]
    assert [round(p["value"], 3) for p in told["ways"]["sliced"]["progress"]] == [round(p, 3) for p in predicted], (told, made)
    for p in (a, *waiting.values()):
        p.send(signal.SIGTERM)
        p.wait()


def ask_helper(world, *files):
    """Gives job files to a helper whose machine's card is not known, and asks for pairs. Returns the errors and the answer."""
    said = []
    with subprocess.Popen([trained.PAIRING, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        def say(line, behind=b""):
            p.stdin.write(json.dumps(line).encode() + b"\n" + behind)
            p.stdin.flush()
            return json.loads(p.stdout.readline())

        for number, (gpu, file) in enumerate(files, 1):
            with open(file, "rb") as f:
                text = f.read()
            said.append(say({"add": number, "bytes": len(text), "gpu": gpu}, text).get("error"))
        answer = say({"question": 1, "gpus": 0, "waiting": len(files), "host_bytes": 0, "capacity": 128 * MIB, "ratios": [],
                      "jobs": [{"id": n, "key": n, "runs": n == 1, "bound": 0.7, "ways": 7, "user": 1}
                               for n in range(1, len(files) + 1)]})
        p.stdin.close()
    return said, answer


def test_a_job_of_another_card_neither_chooses_the_model_nor_stops_the_pairing(queue):
    of = {gpu: job_file(queue, gpu, measured={"gpu": gpu}) for gpu in ("A", "B")} | {"": job_file(queue, "any")}
    said, answer = ask_helper(queue, ("", of["A"]), ("", of["B"]), ("", of[""]), ("", of["A"]))
    assert [s and "it was measured on B, and jobs are paired here for A: measure it on that card" in s for s in said] == [
        None, True, None, None]
    assert "error" not in answer, answer
    # The machine's card is known later. Jobs of another one stay alone.
    said, answer = ask_helper(queue, ("", of["A"]), ("B", of["B"]), ("B", of["A"]), ("B", of[""]))
    assert [bool(s) for s in said] == [False, False, True, False] and "error" not in answer, answer
    assert all(1 not in (pair["a"], pair["b"]) for pair in answer["pairs"])


# ---- what is observed ----


def busy(world, name, alone):
    """Submits `fill`, whose job file says how many kernels a second it launches alone. Its pauses spare the processor."""
    return submit(world, name, f"{BUILD}/programs/fill", "--until", world.path("end"), "--bytes", str(2 * MIB),
                  "--block", str(MIB), "--ms", "20", file=job_file(world, name, launch={"per_second": alone}), options=())


def test_a_measured_job_alone_is_observed_to_progress_as_measured(queue):
    """Sleeping between its steps sets the rate, so that a busy machine changes little; what it changes goes by."""
    program = [f"{BUILD}/programs/regular", "--how", "wait", "--ms", "100", "--rounds", "0", "--until", queue.path("end")]
    file = queue.path("regular.job.json")
    queue.start([SUBLET, "measure", "-o", file, "--warm-up", "0.3s", "--seconds", "2", "--", *program]).wait()
    a = submit(queue, "a", *program, file=file)
    wait_for(lambda: [j for j in jobs(queue).values() if j["observed"] is not None and 0.5 < j["observed"] < 1.5], 30,
             "progress", interval=0.2, report=a.report)
    with open(queue.path("end"), "w", encoding="utf-8"):
        pass
    a.ok()


def test_a_pair_that_misses_a_bound_goes_over_to_turns(make_world, tmp_path):
    """Both are predicted to keep 0.9, and each file says far more than the simulated card can do."""
    world = make_world()
    start_daemon_beside(world, tmp_path, SLICED)
    running = {}
    for name in "ab":
        running[name] = busy(world, name, 1e6)
        await_jobs(world, **{name: "running"})
    assert {j["way"] for j in jobs(world).values()} == {"sliced"}
    wait_for(lambda: world.status()["gpus"][0]["running"] == 2, 30, "both to run at the same time")
    wait_for(lambda: {j["way"] for j in jobs(world).values()} == {"turns"}, 60, "turns", interval=0.2,
             report=lambda: json.dumps(jobs(world), indent=1))
    assert "on GPU 0 go over to turns: they progress at" in world.daemon.err()
    before = world.handoffs()
    wait_for(lambda: world.handoffs() > before + 3, 30, "turns to be taken")
    for _ in range(20):
        assert world.status()["gpus"][0]["running"] <= 1
    with open(world.path("end"), "w", encoding="utf-8"):
        pass
    for p in running.values():
        p.ok()


def test_what_was_observed_keeps_the_same_pair_from_being_made_again(make_world, tmp_path):
    world = make_world()
    start_daemon_beside(world, tmp_path, SLICED)
    a = submit(world, "a", file=job_file(world, "a"), options=())
    await_jobs(world, a="running")
    b = busy(world, "b", 1e6)
    await_jobs(world, b="running")
    wait_for(lambda: (jobs(world)["b"]["below_bound_s"] or 0) > 8, 40, "what is observed", interval=0.2)
    b.send(signal.SIGTERM)
    assert b.wait() == 128 + signal.SIGTERM
    b = busy(world, "b", 1e6)
    wait_for(lambda: "beside no job would both keep their bounds" in b.err(), 20, "the reason", report=b.report)
    end(world, "a", a)
    await_jobs(world, b="running")
    b.send(signal.SIGTERM)
    b.wait()



# ---- MPS ----

SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
needs_mps = pytest.mark.skipif(not os.path.exists(os.path.join(BUILD, "sim", "mps")), reason="the simulated MPS is not built")
# Proposes that the first job that waits shares the GPU with one that runs alone and can be shared, or with the next that waits.
SHARED = """
def pairs(q):
    alone, waiting = [[j["id"] for j in q["jobs"] if j["runs"] == runs and j["ways"] & 2] for runs in (True, False)]
    both = [*waiting[:1], *(alone or waiting[1:])]
    return [dict(a=both[0], b=both[1], way="shared", progress=[0.9, 0.9], host_bytes=0, why="")] if waiting and both[1:] else []
"""


@pytest.fixture
def mps(make_world, tmp_path):
    """A world with the simulated MPS, whose owner allows it."""
    world = make_world()
    world.env["PATH"] = f"{BUILD}/sim/mps:{world.env['PATH']}"
    start_daemon_beside(world, tmp_path, SHARED, config={"mps": "yes", "linger": "1s"})
    return world


def fill(world, name, *options, **env):
    return submit(world, name, f"{BUILD}/programs/fill", "--until", world.path(name + ".end"), "--bytes", str(8 * MIB),
                  "--ms", "20", file=job_file(world, name), options=options, **env)


def variables_of(p):
    """Returns the environment in which the job's program was started."""
    (program,) = wait_for(lambda: [c for c in children(p.pid) if name_of(c) == "fill"], 20, "the program", report=p.report)
    with open(f"/proc/{program}/environ", encoding="utf-8") as f:
        return dict(entry.split("=", 1) for entry in f.read().split("\0") if entry)


def await_ways(world, ways, report):
    """Waits until as many programs run, and meet others in these ways (own: outside of MPS)."""
    wait_for(lambda: sorted(c["way"] for c in world.clients().values()) == ways, 30, f"programs to be {ways}", report=report)


def start_shared_pair(world):
    """Two jobs wait until the only GPU is free, and start together."""
    first = submit(world, "first", options=())
    await_jobs(world, first="running")
    running = {name: fill(world, name) for name in "ab"}
    await_jobs(world, a="waiting", b="waiting")
    end(world, "first", first)
    now = await_jobs(world, a="running", b="running")
    assert now["a"]["beside"] == now["b"]["id"] and now["a"]["way"] == now["b"]["way"] == "shared"
    return running


@needs_mps
def test_a_job_that_starts_alone_has_the_whole_card_outside_of_mps(mps):
    """Also if its user has asked for MPS in the environment: the queue chooses the way."""
    a = fill(mps, "a", SUBLET_WAY="shared")
    now = await_jobs(mps, a="running")
    assert now["a"]["way"] == "sliced" and now["a"]["predicted"] == 1
    assert SHARE not in variables_of(a)
    await_ways(mps, ["own"], a.report)
    b = fill(mps, "b", "--way", "shared")
    wait_for(lambda: "no job there can get a partner in a way that this one allows" in b.err(), 20, "the reason", report=b.report)
    end(mps, "a", a)
    await_jobs(mps, b="running")
    end(mps, "b", b)


@needs_mps
def test_jobs_that_start_together_share_by_mps_and_have_half_of_the_sms_each(mps):
    running = start_shared_pair(mps)
    for p in running.values():
        assert variables_of(p)[SHARE] == "50"
    await_ways(mps, ["shared", "shared"], running["a"].report)
    for name, p in running.items():
        end(mps, name, p)


@needs_mps
def test_a_newcomer_shares_with_the_rest_of_a_shared_pair(mps):
    running = start_shared_pair(mps)
    end(mps, "a", running["a"])
    now = await_jobs(mps, a=None, b="running")
    assert now["b"]["way"] == "shared" and now["b"]["predicted"] is None  # nobody has predicted it alone in its half
    sliced = fill(mps, "sliced", "--way", "sliced,turns")
    c = fill(mps, "c")
    now = await_jobs(mps, b="running", c="running", sliced="waiting")
    assert now["b"]["beside"] == now["c"]["id"] and now["c"]["way"] == "shared" and now["b"]["predicted"] == 0.9
    assert variables_of(c)[SHARE] == "50"
    await_ways(mps, ["shared", "shared"], c.report)
    for name, p in (("b", running["b"]), ("c", c)):
        end(mps, name, p)
    await_jobs(mps, sliced="running")
    end(mps, "sliced", sliced)


@needs_mps
def test_a_job_that_allows_only_mps_starts_in_its_half_so_that_another_can_join(mps):
    a = fill(mps, "a", "--way", "shared", "-v")
    now = await_jobs(mps, a="running")
    assert now["a"]["way"] == "shared" and now["a"]["predicted"] is None
    assert variables_of(a)[SHARE] == "50" and "alone in half of the SMs" in a.err()
    b = fill(mps, "b")
    await_jobs(mps, a="running", b="running")
    await_ways(mps, ["shared", "shared"], b.report)
    for name, p in (("a", a), ("b", b)):
        end(mps, name, p)


@pytest.mark.parametrize("own, kept", [("30", "30"), ("12.5", "12.5"), ("80", "50"), ("0", "50"), ("half", "50"), ("", "50")])
def test_a_smaller_share_of_the_user_is_kept(world, own, kept):
    world.start_daemon(config={"mps": "yes"})
    a = submit(world, "a", "sh", "-c", f"echo ${SHARE}", file=job_file(world, "a"), options=("--way", "shared"), **{SHARE: own})
    assert a.wait() == 0, a.report()
    assert a.out().strip() == kept


def test_shared_alone_is_refused_where_the_owner_does_not_allow_mps(queue):
    done = queue.sublet("submit", "--way", "shared", "true")
    assert done.returncode == 1 and "does not allow MPS (its key mps)" in done.stderr, done


# ---- hostile and mistaken ----


def order(world, **fields):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.connect(os.path.join(world.dir, "control.sock"))
    s.settimeout(20)
    s.sendall(json.dumps({"order": "submit", "name": "x", **fields}).encode() + b"\n")
    return s


def answer(s):
    data = b""
    while not data.endswith(b"\n"):
        more = s.recv(4096)
        if not more:
            return None
        data += more
    return json.loads(data.splitlines()[0])


@pytest.mark.parametrize("fields, word", [
    ({"name": ""}, "name"), ({"name": "x" * 64}, "name"), ({"name": "\x1b[31m"}, "name"), ({"name": 7}, "name"),
    ({"bound": 1}, "bound"), ({"bound": "0.5"}, "bound"), ({"bound": -1}, "bound"),
    ({"ways": []}, "ways"), ({"ways": ["fast"]}, "ways"), ({"ways": 3}, "ways"), ({"ways": ["shared"]}, "MPS"),
    ({"bytes": -1}, "256 KiB"), ({"bytes": 1 << 40}, "256 KiB"), ({"bytes": "9"}, "256 KiB"),
    ({"running": {"gpu": "GPU-0", "way": "turns", "pid": 1}}, "no GPU"), ({"running": 1}, "no GPU"),
])
def test_a_malformed_order_is_refused_with_a_sentence(queue, fields, word):
    with contextlib.closing(order(queue, **fields)) as s:
        said = answer(s)
        assert word in said["error"], said
    assert queue.status()["jobs"] == []


def returns(world, **running):
    """Claims that an earlier daemon has started the job. Returns the answer, and the jobs that run then."""
    gpu = world.status()["gpus"][0]["uuid"]
    with contextlib.closing(order(world, bytes=0, running={"gpu": gpu, "way": "sliced", **running})) as s:
        said = answer(s)
        return said, jobs(world)


@contextlib.contextmanager
def sleeper(*before, ended=False):
    p = subprocess.Popen([*before, "sleep", "0" if ended else "1000"])
    try:
        if ended:
            os.waitid(os.P_PID, p.pid, os.WEXITED | os.WNOWAIT)
        yield p
    finally:
        p.kill()
        p.wait()


def test_a_job_comes_back_only_with_a_running_program_that_it_has_started(queue):
    with sleeper() as p:
        said, now = returns(queue, pid=p.pid)
        assert said == {"submitted": True} and now["x"]["state"] == "running"
        await_gone(queue)
    with sleeper(ended=True) as ended:
        for pid in (None, 0, -1, "1", 1 << 40, 4194305, 1, os.getpid(), os.getppid(), ended.pid):
            said, now = returns(queue, **({} if pid is None else {"pid": pid}))
            assert "is no running program that this job has started: the job goes on outside of the queue" in said["error"], pid
            assert now == {}, "its place is given up"
    stranger = submit(queue, "a")
    await_jobs(queue, a="running")
    (program,) = wait_for(lambda: children(stranger.pid), 20, "its program")
    said, now = returns(queue, pid=program)
    assert "error" in said and set(now) == {"a"}, "the program of another job"
    end(queue, "a", stranger)


@others.needed
def test_a_job_does_not_come_back_with_another_users_program(queue):
    with sleeper(*others.as_user(others.NOBODY)) as p:
        wait_for(lambda: os.stat(f"/proc/{p.pid}").st_uid == others.NOBODY, 20, "the program to become the user's")
        said, now = returns(queue, pid=p.pid)
        assert "is no running program that this job has started" in said["error"] and now == {}


@pytest.mark.parametrize("file, said", [
    (b"{" * 100000, "job file"), (b"[]", "job file"), (b"\xff\x00" * 100, "job file"),
    (b'{"sublet_job": 99}', "job file"),
])
def test_a_job_with_a_file_that_is_none_runs_alone_and_is_told(queue, file, said):
    with contextlib.closing(order(queue, bytes=len(file))) as s:
        assert answer(s) == {"submitted": True}
        s.sendall(file)
        told = ""
        while "warning" not in told or "start" not in told:
            more = s.recv(4096)
            assert more, told
            told += more.decode()
        assert said in told
    await_gone(queue)
    assert queue.daemon.running()


def test_lines_that_are_no_progress_end_the_job_and_nothing_else(queue):
    for line in (b"hello\n", b"[]\n", b"x" * 2000, b'{"progress":1e999}\n{\n', b'{"progress":0.5}\n' * 1000):
        with contextlib.closing(order(queue, bytes=0)) as s:
            assert answer(s) == {"submitted": True}
            s.sendall(line)
            with contextlib.suppress(ConnectionResetError):
                while s.recv(4096):
                    pass
        await_gone(queue)
    for line in (b'{"progress":null}\n', b'{"progress":-5}\n{"progress":1e300}\n', b'{"other":1}\n'):
        with contextlib.closing(order(queue, bytes=0)) as s:
            assert answer(s) == {"submitted": True}
            s.sendall(line)
            assert await_jobs(queue, x="running")["x"]["observed"] in (None, 2)
        await_gone(queue)


def test_one_user_has_64_jobs_and_thousands_of_orders_do_no_harm(queue):
    kept = [order(queue, bytes=0) for _ in range(64)]
    try:
        assert all(answer(s) == {"submitted": True} for s in kept)
        for _ in range(2000):
            with contextlib.closing(order(queue, bytes=1000)) as s:
                assert "64 jobs" in answer(s)["error"]
        assert len(queue.status()["jobs"]) == 64
    finally:
        for s in kept:
            s.close()
    await_gone(queue)


def test_a_file_that_never_comes_holds_a_place_of_its_user_but_none_in_the_queue(queue):
    with contextlib.closing(order(queue, bytes=1000)) as s:
        assert answer(s) == {"submitted": True}
        s.sendall(b"{")
        a = submit(queue, "a")
        await_jobs(queue, a="running")
        assert list(jobs(queue)) == ["a"]
        end(queue, "a", a)


def test_more_behind_the_order_is_refused(queue):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with contextlib.closing(s):
        s.connect(os.path.join(queue.dir, "control.sock"))
        s.sendall(b'{"order":"submit","name":"x"}\n{"progress":1}\n')
        assert "wait for the answer" in answer(s)["error"]


@pytest.mark.parametrize("words, said", [
    ((), "submit needs a command"), (("--qos", "1.5", "true"), "--qos"), (("--way", "fast", "true"), "--way"),
    (("--wait-at-most", "soon", "true"), "--wait-at-most"), (("--gpu", "0", "true"), "the daemon chooses the GPU"),
])
def test_wrong_words_are_refused_before_the_queue(queue, words, said):
    done = queue.sublet("submit", *words)
    assert done.returncode == 2 and said in done.stderr, done
    assert queue.status()["jobs"] == []


def test_a_private_daemon_is_started_for_the_first_job_and_stays_while_one_waits(world):
    os.mkdir(world.dir, 0o700)
    a = submit(world, "a")
    answers(world)
    await_jobs(world, a="running")
    end(world, "a", a)


def test_a_job_fails_where_no_gpu_is_known_unless_it_may_wait(make_world, tmp_path):
    world = make_world()
    none = tmp_path / "none"
    none.mkdir()
    world.start_daemon(LD_LIBRARY_PATH=str(none))
    p = submit(world, "a", "true")
    assert p.wait() == 1, p.report()
    assert p.err().splitlines()[-1] == (
        "sublet: the job cannot start, because no GPU is known here: is NVIDIA's driver loaded? sublet doctor looks; "
        "--wait-at-most waits for one"), p.err()
    p = submit(world, "b", "true", options=("--wait-at-most", "8s"))
    assert p.wait() == 1 and p.err().splitlines()[-1].endswith("within the time of --wait-at-most"), p.err()
    await_gone(world)


def test_status_shows_the_queue(queue):
    a = submit(queue, "first-job", file=job_file(queue, "a"))
    await_jobs(queue, **{"first-job": "running"})
    b = submit(queue, "second-job", options=("--way", "sliced"))
    await_jobs(queue, **{"second-job": "waiting"})
    shown = queue.sublet("status").stdout
    assert "first-job" in shown and "second-job" in shown and "waiting" in shown, shown
    for name, p in (("first-job", a), ("second-job", b)):
        end(queue, name, p)
