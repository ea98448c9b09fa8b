"""sublet run: it is silent and transparent, and sets the program's environment."""

import os
import shutil
import signal
import struct
import subprocess
import sys

import pytest

import others
from world import BUILD, SANITIZER, wait_for


def run(world, *args, **env):
    return world.sublet("run", *args, **env)


def test_run_prints_nothing_and_passes_the_output_on(shared):
    done = run(shared, "--", os.path.join(BUILD, "programs", "nocuda"))
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout == '{"event":"end","program":"nocuda","ok":true}\n'


def test_run_adds_nothing_to_the_output_of_a_cuda_program(shared):
    args = ["--bytes", "8MiB", "--block", "1MiB"]
    plain = shared.program("fill", *args, shared=False).ok()
    with_run = shared.start([os.path.join(BUILD, "sublet"), "run", os.path.join(BUILD, "programs", "fill"), *args]).ok()
    assert plain.result() == with_run.result()
    assert with_run.err() == ""


@pytest.mark.parametrize("status", [0, 1, 7, 125, 255])
def test_the_exit_status_is_passed_on(shared, status):
    assert run(shared, "--", "sh", "-c", f"exit {status}").returncode == status


def test_a_death_by_signal_is_passed_on(shared):
    assert run(shared, "sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM


def test_a_missing_command_gets_status_127(shared):
    done = run(shared, "no-such-command-here")
    assert done.returncode == 127
    assert "no-such-command-here" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_command_that_cannot_be_executed_gets_status_126(shared):
    path = shared.path("not-executable")
    with open(path, "w", encoding="utf-8"):
        pass
    done = run(shared, path)
    assert done.returncode == 126
    assert path in done.stderr


def test_the_programs_own_options_reach_the_program(shared):
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


ASAN = """
#include <dlfcn.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
        volatile char *bytes = malloc(10);
        int r = init ? init(0) : -1;
        bytes[9 + argc - 1] = 1;
        free((void *)bytes);
        return r;
}
"""


@pytest.mark.skipif(SANITIZER is not None, reason="this build's own sanitizer comes first; in another build it runs")
def test_a_program_with_addresssanitizer_starts_and_finds_its_errors(shared):
    source, program = shared.path("asan.c"), shared.path("asan")
    with open(source, "w", encoding="ascii") as f:
        f.write(ASAN)
    if subprocess.run(["cc", "-fsanitize=address", source, "-o", program], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("this compiler has no AddressSanitizer")
    plain = {"ASAN_OPTIONS": "detect_leaks=0"}
    done = run(shared, program, **plain)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(shared, program, "beyond", **plain)
    assert done.returncode and "heap-buffer-overflow" in done.stderr
    show = ["sh", "-c", "echo $ASAN_OPTIONS"]
    assert run(shared, *show, **plain).stdout == "detect_leaks=0:verify_asan_link_order=0\n"
    assert run(shared, *show, ASAN_OPTIONS="verify_asan_link_order=1").stdout == "verify_asan_link_order=1\n"


def test_env_prints_the_variables_that_run_sets(shared):
    done = shared.sublet("env", "--name", "it's a \"name\"")
    assert done.returncode == 0, done.stderr
    shell = subprocess.run(["sh", "-c", done.stdout + '\necho "$SUBLET_NAME"; echo "$LD_PRELOAD"'], env=shared.env,
                           stdout=subprocess.PIPE, text=True, check=True)
    assert shell.stdout.splitlines() == ["it's a \"name\"", os.path.join(BUILD, "libsublet.so")]


def test_the_status_shows_the_programs_name(shared):
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
    """The message appears once, however often the program tries again."""
    p = world.program("fill", "--bytes", "4MiB", "--block", "1MiB", "--rounds", "1000000", SUBLET_LOG="debug",
                      SUBLET_DIR="/no/such/dir", SUBLET_DAEMON=os.path.join(BUILD, "subletd"))
    wait_for(lambda: p.err().count("starting a private daemon in /no/such/dir: ok") >= 3, 60, "the third try")
    p.send(signal.SIGKILL)
    assert p.err().count("cannot create directory /no/such/dir") == 1, p.err()


def test_two_programs_oversubscribe_under_run_alone(world):
    """The README promises that two commands in two terminals are enough, without a daemon started by hand."""
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


# ---- programs that the library cannot be loaded into ----

# The number of the machine type, and the machine code of exit(0).
MACHINE, EXIT = {"x86_64": (62, b"\xb8\x3c\x00\x00\x00\x31\xff\x0f\x05"),
                 "aarch64": (183, b"\x00\x00\x80\xd2\xa8\x0b\x80\xd2\x01\x00\x00\xd4")}[os.uname().machine]


def elf(path, loader=None):
    """Writes an executable that ends at once. With a loader that does not exist it cannot be started."""
    text = loader.encode() + b"\0" if loader else EXIT
    where = 64 + 56 * (2 if loader else 1)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, MACHINE, 1, 0x400000 + where, 64, 0, 0, 64, 56,
                         2 if loader else 1, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0, where + len(text), where + len(text), 4096)
    interp = struct.pack("<IIQQQQQQ", 3, 4, where, 0, 0, len(text), len(text), 1) if loader else b""
    with open(path, "wb") as f:
        f.write(header + load + interp + text)
    os.chmod(path, 0o755)
    return path


def told(world, *command, **env):
    """Returns the messages of `sublet run` before the program starts, or fails to start."""
    lines = run(world, "--", *command, SUBLET_QUIET=None, **env).stderr.splitlines()
    return [line for line in lines if "cannot run" not in line]


STATICALLY = "is statically linked, so libsublet.so is not loaded"


def test_a_static_program_is_told_to_run_without_sharing(shared):
    path = elf(shared.path("static"))
    assert len(told(shared, path)) == 1
    assert told(shared, path)[0].startswith(f"sublet: {path} {STATICALLY}")
    assert f"{path} {STATICALLY}" in told(shared, "static", PATH=shared.root)[0], "found by PATH"
    quiet = run(shared, "--", path)
    assert (quiet.returncode, quiet.stderr) == (0, ""), "SUBLET_QUIET=1"


def test_run_examines_the_interpreter_of_a_script(shared):
    interpreter = elf(shared.path("interpreter"))
    for name, first in (("one", f"#!{interpreter}\n"), ("two", f"#! {interpreter} -x\n"), ("three", "#!" + shared.path("one"))):
        with open(shared.path(name), "w", encoding="utf-8") as f:
            f.write(first)
        os.chmod(shared.path(name), 0o755)
        assert f"{interpreter} {STATICALLY}" in told(shared, shared.path(name))[0]


@pytest.fixture
def musl(shared):
    """A real program of musl, which prints LD_PRELOAD."""
    if not shutil.which("musl-gcc"):
        pytest.skip("there is no musl-gcc")
    with open(shared.path("musl.c"), "w", encoding="ascii") as f:
        f.write('#include <stdio.h>\n#include <stdlib.h>\n'
                'int main(void) { const char *p = getenv("LD_PRELOAD"); return puts(p ? p : "none") < 0; }\n')
    subprocess.run(["musl-gcc", shared.path("musl.c"), "-o", shared.path("musl")], check=True)
    return shared.path("musl")


def test_a_program_for_musl_starts_without_the_library_and_is_told_so(shared, musl):
    with_it = subprocess.run([musl], env={**shared.env, "LD_PRELOAD": os.path.join(BUILD, "libsublet.so")}, capture_output=True,
                             timeout=30, check=False)
    assert with_it.returncode == 127, "musl's loader starts no program with the library"
    with open(shared.path("script"), "w", encoding="utf-8") as f:
        f.write(f"#!{musl}\n")
    os.chmod(shared.path("script"), 0o755)
    for command in (musl, shared.path("script")):
        done = run(shared, "--", command, SUBLET_QUIET=None)
        assert (done.returncode, done.stdout) == (0, "none\n"), done
        assert done.stderr.startswith(f"sublet: {musl} is built for the C library musl, so it starts without libsublet.so")
        assert len(done.stderr.splitlines()) == 1 and "shares the GPU" in done.stderr
    quiet = run(shared, "--", musl)
    assert (quiet.returncode, quiet.stdout, quiet.stderr) == (0, "none\n", "")


def test_a_program_for_musl_keeps_the_libraries_that_its_user_preloads(shared, musl):
    library = shared.path("libown.so")
    with open(shared.path("own.c"), "w", encoding="ascii") as f:
        f.write("int own;\n")
    # `sublet run` itself loads the library, too, so it must need no C library.
    subprocess.run(["musl-gcc", "-shared", "-fPIC", "-nostdlib", shared.path("own.c"), "-o", library], check=True)
    done = run(shared, "--", musl, LD_PRELOAD=f"{BUILD}/libsublet.so:{library}")
    assert (done.returncode, done.stdout) == (0, f"{library}\n"), done


def test_run_is_silent_about_programs_that_can_share(shared):
    assert told(shared, "true") == []
    assert told(shared, sys.executable, "-c", "") == []
    assert told(shared, elf(shared.path("other"), "/no/such/loader")) == []
    with open(shared.path("commands"), "w", encoding="utf-8") as f:
        f.write("true")
    os.chmod(shared.path("commands"), 0o755)
    assert told(shared, shared.path("commands")) == []


@others.needed
@pytest.mark.parametrize("how", ["setuid", "setgid", "capabilities"])
def test_a_program_with_privileges_of_its_own_is_told_to_run_without_sharing(shared, how):
    path = shared.path("privileged")
    shutil.copy("/bin/true", path)
    os.chown(path, 65534, 65534)
    os.chmod(path, {"setuid": 0o4755, "setgid": 0o2755}.get(how, 0o755))
    if how == "capabilities":  # cap_net_raw=ep, as setcap(8) writes it
        os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0))
        assert told(shared, path) == [], "root has all capabilities anyway"
    os.chmod(shared.root, 0o755)
    done = subprocess.run([*(others.as_user(65533) if how == "capabilities" else ()),
                           os.path.join(others.BUILD, "sublet"), "run", "--", path],
                          env={**shared.env, "SUBLET_QUIET": ""}, stderr=subprocess.PIPE, text=True, timeout=30, check=False)
    assert done.returncode == 0
    assert f"{path} gets privileges from its file" in done.stderr
    os.chown(path, 0, 0)
    os.chmod(path, 0o4755)
    assert told(shared, path) == [], "a setuid program of root gives root no other privileges"
