"""sublet doctor, on a machine with the simulated driver or with none."""

import os

import pytest

from world import BUILD


def test_doctor_finds_everything_of_the_simulator(shared):
    done = shared.sublet("doctor", "--sim", "--daemon", shared.dir)
    assert done.returncode == 0, done.stdout
    assert "FAIL" not in done.stdout
    for words in ("simulated driver", "GPU 0", "NVML answers", "can be preloaded", "a daemon of this release"):
        assert words in done.stdout


def test_doctor_says_what_to_do_about_a_missing_driver(world):
    done = world.sublet("doctor", LD_LIBRARY_PATH=os.path.join(world.root, "empty"))
    lines = done.stdout.splitlines()
    missing = [i for i, line in enumerate(lines) if line.startswith("FAIL") and "libcuda.so.1" in line]
    assert done.returncode == 1 and len(missing) == 1
    assert lines[missing[0] + 1].strip().startswith("->")


@pytest.mark.parametrize("fault, found, remedy", [
    ("100", "cuInit answers error 100, CUDA_ERROR_NO_DEVICE", "container"),
    ("802", "cuInit answers error 802, CUDA_ERROR_SYSTEM_NOT_READY", "fabricmanager"),
    ("999", "cuInit answers error 999, CUDA_ERROR_UNKNOWN", "nvidia-smi"),
    ("kill", "the driver crashed when asked for its GPUs: Killed", "dmesg"),
])
def test_doctor_says_why_a_driver_does_not_start(world, fault, found, remedy):
    done = world.sublet("doctor", "--sim", SIMCUDA_FAIL=f"cuInit:1:{fault}")
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and found in lines[0] and remedy in lines[1], done.stdout


@pytest.mark.parametrize("mode, word", [("3", "exclusive"), ("2", "prohibited")])
def test_doctor_says_what_a_compute_mode_means(shared, mode, word):
    done = shared.sublet("doctor", "--sim", "--daemon", shared.dir, SIMCUDA_COMPUTE_MODE=mode)
    assert done.returncode == 1
    assert f"GPU 0 is in {word} compute mode" in done.stdout and "-c DEFAULT" in done.stdout


def test_doctor_says_that_mps_runs(shared):
    """By the process id that its control daemon leaves; a stale one says nothing."""
    folder = shared.path("mps")
    os.mkdir(folder)
    for pid, runs in ((os.getpid(), True), (2 ** 22 + 1, False)):
        with open(os.path.join(folder, "nvidia-cuda-mps-control.pid"), "w", encoding="ascii") as f:
            f.write(f"{pid}\n")
        done = shared.sublet("doctor", "--sim", "--daemon", shared.dir, CUDA_MPS_PIPE_DIRECTORY=folder)
        assert done.returncode == 0, done.stdout
        assert (f"MPS runs here (process {pid}, {folder})" in done.stdout) == runs


def test_doctor_started_by_run_still_looks_at_the_driver(shared):
    """Preloaded itself, it would otherwise examine sublet and add a client."""
    done = shared.sublet("run", "--daemon", shared.dir, "--", os.path.join(BUILD, "sublet"), "doctor", "--sim",
                         "--daemon", shared.dir)
    assert done.returncode == 0, done.stdout + done.stderr
    assert shared.clients() == {}
