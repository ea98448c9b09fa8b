"""`sublet doctor` is the judge: for each trouble of the table, the library, `sublet status` and `sublet doctor` agree, and
the first line of doctor names the trouble and the next step. docs/operations.md has a table with the same names."""

import dataclasses
import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
from collections.abc import Callable

import pytest

from others import BUILD, as_user
from test_places import NOWHERE, REMEDY, SUBLET, Place, pytestmark  # noqa: F401
from test_refused import NUMBERS
from test_users import ALICE
from world import ROOT, is_stopped, wait_for

LIBRARY = os.path.join(BUILD, "libsublet.so")
TMP = f"/tmp/sublet-{ALICE}"


class Machine(Place):
    """A machine of one user, where troubles are made. said: what the library is expected to say comes from these programs.
    asking: the variables of the shell in which status and doctor are asked."""

    def __init__(self):
        super().__init__()
        self.said, self.asking, self.served = [], {}, False
        self.env["SIMCUDA_MEMORY"] = "256MiB"

    def runs(self, *argv, **env):
        """Starts a command of the user."""
        p = self.start([*self.enter, *as_user(ALICE), *argv], stdin=subprocess.PIPE, **NOWHERE | {"SUBLET_QUIET": None} | env)
        self.said.append(p)
        return p

    def program(self, mib=8, before=(), **env):  # pylint: disable=arguments-differ
        """Starts a program that holds memory."""
        return self.runs(*before, os.path.join(BUILD, "programs", "hold"), "--bytes", f"{mib}MiB", "--block", "4MiB",
                         **{"LD_PRELOAD": LIBRARY} | env)

    def filled(self, *args, **env):
        p = self.program(*args, **env)
        p.await_event("filled")
        return p

    def private(self, folder):
        """Starts a private daemon."""
        self.served = True
        subprocess.run([*self.enter, *as_user(ALICE), os.path.join(BUILD, "subletd"), "--private", "--dir", folder],
                       env=self.env, check=True, timeout=60)

    def serve(self):
        """Starts the machine's daemon, unless one serves the user already."""
        if not self.served:
            self.served = True
            self.daemon = self.system()

    def ask(self, command):
        return self.say(ALICE, command, **self.asking)


# ---- how each trouble is made ----


def two_daemons(m):
    """The first program began before its user logged in."""
    m.served = True
    m.filled()
    runtime = m.login(ALICE)
    m.private(f"{runtime}/sublet")
    m.filled()


def two_daemons_by_name(m):
    m.served = True
    m.filled(SUBLET_DIR=m.odd("own"))
    m.filled()


def dead(m):
    m.serve()
    m.daemon.send(signal.SIGKILL)
    m.daemon.process.wait(30)
    m.program()


def left(m):
    os.makedirs(m.inside("/run/sublet/conf.d"), 0o755)
    with open(m.inside("/run/sublet/lock"), "w", encoding="ascii"):
        pass
    m.filled()


def seen(m, p):
    """Waits until the daemon has looked at the card, as it does after somebody has asked for the status."""
    wait_for(lambda: f"pid {p.pid}, " in m.ask("status").stdout, 20, "the daemon to see the program", report=p.report)


def refused(m):
    """A sandbox forbids the program to make sockets."""
    m.serve()
    p = m.runs(os.path.join(BUILD, "programs", "refused"), "--how", "context", "--until", f"errno:1:{NUMBERS['socket'][0]}",
               LD_PRELOAD=LIBRARY)
    p.await_event("end")
    seen(m, p)


def stripped(m):
    m.serve()
    p = m.program(16, [SUBLET, "run", "--", "sh", "-c", 'LD_PRELOAD= exec "$@"', "sh"], LD_PRELOAD=None)
    p.await_event("filled")
    if m.ask("status").returncode == 0:
        seen(m, p)


def stopped(m):
    """The one that waits has been evicted, and wants its turn again. It takes the rest of the card."""
    m.serve()
    waits = m.filled(140)
    holder = m.filled(140)
    holder.send(signal.SIGSTOP)
    wait_for(lambda: is_stopped(holder.pid), 20, "the program to be stopped")
    waits.process.stdin.write(b"touch\n")
    waits.process.stdin.flush()
    m.said = [waits]


MUSL = r"""
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
int main(int argc, char **argv)
{
        for (int i = 1; i < argc; i++)
                if (mmap(0, 4096, PROT_READ, MAP_PRIVATE, open(argv[i], O_RDONLY), 0) == MAP_FAILED)
                        return 1;
        puts("{\"event\":\"filled\"}");
        fflush(stdout);
        return getchar() == EOF ? 0 : 1;
}
"""


def musl(m):
    """The program maps the driver and the simulator's session: no driver for musl is needed to see what is told."""
    if not shutil.which("musl-gcc"):
        pytest.skip("there is no musl-gcc")
    m.serve()
    m.filled()
    with open(m.path("musl.c"), "w", encoding="ascii") as f:
        f.write(MUSL)
    subprocess.run(["musl-gcc", m.path("musl.c"), "-o", m.path("musl")], check=True)
    p = m.runs(SUBLET, "run", "--", m.path("musl"), os.path.join(BUILD, "sim", "libcuda.so.1"),
               *glob.glob(f"/dev/shm/simcuda-*-{m.session}-*"))
    p.await_event("filled")


def no_driver(m):
    m.asking["LD_LIBRARY_PATH"] = m.path("empty")
    m.program(LD_LIBRARY_PATH=m.path("empty"))


def malformed_cap(m):
    m.asking["SUBLET_MEMORY_CAP"] = "20"
    m.program(SUBLET_MEMORY_CAP="20")


def malformed_share(m):
    m.asking["SUBLET_SHARE"] = "0.2-0.8"
    m.program(SUBLET_SHARE="0.2-0.8")


def misspelt(m):
    m.asking["SUBLET_FREZE"] = "off"
    m.program(SUBLET_FREZE="off")


def nowhere(m):
    m.asking["SUBLET_DIR"] = m.path("shared")
    os.mkdir(m.path("shared"), 0o755)
    m.program(SUBLET_DIR=m.path("shared"))


def write_configuration(m, text):
    os.makedirs(m.path("etc/sublet"))
    with open(m.path("etc/sublet/subletd.conf"), "w", encoding="utf-8") as f:
        f.write(text)
    subprocess.run([*m.enter, "mount", "--bind", m.path("etc"), "/etc"], check=True)


def required(m):
    write_configuration(m, "[daemon]\nrequire = yes\n")
    dead(m)


def misconfigured(m):
    """No last good configuration is on disk."""
    write_configuration(m, "[daemon]\nquantm = 1s\n")
    subprocess.run([*m.enter, "mount", "-t", "tmpfs", "none", "/var/lib"], check=True)
    m.serve()
    m.program()


# ---- the table ----


@dataclasses.dataclass
class Row:
    """What is said. {names} of places are filled in. library: the sentence of a program; None: no program says anything.
    status: the sentence; empty: it cannot know.
    first: of doctor's first line, the trouble and the next step. exit: doctor's."""
    make: Callable[[Machine], None]
    library: str | None
    status: str
    first: tuple[str, str] | None
    exit: int


REQUIRED = REMEDY.replace("`sudo rm -r /run/sublet`", "take `require` out of /etc/sublet/subletd.conf")
TABLE = {
    "Two daemons of one user": Row(
        two_daemons, None, f"two daemons of yours are at work, and their programs take no turns with each other: `sublet stop --daemon {TMP}`",
        (f"your programs are under two daemons: those in {TMP} and those in /run/user/{ALICE}/sublet take no turns",
         f"`sublet stop --daemon {TMP}`"), 0),
    "Two daemons, one named by SUBLET_DIR": Row(
        two_daemons_by_name, None, f"your programs are under two daemons, in {TMP} and in {{root}}/own, and take no turns",
        (f"your programs are under two daemons: those in {{root}}/own and those in {TMP} take no turns",
         "start all of your programs with the same SUBLET_DIR, or all without it"), 0),
    "The machine's daemon is gone": Row(
        dead, f"no daemon in /run/sublet (Connection refused): this program runs without sharing; {REMEDY}",
        f"no subletd is running at /run/sublet; {REMEDY}",
        ("no daemon answers in /run/sublet (Connection refused): programs wait 5 s for it, then run without sharing", REMEDY), 1),
    "The machine's daemon has left its folder": Row(left, None, " hold ", None, 0),
    "A limit or a sandbox forbids a system call": Row(
        refused, "this program runs without sharing: socket failed (Operation not permitted); a sandbox (seccomp) may forbid it",
        "    others: pid {pid}, refused of ", ("process {pid} (refused) of ", "raise ulimit -n or -u, or allow the call"), 0),
    "A program has lost LD_PRELOAD": Row(
        stripped, None, "    others: pid {pid}, hold of ",
        ("process {pid} (hold) of ", 'must keep what is there: LD_PRELOAD="FILE:$LD_PRELOAD"'), 0),
    "A program is stopped": Row(
        stopped, "(hold) holds it and is stopped (Ctrl-Z): `fg`, or `kill -CONT ", "stopped (Ctrl-Z): `fg`, or `kill -CONT ",
        ("is stopped, and holds ", "stopped (Ctrl-Z): `fg`, or `kill -CONT "), 0),
    "A program is built for musl": Row(
        musl, "is built for the C library musl, so it starts without libsublet.so", " hold ",
        ("process {pid} (musl) of ", "use a build for glibc"), 0),
    "There is no driver": Row(
        no_driver, "libcuda.so.1: cannot open shared object file", "no subletd is running at ",
        ("no NVIDIA driver: libcuda.so.1", "install the driver of your GPU"), 1),
    "A memory cap is malformed": Row(
        malformed_cap, "SUBLET_MEMORY_CAP is a size such as 20GiB, not '20'", "",
        ("SUBLET_MEMORY_CAP is a size such as 20GiB, not '20'", "correct it, or unset SUBLET_MEMORY_CAP"), 1),
    "A maximum share is malformed": Row(
        malformed_share, "SUBLET_SHARE is MIN:MAX such as 0.2:0.8, not '0.2-0.8'", "",
        ("SUBLET_SHARE is MIN:MAX such as 0.2:0.8, not '0.2-0.8'", "correct it, or unset SUBLET_SHARE"), 1),
    "A variable is misspelt": Row(
        misspelt, "SUBLET_FREZE is no variable of sublet, and does nothing: did you mean SUBLET_FREEZE?", "",
        ("SUBLET_FREZE is set, and is no variable of sublet", "did you mean SUBLET_FREEZE?"), 0),
    "No daemon is where SUBLET_DIR points": Row(
        nowhere, "no daemon in {root}/shared (No such file or directory): this program runs without sharing",
        "no subletd is running at {root}/shared; start one: subletd --dir {root}/shared",
        ("no daemon answers in {root}/shared (No such file or directory): programs run without sharing",
         "start one: subletd --dir {root}/shared"), 1),
    "The owner requires sharing, and no daemon answers": Row(
        required, "no daemon answers in /run/sublet, and the owner of this machine requires sharing (/etc/sublet/subletd.conf)",
        f"no subletd is running at /run/sublet; {REQUIRED}",
        ("no daemon answers in /run/sublet (Connection refused): programs wait until one does, because the owner of this machine "
         "requires sharing (/etc/sublet/subletd.conf)", REQUIRED), 1),
    "The configuration has a mistake": Row(
        misconfigured, "the configuration of its daemon has a mistake, and no program gets a turn until that is corrected",
        'configuration: /etc/sublet/subletd.conf:2: unknown key "quantm"',
        ('the daemon gives no program a turn, because of its configuration: /etc/sublet/subletd.conf:2: unknown key "quantm"',
         "correct it, then: sublet reload"), 1),
}

# Pairs that can meet; the first one stands in doctor's first line. These cannot:
# - no driver, with a program that uses the GPU (a limit, LD_PRELOAD, stopped, musl): there is none
# - the machine's daemon is gone, with what only a daemon knows: a program that a limit keeps away, or one that is stopped
# - the machine's daemon is gone, with its folder left: the socket tells one from the other
# - no turns because of the configuration, with a program that has had one (stopped)
# - the machine's daemon, gone or not, with two private ones: programs find it first. One of SUBLET_DIR may run beside it.
PAIRS = [
    ("The machine's daemon is gone", "A program has lost LD_PRELOAD"),
    ("The machine's daemon is gone", "A variable is misspelt"),
    ("The machine's daemon is gone", "A memory cap is malformed"),
    ("The owner requires sharing, and no daemon answers", "A program has lost LD_PRELOAD"),
    ("No daemon is where SUBLET_DIR points", "A memory cap is malformed"),
    ("The configuration has a mistake", "A memory cap is malformed"),
    ("The configuration has a mistake", "A variable is misspelt"),
    ("There is no driver", "The machine's daemon is gone"),
    ("There is no driver", "A memory cap is malformed"),
    ("A memory cap is malformed", "A variable is misspelt"),
    ("A memory cap is malformed", "A program has lost LD_PRELOAD"),
    ("Two daemons of one user", "A variable is misspelt"),
    ("Two daemons, one named by SUBLET_DIR", "A program has lost LD_PRELOAD"),
    ("A program is stopped", "A program has lost LD_PRELOAD"),
    ("A program is stopped", "A limit or a sandbox forbids a system call"),
    ("A program is stopped", "A program is built for musl"),
]


@pytest.fixture
def m():
    assert not os.path.lexists(TMP), f"{TMP} is in the way"
    made = Machine()
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(TMP, ignore_errors=True)


def fill_in(m, text):
    return text.replace("{root}", m.root).replace("{pid}", str(m.said[-1].pid if m.said else 0))


def judged(m):
    done = m.ask("doctor")
    assert done.stderr == "", done.stderr
    return done.stdout.splitlines(), done.returncode


@pytest.mark.parametrize("name", TABLE)
def test_library_status_and_doctor_agree_about_each_trouble(m, name):
    row = TABLE[name]
    row.make(m)
    lines, code = judged(m)
    asked = m.ask("status")
    assert fill_in(m, row.status) in asked.stdout + asked.stderr, asked
    said = "\n".join(lines)
    if row.first:
        trouble, step = lines[0].split(" -> ")
        assert fill_in(m, row.first[0]) in trouble and fill_in(m, row.first[1]) in step, said
    else:
        assert "warn " not in said, said
    assert code == row.exit and lines[0].startswith("FAIL ") == (code != 0), said
    if row.library:
        wait_for(lambda: any(fill_in(m, row.library) in p.err() for p in m.said), 60, "the library to say it",
                 report=lambda: "\n".join(p.report() for p in m.said))
    else:
        assert all(p.err() == "" for p in m.said), [p.err() for p in m.said]


@pytest.mark.parametrize("first, second", PAIRS)
def test_doctor_names_both_of_two_troubles_the_worse_one_first(m, first, second):
    named = {}
    for name in sorted((first, second), key=lambda name: TABLE[name].make is stopped):
        TABLE[name].make(m)
        named[name] = [fill_in(m, part) for part in TABLE[name].first]
    lines, code = judged(m)
    said = "\n".join(lines)
    assert all(part in lines[0] for part in named[first]), said
    assert code == max(TABLE[name].exit for name in (first, second)), said
    assert any(all(part in line for part in named[second]) for line in lines), said


def test_doctor_names_ten_troubles_of_one_machine(m):
    for make in (stripped, misspelt, malformed_cap, refused, musl):
        make(m)
    m.filled(SUBLET_DIR=m.odd("own"))
    stopped(m)
    m.asking |= {"SUBLET_KEEP": "much", "SUBLET_FREEZE": "off", "SIMCUDA_COMPUTE_MODE": "3", "XDG_RUNTIME_DIR": "/run"}
    lines, code = judged(m)
    words = ("GPU 0 is in exclusive compute mode", "SUBLET_MEMORY_CAP is", "your programs are under two daemons", "is stopped, and",
             "its LD_PRELOAD is", "could not reach a daemon", "built for the C library musl", "SUBLET_KEEP is", "SUBLET_FREZE is",
             "XDG_RUNTIME_DIR=/run is not", "programs started here are not frozen")
    said = "\n".join(lines)
    assert code == 1 and all(word in said for word in words), said
    assert all(" -> " in line for line in lines if line.startswith(("FAIL ", "warn "))), said
    findings = lines[:lines.index("")]
    assert findings == sorted(findings, key=lambda line: ("FAIL ", "warn ", "ok   ").index(line[:5])), said


def test_the_page_has_the_same_troubles():
    page = pathlib.Path(ROOT, "docs", "operations.md").read_text(encoding="utf-8")
    table = page[page.index("## Troubles"):].split("\n\n| ", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"^\| \*\*(.+?)\*\*", table, re.M) == list(TABLE)
