"""Models of the toy card (toy_pairs.py), which one of pytest's workers trains for all of them."""

import fcntl
import os
import shutil
import subprocess

import toy_pairs
from world import BUILD, GENEROUS_S

PAIRING = os.path.join(BUILD, "sublet-pairing")
TRAIN_S = 10 * GENEROUS_S  # on a busy machine
# Threads of OpenMP wait for each other after each tree. With few rows that costs more than it gains, most of all where
# other programs have the processors.
ONE_THREAD = {**os.environ, "OMP_THREAD_LIMIT": "1"}


def once(tmp_path_factory, name, make):
    """Returns a folder of this name in which one worker has run make(folder). The others wait for it."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder, unfinished = base / name, base / f"{name}.unfinished"
    with open(base / f"{name}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            make(unfinished)
            unfinished.rename(folder)
    return folder


def train(folder):
    """Trains of 16 jobs in the driver's slices. Returns the path of the model, and all jobs of the toy by name."""
    data, model = folder / "data.jsonl", folder / "model.json"
    if not model.exists():
        toy_pairs.write(data, 16, ways=("sliced",))
        subprocess.run([PAIRING, "train", data, "-o", model], check=True, capture_output=True, env=ONE_THREAD, timeout=TRAIN_S)
    return model, {j["name"]: j for _, j in toy_pairs.jobs(24)}


def small(tmp_path_factory):
    """Returns what train() returns."""
    return train(once(tmp_path_factory, "small-model", train))
