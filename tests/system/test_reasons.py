"""A program that runs out of memory is told once, on stderr, which limit refused the memory."""

import re
import subprocess

import pytest

from world import GENEROUS_S, wait_for

LINE = re.compile(r"libsublet\[\d+\]: warning: out of memory: this program asks for (\d+) MiB of GPU 0 beside (\d+) MiB, but (.+)")


def hold(world, mib, **env):
    return world.program("hold", "--bytes", f"{mib}MiB", "--block", "4MiB", stdin=subprocess.PIPE, **env)


def reason(p):
    """Returns the reason in the single line about memory on stderr."""
    lines = [found for found in map(LINE.search, p.err().splitlines()) if found]
    assert len(lines) == 1, p.report()
    return lines[0][3]


def test_a_program_larger_than_the_card_is_told_of_the_cards_size(make_world):
    w = make_world(memory="64MiB")
    w.start_daemon()
    p = hold(w, 80)
    assert p.wait() != 0
    assert re.fullmatch(r"it may use \d+ MiB there \(the GPU's size\): `sublet run --memory overflow` adds host memory",
                        reason(p)), p.report()


@pytest.mark.parametrize("config, why", (
    ({"host_memory": "16MiB"}, "the daemon may promise no more host memory"),
    ({"mode": "off"}, "the GPU has no room for it beside memory that cannot give way")))
def test_a_program_that_does_not_fit_beside_others_is_told_why(make_world, config, why):
    w = make_world(memory="128MiB")
    w.start_daemon(config=config)
    first = hold(w, 80)
    first.await_event("filled")
    second = hold(w, 80)
    assert second.wait() != 0
    assert reason(second).startswith(why), second.report()
    first.finish()
    assert "out of memory" not in first.err()


@pytest.mark.parametrize("how, why", (
    ("alloc", "it may use"), ("async", "it may use"), ("pool", "it may use"), ("handles", "it may use"),
    ("arrays", "the GPU has no room for so much memory that cannot be moved")))
def test_each_way_to_allocate_tells_the_reason_once(make_world, how, why):
    w = make_world(memory="64MiB")
    w.start_daemon()
    p = w.program("greedy", "--how", how, stdin=subprocess.PIPE)
    p.await_event("got")
    p.process.stdin.write(b"more\n")
    p.process.stdin.flush()
    wait_for(lambda: len(p.events("got")) == 2, GENEROUS_S, "the second attempt", report=p.report)
    assert reason(p).startswith(why), p.report()
    p.finish()
