"""Runs a command as on a kernel before Linux 6.16, which cannot refuse descriptors: CMD [ARGUMENT]..."""

import ctypes
import os
import platform
import struct
import sys

SO_PASSRIGHTS = 83


def before_6_16():
    """Makes setsockopt(SO_PASSRIGHTS) fail as on an older kernel, for the rest of this process's life."""
    number = {"x86_64": 54, "aarch64": 208}[platform.machine()]
    load, equal, answer = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
    allow, unknown = 0x7FFF0000, 0x00050000 | 92  # SECCOMP_RET_ERRNO, ENOPROTOOPT
    program = b"".join(struct.pack("<HBBI", *row) for row in (
        (load, 0, 0, 0), (equal, 0, 3, number), (load, 0, 0, 16 + 2 * 8), (equal, 0, 1, SO_PASSRIGHTS),
        (answer, 0, 0, unknown), (answer, 0, 0, allow)))
    rows = ctypes.create_string_buffer(program, len(program))
    filter_ = struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(rows))
    libc = ctypes.CDLL(None, use_errno=True)
    for order in ((38, 1, 0, 0, 0), (22, 2, ctypes.c_char_p(filter_))):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        if libc.prctl(*order) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    before_6_16()
    os.execv(sys.argv[1], sys.argv[1:])
