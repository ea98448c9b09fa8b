"""Programs that fit together run as if sublet were not there."""

import subprocess

import pytest

from world import wait_for


def run_pair(world, shared):
    args = ["--bytes", "40MiB", "--block", "4MiB", "--rounds", "4"]
    programs = [world.program("fill", *args, "--seed", seed, shared=shared) for seed in ("1", "2")]
    for p in programs:
        p.ok()
    return programs


def test_two_programs_that_fit_never_wait_and_move_no_memory(make_world):
    plain = make_world()
    run_pair(plain, shared=False)

    managed = make_world()
    managed.start_daemon(config={"quantum": "200ms"})
    args = ["--bytes", "40MiB", "--block", "4MiB", "--rounds", "4", "--until", managed.path("end")]
    programs = [managed.program("fill", *args, "--seed", seed) for seed in ("1", "2")]
    for p in programs:
        wait_for(lambda p=p: len(p.events("round")) >= 3 or not p.running(), 60, "three rounds")
    clients = managed.clients()
    for p in programs:
        c = clients[p.pid]
        assert c["handoffs"] == 0
        assert c["evicted"] == 0
        assert c["moved_out"] == 0 and c["moved_in"] == 0
    rounds_before = [len(p.events("round")) for p in programs]
    with open(managed.path("end"), "w", encoding="utf-8"):
        pass
    for p in programs:
        p.ok()
        managed.check_sums(p)
    assert all(n >= 3 for n in rounds_before)


@pytest.mark.freeze("off")  # the self-test of freezing launches kernels, too
def test_the_drivers_copy_counters_are_those_of_a_plain_run(make_world):
    counters = []
    for shared in (False, True):
        world = make_world()
        if shared:
            world.start_daemon(config={"quantum": "200ms"})
        run_pair(world, shared)
        counters.append({k: v for k, v in world.card().items()
                         if k in ("h2d_bytes", "d2h_bytes", "d2d_bytes", "h2d_copies", "d2h_copies", "d2d_copies",
                                  "launches", "memsets")})
    assert counters[0]["d2h_copies"] > 0
    assert counters[0] == counters[1]


def test_no_program_waits_when_all_fit(shared):
    programs = [shared.program("hold", "--bytes", "24MiB", "--block", "4MiB", stdin=subprocess.PIPE)
                for _ in range(4)]
    for p in programs:
        p.await_event("filled")
    grown = shared.clients()
    for _ in range(3):
        for p in programs:
            p.order("touch")
    now = shared.clients()
    for p in programs:
        # A program that grows asks the daemon, but no other program gives way for it. After that no call waits.
        assert now[p.pid]["handoffs"] == 0 and now[p.pid]["moved_out"] == 0, now
        assert now[p.pid]["waited_s"] == grown[p.pid]["waited_s"], (grown, now)
    for p in programs:
        p.finish()
