"""Before an eviction a framework's own function gives back the memory that the framework keeps unused. No program waits
long for that function."""

import os
import sys

import pytest

from world import LIBRARY, MIB, NO_PYTHON, go_on, threads, wait_for

pytestmark = pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))

USED, CACHED = 24, 56


def cached(world, how, used=USED, keep=CACHED, gpu=0, **env):
    env.setdefault("LD_PRELOAD", LIBRARY)
    p = world.start([sys.executable, os.path.join(os.path.dirname(__file__), "cached.py"), used, keep, how,
                     world.path("end"), gpu], SUBLET_TRACE=world.path("trace"), SUBLET_UNCHANGED="never", **env)
    p.await_event("filled")
    return p


def rival(world, mib=104):
    p = world.program("fill", "--bytes", f"{mib}MiB", "--block", "8MiB", "--seed", "9", "--until", world.path("end"))
    p.await_event("round")
    return p


def finish(world, *programs):
    with open(world.path("end"), "w", encoding="ascii"):
        pass
    for p in programs:
        p.ok()


def copied(world, pid):
    return next(p for p in world.card()["processes"] if p["pid"] == pid)["d2h_bytes"]


def test_unused_cached_memory_is_given_back_and_not_copied(shared):
    """On a busy machine Python sometimes answers late, so the test waits for an eviction with an answer in time."""
    p = cached(shared, "work")
    other = rival(shared)

    def in_time():
        """Returns the traced events from the end of a drain in which all of the cache was given back, to the end of the
        eviction."""
        events = shared.traced(pid=p.pid)
        kinds = [e["event"] for e in events]
        for i, e in enumerate(events):
            if e["event"] == "caches" and e["bytes"] >= CACHED * MIB and "evict_end" in kinds[i:]:
                drained = i - kinds[i::-1].index("drain_end")
                return events[drained:i + kinds[i:].index("evict_end") + 1]
        return None

    course = wait_for(in_time, 120, "an eviction for which the cache was given back")
    assert "evict_begin" not in [e["event"] for e in course[:[e["event"] for e in course].index("caches")]], course
    assert 0 < course[-1]["bytes"] <= (USED + 8) * MIB, course
    finish(shared, p, other)
    assert p.events("end")[0]["emptied"] >= CACHED * MIB // (4 * MIB)


def test_a_gpu_that_the_program_does_not_use_gets_no_context(make_world):
    """The runtime makes a context on the first GPU if no context is current."""
    world = make_world(gpus=2)
    world.start_daemon(config={"quantum": "200ms"})
    p, other = cached(world, "work", gpu=1), cached(world, "work", used=104, keep=0, gpu=1)
    wait_for(lambda: any(e["bytes"] for e in world.traced("caches", p.pid)), 120, "the cache to be given back")
    contexts = [[q["contexts"] for q in d["processes"] if q["pid"] == p.pid] for d in world.driver()["devices"]]
    assert contexts[0] == [0] and contexts[1][0] >= 1
    finish(world, p, other)


def test_the_setting_keep_preserves_the_cache(shared):
    p = cached(shared, "sleep", SUBLET_CACHES="keep")
    other = rival(shared)
    assert shared.clients()[p.pid]["name"] == "cached.py"  # the script's name, not Python's
    assert shared.clients()[p.pid]["allocated"] >= (USED + CACHED) * MIB
    assert copied(shared, p.pid) >= 48 * MIB
    finish(shared, p, other)
    assert p.events("end")[0]["emptied"] == 0


@pytest.mark.parametrize("how", ["hold", "lock", "raise"])
def test_an_eviction_does_not_wait_for_a_cache_that_cannot_be_emptied(shared, how):
    """Either a thread waits at the gate with the interpreter's or the allocator's lock, or empty_cache() fails."""
    p = cached(shared, how, USED + CACHED if how != "raise" else USED, 0 if how != "raise" else CACHED)
    other = rival(shared)
    if how != "raise":
        handoffs = shared.handoffs()
        wait_for(lambda: shared.handoffs() >= handoffs + 6, 60, "hand-offs")
        wait_for(lambda: shared.traced("caches_late", p.pid), 60, "an eviction that went on without an answer")
    go_on([other])
    finish(shared, p, other)
    if how == "raise":
        assert p.events("end")[0]["emptied"] == 0


def test_a_program_without_python_gets_no_thread_for_caches(shared):
    p = shared.program("fill", "--bytes", "96MiB", "--block", "8MiB", "--seed", "1", "--until", shared.path("end"))
    p.await_event("round")
    other = rival(shared)
    with open(f"/proc/{p.pid}/task/{p.pid}/comm", encoding="ascii") as f:
        assert f.read().strip() == "fill"
    names = [name.strip() for _, name in threads(p.pid, "comm")]
    assert "sublet-agent" in names and "sublet-caches" not in names
    finish(shared, p, other)


def test_a_bad_setting_for_caches_is_named(shared):
    p = shared.program("fill", "--bytes", "8MiB", SUBLET_CACHES="some")
    p.ok()
    assert "SUBLET_CACHES is give or keep, not 'some'" in p.err()
