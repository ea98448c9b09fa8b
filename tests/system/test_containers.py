"""A uid in a container is no proof: root of the container can take any."""

import json
import os
import sys

import pytest

import others
import wireclient
from others import as_user
from test_users import ALICE, BOB, GROUP, a_client_of_each, ask, machine, shared_daemon  # noqa: F401 (fixtures)
from world import NO_PID_NAMESPACES

pytestmark = others.needed

ASK_EACH = """
import json, socket, sys
for path, order in json.loads(sys.argv[1]):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(path)
        s.settimeout(60)
        s.sendall(json.dumps(order).encode() + b"\\n")
        print(s.makefile().readline(), end="")
"""
CONTAINER = ["unshare", "--pid", "--fork", "--kill-child"]


def clients_in(status):
    return [row for gpu in status["gpus"] for row in gpu["clients"]]


def test_a_uid_that_root_of_a_container_has_taken_has_no_rights_outside(machine, shared_daemon):  # noqa: F811
    """Neither the uid of a daemon that is not root's, nor that of a user with programs."""
    directory = shared_daemon("--capacity", "1GiB", "--host-memory", "1GiB")
    control, status = (os.path.join(directory, name) for name in ("control.sock", "status.sock"))
    if machine.run_as(0, [*CONTAINER, "true"]).returncode:
        pytest.skip(NO_PID_NAMESPACES)

    def answers(uid, path, *orders):
        done = machine.run_as(0, [*CONTAINER, *as_user(uid, gid=GROUP), sys.executable, "-c", ASK_EACH,
                                  json.dumps([(path, order) for order in orders])])
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    for answer in answers(ALICE, control, {"order": "set", "grace": "60s"}, {"order": "stop"}):
        assert "both outside a container" in answer["error"]
    inside = wireclient.Client(directory, "inside", prefix=[*CONTAINER, *as_user(BOB, gid=GROUP)])
    with a_client_of_each(directory):
        try:
            inside.connect()
            inside.hello()
            inside.attach()
            rows = {row["name"]: row for row in clients_in(machine.status_of(directory))}
            pid = rows[f"of-{BOB}"]["pid"]
            *refused, seen = answers(BOB, status, *({"order": what, "pid": pid} for what in ("get", "pause", "resume", "evict")),
                                     {"order": "set_program", "pid": pid, "weight": "2"}, {"order": "status"})
            for answer in refused:
                assert f"process {pid} is another user's" in answer["error"]
            assert not {f"of-{BOB}", f"of-{ALICE}"} & {row["name"] for row in clients_in(seen)}
            # The user outside could signal the program in the container, too.
            paused = ask(machine, BOB, status, {"order": "pause", "pid": rows["inside"]["pid"]})
            assert json.loads(paused.stdout) == {"name": "inside", "already": False}
        finally:
            inside.end()
