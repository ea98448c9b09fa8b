"""A wrong configuration does not take the daemon away, and none of it is applied. The daemon goes on with the last good one,
which it has kept on disk. Without one it serves the status, and no program gets a turn. Everything says so."""

import glob
import os
import signal
import subprocess

import pytest

import others
import wireclient
from test_configuration import log, main, private, refused, reload_ok, write  # noqa: F401
from world import BUILD, GENEROUS_S, MIB, wait_for

GOOD = "[daemon]\nquantum = 2s\n[default]\nmemory_cap = 20MiB\n"
BAD = "[daemon]\nmode = exclusive\nquantm = 1s\n[default]\nmemory_cap = 50MiB\n"
HELD = "no program gets a turn until the file is corrected"
WITHIN, BEYOND = ("fill", "--bytes", "8MiB", "--block", "4MiB"), ("fill", "--bytes", "30MiB", "--block", "2MiB")


def start(world, path, *more, **env):
    return world.start_daemon("--config", path, *more, SUBLET_LOG="info", **env)


def stop(world):
    assert world.sublet("stop").returncode == 0
    world.daemon.wait()


def kept(world):
    """The name of the file with the last good configuration."""
    name, = glob.glob(world.path("state/sublet/last-good-" + "?" * 16))
    return name


def configuration(world):
    return world.status()["configuration"]


def test_a_link_to_a_file_that_is_not_there_is_a_mistake(world):
    """The owner has put something in the place of the file of the daemon, so the defaults are not what he wants."""
    folder = world.path("config/sublet")
    os.makedirs(folder)
    os.symlink("/no/such/file", os.path.join(folder, "subletd.conf"))
    os.mkdir(world.dir, 0o700)
    done = subprocess.run([f"{BUILD}/subletd", "--check", "--private", "--dir", world.dir], env=world.env, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=GENEROUS_S, check=False)
    assert done.returncode == 2 and "subletd.conf: a link to a file that is not there" in done.stderr, done



def capped(world):
    """A cap of 20 MiB is in force."""
    p = world.program(*BEYOND)
    assert p.wait() != 0 and "memory cap" in p.err(), p.report()
    wait_for(lambda: not world.clients(), GENEROUS_S, "its end", report=world.status_text)  # the cap is for all together
    world.program(*WITHIN).ok()


def told(world, state, *names):
    """Status and doctor say what is wrong; to people, too."""
    said = configuration(world)
    text, doctor = world.sublet("status").stdout, world.sublet("doctor", "--sim", "--daemon", world.dir)
    assert said["state"] == state, said
    for name in names:
        assert name in said["error"] and name in text and name in doctor.stdout, (name, said, text, doctor.stdout)
    assert doctor.returncode == 1 and "sublet reload" in text and "sublet reload" in doctor.stdout
    assert ("no program gets a turn" in text) == ("gives no program a turn" in doctor.stdout) == (state == "none")


def test_a_cap_of_the_last_good_file_holds_after_a_restart_with_a_wrong_one(world, main):  # noqa: F811
    write(main, GOOD)
    start(world, main)
    stop(world)
    write(main, BAD)
    daemon = start(world, main)
    told(world, "last_good", f"{main}:3:", '"quantm"')
    assert f'{main}:3: unknown key "quantm"' in daemon.err() and "goes on with the last good configuration" in daemon.err()
    assert world.status()["quantum"] == 2 and world.status()["mode"] == "auto", "no part of the wrong file counts"
    capped(world)
    refused(world, f"{main}:3:")
    write(main, GOOD.replace("2s", "3s"))
    assert reload_ok(world) == ["reloaded: 0 classes"]
    assert configuration(world) == {"state": "good", "error": None, "file": main} and world.status()["quantum"] == 3
    capped(world)


def test_without_a_good_file_programs_wait_until_the_file_is_corrected(world, main):  # noqa: F811
    write(main, BAD)
    daemon = start(world, main)
    assert HELD in daemon.err() and daemon.running()
    p = world.program(*WITHIN, SUBLET_QUIET=None)
    wait_for(p.err, 60, "it to say why it waits", report=p.report)
    assert "the configuration of its daemon has a mistake, and no program gets a turn" in p.err()
    told(world, "none", f"{main}:3:", '"quantm"')
    assert world.clients() == {} and "filled" not in {e["event"] for e in p.events()}
    refused(world, f"{main}:3:")
    assert p.running()
    write(main, GOOD + "[daemon]\ncapacity = 48MiB\n")
    assert reload_ok(world) == ["reloaded: 0 classes"], "no key waits for another start"
    p.ok()
    assert configuration(world)["state"] == "good" and world.status()["gpus"][0]["total"] == 48 * MIB
    capped(world)
    world.check_sums(p)


def test_a_signal_corrects_it_as_well(world, main):  # noqa: F811
    write(main, BAD)
    daemon = start(world, main)
    p = world.program(*WITHIN)
    write(main, GOOD)
    daemon.send(signal.SIGHUP)
    p.ok()
    assert configuration(world)["state"] == "good"


def test_a_program_that_runs_runs_on_and_one_that_comes_waits(world, main):  # noqa: F811
    start(world, main)
    p = world.program("hold", "--bytes", "8MiB", "--block", "4MiB", stdin=subprocess.PIPE)
    p.await_event("filled")
    stop(world)
    os.unlink(kept(world))
    write(main, BAD)
    daemon = start(world, main)
    q = world.program(*WITHIN)
    wait_for(lambda: daemon.err().count("waits: there is no good configuration") == 2, GENEROUS_S, "both", report=daemon.err)
    assert world.clients() == {}
    write(main, GOOD)
    reload_ok(world)
    q.ok()
    wait_for(lambda: p.pid in world.clients(), GENEROUS_S, "the first program to come back")
    p.finish()


def test_a_client_that_does_not_wait_for_its_welcome_gets_nothing(world, main):  # noqa: F811
    write(main, BAD)
    daemon = start(world, main)
    c = wireclient.Client(world.dir).connect()
    c.send("HELLO", magic=wireclient.MAGIC, protocol=1, pid=c.process.pid, name="fake", version="0.1.0")
    assert c.expect("HOLDER")["flags"] == 1 << 5
    with pytest.raises(AssertionError, match="ATTACH does not belong here"):
        c.attach()
    c.end()
    assert daemon.running() and world.clients() == {}


def test_a_running_daemon_says_that_its_file_is_wrong_until_it_is_corrected(world, main):  # noqa: F811
    write(main, GOOD)
    daemon = start(world, main)
    write(main, BAD)
    refused(world, f"{main}:3:")
    refused(world, f"{main}:3:")
    assert daemon.err().count("the settings stay as they are") == 1, "the same mistake is told once"
    told(world, "last_good", f"{main}:3:")
    capped(world)
    write(main, GOOD)
    doctor = world.sublet("doctor", "--sim", "--daemon", world.dir)
    assert doctor.returncode == 1 and "the files have no mistake now: sublet reload" in doctor.stdout
    reload_ok(world)
    doctor = world.sublet("doctor", "--sim", "--daemon", world.dir)
    assert doctor.returncode == 0 and "configuration" not in world.sublet("status").stdout, doctor.stdout


def test_what_programs_write_for_their_tenants_counts_beside_a_wrong_file(world, main):  # noqa: F811
    start(world, main)
    write(main, BAD)
    write(os.path.join(world.dir, "conf.d", "60-job.conf"), "[class job]\nuser = 0-4294967294\nmemory_cap = 20MiB\n")
    answer = wireclient.order(world.dir, order="reload")
    assert answer["classes"] == 1 and "error" not in answer and f"{main}:3:" in answer["wrong"], answer
    capped(world)
    stop(world)
    start(world, main)
    capped(world)
    write(os.path.join(world.dir, "conf.d", "60-job.conf"), "[class job]\nmemory_cap = much\n")
    assert "error" in wireclient.order(world.dir, order="reload")
    capped(world)


def test_what_programs_write_is_not_refused_because_the_owner_has_no_good_file(world, main):  # noqa: F811
    """A plugin whose file is refused leaves limits out of it."""
    write(main, BAD)
    start(world, main)
    write(os.path.join(world.dir, "conf.d", "60-job.conf"), "[class job]\nuser = 0-4294967294\nmemory_cap = 20MiB\n")
    answer = wireclient.order(world.dir, order="reload")
    assert "error" not in answer and f"{main}:3:" in answer["wrong"], answer
    write(main, "[daemon]\nquantum = 2s\n")
    assert reload_ok(world) == ["reloaded: 1 class"]
    capped(world)


@pytest.mark.parametrize("how", ["mode", "folder", "cut", "empty", "link"])
def test_a_last_good_file_that_others_may_have_written_is_not_used(world, main, how):  # noqa: F811
    write(main, GOOD)
    start(world, main)
    stop(world)
    path = kept(world)
    if how == "mode":
        os.chmod(path, 0o622)
    elif how == "folder":
        os.chmod(os.path.dirname(path), 0o777)
    elif how == "link":
        os.rename(path, path + ".old")
        os.symlink(path + ".old", path)
    else:
        os.truncate(path, 0 if how == "empty" else os.path.getsize(path) - 1)
    write(main, BAD)
    daemon = start(world, main)
    assert "the last good configuration is not used: " in daemon.err() and HELD in daemon.err(), daemon.err()
    assert configuration(world)["state"] == "none"


@others.needed
def test_another_users_last_good_file_is_not_used(world, main):  # noqa: F811
    write(main, GOOD)
    start(world, main)
    stop(world)
    path = kept(world)
    os.chown(path, others.NOBODY, others.NOBODY)
    write(main, BAD)
    daemon = start(world, main)
    assert "another user owns it" in daemon.err() and configuration(world)["state"] == "none"
    write(main, GOOD)
    reload_ok(world)
    wait_for(lambda: os.stat(path).st_uid == os.getuid(), GENEROUS_S, "it to be replaced")


def test_the_last_good_file_of_another_configuration_is_not_used(world, main):  # noqa: F811
    write(main, GOOD)
    start(world, main)
    stop(world)
    write(world.path("other.conf"), BAD)
    daemon = start(world, world.path("other.conf"))
    assert "it is of another daemon or configuration file" in daemon.err() and configuration(world)["state"] == "none"


def test_a_folder_that_cannot_be_written_is_one_warning(world, main):  # noqa: F811
    write(world.path("full"), "a file in the place of the folder")
    daemon = start(world, main, XDG_STATE_HOME=world.path("full"))
    for seconds in 3, 4:
        write(main, f"[daemon]\nquantum = {seconds}s\n")
        reload_ok(world)
    assert daemon.err().count("cannot keep the configuration in ") == 1 and daemon.err().count("warning: ") == 1, daemon.err()
    assert world.status()["quantum"] == 4


def test_a_user_without_a_file_leaves_nothing_on_disk(world):
    private(world)
    world.program(*WITHIN).ok()
    assert not os.path.exists(world.path("state"))


def test_the_resource_file_is_kept_with_the_others(world, main):  # noqa: F811
    resources = world.path("resources")
    write(resources, "1\npod-1 0.3 1.0 20971520\n")
    start(world, main, "--resource-config", resources)
    stop(world)
    write(resources, "1\npod-1 0.3 1.0 much\n")
    start(world, main, "--resource-config", resources)
    told(world, "last_good", f"{resources}:2:")
    p = world.program(*BEYOND, SUBLET_GROUP="pod-1")
    assert p.wait() != 0 and "memory cap" in p.err(), p.report()


def test_a_private_daemon_waits_for_its_users_file_and_its_log_says_so(world):
    own = world.path("config/sublet/subletd.conf")
    write(own, BAD)
    said = world.start([os.path.join(BUILD, "subletd"), "--private", "--dir", world.dir])
    assert said.wait() == 0 and f"{own}:3:" in said.err(), "the program that starts it shows the mistake"
    wait_for(lambda: HELD in log(world), 20, "the log to say it")
    assert configuration(world)["state"] == "none"
    p = world.program(*WITHIN)
    write(own, GOOD)
    reload_ok(world)
    p.ok()
    capped(world)
    write(own, BAD)
    refused(world, f"{own}:3:")
    assert world.sublet("stop").returncode == 0
    wait_for(lambda: not os.path.exists(os.path.join(world.dir, "client.sock")), GENEROUS_S, "its end")
    private(world)
    assert configuration(world)["state"] == "last_good"
    capped(world)


def test_doctor_reads_the_file_where_no_daemon_runs(world):
    own = world.path("config/sublet/subletd.conf")
    write(own, GOOD)
    assert world.sublet("doctor", "--sim").returncode == 0
    write(own, BAD)
    done = world.sublet("doctor", "--sim")
    first = done.stdout.splitlines()[0]
    assert done.returncode == 1 and first.startswith("FAIL") and f'{own}:3: unknown key "quantm"' in first and "correct it" in first, \
        done.stdout
    assert not os.path.exists(os.path.join(world.dir, "client.sock")), "no daemon was started"
