"""sublet run: silent, transparent, and the program's environment."""

import os
import signal
import subprocess

import pytest

from world import BUILD, wait_for


def run(world, *args, **env):
    return world.sublet("run", *args, **env)


def test_it_prints_nothing_and_passes_the_output_on(shared):
    done = run(shared, "--", os.path.join(BUILD, "programs", "nocuda"))
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout == '{"event":"end","program":"nocuda","ok":true}\n'


def test_a_cuda_program_runs_and_nothing_is_added(shared):
    args = ["--bytes", "8MiB", "--block", "1MiB"]
    plain = shared.program("fill", *args, shared=False).ok()
    with_run = shared.start([os.path.join(BUILD, "sublet"), "run", os.path.join(BUILD, "programs", "fill"), *args]).ok()
    assert plain.result() == with_run.result()
    assert with_run.err() == ""


@pytest.mark.parametrize("status", [0, 1, 7, 125, 255])
def test_the_exit_status_is_passed_on(shared, status):
    assert run(shared, "--", "sh", "-c", f"exit {status}").returncode == status


def test_a_signals_death_is_passed_on(shared):
    assert run(shared, "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_a_command_that_is_not_there(shared):
    done = run(shared, "no-such-command-here")
    assert done.returncode == 127
    assert "no-such-command-here" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_command_that_cannot_be_executed(shared):
    path = shared.path("not-executable")
    with open(path, "w", encoding="utf-8"):
        pass
    done = run(shared, path)
    assert done.returncode == 126
    assert path in done.stderr


def test_the_programs_own_options_are_not_ours(shared):
    done = run(shared, "sh", "-c", "echo $0", "--name", "x")
    assert (done.returncode, done.stdout) == (0, "--name\n")


def test_frameworks_are_told_not_to_grab_the_card_unless_the_user_says_otherwise(shared):
    show = ["sh", "-c", "echo $XLA_PYTHON_CLIENT_PREALLOCATE $TF_FORCE_GPU_ALLOW_GROWTH"]
    assert run(shared, *show).stdout == "false true\n"
    assert run(shared, *show, XLA_PYTHON_CLIENT_PREALLOCATE="true").stdout == "true true\n"


def test_frameworks_are_switched_to_pools_when_asked_unless_the_user_says_otherwise(shared):
    show = ["sh", "-c", "echo $PYTORCH_CUDA_ALLOC_CONF $PYTORCH_ALLOC_CONF $XLA_PYTHON_CLIENT_ALLOCATOR $TF_GPU_ALLOCATOR"]
    torch = "backend:cudaMallocAsync"
    assert run(shared, *show).stdout == "\n"
    assert run(shared, "--pools", *show).stdout == f"{torch} {torch} cuda_async cuda_malloc_async\n"
    own = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TF_GPU_ALLOCATOR": "bfc"}
    assert run(shared, "--pools", *show, **own).stdout == "expandable_segments:True cuda_async bfc\n"


def test_env_says_what_run_sets(shared):
    done = shared.sublet("env", "--name", "it's a \"name\"")
    assert done.returncode == 0, done.stderr
    shell = subprocess.run(["sh", "-c", done.stdout + '\necho "$SUBLET_NAME"; echo "$LD_PRELOAD"'], env=shared.env,
                           stdout=subprocess.PIPE, text=True, check=True)
    assert shell.stdout.splitlines() == ["it's a \"name\"", os.path.join(BUILD, "libsublet.so")]


def test_the_name_is_shown(shared):
    p = shared.start([os.path.join(BUILD, "sublet"), "run", "--name", "first-job", os.path.join(BUILD, "programs/hold"),
                      "--bytes", "8MiB"], stdin=subprocess.PIPE)
    p.await_event("filled")
    assert shared.clients()[p.pid]["name"] == "first-job"
    assert "first-job" in shared.status_text()
    p.finish()


def test_sim_starts_a_daemon_of_its_own_and_leaves_none_behind(world):
    """`sublet run --sim` needs nothing prepared."""
    runtime = world.path("runtime")
    os.mkdir(runtime, 0o700)
    env = {"SUBLET_DIR": None, "LD_LIBRARY_PATH": None, "XDG_RUNTIME_DIR": runtime}
    p = world.start([os.path.join(BUILD, "sublet"), "run", "--sim=memory=64MiB", os.path.join(BUILD, "programs/fill"),
                     "--bytes", "16MiB", "--block", "4MiB"], **env).ok()
    assert p.err() == ""
    directories = os.listdir(runtime)
    assert len(directories) == 1 and directories[0].startswith("sublet-sim"), directories
    done = world.sublet("stop", "--sim", **env)
    assert done.returncode == 0, done.stderr
    wait_for(lambda: not os.path.exists(os.path.join(runtime, directories[0], "client.sock")), 10, "the daemon to leave")


def test_a_daemon_that_cannot_start_says_why_once(world):
    """However often the program tries again."""
    p = world.start([os.path.join(BUILD, "sublet"), "run", "--sim", "--daemon", "/no/such/dir", "--", os.path.join(BUILD, "programs", "fill"), "--bytes",
                     "4MiB", "--block", "1MiB", "--rounds", "1000000"], SUBLET_LOG="debug")
    wait_for(lambda: p.err().count("starting a private daemon in /no/such/dir: ok") >= 3, 60, "the third try")
    p.send(signal.SIGKILL)
    assert p.err().count("cannot create directory /no/such/dir") == 1, p.err()


def test_two_programs_oversubscribe_under_run_alone(world):
    """The promise of the README: two commands in two terminals, no daemon started by hand."""
    runtime = world.path("runtime")
    os.mkdir(runtime, 0o700)
    env = {"SUBLET_DIR": None, "LD_LIBRARY_PATH": None, "XDG_RUNTIME_DIR": runtime}
    argv = [os.path.join(BUILD, "sublet"), "run", "--sim=memory=128MiB", os.path.join(BUILD, "programs/fill"), "--bytes",
            "96MiB", "--block", "8MiB", "--rounds", "3"]
    programs = [world.start([*argv, "--seed", seed], **env) for seed in ("1", "2")]
    for p in programs:
        p.ok()
        assert p.err() == ""
        world.check_sums(p)
    world.sublet("stop", "--sim", **env)
