"""The parts about memory that a process shares with another of its GPUs or with a device other than a GPU (dma-buf),
and their page. They run on the plain driver, under sublet, beside a program that needs the room, and under torture."""

import os
import sys

import frameworks
import pages
import parts
import suite
from suite import Failure
from torture import bytes_of, without_volatile

TORTURE = "calls=10,every=10ms"
PEERS_GIB, ROUNDS = 1, 4          # size of each of three buffers, two of them on the first GPU; rounds of each run
LARGE_GIB, OTHER_GIB = 24, 100    # size of each buffer, and of a rival on the first GPU, which cannot hold both
HANDOFFS = 4
BUFFER_GIB, RIVAL_GIB = 8, 124    # memory for a device, and as much private memory; a rival too large to fit beside
CACHE_GIB, CACHE_CAPACITY_GIB = 8, 20  # cache of each of two programs, and a capacity that is too small for both
BOTH = "0,1"
ONE = "this machine has one GPU"


def peers(part, name, gib, *more, shared=True, **env):
    return part.program("peers", "--bytes", parts.size(gib), "--block", parts.size(gib / 8), "--seed", 5, *more, name=name,
                        shared=shared, CUDA_VISIBLE_DEVICES=BOTH, **env)


def said(part, p):
    p.wait(part.deadline)
    return without_volatile(p.events)


def sums(p):
    return [e["sums"] for e in p.of("round")]


def touched_first(part, p, other):
    """Makes hand-offs of the first GPU, and waits for rounds of the program after each hand-off."""
    for _ in range(HANDOFFS):
        other.say("touch")
        other.expect("done", part.deadline)
        rounds = len(p.of("round"))
        parts.wait_until(part, lambda n=rounds: len(p.of("round")) > n + 1 or p.process.poll() is not None, "rounds")


def two_gpus(part, result):
    """Kernels of one GPU use memory of another, and copies go both ways."""
    if suite.Card(part).cards() < 2:
        result["skipped"] = ONE
        return
    plain = peers(part, "plain", PEERS_GIB, "--rounds", ROUNDS, shared=False)
    want = said(part, plain)
    part.daemon(quantum="300ms")
    alone = peers(part, "alone", PEERS_GIB, "--rounds", ROUNDS)
    result["alone"] = said(part, alone) == want
    tortured = peers(part, "tortured", PEERS_GIB, "--rounds", ROUNDS, SUBLET_TORTURE=f"3,{TORTURE}")
    result["tortured"] = said(part, tortured) == want
    result["tortured_gib"] = round(sum(bytes_of(part, tortured.pid)) / parts.GIB, 1)

    large = peers(part, "large-plain", LARGE_GIB, "--rounds", ROUNDS, shared=False)
    large.wait(part.deadline)
    end = os.path.join(part.root, "end")
    other = part.program("hold", "--bytes", parts.size(OTHER_GIB), "--block", parts.size(2), name="other",
                         CUDA_VISIBLE_DEVICES="0")
    other.expect("filled", part.deadline)
    before = part.status()["gpus"][0]["handoffs"]
    p = peers(part, "beside", LARGE_GIB, "--rounds", ROUNDS, "--until", end)
    p.expect("filled", part.deadline)
    touched_first(part, p, other)
    suite.touch(end)
    p.wait(part.deadline)
    result["beside"] = sums(p)[:ROUNDS] == sums(large)
    result["beside_rounds"] = len(sums(p))
    result["handoffs"] = part.status()["gpus"][0]["handoffs"] - before
    other.close()
    other.wait(part.deadline)
    wrong = [k for k in ("alone", "tortured", "beside") if not result[k]]
    if wrong:
        raise Failure(f"other contents than on the plain driver: {', '.join(wrong)}")
    if not result["tortured_gib"]:
        raise Failure("never tortured")
    if result["handoffs"] < HANDOFFS:
        raise Failure(f"only {result['handoffs']} hand-offs")


def torch_gpus(part, result):
    """PyTorch with the halves of a network on two GPUs."""
    if suite.Card(part).cards() < 2:
        result["skipped"] = ONE
        return

    def results(name, shared, **env):
        p = part.start([sys.executable, os.path.join(suite.HERE, "workloads", "with_torch.py"), "two_gpus"], name, shared,
                       CUDA_VISIBLE_DEVICES=BOTH, **env)
        p.wait(part.deadline)
        return p, p.of("result")

    _, want = results("plain", False)
    if not want:
        raise Failure("no result without sublet")
    part.daemon(quantum="500ms")
    result["alone"] = results("alone", True)[1] == want
    p, got = results("tortured", True, SUBLET_TORTURE=f"3,{frameworks.TORTURE}")
    result.update(tortured=got == want, tortured_gib=round(sum(bytes_of(part, p.pid)) / parts.GIB, 1))
    wrong = [k for k in ("alone", "tortured") if not result[k]]
    if wrong:
        raise Failure(f"other results than on the plain driver: {', '.join(wrong)}")
    if not result["tortured_gib"]:
        raise Failure("never tortured")


def for_device(part, name, shared, between=lambda: None, **env):
    """Returns a program with descriptors for a device, its answers, and its largest number of unevictable bytes."""
    p = part.program("share", "--bytes", parts.size(BUFFER_GIB), "--block", parts.size(1), "--count", BUFFER_GIB, name=name,
                     shared=shared, **env)
    p.expect("filled", part.deadline)
    answers = []
    for line in ("own 0", "touch", "device", "touch", "own 1", "touch", "own 2", "touch", "own 3", "free", "touch"):
        p.say(line)
        done = p.expect("done", part.deadline)
        answers.append([line, done["result"], done["sum"]])
        if line == "touch":
            between()
    unevictable = max((c["unevictable"] for c in part.gpu()["clients"] if c["pid"] == p.pid), default=0) if shared else 0
    p.close()
    p.wait(part.deadline)
    return p, answers, unevictable


def dma_buf(part, result):
    """Descriptors of memory for a device other than a GPU; this memory must stay on the card."""
    _, want, _ = for_device(part, "plain", False)
    result["answer"] = next(r for line, r, _ in want if line == "device")
    part.daemon(quantum="300ms")
    _, alone, result["unevictable_after_free"] = for_device(part, "alone", True)
    p, tortured, _ = for_device(part, "tortured", True, SUBLET_TORTURE=f"3,{TORTURE}")
    result["tortured_gib"] = round(sum(bytes_of(part, p.pid)) / parts.GIB, 1)
    other = part.program("hold", "--bytes", parts.size(RIVAL_GIB), "--block", parts.size(2), name="other")
    other.expect("filled", part.deadline)
    held, before = [], part.gpu()["handoffs"]

    def touch():
        other.say("touch")
        other.expect("done", part.deadline)
        held.append(max(c["backed"] for c in part.gpu()["clients"] if c["name"] == "beside"))

    _, beside, _ = for_device(part, "beside", True, touch)
    result["handoffs"] = part.gpu()["handoffs"] - before
    result["held_gib"] = round(min(held[1:-1]) / parts.GIB, 2)  # after the order `device` and before `free`
    other.close()
    other.wait(part.deadline)
    result.update(alone=alone == want, tortured=tortured == want, beside=beside == want)
    wrong = [k for k in ("alone", "tortured", "beside") if not result[k]]
    if wrong:
        raise Failure(f"other answers or contents than on the plain driver: {', '.join(wrong)}")
    if not result["tortured_gib"]:
        raise Failure("never tortured")
    if result["answer"] == 0 and result["held_gib"] < BUFFER_GIB:
        raise Failure(f"memory that a device has was moved: {result['held_gib']} GiB stayed")


def caches(part, result):
    """PyTorch on only the second GPU gives its cache back; no context appears on the first GPU."""
    if suite.Card(part).cards() < 2:
        result["skipped"] = ONE
        return
    part.daemon(capacity=f"{CACHE_CAPACITY_GIB}GiB", quantum="300ms")
    first = suite.Card(part, 0)
    pair = [part.start([sys.executable, os.path.join(suite.HERE, "cacher.py"), "--gib", str(CACHE_GIB), "--device", "1"], name, True,
                       CUDA_VISIBLE_DEVICES=BOTH) for name in ("one", "another")]
    for p in pair:
        p.expect("ready", part.deadline)
    for p in pair * 3:
        p.say("work")
        p.expect("done", part.deadline)
    on_first = first.of_processes()
    result["contexts_on_the_first"] = sum(p.pid in on_first for p in pair)
    result["given_back_gib"] = round(sum(e["bytes"] for e in part.traced() if e["event"] == "caches") / parts.GIB, 1)
    for p in pair:
        p.close()
        p.wait(part.deadline)
    if not result["given_back_gib"]:
        raise Failure("no cache was given back")
    if result["contexts_on_the_first"]:
        raise Failure(f"{result['contexts_on_the_first']} contexts on the first GPU, which nobody uses")


PARTS = {"devices-peers": (two_gpus, 150), "devices-torch": (torch_gpus, 90), "devices-dmabuf": (dma_buf, 120),
         "devices-caches": (caches, 90)}


ABOUT = ("A process may use memory of one GPU from another one, and a device may have memory open (dma-buf). This page says whether results"
         " stay those of the plain driver while other programs take the card.")


def figures(found):
    out = []
    for name, what in (("devices-peers", "two GPUs of one process: alone, tortured, and beside another program"),
                       ("devices-torch", "PyTorch on two GPUs: alone and tortured"),
                       ("devices-dmabuf", "memory that a device has (dma-buf): alone, tortured, and beside another program"),
                       ("devices-caches", "PyTorch on the second GPU alone gives its cache back: contexts on the first")):
        r = found.get(name, {})
        if "skipped" in r:
            out.append((what, f"not run: {r['skipped']}", "", None))
        elif r:
            good = "none" if name == "devices-caches" else "equal to the plain driver's"
            out.append((what, pages.cell(r.get("error", good)), good, "error" not in r))
    return out


def page(results):
    found = results["parts"]
    lines = pages.table(figures(found))
    r = found.get("devices-peers", {})
    if "handoffs" in r:
        lines += ["*Two GPUs* (`programs/peers`): kernels of the second GPU add up memory of the first, and copies go both ways. Each"
                  f" round checks every byte of both. With three buffers of {PEERS_GIB} GiB, the program ran"
                  f" plain, under sublet and under torture, which moved {r['tortured_gib']} GiB out. With three buffers of {LARGE_GIB} GiB,"
                  f" it shared the first GPU with a program of {OTHER_GIB} GiB. That run had {r['handoffs']} hand-offs in"
                  f" {r['beside_rounds']} rounds.", ""]
    r = found.get("devices-torch", {})
    if "tortured_gib" in r:
        lines += ["*PyTorch*: each of 300 steps multiplies matrices on both GPUs and sends the results across, both ways. All bits of"
                  f" both are compared. Torture moved {r['tortured_gib']} GiB out.", ""]
    r = found.get("devices-dmabuf", {})
    if "held_gib" in r:
        given = "the driver gave descriptors" if r["answer"] == 0 else f"the driver gives none (error {r['answer']}), with sublet or without"
        lines += [f"*dma-buf* (`programs/share`, `cuMemGetHandleForAddressRange`): {given}. A device has {BUFFER_GIB} GiB of"
                  f" the program open, and the program has {BUFFER_GIB} GiB more. The program ran plain, under sublet and under torture, which"
                  f" moved {r['tortured_gib']} GiB out. Beside a program of {RIVAL_GIB} GiB there were {r['handoffs']} hand-offs. While the"
                  f" device had memory open, at least {r['held_gib']} GiB of the program were on the card.", ""]
    return [*lines, *pages.unfinished(found), f"`./dev gpu --only {','.join(PARTS)}` runs these parts (`tests/gpu/devices.py`).", ""]
