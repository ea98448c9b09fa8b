"""Programs without stdin, stdout or stderr. The next file that such a program opens gets the number."""

import os
import sys

import pytest

from world import BUILD, LIBRARY, NO_PYTHON, wait_for

SUBLET = os.path.join(BUILD, "sublet")

# Opens a file of data before it uses CUDA. libsublet.so has something to say: the value of SUBLET_FREEZE is wrong.
APPENDS = """
import ctypes, os, sys
if sys.argv[2] == "closes":
    os.close(2)
with open(sys.argv[1], "w+b", buffering=0) as f:
    f.write(b"header\\n")
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    f.write(b"trailer %d\\n" % f.fileno())
"""


def closed(numbers, *command):
    """Returns a command that runs with these descriptors closed."""
    return ["sh", "-c", f'exec "$@" {" ".join(f"{n}>&-" for n in numbers)}', "sh", *command]


@pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))
@pytest.mark.parametrize("how", ["begins-without", "closes", "keeps"])
def test_no_message_goes_into_a_file_of_the_program(world, how):
    world.start_daemon()
    path = world.path("data")
    p = world.start(closed("2" if how == "begins-without" else "", sys.executable, "-c", APPENDS, path, how),
                    LD_PRELOAD=LIBRARY, SUBLET_FREEZE="wrong")
    assert p.wait() == 0, p.report()
    with open(path, encoding="utf-8") as f:
        header, trailer = f.read().splitlines()
    assert header == "header" and (trailer == "trailer 2") == (how != "keeps")
    assert ("SUBLET_FREEZE is off, park or move, not 'wrong'" in p.err()) == (how == "keeps")


def test_sublet_run_opens_what_is_closed(world):
    path = world.path("list")
    look = f"readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 >{path}"
    p = world.start(closed("012", SUBLET, "run", "--", "sh", "-c", look))
    assert p.wait() == 0, p.report()
    with open(path, encoding="utf-8") as f:
        assert f.read().splitlines()[0::2] == ["/dev/null", "/dev/null"]


def test_a_private_daemon_that_begins_without_descriptors_serves(world):
    """Its sockets would have the numbers that stdin, stdout and stderr get in the background."""
    p = world.start(closed("012", os.path.join(BUILD, "subletd"), "--private", "--dir", world.dir))
    assert p.wait() == 0, p.report()
    wait_for(lambda: world.sublet("status", "--json").returncode == 0, 20, "the daemon to answer", report=p.report)
    assert world.sublet("stop").returncode == 0
