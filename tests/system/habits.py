"""The table of hostile habits, and the runner that looks how a bystander fares meanwhile and afterwards.

A habit is a generator over a target. Until its first yield it does its harm. Then it stands still while the bystander
asks. Then it goes on, closes what it holds, and may check what is left. HABITS names for each habit the kinds of targets that it is for: a target of another
kind, or a habit of its own, needs one more row and nothing else. In the suite all choices are fixed; a campaign
(tests/hostile) gives its threads a generator of random numbers, from which sizes and splits are drawn."""

import contextlib
import threading
import time

HABITS = []
_variation = threading.local()


class Target:
    """What is attacked, and its bystander. kinds: what the table goes by. process: of the program; None: each bystander
    starts its own."""

    def __init__(self, kinds, process):
        self.kinds, self.process = set(kinds), process

    def ask(self):
        """The bystander's request, which checks the answer."""
        raise NotImplementedError

    def begun(self, name):
        """A habit begins."""

    def ended(self, name):
        """A habit has ended, and what it held is closed. Fails if a bystander could notice what is left of it."""

    def is_alive(self):
        return self.process is None or self.process.poll() is None


def habit(*kinds):
    """Puts a function into the table. Targets need all of the kinds."""
    def add(f):
        HABITS.append((f.__name__, set(kinds), f))
        return f
    return add


def add(name, f, *kinds):
    HABITS.append((name, set(kinds), f))


def of(target):
    """Returns the rows for a target: name and function."""
    return [(name, f) for name, kinds, f in HABITS if kinds <= target.kinds]


def vary(rng):
    """From now on this thread draws what it does. None: no longer."""
    _variation.rng = rng


def rng():
    return getattr(_variation, "rng", None)


def drawn(usual):
    """Returns a size: the usual one in the suite, and up to the usual one in a campaign."""
    return rng().randint(1, usual) if rng() and usual > 1 else usual


def parts(data):
    """Splits bytes as they are to be sent, each part by itself."""
    if not rng() or len(data) < 2 or rng().random() < 0.4:
        return [data]
    cuts = sorted(rng().randrange(1, len(data)) for _ in range(rng().randint(1, 4)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)]) if a < b]


def run(t):
    """Tries all habits for the target. Returns those that a bystander noticed, each with what was wrong, and how long
    the bystander waited at most, with the name of the habit, and how many were tried."""
    wrong, longest, rows = {}, (0, ""), of(t)
    for name, f in rows:
        try:
            t.begun(name)
            with contextlib.closing(f(t)) as attack:
                next(attack)
                began = time.monotonic()
                t.ask()
                longest = max(longest, (time.monotonic() - began, name))
                next(attack, None)
            t.ask()
            t.ended(name)
        except (AssertionError, OSError) as e:
            wrong[name] = repr(e)
        if not t.is_alive():
            wrong[name] = f"the program ended with {t.process.returncode}"
            break
    return wrong, longest, len(rows)
