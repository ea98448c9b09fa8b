#!/usr/bin/env python3
"""Checks the use of locks in src/preload by clang's thread-safety analysis, with the annotations of lock.h.

    check_locks.py BUILD [ROOT]

BUILD has a compile_commands.json, such as product_commands.py writes. clang also finds calls of the driver that may
block while core_lock is held, by the flags of cuda_api.def. clang ignores such attributes on function pointers. So this
script gives clang a text in which calls of functions driver_cu*() replace the calls through the pointers real.cu*.
lock_drops.py checks that functions declare it if they give up their caller's lock. Prints the findings. Exits with 1 if
there is one or nothing was checked."""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys

import lock_drops


def flags(command):
    """Returns the compiler's options about language and folders, because gcc's other options mean nothing to clang."""
    words = shlex.split(command)
    return [w for at, w in enumerate(words) if w.startswith(("-I", "-D", "-std")) or words[at - 1] == "-I"]


DRIVER_CALL = re.compile(r"\breal\.(cu\w+)(?=\()")
DRIVER = """#include "preload/driver/real.h"
#include "preload/process/lock.h"
#define HELD_0(function) function;
#define HELD_CU_API_PTSZ(function) function;
#define HELD_CU_API_BLOCKS(function) function EXCLUDES(core_lock);
#define HELD_CU_API_PTSZ_BLOCKS(function) function EXCLUDES(core_lock);
#define CU(base, symbol, since, flags, behaviour, stream, params, args) HELD_##flags(CUresult driver_##symbol params)
#include "cuda/cuda_api.def"
#undef CU
"""


def check(entry):
    with open(os.path.join(entry["directory"], entry["file"]), encoding="utf-8") as f:
        text = f.read()
    if DRIVER_CALL.search(text):
        text = DRIVER + f'#line 1 "{entry["file"]}"\n' + DRIVER_CALL.sub(r"driver_\1", text)
    done = subprocess.run(["clang", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror", *flags(entry["command"]),
                           "-x", "c", "-"], input=text, cwd=entry["directory"], capture_output=True, text=True, check=False)
    return done.stderr.replace("driver_cu", "real.cu") if done.returncode else ""


def main():
    build, root = sys.argv[1], os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.dirname(__file__)))
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        found = {os.path.normpath(os.path.join(e["directory"], e["file"])): e for e in json.load(f)}
    entries = [e for path, e in sorted(found.items())
               if path.startswith(os.path.join(root, "src", "preload") + os.sep) and path.endswith(".c")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = sorted(set(filter(None, pool.map(check, entries))))
    findings += lock_drops.findings(entries, flags, os.path.join(root, "src", "preload"))
    print("\n".join(findings) or f"locks: {len(entries)} files hold what they need")
    return 1 if findings or not entries else 0


sys.exit(main())
