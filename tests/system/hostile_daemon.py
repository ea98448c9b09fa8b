"""Daemons that answer wrongly or never, for the programs that give a daemon orders."""

import contextlib
import json
import os
import socket
import threading


def good(s):
    s.sendall(b'{"classes":1,"restart":[]}\n')


def never(s):
    s.recv(1)  # until the plugin gives up


def drips(s):
    gone = threading.Event()
    while not gone.wait(0.2):
        s.sendall(b"{")


def floods(s):
    while True:
        s.sendall(b"x" * (1 << 20))


def says(text):
    def say(s):
        s.sendall(text)

    return say


DAEMONS = {
    "never answers": (never, "does not answer"), "drips": (drips, "does not answer"), "floods": (floods, "does not answer"),
    "hangs up": (lambda s: None, ""), "garbage": (says(os.urandom(2000) + b"\n"), "does not answer"),
    "a list": (says(b"[]\n"), "does not answer"), "half": (says(b'{"classes":'), "does not answer"),
    "deep": (says(b"[" * 100000 + b"\n"), "does not answer"), "wrong types": (says(b'{"error":7,"classes":"x"}\n'), ""),
    "an escape": (says(json.dumps({"error": "\x1b[31m" + "x" * 5000}).encode() + b"\n"), "the daemon refuses them: ?[31mxxx"),
}


class FakeDaemon:
    """Answers each connection as `habit` says, and later ones as it says then. A habit gets the socket."""

    def __init__(self, folder):
        os.makedirs(os.path.join(folder, "conf.d"), 0o700, exist_ok=True)
        self.habit = good
        self.talks = set()
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(os.path.join(folder, "control.sock"))
        self.listening.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                s, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self._talk, args=(s, self.habit), daemon=True).start()

    def _talk(self, s, habit):
        self.talks.add(s)
        with contextlib.suppress(OSError), s:
            line = b""
            while not line.endswith(b"\n"):
                more = s.recv(4096)
                if not more:
                    return
                line += more
            self.serve(s, line, habit)
        self.talks.discard(s)

    def serve(self, s, line, habit):
        habit(s)

    def hang_up(self):
        """Ends the conversations that are under way."""
        for s in list(self.talks):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
