"""Images for the cluster of the tests: sublet's own, by images.sh, and those of the pods. All come from this machine's
files, so that nothing is downloaded."""

import importlib.util
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from cluster import run

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/system"))
from roots import put_libraries, put_program  # noqa: E402
OURS = ("daemon", "device-plugin", "webhook")
DEBIANS = ("python3-ipykernel", "python3-jupyter-server")  # what the notebooks' image has, with all that they depend on
USER, HOME = 1000, "/home/jovyan"  # as in the images of the Jupyter project
JUPYTER = ["/usr/bin/python3", "-m", "jupyter_server", "--ip=0.0.0.0", "--no-browser", f"--ServerApp.root_dir={HOME}"]


def build_images(build, folder):
    """Returns the archives. build: sublet's build folder."""
    run(ROOT / "deploy/kubernetes/images.sh", build, folder)
    work = folder / "work"
    for name in ("pause", "job", "notebook"):
        (work / name).mkdir(parents=True)
    run("gcc", "-static", "-O2", "-o", work / "pause/pause", ROOT / "tests/kubernetes/pause.c")
    commit(folder, "pause", ["/pause"])

    put_program(work / "job", build / "sublet-demo-job", "/usr/bin/sublet-demo-job")
    put_program(work / "job", build / "programs/fill", "/usr/bin/fill")
    put_program(work / "job", "/bin/dash", "/bin/sh")
    put_libraries(work / "job", build / "sim/libcuda.so.1")
    commit(folder, "job", ["/usr/bin/sublet-demo-job"])

    lay_out(work / "notebook", DEBIANS)
    home = work / "home" / HOME[1:]
    home.mkdir(parents=True)
    shutil.copy(ROOT / "docs/examples/gpu.py", home)
    commit(folder, "notebook", JUPYTER, "--user", f"{USER}:{USER}", "--env", f"HOME={HOME}", "--workingdir", HOME,
           users=work / "home")
    return sorted(folder.glob("*.tar"))


def commit(folder, name, entrypoint, *config, users=None):
    """users: what belongs to USER in the image, as a root folder; the rest is root's."""
    store = ["buildah", "--storage-driver", "vfs", "--root", folder / "store", "--runroot", folder / "runroot"]
    container = run(*store, "from", "scratch").strip()
    run(*store, "copy", "-q", container, folder / "work" / name, "/")
    if users:
        run(*store, "copy", "-q", "--chown", f"{USER}:{USER}", container, users, "/")
    run(*store, "config", "--entrypoint", json.dumps(entrypoint), *config, container)
    run(*store, "commit", "-q", container, f"docker-archive:{folder}/{name}.tar:sublet-test/{name}:1")
    run(*store, "rm", container)


def lay_out(root, packages):
    """The files of installed Debian packages and of all that these depend on, below an empty root."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for name in ("tmp", "etc"):
        (root / name).mkdir()
    (root / "tmp").chmod(0o1777)
    kinds = ("recommends", "suggests", "conflicts", "breaks", "replaces", "enhances")
    named = run("apt-cache", "depends", "--recurse", "--installed", *(f"--no-{k}" for k in kinds), *packages)
    named = re.findall(r"^[a-z0-9][a-z0-9.+-]+(?::\w+)?$", named, re.M)
    listed = subprocess.run(["dpkg", "-L", *named], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            check=False).stdout  # some are names that another package provides
    unread = ("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/", "/usr/share/info/")
    for path in listed.splitlines():
        if path.startswith("/") and not path.startswith(unread) and (os.path.islink(path) or os.path.isfile(path)):
            place(root, path)
            if path.endswith(".py"):  # the user of the pod could not write what Python compiles
                compiled = importlib.util.cache_from_source(path)
                if os.path.exists(compiled):
                    place(root, compiled)
    (root / "etc/passwd").write_text(f"root:x:0:0:root:/root:/bin/sh\njovyan:x:{USER}:{USER}::{HOME}:/bin/sh\n")
    run("ldconfig", "-r", root)


def place(root, path):
    """The folders of the path may be links, as /lib is."""
    target = root / os.path.realpath(os.path.dirname(path))[1:] / os.path.basename(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if not os.path.lexists(target):
        shutil.copy2(path, target, follow_symlinks=False)
