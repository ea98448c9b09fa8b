"""Jupyter servers, one of them in a world, and notebooks whose cells are run as a browser runs them: by REST requests
and messages over a websocket."""

import http.client
import json
import os
import socket
import threading
import time
import uuid

import websocket

from world import wait_for

PYTHON = "/usr/bin/python3"  # Debian's, with ipykernel and the server
TOKEN = "token"


def connect(path):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    return s


class Cell:
    """A cell that was run. reply: the content of the kernel's answer, or None until it comes. The answer may come before
    the last output, but `over` comes after both."""

    def __init__(self):
        self.reply, self.over, self.stdout, self.stderr = None, False, "", ""

    def done(self, timeout=60):
        wait_for(lambda: self.reply and self.over, timeout, "the cell to end", report=lambda: self.stdout + self.stderr)
        return self

    def ok(self):
        assert self.done().reply["status"] == "ok", self.reply
        return self


class Notebook:
    def __init__(self, server, name, kernel):
        self.server, self.cells = server, {}
        self.session = server.ask("POST", "/api/sessions", {"path": name, "name": name, "type": "notebook",
                                                            "kernel": {"name": kernel}})
        self.kernel = self.session["kernel"]["id"]
        self.socket = websocket.create_connection(
            f"ws://localhost/api/kernels/{self.kernel}/channels?session_id={self.session['id']}",
            socket=server.connect(), header=[f"Authorization: token {server.token}"])
        threading.Thread(target=self._read, daemon=True).start()
        self.pid = self.ask_pid()

    def _read(self):
        try:
            while True:
                self._note(json.loads(self.socket.recv()))
        except (OSError, ValueError, websocket.WebSocketException):
            return  # closed

    def _note(self, message):
        cell = self.cells.get(message["parent_header"].get("msg_id"))
        if cell and message["msg_type"] == "execute_reply":
            cell.reply = message["content"]
        elif cell and message["msg_type"] == "status":
            cell.over = message["content"]["execution_state"] == "idle"
        elif cell and message["msg_type"] == "stream":
            name = message["content"]["name"]
            setattr(cell, name, getattr(cell, name) + message["content"]["text"])

    def run(self, code):
        cell, number = Cell(), uuid.uuid4().hex
        self.cells[number] = cell
        self.socket.send(json.dumps({
            "channel": "shell", "parent_header": {}, "metadata": {}, "buffers": [],
            "header": {"msg_id": number, "msg_type": "execute_request", "session": self.session["id"], "username": "",
                       "version": "5.3"},
            "content": {"code": code, "silent": False, "allow_stdin": False}}))
        return cell

    def ask_pid(self):
        """A kernel that has just started may answer before the server listens to its output, so asks again after 2 s."""
        asked = []

        def answered():
            if not asked or time.monotonic() > asked[-1][1]:
                asked.append((self.run("import os; print(os.getpid())"), time.monotonic() + 2))
            return next((int(cell.stdout) for cell, _ in asked if cell.over and cell.stdout), None)

        return wait_for(answered, 60, "the kernel to answer")

    def order(self, what):
        """what: interrupt or restart."""
        self.server.ask("POST", f"/api/kernels/{self.kernel}/{what}")


class Jupyter:
    """A server that runs. connect: returns a new socket that is connected to it."""

    def __init__(self, connect, token):
        self.connect, self.token = connect, token

    def ask(self, method, path, body=None):
        c = http.client.HTTPConnection("localhost", timeout=60)
        c.sock = self.connect()
        c.request(method, path, json.dumps(body) if body else None, {"Authorization": f"token {self.token}"})
        answer = c.getresponse()
        text = answer.read()
        c.close()
        assert answer.status < 300, f"{method} {path}: {answer.status} {text!r}"
        return json.loads(text) if text else None

    def notebook(self, name, kernel="sublet"):
        return Notebook(self, name, kernel)


class Server(Jupyter):
    """A server in the world, on a Unix socket. runs: False if only kernels are installed."""

    def __init__(self, world, runs=True):
        self.world, path = world, world.path("jupyter.sock")
        super().__init__(lambda: connect(path), TOKEN)
        home = world.path("home")
        os.makedirs(home)
        self.env = {"HOME": home, "XDG_DATA_HOME": None, "JUPYTER_DATA_DIR": None, "JUPYTER_RUNTIME_DIR": world.path("r"),
                    "SUBLET_QUIET": None,
                    "PYTEST_CURRENT_TEST": None}  # under pytest ipykernel does not show what is written to descriptor 2
        if runs:
            self._start(home, path)

    def _start(self, home, path):
        self.process = self.world.start(
            [PYTHON, "-m", "jupyter_server", "--no-browser", "--allow-root", f"--sock={path}",
             f"--ServerApp.token={TOKEN}", f"--ServerApp.root_dir={home}"], PYTHONDONTWRITEBYTECODE="1", **self.env)
        wait_for(self._answers, 30, "the server", report=self.process.report)

    def _answers(self):
        try:
            return self.ask("GET", "/api/status")
        except OSError:
            assert self.process.running(), self.process.report()
            return None

    def install(self, *options, **env):
        return self.world.sublet("jupyter", "install", "--python", PYTHON, *options, **self.env, **env)
