"""What a client could do to others for a long time, and how long it does: the ends of processes, shares of users."""

import os
import signal
import time

import hostile
from hostile import Crowd, connect
from test_daemon import CARD, client, daemon, place, wait_for  # noqa: F401
from wireclient import MIB, encode, obey_until


# ---- ends ----


def test_the_end_of_a_process_is_seen_whoever_knocks(daemon, client, place):  # noqa: F811
    """Its connection went first. Others connect as fast as they can, so that the daemon is never without work."""
    d = daemon(*CARD)
    c = client("victim").start()
    c.allocate(64 * MIB)
    obey_until([c], lambda: c.lease)
    c.disconnect()
    wait_for(lambda: "lost" in d.client(c.process.pid)["flags"], what="the loss of its connection")
    crowd = Crowd(place, 3, 30, 1, [hostile.knocks])
    try:
        time.sleep(0.5)  # until they are many
        c.kill()
        wait_for(lambda: not d.gpu()["clients"], 15, "its end to be seen")
        assert d.gpu()["charged"] == 0
    finally:
        crowd.end()


def test_last_words_come_before_the_end(daemon, place):  # noqa: F811
    """What a process said before it ended is heard, and a child of it that goes on talking is not heard for ever."""
    d = daemon(*CARD)
    pid = os.fork()
    if pid == 0:
        s = connect(place)
        s.send(hostile.hello(name="short"))
        s.send(hostile.attach())
        while s.recv(4096)[0] != 14:  # LIMIT
            pass
        os.kill(d.process.pid, signal.SIGSTOP)
        for _ in range(40):  # more than are read at a time
            s.send(encode("IDLE", lease=0))
        s.send(encode("BYE"))
        os._exit(0)
    os.waitpid(pid, 0)
    os.kill(d.process.pid, signal.SIGCONT)
    wait_for(lambda: not d.gpu()["clients"], what="its end")

    talker = os.fork()
    if talker == 0:
        s = connect(place)
        s.send(hostile.hello(name="parent"))
        s.send(hostile.attach())
        while s.recv(4096)[0] != 14:
            pass
        if os.fork() == 0:
            s.setblocking(False)
            while True:  # until the daemon ends it
                try:
                    s.send(encode("IDLE", lease=0))
                except BlockingIOError:
                    pass
                except OSError:
                    os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(talker, 0)
    wait_for(lambda: not d.gpu()["clients"], what="the end of the one whose child talks")
    _, errors = d.end()
    assert "it said BYE" in errors
