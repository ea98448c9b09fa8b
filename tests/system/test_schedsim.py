"""build/schedsim: its command line, its report, and the workload files that are shipped."""

import os
import re
import subprocess

import pytest

BUILD = os.environ.get("SUBLET_BUILD", os.path.join(os.path.dirname(__file__), "..", "..", "build"))
SOURCE = os.path.join(os.path.dirname(__file__), "..", "..")
WORKLOADS = os.path.join(SOURCE, "tools", "schedsim", "workloads")


def schedsim(*arguments):
    return subprocess.run([os.path.join(BUILD, "schedsim"), *arguments], capture_output=True, text=True, timeout=120)


def write(tmp_path, text):
    path = tmp_path / "workload.txt"
    path.write_text(text)
    return str(path)


def test_the_report_has_the_makespan_and_the_waits(tmp_path):
    done = schedsim("--clients", "--check",
                    write(tmp_path, "card 80GiB\nbus 25GB/s\njob a\n count 2\n memory 60GiB\n repeat 5\n gpu 10s\n"))
    assert done.returncode == 0 and done.stderr == ""
    assert "a model" in done.stdout.lower() and "not a measurement" in done.stdout
    makespan = float(re.search(r"makespan +([\d.]+) s", done.stdout).group(1))
    handoffs = int(re.search(r"hand-offs +(\d+)", done.stdout).group(1))
    assert 100 < makespan < 120 and handoffs >= 1
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith("a ")]
    assert len(rows) == 3  # one row for the job, and two for its clients
    assert float(rows[0][-1]) >= float(rows[0][-2]) >= float(rows[0][-3])  # max, p99, p50


@pytest.mark.parametrize("name", sorted(set(os.listdir(WORKLOADS)) - {"ten-days.txt"}))
def test_a_shipped_workload_keeps_every_invariant(name, tmp_path):
    with open(os.path.join(WORKLOADS, name), encoding="utf-8") as f:
        text = re.sub(r"^until .*$", "until 30min", f.read(), flags=re.M)
    done = schedsim("--check", write(tmp_path, text))
    assert done.returncode == 0, done.stderr
    assert int(re.search(r"events +(\d+)", done.stdout).group(1)) > 100


def test_a_day_of_ten_thousand_clients_is_simulated_in_full(tmp_path):
    with open(os.path.join(WORKLOADS, "ten-days.txt"), encoding="utf-8") as f:
        text = f.read().replace("until 10d", "until 1d")
    assert sum(int(n) for n in re.findall(r"^ *count (\d+)", text, flags=re.M)) == 10000
    done = schedsim(write(tmp_path, text))
    assert done.returncode == 0
    assert 86000 < float(re.search(r"makespan +([\d.]+) s", done.stdout).group(1)) <= 86400


@pytest.mark.parametrize("text, sentence", [
    ("card 80GiB\nbus 25GB/s\njob a\n gpu 1s\n colour red\n", "line 5: there is no word 'colour'"),
    ("card 80GiB\nbus 25GB/s\njob a\n gpu soon\n", "line 4: 'soon' is no duration such as 20s"),
    ("", "line 0: the file ends and says no card"),
    ("card 80GiB\nbus 25GB/s\njob a\n repeat forever\n gpu 1s\n",
     "line 3: job 'a' repeats for ever, and no 'until' ends it"),
])
def test_bad_input_gets_one_sentence_that_names_the_line(tmp_path, text, sentence):
    path = write(tmp_path, text)
    done = schedsim(path)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == f"schedsim: {path}: {sentence}\n"


def test_bytes_that_are_no_text_are_an_error(tmp_path):
    path = tmp_path / "noise"
    path.write_bytes(bytes(range(256)) * 40)
    done = schedsim(str(path))
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1


TWO = "card 60GB\ncontext 0\nbus 10GB/s\njob a\n memory 40GB\n gpu 10s\njob b\n memory 40GB\n gpu 40s\n"


@pytest.mark.parametrize("system, words, makespan, wait", [
    ("fcfs", "first come, first served", 50, 10),
    ("turns", "exclusive turns of 30 s, page faults", 50, 10),
    ("sublet", "the scheduler's decisions", None, None),
])
def test_each_system_gives_the_same_report_and_says_that_it_is_a_model(tmp_path, system, words, makespan, wait):
    done = schedsim("--as", system, "--bursts", write(tmp_path, TWO))
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.splitlines()[0] == f"A model of a 55.9 GiB card, not a measurement: what follows from {words}."
    for name in ("makespan", "lost", "wasted", "bursts", "burst p50, p99", "slowdown p50, p99", "share error"):
        assert re.search(rf"^{name} +[\d.]+", done.stdout, flags=re.M), name
    bursts = [line.split(",") for line in done.stdout.splitlines() if line.startswith("burst,")][1:]
    assert [b[1] for b in bursts] == ["a", "b"]
    if makespan:
        assert float(re.search(r"makespan +([\d.]+) s", done.stdout).group(1)) == makespan
        assert float(bursts[1][4]) == wait  # until a has gone, and its memory with it


def test_a_trace_brings_the_jobs_to_a_card(tmp_path):
    card = write(tmp_path, "card 80GiB\nbus 25GB/s\n")
    trace = tmp_path / "trace.csv"
    trace.write_text("a,1,0,10,2,1\nb,2,0,10,1,0\na,1,0,10,2,0\n")
    done = schedsim("--check", "--trace", str(trace), card)
    assert done.returncode == 0 and done.stderr == ""
    assert float(re.search(r"makespan +([\d.]+) s", done.stdout).group(1)) == 6  # a and b share 0 to 2 s
    assert schedsim(card).stderr == f"schedsim: {card}: line 2: the file ends and has no job\n"


def test_a_bad_trace_gets_one_sentence_that_names_the_file_and_the_line(tmp_path):
    trace = tmp_path / "trace.csv"
    trace.write_text("a,1,0,10,2,1\na,1,0,10,soon,1\n")
    done = schedsim("--trace", str(trace), write(tmp_path, "card 80GiB\nbus 25GB/s\n"))
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr == f"schedsim: {trace}: line 2: 'soon' is no burst_s: a number from 0 to 1000000000\n"
    trace.write_bytes(bytes(range(256)) * 40)
    done = schedsim("--trace", str(trace), write(tmp_path, "card 80GiB\nbus 25GB/s\n"))
    assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_a_wrong_command_line_is_refused(tmp_path):
    assert schedsim().returncode == 2
    done = schedsim("--as", "lottery", "x")
    assert done.returncode == 2 and done.stderr == "schedsim: 'lottery' is no system: sublet, fcfs or turns\n"
    done = schedsim("--trace")
    assert done.returncode == 2 and done.stderr == "schedsim: '--trace' needs a value\n"
    done = schedsim("--trace", str(tmp_path / "nothing"), write(tmp_path, "card 80GiB\nbus 25GB/s\n"))
    assert done.returncode == 1 and "No such file" in done.stderr
    done = schedsim("--fast", "x")
    assert done.returncode == 2 and "'--fast' is not understood" in done.stderr
    done = schedsim(str(tmp_path / "nothing"))
    assert done.returncode == 1 and "No such file" in done.stderr
    assert "usage" in schedsim("--help").stdout
