#!/usr/bin/env python3
"""Draws what a program shows in a terminal, as SVG from the terminal's cells.

    picture.py [--size 80x24] [--after SECONDS] [--keys KEYS] FILE COMMAND...

Runs COMMAND in a terminal of that size, types KEYS at half of the time, and writes FILE after that time. Needs Debian's
python3-pyte. docs/pictures/top.svg was made with tools/picture_top.sh."""

import argparse
import os
import sys
import time
from xml.sax.saxutils import escape

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "system"))
from terminal import Terminal  # noqa: E402

WIDTH, HEIGHT, SIZE, PAD = 8.4, 18, 14, 12
FORE, BACK = "#d8dee4", "#15191e"
NAMED = {"black": "#15191e", "red": "#e06c6c", "green": "#7fb86c", "brown": "#d8b04c", "blue": "#6c9fe0",
         "magenta": "#c583d6", "cyan": "#5fb8c4", "white": "#d8dee4"}


def colour(name, default):
    if name == "default":
        return default
    return NAMED.get(name, "#" + name)


def looks(char):
    fore, back = colour(char.fg, FORE), colour(char.bg, BACK)
    return (back, fore, char.bold) if char.reverse else (fore, back, char.bold)


def runs(line, columns):
    """Yields (column, characters, look) for neighbours that look alike."""
    at = 0
    while at < columns:
        begin, look, text = at, looks(line[at]), ""
        while at < columns and looks(line[at]) == look:
            text += line[at].data
            at += 1
        yield begin, at - begin, text, look


def words(line, begin, n):
    """Yields (column, columns, text) for the parts of a run, which spaces part: programs that show SVG disagree about
    several spaces in a text."""
    cells = [" " if block(line[begin + i].data) else line[begin + i].data for i in range(n)] + [" ", " "]
    at = 0
    while at < n:
        end = at
        while cells[end:end + 2] != [" ", " "] and cells[at] != " ":
            end += 1
        if end > at:
            text = "".join(cells[at:end]).rstrip()
            yield begin + at, end - at, text
        at = end + 1


def block(text):
    """The part of a cell, from below, that a block character fills; None for other characters."""
    return "▁▂▃▄▅▆▇█".find(text) + 1 if len(text) == 1 and text in "▁▂▃▄▅▆▇█" else None


def svg(screen):
    width, height = screen.columns * WIDTH + 2 * PAD, screen.lines * HEIGHT + 2 * PAD
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
           f'height="{height:g}"><rect width="100%" height="100%" rx="8" fill="{BACK}"/>'
           f'<g font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="{SIZE}">']
    for y in range(screen.lines):
        line, top = screen.buffer[y], PAD + y * HEIGHT
        for begin, n, text, (fore, back, bold) in runs(line, screen.columns):
            left = PAD + begin * WIDTH
            if back != BACK:
                out.append(f'<rect x="{left:g}" y="{top:g}" width="{n * WIDTH:g}" height="{HEIGHT}" fill="{back}"/>')
            bars = "".join(f"M{left + i * WIDTH:g} {top + HEIGHT:g}v{-HEIGHT * block(c) / 8:g}h{WIDTH:g}V{top + HEIGHT:g}z"
                           for i, c in enumerate(text) if block(c))
            if bars:
                out.append(f'<path d="{bars}" fill="{fore}"/>')
            weight = ' font-weight="bold"' if bold else ""
            for column, columns, word in words(line, begin, n):
                length = f' textLength="{columns * WIDTH:g}"' if columns > 1 else ""
                out.append(f'<text x="{PAD + column * WIDTH:g}" y="{top + 14:g}" fill="{fore}"{weight}{length}>'
                           f'{escape(word)}</text>')
    return "\n".join(out) + "\n</g></svg>\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", default="80x24")
    parser.add_argument("--after", type=float, default=5)
    parser.add_argument("--keys", default="")
    parser.add_argument("file")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    args = parser.parse_args()
    columns, lines = map(int, args.size.split("x"))
    env = {**os.environ, "TERM": os.environ.get("PICTURE_TERM", Terminal.TERM), "LANG": "C.UTF-8",
           "LC_ALL": os.environ.get("PICTURE_LOCALE", "C.UTF-8")}
    terminal = Terminal(args.command, env, columns, lines)
    begin, typed = time.monotonic(), False
    while time.monotonic() - begin < args.after:
        terminal.feed(0.1)
        if not typed and args.keys and time.monotonic() - begin > args.after / 2:
            terminal.type(args.keys.encode().decode("unicode_escape"))
            typed = True
    with open(args.file, "w", encoding="utf-8") as f:
        f.write(svg(terminal.screen))
    print(terminal.text())
    terminal.close()


if __name__ == "__main__":
    main()
