"""A client's description of a card binds only clients that give the same description, and NVML's description replaces
it."""

import os
import pathlib

import pytest

import others
from others import as_user
from test_daemon import CARD, Daemon, card, client, daemon, nvml_uuid, place, wait_for  # noqa: F401
from test_users import BOB
from wireclient import GIB, MIB, uuid


def attach(c, number, total, card_uuid):
    c.send("ATTACH", number, total_bytes=total, uuid=card_uuid)
    return c.expect("ATTACHED", "REFUSED")


def greeted(client, name="fake", **more):  # noqa: F811
    c = client(name, **more).connect()
    c.hello()
    return c


def test_a_false_description_of_a_card_limits_no_other_client(daemon, client):  # noqa: F811
    d = daemon()
    liar = client("liar").start(total=16 * MIB)
    assert liar.attached["visible_bytes"] < 16 * MIB
    honest = [client(f"honest {n}").start(total=8 * GIB) for n in range(2)]
    assert all(c.attached["visible_bytes"] > 7 * GIB for c in honest)
    assert [len(g["clients"]) for g in d.status()["gpus"]] == [1, 2], "clients with the same description share a card"


def test_a_set_capacity_overrides_every_clients_description(daemon, client):  # noqa: F811
    d = daemon(*CARD)
    client("liar").start(total=16 * MIB)
    assert client("honest").start(total=8 * GIB).attached["visible_bytes"] > 900 * MIB
    assert [len(g["clients"]) for g in d.status()["gpus"]] == [2]


def test_cards_without_clients_make_room_in_the_table(daemon, client):  # noqa: F811
    d = daemon()
    first = greeted(client)
    for number in range(16):
        assert attach(first, number, GIB, bytes([number] * 16))["type"] == "ATTACHED"
    other = greeted(client)
    assert attach(other, 0, GIB, uuid(0))["type"] == "REFUSED", "16 cards have clients"
    first.send("BYE")
    first.expect("closed")
    wait_for(lambda: sum(len(g["clients"]) for g in d.status()["gpus"]) == 0, what="its end")
    assert attach(other, 0, GIB, uuid(0))["type"] == "ATTACHED"


@others.needed
def test_one_user_cannot_fill_the_table_of_cards(daemon, client, place):  # noqa: F811
    os.chmod(place, 0o755)
    daemon("--shared")
    liar = greeted(client, "liar", prefix=as_user(BOB))
    answers = [attach(liar, number, GIB, bytes([number] * 16))["type"] for number in range(16)]
    assert answers == ["ATTACHED"] * 8 + ["REFUSED"] * 8
    second = greeted(client, "of the same user", prefix=as_user(BOB))
    assert attach(second, 0, GIB, uuid(1))["type"] == "REFUSED", "the limit is the user's, not the process's"
    assert attach(second, 1, GIB, bytes(16))["type"] == "ATTACHED", "a card that the user has already"
    assert client("honest").start(total=GIB).attached["visible_bytes"] > 900 * MIB


@pytest.fixture
def late_driver(card, daemon, tmp_path):  # noqa: F811
    """Returns a daemon, a function that loads the driver under it, and the UUID of the card that the driver shows
    then."""
    (tmp_path / "libsimcuda-there").touch()  # must exist, because the loader remembers missing directories
    d = daemon(**(card | {"LD_LIBRARY_PATH": str(tmp_path)}))
    assert d.status()["gpus"] == []
    other_place = tmp_path / "d"
    other_place.mkdir(mode=0o700)
    other = Daemon(str(other_place), **card)
    found = nvml_uuid(other)
    other.end()

    def load():
        for path in pathlib.Path(card["LD_LIBRARY_PATH"]).glob("lib*.so*"):
            (tmp_path / path.name).symlink_to(path)

    return d, load, found


def test_nvml_that_comes_later_replaces_the_clients_descriptions(late_driver, client):  # noqa: F811
    d, load, found = late_driver
    liar, teller = greeted(client, "liar"), greeted(client, "teller")
    assert attach(liar, 0, 16 * MIB, found)["visible_bytes"] < 16 * MIB
    assert attach(teller, 0, 200 * MIB, found)["visible_bytes"] > 150 * MIB, "nearly what NVML will say"
    assert len(d.status()["gpus"]) == 2
    load()
    liar.expect("closed")
    wait_for(lambda: len(d.status()["gpus"]) == 1 and d.gpu()["total"] == 256 * MIB, what="NVML's word")
    assert [c["pid"] for c in d.gpu()["clients"]] == [teller.process.pid]
    liar.connect()
    liar.hello()
    assert attach(liar, 0, 16 * MIB, found)["visible_bytes"] > 200 * MIB
    assert len(d.gpu()["clients"]) == 2
    teller.allocated = 0
    assert teller.ask(128 * MIB)
    assert teller.limit["visible_bytes"] > 200 * MIB


def test_nvml_finds_room_in_a_table_full_of_descriptions(late_driver, client):  # noqa: F811
    d, load, found = late_driver
    full = greeted(client)
    for number in range(16):
        assert attach(full, number, GIB, bytes([number] * 16))["type"] == "ATTACHED"
    load()
    full.expect("closed")
    full.connect()
    full.hello()
    assert attach(full, 0, 16 * MIB, found)["visible_bytes"] > 200 * MIB
