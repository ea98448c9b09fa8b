#!/usr/bin/env python3
"""Checks that every relative link and every #anchor of every page leads somewhere.

    check_links.py [ROOT]

ROOT is a clone, or the folder of the installed documentation. Prints one line for each dead link. Exits with 1 if there
is one or nothing was checked."""

import os
import re
import shutil
import subprocess
import sys

CODE = re.compile(r"^```.*?^```|^(?: {4}|\t).*?$|``.+?``|`[^`\n]+`", re.S | re.M)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.M)


def pages_of(root):
    """Returns all pages; in a clone, the pages that git tracks or does not ignore."""
    names = []
    if shutil.which("git"):
        names = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.md"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, check=False).stdout.splitlines()
    names = names or [os.path.relpath(os.path.join(folder, name), root) for folder, _, files in os.walk(root)
                      for name in files if name.endswith(".md")]
    return sorted(name for name in names if os.path.isfile(os.path.join(root, name)))


def read(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def anchors_of(text):
    """Returns the anchors that GitHub makes of the headings."""
    found = set()
    for heading in HEADING.findall(re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        times = sum(a == slug or re.fullmatch(re.escape(slug) + r"-\d+", a) is not None for a in found)
        found.add(f"{slug}-{times}" if times else slug)
    return found


def look_at(root, name):
    path = os.path.join(root, name)
    text = read(path)
    for link in LINK.findall(CODE.sub("", text)):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
        if os.path.relpath(target, root).startswith("..") or not os.path.exists(target):
            yield f"{name}: {link}: no such file"
        elif anchor and (not target.endswith(".md") or anchor not in anchors_of(read(target))):
            yield f"{name}: {link}: no such heading"
        else:
            yield None


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), ".."))
    looked = [finding for name in pages_of(root) for finding in look_at(root, name)]
    findings = [finding for finding in looked if finding]
    print("\n".join(findings) or f"links: {len(looked)} lead somewhere")
    return 1 if findings or not looked else 0


sys.exit(main())
