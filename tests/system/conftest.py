"""Fixtures: a private world for each test, and a check that everything needed was built."""

import contextlib
import os
import signal
import sys
import threading

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import cgroups  # noqa: E402
import others  # noqa: E402
import world as world_module  # noqa: E402


def pytest_configure(config):
    # Python 3.12 warns about fork() because pytest's workers have a thread. The tests' children do not need it.
    config.addinivalue_line("markers", "freeze(mode): SUBLET_FREEZE of all programs, also where the suite runs in another mode")
    config.addinivalue_line("filterwarnings", "ignore:.*use of fork:DeprecationWarning")
    # A shell without job control starts background commands with SIGINT ignored. The programs under test would inherit
    # that, so this process handles SIGINT again.
    if threading.current_thread() is threading.main_thread():  # only the main thread may set a handler
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_unconfigure(config):
    if not hasattr(config, "workerinput"):
        others.remove()


@pytest.fixture(scope="session", autouse=True)
def built():
    for name in ("libsublet.so", "subletd", "sublet", "sim/libcuda.so.1", "programs/fill"):
        if not os.path.exists(os.path.join(world_module.BUILD, name)):
            pytest.exit(f"{world_module.BUILD}/{name} is not there: build first, or set SUBLET_BUILD", returncode=3)


@pytest.fixture
def make_world(request):
    mark = request.node.get_closest_marker("freeze")
    with contextlib.ExitStack() as made:
        def make(**settings):
            w = world_module.World(**settings)
            if mark:
                w.env["SUBLET_FREEZE"], = mark.args
            made.callback(w.close)
            return w

        yield make


@pytest.fixture
def cgroup():
    made = []

    def make(controller):
        made.append(cgroups.Cgroup(controller, f"sublet-test-{os.getpid()}-{len(made)}"))
        return made[-1]

    yield make
    # The world is closed after this fixture, so processes left in the cgroup are killed here.
    for c in made:
        for pid in c.read("cgroup.procs").split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), 9)
        c.remove()


@pytest.fixture
def world(make_world):
    """A card of 128 MiB, without a daemon."""
    return make_world()


@pytest.fixture
def shared(world):
    """A card of 128 MiB with a daemon whose quantum is short."""
    world.start_daemon(config={"quantum": "200ms"})
    return world
