"""sublet measure: what a job file says of a program whose work is known, and that the program runs as without it.

The simulated card interprets kernels, so times mean nothing here: only counts, geometry and rates between them."""

import glob
import json
import math
import os
import signal
import time

import pytest

import test_mps

from world import BUILD, wait_for

SUBLET = os.path.join(BUILD, "sublet")
FAST = ("--warm-up", "0.3s", "--seconds", "1.5")


@pytest.fixture
def quiet(shared):
    """A card with a daemon, as for `sublet run`."""
    return shared


def start(world, *options, command, **env):
    return world.start([SUBLET, "measure", "-o", world.path("job.json"), *options, "--", *command], **env)


def program(name, *args):
    return [os.path.join(BUILD, "programs", name), *map(str, args)]


# Sleeps between its steps, so that it takes little of the processor.
PAUSING = program("regular", "--how", "wait", "--ms", 10)


def job_of(world, p, status=0):
    assert p.wait() == status, p.report()
    with open(world.path("job.json"), encoding="utf-8") as f:
        return json.load(f)


def kernel(job, name):
    found = [k for k in job["kernels"] if k["name"] == name]
    assert len(found) == 1, job["kernels"]
    return found[0]


def measure(world, *options, command, **env):
    return job_of(world, start(world, *options, command=command, **env))


def is_about(value, expected, part=0.1):
    return abs(value - expected) <= part * expected


def steps_of(job):
    """Returns the steps for each second of the measured time. That is less than the rate of the steps while the program does
    not get its processor, between the first look and the first step, or after the last one."""
    steps = job["steps"]["count"] / job["measured"]["seconds"]
    assert 0.8 * steps <= job["steps"]["per_second"] <= 4 * steps, job["steps"]
    return steps


def test_kernels_steps_and_copies_of_a_regular_job(quiet):
    job = measure(quiet, *FAST, "--name", "regular-5", command=[*PAUSING, "--count", "5", "--block", "16384"])
    assert job["name"] == "regular-5" and job["command"][0].endswith("/regular")
    assert job["steps"]["unit"] == "step" and job["steps"]["count"] >= 10
    rate = steps_of(job)
    tiny, step = kernel(job, "tiny"), kernel(job, "step")
    assert len(job["kernels"]) == 2  # `fill` ran before the measured time
    assert (tiny["grid"], tiny["block"], tiny["graph"]) == ([1, 1, 1], [32, 1, 1], False)
    assert step["block"] == [256, 1, 1]
    assert is_about(tiny["launches_per_step"], 5) and is_about(step["launches_per_step"], 2)
    assert is_about(job["launch"]["per_second"], 7 * rate, 0.2) and job["launch"]["graphs_per_second"] == 0
    assert tiny["registers"] > 0 and tiny["blocks_per_sm"] >= 1 and 0 < tiny["occupancy"] <= 1
    assert is_about(tiny["waves"], 1 / job["measured"]["sms"] / tiny["blocks_per_sm"], 0.01)
    assert is_about(sum(k["share"] for k in job["kernels"]) + job["other_share"], 1, 0.001)
    assert all(k["seconds"] > 0 for k in job["kernels"])
    assert is_about(job["copies"]["to_device_gb_s"] * 1e9, 16384 * rate, 0.2)
    assert 0 < job["copies"]["to_host_gb_s"] * 1e9 < 1000 * rate
    assert job["memory"]["peak_bytes"] >= 65536 + 16384
    card = quiet.card()
    assert job["measured"]["memory_bytes"] == card["total"]
    assert job["measured"]["gpu"] == "Simulated H200" and job["measured"]["bus_gb_s"] > 0


def test_the_card_by_nvml(quiet):
    gpu = measure(quiet, *FAST, command=program("busy", "--rounds", 100000))["gpu"]
    assert 0.1 < gpu["busy"] <= 1
    assert is_about(gpu["sm"], 0.75 * gpu["busy"], 0.01) and is_about(gpu["dram"], 0.25 * gpu["busy"], 0.01)
    assert gpu["sm_p90"] >= gpu["sm"] * 0.9
    assert gpu["clock_mhz"] == 1980 and gpu["power_w"] >= 100
    assert "tensor" in gpu and "pcie_to_host_gb_s" in gpu


def test_a_card_without_performance_metrics_gives_its_utilization_only(quiet):
    gpu = measure(quiet, *FAST, command=program("busy", "--rounds", 100000), SIMCUDA_GPM="0")["gpu"]
    assert set(gpu) == {"busy", "power_w", "clock_mhz"} and gpu["busy"] > 0.1


def test_graphs_are_measured_by_their_kernels(quiet):
    job = measure(quiet, *FAST, command=program("regular", "--how", "graph", "--count", 7))
    tiny = kernel(job, "tiny")
    assert tiny["graph"] and is_about(tiny["launches_per_step"], 7)
    assert (tiny["grid"], tiny["block"]) == ([1, 1, 1], [32, 1, 1])
    assert is_about(job["launch"]["graphs_per_second"], steps_of(job), 0.2)
    assert tiny["seconds"] > 0


def test_work_of_several_threads_is_counted_together(quiet):
    job = measure(quiet, *FAST, command=program("regular", "--how", "threads", "--count", 5))
    assert kernel(job, "tiny")["launches_per_step"] > 6
    assert is_about(kernel(job, "step")["launches_per_step"], 2)


def test_a_number_of_steps(quiet):
    job = measure(quiet, "--warm-up", "0.2s", "--steps", 20, command=program("regular", "--how", "wait"))
    assert job["steps"]["count"] >= 20 and job["steps"]["unit"] == "step"
    assert job["measured"]["seconds"] < 9  # it would be 10 if it did not end with the steps, which take half a second


def test_pauses_are_idle_time(quiet):
    job = measure(quiet, *FAST, command=program("regular", "--how", "wait", "--ms", 50))
    assert job["launch"]["idle"] > 0.5


@pytest.mark.parametrize("how", [("regular", "--how", "plain"), ("regular", "--how", "graph"), ("captures",), ("captures", "--how", "local"),
                                 ("captures", "--how", "free"), ("graph",),
                                 ("graphbuild",), ("launchex",), ("cooperative",), ("threads",), ("ptds",), ("fork",),
                                 ("contexts",)], ids=" ".join)
def test_results_are_the_same_as_without_measuring(quiet, how):
    args = [*how[1:], "--rounds", 8] if how[0] in ("regular", "captures", "graph") else how[1:]
    p = start(quiet, "--seconds", "60", command=program(how[0], *args))
    p.ok()
    plain = quiet.program(how[0], *args).ok()
    assert p.result() == plain.result()


def test_a_short_program_is_measured_from_its_beginning(quiet):
    p = start(quiet, command=program("regular", "--rounds", 40))
    job = job_of(quiet, p)
    assert "has ended before it was warm" in p.err()
    assert kernel(job, "fill")["launches_per_step"] > 0


def test_a_program_that_ends_in_the_measured_time(quiet):
    began = time.monotonic()
    p = start(quiet, "--warm-up", "0.2s", "--seconds", "60", command=[*PAUSING, "--seconds", "2", "--rounds", "1"])
    job = job_of(quiet, p)
    assert "the program has ended after" in p.err()
    assert steps_of(job) > 0 and job["measured"]["seconds"] < min(60, time.monotonic() - began)


def test_a_program_that_does_not_use_the_gpu(quiet):
    p = start(quiet, command=["true"])
    assert p.wait() == 1 and not os.path.exists(quiet.path("job.json"))
    assert p.err().endswith("no job file: the program has not launched a kernel on a GPU\n")


def test_the_status_of_a_program_that_fails(quiet):
    p = start(quiet, command=["sh", "-c", "exit 7"])
    assert p.wait() == 7 and p.err() == ""
    p = start(quiet, command=["sh", "-c", f"{program('regular')[0]} --rounds 40; exit 9"])
    job = job_of(quiet, p, status=9)
    assert job["name"] == "sh" and kernel(job, "step")
    assert start(quiet, "--force", command=["no-such-command"]).wait() == 127


def test_a_program_below_a_shell_is_ended_after_the_measured_time(quiet):
    p = start(quiet, "--warm-up", "0.1s", "--seconds", "0.5",
              command=["sh", "-c", f"trap : TERM; {' '.join(PAUSING)}; echo over"])
    job = job_of(quiet, p)
    assert kernel(job, "step") and "over" in p.out()
    wait_for(lambda: quiet.card()["used"] == 0, 20, "the card to be empty")


def test_the_program_goes_on_if_that_is_asked_for(quiet):
    p = start(quiet, "--warm-up", "0.1s", "--seconds", "0.5", "--keep-running",
              command=[*PAUSING, "--until", quiet.path("end"), "--rounds", "1"])
    wait_for(lambda: os.path.exists(quiet.path("job.json")) or not p.running(), 60, "the job file")
    before = len(p.events("round"))
    wait_for(lambda: len(p.events("round")) > before + 5, 20, "more rounds")
    with open(quiet.path("end"), "w", encoding="utf-8"):
        pass
    p.ok()
    assert p.events("ended")


def test_interrupts_and_signals_reach_the_program(quiet):
    p = start(quiet, "--seconds", "60", command=PAUSING)
    p.await_event("round")
    p.send(signal.SIGTERM)
    job_of(quiet, p, status=128 + signal.SIGTERM)


def test_nothing_is_left_behind(quiet):
    measure(quiet, *FAST, command=PAUSING)
    left = {name for name in os.listdir("/dev/shm") if name.startswith("sublet-measure-")}
    # Those of tests that run beside this one go, too.
    wait_for(lambda: not left & set(os.listdir("/dev/shm")), 60, f"{left} stay in /dev/shm")


def test_another_program_on_the_gpu_is_warned_of(quiet):
    other = quiet.program("regular", *PAUSING[1:], "--until", quiet.path("end"), "--rounds", 1)
    other.await_event("round")
    p = start(quiet, *FAST, command=PAUSING)
    job_of(quiet, p)
    assert p.err().count("warning: other programs use this GPU") == 1
    with open(quiet.path("end"), "w", encoding="utf-8"):
        pass
    other.ok()


# ---- with half of the SMs ----

AGAIN = "sublet: measuring again, with half of the SMs, under MPS"
# `step` has 160 blocks, more than the simulated card has processors.
FULL = program("regular", "--bytes", "40MiB", "--count", 1)
# Fails at its second run, and at no other.
UNDER_MPS = 'test -z "$CUDA_MPS_PIPE_DIRECTORY" || '


@pytest.fixture
def mps(quiet):
    """The daemon may start MPS servers, too. What `sublet measure` leaves behind would be in the world's folder."""
    quiet.env.update(PATH=f"{test_mps.MPS}:{quiet.env['PATH']}", TMPDIR=quiet.root)
    return quiet


def left(world):
    """Returns the directories of control daemons, and the processes that have them in their environment."""
    folders = glob.glob(world.path("sublet-mps-*"))
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                if f"CUDA_MPS_PIPE_DIRECTORY={world.root}/sublet-mps-".encode() in f.read():
                    found.append(path)
        except OSError:
            continue
    return folders + found


def half_of(job):
    return job["steps"]["half_per_second"] / job["steps"]["per_second"]


def with_half_within(world, low, high, command):
    """Returns a process that measured such a part of the rate alone, and its job. Programs beside the test may slow one of
    the two runs more than the other, so there are several tries."""
    halves = []
    while not (halves and halves[-1] and low < halves[-1] < high):
        assert len(halves) < 10, halves
        p = start(world, "--mps", "--force", *FAST, command=command)
        job = job_of(world, p)
        halves.append(half_of(job) if "half_per_second" in job["steps"] else None)
    return p, job


def without_half(world, reason, *options, command, status=0, **env):
    p = start(world, "--mps", *FAST, *options, command=command, **env)
    job = job_of(world, p, status)
    assert "half_per_second" not in job["steps"] and job["steps"]["per_second"] > 0
    assert p.err().count(f"{world.path('job.json')} has no rate on half of the SMs: {reason}") == 1, p.err()
    assert not left(world)


def test_half_of_the_sms_makes_a_job_that_fills_the_card_slower(mps):
    p, job = with_half_within(mps, 0.25, 0.8, FULL)
    assert p.err().count(AGAIN) == 1
    assert p.err().endswith(f"{half_of(job):.2f} of the rate alone: {mps.path('job.json')}\n")
    assert not left(mps)


def test_half_of_the_sms_is_enough_for_a_job_of_few_blocks(mps):
    with_half_within(mps, 0.6, math.inf, program("regular", "--how", "wait", "--ms", 20))


def test_the_second_run_measures_the_program_alone_under_mps_with_half_of_the_sms(mps):
    seen = mps.path("seen")
    measure(mps, "--mps", *FAST, "--way", "shared",
            command=["sh", "-c", f'env >>{seen}; echo end >>{seen}; exec "$0" "$@"', *PAUSING])
    with open(seen, encoding="utf-8") as f:
        first, second, _ = f.read().split("end\n")
    assert "CUDA_MPS" not in first and "SUBLET_WAY=shared" in first
    assert "\nCUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50\n" in second and f"\nCUDA_MPS_PIPE_DIRECTORY={mps.root}/sublet-mps-" in second
    assert "\nCUDA_VISIBLE_DEVICES=GPU-" in second and "SUBLET_WAY=auto" in second


def test_graphs_count_as_launches_of_a_step(mps):
    _, job = with_half_within(mps, 0.3, math.inf, program("regular", "--how", "graph", "--count", 7))
    assert job["steps"]["unit"] == "step"


def second_how(how, ms):
    """Returns a program that launches a graph of one kernel, but works otherwise, with as many launches, in its second run."""
    return ["sh", "-c", f'how=graph; {UNDER_MPS}how={how}; exec "$0" --count 1 --how $how --ms {ms}', *program("regular")]


def test_a_program_that_launches_no_graph_in_the_second_run_has_no_rate(mps):
    without_half(mps, "the program did something else in the second run than in the first", command=second_how("wait", 10))


def test_a_program_that_warms_up_longer_in_the_second_run_is_measured_when_it_is_warm(mps):
    _, job = with_half_within(mps, 0.3, math.inf, second_how("late", 1600))
    assert job["steps"]["unit"] == "step"


def test_a_short_program_is_compared_from_its_beginning(mps):
    p = start(mps, "--mps", command=program("regular", "--rounds", 40))
    job = job_of(mps, p)
    # Other programs of the machine may slow one of two short runs.
    assert "half_per_second" in job["steps"] or "the program did something else" in p.err(), p.err()
    assert p.err().count("has ended before it was warm") == 2


def test_without_mps_the_file_has_no_rate_on_half_of_the_sms(quiet):
    without_half(quiet, "there is no nvidia-cuda-mps-control", command=PAUSING, PATH="/usr/bin:/bin")


def test_mps_that_does_not_start_is_named(mps):
    os.mkdir(mps.path("broken"))
    with open(mps.path("broken/nvidia-cuda-mps-control"), "w", encoding="ascii") as f:
        f.write("#!/bin/sh\nexit 1\n")
    os.chmod(mps.path("broken/nvidia-cuda-mps-control"), 0o700)
    without_half(mps, "MPS does not start (", command=PAUSING, PATH=f"{mps.path('broken')}:{mps.env['PATH']}")


@pytest.mark.parametrize("second, reason", [
    ("exit 3", "the program has ended with status 3 under MPS"),
    ("exit 0", "the program launches no kernel under MPS"),
    ("unset CUDA_MPS_PIPE_DIRECTORY", "the program does not take part in MPS"),
    ("unset CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "the program has all of the SMs under MPS"),
])
def test_a_program_that_does_not_run_under_mps(mps, second, reason):
    without_half(mps, reason, command=["sh", "-c", f'{UNDER_MPS}{second}; exec "$0" "$@"', *PAUSING])


def test_a_program_that_fails_is_not_run_again(mps):
    p = start(mps, "--mps", command=["sh", "-c", f"{program('regular')[0]} --rounds 40; exit 9"])
    assert "half_per_second" not in job_of(mps, p, status=9)["steps"]
    assert AGAIN not in p.err()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("when", ["runs", "starts"])
def test_an_interrupt_ends_the_second_run_and_mps(mps, number, when):
    p = start(mps, "--mps", "--warm-up", "0.2s", "--seconds", "2", command=PAUSING)
    wait_for(lambda: AGAIN in p.err() or not p.running(), 60, "the second run")
    if when == "runs":
        wait_for(lambda: any("environ" in x for x in left(mps)) and len(mps.clients()) == 1, 60, "a program under MPS")
    p.send(number)
    assert "half_per_second" not in job_of(mps, p, status=128 + number)["steps"]
    assert not left(mps)
    wait_for(lambda: not mps.clients(), 20, "the program to be gone")


def test_a_server_of_the_daemon_goes_on(world):
    mps = test_mps.prepared(world)
    other = mps.program("regular", *PAUSING[1:], "--until", mps.path("end"), "--rounds", 1, SUBLET_WAY="shared")
    other.await_event("round")
    folder = test_mps.only_folder(mps)
    processes = test_mps.processes(folder)
    assert len(processes) == 2
    p = start(mps, "--mps", *FAST, command=PAUSING)
    assert half_of(job_of(mps, p)) > 0
    assert test_mps.processes(folder) == processes and test_mps.clients_of(folder) == {other.pid}
    with open(mps.path("end"), "w", encoding="utf-8"):
        pass
    other.ok()


def test_half_of_the_sms_goes_with_no_program_that_goes_on(world):
    done = world.sublet("measure", "--mps", "--keep-running", "--", "true")
    assert done.returncode == 2 and "--mps and --keep-running exclude each other" in done.stderr


@pytest.mark.parametrize("options, said", [
    (("--seconds", "0"), "--seconds is a number of seconds such as 10, not '0'"),
    (("--steps", "none"), "--steps is a number from 1, not 'none'"),
    (("--warm-up", "10"), "--warm-up is a time such as 10s, not '10'"),
])
def test_wrong_options_are_named(world, options, said):
    done = world.sublet("measure", *options, "--", "true")
    assert done.returncode == 2 and said in done.stderr
    assert world.sublet("measure").returncode == 2


def test_a_file_that_cannot_be_written_is_told_before_the_program_runs(world):
    done = world.sublet("measure", "-o", "/nowhere/job.json", "--", "touch", world.path("ran"))
    assert done.returncode == 1 and "cannot write /nowhere/job.json" in done.stderr
    assert not os.path.exists(world.path("ran"))


def by_script(world, *options):
    """Measures a script in the world's folder, which becomes a job."""
    script = world.path("train.py")
    with open(script, "w", encoding="utf-8") as f:
        f.write(f"import os, sys\nos.execv({PAUSING[0]!r}, {PAUSING!r})\n")
    return world.start(["env", "-C", world.path("."), SUBLET, "measure", *options, "--warm-up", "0.1s", "--seconds", "0.3", "--",
                        "python3", "-W", "ignore", script])


def files(world):
    return sorted(os.path.basename(path) for path in glob.glob(world.path("*.job.json")))


def test_an_earlier_measurement_is_kept(quiet):
    first = by_script(quiet)
    assert first.wait() == 0 and files(quiet) == ["train.py.job.json"], first.report()
    before = os.stat(quiet.path("train.py.job.json"))
    two = [by_script(quiet) for _ in range(2)]
    assert [p.wait() for p in two] == [0, 0], [p.report() for p in two]
    assert files(quiet) == ["train.py-2.job.json", "train.py-3.job.json", "train.py.job.json"]
    for name in ("train.py", "train.py-2", "train.py-3"):
        with open(quiet.path(f"{name}.job.json"), encoding="utf-8") as f:
            assert json.load(f)["name"] == name
    assert "train.py.job.json is there already, and is kept: this job is called train.py-" in two[0].err()
    assert os.stat(quiet.path("train.py.job.json")).st_mtime_ns == before.st_mtime_ns


def test_a_file_that_the_user_names_is_replaced_only_by_force(quiet):
    path = quiet.path("a.json")
    assert by_script(quiet, "-o", path).wait() == 0
    before = os.stat(path).st_mtime_ns
    again = quiet.sublet("measure", "-o", path, "--", "touch", quiet.path("ran"))
    assert again.returncode == 1 and "a.json is there already, and is kept: give -o another file" in again.stderr
    assert os.stat(path).st_mtime_ns == before and not os.path.exists(quiet.path("ran"))
    assert by_script(quiet, "-o", path, "--force").wait() == 0
    assert os.stat(path).st_mtime_ns > before


def test_a_program_without_work_leaves_no_empty_file(quiet):
    done = quiet.start(["env", "-C", quiet.path("."), SUBLET, "measure", "--", "true"])
    assert done.wait() == 1 and files(quiet) == []
