#!/usr/bin/python3
"""Checks that libsublet.so can be preloaded into any process.

    check_exports.py LIBRARY MAP PROGRAM [ARGUMENT...]

LIBRARY needs the C library alone, no symbol of it newer than GLIBC_MAX, exports exactly what MAP lists, has
no text relocations and no executable stack. PROGRAM, which uses no CUDA, makes the same system calls with and
without it once the loader is done, less two (cpus.c, core.c). Exits with 1 and one line a finding; 77 where readelf is missing.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

GLIBC_MAX = (2, 17)
# With _GNU_SOURCE the headers of glibc 2.38 bind these to symbols of their own (__isoc23_...).
REBOUND = re.compile(r"(__isoc\d+_)?(v?[fs]?w?scanf|(str|wcs)to(l|ul|ll|ull|imax|umax))")
# System calls of the loader for a library, all made before the loader unmaps its cache of library names.
LOADING = {"openat", "read", "pread64", "fstat", "newfstatat", "mmap", "mprotect", "close", "lseek", "munmap"}

# The library's first system calls, which ask which CPUs and which stderr the process began with.
FIRST = ["sched_getaffinity", "fstat"]


def readelf(*arguments):
    environment = dict(os.environ, LC_ALL="C")
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True,
                          env=environment).stdout


def check_needed(library):
    dynamic = readelf("-d", library)
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
    # On aarch64 the stack protector's guard is a symbol of the loader, so the library needs the loader, too.
    if [name for name in needed if not name.startswith("ld-linux-")] != ["libc.so.6"]:
        yield f"needs {', '.join(needed)} instead of libc.so.6 alone"
    if "TEXTREL" in dynamic:
        yield "has text relocations"
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        yield "has a run path"
    if re.search(r"GNU_STACK.*RWE", readelf("-l", library)):
        yield "asks for an executable stack"


def check_symbols(library, allowed):
    exported = set()
    for line in readelf("--dyn-syms", library).splitlines():
        fields = line.split()
        if len(fields) < 8 or not fields[0].rstrip(":").isdigit():
            continue
        kind, bind, section, name = fields[3], fields[4], fields[6], fields[7]
        if kind == "SECTION":
            continue
        if section != "UND":
            exported.add(name)
            continue
        version = re.search(r"@+GLIBC_(\d+)\.(\d+)", name)
        if REBOUND.fullmatch(name.split("@")[0]):
            yield f"refers to {name}, which is another symbol where the library is built on glibc 2.38"
        elif version and tuple(map(int, version.groups())) > GLIBC_MAX:
            yield f"refers to {name}, newer than glibc {GLIBC_MAX[0]}.{GLIBC_MAX[1]}"
        if not version and bind != "WEAK":
            yield f"refers to {name}, which the C library of {GLIBC_MAX[0]}.{GLIBC_MAX[1]} does not have"
    for name in sorted(exported - allowed):
        yield f"exports {name}"
    for name in sorted(allowed - exported):
        yield f"does not export {name}"


def system_calls(command, preload):
    """Returns two lists of names: the system calls made while libraries are loaded, and those made afterwards."""
    with tempfile.NamedTemporaryFile("r") as trace:
        subprocess.run(["strace", "-f", "-o", trace.name, "-E", f"LD_PRELOAD={preload}", *command], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        lines = trace.read().splitlines()
    names = []
    for line in lines:
        call = re.match(r"\d+\s+(\w+)\(", line)
        if call:
            names.append(call.group(1))
    # The loader unmaps ld.so.cache last; a program that maps nothing else starts right after it.
    end = names.index("munmap") + 1 if "munmap" in names else len(names)
    return names[:end], names[end:]


def check_silence(library, command):
    machine = re.search(r"Machine:.*", readelf("-h", library)).group().lower().replace("-", "_")
    if os.uname().machine not in machine:
        print("system calls not compared: strace would show the emulator's")
        return
    try:
        loading, running = system_calls(command, "")
        loading_ours, running_ours = system_calls(command, library)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"system calls not compared: {error}")
        return
    running = [*FIRST, *running]
    if running != running_ours:
        yield f"{command[0]} makes other system calls: {' '.join(running_ours)} instead of {' '.join(running)}"
    rest = list(loading_ours)
    for name in loading:
        if name in rest:
            rest.remove(name)
    for name in sorted(set(rest) - LOADING):
        yield f"{command[0]} calls {name} while loading"
    if rest.count("openat") != 1:
        yield f"the loader opens {rest.count('openat')} more files than without it"
    print(f"{len(running)} system calls with it, {len(FIRST)} less without it, {len(rest)} more to load it")


def main():
    library, map_file, *command = sys.argv[1:]
    if not shutil.which("readelf"):
        print("there is no readelf; with binutils installed it runs")
        return 77
    with open(map_file, encoding="utf-8") as file:
        allowed = set(re.findall(r"(\w+);", file.read().split("local:")[0]))
    findings = [*check_needed(library), *check_symbols(library, allowed), *check_silence(library, command)]
    for finding in findings:
        print(f"{os.path.basename(library)} {finding}")
    if not findings:
        print(f"{os.path.basename(library)} exports {len(allowed)} symbols")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
