#!/usr/bin/env python3
"""Writes BUILD/product/compile_commands.json, which has one command for each source of the product (src, sim), so that
lint reads each source once. Prints the sources, a line each.

    product_commands.py BUILD [ROOT]

Some sources are compiled several times, also for tests. The first command counts, because CMake writes the product's
commands before those of its test builds."""

import json
import os
import sys


def main():
    build, root = sys.argv[1], os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.dirname(__file__)))
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        commands = json.load(f)
    first = {}
    for command in commands:
        source = os.path.relpath(os.path.join(command["directory"], command["file"]), root)
        if source.startswith(("src/", "sim/")) and source.endswith(".c"):
            first.setdefault(source, command)
    os.makedirs(os.path.join(build, "product"), exist_ok=True)
    with open(os.path.join(build, "product", "compile_commands.json"), "w", encoding="utf-8") as f:
        json.dump(list(first.values()), f, indent=1)
    print("\n".join(sorted(first)))
    return 0 if first else 1


sys.exit(main())
