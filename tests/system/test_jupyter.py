"""Notebooks of a real Jupyter server, with the kernel that `sublet jupyter install` installs."""

import json
import os
import re
import shutil
import signal
import stat

import pytest

from notebooks import PYTHON, Server
from test_drain import waiting
from test_oversubscription import touch
from world import NO_PYTHON, ROOT, wait_for

pytestmark = pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))

HERE = os.path.dirname(os.path.abspath(__file__))

# Fills memory. Each round of work() sets one block of 4 MiB to another value.
FILL = f"""
import sys, os, time
sys.path.insert(0, {HERE!r})
import interrupted
program = interrupted.Program("released", 96, "", "")
def work(rounds):
    for _ in range(rounds):
        program.submit()
    interrupted.check(interrupted.cuda.cuCtxSynchronize())
def work_until(path):
    while not os.path.exists(path):
        work(1)
        time.sleep(0.005)  # spares the processor
"""
BLOCKS = 24


@pytest.fixture
def jupyter(world):
    server = Server(world)
    done = server.install()
    assert done.returncode == 0, done.stderr
    return server


def filled(jupyter, *names):
    books = [jupyter.notebook(name) for name in names]
    for b in books:
        b.run(FILL).ok()
    return books


def spec_in(folder):
    with open(os.path.join(folder, "kernel.json"), encoding="utf-8") as f:
        return json.load(f)


def test_two_notebooks_share_a_gpu_that_is_too_small_for_both(world, jupyter):
    world.start_daemon(config={"quantum": "200ms"})
    books = filled(jupyter, "a.ipynb", "b.ipynb")
    assert {c["name"] for c in world.clients().values()} == {"a.ipynb", "b.ipynb"}
    assert {b.pid for b in books} == set(world.clients())  # Jupyter's signals reach the kernel itself
    before = world.handoffs()
    for b in books:  # one after the other: the idle notebook gives way
        b.run("work(50)").ok()
    assert world.handoffs() >= before + 1
    cells = [b.run(f"work_until({world.path('end')!r})") for b in books]
    wait_for(lambda: world.handoffs() >= before + 5, 60, "turns to be taken", interval=0.1)
    touch(world.path("end"))
    for cell in cells:
        cell.ok()
    for b in books:
        rounds, values = map(int, b.run("program.verify(); print(program.rounds, sum(program.values))").ok().stdout.split())
        assert rounds > 50 and values == sum(i % 250 for i in range(rounds - BLOCKS, rounds))


def occupied(world, jupyter):
    """Returns a notebook that holds the card until let_go(), and another one. On a busy machine the holder may rest for
    long between two rounds: it must keep the card then, too. Nor may a short burst of the other interrupt it."""
    world.start_daemon(config={"quantum": "10min", "quantum_min": "10min", "quantum_max": "10min"})
    holder, other = filled(jupyter, "holder.ipynb", "other.ipynb")
    holder.cell = holder.run(f"work_until({world.path('end')!r})")
    wait_for(lambda: world.clients()[holder.pid]["state"] == "running", 20, "the first to run")
    assert world.sublet("set", "idle_release", "10min").returncode == 0
    return holder, other


def let_go(world):
    touch(world.path("end"))
    assert world.sublet("set", "idle_release", "auto").returncode == 0


def waits(world, book, code="work(1)"):
    cell = book.run(code)
    wait_for(lambda: waiting(world, book.pid), 20, "the cell to wait")
    return cell


def test_a_waiting_cell_says_who_holds_the_gpu_and_can_be_interrupted(world, jupyter):
    holder, other = occupied(world, jupyter)
    cell = waits(world, other, "work(1); print('through')")
    wait_for(lambda: cell.stderr, 20, "the message", report=world.status_text)
    assert re.fullmatch(rf"libsublet\[{other.pid}\]: has waited ([5-9]|\d\d+) s for its turn on the GPU: process {holder.pid} "
                        rf"\(holder\.ipynb\) holds it; `sublet status --daemon {re.escape(world.dir)}` shows more\n", cell.stderr), cell.stderr
    assert cell.reply is None and waiting(world, other.pid)
    other.order("interrupt")
    assert cell.done().reply["ename"] == "KeyboardInterrupt" and not cell.stdout
    assert other.run("1").ok() and holder.cell.reply is None
    later = waits(world, other)
    let_go(world)
    later.ok()
    assert later.stderr == "", "told once in half a minute"
    holder.cell.ok()
    for b in (holder, other):
        b.run("program.verify()").ok()


def test_a_cell_that_waited_says_how_long(world, jupyter):
    _, other = occupied(world, jupyter)
    cell = waits(world, other)
    wait_for(lambda: cell.stderr, 20, "the message", report=world.status_text)
    let_go(world)
    cell.ok()
    wait_for(lambda: cell.stderr.count("\n") == 2, 20, "the second message", report=lambda: cell.stderr)
    assert re.search(rf"^libsublet\[{other.pid}\]: has its turn on the GPU after ([5-9]|\d\d+) s\n\Z", cell.stderr, re.M)


def test_a_waiting_kernel_can_be_restarted_and_a_killed_one_gives_its_memory_back(world, jupyter):
    holder, other = occupied(world, jupyter)
    waits(world, other)
    other.order("restart")
    assert other.ask_pid() != other.pid
    wait_for(lambda: set(world.clients()) == {holder.pid}, 20, "the old kernel to leave")
    assert holder.cell.reply is None
    cell = other.run(FILL + "program.verify()")
    wait_for(lambda: len(world.clients()) == 2, 20, "the new kernel")
    os.kill(holder.pid, signal.SIGKILL)
    cell.ok()


def test_the_example_notebooks_share_a_card_that_is_too_small_for_both(make_world):
    world = make_world(memory="128MiB")
    server = Server(world)
    assert server.install().returncode == 0
    world.start_daemon(config={"quantum": "1s"})
    examples = os.path.join(ROOT, "docs", "examples")
    shutil.copy(os.path.join(examples, "gpu.py"), server.env["HOME"])
    books, cells = {}, {}
    for name in ("train", "explore"):
        with open(os.path.join(examples, f"{name}.ipynb"), encoding="utf-8") as f:
            sources = ["".join(c["source"]) for c in json.load(f)["cells"]]
        assert sources == ["from gpu import fill, work\nfill(700)", f"work(seconds={60 if name == 'train' else 2})"]
        books[name] = server.notebook(f"{name}.ipynb")
        books[name].run("from gpu import fill, work; print(fill(80))").ok()
    cells = {name: books[name].run("import os\n"
                                   f"while not os.path.exists({world.path('end')!r}): said = work(seconds=1)\n"
                                   "print(said)") for name in books}
    for one, other in (("train", "explore"), ("explore", "train")):
        wait_for(lambda one=one, other=other: world.clients()[books[one].pid]["waiting_for"] == books[other].pid, 30,
                 f"{one} to wait for {other}", report=world.status_text)
    touch(world.path("end"))
    for cell in cells.values():
        assert cell.ok().stdout.endswith(" rounds; all memory is as it must be\n"), cell.stdout


# ---- installing ----


def test_installing_again_changes_the_kernel_but_replaces_none_of_somebody_else(world, jupyter):
    kernels = os.path.join(jupyter.env["HOME"], ".local/share/jupyter/kernels")
    done = jupyter.install("--gpu", "auto", "--share=0.2:0.8", "--display-name", "Shared", "--daemon", ".")
    assert done.returncode == 0 and os.path.join(kernels, "sublet") in done.stdout, done.stderr
    spec = spec_in(os.path.join(kernels, "sublet"))
    run, command = spec["argv"][:spec["argv"].index("--")], spec["argv"][spec["argv"].index("--") + 1:]
    assert run[1:] == ["run", "--gpu=auto", "--share=0.2:0.8", f"--daemon={os.getcwd()}/."]
    assert command == [PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    assert spec["display_name"] == "Shared"
    foreign = os.path.join(kernels, "mine", "kernel.json")
    os.makedirs(os.path.dirname(foreign))
    with open(foreign, "w", encoding="utf-8") as f:
        json.dump({"argv": ["interpreter", "{connection_file}"], "display_name": "Mine", "language": "x",
                   "interrupt_mode": "message", "env": {"A": "B"}}, f)
    done = jupyter.install("--name", "mine")
    assert done.returncode == 1 and "--force" in done.stderr
    assert jupyter.install("--kernel", "mine").returncode == 0
    wrapped = spec_in(os.path.join(kernels, "mine-sublet"))
    assert wrapped["argv"][-3:] == ["--", "interpreter", "{connection_file}"]
    assert (wrapped["display_name"], wrapped["interrupt_mode"], wrapped["env"]) == ("Mine under sublet", "message", {"A": "B"})
    assert jupyter.install("--name", "mine", "--force").returncode == 0
    assert spec_in(os.path.dirname(foreign))["argv"][1] == "run"
    seen = jupyter.ask("GET", "/api/kernelspecs")["kernelspecs"]
    assert {"sublet", "mine", "mine-sublet", "python3"} == set(seen) and "logo-svg" in seen["sublet"]["resources"]


def test_a_kernel_under_sublet_finds_the_files_in_its_own_folder(world):
    jupyter = Server(world, runs=False)
    folder = os.path.join(jupyter.env["HOME"], ".local/share/jupyter/kernels/own")
    os.makedirs(folder)
    with open(os.path.join(folder, "kernel.json"), "w", encoding="utf-8") as f:
        json.dump({"argv": ["{resource_dir}/start", "-x={resource_dir}:{resource_dir}/lib", "{connection_file}", "{prefix}"],
                   "display_name": "Own", "language": "x"}, f)
    done = jupyter.install("--kernel", "own")
    assert done.returncode == 0, done.stderr
    assert spec_in(folder + "-sublet")["argv"][-5:] == ["--", f"{folder}/start", f"-x={folder}:{folder}/lib", "{connection_file}",
                                                        "{prefix}"]


def test_what_keeps_a_kernel_from_being_installed_is_said(world):
    jupyter = Server(world, runs=False)
    assert jupyter.install().returncode == 0
    bare = world.path("bare")
    with open(bare, "w", encoding="ascii") as f:
        f.write(f'#!/bin/sh\nexec {PYTHON} -I -S "$@"\n')
    os.chmod(bare, stat.S_IRWXU)
    for options, message in ((["--python", bare], "no module jupyter_core: install ipykernel there"),
                             (["--python", world.path("none")], "cannot run"),
                             (["--python", "/bin/true"], "does not say where Jupyter keeps its kernels"),
                             (["--prefix", "/proc"], "cannot write to /proc/"),
                             (["--kernel", "none"], "there is no kernel 'none'"),
                             (["--kernel", "sublet"], "runs under sublet already"),
                             (["--gpu", ""], "--gpu needs")):
        done = jupyter.install(*options)
        assert done.returncode in (1, 2) and message in done.stderr and done.stdout == "", done.stderr
