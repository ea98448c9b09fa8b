"""podman, of which nothing lies outside of a world: /run is its own, where it looks for CDI files and stores images, too."""

import os
import shlex
import shutil
import subprocess

PODMAN = shutil.which("podman")
GLOBAL = ["--root", "/run/images", "--runroot", "/run/containers", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs",
          "--events-backend", "none", "--runtime", "crun", "--runtime-flag", "cgroup-manager=disabled"]
# Without what a machine may forbid: cgroups, and limits above its own. (With --cgroups=disabled podman refuses --pid=host.)
RUN = ["run", "--rm", "--network=none", "--read-only-tmpfs=false", "--cgroups=no-conmon", "--ulimit", "nofile=1024:1024",
       "--ulimit", "nproc=1024:1024"]


def start(world, *options, image=None, root=None, argv=(), cdi=None, own_pids=True):
    """Starts a container of a root's folder, or of an image in an archive (its name, the archive's path), with these
    options of `podman run`. cdi: a folder with CDI files. With own_pids=False the option --pid=host means this machine;
    then the container's programs need the world's environment, which is how the world finds them at its end."""
    config = world.path("containers.conf")
    with open(config, "w", encoding="ascii") as f:
        f.write('[engine]\nlock_type = "file"\n')  # otherwise its locks are in /dev/shm, and stay there
    for name in ("dev", "etc", "proc", "run", "sys", "tmp") if root else ():
        os.makedirs(os.path.join(root, name), exist_ok=True)  # two containers of one folder would fail to make the same
    what = [image[0]] if image else ["--rootfs", root]
    lines = ["set -e", "mount -t tmpfs none /run", "mkdir /run/cdi", "[ ! -d /etc/cdi ] || mount -t tmpfs none /etc/cdi",
             "mount -t cgroup2 -o ro none /sys/fs/cgroup"]  # crun refuses a mix of both versions
    if cdi:
        lines.append(f"mount --bind {shlex.quote(cdi)} /run/cdi")
    if image:
        lines.append(shlex.join([PODMAN, *GLOBAL, "load", "-q", "-i", image[1]]) + " >/dev/null")
    lines.append("exec " + shlex.join([PODMAN, *GLOBAL, *RUN, *options, *what, *argv]))
    spaces = ["--mount", *(["--pid", "--fork", "--kill-child", "--mount-proc"] if own_pids else [])]
    return world.start(["unshare", *spaces, "sh", "-c", "\n".join(lines)], CONTAINERS_CONF=config)


def mounts(paths):
    """Returns options for (path of the host, path of the container, whether it is read-only)."""
    return [word for host, inside, read_only in paths for word in ("-v", f"{host}:{inside}" + (":ro" if read_only else ""))]


def variables(env):
    return [word for k, v in env.items() for word in ("-e", f"{k}={v}")]
