"""The daemon's metrics: what they say, to whom, and that a real Prometheus, the dashboard and the alert rules can use
them."""

import json
import os
import pathlib
import re
import signal
import socket
import stat
import subprocess

import pytest

import others
from metrics import OPEN, Prometheus, ask, descriptors, free_port, parse, promtool, scrape, value
from others import as_user
from test_configuration import write
from world import BUILD, GENEROUS_S, MIB, ROOT, wait_for

DEPLOY = pathlib.Path(ROOT, "deploy")
RULES = DEPLOY / "prometheus" / "sublet.rules.yml"
CLASSES = "[class night]\nname = night*\n"
WINDOW = "1m"  # of rates: all that the test's Prometheus has seen
HOSTILE = 'Ü "b" \\n {c="d"} 100% 学習'  # what a program may call itself


@pytest.fixture
def served(world):
    """A daemon that serves metrics at a UNIX socket; returns its path."""
    path = world.path("m.sock")
    world.start_daemon(config={"quantum": "200ms", "grace": "1s", "metrics": path})
    return path


def hold(world, mib, **env):
    p = world.program("hold", "--bytes", f"{mib}MiB", "--block", "4MiB", stdin=subprocess.PIPE, **env)
    p.await_event("filled")
    return p


def set_metrics(world, text):
    return world.sublet("set", "metrics", text)


# ---- what the metrics say ----


def test_the_figures_are_those_of_the_status(world, served):
    held = [hold(world, 72, SUBLET_NAME=name) for name in ("first", HOSTILE)]
    clients, samples = world.clients(), scrape(served)
    gpu = world.status()["gpus"][0]
    for p, name in zip(held, ("first", HOSTILE)):
        row, at = clients[p.pid], {"pid": str(p.pid), "gpu": "0", "uuid": gpu["uuid"]}
        assert value(samples, "sublet_client_allocated_bytes", **at) == row["allocated"] >= 72 * MIB
        assert value(samples, "sublet_client_unevictable_bytes", **at) == row["unevictable"]
        (labels,) = [l for n, l, _ in samples if n == "sublet_client_info" and l["pid"] == str(p.pid)]
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        assert (labels["name"], labels["memory"], labels["uid"]) == (escaped, "swap", str(os.getuid()))
    assert value(samples, "sublet_gpu_memory_bytes") == gpu["total"]
    assert value(samples, "sublet_clients") == 2
    assert sum(v for n, l, v in samples if n == "sublet_gpu_clients") == 2
    assert value(samples, "sublet_gpu_moved_out_bytes_total") >= 2 * 72 * MIB - gpu["total"]
    assert world.sublet("pause", "first").returncode == 0
    wait_for(lambda: value(scrape(served), "sublet_gpu_clients", state="paused") == 1, 60, "figures that are new")
    samples = scrape(served)
    assert sum(v for n, l, v in samples if n == "sublet_gpu_clients") == 2
    states = {l["pid"]: l["state"] for n, l, _ in samples if n == "sublet_client_state_seconds"}
    assert [pid for pid, state in states.items() if state == "paused"] == [str(held[0].pid)]
    promtool("check", "metrics", text=ask(served)[2])


def test_submitted_jobs_are_counted(world, served):
    def counts():
        samples = scrape(served)
        assert value(samples, "sublet_queue_below_bound") == 0
        return ([value(samples, "sublet_queue_jobs", state=state) for state in ("waiting", "running")],
                {l["way"]: v for n, l, v in samples if n == "sublet_queue_pairs"})

    none = {"sliced": 0, "shared": 0, "turns": 0}
    assert counts() == ([0, 0], none)
    jobs = []
    for name, now in (("a", ([0, 1], none)), ("b", ([1, 1], none))):
        jobs.append(world.start([os.path.join(BUILD, "sublet"), "submit", "--name", name, "--", "sleep", "1000"]))
        wait_for(lambda now=now: counts() == now, 20, f"job {name} to be counted", report=lambda: str(counts()))
    for p in jobs:
        p.send(signal.SIGKILL)
        p.wait()
    wait_for(lambda: counts() == ([0, 0], none), 20, "the jobs to be gone")


def test_totals_keep_what_ended_clients_had_and_their_series_end(world):
    path, conf = world.path("m.sock"), world.path("s.conf")
    write(conf, f"[daemon]\nquantum = 200ms\nmetrics = {path}\n" + CLASSES)
    world.start_daemon("--config", conf)
    names = ["lease_seconds", "waited_seconds", "billed_seconds", "moved_out_bytes", "moved_in_bytes"]

    def totals(samples, subject, **labels):
        return [value(samples, f"sublet_{subject}_{name}_total", **labels) for name in names]

    night = world.program("fill", "--bytes", "80MiB", "--rounds", 8, SUBLET_NAME="night shift")
    other = world.program("fill", "--bytes", "80MiB", "--rounds", 8, SUBLET_NAME="other")
    night.ok(), other.ok()
    wait_for(lambda: not world.clients(), 20, "the clients to be forgotten")
    samples = wait_for(lambda: (s := scrape(path)) and value(s, "sublet_clients") == 0 and s, 20, "a fresh scrape")
    gone = totals(samples, "gpu")
    assert all(v > 0 for v in gone), gone
    assert not [n for n, _, _ in samples if n.startswith("sublet_client_")]
    by_class = [totals(samples, "class", **{"class": c}) for c in ("night", "")]
    assert [pytest.approx(a + b) for a, b in zip(*by_class)] == gone and all(v > 0 for v in by_class[0])
    again = hold(world, 40)
    samples = wait_for(lambda: (s := scrape(path)) and value(s, "sublet_clients") == 1 and s, 20, "a fresh scrape")
    assert all(now >= before for now, before in zip(totals(samples, "gpu"), gone))
    assert again.running()
    # A class that is no longer configured has no series; the totals of the GPU stay.
    write(conf, f"[daemon]\nquantum = 200ms\nmetrics = {path}\n")
    assert world.sublet("reload").returncode == 0
    samples = wait_for(lambda: (s := scrape(path)) and value(s, "sublet_class_lease_seconds_total", **{"class": "night"})
                       is None and s, 20, "the class to end")
    assert all(now >= before for now, before in zip(totals(samples, "gpu"), gone))


def test_the_page_lists_the_metrics_that_the_daemon_serves(served):
    page = (DEPLOY.parent / "docs" / "metrics.md").read_text()
    told = [(name, kind, "" if unit == "-" else unit, text)
            for name, kind, unit, text in re.findall(r"^\| `(sublet_\w+)` \| (\w+) \| (\S+) \| (.+) \|$", page, re.M)]
    text = ask(served, Accept=OPEN)[2]
    helps = re.findall(r"^# HELP (\w+) (.*)$", text, re.M)
    kinds, units = (dict(re.findall(rf"^# {what} (\w+) (\w+)$", text, re.M)) for what in ("TYPE", "UNIT"))
    suffix = {"info": "_info", "counter": "_total"}
    assert told == [(name + suffix.get(kinds[name], ""), kinds[name], units.get(name, ""), help) for name, help in helps]
    assert text.endswith("\n# EOF\n") and len(told) > 50


# ---- a real Prometheus ----


def expressions():
    """Yields every expression of the dashboard, with its variables filled in, and of the alert rules, without what they
    are compared with."""
    dashboard = json.loads((DEPLOY / "grafana" / "sublet.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"].replace("$gpu", ".*").replace("$__rate_interval", WINDOW)
    for expression in re.findall(r"^ +expr: (.+)$", RULES.read_text(), re.M):
        yield "alert", re.sub(r" > ([\d.]+)", r" > bool \1", re.sub(r"\[\d+m\]", f"[{WINDOW}]", expression))


def test_a_real_prometheus_answers_every_panel_and_every_alert(world):
    port = free_port()
    write(world.path("s.conf"), f"[daemon]\nquantum = 200ms\ngrace = 1s\nhost_memory = 64MiB\nmetrics = 127.0.0.1:{port}\nmetrics_names = yes\n" + CLASSES)
    world.start_daemon("--config", world.path("s.conf"))
    prometheus = Prometheus(world, port, str(RULES))
    stopped, other = (world.program("fill", "--bytes", "80MiB", "--rounds", 10**6, "--ms", 20,
                                    SUBLET_NAME=n) for n in (HOSTILE, "night"))
    for p in (stopped, other):
        p.await_event("filled")
    assert world.program("fill", "--bytes", "80MiB", "--rounds", 1).wait() != 0, "there is host memory for two"
    for what in ("handoff_seconds", "drain_seconds", "wait_seconds", "eviction_bytes", "restore_bytes"):
        wait_for(lambda: prometheus.query(f"increase(sublet_gpu_{what}_count[{WINDOW}]) > 1"), 60, f"{what} to be scraped")
    named = prometheus.query(f"sublet_client_state_seconds{{name={json.dumps(HOSTILE)}}}")
    assert {labels["pid"] for labels, _ in named} == {str(stopped.pid)}
    stopped.send(signal.SIGSTOP)  # it does not give way any more, so the alert for such programs has an answer, too
    wait_for(lambda: prometheus.query('ALERTS{alertname="SubletClientStuck"}'), 60, "the alert to see that program")
    asked = list(expressions())
    empty = {re.sub(r"^(up\{.*|sublet_configuration_good) == 0", r"\1 == 1", expression): title for title, expression in asked}

    def answered():
        for expression in list(empty):
            answer = prometheus.query(expression)
            if answer and not any(v != v or v < 0 for _, v in answer):  # v != v: not a number
                del empty[expression]
        return not empty

    assert len(asked) > 35
    # There is no answer for a moment if a busy machine has missed the last scrape.
    wait_for(answered, GENEROUS_S, "all expressions to have an answer", interval=0.5, report=lambda: str(empty))
    shares = [one for one in prometheus.query(f"rate(sublet_client_lease_seconds_total[{WINDOW}])")
              if one[0]["pid"] in (str(stopped.pid), str(other.pid))]
    # The times of late scrapes are not exact, so a share may seem to be more than 1; a wrong unit would be far off.
    assert len(shares) == 2 and all(0 <= v <= 1.5 for _, v in shares), shares
    assert prometheus.query("sum(sublet_gpu_refused_total)")[0][1] >= 1

    def targets():
        return prometheus.get("targets")["activeTargets"]

    wait_for(lambda: [t["health"] for t in targets()] == ["up"], GENEROUS_S, "a good scrape", report=lambda: str(targets()))
    assert 'level=warn' not in prometheus.program.err() and 'level=error' not in prometheus.program.err()


def test_the_alert_rules_fire_when_they_should():
    assert "rules found" in promtool("check", "rules", str(RULES))
    assert "SUCCESS" in promtool("test", "rules", "sublet.rules.test.yml", cwd=RULES.parent)
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert not [a for a in alerts if a not in (RULES.parent / "sublet.rules.test.yml").read_text()], "untested"
    assert not [a for a in alerts if f"`{a}`" not in (DEPLOY.parent / "docs" / "metrics.md").read_text()]


# ---- who may read what ----


def test_tcp_tells_no_names_unless_the_owner_says_so(world):
    port = free_port()
    world.start_daemon(config={"metrics": f"127.0.0.1:{port}"})
    p = hold(world, 8, SUBLET_NAME="secret")
    text = wait_for(lambda: str(p.pid) in (t := ask(port)[2]) and t, 20, "the client")
    assert "secret" not in text and ",uid=" not in text and "class=" not in text
    assert world.sublet("set", "metrics_names", "yes").returncode == 0
    assert 'name="secret"' in ask(port)[2]


def test_the_unix_socket_is_the_owners_alone(world, served):
    p = hold(world, 8, SUBLET_NAME="secret")
    assert stat.S_IMODE(os.stat(served).st_mode) == 0o600
    assert 'name="secret"' in wait_for(lambda: str(p.pid) in (t := ask(served)[2]) and t, 20, "the client")


@others.needed
def test_another_user_who_gets_to_the_unix_socket_is_sent_away(world, served):
    os.chmod(world.root, 0o755)
    os.chmod(served, 0o666)
    code = (f"import socket; s = socket.socket(socket.AF_UNIX); s.connect({served!r}); "
            "s.sendall(b'GET /metrics HTTP/1.0\\r\\n\\r\\n'); print(s.recv(100))")
    done = subprocess.run([*as_user(others.LAST), "/usr/bin/python3", "-c", code], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, check=False)
    assert "200" not in done.stdout and ("b''" in done.stdout or "Broken pipe" in done.stderr or "reset" in done.stderr), done
    assert ask(served)[0] == 200


@pytest.mark.parametrize("address", ["0.0.0.0:9871", "[::]:9871", "10.1.2.3:9871"])
def test_an_address_that_other_machines_reach_is_refused(world, address):
    refused = world.start_daemon("--check", config={"metrics": address}, wait=False)
    assert refused.wait() == 2
    (line,) = refused.err().splitlines()
    assert f'"{address}" can be reached from other machines: write 127.0.0.1:PORT' in line and ":2:" in line


# ---- the setting ----


def test_the_address_changes_at_once_and_a_taken_one_changes_nothing(world, served):
    port = free_port()
    assert set_metrics(world, f"127.0.0.1:{port}").returncode == 0
    assert ask(port)[0] == 200 and not os.path.exists(served)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = set_metrics(world, f"127.0.0.1:{taken.getsockname()[1]}")
        assert done.returncode == 1 and "Address already in use" in done.stderr
    assert ask(port)[0] == 200
    assert set_metrics(world, "none").returncode == 0
    with pytest.raises(ConnectionRefusedError):
        ask(port)


def test_a_daemon_whose_address_is_taken_serves_programs_and_a_reload_tries_again(world):
    path = world.path("m.sock")
    write(path, "no socket")
    world.start_daemon(config={"metrics": path})
    assert f"cannot serve metrics at {path}: File exists; sublet reload tries again" in world.daemon.err()
    hold(world, 8).finish()
    assert world.sublet("reload").returncode == 1
    os.unlink(path)
    assert world.sublet("reload").returncode == 0
    assert ask(path)[0] == 200


def test_a_socket_that_a_killed_daemon_left_is_replaced(world, served):
    world.daemon.process.kill()
    world.daemon.wait()
    assert os.path.exists(served)
    world.start_daemon("--config", world.path("subletd.conf"))
    assert ask(served)[0] == 200
    assert world.sublet("stop").returncode == 0
    world.daemon.wait()
    assert not os.path.exists(served)


# ---- readers that misbehave ----


def test_readers_that_do_nothing_keep_nobody_out_and_are_bounded(world):
    port = free_port()
    world.start_daemon(config={"metrics": f"127.0.0.1:{port}"})
    before, held = descriptors(world.daemon.pid), []
    for begun in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"):
        for _ in range(8):
            s = socket.create_connection(("127.0.0.1", port))
            s.sendall(begun)
            held.append(s)
    p = hold(world, 8)
    text = wait_for(lambda: str(p.pid) in (t := ask(port)[2]) and t, 20, "the client")
    assert parse(text)
    wait_for(lambda: descriptors(world.daemon.pid) - before <= 16, 20, "connections to end")
    p.finish()
    for s in held:
        s.close()


def test_a_request_may_name_the_whole_address(served):
    for path in ("http://localhost/metrics", "HTTPS://other.example:9871/metrics"):
        assert "sublet_gpu_memory_bytes" in ask(served, path=path)[2]
    assert ask(served, path="http://metrics")[0] == 404


def test_other_requests_get_a_short_answer(served):
    assert ask(served, path="/")[0] == 404
    assert ask(served, method="POST")[0] == 405
    status, headers, text = ask(served, method="HEAD")
    assert status == 200 and text == "" and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert ask(served, Accept=OPEN)[1]["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    long = ask(served, Accept="x" * 60000)
    assert long[0] in (413, 431), long
