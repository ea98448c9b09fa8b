"""Programs that share the GPU through an MPS server of the daemon: past memory, how they end, and how fast two networks
are; and their page. Needs nvidia-cuda-mps-control, which comes with the driver."""

import functools
import os
import re
import signal
import statistics
import subprocess
import sys
import time

import pages
import parts as of
import suite
from parts import size, wait_until
from suite import Failure

SHARE = 0.62  # of the card, for each of two programs past memory
HANDOFFS = 6
NETS_SECONDS = 4
PAIRS = (("resnet50", "resnet50"), ("resnet50", "transformer"))
WAYS = {"sliced": ("auto", None), "turns": ("exclusive", None), "shared": ("auto", "shared")}
ILLEGAL_ADDRESS, TERMINATED = "700", "810"
SETTINGS = {"mps": "yes", "linger": "2s"}
ENV = {"SUBLET_WAY": "shared", "CUDA_VISIBLE_DEVICES": str(suite.GPU)}


def folder(part):
    """Returns the directory of the only control daemon."""
    top = os.path.join(part.dir, "mps")
    names = os.listdir(top) if os.path.isdir(top) else []
    if len(names) != 1:
        raise Failure(f"{len(names)} control daemons of MPS instead of one: {last_words(part)}")
    return os.path.join(top, names[0])


def last_words(part):
    with open(os.path.join(part.root, "subletd.log"), encoding="utf-8", errors="replace") as f:
        return " / ".join(line.split(": ", 1)[-1].strip() for line in f.read().splitlines() if "MPS" in line)[-600:]


def order(part, text):
    done = subprocess.run(["nvidia-cuda-mps-control"], env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder(part)}, input=text + "\n",
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20, check=False)
    return done.stdout.strip()


def servers(part):
    return [int(word) for word in order(part, "get_server_list").split() if word.isdigit()]


def clients(part):
    return {int(word) for server in servers(part) for word in order(part, f"get_client_list {server}").split() if word.isdigit()}


def must_share(part, *programs):
    """Fails unless these programs take part in MPS, by the status, and cannot be frozen."""
    def rows():
        return {c["pid"]: c for c in part.gpu()["clients"]}

    def off():
        return all(rows().get(p.pid, {}).get("freeze") == "off" for p in programs)

    for p in programs:
        if rows().get(p.pid, {}).get("way") != "shared":
            raise Failure(f"{p.name} does not take part in MPS: {p.tail()}; {last_words(part)}")
    wait_until(part, off, "freeze mode off of programs that take part in MPS")
    return {pid: row["freeze_off"] for pid, row in rows().items() if pid in [p.pid for p in programs]}


def leaves_nothing(function):
    """Ends the daemon in an orderly way after the part, because its MPS servers do not end with it."""
    @functools.wraps(function)
    def run(part, result):
        try:
            function(part, result)
        finally:
            daemon = part.processes[0]
            for p in part.processes[1:]:
                p.kill()
            try:
                part.ask("stop")
                daemon.process.wait(15)
            except (OSError, ValueError, subprocess.TimeoutExpired):
                pass
            top = os.path.join(part.dir, "mps")
            for name in os.listdir(top) if os.path.isdir(top) else ():
                subprocess.run(["nvidia-cuda-mps-control"], env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": os.path.join(top, name)},
                               input="quit -t 2\n", text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20, check=False)
                result["left_behind"] = result.get("left_behind", 0) + 1

    return run


@leaves_nothing
def past(part, result):
    """Two programs of one MPS server past memory, contents checked."""
    card = suite.Card(part)
    each = int(card.total() / of.GIB * SHARE)
    part.daemon(quantum="1s", **SETTINGS)
    end = os.path.join(part.root, "end")
    began = time.monotonic()
    pair = [part.program("fill", "--bytes", size(each), "--block", size(1), "--seed", seed, "--rounds", 3, "--until", end, "--sample",
                         os.path.join(part.root, f"sample-{seed}"), name=f"fill-{seed}", **ENV) for seed in (1, 2)]
    wait_until(part, lambda: len(part.gpu()["clients"]) == 2, "two clients")
    result.update({"gib_each": each, "attached_s": round(time.monotonic() - began, 2)})
    for p in pair:
        p.expect("filled", part.deadline)
    result["why_not_frozen"] = sorted(set(must_share(part, *pair).values()))
    wait_until(part, lambda: part.gpu()["handoffs"] >= HANDOFFS or part.left() < 25, "hand-offs")
    result["handoffs"] = part.gpu()["handoffs"]
    named = card.of_processes()
    result["nvml_names_the_programs"] = all(p.pid in named for p in pair)
    result["clients_of_the_server"] = len(clients(part))
    suite.touch(end)
    for p in pair:
        p.wait(part.deadline)
    result["rounds"] = [len(p.of("round")) for p in pair]
    result["rounds_recomputed"] = [part.check_sums(p, max(1, len(p.of("round")) // 3)) for p in pair]
    result["words_compared"] = [part.check_sample(os.path.join(part.root, f"sample-{seed}")) for seed in (1, 2)]
    events = part.traced()
    for kind in ("evict", "restore"):
        rates = [b / (e - a) for p in pair for a, e, b in suite.episodes(events, p.pid, kind) if b > of.GIB]
        result[f"{kind}_gb_s"] = round(statistics.median(rates), 1) if rates else None
    drains = [(e - a) / 1e6 for p in pair for a, e, _ in suite.episodes(events, p.pid, "drain")]
    result["drain_ms"] = round(statistics.median(drains), 1) if drains else None
    result["frozen"] = sum(e["event"] == "frozen" for e in events)
    if result["handoffs"] < 2:
        raise Failure(f"only {result['handoffs']} hand-offs")
    if result["frozen"]:
        raise Failure(f"{result['frozen']} freezes of programs without channels")


def small(part, program, name, gib, *args, **env):
    p = part.program(program, "--bytes", size(gib), "--block", size(1), *args, name=name, **{**ENV, **env})
    p.expect("filled", part.deadline)
    return p


def finish(part, program):
    """Returns how the program ended: \"well\", with its sums recomputed, or why not."""
    try:
        program.wait(time.monotonic() + 15)
        if program.of("round"):
            part.check_sums(program, max(1, len(program.of("round")) // 3))
        return "well"
    except Failure as e:
        return str(e)


def end_of_one(part, how):
    """Ends one of two programs of a server in this way. Returns what became of both, and of the next program."""
    end = os.path.join(part.root, f"end-{how}")
    other = small(part, "fill", f"other-{how}", 4, "--seed", 3, "--until", end)
    if how == "fault":
        victim = small(part, "broken", "broken", 4)
    else:
        victim = small(part, "burst", f"victim-{how}", 4, "--seed", 4, "--ms", 50, "--count", 20, "--until", end)
    must_share(part, other, victim)
    time.sleep(0.5)
    if how == "kill":
        victim.process.send_signal(signal.SIGKILL)
    elif how == "terminate":
        for server in servers(part):
            order(part, f"terminate_client {server} {victim.pid}")
    else:
        victim.say("break 50")
    wait_until(part, lambda: how == "fault" or victim.process.poll() is not None, "end of the victim")
    rounds = len(other.of("round"))
    time.sleep(1.5)
    r = {"rounds_of_the_other_afterwards": len(other.of("round")) - rounds}
    suite.touch(end)
    r["other"] = finish(part, other)
    victim.close()
    r["victim"] = finish(part, victim)
    victim.kill()
    other.kill()
    again = small(part, "fill", f"again-{how}", 4, "--seed", 5, "--rounds", 1)
    r["next_takes_part"] = "MPS is not used" not in again.tail()
    r["next"] = finish(part, again)
    return r, time.monotonic()


@leaves_nothing
def ends(part, result):
    """What the end of one program of an MPS server does to another, and when the server ends."""
    part.daemon(quantum="1s", **SETTINGS)
    for how in ("kill", "terminate", "fault"):
        result[how], ended = end_of_one(part, how)
        print(how, result[how], flush=True)
    top = os.path.join(part.dir, "mps")
    wait_until(part, lambda: not os.listdir(top), "end of the MPS server")
    result["server_ended_s_after_its_last_program"] = round(time.monotonic() - ended, 2)
    wrong = [how for how in ("kill", "terminate") if result[how]["other"] != "well"]
    wrong += [f"next after {how}" for how in ("kill", "terminate", "fault") if result[how]["next"] != "well" or not result[how]["next_takes_part"]]
    if TERMINATED not in result["terminate"]["victim"]:
        wrong.append("the error of a terminated program")
    if ILLEGAL_ADDRESS not in result["fault"]["other"]:
        wrong.append("the error of a program beside a fault")
    if wrong:
        raise Failure("not as expected: " + ", ".join(wrong))


def rate(program, net, seconds, part):
    program.say(f"measure {net} {seconds}")
    return lambda: round(1 / program.expect("measured", part.deadline)["mean_s"], 2)


def one_pair(part, way, pair):
    mode, asks = WAYS[way]
    part.reload(quantum="200ms", mode=mode, **SETTINGS)
    env = {**ENV, "SUBLET_WAY": asks or "auto"}
    both = [part.start([sys.executable, os.path.join(suite.HERE, "trainer.py"), "--net", net, "--warm-up", "5"], f"{net}-{i}-{way}", True, **env)
            for i, net in enumerate(pair)]
    for p in both:
        p.expect("ready", part.deadline)
    if asks:
        must_share(part, *both)
    waits = [rate(p, net, NETS_SECONDS, part) for p, net in zip(both, pair)]
    r = {"beside": [wait() for wait in waits]}
    if way == "sliced":
        r["alone"] = [rate(p, net, NETS_SECONDS / 2, part)() for p, net in list(zip(both, pair))[:len(set(pair))]]
    for p in both:
        p.say("exit")
    for p in both:
        p.wait(part.deadline)
    return r


@leaves_nothing
def nets(part, result):
    """Two networks in PyTorch, in each way: steps a second."""
    part.daemon(quantum="200ms", **SETTINGS)
    for pair in PAIRS:
        for way in WAYS:
            result.setdefault(" and ".join(pair), {})[way] = one_pair(part, way, pair)
            print(pair, way, result[" and ".join(pair)][way], flush=True)


def sums(r):
    """Returns the steps a second of both programs together, in each way that was measured."""
    return {way: sum(r[way]["beside"]) for way in WAYS if way in r}


ABOUT = ("Programs that share the GPU through an MPS server that the daemon starts for them (`sublet run --way shared`, with the owner's leave): "
         "past memory, how they end, and how fast two networks are in each way.")
PARTS = {"mps-past": (past, 75), "mps-ends": (ends, 75), "mps-nets": (nets, 100)}


def figures(parts):
    """Returns rows of (what, measured, goal, met), as in pages.py."""
    out = []
    both = sums(parts.get("mps-nets", {}).get("resnet50 and resnet50", {}))
    if len(both) == len(WAYS):
        ratio = both["shared"] / both["sliced"]
        out.append(("two ResNet-50: shared against sliced", f"{ratio:.2f}", "at least 1.0", ratio >= 1))
    if "handoffs" in parts.get("mps-past", {}):
        r = parts["mps-past"]
        out.append(("two programs of one MPS server past memory: hand-offs with equal contents", str(r["handoffs"]), "at least 2",
                    "error" not in r))
    return out


def past_page(r):
    if "words_compared" not in r:
        return []
    shown = {kind: "not measured" if r[key] is None else f"{r[key]} {unit}" for kind, key, unit in
             (("out", "evict_gb_s", "GB/s"), ("in", "restore_gb_s", "GB/s"), ("drain", "drain_ms", "ms"))}
    return ["## Past memory", "",
            f"Two programs of {r['gib_each']} {of.UNIT} each ran in turns of 1 s. The first hand-offs pin host memory. Figures are medians.", "",
            "| what | measured |", "|---|---|",
            f"| hand-offs | {r['handoffs']} |", f"| drain | {shown['drain']} |",
            f"| evictions of one GiB or more | {shown['out']} |", f"| restores of one GiB or more | {shown['in']} |",
            f"| rounds, recomputed on the CPU | {sum(r['rounds'])}, {sum(r['rounds_recomputed'])} equal |",
            f"| words compared at the end | {sum(r['words_compared'])}, all equal |",
            f"| freezes | {r['frozen']}: {'; '.join(r['why_not_frozen'])} |",
            f"| NVML names the programs | {'yes' if r['nvml_names_the_programs'] else 'no'} |", ""]


def briefly(how):
    """Returns the end of a program in few words: the driver's error, or the exit status."""
    error = re.search(r"CUDA_ERROR_\w+ \(\d+\)", how)
    status = re.search(r"ended with (-?\d+)", how)
    return how if how == "well" else error.group() if error else f"status {status.group(1)}" if status else pages.cell(how)


def ends_page(r):
    if "fault" not in r:
        return []
    lines = ["## Ends", "", "Two programs use one server, and one of them ends while its kernels run. The other computes on, or does not.", "",
             "| the first | the first ended | the other ended | the next program |", "|---|---|---|---|"]
    names = {"kill": "is killed (SIGKILL)", "terminate": "is ended by `terminate_client`", "fault": "writes to an illegal address"}
    for how, name in names.items():
        e = r[how]
        lines.append(f"| {name} | {briefly(e['victim'])} | {briefly(e['other'])} | "
                     f"{'takes part' if e['next_takes_part'] else 'does not take part'}, ended {briefly(e['next'])} |")
    if "server_ended_s_after_its_last_program" in r:
        lines += ["", f"With `linger = 2s`, server and control daemon had ended {r['server_ended_s_after_its_last_program']} s after the last program."]
    return [*lines, ""]


def nets_page(r):
    found = {name: pair for name, pair in r.items() if isinstance(pair, dict) and len(sums(pair)) == len(WAYS)}
    if not found:
        return []
    lines = ["## Two networks", "",
             f"Training steps a second of each of two networks, over {NETS_SECONDS} s. *Sliced*: mode auto, each in a context of its own. *Turns*: mode "
             "exclusive, turns of 200 ms. *Shared*: through the MPS server.", "",
             "| networks | alone | sliced | turns | shared | shared / sliced, sums |", "|---|---|---|---|---|---|"]
    for name, pair in found.items():
        both = sums(pair)
        cells = [" + ".join(map(str, pair[way]["beside"])) for way in WAYS]
        lines.append(f"| {name} | {', '.join(map(str, pair['sliced']['alone']))} | {' | '.join(cells)} | {both['shared'] / both['sliced']:.2f} |")
    return [*lines, ""]


def page(results):
    found = results["parts"]
    return [*past_page(found.get("mps-past", {})), *ends_page(found.get("mps-ends", {})), *nets_page(found.get("mps-nets", {})),
            *pages.unfinished(found)]
