"""The library's PTX texts (tools/kernels.sh) must compute the same when a later clang makes them: Debian 13 has clang 19.
./dev lint compares the texts that git has with what Debian 12's clang makes."""

import os
import re
import shutil
import subprocess

import pytest

from world import BUILD, ROOT

CLANG = "clang-19"

pytestmark = pytest.mark.skipif(not shutil.which(CLANG), reason=f"there is no {CLANG}; with Debian's package {CLANG} they run")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """A folder with the texts that clang 19 makes."""
    folder = tmp_path_factory.mktemp("kernels")
    subprocess.run([os.path.join(ROOT, "tools", "kernels.sh"), folder], env=dict(os.environ, CLANG=CLANG), check=True)
    return folder


def heads(paths):
    """Returns what the texts ask of driver and GPU, by file name."""
    return {path.name: re.findall(r"^\.(?:version|target|address_size) .*", path.read_text(), re.MULTILINE) for path in paths}


def test_a_later_clang_asks_no_more_of_driver_and_gpu(kernels):
    found = heads(kernels.iterdir())
    assert len(found) == 14
    assert set(map(tuple, found.values())) == {(".version 4.0", ".target sm_50", ".address_size 64")}


@pytest.mark.parametrize("test", ["test_reduce", "test_fingerprint"])
def test_what_a_later_clang_makes_computes_the_same(kernels, test):
    program = os.path.join(BUILD, "tests", "unit", test)
    ran = subprocess.run([program], env=dict(os.environ, SUBLET_KERNELS=str(kernels)), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
