"""The files that `cmake --install` puts into the prefix: all of them are there, and work wherever the prefix is moved
to."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from world import BUILD, ROOT


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    destination = tmp_path_factory.mktemp("root")
    done = subprocess.run(["cmake", "--install", BUILD], env={**os.environ, "DESTDIR": str(destination)},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    found = re.search(r"^CMAKE_INSTALL_PREFIX:\w+=/(.*)$", pathlib.Path(BUILD, "CMakeCache.txt").read_text(), re.M)
    return destination / found[1]


def test_a_program_runs_from_the_installed_prefix(world, prefix):
    doctor = subprocess.run([prefix / "bin/sublet", "doctor", "--sim"], env=world.env | {"XDG_RUNTIME_DIR": world.root},
                            stdout=subprocess.PIPE, text=True, timeout=60)
    parts = [str(p) for p in prefix.rglob("*") if p.name in ("libsublet.so", "subletd")]
    assert len(parts) == 2 and all(p in doctor.stdout for p in parts), doctor.stdout
    assert "FAIL" not in doctor.stdout, doctor.stdout
    world.start([prefix / "bin/sublet", "run", "--sim", os.path.join(BUILD, "programs", "fill"), "--bytes", "8MiB"],
                SUBLET_DIR=None, XDG_RUNTIME_DIR=world.root, LD_LIBRARY_PATH=None).ok()
    assert os.path.exists(os.path.join(world.root, f"sublet-sim-{world.session}", "client.sock"))


def test_the_files_that_the_demo_builds_can_be_installed():
    """One target builds all files that `cmake --install` takes out of the build folder; else the install would stop
    half way."""
    def labels(*target):
        graph = subprocess.run(["ninja", "-C", BUILD, "-t", "graph", *target], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
        return set(re.findall(r'label="([^"]+)"', graph.stdout))

    home = re.search(r"^CMAKE_CACHEFILE_DIR:\w+=(.*)$", pathlib.Path(BUILD, "CMakeCache.txt").read_text(), re.M)[1]
    scripts = pathlib.Path(BUILD).rglob("cmake_install.cmake")
    installed = {name for s in scripts for name in re.findall(rf'"{re.escape(home)}/([^"]+)"', s.read_text())}
    built = installed & labels("all")  # cmake makes the other files itself
    assert len(built) >= 7
    assert built <= labels("product")
    assert re.search(r"do_demo\(\) \{\n.*\n +build default product\n", pathlib.Path(ROOT, "dev").read_text())


def test_the_service_starts_the_installed_daemon(prefix):
    unit = (prefix / "lib/systemd/system/subletd.service").read_text()
    daemon = re.search(r"^ExecStart=(/.*)$", unit, re.M)[1]
    assert daemon.endswith("/bin/subletd") and str(prefix).endswith(os.path.dirname(os.path.dirname(daemon)))
    assert not re.search(r"@[A-Z_]+@", unit), "all is filled in"


def test_header_module_and_documentation_are_installed(prefix):
    for name in ("include/sublet.h", "share/sublet/sublet.py", "share/doc/sublet/README.md",
                 "share/doc/sublet/docs/operations.md"):
        assert (prefix / name).is_file(), name


def test_the_links_of_the_installed_documentation_lead_somewhere(prefix):
    checked = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "check_links.py"), str(prefix / "share/doc/sublet")],
                             stdout=subprocess.PIPE, text=True, timeout=20)
    assert checked.returncode == 0, checked.stdout


def test_the_manual_pages_list_the_programs_options(prefix):
    pages = {name: prefix / "share/man" / f"man{name[-1]}" / name for name in ("sublet.1", "subletd.8")}
    if not os.path.exists(os.path.join(BUILD, "sublet.1")):
        pytest.skip("a build without manual pages; in one for this machine, without a sanitizer, they run")
    for name, page in pages.items():
        text = page.read_text().replace("\\-", "-")
        program = os.path.join(BUILD, name[:-2])
        said = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, timeout=20, check=True).stdout
        words = re.findall(r"^  (-*[a-z_-]+)", said, re.M)
        assert len(words) >= 8
        assert not [w for w in words if not re.search(rf"^\.(B|SS \"sublet) {re.escape(w)}\b", text, re.M)], text
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-ww", "-z", page], stderr=subprocess.PIPE, text=True, timeout=20)
            assert done.stderr == ""


@pytest.mark.parametrize("words, wanted", [
    (["st"], {"status", "stop"}),
    (["run", "--na"], {"--name"}),
    (["run", "--prof"], {"--profile", "--profile-file"}),
    (["run", "--profile", "job.profile", "--", "cma"], {"cmake"}),
    (["run", "--memory", ""], {"swap", "overflow", "managed"}),
    (["run", "--freeze", ""], {"off", "park", "move"}),
    (["pa"], {"pause"}),
    (["run", "--sim", "=", "memory", "=", "1GiB", "--", "cma"], {"cmake"}),
    (["run", "true", "--na"], set()),  # an option of the program itself
    (["set", ""], {"mode", "quantum"}),
    (["set", "mode", "e"], {"exclusive"}),
    (["status", "--"], {"--daemon", "--sim", "--json", "--watch"}),
    (["help", "do"], {"doctor"}),
])
def test_bash_completes_the_words_of_sublet(words, wanted):
    script = f". {ROOT}/deploy/completion.bash; COMP_WORDS=(sublet \"$@\"); COMP_CWORD=$#; _sublet; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    done = subprocess.run(["bash", "-c", script, "bash", *words], env={**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}"},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
    assert done.stderr == ""
    found = set(done.stdout.split())
    assert wanted <= found and (found == wanted or wanted == {"cmake"}), found
