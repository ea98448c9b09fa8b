"""Root file systems of containers: programs with the libraries that they load, and nothing else."""

import os
import shutil
import subprocess


def libraries(program):
    """Returns the paths of the libraries that a program or library loads, its loader too."""
    done = subprocess.run(["ldd", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    # "libc.so.6 => /lib/libc.so.6 (0x7f...)" or "/lib64/ld-linux-x86-64.so.2 (0x7f...)"
    return [word for line in done.stdout.splitlines() for word in line.split() if word.startswith("/")]


def put(root, path, to=None):
    """Copies a file to the same path below root, or to this one."""
    target = f"{root}{to or path}"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy2(os.path.realpath(path), target)


def put_program(root, program, to=None):
    """Copies a program as put() does, and the libraries that it loads."""
    put(root, program, to)
    put_libraries(root, program)


def put_libraries(root, program):
    """Copies the libraries that a program or library loads, without itself."""
    for path in libraries(program):
        put(root, path)
