"""A process without libcuda (the hand) takes other processes' channels off the card, on the simulated driver. The probe
tests/programs/freeze/hand.c measured on an H200 (driver 580.159.04) what each row here expects."""

import json
import os

import pytest

from world import BUILD


@pytest.fixture
def hand(make_world):
    world = make_world()

    def run(case):
        p = world.start([os.path.join(BUILD, "programs", "freeze", "hand"), case]).ok()
        lines = [json.loads(line, object_pairs_hook=rows) for line in p.out().splitlines()]
        assert lines and not [line for line in lines if "error" in line], p.report()
        return [line for line in lines if "what" in line]

    return run


def rows(pairs):
    """A line as a dictionary. A name that stands several times, such as "thaw", becomes "thaw", "thaw 2", ..."""
    found = {}
    for name, value in pairs:
        n = 1 + sum(1 for known in found if known.split(" ")[0] == name)
        found[name if n == 1 else f"{name} {n}"] = tuple(value) if isinstance(value, list) else value
    return found


RUNS, STANDS = ("0", 1), ("0", 0)
MISSING_RUNS, MISSING_STANDS = ("0x21", 1), ("0x21", 0)


def test_disabling_is_a_count_of_each_channel(hand):
    lines = {line.pop("what"): line for line in hand("stale")}
    assert lines == {
        "failing disable": {"failing": MISSING_RUNS, "undo": RUNS, "freeze": STANDS, "thaw": RUNS, "again": RUNS},
        "failing disable without undo": {"failing": MISSING_RUNS, "freeze": STANDS, "thaw": STANDS, "again": RUNS},
        "failing disable while the owner has frozen": {"owner": STANDS, "failing": MISSING_STANDS, "undo": STANDS,
                                                       "owner_thaws": RUNS, "again": RUNS},
        "owner twice": {"owner": STANDS, "owner 2": STANDS, "thaw": STANDS, "thaw 2": RUNS, "thaw 3": RUNS,
                        "freeze": STANDS, "thaw 4": RUNS},
        "owner and hand": {"owner": STANDS, "hand": STANDS, "hand_thaws": STANDS, "owner_thaws": RUNS,
                           "hand 2": STANDS, "owner 2": STANDS, "owner_thaws 2": STANDS, "hand_thaws 2": RUNS},
        "two hands": {"hand": STANDS, "hand2": STANDS, "hand2_thaws": STANDS, "hand_thaws": RUNS},
        "too many thaws": {"thaw": RUNS, "thaw 2": RUNS, "thaw 3": RUNS, "freeze": STANDS, "owner": STANDS,
                           "hand_thaws": STANDS, "owner_thaws": RUNS},
        "failing enable": {"hand": STANDS, "failing": MISSING_RUNS, "thaw": RUNS, "freeze": STANDS, "thaw 2": RUNS},
    }


def test_names_of_dead_foreign_and_invented_objects_are_refused(hand):
    line = hand("names")[0]
    clients = [int(line[name], 16) for name in ("worker", "other", "hand", "hand2", "client", "client_after_free", "got")]
    assert clients == sorted(set(clients)) and clients[0] >= 0xc1d00001
    assert {name: line[name] for name in ("dead", "dead_enable", "invented_client", "invented_channel",
                                          "invented_channel_enable", "device_as_channel")} == dict.fromkeys(
        ("dead", "dead_enable", "invented_client", "invented_channel", "invented_channel_enable", "device_as_channel"), "0x21")
    assert line["empty"] == "0x3a"
    assert line["strict"] == line["free_foreign"] == "0x23"
    assert (line["counts"], line["counts_then"], line["counts_last"]) == (1, 1, 1)
    assert line["wanted_dead"] == "0"


def test_a_secret_object_proves_whose_a_client_is(hand):
    line = hand("names")[0]
    assert line["dup_no_client"] == line["dup_dead"] == "0x33"
    assert line["dup_missing"] == line["dup_freed"] == "0x57"
    assert line["dup_device"] == line["dup_secret"] == line["dup_frozen"] == "0x1f"
    assert line["secret"] == line["unsecret"] == line["secret_frozen"] == "0"


def test_channels_stay_off_when_the_process_that_disabled_them_ends(hand):
    *rounds, switching = hand("killed")
    for line in rounds:
        assert (line["freeze"], line["stood"], line["counts_1s_later"], line["counts_then"]) == ("0", 1, 0, 1)
        assert line.get("owner", line.get("another_hand")) == "0"
    assert switching["works_then"] == 40
    # Work may still run for a moment after a disabling that was killed, so the first look may find it running.
    assert switching["frozen_then"] <= switching["thaws"][0] <= 40
    assert switching["thaws"][1:] == (0, 0, 0)  # one enabling is always enough


def test_one_control_switches_channels_of_several_clients(hand):
    line = hand("pairs")[0]
    assert (line["status"], line["status_then"], line["eight_stand"], line["counts"]) == ("0", "0", 1, (1, 1))


def test_a_stopped_process_can_be_frozen_and_thawed(hand):
    frozen, thawed = hand("stopped")
    assert (frozen["freeze"], frozen["counts"], frozen["thaw"], frozen["counts_thawed"]) == ("0", 0, "0", 1)
    assert (thawed["thaw"], thawed["counts_stopped"], thawed["counts"]) == ("0", 0, 1)


def test_controls_need_few_system_calls(hand):
    line = hand("sandbox")[0]
    assert (line["status"], line["counts"], line["ended"], line["counts_thawed"]) == ("0", 0, 0, 1)
