"""What the Debian packages are made of: debian/ says the same as the sources. `./dev package-test` builds the packages
and tries them."""

import fnmatch
import os
import pathlib
import re
import subprocess

from test_daemon import GENEROUS_S, SUBLETD, VERSION, Daemon, environment, place  # noqa: F401
from world import BUILD, ROOT

DEBIAN = pathlib.Path(ROOT, "debian")
SAMPLE = pathlib.Path(ROOT, "deploy", "subletd.conf")


def test_all_places_name_the_same_version():
    assert re.match(rf"sublet \({VERSION}-\d+\) ", (DEBIAN / "changelog").read_text())
    assert re.search(rf"^## \[{VERSION}\] - \d{{4}}-\d\d-\d\d$", pathlib.Path(ROOT, "CHANGELOG.md").read_text(), re.M)


def test_the_packages_are_built_with_the_packages_that_dev_installs():
    listed = re.search(r"^packages_build=\((.*?)\)", pathlib.Path(ROOT, "dev").read_text(), re.M | re.S)[1].split()
    control = re.search(r"^Build-Depends:\n((?: .*\n)+)", (DEBIAN / "control").read_text(), re.M)[1]
    needed = {line.split()[0].rstrip(",") for line in control.splitlines()}
    assert needed - {"debhelper-compat", "dh-sequence-python3"} == set(listed) - {"gcc", "g++", "libc6-dev"}  # each build has these
    more = re.search(r"^packages_package=\((.*?)\)", pathlib.Path(ROOT, "dev").read_text(), re.M)[1].split()
    assert "build-essential" in more, "dpkg-buildpackage asks for it in every build, and debian/control does not name it"


def test_the_pages_install_the_same_packages():
    """An upgrade that names fewer packages than the installation would leave the others old."""
    named = {page: re.findall(r"sudo apt install (\S*build-package/\S+)", pathlib.Path(ROOT, page).read_text())
             for page in ("README.md", "docs/install.md", "docs/lab.md")}
    assert all(named.values()) and len({command for commands in named.values() for command in commands}) == 1, named


def test_each_installed_file_is_in_one_package(tmp_path):
    subprocess.run(["cmake", "--install", BUILD, "--prefix", "/usr"], env={**os.environ, "DESTDIR": str(tmp_path)},
                   stdout=subprocess.DEVNULL, timeout=60, check=True)
    patterns = [line.split()[0] for path in DEBIAN.glob("*.install") for line in path.read_text().splitlines()]
    # debian/rules names the folder of modules, and moves the units; a folder for the architecture is Debian's.
    patterns += ["usr/lib/systemd", "usr/lib/python3*", "usr/lib/sublet"]
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 50
    lost = [file for file in files if not any(fnmatch.fnmatch(str(parent), p) for parent in (file, *file.parents) for p in patterns)]
    assert not lost


def keys_of_the_sample():
    """Yields section, key and value."""
    section = None
    for line in SAMPLE.read_text().splitlines():
        if found := re.match(r"#?\[(\w+)", line):
            section = found[1]
        elif found := re.match(r"#(\w+) = (.*)$", line):
            yield section, found[1], found[2]


def test_the_sample_configuration_has_each_key_with_its_default():
    said = subprocess.run([SUBLETD, "--help"], stdout=subprocess.PIPE, text=True, timeout=GENEROUS_S, check=True).stdout
    of_daemon, of_class = (dict(re.findall(r"^  (\w+) +.*\((.*)\)$", re.search(rf"^{word}.*?\n\n", said, re.M | re.S)[0], re.M))
                           for word in ("Settings", "Classes"))
    sample = list(keys_of_the_sample())
    for section, defaults in (("daemon", of_daemon), ("class", of_class)):
        assert len(defaults) >= 15 and sorted(key for s, key, _ in sample if s == section) == sorted(defaults)
    stated = {"capacity", "host_memory", "host_pool", "metrics", "resource_config"}  # examples of values, because the default is none
    assert {key: value for s, key, value in sample if s == "daemon" and key not in stated} == \
        {key: value for key, value in of_daemon.items() if key not in stated}


def test_the_daemon_takes_the_sample_with_all_its_keys(place, tmp_path):  # noqa: F811
    resources = tmp_path / "resources"
    resources.write_text("0\n")
    config = tmp_path / "subletd.conf"
    config.write_text(re.sub(r"^#(?=\[|\w+ = )", "", SAMPLE.read_text(), flags=re.M)
                      .replace("/etc/sublet/resources", str(resources)))
    d = Daemon(place, "--config", str(config))
    shown = subprocess.run([os.path.join(BUILD, "sublet"), "set", "--daemon", place], env=environment(), stdout=subprocess.PIPE,
                           text=True, timeout=GENEROUS_S, check=True).stdout
    assert re.search(r"^quantum_max +60", shown, re.M), shown
    assert d.end()[0] == 0
