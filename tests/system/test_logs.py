"""The daemon's log: lines with time and level, or with the journal's priorities; `sublet logs` shows it."""

import os
import re
import subprocess

from world import BUILD, GENEROUS_S, wait_for

SUBLET = os.path.join(BUILD, "sublet")
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d{4} subletd\[\d+\]: (error|warning|notice|info|debug): .+")


def hold(world, **env):
    return world.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE, **env)


def test_a_private_daemons_log_tells_who_came_and_left(world):
    """However a program ends, its end is no trouble."""
    env = {"SUBLET_DAEMON": os.path.join(BUILD, "subletd")}
    quiet, killed = hold(world, **env), hold(world, **env)
    for p in (quiet, killed):
        p.await_event("filled")
    following = world.start([SUBLET, "logs", "-f"])
    wait_for(lambda: f"client {killed.pid} (hold)" in following.out(), GENEROUS_S, "the log so far", report=following.report)
    quiet.finish()
    killed.process.kill()
    wait_for(lambda: following.out().count("(hold) has left") == 2, GENEROUS_S, "both to leave", report=following.report)
    done = world.sublet("logs", "--lines", "2")
    assert done.returncode == 0 and done.stdout.count("\n") == 2 and "has left" in done.stdout, done
    whole = world.sublet("logs").stdout
    assert all(LINE.fullmatch(line) for line in whole.splitlines()), whole
    assert "disconnected" not in whole and "reset" not in whole, whole
    following.process.kill()


def test_logs_of_a_daemon_that_keeps_none_say_where_they_are(world):
    world.start_daemon()
    done = world.sublet("logs")
    assert done.returncode == 1 and f"there is no log in {world.dir}: a private daemon writes one" in done.stderr
    for words, why in ((("-n", "some"), "'some'"), (("now",), "unknown argument")):
        done = world.sublet("logs", *words)
        assert done.returncode == 2 and why in done.stderr


def test_a_daemon_logs_who_it_serves_unless_told_otherwise(world):
    daemon = world.start_daemon()
    p = hold(world)
    p.await_event("filled")
    assert f"info: client {p.pid} (hold), user {os.getuid()}" in daemon.err()
    assert all(LINE.fullmatch(line) for line in daemon.err().splitlines()), daemon.err()
    p.finish()
    world.sublet("stop")
    daemon.ok()
    assert "info:" not in world.start_daemon(SUBLET_LOG="warning").err()


def test_lines_for_the_journal_begin_with_their_priority(world):
    """systemd names the journal's end of stderr in JOURNAL_STREAM; a program that only inherits it logs elsewhere."""
    path = world.path("journal")
    with open(path, "wb") as journal:
        st = os.fstat(journal.fileno())
        os.mkdir(world.dir, 0o700)
        env = {**world.env, "JOURNAL_STREAM": f"{st.st_dev}:{st.st_ino}"}
        with subprocess.Popen([os.path.join(BUILD, "subletd"), "--dir", world.dir], env=env, stderr=journal) as daemon:
            wait_for(lambda: world.sublet("status").returncode == 0, GENEROUS_S, "the daemon")
            world.sublet("stop")
            assert daemon.wait(GENEROUS_S) == 0
    version = world.sublet("--version").stdout.split()[1]
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    assert f"<6>subletd {version} serves {world.dir}" in lines and all(re.match("<[3-7]>", line) for line in lines), lines
    inherited = world.start_daemon(JOURNAL_STREAM=f"{st.st_dev}:{st.st_ino}")
    assert all(LINE.fullmatch(line) for line in inherited.err().splitlines()), inherited.err()
