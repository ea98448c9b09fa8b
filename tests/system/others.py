"""Other users of the machine, and the programs that tests run as them. Another user may be unable to enter the folder
of the sources and of the build (a clone under /root). Then the tests copy what that user needs, once a session. BUILD
and SCRIPTS (this folder) name folders that every user can enter: the originals, or the copies."""

import os
import shutil
import subprocess
import tempfile

import pytest

import world

NOBODY = 65534


def _last():
    """Returns a high uid that is valid here: a container may have 65536 of them, or one."""
    with open("/proc/self/uid_map", encoding="ascii") as f:
        return min(1_200_000, max(int(first) + int(count) for first, _, count in map(str.split, f)) - 10)


LAST = _last()


def as_user(uid, gid=None, groups=()):
    """Returns the prefix of a command line that runs as the user."""
    gid = uid if gid is None else gid
    extra = [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", *extra]


def _can(*words):
    return subprocess.run([*as_user(NOBODY), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          check=False).returncode == 0


def _missing():
    if os.getuid() != 0:
        return "only root can act as another user; as root (sudo ./dev test) they run"
    if not _can("true"):
        return "this root cannot become another user; outside of this container they run"
    return None


def seen(pid):
    """True if this process can see the namespaces of another user's process. A root without CAP_SYS_PTRACE cannot."""
    return os.access(f"/proc/{pid}/ns/pid", os.F_OK)


MISSING = _missing()
needed = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


def _copy():
    """Returns the folder of the copy, or None if nothing has to be copied."""
    if MISSING or _can("sh", "-c", 'test -x "$0" && test -r "$1"', os.path.join(world.BUILD, "subletd"), os.path.abspath(__file__)):
        return None
    copy = tempfile.mkdtemp(prefix="slt-others-", dir="/tmp")
    os.chmod(copy, 0o755)
    for name in ("sublet", "subletd", "libsublet.so", "sublet-demo-job", "sublet_spank.so", "sim", "programs"):
        if os.path.exists(os.path.join(world.BUILD, name)):  # a build may leave the plugin of Slurm out
            _readable(os.path.join(world.BUILD, name), os.path.join(copy, "build", name))
    for name in ("src/wire", "tests/system"):
        _readable(os.path.join(world.ROOT, name), os.path.join(copy, name))
    return copy


def _readable(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    (shutil.copytree if os.path.isdir(source) else shutil.copy)(source, target)
    subprocess.run(["chmod", "-R", "go=u-w", target], check=True)


# The parent of pytest's workers makes the copy if one is needed. The workers inherit its path.
if "SUBLET_OTHERS" not in os.environ:
    os.environ["SUBLET_OTHERS"] = _copy() or ""
_made = os.environ["SUBLET_OTHERS"]
BUILD = os.path.join(_made, "build") if _made else world.BUILD
SCRIPTS = os.path.join(_made or world.ROOT, "tests/system")


def remove():
    """Removes the copy. The parent of pytest's workers calls this at the end of the session."""
    if _made:
        shutil.rmtree(_made)
