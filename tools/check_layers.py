#!/usr/bin/env python3
"""Who may use whom: every #include "FOLDER/..." is held against the table below (docs/architecture.md explains it).

    check_layers.py [ROOT]

Prints one line a breach and exits with 1; also when nothing was checked."""

import os
import re
import sys

# A folder may use itself and what is named here.
MAY_USE = {
    "src/base": set(),
    "src/cuda": {"base"},
    "src/wire": {"base"},
    "src/sched": {"base"},
    "src/ptx": {"base"},
    "src/preload": {"base", "cuda", "wire"},
    "src/daemon": {"base", "wire", "sched"},
    "src/cli": {"base", "cuda", "wire"},
    "src/k8s": {"base", "wire"},
    "sim": {"base", "cuda", "ptx"},
    "bench": {"base", "cuda", "wire", "sched", "ptx", "preload"},
    "tools/schedsim": {"base", "sched"},
    "tests": {"base", "cuda", "wire", "sched", "ptx", "preload", "daemon", "cli", "sim"},
}
# What a program looks like from outside belongs to it alone: no toolkit header, no NVIDIA header.
FORBIDDEN = re.compile(r"#\s*include\s*[<\"](cuda|cuda_runtime|cuda_runtime_api|nvml|driver_types)\.h")
# Where the declarations of ours are held against the toolkit's, if there is one.
ALLOWED_FORBIDDEN = re.compile(r"^tests/unit/cuda/")
INCLUDE = re.compile(r'#\s*include\s*"([^"]+)"')
SOURCES = (".c", ".h", ".S", ".def", ".inc")


def folder_of(path):
    return next((f for f in sorted(MAY_USE, key=len, reverse=True) if path.startswith(f + "/")), None)


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), ".."))
    checked, breaches = 0, []
    for top in ("src", "sim", "bench", "tests", "tools"):
        for directory, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if not name.endswith(SOURCES):
                    continue
                path = os.path.relpath(os.path.join(directory, name), root)
                folder = folder_of(path)
                if folder is None:
                    breaches.append(f"{path}: no row in {os.path.basename(__file__)} says what this folder may use")
                    continue
                checked += 1
                own = folder.split("/")[-1]
                with open(os.path.join(root, path), encoding="utf-8") as f:
                    for number, line in enumerate(f, 1):
                        if FORBIDDEN.match(line.strip()) and not ALLOWED_FORBIDDEN.match(path):
                            breaches.append(f"{path}:{number}: {line.strip()}: the product builds without the toolkit")
                        found = INCLUDE.match(line.strip())
                        if not found or "/" not in found.group(1):
                            continue
                        used = found.group(1).split("/")[0]
                        known = used != ".." and (os.path.isdir(os.path.join(root, "src", used)) or used == "sim")
                        if known and used != own and used not in MAY_USE[folder]:
                            breaches.append(f"{path}:{number}: {folder} may not use {used}")
                        if found.group(1).startswith("../") and not path.startswith("tests/"):
                            breaches.append(f"{path}:{number}: include by the path from src/, not by ../")
    print("\n".join(breaches) or f"layers: {checked} files keep to the table")
    return 1 if breaches or not checked else 0


sys.exit(main())
