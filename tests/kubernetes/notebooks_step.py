"""The example of two notebooks, in the cluster: what a user does from `kubectl apply` to the cells. Only the image is
another: Debian's Jupyter, in which gpu.py of docs/examples uses the card without PyTorch."""

import os
import re
import shutil
import socket
import sys

from cluster import eventually, run
from course import DEPLOY, ROOT

ROUNDS = {"ada": 500, "alan": 501}  # of about 30 ms alone
PORTS = {"ada": 18888, "alan": 18889}
FILL = "import gpu, hashlib; print(gpu.fill(140))"
WORK = """
for i in range({rounds}):
    gpu.add(i * i % len(gpu.blocks))
print(hashlib.sha256(b"".join(gpu.read(n) for n in range(len(gpu.blocks)))).hexdigest())
"""


def two_notebooks(course):
    cluster = course.cluster
    folder = course.folder / "notebooks"
    shutil.copytree(course.manifests / "tests/kubernetes/notebooks", folder)
    shutil.copy(DEPLOY / "examples/two-notebooks.yaml", folder)
    cluster.kubectl("apply", "-k", folder)
    expected = {name: course.alone("/usr/bin/python3", "-c", f"{FILL}\n{WORK.format(rounds=ROUNDS[name])}",
                                   cwd=ROOT / "docs/examples").splitlines()[-1] for name in ROUNDS}
    books = {name: book(course, name) for name in ROUNDS}
    for b in books.values():
        assert b.run(FILL).ok().stdout == "140 MiB on the GPU\n"
    course.note("two notebooks of deploy/kubernetes/examples, in Debian's Jupyter: each has 140 MiB on one card of 256 MiB",
                "opened through kubectl port-forward")
    pods = [f"default/notebook-{name}" for name in ROUNDS]
    eventually("sublet status names both notebooks", lambda: course.clients_of(*pods))

    course.sublet("set", "quantum", "8s")  # so that a cell waits for more than 5 s, and says so
    cells = {name: b.run(WORK.format(rounds=ROUNDS[name])) for name, b in books.items()}
    said = eventually("the page's command says who waits", lambda: waits(cluster, pods))
    course.note("kubectl exec … sublet status, while both compute", said)
    for name, cell in cells.items():
        assert cell.done(300).reply["status"] == "ok" and cell.stdout == f"{expected[name]}\n", (cell.reply, cell.stdout)
        course.note(f"the cell of notebook-{name} ends with the result of a run alone", f"{expected[name][:16]}…")
    told = [said.group() for cell in cells.values() for said in [re.search(r"has waited .*", cell.stderr)] if said]
    assert told, [cell.stderr for cell in cells.values()]
    course.note("below a cell that waited", told[0])
    course.sublet("set", "quantum", "auto")
    for name in ROUNDS:
        cluster.end(f"forward-{name}")
    cluster.kubectl("delete", "-k", folder, "--wait=false")


def waits(cluster, pods):
    """Who waits for whom, as the page's command says it: the line of a program is followed by what it waits for."""
    text = cluster.kubectl("exec", "-n", "sublet-system", "ds/sublet-node", "-c", "daemon", "--", "sublet", "status",
                           "--daemon", "/run/sublet")
    rows = {pid: pod for pid, pod in re.findall(r"^ +(\d+) .*? (\S+/\S+) ", text, re.M) if pod in pods}
    found = re.search(r"^ +(\d+) .*\n +(?:.*, )?(waits (?:for|behind) pid (\d+))", text, re.M)
    if set(rows.values()) != set(pods) or not found:
        return None
    return f"{rows[found[1]]} {found[2]}, which is {rows[found[3]]}"


def book(course, name):
    """Opens a notebook as the page tells: a port, and the token that the log names."""
    sys.path.insert(0, str(ROOT / "tests/system"))
    os.environ["SUBLET_BUILD"] = str(course.build)
    from notebooks import Jupyter  # pylint: disable=import-outside-toplevel

    cluster, pod = course.cluster, f"notebook-{name}"
    token = eventually("the notebook's address", lambda: re.search(
        r"http://127.0.0.1:8888/\S*\?token=(\w+)", cluster.kubectl("logs", pod)).group(1), 120)
    cluster.begin(f"forward-{name}", cluster.bin / "kubectl", "--kubeconfig", cluster.run / "keys/admin", "port-forward",
                  f"pod/{pod}", f"{PORTS[name]}:8888")
    jupyter = Jupyter(lambda: socket.create_connection(("127.0.0.1", PORTS[name])), token)
    eventually("the notebook answers", lambda: jupyter.ask("GET", "/api/status"))
    return jupyter.notebook("Untitled.ipynb", "python3")
