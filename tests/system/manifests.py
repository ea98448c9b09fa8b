"""The manifests of deploy/kubernetes, rendered by kubectl."""

import json
import re
import shutil
import subprocess

import yaml


def _missing():
    if not shutil.which("kubectl"):
        return "there is no kubectl"
    done = subprocess.run(["kubectl", "version", "--client", "-o", "json"], stdout=subprocess.PIPE, check=True)
    version = json.loads(done.stdout)["clientVersion"]
    old = (int(version["major"]), int(re.match(r"\d+", version["minor"]).group())) < (1, 21)
    return "this kubectl is older than 1.21" if old else None


MISSING = _missing()  # the reason why tests with rendered manifests are skipped; None if they run


def render(folder):
    """Returns the documents. kubectl has to be content with the words, too."""
    done = subprocess.run(["kubectl", "kustomize", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return [d for d in yaml.safe_load_all(done.stdout) if d]
