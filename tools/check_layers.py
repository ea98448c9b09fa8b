#!/usr/bin/env python3
"""Checks the sources and the built objects against the table in docs/architecture.md ("Who may use whom").

    check_layers.py [--build BUILD] [ROOT]

Each #include "FOLDER/..." must be allowed by the table. With BUILD, a folder of built objects, the table must also
allow the functions and variables that a file uses, and at most CIRCLE_MAX files may use one another in a circle. A room
is a subfolder in the table. A folder may use a whole other one ("client") or some rooms of it ("client/common"). Prints
one line for each breach. Exits with 1 if there is a breach or nothing was checked."""

import argparse
import collections
import os
import re
import subprocess
import sys

CIRCLE_MAX = 3
# Tables of functions. A file of an earlier room calls functions of later rooms through such a table, without naming
# them. Reading such a table does not count as using the file that defines it.
TABLES = {"parts", "parts_count", "commands", "command_count", "work_types"}
# Forbidden headers, because the project declares the toolkit's and NVIDIA's functions itself.
FORBIDDEN = re.compile(r"#\s*include\s*[<\"](cuda|cuda_runtime|cuda_runtime_api|nvml|driver_types)\.h")
# The tests that compare our declarations with the toolkit's, if there is a toolkit.
ALLOWED_FORBIDDEN = re.compile(r"^tests/unit/cuda/")
INCLUDE = re.compile(r'#\s*include\s*"([^"]+)"')
SOURCES = (".c", ".h", ".S", ".def", ".inc")
ROW = re.compile(r"^\| `([\w/]+)` \| ([^|]*) \| ([^|]*) \|$", re.M)


class Table:
    """folders: {folder: folders, or single rooms of folders, that it may use}; rooms: {folder: its rooms, each of which may use the rooms before
    it}."""

    def __init__(self, page):
        rows = ROW.findall(page.split("\n## Who may use whom\n")[1].split("\n## ")[0])
        self.folders = {folder: set(uses.split()) - {"-"} for folder, _, uses in rows}
        self.rooms = {folder: rooms.split() for folder, rooms, _ in rows if rooms.strip() != "-"}

    def folder_of(self, path):
        return next((f for f in sorted(self.folders, key=len, reverse=True) if path.startswith(f + "/")), None)

    def room_of(self, folder, path):
        """Returns the position of a file's room in the order of the rooms, or None if the table lacks the room. A file
        directly in the folder is above all rooms."""
        rooms, rest = self.rooms[folder], path[len(folder) + 1:].split("/")
        if len(rest) == 1:
            return len(rooms)
        return rooms.index(rest[0]) if rest[0] in rooms else None


def includes(root, table):
    checked, breaches = 0, []
    for top in ("src", "sim", "bench", "tests", "tools"):
        for directory, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if not name.endswith(SOURCES):
                    continue
                path = os.path.relpath(os.path.join(directory, name), root)
                folder = table.folder_of(path)
                if folder is None:
                    breaches.append(f"{path}: no row of the table says what this folder may use")
                    continue
                if folder in table.rooms and table.room_of(folder, path) is None:
                    breaches.append(f"{path}: the table knows no such room of {folder}")
                    continue
                checked += 1
                with open(os.path.join(root, path), encoding="utf-8") as f:
                    for number, line in enumerate(f, 1):
                        breaches += [f"{path}:{number}: {b}" for b in look_at(root, table, folder, path, line.strip())]
    return checked, breaches


def look_at(root, table, folder, path, line):
    if FORBIDDEN.match(line) and not ALLOWED_FORBIDDEN.match(path):
        yield f"{line}: the product builds without the toolkit"
    found = INCLUDE.match(line)
    if not found or "/" not in found.group(1):
        return
    used, room = found.group(1).split("/")[0], "/".join(found.group(1).split("/")[:2])
    if found.group(1).startswith("../") and not path.startswith("tests/"):
        yield "include by the path from src/, not by ../"
    if used == ".." or not (os.path.isdir(os.path.join(root, "src", used)) or used == "sim"):
        return
    if used != folder.split("/")[-1]:
        if used not in table.folders[folder] and room not in table.folders[folder]:
            yield f"{folder} may not use {room if used + '/' in ' '.join(table.folders[folder]) else used}"
    elif folder in table.rooms:
        target = os.path.join(os.path.dirname(folder), found.group(1))
        at = table.room_of(folder, target)
        if at is not None and at > table.room_of(folder, path):
            yield f"{os.path.dirname(path)} may not use {os.path.dirname(target)}"


def uses(build, root):
    """Returns {file: {file that it uses: symbols}}. A file uses another one if its object lacks a symbol that the
    other object defines."""
    defined, lacks = {}, collections.defaultdict(set)
    for directory, _, names in os.walk(build):
        made = re.match(r"(.*)/CMakeFiles/[\w-]+\.dir(/.*)?$", os.path.relpath(directory, build))
        if not made or not made[1].startswith(("src/", "sim")):
            continue
        sources = {}
        for name in names:
            source = os.path.normpath(made[1] + (made[2] or "") + "/" + name.removesuffix(".o"))
            if name.endswith(".o") and os.path.exists(os.path.join(root, source)):
                sources[os.path.join(directory, name)] = source
        if not sources:
            continue
        listed = subprocess.run(["nm", "-A", *sources], check=True, capture_output=True, text=True)
        for line in listed.stdout.splitlines():
            object_file, _, rest = line.partition(":")
            source, words = sources[object_file], rest.split()
            if words[-2] in "Uw":
                lacks[source].add(words[-1])
            elif words[-2] in "TDBRCVW":
                defined[source.split("/")[0 if source.startswith("sim") else 1], words[-1]] = source
    found = collections.defaultdict(lambda: collections.defaultdict(set))
    for source, symbols in lacks.items():
        own = source.split("/")[0 if source.startswith("sim") else 1]
        for symbol in symbols - TABLES:
            used = defined.get((own, symbol))
            if used and used != source:
                found[source][used].add(symbol)
    return found


def circles(graph):
    """Returns the strongly connected components of more than one file (R. Tarjan, 1972)."""
    number, low, stack, found = {}, {}, [], []

    def visit(v):
        number[v] = low[v] = len(number)
        stack.append(v)
        for w in graph.get(v, ()):
            if w not in number:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], number[w])
        if low[v] == number[v]:
            at = stack.index(v)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10000)
    for v in sorted(graph):
        if v not in number:
            visit(v)
    return found


def symbols(build, root, table):
    graph, breaches = uses(build, root), []
    for source in sorted(graph):
        folder = table.folder_of(source)
        for used, names in sorted(graph[source].items()):
            if folder in table.rooms and table.folder_of(used) == folder and \
                    table.room_of(folder, used) > table.room_of(folder, source):
                breaches.append(f"{source} may not use {used}: {' '.join(sorted(names))}")
    for circle in circles(graph):
        if len(circle) > CIRCLE_MAX:
            breaches.append(f"{len(circle)} files use one another: {' '.join(circle)}")
    return len(graph), breaches


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("--build", help="a folder in which the product was built")
    arguments.add_argument("root", nargs="?", default=os.path.join(os.path.dirname(__file__), ".."))
    a = arguments.parse_args()
    root = os.path.abspath(a.root)
    with open(os.path.join(root, "docs", "architecture.md"), encoding="utf-8") as f:
        table = Table(f.read())
    checked, breaches = includes(root, table)
    if a.build:
        objects, more = symbols(a.build, root, table)
        breaches += more if objects else [f"{a.build}: nothing was built there"]
    print("\n".join(breaches) or f"layers: {checked} files keep to the table")
    return 1 if breaches or not checked else 0


sys.exit(main())
