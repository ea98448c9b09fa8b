"""Faults at seeded points: clients and daemons killed and stopped in the middle of anything (faults.py says what a seed
means). FAULT_SEEDS=500 runs more of them, FAULT_SEED=17 one alone."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from faults import Scenario

AT_ONCE = 8  # most of a scenario is waiting
SEEDS = ([int(os.environ["FAULT_SEED"])] if os.environ.get("FAULT_SEED") else
         list(range(int(os.environ.get("FAULT_SEEDS", "60")))))


@pytest.fixture(scope="module")
def scenarios(request):
    """All that were asked for, running several at a time from the first test on."""
    seeds = [item.callspec.params["seed"] for item in request.session.items
             if item.name.startswith("test_matrix[")]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {seed: pool.submit(Scenario(seed).run) for seed in seeds}


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed{seed}")
def test_matrix(scenarios, seed):
    scenarios[seed].result()
