"""sublet bench, on the simulated card."""

import glob
import json
import os
import signal
import xml.etree.ElementTree as xml

from world import BUILD, wait_for

# Two programs that do not fit the card together, with parts of a tenth of a second.
SMALL = ("--sim=memory=64MiB", "--mix", "big_50", "--duration", "200ms", "--quanta", "100ms")


def start(world, *options):
    return world.start([os.path.join(BUILD, "sublet"), "bench", *SMALL, *options], LD_LIBRARY_PATH=None, SUBLET_DIR=None,
                       SIMCUDA_SESSION=None, SIMCUDA_MEMORY=None)


def leftovers(bench):
    """Returns what processes and files of this bench there are. Others may run beside it."""
    session, found = f"bench-{bench.pid}", glob.glob(f"/dev/shm/*bench-{bench.pid}-*")
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                found += [path] if f"SIMCUDA_SESSION={session}\0".encode() in f.read() and f"/{bench.pid}/" not in path else []
        except OSError:
            continue
    return found


def test_bench_measures_every_way_with_equal_results(world):
    figures, picture = world.path("bench.json"), world.path("bench.svg")
    done = start(world, "--json", figures, "--plot", picture).ok()
    with open(figures, encoding="utf-8") as f:
        found = json.load(f)
    assert found["simulated"] and done.out().startswith("SIMULATED, no GPU's speed")
    rows = {r["way"]: r for r in found["rows"]}
    assert list(rows) == ["alone", "serial", "alone_sublet", "plain", "managed", "sublet"]
    assert rows["plain"]["note"] == "does not fit"
    assert {w: r["results"] for w, r in rows.items()} == {
        "alone": "reference", "serial": "reference", "alone_sublet": "equal", "plain": None, "managed": "equal", "sublet": "equal"}
    assert all(len(r["seconds"]) == 1 for w, r in rows.items() if w != "plain")
    missing = 2 * rows["sublet"]["bytes_each"] - found["settings"]["capacity"]  # so many bytes must move
    assert missing > 0 and rows["sublet"]["moved_out"] >= missing and rows["sublet"]["moved_in"] >= missing
    assert rows["alone_sublet"]["moved_out"] < 1024  # only the copies of the program itself
    bars = xml.parse(picture).getroot().findall("{http://www.w3.org/2000/svg}rect/{http://www.w3.org/2000/svg}title")
    assert len(bars) == 5
    wait_for(lambda: not leftovers(done), 10, "the files and processes of the bench to go")


def test_an_interrupted_bench_leaves_nothing_behind(world):
    bench = start(world)
    wait_for(lambda: "alone, plain driver" in bench.err(), 60, "the first figure", report=bench.report)
    bench.send(signal.SIGINT)
    assert bench.wait() == 128 + signal.SIGINT and "nothing is left behind" in bench.err()
    wait_for(lambda: not leftovers(bench), 10, "the files and processes of the bench to go")
