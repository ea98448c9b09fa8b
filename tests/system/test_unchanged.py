"""Memory that is all zero, or unchanged since it last left the card, is not copied out again. The tests check contents
byte by byte, and the card's counters tell which bytes were copied. Interpreted kernels compute the fingerprints here,
which is slow, so the tests ask for fingerprints with SUBLET_UNCHANGED=always."""

import subprocess

import pytest

from test_oversubscription import check_contents, fill, run_until_handoffs
from world import MIB, wait_for

# Without a second context the accounts equal the card's figures, and no copies are made to test freezing.
pytestmark = pytest.mark.freeze("park")

EDIT_MIB = 48
BLOCK = 4 * MIB


def start(world, name, *args, request="always", **env):
    p = world.program(name, *args, stdin=subprocess.PIPE, SUBLET_UNCHANGED=request, **env)
    p.await_event("filled")
    return p


class Pair:
    """A program whose memory is observed, and another program that needs nearly all of the card."""

    def __init__(self, world, request="always"):
        self.world = world
        self.edit = start(world, "edit", "--bytes", f"{EDIT_MIB}MiB", "--block", BLOCK, "--seed", "3", request=request)
        self.other = start(world, "hold", "--bytes", "104MiB", "--block", "8MiB", request="never")
        self.edit.order("wake")
        self.seen = set()  # numbers of bytes that left in a hand-off without any copy

    def copied(self):
        """Returns the bytes of the observed program that the card has copied out and in so far."""
        mine = next(p for p in self.world.card()["processes"] if p["pid"] == self.edit.pid)
        return mine["d2h_bytes"], mine["h2d_bytes"]

    def handoff(self):
        """The other program takes the card, and gives it back. Returns the bytes that left, and those that were copied
        out and in."""
        out, _ = self.copied()
        before = self.world.clients()[self.edit.pid]
        self.other.order("verify")

        def gone(c):
            """Returns the bytes that have left less those that have come back: while the other program has the card for
            long, the daemon may give it back in between, and then all memory leaves twice."""
            return c["moved_out"] + c["spared_out"] - c["moved_in"] - c["spared_in"]

        def evicted():
            """True once all memory has left and was reported, which may be after the other program's turn began. The
            reported bytes must be those that the card counted."""
            after, copied_out = self.world.clients()[self.edit.pid], self.copied()[0] - out
            return after["state"] not in ("draining", "evicting") and after["moved_out"] - before["moved_out"] == copied_out and \
                gone(after) - gone(before) == after["evicted"] - before["evicted"] and (after, copied_out)

        def figures():
            return f"before: {before}\nnow: {self.world.clients()[self.edit.pid]}\ncopied: {out}, now {self.copied()}"

        after, copied_out = wait_for(evicted, 20, "all evicted bytes to be reported as copied or spared", report=figures)
        left = EDIT_MIB * MIB - after["backed"]
        _, into = self.copied()
        self.edit.order("wake")
        assert left >= 24 * MIB
        return left, copied_out, self.copied()[1] - into

    def handoff_of(self, *orders):
        """Gives the orders and makes a hand-off, until a hand-off moves extents that have all left before: then only
        bytes changed by the orders need a copy. Returns that handoff()'s result. The daemon decides how many extents
        leave at a time."""
        for _ in range(12):
            for order in orders:
                self.edit.order(order)
            left, out, into = self.handoff()
            if left in self.seen:
                return left, out, into
            if not orders and out == 0:
                self.seen.add(left)
            else:
                self.handoff_of()
        raise AssertionError("no hand-off moved the same bytes twice\n" + self.edit.report())


@pytest.fixture
def pair(shared):
    return Pair(shared)


def test_unchanged_memory_is_not_copied_again(pair):
    left, out, into = pair.handoff_of()
    assert out == 0 and into >= left
    pair.edit.order("check")
    pair.edit.finish()


# Offsets from the end of the memory, because the last extents leave first.
POKES = {
    "the last byte": [1],
    "two of one extent": [BLOCK, 3 * MIB],
    "one in each of three": [5, BLOCK + 1, 2 * BLOCK + 128 * 1024],
}


@pytest.mark.parametrize("where", POKES)
def test_an_extent_in_which_a_byte_changed_is_copied(pair, where):
    pair.handoff_of()
    pokes = [EDIT_MIB * MIB - offset for offset in POKES[where]]
    left, out, into = pair.handoff_of(*(f"poke {at}" for at in pokes))
    assert out == len({at // BLOCK for at in pokes}) * BLOCK and into >= left
    pair.edit.order("check")
    pair.edit.finish()


def test_zeros_are_copied_neither_way(pair):
    pair.handoff()
    pair.edit.order("zero")
    before = pair.world.clients()[pair.edit.pid]["spared_in"]
    left, out, into = pair.handoff()
    assert out == 0 and into <= 2 * MIB
    assert pair.world.clients()[pair.edit.pid]["spared_in"] - before >= left - into
    assert " not copied" in pair.world.status_text()
    pair.edit.order("check")
    pair.edit.order("random 9")
    left, out, into = pair.handoff()
    assert out >= left and into >= left
    pair.edit.order("check")
    pair.edit.finish()


def test_new_memory_is_not_mistaken_for_freed_memory(pair):
    pair.handoff()
    for block in (9, 10, 11):
        pair.edit.order(f"renew {block}")
    pair.handoff()
    pair.edit.order("check")
    pair.edit.order("random 4")
    pair.edit.order("renew 11")
    pair.handoff()
    pair.handoff()
    pair.edit.order("check")
    pair.edit.finish()


def test_all_memory_is_copied_without_fingerprints(shared):
    pair = Pair(shared, request="never")
    for _ in range(2):
        left, out, into = pair.handoff()
        assert out >= left and into >= left
    pair.edit.order("check")
    pair.edit.finish()


def test_contents_stay_right_with_fingerprints_of_everything(shared):
    shared.env["SUBLET_UNCHANGED"] = "always"
    programs = [fill(shared, 96, seed) for seed in ("1", "2")]
    run_until_handoffs(shared, programs, 8, shared.path("end"))
    check_contents(shared, programs)


def test_random_changes_survive_random_evictions(shared):
    p = shared.program("edit", "--rounds", "60", "--bytes", "16MiB", "--block", "2MiB", "--seed", "2",
                       SUBLET_UNCHANGED="always", SUBLET_TORTURE="2,every=5ms")
    p.ok()
    mine = next(x for x in shared.card()["processes"] if x["pid"] == p.pid)
    assert mine["launches"] > 0, "the library launches fingerprints; the program itself launches nothing"


def test_a_bad_setting_for_fingerprints_is_named(shared):
    p = shared.program("fill", "--bytes", "8MiB", SUBLET_UNCHANGED="sometimes")
    p.ok()
    assert "SUBLET_UNCHANGED is auto, always or never, not 'sometimes'" in p.err()
