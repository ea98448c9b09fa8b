"""Finds the functions of src/preload that give up core_lock while their caller holds it, and checks that their
declarations say so (UNLOCKS of lock.h).

A function that needs the lock gives it up if it releases the lock or calls a function that gives it up. A call through
a member of a struct gives it up if an initialiser sets a member of that name to such a function; then the member must
be declared MAY_UNLOCK. This script cannot follow other pointers, so none may point to such a function. It reads the
preprocessed text, where a name before a parenthesis counts as a call."""

import dataclasses
import os
import re
import subprocess

LOCK = "core_lock"
MARKS = (("@unlocks ", re.compile(r'__attribute__\(\(annotate\("unlocks"\)\)\)')),
         ("@requires ", re.compile(rf"__attribute__\(\(requires_capability\({LOCK}\)\)\)")))
STRING = re.compile(r'"(?:\\.|[^"\\])*"|' + r"'(?:\\.|[^'\\])*'")
MARKER = re.compile(r'^# \d+ "([^"]*)"')
HEAD = re.compile(r"(\w+)\s*\(")
CALL = re.compile(r"(->|\.)?\s*\b(\w+)\s*\(")
RELEASE = re.compile(rf"\block_release\s*\(\s*&{LOCK}\s*\)")
INITIALISER = re.compile(r"\.(\w+)\s*=\s*(\w+)\s*[,}]")
POINTER = re.compile(r"\(\s*\*(\w+)\s*\)\s*\([^;]*\)\s*((?:@\w+\s*)*);")


@dataclasses.dataclass
class Function:
    name: str
    path: str
    marks: set = dataclasses.field(default_factory=set)
    body: str = ""


@dataclasses.dataclass
class Sources:
    functions: dict = dataclasses.field(default_factory=dict)  # functions by key()
    members: dict = dataclasses.field(default_factory=dict)  # members of structs: does the declaration say MAY_UNLOCK?
    given: dict = dataclasses.field(default_factory=dict)  # members of structs: keys of functions that they point to

    def key(self, path, name):
        """Returns the key of the function that a name means in a file: the file's own static one if there is one."""
        return (path, name) if (path, name) in self.functions else name


def closing(text, at, pair):
    """Returns the position after the bracket that closes the bracket at `at`."""
    depth = 0
    for m in re.compile(f"[{re.escape(pair)}]").finditer(text, at):
        depth += 1 if m.group() == pair[0] else -1
        if depth == 0:
            return m.end()
    return len(text)


def preprocessed(entry, flags, folder):
    """Returns the parts of a file and its headers that lie in the folder: (path, text) in their order."""
    text = subprocess.run(["clang", "-E", "-w", *flags, entry["file"]], cwd=entry["directory"], check=True, capture_output=True,
                          text=True).stdout
    path, pieces = None, []
    for line in text.splitlines():
        m = MARKER.match(line)
        if m:
            path = os.path.normpath(os.path.join(entry["directory"], m.group(1)))
        elif path and path.startswith(folder):
            if not pieces or pieces[-1][0] != path:
                pieces.append((path, []))
            pieces[-1][1].append(line)
    return [(path, "\n".join(lines)) for path, lines in pieces]


def plain(text):
    for mark, pattern in MARKS:
        text = pattern.sub(mark, text)
    text = STRING.sub("0", text)
    while (at := text.find("__attribute__")) >= 0:
        text = text[:at] + text[closing(text, at, "()"):]
    return text


def read(sources, path, text):
    text, at = plain(text), 0
    for m in POINTER.finditer(text):
        sources.members[m.group(1)] = sources.members.get(m.group(1), False) or "@unlocks" in m.group(2)
    while m := re.compile(r"[;{]").search(text, at):
        head, start = text[at:m.start()], m.start()
        at = m.end() if m.group() == ";" else closing(text, start, "{}")
        declared = HEAD.search(head)
        if not declared or "=" in head or "typedef" in head:
            continue
        name = declared.group(1)
        key = (path, name) if path.endswith(".c") and re.search(r"\bstatic\b", head) else sources.key(path, name)
        function = sources.functions.setdefault(key, Function(name, path))
        function.marks |= set(re.findall(r"@\w+", head))
        if m.group() == "{":
            function.path, function.body = path, function.body + text[start:at]
    for m in INITIALISER.finditer(text):
        sources.given.setdefault(m.group(1), set()).add(sources.key(path, m.group(2)))


def calls(sources, function):
    """Returns the calls in a function: keys of functions, and members as ("->", name)."""
    return {("->", m.group(2)) if m.group(1) else sources.key(function.path, m.group(2)) for m in CALL.finditer(function.body)}


def droppers(sources):
    """Returns {function that gives the lock up: the function through which it does, or None if it releases the lock
    itself}."""
    needs = {key: f for key, f in sources.functions.items() if f.marks and f.body}
    calling = {key: calls(sources, f) for key, f in needs.items()}
    calling |= {("->", member): given for member, given in sources.given.items()}
    through = {key: None for key, f in needs.items() if RELEASE.search(f.body)}
    before = None
    while before != len(through):
        before = len(through)
        for key, called in calling.items():
            if key not in through and (via := sorted(called & through.keys(), key=str)):
                through[key] = via[0] if isinstance(via[0], str) else via[0][1]
    return through


def pointed_to(sources, through):
    """Yields functions that give the lock up, each with a function that names it without calling it."""
    for key in sorted((k for k in through if k[0] != "->"), key=str):
        path, name = key if isinstance(key, tuple) else (None, key)
        named = re.compile(rf"(?<![\w.>])(?<!struct ){name}\b(?!\s*\()")
        for f in sources.functions.values():
            if path in (None, f.path) and named.search(INITIALISER.sub(" ", f.body)):
                yield name, f


def findings(entries, flags, folder):
    sources, seen = Sources(), set()
    for entry in entries:
        for path, text in preprocessed(entry, flags(entry["command"]), folder + os.sep):
            if (path, text) not in seen:
                seen.add((path, text))
                read(sources, path, text)
    through = droppers(sources)

    def shown(function):
        return f"{os.path.relpath(function.path, os.path.dirname(os.path.dirname(folder)))}: {function.name}"

    for key, f in sorted(sources.functions.items(), key=lambda item: (item[1].path, item[1].name)):
        drops, says = key in through, "@unlocks" in f.marks
        if drops and not says:
            via = f" in {through[key]}" if through[key] else ""
            yield f"{shown(f)} gives up {LOCK}{via}: declare it UNLOCKS({LOCK})"
        elif says and f.body and not drops:
            yield f"{shown(f)} is declared UNLOCKS({LOCK}), and never gives it up: declare it REQUIRES({LOCK})"
    for name, f in pointed_to(sources, through):
        yield f"{shown(f)} takes the address of {name}, which gives up {LOCK}: nobody sees that where it is called"
    for name, says in sorted(sources.members.items()):
        via = through.get(("->", name))
        if via and not says:
            yield f"the member {name} points to {via}, which gives up {LOCK}: declare it MAY_UNLOCK({LOCK})"
        elif says and not via:
            yield f"the member {name} is declared MAY_UNLOCK({LOCK}), and points to nothing that gives it up"
