"""sublet train, predict and pair, as a person uses them, with pairs of a toy (toy_pairs.py): no figure here is of a
card."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest

import toy_pairs
from campaign import LONG
from trained import ONE_THREAD, PAIRING, TRAIN_S, once
from world import BUILD, GENEROUS_S

REPO = pathlib.Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(not os.path.exists(PAIRING), reason="sublet-pairing is not built (no libxgboost or LEMON)")
JOBS = 24
FEW_JOBS = 24 if LONG else 8  # of a model of which only the words and the sameness are looked at


def sublet(*args, home, program=os.path.join(BUILD, "sublet"), timeout=GENEROUS_S):
    env = {**(os.environ if LONG else ONE_THREAD), "HOME": str(home), "XDG_DATA_HOME": str(home / "data")}
    return subprocess.run([program, *map(str, args)], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=timeout)


def answer(*args, home, timeout=GENEROUS_S):
    done = sublet(*args, "--json", home=home, timeout=timeout)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def put(folder, name, job):
    path = folder / f"{name}.json"
    path.write_text(json.dumps(job | {"name": name}))
    return path


def train_and_evaluate(home):
    """Fills a home: a trained model, the data that it was trained on, what training says, and job files of other jobs."""
    toy_pairs.write(home / "data.jsonl", JOBS)
    said = answer("train", "--evaluate", home / "data.jsonl", home=home, timeout=TRAIN_S)
    (home / "said.json").write_text(json.dumps(said))
    (home / "jobs").mkdir()
    for _, job in toy_pairs.jobs(30, seed=5):
        (home / "jobs" / f"{job['name']}.json").write_text(json.dumps(job))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """The home, for all of pytest's workers. Tests only read in it."""
    return once(tmp_path_factory, "pairing", train_and_evaluate)


def jobs_of(home):
    return sorted((home / "jobs").iterdir())


def test_train_writes_the_model_that_predict_finds_by_the_cards_name(home):
    model = json.loads((home / "data" / "sublet" / "models" / "toy-gpu.json").read_text())
    assert model["idle_w"] == toy_pairs.IDLE_W
    assert model["gpu"] == "Toy GPU" and set(model["ways"]) == {"sliced", "shared"}
    for way in model["ways"].values():
        assert way["pairs"] == JOBS * (JOBS - 1) / 2
        assert 0 < way["errors"]["mean"] < 0.15
        assert 0.5 < way["interval"][0] < 1 < way["interval"][1] < 2


def test_a_prediction_is_near_to_what_the_toy_does(home, tmp_path):
    near, made = 0, toy_pairs.jobs(12, seed=9)
    rng = toy_pairs.random.Random(3)
    for (_, a), (_, b) in zip(made[::2], made[1::2]):
        paths = put(tmp_path, "one", a), put(tmp_path, "other", b)
        said = answer("predict", "--way", "sliced,shared", *paths, home=home)
        assert set(said["ways"]) == {"sliced", "shared"} and said["fits"]
        for way, told in said["ways"].items():
            for real, progress in zip(toy_pairs.together(a, b, way, rng), told["progress"]):
                assert progress["interval"][0] <= progress["value"] <= progress["interval"][1]
                near += abs(progress["value"] / real - 1) < 0.2
    assert near >= 20, near  # of 24


def test_each_pair_is_judged_by_trees_that_saw_neither_family(home):
    ways = json.loads((home / "data" / "sublet" / "models" / "toy-gpu.json").read_text())["ways"]
    told = json.loads((home / "said.json").read_text())["evaluation"]
    for way in ("sliced", "shared"):
        assert told[way]["both_unseen"]["n"] == JOBS * (JOBS - 1) and told[way]["one_unseen"] is None
        # The errors of the model are those of the same predictions, and trees know the toy better than formulae of cards.
        assert told[way]["both_unseen"]["mean"] == pytest.approx(ways[way]["errors"]["mean"], rel=0.05)
        assert told[way]["both_unseen"]["mean"] < told[way]["both_unseen_formulae"]["mean"]
    bounds_are_kept(told["batches"])


def test_the_same_data_give_the_same_model_and_jobs_that_were_not_steady_are_named(tmp_path):
    data, models = tmp_path / "data.jsonl", []
    jobs = toy_pairs.write(data, FEW_JOBS, ways=("sliced",))
    with open(data, "a", encoding="utf-8") as f:
        for job, rate in ((jobs[0], 10), (jobs[1], 10), (jobs[0], 10.5), (jobs[1], 12.5)):
            print(json.dumps({"alone": job["name"], "way": "shared", "rate": rate, "time": 1764300000}), file=f)
    for name in ("one.json", "other.json"):
        done = sublet("train", "-o", tmp_path / name, data, home=tmp_path, timeout=TRAIN_S)
        assert done.returncode == 0, done.stderr
        assert "model of Toy GPU" in done.stdout
        assert (f"1 of 2 jobs were not steady: their rates alone moved by more than 10 %\n  {jobs[1]['name']}: 25 %\n"
                in done.stdout)
        models.append(json.loads((tmp_path / name).read_text()))
        del models[-1]["time"]
    assert models[0] == models[1]


@pytest.mark.parametrize("options, idle_w", [([], 0), (["--energy"], toy_pairs.IDLE_W), (["--energy=90"], 90)])
def test_energy_is_weighed_by_the_cards_idle_power_that_was_measured_or_is_said(home, options, idle_w):
    assert answer("pair", *options, *jobs_of(home)[:4], home=home)["idle_w"] == idle_w


def test_predict_says_in_plain_words_how_and_why(home):
    a, b = jobs_of(home)[:2]
    done = sublet("predict", a, b, home=home)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{a.stem} beside {b.stem}, ")
    assert "both together" in done.stdout and "\nWhy: " in done.stdout


def test_jobs_that_do_not_fit_together_take_turns_and_need_no_model(home, tmp_path):
    a, b = jobs_of(home)[:2]
    large = [json.loads(p.read_text()) for p in (a, b)]
    for job in large:
        job["memory"]["peak_bytes"] = 90 << 30
    paths = [put(tmp_path, f"large-{i}", job) for i, job in enumerate(large)]
    said = answer("predict", *paths, home=tmp_path)
    assert said["way"] == "turns" and not said["fits"] and not said["ways"]["turns"]["by_model"]
    assert said["turns"]["missing_bytes"] == pytest.approx((180 - 148) * 2**30, rel=0.01)
    assert "memory is short: the card lacks 32 GiB for both" in said["ways"]["turns"]["why"]
    done = sublet("predict", "--way", "shared", *paths, home=home)
    assert done.returncode == 1 and "do not fit the card together, and --way does not allow turns" in done.stderr


def test_jobs_of_one_script_are_told_apart_by_their_files(tmp_path):
    """Also by long names, names of other alphabets, and files in two folders. One file that is given twice is one job."""
    _, job = toy_pairs.jobs(1, seed=9)[0]
    (tmp_path / "x").mkdir()

    def names(*files, name):
        for file in files:
            (tmp_path / file).write_text(json.dumps(job | {"name": name}))
        made = answer("pair", *(tmp_path / file for file in files), "--way", "turns", "--qos", 0.01, "--gpus", 9, home=tmp_path)
        return sorted(made["alone"])

    assert names("a.json", "b.json", name="train.py") == ["train.py (a.json)", "train.py (b.json)"]
    assert names("a.json", "a.json", name="train.py") == ["train.py", "train.py"]
    a, b, c = names("a.json", "b.json", "x/b.json", name="train.py")
    assert a == "train.py (a.json)" and sorted(n.endswith("/x/b.json)") for n in (b, c)) == [False, True]
    long = "ж" * 47
    assert names("a.json", f"{'f' * 200}.json", name=long) == sorted([f"{'ж' * 43} (a.json)", f"{'ж' * 22} ({'f' * 43}.json)"])
    done = sublet("predict", tmp_path / "a.json", tmp_path / f"{'f' * 200}.json", "--way", "turns", home=tmp_path)
    assert done.returncode == 0 and " (a.json) beside ж" in done.stdout, done


def test_pair_gives_each_job_one_place_and_keeps_to_the_gpus(home):
    paths = jobs_of(home)
    names = sorted(p.stem for p in paths)
    for gpus, qos in ((None, 0.7), (20, 0.5), (10, 0.5), (30, 0.7)):
        said = answer("pair", "--qos", qos, *(["--gpus", gpus] if gpus else []), *paths, home=home)
        placed = [name for pair in said["pairs"] for name in pair["jobs"]] + said["alone"] + said["waiting"]
        assert sorted(placed) == names
        assert all(progress >= qos for pair in said["pairs"] for progress in pair["progress"])
        if gpus:
            assert len(said["pairs"]) + len(said["alone"]) <= gpus
        if gpus == 30:
            assert not said["pairs"]
        if gpus == 10:
            assert said["waiting"] and said["throughput"] > 10
    text = sublet("pair", "--qos", "0.5", *paths, home=home)
    assert text.returncode == 0 and "GPU  job" in text.stdout


def bounds_are_kept(batches):
    """The oracle is the measure of the others, and sublet with its margins hardly ever breaks a bound."""
    rows = {(row["bound"], row["policy"]): row for row in batches["table"]}
    assert len(rows) == 3 * 8 and batches["n"] == 200
    for bound in (0.5, 0.7, 0.8):
        oracle = rows[bound, "oracle"]
        assert oracle.get("kept", 1) == 1 and oracle["of_oracle_work"] == 1
        assert rows[bound, "random"]["kept"] <= 1
        assert rows[bound, "sublet, margins"].get("kept", 1) > 0.9


FIVE = ("stream", "gemm", "resnet", "hash", "loader")


@pytest.mark.parametrize("held_out, sparse", [((*FIVE, "decode", "sort"), 2)] + [(FIVE, 0)] * LONG)
def test_train_compares_with_simpler_rules_on_families_that_it_has_not_seen(home, tmp_path, held_out, sparse):
    """Some of the jobs that are held out have no pair: with them, most pairs of a batch could not be made. Batches are of
    the others, whose pairs were all measured."""
    data = tmp_path / "data.jsonl"
    lines = [json.loads(line) for line in (home / "data.jsonl").read_text().splitlines()]
    names = [line["job"]["name"] for line in lines if "job" in line]
    without = [name for name in names if name.split("-")[0] in held_out][:sparse]
    with open(data, "w", encoding="utf-8") as f:
        for line in lines:
            if not ("pair" in line and set(line["pair"]) & set(without)):
                print(json.dumps(line), file=f)
    said = answer("train", "--evaluate", "--held-out", ",".join(held_out), "-o", tmp_path / "e.json", data, home=tmp_path,
                  timeout=TRAIN_S)["evaluation"]
    seen = JOBS - JOBS // len(toy_pairs.FAMILIES) * len(held_out)
    unseen = JOBS - seen - sparse
    pairs = unseen * (unseen - 1) // 2
    assert set(said) == {"sliced", "shared", "batches", "chosen_way"}
    for way in ("sliced", "shared"):
        assert said[way]["both_unseen"]["n"] == 2 * pairs and said[way]["one_unseen"]["n"] == 2 * unseen * seen
        assert 0 < said[way]["both_unseen"]["mean"] < 0.5
    bounds_are_kept(said["batches"])
    assert said["chosen_way"]["pairs"] == said["batches"]["pairs_measured"] == said["batches"]["pairs_possible"] == pairs
    assert said["batches"]["jobs"] == unseen * 3 // 4
    assert said["chosen_way"]["mean"] > 1.1  # the toy's MPS is better than its slices


def models():
    """The models that come with sublet, with the data of the same card."""
    cards = {}
    for path in (REPO / "docs" / "measurements").glob("*.jsonl"):
        with open(path, encoding="utf-8") as f:
            head = json.loads(f.readline())
        if "sublet_pairs" in head:
            cards.setdefault(head["gpu"], path)
    found = [(path, json.loads(path.read_text())["gpu"]) for path in sorted((REPO / "deploy" / "models").glob("*.json"))]
    return [pytest.param(path, cards[gpu], id=path.stem) for path, gpu in found]


@pytest.mark.parametrize("model, data", models())
def test_a_model_that_comes_with_sublet_knows_its_own_data(model, data, tmp_path):
    """The features and formulae are still those that it was trained with."""
    lines = [json.loads(line) for line in data.read_text().splitlines()]
    jobs = {line["job"]["name"]: line["job"] for line in lines if "job" in line}
    near, pairs = 0, [line for line in lines if "pair" in line][::45]
    for pair in pairs:
        paths = [put(tmp_path, name, jobs[name]) for name in pair["pair"]]
        said = answer("predict", "--way", pair["way"], *paths, home=tmp_path)["ways"][pair["way"]]
        assert said["by_model"]
        near += all(abs(p["value"] / m - 1) < 0.25 for p, m in zip(said["progress"], pair["progress"]))
    assert {p["way"] for p in pairs} == {"sliced", "shared"} and near >= 0.9 * len(pairs)


def test_a_model_or_a_job_of_another_card_is_refused(home, tmp_path):
    a, b = jobs_of(home)[:2]
    job = json.loads(b.read_text())
    job["measured"] = job["measured"] | {"gpu": "Other GPU"}
    other = put(tmp_path, "other", job)
    done = sublet("predict", a, other, home=home)
    assert done.returncode == 1 and "measure both on one kind of card" in done.stderr
    model = home / "data" / "sublet" / "models" / "toy-gpu.json"
    done = sublet("predict", "--model", model, other, other, home=home)
    assert done.returncode == 1
    assert "the model is of Toy GPU, and job other was measured on Other GPU: measure it on that card" in done.stderr
    done = sublet("predict", other, other, home=home)
    assert done.returncode == 1 and "there is no model for Other GPU: sublet bench pairs measures pairs" in done.stderr


@pytest.mark.parametrize("args, status, sentence", [
    (["predict", "a.json"], 2, "predict takes two job files"),
    (["predict", "--way", "fast", "a.json", "b.json"], 2, "--way is sliced, shared or turns, several of them with commas, or auto, not 'fast'"),
    (["predict", "nowhere.json", "b.json"], 1, "nowhere.json: cannot read it: No such file or directory"),
    (["predict", "--sing"], 2, 'unknown option "--sing": sublet predict --help lists what there is'),
    (["pair"], 2, "pair needs job files"),
    (["pair", "--qos", "2", "a.json"], 2, "--qos is a part from 0.01 to 0.99, not '2'"),
    (["pair", "--gpus", "0", "a.json"], 2, "--gpus is a number from 1 to 65535, not '0'"),
    (["pair", "--bus", "x", "a.json"], 2, "--bus is a rate such as 20GB/s, not 'x'"),
    (["pair", "--host-memory", "x", "a.json"], 2, "--host-memory is a size such as 80GiB, not 'x'"),
    (["pair", "--quantum", "x", "a.json"], 2, "--quantum is a duration such as 2s, not 'x'"),
    (["train"], 2, "train needs data files, which sublet bench pairs writes"),
    (["train", "--held-out", "a", "data"], 2, "--held-out goes with --evaluate"),
    (["train", "nowhere"], 1, "nowhere: cannot read it: No such file or directory"),
    (["train", os.devnull], 1, "/dev/null: line 0: this is no data file: it is empty"),
])
def test_a_wrong_command_line_is_answered_with_one_sentence(args, status, sentence, tmp_path):
    done = sublet(*args, home=tmp_path)
    assert (done.returncode, done.stderr) == (status, f"sublet: {sentence}\n")


def test_too_few_pairs_are_no_model(home, tmp_path):
    lines = (home / "data.jsonl").read_text().splitlines(keepends=True)
    few = tmp_path / "few.jsonl"
    few.write_text("".join(lines[:1 + JOBS + 10]))
    done = sublet("train", few, home=tmp_path)
    assert done.returncode == 1
    assert done.stderr == ("sliced: 10 pairs, and 20 are the least; it is left out\n"
                           "sublet: no way has the 20 measured pairs that training takes\n")


def test_without_the_package_the_command_line_says_what_to_install(tmp_path):
    program = tmp_path / "sublet"
    shutil.copy(os.path.join(BUILD, "sublet"), program)
    done = sublet("predict", "a.json", "b.json", program=str(program), home=tmp_path)
    assert (done.returncode, done.stderr) == (
        1, "sublet: predict needs sublet-pairing, which is not installed: install the package sublet-pairing\n")
