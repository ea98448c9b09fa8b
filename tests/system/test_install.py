"""The files that `cmake --install` puts into the prefix: all of them are there, and work wherever the prefix is moved
to."""

import os
import pathlib
import re
import select
import shutil
import subprocess
import sys

import pytest

from world import BUILD, GENEROUS_S, ROOT


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
    ranks = world.start([prefix / "bin/sublet", "run", "--ranks", "3", "--sim", os.path.join(BUILD, "programs", "devices")],
                        SUBLET_DIR=None, XDG_RUNTIME_DIR=world.root, LD_LIBRARY_PATH=None).ok()
    assert [e["n"] for e in ranks.events("devices")] == [3]
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
    found = re.search(r"^SUBLET_PYTHON_DIR:STRING=(.*)$", pathlib.Path(BUILD, "CMakeCache.txt").read_text(), re.M)
    folder = found[1] if found else "share/sublet"
    for name in ("include/sublet.h", f"{folder}/sublet.py", "share/doc/sublet/README.md", "share/doc/sublet/docs/operations.md"):
        assert (prefix / name).is_file(), name


def test_python_finds_the_installed_module(tmp_path):
    """The folder is one of those in which the machine's python3 looks. Asking for the libraries of the parts that are left
    out here would take ten times as long."""
    without = [f"-DSUBLET_{part}=OFF" for part in ("KUBERNETES", "PAIRING", "SLURM")]
    subprocess.run(["cmake", "-S", ROOT, "-B", tmp_path, "-G", "Ninja", *without], stdout=subprocess.DEVNULL, timeout=60,
                   check=True)
    cache = (tmp_path / "CMakeCache.txt").read_text()
    prefix, folder = (re.search(rf"^{name}:\w+=(.*)$", cache, re.M)[1] for name in ("CMAKE_INSTALL_PREFIX", "SUBLET_PYTHON_DIR"))
    looked = subprocess.run(["/usr/bin/python3", "-c", "import site; print(*site.getsitepackages(), sep='\\n')"],
                            stdout=subprocess.PIPE, text=True, timeout=20, check=True).stdout
    assert f"{prefix}/{folder}" in looked.split()


def test_the_links_of_the_installed_documentation_lead_somewhere(prefix):
    checked = subprocess.run([sys.executable, os.path.join(ROOT, "tools", "check_links.py"), str(prefix / "share/doc/sublet")],
                             stdout=subprocess.PIPE, text=True, timeout=20)
    assert checked.returncode == 0, checked.stdout


SECTIONS = "NAME SYNOPSIS DESCRIPTION OPTIONS EXAMPLES FILES".split() + ["SEE ALSO"]


def test_the_manual_pages_list_the_programs_options_keys_and_variables(prefix):
    if not os.path.exists(os.path.join(BUILD, "sublet.1")):
        pytest.skip("a build without manual pages; in one for this machine, without a sanitizer, they run")
    texts = {}
    programs = [("sublet", ["sublet.1"]), ("subletd", ["subletd.8", "subletd.conf.5"])]
    if os.path.exists(os.path.join(BUILD, "sublet-device-plugin")):
        programs.append(("sublet-device-plugin", ["sublet-device-plugin.8"]))
    for name in (page for _, pages in programs for page in pages):
        page = prefix / "share/man" / f"man{name[-1]}" / name
        texts[name] = page.read_text().replace("\\-", "-")
        wanted = SECTIONS + (["ENVIRONMENT", "EXIT STATUS"] if name != "subletd.conf.5" else [])
        assert set(wanted) <= set(re.findall(r"^\.SH (.*)$", texts[name], re.M))
        if shutil.which("groff"):
            done = subprocess.run(["groff", "-man", "-ww", "-z", page], stderr=subprocess.PIPE, text=True, timeout=20)
            assert done.stderr == ""
    for program, pages in programs:
        said = subprocess.run([os.path.join(BUILD, program), "--help"], stdout=subprocess.PIPE, text=True, timeout=20, check=True).stdout
        words = re.findall(r"^  (-*[A-Za-z_-]+)", said, re.M)
        text = "".join(texts[page] for page in pages)
        assert len(words) >= 8
        assert not [w for w in words if not re.search(rf"^\.(B|SS \"sublet) {re.escape(w)}\b", text, re.M)], text


# The beginning of a command line, and the words that complete its last word.
COMPLETIONS = (
    ("st", {"status", "stop"}),
    ("run --na", {"--name"}),
    ("run --prof", {"--profile", "--profile-file"}),
    ("run --profile job.profile -- cma", {"cmake"}),
    ("run --memory ", {"swap", "overflow", "managed"}),
    ("run --freeze ", {"off", "park", "move"}),
    ("pau", {"pause"}),
    ("run --sim=memory=1GiB -- cma", {"cmake"}),
    ("run true --na", set()),  # an option of the program itself
    ("set ", {"mode", "quantum"}),
    ("set mode e", {"exclusive"}),
    ("status --", {"--daemon", "--sim", "--json", "--watch"}),
    ("help do", {"doctor"}),
)
COMPLETION = pathlib.Path(ROOT, "deploy", "completion")
SHELL_ENV = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "TERM": "dumb", "XDG_RUNTIME_DIR": "/nonexistent"}


def complete_in_bash(lines, env):
    """Returns the words that the shell offers for each line."""
    def complete(words):
        script = (f". {COMPLETION}/sublet.bash; COMP_WORDS=(sublet \"$@\"); COMP_CWORD=$#; _sublet; "
                  "printf '%s\\n' \"${COMPREPLY[@]}\"")
        split = re.sub("=", " = ", words).split(" ")  # bash makes = a word
        done = subprocess.run(["bash", "-c", script, "bash", *split], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=20)
        assert done.stderr == ""
        return set(done.stdout.split())

    return [complete(words) for words in lines]


def complete_in_fish(lines, env):
    def complete(words):
        done = subprocess.run(["fish", "--no-config", "-c", f"source {COMPLETION}/sublet.fish; complete -C 'sublet {words}'"],
                              env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=20)
        assert done.stderr == ""
        return {line.split("\t")[0] for line in done.stdout.splitlines()}

    return [complete(words) for words in lines]


# zsh completes only on a terminal. This zsh prints the words that it offers after Ctrl-T.
ZSH = """
bindkey -e; bindkey '^T' offer
offer() { zle list-choices; print -r -- THAT''S ALL; }
zle -N offer
PS1= PS2= fpath=(%s $fpath)
autoload -U compinit && compinit -u -D
compadd() {
        local -a offered
        [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\\ * ]] || { builtin compadd -O offered "$@"; print -lr -- OFFER=$^offered; }
        builtin compadd "$@"
}
print REA''DY
"""


def complete_in_zsh(lines, env):
    pid, terminal = os.forkpty()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], env)

    def type_and_read(text, mark):
        os.write(terminal, text.encode())
        said = b""
        while mark not in said:
            assert select.select([terminal], [], [], GENEROUS_S)[0], said
            said += os.read(terminal, 65536)
        return said.decode()

    try:
        type_and_read(ZSH % COMPLETION, b"READY")
        return [set(re.findall(r"OFFER=([^\s=]+)", type_and_read(f"\x15sublet {words}\x14", b"THATS ALL"))) for words in lines]
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


SHELLS = [pytest.param(complete, id=name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"no {name} here"))
          for name, complete in (("bash", complete_in_bash), ("fish", complete_in_fish), ("zsh", complete_in_zsh))]


@pytest.mark.parametrize("complete", SHELLS)
def test_a_shell_completes_the_words_of_sublet(complete):
    lines, wanted = zip(*COMPLETIONS)
    for line, words, found in zip(lines, wanted, complete(lines, SHELL_ENV)):
        assert words <= found and (found == words or words == {"cmake"}), f"{line}: {found}"


@pytest.mark.parametrize("complete", SHELLS)
def test_a_shell_completes_numbers_and_names_of_programs(complete, shared):
    p = shared.program("hold", "--bytes", "1MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    env = {**shared.env, **{key: SHELL_ENV[key] for key in ("PATH", "TERM")}}
    for found in complete(("pause ", "evict ", "set --pid ", "priority "), env):
        assert found == {str(p.pid), "hold"}
    assert {"names", "quantum"} <= complete(("set ",), env)[0]
    p.finish()
