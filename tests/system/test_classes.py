"""What the owner's classes give programs: a memory cap, a maximum of the time, shares; and what a program asks for itself.
The limits are tried as the author of a program would try to pass them."""

import subprocess
import time

import pytest

from test_configuration import reload_ok, write
from world import GENEROUS_S, MIB, PATIENCE, wait_for

CAPPED = "[class capped]\nname = hold, oom\nmemory_cap = 40MiB\n"


@pytest.fixture
def start(world):
    """Starts a daemon with such classes. Returns a function that changes them."""
    path = world.path("s.conf")

    def started(text, **env):
        write(path, text)
        world.start_daemon("--config", path, **env)

        def changed(later):
            write(path, later)
            return reload_ok(world)

        return changed

    return started


def hold(world, mib, block=4, **env):
    return world.program("hold", "--bytes", f"{mib}MiB", "--block", f"{block}MiB", stdin=subprocess.PIPE, **env)


def only(world):
    return next(iter(world.clients().values()))


def test_a_program_sees_its_cap_as_the_card_and_is_told_of_it_once(world, start):
    start(CAPPED)
    p = hold(world, 20)
    p.await_event("filled")
    now = only(world)
    assert now["class"] == "capped" and now["memory_cap"] == 40 * MIB
    assert p.order("info")["free"] <= 20 * MIB
    p.finish()
    big = hold(world, 60)
    assert big.wait() != 0 and "OUT_OF_MEMORY" in big.err(), big.report()
    assert len([l for l in big.err().splitlines() if "out of memory: this program" in l and "cap" in l]) == 1, big.err()


def test_a_cap_is_one_for_all_programs_of_the_class(world, start):
    start(CAPPED)
    first = hold(world, 30)
    first.await_event("filled")
    second = hold(world, 20, SUBLET_NAME="another")  # it has left the class by its name, as the owner allowed
    second.await_event("filled")
    third = hold(world, 20)
    assert third.wait() != 0 and "memory cap of its class" in third.err(), third.report()
    first.finish()
    wait_for(lambda: list(world.clients()) == [second.pid], GENEROUS_S, "the others to be gone", report=world.status_text)
    fourth = hold(world, 36)
    fourth.await_event("filled")
    fourth.finish()
    second.finish()


def test_a_cap_by_user_holds_whatever_the_program_calls_itself(world, start):
    start(f"[class all]\nuser = 0-4294967294\nmemory_cap = 40MiB\n")
    p = hold(world, 60, SUBLET_NAME="somebody")
    assert p.wait() != 0 and "may use 40 MiB" in p.err(), p.report()


def test_no_program_enters_a_class_without_keys_by_naming_it_as_its_group(world, start):
    start("[class rich]\ngroup = yes\npriority = 5\nminimum = 50%\n[default]\nmemory_cap = 40MiB\n")
    p = hold(world, 20, SUBLET_GROUP="rich")
    p.await_event("filled")
    now = only(world)
    assert (now["class"], now["priority"], now["memory_cap"]) == (None, 0, 40 * MIB)
    p.finish()


def test_a_program_can_cap_itself(world, start):
    start("")
    p = hold(world, 20, SUBLET_MEMORY_CAP="30MiB")
    p.await_event("filled")
    assert only(world)["memory_cap"] == 30 * MIB
    p.finish()
    p = hold(world, 40, SUBLET_MEMORY_CAP="30MiB")
    assert p.wait() != 0 and "may use 30 MiB" in p.err(), p.report()


HALF = "[default]\nmaximum = 50%\n"


@pytest.mark.parametrize("text, share, maximum", [
    (HALF, "", 0.5), (HALF, ":0.2", 0.2), (HALF, ":0.7", 0.5), ("[default]\nweight = 2\n", "", None),
    ("[class mine]\nuser = 0-4294967294\nmaximum = 40%\n" + HALF, "", 0.4),
])
def test_the_maximum_that_holds_is_shown_wherever_it_is_from(world, start, text, share, maximum):
    start(text)
    p = hold(world, 4, **({"SUBLET_SHARE": share} if share else {}))
    p.await_event("filled")
    assert only(world)["maximum"] == maximum
    assert (f"maximum {maximum or 0:.0%}" in world.status_text()) == (maximum is not None)
    p.finish()


def test_a_lower_cap_counts_for_new_memory(world, start):
    change = start(CAPPED)
    p = hold(world, 36)
    p.await_event("filled")
    assert change(CAPPED.replace("40MiB", "20MiB")) == ["reloaded: 1 class"]
    assert only(world)["memory_cap"] == 20 * MIB
    p.order("verify")
    late = hold(world, 8)
    assert late.wait() != 0, late.report()
    p.finish()


def busy_share(world, programs, seconds):
    """Returns the part of so many seconds in which any of them had a lease and work."""
    def used():
        return sum(world.clients()[p.pid]["gpu_time_s"] for p in programs)

    before, began = used(), time.monotonic()
    time.sleep(seconds)
    return (used() - before) / (time.monotonic() - began)


def spin(world, **env):
    """A program that always has work for the card, and leaves the processor to others."""
    return world.program("turns", "--bytes", "8MiB", "--block", "4MiB", "--seed", 1, "--until", world.path("end"), **env)


def test_a_maximum_holds_for_a_program_that_is_alone_and_for_two_copies(world, start):
    start("[class slow]\nuser = 0-4294967294\nmaximum = 20%\n")
    one = spin(world)
    one.await_event("filled")
    wait_for(lambda: (only(world)["preempted"] or {"times": 0})["times"] > 2, GENEROUS_S, "the maximum", report=world.status_text)
    assert busy_share(world, [one], 3) < 0.3
    two = spin(world)
    two.await_event("filled")
    share = busy_share(world, [one, two], 3)
    assert share < 0.6, "both run beside each other, each at most 20 % of the time"
    write(world.path("end"), "")
    assert one.wait() == 0 and two.wait() == 0


def test_a_program_can_limit_itself_and_a_weight_is_shown(world, start):
    start("")
    p = spin(world, SUBLET_SHARE=":0.2", SUBLET_WEIGHT="2.5")
    p.await_event("filled")
    wait_for(lambda: (only(world)["preempted"] or {"times": 0})["times"] > 2, GENEROUS_S, "the maximum", report=world.status_text)
    assert only(world)["maximum"] == 0.2 and only(world)["weight"] == 2.5
    write(world.path("end"), "")
    assert p.wait() == 0


def test_a_reload_moves_running_programs_to_other_classes(world, start):
    change = start("[class a]\nname = hold\n")
    p = hold(world, 20)
    p.await_event("filled")
    before = only(world)
    change("[class b]\nname = hold\nweight = 3\n[class c]\nname = x\n")
    after = only(world)
    assert before["class"] == "a" and after["class"] == "b" and after["state"] == before["state"]
    p.finish()


def test_bad_values_are_one_sentence(world):
    for option, value, words in (("--share", "0.8:0.2", "MIN:MAX"), ("--share", "2", "MIN:MAX"), ("--weight", "0", "0.01 to 100"),
                                 ("--weight", "x", "0.01 to 100"), ("--memory-cap", "0", "size"), ("--memory-cap", "9 apples", "size")):
        done = world.sublet("run", option, value, "true")
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and words in done.stderr, done


def test_a_group_of_the_same_name_is_no_way_into_a_class_of_others(world, start):
    start("[class a]\nuser = 1\ngroup = yes\n")
    p = hold(world, 8, SUBLET_GROUP="a")
    p.await_event("filled")
    assert only(world)["class"] is None and only(world)["group"] == "a"
    p.finish()
