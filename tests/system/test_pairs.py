"""sublet bench pairs, on the simulated card. Its figures say nothing of a GPU."""

import glob
import json
import os
import signal
import statistics
import time

from world import BUILD, wait_for

JOBS = ("fp32-part25-1ms", "int-part50-50us-gap10")
# Jobs that pause nearly all the time, so that long measurements take little of the processor.
PAUSING = ("fp32-t64-v4-part5-50us-gap99", "int-t64-v4-part5-50us-gap99")
ALL, ALL_PAUSING = ([[one, one], [one, other], [other, other]] for one, other in (JOBS, PAUSING))


def start(world, data, *options, jobs=JOBS):
    return world.start([os.path.join(BUILD, "sublet"), "bench", "pairs", "--sim=memory=64MiB", "-o", data, "--jobs", ",".join(jobs),
                        "--seconds", "0.05", *options], LD_LIBRARY_PATH=None, SUBLET_DIR=None, SIMCUDA_SESSION=None, SIMCUDA_MEMORY=None)


def start_pausing(world, data, *options, pausing=PAUSING):
    names = world.path("names")
    with open(names, "w", encoding="utf-8") as f:
        f.write("\n".join(pausing) + "\n")
    return start(world, data, "--within", names, *options)


def start_long(world, data, *options, **how):
    """Starts a bench that measures long enough to be disturbed after the first pair, and waits for that pair."""
    bench = start_pausing(world, data, "--seconds", "1", *options, **how)
    wait_for(lambda: os.path.exists(data) and '"pair"' in open(data, encoding="utf-8").read(), 60, "the first pair",
             report=bench.report)
    return bench


def read(data):
    with open(data, encoding="utf-8") as f:
        lines = [json.loads(line) for line in f]
    return lines[0], {line["job"]["name"]: line for line in lines if "job" in line}, [line for line in lines if "pair" in line]


def alone_of(data):
    with open(data, encoding="utf-8") as f:
        lines = [line for line in map(json.loads, f) if "alone" in line and "pair" not in line]
    return {key: [line["rate"] for line in lines if (line["alone"], line["way"]) == key] for key in ((l["alone"], l["way"]) for l in lines)}


def pairs_of(lines, way):
    return sorted(sorted(line["pair"]) for line in lines if line["way"] == way)


def worker(bench, name):
    """Returns the pid of a program that this bench runs."""
    with open(f"/proc/{bench.pid}/task/{bench.pid}/children", encoding="utf-8") as f:
        for pid in f.read().split():
            with open(f"/proc/{pid}/environ", "rb") as environment:
                if f"SUBLET_NAME={name}\0".encode() in environment.read():
                    return int(pid)
    return None


def leftovers(bench):
    found = glob.glob(f"/dev/shm/*pairs-{bench.pid}-*")
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                found += [path] if f"SIMCUDA_SESSION=pairs-{bench.pid}\0".encode() in f.read() and f"/{bench.pid}/" not in path else []
        except OSError:
            continue
    return found


def test_pairs_are_measured_in_every_way(world):
    data = world.path("pairs.jsonl")
    done = start(world, data).ok()
    first, jobs, pairs = read(data)
    assert first["sublet_pairs"] == 2 and first["gpu"] == "Simulated H200" and first["sms"] == 132 and first["idle_w"] >= 100
    assert sorted(jobs) == sorted(JOBS) and all(j["synthetic"] and int(j["loops"]) > 0 for j in jobs.values())
    assert {j["family"] for j in jobs.values()} == {"fp32", "int"}
    for name, line in jobs.items():
        job, kernel = line["job"], line["job"]["kernels"][0]
        assert job["steps"]["per_second"] > 0 and job["measured"]["sms"] == 132 and kernel["name"] == name.replace("-", "_")
        assert kernel["block"] == [256, 1, 1] and kernel["grid"] == [132 * (25 if "part25" in name else 50) // 100, 1, 1]
        assert kernel["seconds"] > 0 and line["rate"] > 0
    assert pairs_of(pairs, "shared") == ALL
    assert len(pairs_of(pairs, "sliced")) > 0 and len(pairs_of(pairs, "turns")) > 0
    # On a busy machine a pair may do next to nothing in its short window.
    assert all(len(p["progress"]) == 2 and min(p["progress"]) >= 0 for p in pairs) and max(max(p["progress"]) for p in pairs) > 0.05
    alone = alone_of(data)
    for p in pairs:  # alone is, of a shared pair, on half of the SMs; progress is of all
        for name, progress, rate, own in zip(p["pair"], p["progress"], p["rates"], p["alone"]):
            half = statistics.mean(alone[name, "shared"]) / statistics.mean(alone[name, "sliced"]) if p["way"] == "shared" else 1
            assert abs(progress - half * rate / own) < 0.1 * max(progress, 0.1)
    assert set(alone) == {(name, way) for name in JOBS for way in ("sliced", "shared")}
    assert "shared       3 " in done.out() and "beside" in done.out()
    wait_for(lambda: not leftovers(done), 10, "the files and processes of the bench to go")


def test_a_run_goes_on_where_the_last_one_was_cut_off(world):
    data = world.path("pairs.jsonl")
    start_pausing(world, data, "--ways", "shared").ok()
    with open(data, "rb+") as f:
        lines = f.read().splitlines(keepends=True)
        kept = b"".join(lines[:-2])
        f.truncate(len(kept) + 20)  # the last line but one is cut off, the last is missing
    again = False
    for _ in range(5):  # what does nothing in its short window, on a busy machine, is left to the next run
        done = start_pausing(world, data, "--ways", "shared").ok()
        with open(data, "rb") as f:
            assert f.read().startswith(kept)
        again = again or "for which they were measured again: they moved by " in done.out()
        _, jobs, pairs = read(data)
        if again and pairs_of(pairs, "shared") == ALL_PAUSING:
            break
    assert again and len(jobs) == 2 and pairs_of(pairs, "shared") == ALL_PAUSING


def test_a_file_of_something_else_is_refused_and_kept(world):
    data = world.path("other")
    for text in ("something else\n", '{"sublet_pairs":2,"gpu":"Another GPU"}\n'):
        with open(data, "w", encoding="utf-8") as f:
            f.write(text)
        done = start(world, data)
        assert done.wait() == 2 and "name another file" in done.err()
        with open(data, encoding="utf-8") as f:
            assert f.read() == text


def test_a_limit_ends_the_run_with_a_part_of_the_pairs(world):
    """On a busy machine even the first job may take longer than the limit: then the limit is doubled."""
    jobs, limit = {}, 3
    while not jobs:
        assert limit < 100
        data = world.path(f"pairs-{limit}.jsonl")
        start(world, data, "--limit", f"{limit}s", jobs=("fp32-part", "int", "special-occ", "fp64-part")).ok()
        first, jobs, pairs = read(data)
        limit *= 2
    assert first["sublet_pairs"] == 2 and len(pairs) < 21


def test_a_job_that_the_card_cannot_run_is_left_out(world):
    data = world.path("pairs.jsonl")
    done = start(world, data, "--ways", "sliced", jobs=("tensor-part25-500us", JOBS[0])).ok()
    _, jobs, pairs = read(data)
    assert list(jobs) == [JOBS[0]] and pairs_of(pairs, "sliced") == [ALL[0]]
    assert "tensor-part25-500us: failed cuModuleLoadData" in done.err()


def test_a_killed_program_costs_its_pair_and_no_other(world):
    data = world.path("pairs.jsonl")
    bench = start_long(world, data, "--ways", "sliced")
    os.kill(worker(bench, "pairs-kernels-sublet-2"), signal.SIGKILL)
    bench.ok()
    _, jobs, pairs = read(data)
    assert len(jobs) == 2 and len(pairs) >= 2 and "the program has ended" in bench.err(), bench.report()
    wait_for(lambda: not leftovers(bench), 10, "the files and processes of the bench to go")


def test_a_program_killed_between_two_pairs_costs_one_pair(world):
    """The bench stands still until the program has answered and waits for the next pair."""
    data = world.path("pairs.jsonl")
    bench = start_long(world, data, "--ways", "sliced", pausing=(*PAUSING, "fp64-t64-v4-part5-50us-gap99"))
    bench.send(signal.SIGSTOP)
    time.sleep(2)
    os.kill(worker(bench, "pairs-kernels-sublet-2"), signal.SIGKILL)
    bench.send(signal.SIGCONT)
    bench.ok()
    assert len(read(data)[2]) >= 5 and bench.err().count("the program has ended") == 1, bench.report()


def test_an_interrupted_run_keeps_its_pairs_and_leaves_no_process(world):
    data = world.path("pairs.jsonl")
    bench = start_long(world, data)
    bench.send(signal.SIGINT)
    assert bench.wait() == 128 + signal.SIGINT and "the same command goes on" in bench.err()
    assert len(read(data)[2]) > 0
    wait_for(lambda: not leftovers(bench), 10, "the files and processes of the bench to go")


def listed(world, *options):
    done = world.start([os.path.join(BUILD, "sublet"), "bench", "pairs", "--list", *options]).ok()
    return [line.split() for line in done.out().splitlines()]


def test_drawn_kernels_are_as_many_as_asked_and_the_seed_determines_them(world):
    jobs = listed(world, "--kernels", "100")
    assert len({name for name, _ in jobs}) == 100 and len({family for _, family in jobs}) == 12
    assert listed(world, "--kernels", "100") == jobs != listed(world, "--kernels", "100", "--seed", "2")
    assert listed(world, "--kernels", "50") == jobs[:50]


def test_jobs_for_all_pairs_are_of_all_families(world):
    jobs = listed(world, "--kernels", "100", "--within", "24")
    assert len(jobs) == 24 and len({family for _, family in jobs}) == 12


def test_a_sequence_of_kernels_and_a_drawn_kernel_are_measured_in_each_way(world):
    data, names = world.path("pairs.jsonl"), world.path("names")
    two = ["mix2-s225-n27", "fp32-t64-v4-part5-50us-gap90"]
    with open(names, "w", encoding="utf-8") as f:
        f.write("\n".join(two) + "\n")
    done = world.start([os.path.join(BUILD, "sublet"), "bench", "pairs", "--sim=memory=64MiB", "-o", data, "--within", names, "--seconds",
                        "0.05"], LD_LIBRARY_PATH=None, SUBLET_DIR=None, SIMCUDA_SESSION=None, SIMCUDA_MEMORY=None).ok()
    _, jobs, pairs = read(data)
    assert {name: job["family"] for name, job in jobs.items()} == dict(zip(two, ("mix", "fp32"))), done.report()
    assert len(jobs[two[0]]["job"]["kernels"]) == 2 and jobs[two[0]]["loops"].count(",") == 1
    for way in ("shared", "sliced", "turns"):
        assert pairs_of(pairs, way) == sorted(sorted((a, b)) for a, b in ((two[0], two[0]), two, (two[1], two[1])))
    with open(names, "a", encoding="utf-8") as f:
        f.write("fp32-no-such\n")
    done = start(world, data, "--within", names)
    assert done.wait() == 2 and "there is no job 'fp32-no-such'" in done.err()


MODELS = """#!/usr/bin/python3
import json, sys, time
jobs = {"plain-a": "0 0.002 graph", "serve-b": "5000 0.002 graph", "odd-c": "0 0.002 eager"}
if sys.argv[2] == "list":
    for job in jobs:
        print(job, "family-" + job[-1])
    sys.exit()
print("ready", flush=True)
for line in sys.stdin:
    with open(LOG, "a") as f:
        f.write(line)
    words = line.split()
    if words[0] == "job":
        print("job", jobs[words[1]], flush=True)
    elif words[0] == "run":
        time.sleep(max(0, int(words[2]) / 1e9 - time.monotonic()) + float(words[1]))
        print("ran", 100 * float(words[1]), flush=True)
    elif words[0] == "memory":
        print("memory 1048576", flush=True)
    elif words[0] == "describe":
        kernel = {"name": "k", "grid": [1, 1, 1], "block": [32, 1, 1], "registers": 16, "shared_bytes": 0, "local_bytes": 0,
                  "blocks_per_sm": 1, "occupancy": 0.1, "waves": 0.1, "launches_per_step": 1, "seconds": 0.001, "share": 1.0, "graph": True}
        with open(words[1], "w") as f:
            json.dump({"kernels": [kernel], "memory": {"peak_bytes": 1048576}, "launches_per_step": 1, "busy_s_per_step": 0.001,
                       "other_share": 0}, f)
        print("described", flush=True)
"""


def test_models_say_how_they_run_and_all_programs_of_a_server_get_its_rate(world):
    """The models are a script that only sleeps. The simulated driver is used as if it were a real one."""
    data, python, log = world.path("pairs.jsonl"), world.path("python"), world.path("log")
    with open(python, "w", encoding="utf-8") as f:
        f.write(MODELS.replace("LOG", repr(log)))
    os.chmod(python, 0o755)
    done = world.start([os.path.join(BUILD, "sublet"), "bench", "pairs", "--torch", "--python", python, "--jobs", "models", "--ways",
                        "sliced", "-o", data, "--seconds", "0.02"], SUBLET_DIR=None).ok()
    _, jobs, pairs = read(data)
    assert {name: job["eager"] for name, job in jobs.items()} == {"plain-a": False, "serve-b": False, "odd-c": True}, done.report()
    assert jobs["serve-b"]["loops"] == "5000" and jobs["serve-b"]["job"]["launch"]["graphs_per_second"] == 100
    assert "odd-c: no CUDA graph holds its steps" in done.err() and "plain-a: no CUDA" not in done.err()
    assert len(pairs) == 6 and all(abs(p - 1) < 1e-6 for pair in pairs for p in pair["progress"])
    with open(log, encoding="utf-8") as f:
        orders = [line.split() for line in f if line.startswith("job serve-b")]
    assert orders[0] == ["job", "serve-b", "0"] and len(orders) > 2 and all(order[2] == "5000" for order in orders[1:])


def test_wrong_options_are_refused(world):
    for options, said in ((("--kernels", "0"), "from 1 to 900, not '0'"), (("--partners", "x"), "not 'x'"),
                          (("--within", "3"), "there are 2 jobs"), (("--within", "/no/such"), "'/no/such'"),
                          (("--ways", "sharde"), "not 'sharde'"), (("--seconds", "0"), "not '0'"), (("--jobs", "no-such"), "'no-such'"),
                          (("--limit", "soon"), "not 'soon'"), (("more",), 'unknown argument "more"'), (("--torch",), "leave out --torch")):
        done = start(world, world.path("pairs.jsonl"), *options)
        assert done.wait() == 2 and said in done.err(), done.report()
