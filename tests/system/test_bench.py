"""sublet bench, on the simulated card."""

import glob
import json
import os
import signal
import statistics
import xml.etree.ElementTree as xml

import pytest
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


PAGES = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "measurements")


@pytest.mark.parametrize("study", ("quanta", "grow"))
def test_the_page_of_the_simulator_shows_the_figures_of_its_json(study):
    with open(os.path.join(PAGES, f"bench-simulator-{study}.json"), encoding="utf-8") as f:
        found = json.load(f)
    with open(os.path.join(PAGES, "bench-simulator.md"), encoding="utf-8") as f:
        page = f.read()
    assert found["simulated"] and "simulat" in page.splitlines()[0] and "simulat" in page.splitlines()[2]
    for row in found["rows"]:
        assert row["results"] in ("reference", "equal") or row["note"] == "does not fit"
        if row["way"] == "sublet" and not row["mix"].startswith("small"):
            turns = "automatic turns" if row["quantum"] == "auto" else f"turns of {row['quantum']}"
            assert (f"| `{row['mix']}` | sublet, {turns} | {row['handoffs']} | {100 * statistics.median(row['waiting']):.0f} % |"
                    f" {row['moved_out'] / 2**20:,.0f} / {row['moved_in'] / 2**20:,.0f} | equal |") in page
        elif row["way"] == "managed":
            assert (f"| `{row['mix']}` | Unified Memory |  |  | {row['moved_out'] / 2**20:,.0f} / {row['moved_in'] / 2**20:,.0f} |"
                    " equal |") in page
        elif row["way"] == "sublet":  # the page says so in a sentence
            assert row["handoffs"] == 0 and row["moved_in"] == 0 and statistics.median(row["waiting"]) < 0.01


def test_an_interrupted_bench_leaves_nothing_behind(world):
    bench = start(world)
    wait_for(lambda: "alone, plain driver" in bench.err(), 60, "the first figure", report=bench.report)
    bench.send(signal.SIGINT)
    assert bench.wait() == 128 + signal.SIGINT and "nothing is left behind" in bench.err()
    wait_for(lambda: not leftovers(bench), 10, "the files and processes of the bench to go")
