"""Kustomizations for kubectl 1.20, whose kustomize 2.0.3 has other words for folders and patches."""

import pathlib

import yaml


def translate(root):
    """Rewrites each kustomization.yaml below the folder."""
    for path in pathlib.Path(root).rglob("kustomization.yaml"):
        words = yaml.safe_load(path.read_text())
        folders = [name for name in words["resources"] if (path.parent / name).is_dir()]
        words["bases"] = folders
        words["resources"] = [name for name in words["resources"] if name not in folders]
        words["patchesStrategicMerge"] = [patch["path"] for patch in words.pop("patches", [])]
        path.write_text(yaml.safe_dump(words))
