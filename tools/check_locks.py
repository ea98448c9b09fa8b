#!/usr/bin/env python3
"""Who holds which lock: clang's thread-safety analysis over src/preload, by the annotations of lock.h.

    check_locks.py BUILD [ROOT]

BUILD has a compile_commands.json. Prints clang's findings and exits with 1 if there are any; also when nothing was checked."""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys


def flags(command):
    """What the compiler was told of the language and of folders: gcc's own options mean nothing to clang."""
    words = shlex.split(command)
    return [w for at, w in enumerate(words) if w.startswith(("-I", "-D", "-std")) or words[at - 1] == "-I"]


def check(entry):
    done = subprocess.run(["clang", "-fsyntax-only", "-Wno-everything", "-Wthread-safety", "-Werror", *flags(entry["command"]),
                           entry["file"]], cwd=entry["directory"], capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def main():
    build, root = sys.argv[1], os.path.abspath(sys.argv[2] if len(sys.argv) > 2 else os.path.dirname(os.path.dirname(__file__)))
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        found = {os.path.normpath(os.path.join(e["directory"], e["file"])): e for e in json.load(f)
                 if "tests/unit" not in e["command"]}
    entries = [e for path, e in sorted(found.items())
               if path.startswith(os.path.join(root, "src", "preload") + os.sep) and path.endswith(".c")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        findings = sorted(set(filter(None, pool.map(check, entries))))
    print("\n".join(findings) or f"locks: {len(entries)} files hold what they need")
    return 1 if findings or not entries else 0


sys.exit(main())
