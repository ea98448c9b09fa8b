"""The audit that ends every world (audit.py) must be able to fail."""

import json
import os

import audit
from world import MIB


def test_a_release_that_did_not_happen_is_seen(shared):
    """The driver keeps the memory, and the accounts do not show it."""
    p = shared.program("fill", "--bytes", "16MiB", "--block", "4MiB", SIMCUDA_FAIL="cuMemMap:2:2,cuMemRelease:1+:1").ok()
    wrong = shared.audit()
    assert wrong and f"process {p.pid}, GPU 0: created" in wrong[0], wrong
    os.unlink(shared.path("trace"))  # the audit at the end must not find the release that failed on purpose


def written(tmp_path, lines):
    """Writes lines of process 7 on GPU 0, unless a line names others."""
    path = tmp_path / "trace"
    path.write_text("".join(json.dumps({"pid": 7, "gpu": 0} | line) + "\n" for line in lines), encoding="ascii")
    return path


def wrong(tmp_path, *said, created=40 * MIB, imported=0):
    """Returns the audit's sentences for a process with these reports of the library. The driver's lines
    say that the process created that many bytes, and has 1 MiB of the driver's own."""
    lines = [{"event": "card", "bytes": created + MIB, "created": created, "imported": imported, "graphs": 0}]
    lines += [{"event": event, "bytes": n} for event, n in said]
    return audit.wrong(written(tmp_path, lines), [7])


def test_created_bytes_are_compared_to_the_byte(tmp_path):
    assert not wrong(tmp_path, ("created", 40 * MIB))
    assert len(wrong(tmp_path, ("created", 40 * MIB), ("created", 40 * MIB - 1), ("created", 40 * MIB + 1))) == 2


def test_on_card_may_differ_within_bounds(tmp_path):
    least, most = 41 * MIB - audit.LESS, 41 * MIB + audit.MORE
    assert not wrong(tmp_path, ("on_card", least), ("on_card", most))
    assert len(wrong(tmp_path, ("on_card", least - 1), ("on_card", most + 1))) == 2
    assert not wrong(tmp_path, ("on_card", most + 3 * MIB), imported=3 * MIB)


def test_accounts_that_are_never_reported_are_found(tmp_path):
    assert wrong(tmp_path) == ["process 7 never reported its accounts"]


def test_a_vanished_card_is_no_longer_compared(tmp_path):
    created = {"event": "created", "bytes": 5}
    path = written(tmp_path, [{"event": "lost", "gpu": 1}, created, created | {"gpu": 1}])
    assert [line.split(":")[0] for line in audit.wrong(path, [])] == ["line 2"]


def test_a_line_that_was_cut_short_hides_nothing(tmp_path):
    path = tmp_path / "trace"
    said = '{"pid":7,"event":"created","gpu":0,"bytes":5}\n'
    path.write_text(said[:20] + said + said[:-1][:-4], encoding="ascii")
    assert [(number, e["bytes"]) for number, e in audit.lines(path)] == [(1, 5)]
    assert len(audit.wrong(path, [])) == 1
