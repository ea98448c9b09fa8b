"""What README.md and docs/ tell people to type: the commands and options exist, and a daemon takes the settings."""

import os
import pathlib
import re
import subprocess

from test_daemon import GENEROUS_S, Daemon, environment, place  # noqa: F401
from world import BUILD, ROOT

PAGES = [pathlib.Path(ROOT, "README.md"), *sorted(pathlib.Path(ROOT, "docs").glob("*.md"))]
NO_COMMANDS = {"sublet profile 1"}  # the first line of a file
LAB = pathlib.Path(ROOT, "docs", "lab.md")


def said_by(*command):
    return subprocess.run([os.path.join(BUILD, "sublet"), *command], stdout=subprocess.PIPE, text=True, timeout=GENEROUS_S,
                          check=True).stdout


def typed(page):
    """Yields the words of each command of sublet's in a block of the page."""
    for line in set(re.findall(r"^ {4}(.*)$", page.read_text(), re.M)) - NO_COMMANDS:
        for command in re.split(r" +# | \| | && ", line):
            if found := re.match(r"(?:\w+=\S+ |sudo |\$ )*(?:build/)?sublet ([a-z]+(?: .*)?)$", command.strip()):
                yield found[1].split()


def test_each_command_of_the_pages_exists_with_its_options():
    options = {name: set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", said_by("help", name))) | {"--help"}
               for name in re.findall(r"^  ([a-z]+)  ", said_by("help"), re.M)}
    options["bench"] |= set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", said_by("bench", "pairs", "--help")))
    commands = [(page.name, words) for page in PAGES for words in typed(page)]
    wrong = []
    for page, words in commands:
        own = words[:words.index("--")] if "--" in words else words
        used = {word.split("=")[0] for word in own[1:] if word.startswith("-") and not word[1:2].isdigit()}
        if own[0] not in options or used - options[own[0]]:
            wrong.append(f"{page}: sublet {' '.join(words)}")
    assert len(commands) > 50 and not wrong, "\n".join(wrong)


def test_a_daemon_takes_the_configuration_that_the_page_for_a_labs_machine_builds(place, tmp_path):  # noqa: F811
    """All that the page adds to the file, in its order. The users of the page are not here, and `require` counts in
    /etc/sublet alone."""
    blocks = [block for block in re.findall(r"(?:^ {4}.*\n|^\n(?= {4}))+", LAB.read_text(), re.M) if " = " in block]
    text = "".join(re.sub(r"^ {4}", "", block, flags=re.M) for block in blocks)
    assert "require = yes\n" in text and text.count("[class") == 2
    numbers = iter(range(3001, 4000))
    text = re.sub(r"(?<=^user = ).*$", lambda m: ", ".join(str(next(numbers)) for _ in m[0].split(",")), text, flags=re.M)
    config = tmp_path / "subletd.conf"
    config.write_text(text.replace("require = yes\n", ""))
    d = Daemon(place, "--config", str(config))
    done = subprocess.run([os.path.join(BUILD, "sublet"), "reload", "--daemon", place], env=environment(), stdout=subprocess.PIPE,
                          text=True, timeout=GENEROUS_S, check=False)
    assert (done.returncode, done.stdout) == (0, "reloaded: 2 classes\n")
    assert d.end()[0] == 0
