"""Memory that other processes have open (CUDA IPC). It works under sublet as on the plain driver, also if the programs
exceed the card, if either process ends first, and if the daemon dies."""

import os
import signal
import subprocess

import pytest

from world import MIB, is_stopped, wait_for

pytestmark = pytest.mark.freeze("park")  # without a second context the accounts equal the card's figures

# The largest charge of a program that has only its context and room for a few blocks; the number of blocks varies.
LEAST = 12 * MIB


def share(world, mib, *more, block="4MiB", private=0, shared=True, **env):
    p = world.program("share", "--bytes", f"{int(mib * 1024)}KiB", "--block", block, "--count", str(private), *more,
                      shared=shared, stdin=subprocess.PIPE, **env)
    p.await_event("filled")
    return p


def pair(world, mib, *more, block="4MiB", private=(0, 0), shared=True):
    """Returns an exporter that has exported its handles, and a program that can import them."""
    exporter = share(world, mib, *more, block=block, private=private[0], shared=shared)
    importer = share(world, 1, block=block, private=private[1], shared=shared)
    exporter.order("export " + world.path("handles"))
    return exporter, importer


def opened(world, *args, **settings):
    exporter, importer = pair(world, *args, **settings)
    assert importer.order("import " + world.path("handles"))["result"] == 0
    return exporter, importer


def unevictable(world, p):
    return world.clients()[p.pid]["unevictable"]


def await_unevictable(world, p, least, most, what):
    wait_for(lambda: least <= unevictable(world, p) <= most, 20, what)


def end(world, *programs):
    """Ends the programs, and checks that ledger and card are empty."""
    for p in programs:
        if p.running():
            p.finish()
    wait_for(lambda: not world.clients(), 20, "the ledger to be empty")
    wait_for(lambda: world.card()["used"] == 0, 20, "the card to be empty")


def exchange(exporter, importer):
    said = []
    for n in range(0, 6, 2):
        said.append(importer.order(f"theirs {n}")["sum"])
        said.append(exporter.order(f"own {n + 1}")["sum"])
    said.append(importer.order("again")["result"])
    importer.order("close")
    said.append(importer.order("theirs 6")["sum"])
    importer.order("close")
    exporter.order("own 7")
    return said


@pytest.mark.parametrize("block", ["4MiB", "64KiB", "1000KiB"])
def test_shared_memory_has_equal_contents_with_and_without_sublet(shared, block):
    plain = exchange(*opened(shared, 8, block=block, shared=False))
    assert exchange(*opened(shared, 8, block=block)) == plain
    assert len(set(plain)) == len(plain)


def test_shared_memory_is_charged_once_and_stays_on_the_card(shared):
    exporter, importer = pair(shared, 32)
    before = unevictable(shared, exporter), unevictable(shared, importer)
    assert importer.order("import " + shared.path("handles"))["result"] == 0
    await_unevictable(shared, exporter, before[0] + 32 * MIB, before[0] + 32 * MIB, "the exporter to be charged")
    c = shared.clients()
    assert c[exporter.pid]["charge"] <= 36 * MIB and c[importer.pid]["charge"] <= 4 * MIB
    # Another program needs nearly all of the card: the open memory must stay.
    hold = shared.program("hold", "--bytes", "88MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    hold.await_event("filled")
    hold.order("touch")
    assert shared.clients()[exporter.pid]["backed"] >= 32 * MIB
    importer.order("theirs 0")
    hold.order("touch")
    assert 80 * MIB <= importer.order("info")["free"] <= 90 * MIB  # of other programs' memory only the open part is in the way
    importer.order("close")
    await_unevictable(shared, exporter, 0, before[0], "the charge to go")
    end(shared, exporter, importer, hold)


def test_two_importers_share_one_exporters_memory(shared):
    exporter, first = opened(shared, 8)
    second = share(shared, 1)
    assert second.order("import " + shared.path("handles"))["result"] == 0
    first.order("theirs 0")
    second.order("theirs 1")
    exporter.order("own 2")
    assert shared.clients()[exporter.pid]["charge"] <= 12 * MIB
    first.send(signal.SIGKILL)
    first.wait()
    second.order("theirs 3")
    exporter.order("free")
    await_unevictable(shared, second, 8 * MIB, 10 * MIB, "the remaining importer to be charged")
    second.order("theirs 4")
    second.order("close")
    end(shared, exporter, second)


def test_shared_memory_stays_right_when_programs_exceed_the_card(shared):
    exporter, importer = opened(shared, 24, private=(14, 18))
    for n in range(0, 8, 2):
        importer.order("touch")
        importer.order(f"theirs {n}")
        exporter.order("touch")
        exporter.order(f"own {n + 1}")
    assert shared.handoffs() >= 4
    importer.order("close")
    end(shared, exporter, importer)


def test_evicted_memory_is_restored_when_another_process_opens_it(shared):
    exporter, importer = pair(shared, 48, private=(0, 8))
    hold = shared.program("hold", "--bytes", "64MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    hold.await_event("filled")
    importer.order("touch")
    hold.order("touch")
    wait_for(lambda: shared.clients()[exporter.pid]["backed"] < 40 * MIB, 20, "the exporter to be moved out")
    assert importer.order("import " + shared.path("handles"))["result"] == 0
    # The exporter answers the importer first, then tells the daemon.
    wait_for(lambda: shared.clients()[exporter.pid]["backed"] >= 48 * MIB, 20, "the daemon to hear of it")
    importer.order("theirs 0")
    exporter.order("own 1")
    hold.order("touch")
    end(shared, exporter, importer, hold)


def test_an_import_of_many_pieces_is_contiguous(shared):
    exporter, importer = opened(shared, 80, block="80MiB")
    importer.order("theirs 0")
    exporter.order("own 1")
    importer.order("theirs 2")
    end(shared, exporter, importer)


def test_an_import_that_would_keep_others_from_running_is_refused(shared):
    hold = shared.program("hold", "--bytes", "96MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    hold.await_event("filled")
    exporter, importer = pair(shared, 48)
    assert importer.order("import " + shared.path("handles"))["result"] == 2
    exporter.order("own 0")
    hold.order("touch")
    end(shared, exporter, importer, hold)


def test_an_importer_keeps_memory_that_the_exporter_frees(shared):
    exporter, importer = opened(shared, 32)
    importer.order("theirs 0")
    exporter.order("free")
    await_unevictable(shared, importer, 32 * MIB, 34 * MIB, "the importer to be charged")
    wait_for(lambda: shared.clients()[exporter.pid]["charge"] <= LEAST, 20, "the exporter's charge to go")
    importer.order("theirs 1")
    importer.order("close")
    end(shared, exporter, importer)


def test_memory_freed_during_an_import_is_charged_to_no_program(shared):
    exporter = share(shared, 72, block="72MiB")  # nine pieces, and a message carries eight
    exporter.order("export " + shared.path("handles"))
    importer = share(shared, 1, SIMCUDA_FAIL="cuMemImportFromShareableHandle:5:stop")
    before = importer.order("info")["free"]
    importer.process.stdin.write(b"import " + shared.path("handles").encode() + b"\n")
    importer.process.stdin.flush()
    wait_for(lambda: is_stopped(importer.pid), 20, "the importer to be stopped half way")
    exporter.order("free")
    exporter.order("info")
    importer.send(signal.SIGCONT)
    wait_for(lambda: len(importer.events("done")) == 2, 20, "the importer's answer")
    assert importer.events("done")[1]["result"] == 400
    assert importer.order("info")["free"] == before  # the failed import is not charged, and gives back nothing else
    wait_for(lambda: shared.clients()[exporter.pid]["charge"] <= LEAST, 20, "the exporter's charge to go")
    end(shared, exporter, importer)


def test_a_handle_dies_with_its_memory_also_during_a_capture(shared):
    exporter, importer = pair(shared, 0.0625, block="64KiB", private=(1, 1))
    exporter.order("renew")
    assert importer.order("import " + shared.path("handles"))["result"] == 400
    end(shared, exporter, importer)


def listened_to(p):
    """Returns the descriptors registered with the agent's epoll."""
    fds = f"/proc/{p.pid}/fd"
    found = []
    for fd in os.listdir(fds):
        try:
            if os.readlink(f"{fds}/{fd}") == "anon_inode:[eventpoll]":
                with open(f"/proc/{p.pid}/fdinfo/{fd}", encoding="ascii") as f:
                    found += [line for line in f if line.startswith("tfd:")]
        except FileNotFoundError:
            pass  # closed since the listing
    return found


def test_the_agent_does_not_listen_to_a_connection_that_a_child_keeps_open(shared):
    exporter, importer = opened(shared, 8)
    importer.order("fork")
    assert len(listened_to(importer)) == 1
    importer.order("close")
    assert not listened_to(importer)
    exporter.finish()
    end(shared, importer)


def test_an_importer_survives_its_exporter(shared):
    exporter, importer = opened(shared, 32)
    importer.order("theirs 0")
    exporter.send(signal.SIGKILL)
    exporter.wait()
    await_unevictable(shared, importer, 32 * MIB, 34 * MIB, "the importer to be charged")
    wait_for(lambda: exporter.pid not in shared.clients(), 20, "the exporter to be forgotten")
    assert shared.status()["gpus"][0]["charged"] >= 32 * MIB
    importer.order("theirs 1")
    assert importer.order("again")["result"] == 0
    importer.order("close")
    importer.order("theirs 2")
    importer.order("close")
    end(shared, importer)


def test_an_import_from_a_dead_exporter_fails(shared):
    exporter, importer = pair(shared, 8)
    exporter.send(signal.SIGKILL)
    exporter.wait()
    assert importer.order("import " + shared.path("handles"))["result"] in (205, 400)  # the error of event or memory
    end(shared, importer)


def test_an_exporter_survives_its_importer(shared):
    exporter, importer = opened(shared, 48)
    importer.order("theirs 0")
    importer.send(signal.SIGKILL)
    importer.wait()
    await_unevictable(shared, exporter, 0, 8 * MIB, "the exporter's memory to be movable again")
    hold = shared.program("hold", "--bytes", "112MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    hold.await_event("filled")
    assert shared.clients()[exporter.pid]["backed"] < 48 * MIB
    exporter.order("own 1")
    end(shared, exporter, hold)


def test_shared_memory_survives_the_daemon(world):
    world.start_daemon(config={"quantum": "200ms"})
    exporter, importer = opened(world, 16)
    late = share(world, 1)
    importer.order("theirs 0")
    world.daemon.send(signal.SIGKILL)
    world.daemon.wait()
    exporter.order("own 1")  # processes with a connection need no daemon
    importer.order("theirs 2")
    world.start_daemon(config={"quantum": "200ms"})
    assert late.order("import " + world.path("handles"))["result"] == 0
    late.order("theirs 3")
    await_unevictable(world, exporter, 16 * MIB, 18 * MIB, "the exporter to be charged again")
    late.order("close")
    importer.order("close")
    end(world, exporter, importer, late)


def test_handed_over_memory_can_be_exported(shared):
    """Another process handed this memory over as descriptors, and the driver does not export imported memory."""
    exporter = share(shared, 48, block="8MiB", private=0)
    hold = shared.program("hold", "--bytes", "96MiB", "--block", "8MiB", stdin=subprocess.PIPE)
    hold.await_event("filled")
    hold.order("touch")
    exporter.order("own 0")
    hold.order("touch")
    exporter.order("own 1")
    hold.finish()
    wait_for(lambda: hold.pid not in shared.clients(), 60, "its room")
    importer = share(shared, 1)
    exporter.order("export " + shared.path("handles"))
    assert importer.order("import " + shared.path("handles"))["result"] == 0
    importer.order("theirs 2")
    exporter.order("own 3")
    end(shared, exporter, importer)


def test_exporting_without_a_daemon_fails(world):
    p = share(world, 4, SUBLET_DIR="/nonexistent/sublet")
    p.process.stdin.write(b"export " + world.path("handles").encode() + b"\n")
    p.process.stdin.flush()
    assert p.wait() == 4
    assert "CUDA IPC needs a daemon" in p.err()
