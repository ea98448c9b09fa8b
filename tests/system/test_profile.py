"""sublet run --profile and --profile-file: one run tries which buffers save time on the card, and the next run uses the
result. The card's counters tell where buffers lie; the tests never compare speed."""

import os
import re
import subprocess

import pytest

from world import BUILD, MIB, wait_for

PART = 128 << 10
SETTINGS = {"host_memory": "1GiB"}
# Buffers of 2 MiB, of which the last is used most: by size and age it would be the first to leave. The bus is slow, so
# that the bytes over the bus decide how long a step takes, whatever else the machine does.
USES = {0: 1, 1: 2, 2: 8}
STEP = " ".join(f"{n}:{times}:{PART}" for n, times in USES.items())


@pytest.fixture
def slow(make_world):
    w = make_world(memory="64MiB", bus="8MB/s")
    w.start_daemon(config=SETTINGS)
    return w


def start(world, *options, keep="4MiB", **env):
    """Runs `buffers` under sublet run, with room on the card for one of its buffers and small allocations."""
    p = world.start([os.path.join(BUILD, "sublet"), "run", "--keep", keep, *options, "--",
                     os.path.join(BUILD, "programs", "buffers"), "--seed", 7], stdin=subprocess.PIPE, **env)
    p.await_event("ready")
    for n in USES:
        p.order(f"alloc {n} 2MiB")
    return p


def on_host(world, p):
    """Returns the numbers of the buffers that kernels read over the bus."""
    found = []
    for n in USES:
        def used():
            return next(q for q in world.card()["processes"] if q["pid"] == p.pid)["mapped_h2d_bytes"]

        before = used()
        p.order(f"cycle 1 {n}:1:{PART}")
        found += [n] * (used() > before)
    return found


def write_profile(world, *lines, name="made.profile"):
    path = world.path(name)
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    return path


def line(nth, saved, size=2 * MIB):
    return f"gpu=0 bytes={size} nth={nth} saved_ns={saved} noise_ns=10"


def test_the_most_used_buffer_is_found_and_kept_by_the_next_run(slow):
    path, stop = slow.path("job.profile"), slow.path("stop")
    p = start(slow, "--profile", path)
    p.process.stdin.write(f"until {stop} {STEP}\n".encode())
    p.process.stdin.flush()
    wait_for(lambda: ": of 3 buffers," in p.err() or not p.running(), 120, "the profile")
    with open(stop, "w", encoding="utf-8"):
        pass
    p.await_event("done")
    wait_for(lambda: len(p.events("done")) == 4, 60, "it to be done")
    wait_for(lambda: on_host(slow, p) == [0, 1], 30, "the most used buffer to come to the card in the same run")
    p.finish()
    assert re.search(rf": the profile is in {path}: of 3 buffers, [123] found to save time on the card\n$", p.err())
    with open(path, encoding="utf-8") as f:
        text = f.read()
    assert text.startswith("sublet profile 1\n# buffers: a step ")
    found = re.findall(r"^gpu=0 bytes=2097152 nth=(\d) saved_ns=(\d+) noise_ns=\d+$", text, re.M)
    assert sorted(nth for nth, _ in found) == ["1", "2", "3"]
    assert found[0][0] == "3"
    assert int(found[0][1]) > 0

    plain = start(slow, "--memory", "overflow")
    wait_for(lambda: on_host(slow, plain) == [1, 2], 30, "the first buffer to stay if nothing is known")
    plain.finish()
    again = start(slow, "--profile-file", path)
    wait_for(lambda: on_host(slow, again) == [0, 1], 30, "the most used buffer to be on the card")
    again.finish()
    assert again.err() == ""


def test_a_priority_overrides_the_profile(slow):
    path = write_profile(slow, "sublet profile 1", line(1, 0), line(2, 5), line(3, 9000))
    p = start(slow, "--profile-file", path)
    wait_for(lambda: on_host(slow, p) == [0, 1], 30, "the file to be followed")
    p.order("priority 1 1")
    wait_for(lambda: on_host(slow, p) == [0, 2], 30, "the program to be followed")
    p.order("priority 1 0")
    wait_for(lambda: on_host(slow, p) == [0, 1], 30, "the file to be followed again")
    p.finish()
    assert p.err() == ""


def test_a_buffer_of_no_use_leaves_before_an_unknown_one(slow):
    p = start(slow, "--profile-file", write_profile(slow, "sublet profile 1", line(1, 0)))
    wait_for(lambda: on_host(slow, p) == [0, 2], 30, "the next buffer to be on the card")
    p.finish()
    assert re.search(r"made.profile knows 1 of this program's \d buffers; the others go by size\n", p.err())


@pytest.mark.parametrize("lines, says", [
    (["sublet profile 1", line(3, 9000), "gpu=0 bytes=lots nth=1 saved_ns=7", "what", line(3, 1), line(2, 0), line(1, 0)],
     "made.profile, line 3: 'gpu=0 bytes=lots nth=1 saved_ns=7' is no buffer of a profile and counts for nothing (such lines: 3)"),
    (["something else"], "made.profile is no profile and is ignored: priority and size choose the buffers that leave the card"),
    (["sublet profile 2", line(3, 1)], "made.profile is a profile of another version and is ignored: priority and size choose the buffers that leave the card"),
    (["sublet profile 1", line(1, 9, size=3 * MIB)],
     "made.profile knows 0 of this program's 2 buffers; the others go by size"),
])
def test_a_profile_that_does_not_apply_gets_one_sentence(slow, lines, says):
    p = start(slow, "--profile-file", write_profile(slow, *lines))
    wait_for(lambda: len(on_host(slow, p)) == 2, 30, "one buffer to be on the card")
    p.order(f"cycle 1 {STEP}")
    p.finish()
    assert re.search(re.sub(r"\b2 buffers", r"\\d buffers", re.escape(says).replace(r"\ ", " ")), p.err()), p.err()
    assert p.err().count("\n") == 1


def test_a_program_that_ends_before_it_repeats_itself_says_so(slow):
    path = slow.path("job.profile")
    p = start(slow, "--profile", path)
    p.finish()
    assert p.err().endswith("no profile: the program ended before it was seen to repeat itself\n")
    assert not os.path.exists(path)


def test_a_program_that_ends_too_soon_leaves_no_file(slow):
    path = slow.path("job.profile")
    p = start(slow, "--profile", path)
    p.order(f"cycle 6 {STEP}")  # the library finds steps, but cannot try all buffers
    p.finish()
    assert p.err().endswith("no profile: the program ended before all of its buffers were tried\n")
    assert not os.path.exists(path)


def test_conflicting_options_are_refused(slow):
    def refused(*options, status=2, **env):
        done = slow.sublet("run", *options, "true", **env)
        assert done.returncode == status and len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr

    file = write_profile(slow, "sublet profile 1")
    assert "--profile goes with --memory overflow, not swap" in refused("--memory", "swap", "--profile", file)
    assert "--profile-file goes with --memory overflow, not managed" in refused("--profile-file", file, SUBLET_MEMORY="managed")
    assert "exclude each other" in refused("--profile", file, "--profile-file", file)
    assert "No such file" in refused("--profile-file", slow.path("none"), status=1)
    assert "No such file" in refused("--profile", slow.path("none/x"), status=1)
    show = ["sh", "-c", "echo $SUBLET_MEMORY $SUBLET_PROFILE $SUBLET_PROFILE_FILE"]
    assert slow.sublet("run", "--profile", file, *show).stdout == f"overflow {file}\n"
    assert slow.sublet("run", "--profile-file", file, *show).stdout == f"overflow {file}\n"
