#!/usr/bin/env python3
"""Checks that every relative link and every #anchor of every page leads somewhere, and that decisions and sources name
each other.

    check_links.py [ROOT]

ROOT is a clone, or the folder of the installed documentation. A section of docs/decisions.md links to its sources in a
last paragraph, "**Code.** [a.c](../src/a.c)". The head comment of each of them names the section in turn: it ends with
Why: docs/decisions.md, "one heading", "another" and "a third". The installed page has no such paragraphs, because the
sources are not installed.

Prints one line for each dead link and for each name that is not returned. Exits with 1 if there is one or nothing was
checked."""

import os
import re
import shutil
import subprocess
import sys

CODE = re.compile(r"^```.*?^```|^(?: {4}|\t).*?$|``.+?``|`[^`\n]+`", re.S | re.M)
FENCED = re.compile(r"^```.*?^```", re.S | re.M)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.M)
DECISIONS = "docs/decisions.md"
SOURCES = ("src/", "cmake/")  # the folders whose files may name a decision
SECTION = re.compile(r"^## +(.*?) *\n(.*?)(?=^##? |\Z)", re.S | re.M)
CODE_LINE = re.compile(r"^\*\*Code\.\*\* (.*?)(?=\n\n|\n?\Z)", re.S | re.M)
HEAD_COMMENT = re.compile(r"/\*[\s\S]*?\*/|(?://.*\n)+|(?:#.*\n)+")
WHY = "Why: " + DECISIONS
NAMED = re.compile(re.escape(WHY) + r', ("[^"]+"(?:(?:, "[^"]+")* and "[^"]+")?)\.(?: \*/)?$')


def files_of(root):
    """Returns all files; in a clone, those that git tracks or does not ignore."""
    names = []
    if shutil.which("git"):
        names = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True, check=False).stdout.splitlines()
    names = names or [os.path.relpath(os.path.join(folder, name), root) for folder, _, files in os.walk(root)
                      for name in files]
    return sorted(name for name in names if os.path.isfile(os.path.join(root, name)))


def read(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def anchors_of(text):
    """Returns the anchors that GitHub makes of the headings."""
    found = set()
    for heading in HEADING.findall(FENCED.sub("", text)):
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


def decisions_of(root):
    """Returns the sections of the page with decisions: the files that each links to in its last paragraph."""
    path = os.path.join(root, DECISIONS)
    page = read(path) if os.path.isfile(path) else ""
    sections = {}
    for heading, text in SECTION.findall(FENCED.sub("", page)):
        links = [link for line in CODE_LINE.findall(text) for link in LINK.findall(line)]
        sections[heading] = {os.path.normpath(os.path.join(os.path.dirname(DECISIONS), link)) for link in links}
    return sections


def named_in(text):
    """Returns the decisions that a source names at the end of its head comment. None: it names one in another form."""
    head = HEAD_COMMENT.match(text)
    plain = " ".join(re.sub(r"\n *(?:\*(?!/)|//|#)", "\n", head[0]).split()) if head else ""
    named = NAMED.search(plain)
    if text.count(WHY) != (1 if named else 0):
        return None
    return set(re.findall(r'"([^"]+)"', named[1])) if named else set()


def look_at_decisions(root, sources):
    """Yields a finding, or None, for each time that a section names a source or a source a section."""
    sections = decisions_of(root)
    named = {}
    for name in sources:
        named[name] = named_in(read(os.path.join(root, name)))
        if named[name] is None:
            yield f'{name}: its head comment does not end with {WHY}, "..." alone'
        for heading in sorted(named[name] or ()):
            if heading not in sections:
                yield f'{name}: "{heading}": {DECISIONS} has no such section'
            elif name not in sections[heading]:
                yield f'{name}: "{heading}": the section does not link to this file'
            else:
                yield None
    for heading, files in sections.items():
        for name in sorted(files):
            if heading not in (named.get(name) or ()):
                yield f'{DECISIONS}: "{heading}": the head comment of {name} does not name this section'


def main():
    root = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), ".."))
    files = files_of(root)
    looked = [finding for name in files if name.endswith(".md") for finding in look_at(root, name)]
    looked += look_at_decisions(root, [name for name in files if name.startswith(SOURCES)])
    findings = [finding for finding in looked if finding]
    print("\n".join(findings) or f"links: {len(looked)} lead somewhere")
    return 1 if findings or not looked else 0


sys.exit(main())
