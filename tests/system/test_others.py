"""Tests run programs as other users. Those users must be able to reach the programs."""

import os
import shutil
import subprocess
import sys

import others
from world import BUILD, ROOT

AS_ANOTHER = """
import os, subprocess, sys
import others
for argv in ([f"{others.BUILD}/sublet", "--version"], [f"{others.BUILD}/subletd", "--version"],
             [sys.executable, f"{others.SCRIPTS}/relay.py", "/nowhere"], [sys.executable, f"{others.SCRIPTS}/wireclient.py"]):
    subprocess.run([*others.as_user(others.NOBODY), *argv], check=True, stdin=subprocess.DEVNULL, cwd="/")
print(others.BUILD)
others.remove()
"""


@others.needed
def test_other_users_reach_programs_of_a_clone_that_they_cannot_enter(tmp_path):
    os.chmod(tmp_path, 0o700)
    for name in ("tests/system", "src/wire"):
        shutil.copytree(os.path.join(ROOT, name), tmp_path / name)
    os.symlink(BUILD, tmp_path / "build")
    env = {k: v for k, v in os.environ.items() if k != "SUBLET_OTHERS"} | {"SUBLET_BUILD": str(tmp_path / "build")}
    done = subprocess.run([sys.executable, "-c", AS_ANOTHER], cwd=tmp_path / "tests/system", env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    copy = os.path.dirname(done.stdout.splitlines()[-1])
    assert not copy.startswith(str(tmp_path)) and not os.path.exists(copy), "the copy is elsewhere, and is removed"
