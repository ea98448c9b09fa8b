"""A reader of the daemon's metrics, and a Prometheus that scrapes them."""

import http.client
import json
import os
import re
import socket
import subprocess
import urllib.parse
import urllib.request

from world import GENEROUS_S, wait_for

OPEN = "application/openmetrics-text; version=1.0.0"
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.M)
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("sublet", timeout=GENEROUS_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(where, path="/metrics", method="GET", **headers):
    """Asks the daemon, at a path or a port. Returns the answer's status, headers and text."""
    if isinstance(where, int):
        connection = http.client.HTTPConnection("127.0.0.1", where, timeout=GENEROUS_S)
    else:
        connection = Unix(where)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode("utf-8")
    finally:
        connection.close()


def parse(text):
    """Returns a list of (name, labels, value)."""
    return [(name, dict(LABEL.findall(labels or "")), float(value)) for name, labels, value in SAMPLE.findall(text)]


def scrape(where):
    status, _, text = ask(where)
    assert status == 200, text
    return parse(text)


def value(samples, name, **labels):
    """Returns the one value of this name with these labels, or None."""
    found = [v for n, l, v in samples if n == name and labels.items() <= l.items()]
    assert len(found) <= 1, (name, labels, found)
    return found[0] if found else None


class Prometheus:
    def __init__(self, world, port, rules):
        self.port = free_port()
        config = {"global": {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "1s"},
                  "rule_files": [rules],
                  "scrape_configs": [{"job_name": "sublet", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}
        with open(world.path("prometheus.yml"), "w", encoding="ascii") as f:
            json.dump(config, f)  # JSON is YAML
        self.program = world.start(["prometheus", "--config.file", world.path("prometheus.yml"),
                                    "--storage.tsdb.path", world.path("tsdb"), "--web.listen-address",
                                    f"127.0.0.1:{self.port}"], GOMAXPROCS="1")
        wait_for(self._is_ready, GENEROUS_S, "Prometheus to be ready", report=self.program.report)

    def _is_ready(self):
        assert self.program.running(), self.program.err()
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=GENEROUS_S).status == 200
        except OSError:
            return False

    def get(self, what, **query):
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=GENEROUS_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as e:
            raise AssertionError(f"{query}: {e.read().decode()}") from None

    def query(self, expression):
        """Returns a list of (labels, value)."""
        return [(r["metric"], float(r["value"][1])) for r in self.get("query", query=expression)["result"]]


def promtool(*args, text=None, cwd=None):
    done = subprocess.run(["promtool", *args], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          cwd=cwd, timeout=GENEROUS_S, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))
