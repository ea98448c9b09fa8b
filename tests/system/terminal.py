"""A program in a terminal: a pty, and pyte, which keeps the picture that the program draws."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time

import pyte


class Screen(pyte.Screen):
    """A screen that scrolls by several lines at once, as ncurses wants where TERM is TERM below."""

    def scroll(self, n, line, step):
        at, self.cursor.y = self.cursor.y, line
        for _ in range(n or 1):
            step()
        self.cursor.y = at

    def scroll_up(self, n=1, **_):
        self.scroll(n, self.margins.bottom if self.margins else self.lines - 1, self.index)

    def scroll_down(self, n=1, **_):
        self.scroll(n, self.margins.top if self.margins else 0, self.reverse_index)


class Stream(pyte.ByteStream):
    csi = {**pyte.ByteStream.csi, "S": "scroll_up", "T": "scroll_down"}
    events = pyte.ByteStream.events | {"scroll_up", "scroll_down"}


class Terminal:
    TERM = "screen-256color"  # pyte does all that this one can do

    def __init__(self, argv, env, columns=80, lines=24):
        self.screen = Screen(columns, lines)
        self.stream = Stream(self.screen)
        self.sent = b""  # all that the program has written
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.process = subprocess.Popen(argv, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)

    def feed(self, seconds):
        """Reads what the program writes, for at most that long. False: nothing came."""
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            data = os.read(self.master, 65536)
        except OSError:  # the program has ended
            data = b""
        self.take(data)
        return bool(data)

    def take(self, data):
        self.sent += data
        self.stream.feed(data)

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def until(self, test, what, timeout=60):
        """Waits for a picture that passes the test, a function of its text or a part of it."""
        end = time.monotonic() + timeout
        passes = test if callable(test) else lambda text: test in text
        while not passes(self.text()):
            if time.monotonic() > end:
                raise AssertionError(f"no {what} in {timeout} s:\n{self.text()}")
            self.feed(0.5)
        return self.text()

    def type(self, keys):
        os.write(self.master, keys.encode())

    def resize(self, columns, lines):
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self, timeout=30):
        """Waits for the program's end. Returns its status."""
        end = time.monotonic() + timeout
        while self.process.poll() is None and time.monotonic() < end:
            self.feed(0.1)
        while self.feed(0):
            pass
        return self.process.wait(0.1)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
