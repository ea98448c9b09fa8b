"""Memory that a process shares with another of its GPUs, or with a device other than a GPU."""

import subprocess

import pytest

from test_ipc import await_unevictable, end, opened, share
from world import MIB, wait_for

ARGS = ["peers", "--bytes", "16MiB", "--block", "4MiB", "--seed", "5"]


@pytest.fixture
def two(make_world):
    w = make_world(gpus=2)
    w.start_daemon(config={"quantum": "200ms"})
    return w


def test_two_gpus_of_one_process_share_memory(two):
    plain = two.program(*ARGS, shared=False).ok()
    assert two.program(*ARGS).ok().result() == plain.result()


def test_host_memory_is_mapped_for_both_gpus(two):
    """Some memory is on the host. When the second GPU was first used, there was memory on the host and on the card."""
    plain = two.program(*ARGS, shared=False).ok()
    p = two.program(*ARGS, SUBLET_MEMORY="overflow", SUBLET_KEEP="24MiB")
    assert p.ok().result() == plain.result()


def test_restored_memory_is_mapped_for_both_gpus(two):
    """In each round another program needs the first GPU: restored memory is mapped for the second GPU again."""
    plain = two.program(*ARGS, shared=False).ok()
    hold = two.program("hold", "--bytes", "112MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    hold.await_event("filled")
    p = two.program(*ARGS, "--until", two.path("end"))
    p.await_event("filled")
    for n in range(1, 4):
        hold.order("touch")
        rounds = len(p.events("round"))
        wait_for(lambda: len(p.events("round")) > rounds + 1, 60, "rounds")
    with open(two.path("end"), "w", encoding="ascii"):
        pass
    p.ok()
    assert two.handoffs() >= 4
    shown = [e["sums"] for e in plain.events("round")]
    assert [e["sums"] for e in p.events("round")][:len(shown)] == shown
    hold.finish()


@pytest.mark.parametrize("sublet", [False, True], ids=["plain", "sublet"])
def test_memory_opened_before_the_second_gpu_is_usable_on_it(two, sublet):
    exporter, importer = opened(two, 4, shared=sublet)
    assert importer.order("second")["result"] == 0
    importer.order("close")
    end(two, importer, exporter)


@pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures
@pytest.mark.parametrize("how", ["device", "tokens"])
def test_memory_shared_with_a_device_stays_until_it_is_freed(shared, how):
    p = share(shared, 32)
    assert p.order(how)["result"] == 0
    await_unevictable(shared, p, 32 * MIB, 34 * MIB, "the memory to be shared")
    hold = shared.program("hold", "--bytes", "80MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    hold.await_event("filled")
    hold.order("touch")
    assert shared.clients()[p.pid]["backed"] >= 32 * MIB
    p.order("own 0")
    p.order("free")
    await_unevictable(shared, p, 0, 2 * MIB, "the shared bytes to go with the memory")
    end(shared, p, hold)
