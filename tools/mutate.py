#!/usr/bin/env python3
"""Finds mistakes in the sources that no test would notice: plants mistakes one at a time and runs the nearest tests.

    mutate.py [--seed S] [--count N] [--only FOLDER] [--units] [--list] [--again]

A mutation is one small change of a function of src: a condition is negated, a statement is removed, < becomes <=. The
seed decides which mutations are drawn, equally many from each area; the default is the hash of the committed tree. Each
mutation is planted in a copy of the tree in build-mutate, with a build folder of its own. The tests of the file run
until one fails: its unit tests first, then its system tests (SYSTEM below). A system test has to fail twice. Each test
gets 4 GiB of memory and a process namespace of its own, so that a mutated kill() reaches no other process and no
process outlives the test. Results are kept: the same call goes on where the last one ended. --again tries the survivors
once more, for use after tests were added.

Not drawn: pure output (logs, traces), points for tests, free() (see ./dev asan), and checks that tests alone use."""

import argparse
import collections
import difflib
import fcntl
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

AREAS = [  # the first pattern that matches a path names its area; paths without an area are not drawn
    ("", r"sim/ptx/|src/cuda/|src/sched/invariants\.c|src/daemon/setup/kill_point\.c|src/preload/\w+/(trace|audit|door_count)\.c"),
    ("wire and base", r"src/(wire|base)/"),
    ("scheduler", r"src/sched/"),
    ("daemon", r"src/daemon/"),
    ("heap and moves", r"src/preload/(heap/|move/(?!caches|export)|extra/steps|overflow/|state/(home|giveway)"
                       r"|hooks/(bounds\w*|managed|hooks_memory))"),
    ("pools, handles, IPC", r"src/preload/(pool/|share/|move/(caches|export)|state/virtual|hooks/hooks_(pool|virtual|mapping|share|rdma|array))"),
    ("gate and agent", r"src/preload/"),
    ("command line", r"src/(client|lab)/"),
]

SYSTEM = [  # the first pattern that matches a path names its system tests, the nearest first
    (r"src/base/host", "faults_host daemon"),
    (r"src/base/paths|src/daemon/(setup/place|private|people/peer|main)", "daemon loss users"),
    (r"src/base|src/wire", "bad_input hostile daemon"),
    (r"src/sched/(foreign|fair)", "two_daemons users modes daemon"),
    (r"src/sched", "answers daemon modes two_daemons"),
    (r"src/daemon/(ledger/measure|cards)", "daemon full_card faults_driver users"),
    (r"src/daemon/net/peer_daemons", "users two_daemons daemon"),
    (r"src/daemon/net/meet", "answers meet ipc"),
    (r"src/daemon/people/hangup", "hangup hostile daemon"),
    (r"src/daemon/ledger/pass", "oversubscription hostile host_pool daemon"),
    (r"src/daemon/ledger/(entitlement|event)", "classes settings users metrics answers hostile_bounds daemon"),
    (r"src/daemon/(ledger/allowance|people/users)", "answers hostile_bounds faults_host users"),
    (r"src/daemon/orders", "daemon bad_input modes users"),
    (r"src/daemon/setup/config", "bad_input daemon"),
    (r"src/daemon", "answers daemon hostile hostile_bounds loss"),
    (r"src/lab/demo", "demo"),
    (r"src/client/(driver|doctor)", "doctor bad_input"),
    (r"src/(client|lab)", "run daemon bad_input operations"),
    (r"src/preload/pool/room", "reasons room pools programs torture"),
    (r"src/preload/(pool/|\w+/(hooks_pool|caches))", "pools caches programs torture"),
    (r"src/preload/\w+/(virtual|hooks_virtual|hooks_mapping)", "virtual ipc torture"),
    (r"src/preload/(share/|\w+/(export|hooks_share|hooks_rdma))", "ipc meet peers virtual torture"),
    (r"src/preload/\w+/bounds", "bounds programs"),
    (r"src/preload/(freeze/|rm/|agent/agent_freeze)", "freeze driver_errors pause drain torture"),
    (r"src/preload/\w+/managed", "managed torture"),
    (r"src/preload/\w+/(overflow|choose)", "overflow torture"),
    (r"src/preload/\w+/(profile|steps|trial)", "profile overflow"),
    (r"src/preload/\w+/(unchanged|fingerprint|kept)", "unchanged oversubscription torture"),
    (r"src/preload/\w+/(unevictable|hooks_context)", "full_card poison programs torture"),
    (r"src/preload/move/", "driver_errors oversubscription faults_driver faults_host torture"),
    (r"src/preload/\w+/(doors|resolve|dlsym|elf|real|hooks_old|libc_compat)", "programs surface"),
    (r"src/preload/\w+/(agent|link|giveway|name)", "agent return loss oversubscription modes faults"),
    (r"src/preload/\w+/(gate|throttle|quiesce)", "drain programs oversubscription torture"),
    (r"src/preload/\w+/torture", "torture"),
    (r"src/preload", "programs oversubscription faults_driver faults_host torture"),
]

UNIT_FOLDERS = ("src/", "sim/", "tests/unit/", "tests/fakes/")  # what unit tests are built from
UNIT_MAX = 10      # limit, because nearly every unit test uses files of base
TARGETS = ("sublet", "sublet_watched", "subletd", "subletd-test", "sublet_command", "sublet-demo-job", "sublet-bench-job", "sublet-pairs-job")  # system tests
SILENT = r"(?:log_\w+|trace_\w+|audit_\w+|kill_point\w*|_Static_assert|static_assert|assert|free|calloc|printf|fprintf|puts)"
ERRORS = r"-E[A-Z0-9]+"


def blank(text):
    """Returns the text with comments, strings and preprocessor lines as spaces: it keeps its length and its lines."""
    def spaces(m):
        return re.sub(r"[^\n]", " ", m.group())
    text = re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', spaces, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", spaces, text, flags=re.M)


def closing(text, at):
    """Returns the position after the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def functions(code):
    """Yields (name, start, end) of each function's body. In these sources its braces are alone on their lines."""
    for m in re.finditer(r"^\{\n(.*?)^\}", code, flags=re.M | re.S):
        names = re.findall(r"(\w+)\(", code[code.rfind("\n\n", 0, m.start()) + 1:m.start()])
        yield (names or ["?"])[0], m.start(1), m.end(1)


def silent(code):
    """Returns the code with the calls of the functions SILENT, and their arguments, replaced by spaces."""
    out = code
    for m in re.finditer(rf"(?<![\w.>]){SILENT}\s*\(", code):
        end = closing(code, m.end() - 1)
        out = out[:m.start()] + re.sub(r"[^\n]", " ", code[m.start():end]) + out[end:]
    return out


SWAPS = [(mutator, a, b) for mutator, text in (
    ("comparison", "< <= / <= < / > >= / >= > / == != / != =="), ("arithmetic", "+ - / - + / += -= / -= +="), ("logic", "&& || / || &&"))
    for a, b in [pair.split() for pair in text.split(" / ")]]
WORDS = [("arithmetic", "add_sat(", "sub_sat("), ("arithmetic", "sub_sat(", "add_sat("), ("arithmetic", "MIN(", "MAX("),
         ("arithmetic", "MAX(", "MIN("), ("answer", "return true;", "return false;"), ("answer", "return false;", "return true;"),
         ("answer", "return 0;", "return -22;"), ("answer", "return r;", "return 0;")]


def decided(code, at):
    line = code.rfind("\n", 0, at) + 1
    left, right = re.search(r"\S+$", code[line:at - 1]), re.match(r"[^\s;]+", code[at + 2:])
    return left and right and f"({left.group()} != {right.group()})" in code[code.rfind("\n", 0, line - 1) + 1:line]


def swaps(code, start, end):
    """Yields (mutator, from, to, text) for each operator, constant and returned value."""
    for words, pattern in ((SWAPS, r"(?<=\s)%s(?=\s)"), (WORDS, r"\b%s")):
        for mutator, old, new in words:
            for m in re.finditer(pattern % re.escape(old), code[start:end]):
                # After "if (a != b)" the conditions a > b and a >= b are the same.
                if not (old in "<>" and decided(code, start + m.start())):
                    yield mutator, start + m.start(), start + m.end(), new
    for m in re.finditer(rf"return ({ERRORS});", code[start:end]):
        yield "answer", start + m.start(1), start + m.end(1), "0"
    for m in re.finditer(r"(?<![\w.\[{])(\d{1,2})(?![\w.\]}])", code[start:end]):
        # An initial 0 is left out, because it is mostly overwritten before it is read.
        line = code[code.rfind("\n", 0, start + m.start()) + 1:start + m.start()]
        begins = m.group(1) == "0" and re.match(r"\s+(?:const )?(?:unsigned|int|bool|size_t|ssize_t|\w+_t) .*= $", line)
        if not begins and (m.group(1)[0] != "0" or m.group(1) == "0"):
            yield "constant", start + m.start(), start + m.end(), str(int(m.group(1)) + 1)
    for m in re.finditer(r"(?<=[\s(])!(?=[\w(*])", code[start:end]):
        yield "condition", start + m.start(), start + m.end(), ""


def conditions(code, start, end):
    for m in re.finditer(r"\b(if|while) (\()", code[start:end]):
        at = start + m.start(2)
        last = closing(code, at)
        inner = code[at + 1:last - 1]
        if inner.strip() and not re.fullmatch(r"\s*(true|1)\s*", inner):
            yield "condition", at, last, None
    for m in re.finditer(r"\belse\b(?! if)", code[start:end]):
        yield "else", start + m.start(), start + m.end(), "else if (0)"


def statements(code, start, end):
    """Yields calls, assignments and jumps: all statements that are no declarations."""
    place = r"[(*]*\w+(?:(?:->|\.)\w+|\[[^\]]*\]|\)(?=->|\.))*"
    whole = re.compile(rf"(?:(?:\(void\)\s*)?\w+\s*\(.*\)|{place}\s*(?:[-+|&^*]|<<|>>)?=(?!=).*|{place}(?:\+\+|--)|(?:\+\+|--){place}"
                       r"|return|break|continue)", re.S)
    i = start
    while i < end:
        m = re.compile(r"\s*(?:(?:else\s+)?(?:if|while|for|FOR_\w+)\s*(\()|else\b|do\b|case\b[^:]*:|default:|\w+:(?!:)|[{};])").match(code, i)
        if m:
            i = closing(code, m.start(1)) if m.group(1) else m.end()
            continue
        stop = depth = 0
        for stop in range(i, end):
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(code[stop], 0)
            if code[stop] == ";" and depth == 0 or depth < 0:
                break
        text = code[i:stop]
        lead = len(text) - len(text.lstrip())
        if whole.fullmatch(text.strip()) and not re.match(r"\s*(sizeof|return\s+\S)", text):
            yield "statement", i + lead, stop, "(void)0" + "\n" * text.strip().count("\n")
        i = stop + 1


def mutations_of(path, text):
    code = silent(blank(text))
    lines = text.split("\n")
    seen = collections.Counter()
    for name, start, end in functions(blank(text)):
        for mutator, a, b, new in [*swaps(code, start, end), *conditions(code, start, end), *statements(code, start, end)]:
            if new is None:
                new = f"(!{text[a:b]})"
            number = text.count("\n", 0, a)
            what = (path, name, lines[number].strip(), mutator, new)
            seen[what] += 1
            yield {"path": path, "line": number + 1, "mutator": mutator, "from": a, "to": b, "text": new,
                   "id": hashlib.sha256(repr((what, seen[what])).encode()).hexdigest()[:16]}


def area_of(path):
    return next((name for name, pattern in AREAS if re.match(pattern, path)), "")


def sources(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True)
    return sorted({f for f in listed.stdout.split("\n") if f and os.path.isfile(os.path.join(root, f))})


def draw(root, seed, count, only):
    """Draws equally many mutations of each area, at most one for each line of code. The order depends on the seed and
    on the text of the line, not on the line's number, so that a change elsewhere leaves the draw as it was."""
    areas = collections.defaultdict(list)
    for path in sources(root):
        if not path.endswith(".c") or not area_of(path) or only and not any((path + "/").startswith(o.rstrip("/") + "/") for o in only):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as f:
            text = f.read()
        lines = collections.defaultdict(list)
        for m in mutations_of(path, text):
            m["rank"] = hashlib.sha256(f"{seed} {m['id']}".encode()).hexdigest()
            lines[m["line"]].append(m)
        # Draws the line first, then its mutation, so that a line with many operators is not drawn more often.
        for found in lines.values():
            first = min(found, key=lambda m: hashlib.sha256(f"{seed} kind {m['mutator']} {m['id']}".encode()).hexdigest())
            areas[area_of(path)].append(first)
    for found in areas.values():
        found.sort(key=lambda m: m["rank"])
    drawn, turn = [], 0
    while len(drawn) < count and any(len(found) > turn for found in areas.values()):
        drawn += [areas[name][turn] for name, _ in AREAS if len(areas[name]) > turn][:count - len(drawn)]
        turn += 1
    order = [name for name, _ in AREAS]
    return sorted(drawn, key=lambda m: (order.index(area_of(m["path"])), m["path"], m["line"]))


def mutated(text, m):
    return text[:m["from"]] + m["text"] + text[m["to"]:]


def difference(text, m):
    lines = difflib.unified_diff(text.splitlines(), mutated(text, m).splitlines(), m["path"], m["path"], n=2, lineterm="")
    return "\n".join(list(lines)[2:])


class Copy:
    """A copy of the tree, with its build folder and its tests."""

    def __init__(self, root, work, units_alone):
        self.units_alone = units_alone
        self.tree, self.build = os.path.join(work, "tree"), os.path.join(work, "tree", "build")
        self.log, self.times_path = os.path.join(work, "log"), os.path.join(work, "times.json")
        self.workers = str(min(2 * (os.cpu_count() or 1), 8))  # system tests wait more than they work
        os.makedirs(self.tree, exist_ok=True)
        self.held = open(os.path.join(work, "lock"), "w", encoding="utf-8")  # held until this process ends
        try:
            fcntl.flock(self.held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"mutate: another one is at work in {work}; wait for it")
        files, sums = sources(root), collections.defaultdict(hashlib.sha256)
        for path in files:
            with open(os.path.join(root, path), "rb") as f:
                content = f.read()
            for folder in [f for f in (*UNIT_FOLDERS, "tests/system/", "tests/programs/") if path.startswith(f)]:
                sums[folder].update(path.encode() + content)
            self.put(path, content)
            shutil.copymode(os.path.join(root, path), os.path.join(self.tree, path))
        for folder, folders, names in os.walk(self.tree):
            folders[:] = [f for f in folders if os.path.join(folder, f) != self.build and f != "__pycache__"]
            for name in names:
                if os.path.relpath(os.path.join(folder, name), self.tree) not in files:
                    os.unlink(os.path.join(folder, name))
        self.digests = {folder: s.hexdigest() for folder, s in sums.items()}
        self.kept = {}  # test -> its measurement, and the digest of its sources
        if os.path.exists(self.times_path):
            with open(self.times_path, encoding="utf-8") as f:
                self.kept = json.load(f)
        self.space = next((s for s in (["unshare"], ["unshare", "--user", "--map-current-user"]) if subprocess.run(
            [*s, *self.SPACE, "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0), None)
        if not self.space:
            sys.exit("mutate: needs namespaces for processes and mounts (unshare of util-linux, as root or where users may make them)")

    # The shell stays as the first process of the namespace, so that orphans become its children, not the test's.
    SPACE = ("--pid", "--fork", "--kill-child", "--mount-proc", "--mount", "sh", "-c", 'mount -t tmpfs none /dev/shm && ulimit -d 4194304 && "$@"; exit', "sh")

    def put(self, path, content):
        """Writes a file only if it differs, so that unchanged ones are not built again."""
        full = os.path.join(self.tree, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        if os.path.exists(full):
            with open(full, "rb") as f:
                if f.read() == content:
                    return
        with open(full, "wb") as f:
            f.write(content)

    def run(self, argv, timeout, **more):
        """Returns (status, output); the status is None if the command did not end within the time."""
        with open(self.log, "wb") as log:
            process = subprocess.Popen([*self.space, *self.SPACE, *argv], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                       start_new_session=True, **more)
            status = None
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT)  # not SIGKILL, so that pytest removes its folders
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    pass
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        with open(self.log, encoding="utf-8", errors="replace") as f:
            return status, f.read()

    def configure(self):
        # Like a build for people, but without warnings, because a mutation may leave a variable unused, and without
        # debugging.
        done = subprocess.run(["cmake", "-S", self.tree, "-B", self.build, "-G", "Ninja", "-DSUBLET_TESTS=ON", "-DSUBLET_WERROR=OFF", "-DCMAKE_BUILD_TYPE=",
                               "-DCMAKE_C_FLAGS=-O1 -w"], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"mutate: cmake:\n{done.stdout}{done.stderr}")
        if not self.make([]):
            sys.exit("mutate: the tree does not build:\n" + self.said)
        listed = subprocess.run(["ctest", "--test-dir", self.build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
        self.units, known = {}, self.targets()
        for test in json.loads(listed.stdout)["tests"]:
            target = os.path.relpath(test.get("command", ["/"])[0], self.build)
            if target in known and "must_fail" not in target:
                properties = {p["name"]: p["value"] for p in test.get("properties", [])}
                self.units[test["name"]] = (target, test["command"], properties, self.inputs(target))
        self.product = [(t, self.inputs(t)) for t in TARGETS if t in known]

    def targets(self):
        listed = subprocess.run(["ninja", "-C", self.build, "-t", "targets", "all"], check=True, capture_output=True, text=True)
        return {line.rsplit(":", 1)[0] for line in listed.stdout.split("\n")}

    def inputs(self, target):
        """Returns the sources of what the target is linked from. Files that are only made before it do not count."""
        seen, fresh = set(), {target}
        while fresh:
            seen |= fresh
            listed = subprocess.run(["ninja", "-C", self.build, "-t", "query", *fresh], check=True, capture_output=True, text=True)
            blocks = re.findall(r"^  input: .*\n((?:    .*\n)*)", listed.stdout, re.M)
            fresh = {i for i in re.findall(r"^    (?:\| )?([^| ].*)$", "".join(blocks), re.M)} - seen
        return {os.path.relpath(i, self.tree) for i in seen if i.startswith(self.tree + "/src/") and i.endswith(".c")}

    def make(self, targets):
        status, self.said = self.run(["cmake", "--build", self.build, *(["--target", *targets] if targets else [])], 3600)
        return status == 0

    def tests_of(self, path):
        """Returns the nearest unit tests of the file, the most specific first, and its system tests."""
        stem = os.path.basename(path)[:-2]
        found = [name for name, (_, _, _, inputs) in self.units.items() if path in inputs]
        found.sort(key=lambda n: (stem not in n, len(self.units[n][3]), n))
        names = "" if self.units_alone else next((names for pattern, names in SYSTEM if re.match(pattern, path)), "")
        system = [f"tests/system/test_{n}.py" for n in names.split()]
        return found[:UNIT_MAX], [t for t in system if os.path.exists(os.path.join(self.tree, t))]

    def unit(self, name, timeout):
        _, command, properties, _ = self.units[name]
        env = {**os.environ, **dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", []))}
        status, _ = self.run(command, timeout, env=env, cwd=properties.get("WORKING_DIRECTORY", self.build))
        return status in (0, properties.get("SKIP_RETURN_CODE", 0))

    def system(self, args, timeout, workers):
        """Returns the failed tests, or None if there are none."""
        status, said = self.run(["/usr/bin/python3", "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", *workers, *args], timeout,
                                cwd=self.tree, env={**os.environ, "SUBLET_BUILD": self.build})
        if status == 0:
            return None
        return re.findall(r"^(?:FAILED|ERROR) (\S+::[^\n]+?)(?: - .*)?$", said, flags=re.M) or ["it did not end" if status is None else said[-300:]]

    def measure(self, paths):
        """Runs the tests of these files on the unchanged tree. Records how long the tests take and which ones fail."""
        wanted = [self.tests_of(p) for p in paths]
        for name in sorted({u for units, _ in wanted for u in units}):
            if not self.is_known(name):
                begun = time.monotonic()
                if not self.unit(name, 1200):
                    sys.exit(f"mutate: {name} fails without any mutation")
                self.keep(name, time.monotonic() - begun, [])
        for name in sorted({s for _, system in wanted for s in system}):
            if not self.is_known(name):
                begun = time.monotonic()
                failed = self.system([name], 3600, self.beside()) or []
                self.keep(name, time.monotonic() - begun, failed)
                print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
                for test in failed:
                    print(f"  left out, it fails without any mutation: {test}", flush=True)

    def beside(self):
        return ["-n", self.workers, "--dist", "loadgroup"]

    def depends(self, name):
        folders = ("src/", "sim/", "tests/system/", "tests/programs/") if name.endswith(".py") else UNIT_FOLDERS
        return "".join(self.digests.get(f, "") for f in folders)

    def is_known(self, name):
        return self.kept.get(name, {}).get("of") == self.depends(name)

    def keep(self, name, seconds, failed):
        self.kept[name] = {"of": self.depends(name), "seconds": seconds, "fails": failed}
        with open(self.times_path + ".new", "w", encoding="utf-8") as f:
            json.dump(self.kept, f)
        os.replace(self.times_path + ".new", self.times_path)

    def judge(self, m):
        """Returns (the outcome, the test that found the mutation)."""
        units, system = self.tests_of(m["path"])
        if not self.make([self.units[u][0] for u in units] + [t for t, inputs in self.product if m["path"] in inputs]):
            return "does not compile", ""
        for name in units:
            if not self.unit(name, 10 * self.kept[name]["seconds"] + 20):
                return "caught", name
        for name in system:
            spared = [a for t in self.kept[name]["fails"] for a in ("--deselect", t)]
            limit = 4 * self.kept[name]["seconds"] + 60
            failed = self.system([name, "-x", *spared], limit, self.beside())
            if failed and "::" not in failed[0]:
                return "caught", f"{name}: {failed[0]}"
            # Repeated, because on a busy machine a good test may fail once.
            if failed and self.system(failed[:1], limit, []):
                return "caught", failed[0]
        return "survived", ""


def table(drawn, results):
    rows = collections.defaultdict(collections.Counter)
    for m in drawn:
        if m["id"] in results:
            for name in (area_of(m["path"]), "all"):
                rows[name][results[m["id"]]["result"]] += 1
    lines = [f"{'area':<22}{'drawn':>7}{'caught':>8}{'survived':>10}{'no build':>10}{'caught of built':>17}"]
    for name in [*(n for n, _ in AREAS), "all"]:
        row = rows[name]
        built = row["caught"] + row["survived"]
        share = f"{100 * row['caught'] / built:.0f} %" if built else "N/A"
        if row:
            lines.append(f"{name:<22}{row.total():>7}{row['caught']:>8}{row['survived']:>10}{row['does not compile']:>10}{share:>17}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", help="what the draw hangs on (default: the hash of the committed tree)")
    parser.add_argument("--count", type=int, default=70, help="how many (70)")
    parser.add_argument("--only", action="append", metavar="FOLDER", help="a folder or file of src; may be given again")
    parser.add_argument("--units", action="store_true", help="unit tests alone: quicker, and more survives")
    parser.add_argument("--list", action="store_true", help="say what is drawn, and try nothing")
    parser.add_argument("--again", action="store_true", help="try once more what survived")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."), help=argparse.SUPPRESS)
    o = parser.parse_args()
    root = os.path.abspath(o.root)
    seed = o.seed or subprocess.run(["git", "-C", root, "rev-parse", "HEAD^{tree}"], check=True, capture_output=True, text=True).stdout.strip()
    drawn = draw(root, seed, o.count, o.only)
    if not drawn:
        sys.exit("mutate: nothing to draw from")
    print(f"seed {seed}: {len(drawn)} mutations", flush=True)
    texts = {}
    for m in drawn:
        with open(os.path.join(root, m["path"]), encoding="utf-8") as f:
            texts[m["path"]] = f.read()
    if o.list:
        for m in drawn:
            print(f"\n{m['path']}:{m['line']} {m['mutator']}\n{difference(texts[m['path']], m)}")
        return

    work = os.path.join(root, "build-mutate")
    copy = Copy(root, work, o.units)
    # A run without --units also uses the results of runs with --units, except survivors: the system tests have not been
    # run on those.
    results, name = {}, re.sub("[^0-9A-Za-z]", "_", seed)
    paths = [os.path.join(work, f"results-{name}{kind}.jsonl") for kind in ("-units", "")]
    for path in paths[:1] if o.units else paths:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                results |= {r["id"]: r for r in map(json.loads, f) if path == paths[not o.units] or r["result"] != "survived"}
    if o.again:
        results = {k: r for k, r in results.items() if r["result"] != "survived"}
    left = [m for m in drawn if m["id"] not in results]
    if left:
        print(f"building in {copy.build}", flush=True)
        copy.configure()
        copy.measure(sorted({m["path"] for m in left}))
    for number, m in enumerate(left, len(drawn) - len(left) + 1):
        begun, text = time.monotonic(), texts[m["path"]]
        copy.put(m["path"], mutated(text, m).encode())
        try:
            result, by = copy.judge(m)
        finally:
            copy.put(m["path"], text.encode())
        results[m["id"]] = {"id": m["id"], "where": f"{m['path']}:{m['line']}", "mutator": m["mutator"], "result": result, "by": by}
        with open(paths[not o.units], "a", encoding="utf-8") as f:
            f.write(json.dumps(results[m["id"]]) + "\n")
        print(f"[{number}/{len(drawn)}] {result:<17} {m['path']}:{m['line']} {m['mutator']} {by and 'by ' + by} "
              f"({time.monotonic() - begun:.0f} s)", flush=True)
        if result == "survived":
            print(difference(text, m), flush=True)

    survivors = [m for m in drawn if results[m["id"]]["result"] == "survived"]
    print(f"\n{len(survivors)} survived")
    for m in survivors:
        print(f"\n{m['path']}:{m['line']} {m['mutator']}\n{difference(texts[m['path']], m)}")
    print("\n" + table(drawn, results))


main()
