"""Copies and fills that pass the end of an allocation get the driver's answer and change nothing."""

import os
import re

import world


NOT_SUPPORTED = 801  # a function that this driver lacks


def copies_and_fills():
    with open(os.path.join(world.ROOT, "src", "cuda", "cuda_api.def"), encoding="utf-8") as f:
        return set(re.findall(r"^CU\(\w+, (cuMem(?:cpy|set)\w*),", f.read(), re.M))


def test_copies_and_fills_past_an_allocation_get_the_drivers_answer(shared):
    plain = shared.program("past_end", shared=False).ok()
    ours = shared.program("past_end").ok()
    answers = plain.events("answer")
    assert {e["call"] for e in answers if e["call"].startswith("cuMem")} == copies_and_fills()
    # So that equal answers mean something: what must be refused is refused, and what is refused changes nothing.
    small = [e for e in answers if re.search(r"\ba\b|&", e["arguments"]) and e["result"] != NOT_SUPPORTED]
    assert {e["result"] for e in small if e["round"] == "within"} == {0}
    assert {e["result"] for e in small if e["round"] in ("past", "by one")} == {1}
    assert not [e for e in answers if e["result"] and e["changed"]]
    assert plain.events("large")[0]["changed"] == 0
    assert plain.result() == ours.result()
