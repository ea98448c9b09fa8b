"""Hostile habits around the device plugin on its node: of the API server, of the daemon, of the folders it shares, and of
the processes of pods. Rows of the table of habits.py."""

import contextlib
import ctypes
import json
import os
import socket
import stat
import threading
import time

import habits
from habits import drawn, habit
from hostile_daemon import DAEMONS, never, says
from kubelet import answer_json, pod
from node import FIRST, MUSL, SECOND, THIRD, add_process, write
from world import GENEROUS_S, MIB, wait_for

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of renameat2(2)
STRANGE = "5a2b3c4d-0000-4000-8000-0000000000"  # and two digits


# ---- the API server: answers ----


def head(request, *lines, status=200):
    request.wfile.write("\r\n".join((f"HTTP/1.1 {status} X", "Content-Type: application/json", *lines, "", "")).encode())


def pour(api, request, first, again, most=200 * MIB):
    """Writes the same again and again, until the plugin has had enough or the habit is over."""
    request.wfile.write(first)
    sent = 0
    while not api.over.is_set() and sent < most:
        request.wfile.write(again)
        sent += len(again)


def with_body(*lines, status=200, first=b"", again=b"", most=200 * MIB, wait=False):
    """An answer with these headers, this beginning, and more of the same until nobody wants it."""
    def answer(api, request):
        head(request, *lines, status=status)
        request.wfile.write(first)
        if again:
            pour(api, request, b"", again, most)
        if wait:
            api.over.wait()
    return answer


def whole(body, status=200, **more):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return with_body(f"Content-Length: {len(body)}", *(f"{k.replace('_', '-')}: {v}" for k, v in more.items()), status=status, first=body)


def listed(*pods, version="7", **meta):
    """A list of these pods beside the honest ones."""
    def listed_to(api, request):
        with api.changed:
            items = [*api.pods.values(), *pods]
        answer_json(request, 200, {"kind": "PodList", "metadata": {"resourceVersion": version, **meta}, "items": items})
    return listed_to


def events(*more, again=b"", most=4 * MIB, wait=False):
    """A watch with these events."""
    return with_body(first=b"".join(e if isinstance(e, bytes) else json.dumps(e).encode() + b"\n" for e in more), again=again,
                     most=most, wait=wait)


def strange(n=0, **changes):
    """A pod of a stranger, with these members of its metadata."""
    one = pod(f"strange{n}", f"{STRANGE}{n:02}")
    one["metadata"].update(changes)
    return one


def asking(**annotations):
    one = pod("strange", STRANGE + "00")
    one["metadata"]["annotations"] = {f"sublet.dev/{k.replace('_', '-')}": v for k, v in annotations.items()}
    return one


def drip(api, request):
    head(request, "Content-Length: 100000")
    while not api.over.wait(0.02):
        request.wfile.write(b" ")


def pages_without_end(api, request):
    """Each page names the same next one."""
    answer_json(request, 200, {"metadata": {"resourceVersion": "7", "continue": "again"}, "items": []})


def floods_of_complaints():
    """One pod, each time with another wrong annotation."""
    return b"".join(json.dumps({"type": "MODIFIED", "object": asking(minimum=f"{n} no")}).encode() + b"\n" for n in range(500))


UNREADABLE = whole(b'{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"strange","uid":"' + STRANGE.encode() +
                   b'00","annotations":{"sublet.dev/group":"\\ud800"}}}]}')
SIGNS = listed(version="7&watch=0#\r\nX: y")
TEN_MIB = b"x" * 10 * MIB
LISTS = {
    "nothing": lambda api, request: api.over.wait(), "half_a_head": lambda api, request: (
        request.wfile.write(b"HTTP/1.1 200 OK\r\nContent-"), api.over.wait()),
    "half_a_body": with_body("Content-Length: 1000", first=b'{"items":[', wait=True), "one_byte_at_a_time": drip,
    "a_hang_up": lambda api, request: None, "a_body_that_is_cut": with_body("Content-Length: 1000", first=b'{"items":[{"metadata":{"na'),
    "a_chunk_that_is_cut": with_body("Transfer-Encoding: chunked", first=b'400\r\n{"metadata":{},"items":[{"meta'),
    "a_chunk_without_a_number": with_body("Transfer-Encoding: chunked", first=b"zz\r\n{}\r\n0\r\n\r\n"),
    "a_chunk_past_64_bits": with_body("Transfer-Encoding: chunked", first=b"f" * 40 + b"\r\n{}"),
    "a_list_without_an_end": with_body(first=b'{"metadata":{"resourceVersion":"7"},"items":[', again=b'{"metadata":{"uid":"x"}},' * 4000),
    "pods_without_an_end": with_body(first=b'{"metadata":{"resourceVersion":"7"},"items":[', again=b"".join(
        json.dumps(pod(f"p{n}", f"{n:08x}-0000-4000-8000-000000000000")).encode() + b"," for n in range(3000)), most=8 * MIB),
    "pages_without_an_end": pages_without_end,
    "a_head_without_an_end": lambda api, request: pour(api, request, b"HTTP/1.1 200 OK\r\n", b"X: y\r\n" * 5000),
    "a_text_of_100_mib": with_body(first=b'{"metadata":{"continue":"', again=TEN_MIB, most=100 * MIB),
    "blanks_without_an_end": with_body(again=b" " * MIB), "deep_arrays": whole(b'{"items":' + b"[" * 10 ** 6),
    "deep_objects": whole(b'{"metadata":' * 10 ** 5), "garbage": whole(bytes((i * 7919 >> 3) & 255 for i in range(100000))),
    "a_failure_that_is_called_200": whole({"kind": "Status", "status": "Failure", "code": 500}),
    "an_object_without_items": whole({}), "items_that_are_a_number": whole({"metadata": {}, "items": 7}),
    "metadata_that_is_a_list": whole({"metadata": [], "items": {}}), "a_list_of_nothing": whole([]), "null": whole(None),
    "429": whole({"kind": "Status", "code": 429}, 429, Retry_After="99999999999"), "500_with_10_mib": whole(TEN_MIB, 500),
    "410": whole({"kind": "Status", "code": 410}, 410), "a_way_to_itself": whole(b"", 302, Location="/api/v1/pods?"),
    "a_hundred_continues": lambda api, request: request.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "http_2": lambda api, request: request.wfile.write(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x05\x00\x00\x40\x00"),
    "a_packed_body": whole(b"\x1f\x8b\x08\0\0\0\0\0", Content_Encoding="gzip"),
    "a_version_with_signs": SIGNS, "a_version_of_10_mib": listed(version="9" * 10 * MIB),
    "a_version_that_is_a_number": listed(version=7),
    "a_mark_of_escapes": listed(**{"continue": "\x1b[2J\r\nHost: evil"}),
    "null_among_the_pods": listed(None, 7, "x", [], {}, {"metadata": 7}, {"metadata": {"uid": 5}}),
    "a_pod_without_a_name": listed(strange(name=None, namespace=[])), "pods_with_one_uid": listed(*(strange(name=f"n{n}") for n in range(100))),
    "a_pod_named_like_a_line": listed(strange(name="x\n[default]\nminimum = 90%", namespace="\x1b[2J\r\n")),
    "a_pod_with_a_name_of_a_megabyte": listed(strange(name="n" * MIB)), "a_uid_with_a_line": listed(strange(uid="x" * 35 + "\n")),
    "a_uid_of_capitals": listed(strange(uid=FIRST.upper(), annotations={"sublet.dev/group": "x"})),
    "a_clock_of_the_year_99999": listed(strange(creationTimestamp="99999-99-99T99:99:99Z", annotations={"sublet.dev/minimum": "50%"})),
    "a_clock_that_is_a_number": listed(strange(creationTimestamp=-1)), "a_clock_before_all_others": listed(
        *(strange(n, creationTimestamp="\x00", annotations={"sublet.dev/minimum": "50%"}) for n in range(5))),
    "annotations_that_are_a_list": listed(strange(annotations=["sublet.dev/minimum"])),
    "annotations_of_wrong_types": listed(asking(minimum=30, maximum={"a": 1}, weight=None, group=["x"], priority=True, memory_cap=1e99)),
    "annotations_of_controls": listed(asking(minimum="\x1b[31m\n", group="\0[default]\n", priority="\u202e1", memory_cap="\x9b1Gi")),
    "annotations_past_all_bounds": listed(asking(minimum="1e99999%", maximum="-1", weight="nan", priority="9" * 5000,
                                                 memory_cap="9" * 300 + "Ei", memory_request="18446744073709551615Ei")),
    "an_annotation_of_a_megabyte": listed(asking(minimum="9" * MIB)),
    "ten_thousand_annotations": listed(strange(annotations={f"sublet.dev/x{n}": "y" for n in range(10000)})),
    "a_lone_surrogate": UNREADABLE,
    "containers_of_wrong_types": listed({**strange(), "spec": {"containers": [None, 7, [], {"resources": {"limits": {"sublet.dev/gpu": {}}}}]}}),
    "three_thousand_pods": listed(*(pod(f"p{n}", f"{n:08x}-0000-4000-8000-000000000000", priority="-9") for n in range(3000))),
}
WATCHES = {
    "silence": lambda api, request: (head(request), api.over.wait()), "an_end_at_once": events(), "a_hang_up": lambda api, request: None,
    "half_an_event": events(b'{"type":"MODIFIED","object":{"metadata":{"na', wait=True), "garbage": events(os.urandom(5000)),
    "an_event_without_an_object": events({"type": "MODIFIED"}), "an_event_that_is_a_list": events([]), "an_unknown_type": events(
        {"type": "\x1b[2J", "object": strange()}, wait=True),
    "410": events({"type": "ERROR", "object": {"kind": "Status", "code": 410}}), "410_as_a_status": whole({}, 410),
    "an_error_of_wrong_types": events({"type": "ERROR", "object": []}),
    "versions_that_go_back": events(*({"type": "MODIFIED", "object": strange(resourceVersion=str(n))} for n in (99999, 1, "", "x", -7)), wait=True),
    "a_bookmark_without_a_version": events({"type": "BOOKMARK", "object": {}}, wait=True),
    "a_flood_of_bookmarks": events(again=b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n' * 1000),
    "a_flood_of_complaints": events(floods_of_complaints(), wait=True), "an_event_of_10_mib": events(
        b'{"type":"ADDED","object":{"metadata":{"name":"' + TEN_MIB + b'"}}}\n', wait=True),
    "a_text_without_an_end": events(b'{"type":"', again=TEN_MIB, most=100 * MIB),
    "an_end_of_all_pods": events(*({"type": "DELETED", "object": pod("x", uid)} for uid in (FIRST, SECOND, THIRD)), wait=True),
    "429": whole({}, 429, Retry_After="1"), "500": whole({}, 500),
}


def await_answer(t):
    wait_for(lambda: t.api.met, GENEROUS_S, "the plugin to ask", interval=0.005, report=t.plugin.report)
    time.sleep(0.03)  # so that the plugin has read some of it


for row_which, rows in (("list", LISTS), ("watch", WATCHES)):
    for row_name, row_answer in rows.items():
        def attack(t, which=row_which, answer=row_answer):
            with t.api.behaving(which, answer):
                t.list_now()
                await_answer(t)
                yield
                if which == "list" and answer.__name__ != "listed_to" and answer is not UNREADABLE:
                    assert f"[pod {SECOND}]" in t.node.file(), "what is no list has taken pods away"
                    if answer is pages_without_end:
                        time.sleep(0.3)
                    assert t.api.met < 10, "the plugin asks without a pause"
                if answer is SIGNS:
                    wait_for(lambda: any("resourceVersion=7%26watch%3D0%23%0D%0A" in path for path in t.api.asked), GENEROUS_S,
                             "a watch from that version")
        habits.add(f"{row_which}_{row_name}", attack, "api")


@habit("api")
def three_hundred_containers_beside_a_silent_server(t):
    with t.api.behaving("list", lambda api, request: api.over.wait()):
        for _ in range(drawn(300)):
            t.stranger.number += 1
            t.stranger.send(id=t.stranger.number, call="PreStartContainer", request={"devices_ids": [t.device]})
        await_answer(t)
        yield


# ---- the daemon ----

GPU = {"uuid": "GPU-x", "nvml_index": 0, "measured_s_ago": 0.1, "total": 1 << 30, "committed": 0, "waiting": 0, "clients": []}


def gpus(t, *more, **changes):
    """A status in which the GPUs of the node have these members, and more GPUs come."""
    def say(s):
        answer = json.loads(t.daemon.ask(b'{"order":"status"}\n'))
        for gpu in answer["gpus"]:
            gpu.update(changes)
        answer["gpus"] = [*more, *answer["gpus"]]
        s.sendall(json.dumps(answer).encode() + b"\n")
    return say


STATUSES = {
    **{name.replace(" ", "_"): lambda t, daemon=daemon: daemon for name, (daemon, _) in DAEMONS.items()},
    "a_status_without_gpus": lambda t: says(b'{"schema":1}\n'), "gpus_that_are_an_object": lambda t: says(b'{"gpus":{}}\n'),
    "gpus_of_wrong_types": lambda t: gpus(t, None, 7, [], {"uuid": 7}, {"uuid": ""}, {"uuid": "x" * 5000, "nvml_index": 0}),
    "a_gpu_named_like_a_line": lambda t: gpus(t, {**GPU, "uuid": "\x1b[2J\n,all"}, {**GPU, "uuid": "a,b"}, {**GPU, "uuid": "../x"}),
    "figures_past_all_bounds": lambda t: gpus(t, total=-1, committed=1e308, waiting=(1 << 63) - 1, clients=[0] * 100000),
    "a_clock_of_the_future": lambda t: gpus(t, measured_s_ago=-1e300),
}
for row_name, row_make in STATUSES.items():
    def attack(t, make=row_make):
        with t.daemon.behaving(b'"status"', make(t)):
            t.ask_daemon_now()
            wait_for(lambda: t.daemon.met, GENEROUS_S, "the plugin to ask", interval=0.005, report=t.plugin.report)
            time.sleep(0.03)
            yield
    habits.add("a_daemon_says_" + row_name, attack, "daemon")

RELOADS = {"never": never, "half": says(b'{"classes":'), "garbage": says(b"\xff" * 100 + b"\n"), "hangs_up": lambda s: None,
           "refuses_with_an_escape": says(json.dumps({"error": "\x1b[31m\n" + "x" * 5000}).encode() + b"\n"),
           "refuses_with_a_number": says(b'{"error":7}\n')}
for row_name, row_daemon in RELOADS.items():
    def attack(t, daemon=row_daemon):
        with t.daemon.behaving(b'"reload"', daemon):
            t.api.put(pod("honest", FIRST, priority="-20", group=f"g{time.monotonic_ns()}"))
            wait_for(lambda: t.daemon.met, GENEROUS_S, "the plugin to tell of a pod", interval=0.005, report=t.plugin.report)
            yield
        t.ask_daemon_now()  # a daemon that has another name is told at once; this one would be after 30 s
    habits.add("a_reload_" + row_name, attack, "daemon")


@habit("daemon")
def a_daemon_whose_queue_is_full(t):
    """It has stopped, and takes no more connections."""
    path, held = os.path.join(t.world.dir, "control.sock"), []
    os.rename(path, path + ".kept")
    with socket.socket(socket.AF_UNIX) as full:
        full.bind(path)
        full.listen(0)
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError):
                while len(held) < 100:
                    held.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
                    held[-1].setblocking(False)
                    held[-1].connect(path)
            t.ask_daemon_now()
            time.sleep(0.1)
            yield
    os.rename(path + ".kept", path)
    t.daemon.restarts += 1
    t.ask_daemon_now()


@habit("daemon")
def a_daemon_that_comes_and_leaves(t):
    path = os.path.join(t.world.dir, "control.sock")
    for _ in range(drawn(50)):
        os.rename(path, path + ".kept")
        os.rename(path + ".kept", path)
    yield


@habit("daemon")
def thousands_of_files_in_the_daemons_folder(t):
    for n in range(drawn(2000)):
        with open(os.path.join(t.world.dir, f"x{n}"), "w", encoding="ascii"):
            pass
        os.unlink(os.path.join(t.world.dir, f"x{n}"))
    yield


def in_place_of_the_classes(make):
    """The folder conf.d, or the plugin's file in it, is something else for a while."""
    def attack(t):
        folder = os.path.join(t.world.dir, "conf.d")
        os.rename(folder, folder + ".kept")
        try:
            make(t, folder)
            t.api.put(pod("honest", FIRST, priority="-20", group=f"g{time.monotonic_ns()}"))
            t.list_now()
            time.sleep(0.1)
            yield
        finally:
            os.rename(folder, folder + f".{time.monotonic_ns()}")
            os.rename(folder + ".kept", folder)
            t.daemon.restarts += 1  # else the plugin tries again after 30 s
            t.ask_daemon_now()
    return attack


def linked(t, folder):
    os.makedirs(folder + ".victim", exist_ok=True)
    os.symlink(folder + ".victim", folder)


def taken(t, folder):
    os.mkdir(folder)
    os.makedirs(os.path.join(folder, "50-kubernetes.conf", "x"))


def fresh_taken(t, folder):
    os.mkdir(folder)
    os.mkdir(os.path.join(folder, ".50-kubernetes.conf"))


# ---- the folders ----


def in_place_of_kubelets(make):
    """Something else lies where kubelet's socket was, for a while."""
    def attack(t):
        path = os.path.join(t.node.kubelet.folder, "kubelet.sock")
        os.rename(path, path + ".kept")
        with contextlib.ExitStack() as stack:
            make(t, path, stack)
            time.sleep(0.05)
            yield
            os.rename(path + ".kept", path)
    return attack


def in_place_of_ours(make):
    """The plugin listens again, and registers, as soon as it can: at once if the name is free."""
    def attack(t):
        registered = len(t.node.kubelet.of("register"))
        t.reachable = False
        make(t, t.path + ".new", None)
        os.rename(t.path + ".new", t.path)
        time.sleep(0.05)
        yield
        if not stat.S_ISSOCK(os.lstat(t.path).st_mode):
            os.unlink(t.path)
        t.node.kubelet.await_event("register", registered + 1)
        t.reachable = True
    return attack


@habit("folder")
def a_folder_in_place_of_our_socket(t):
    registered = len(t.node.kubelet.of("register"))
    t.reachable = False
    os.mkdir(t.path + ".new")
    # Both names change at once: between two calls the plugin could listen again and register, and kubelet would connect
    # anew.
    assert ctypes.CDLL(None).renameat2(AT_FDCWD, (t.path + ".new").encode(), AT_FDCWD, t.path.encode(), RENAME_EXCHANGE) == 0
    os.unlink(t.path + ".new")
    yield
    os.rmdir(t.path)
    t.node.kubelet.await_event("register", registered + 1)
    t.reachable = True


@habit("folder")
def no_socket_of_ours(t):
    registered = len(t.node.kubelet.of("register"))
    os.unlink(t.path)
    t.node.kubelet.await_event("register", registered + 1)
    yield


def file_there(t, path, stack):
    with open(path, "w", encoding="ascii") as f:
        f.write("x" * 1000)


def link_there(t, path, stack):
    os.symlink("/dev/null", path)


def dead_socket(t, path, stack):
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)


def answering(say):
    """A socket whose server sends these bytes to each that connects, and never reads."""
    def there(t, path, stack):
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(path)
        listening.listen()
        held = []

        def accept():
            with contextlib.suppress(OSError):
                while True:
                    held.append(listening.accept()[0])
                    held[-1].sendall(say)

        threading.Thread(target=accept, daemon=True).start()
        stack.callback(lambda: [s.close() for s in held])
        stack.callback(lambda: listening.shutdown(socket.SHUT_RDWR))
    return there


for row_name, row_make in (("a_file", file_there), ("a_link", link_there), ("a_dead_socket", dead_socket)):
    habits.add(row_name + "_in_place_of_our_socket", in_place_of_ours(row_make), "folder")
for row_name, row_make in (("a_file", file_there), ("a_link", link_there), ("a_dead_socket", dead_socket),
                           ("a_silent_socket", answering(b"")), ("garbage", answering(b"HTTP/1.1 200 OK\r\n\r\n" + os.urandom(1000))),
                           ("half_a_frame", answering(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00"))):
    habits.add(row_name + "_in_place_of_kubelets", in_place_of_kubelets(row_make), "folder")
for row_name, row_make in (("a_file", lambda t, folder: file_there(t, folder, None)), ("a_link", linked), ("an_unwritable_name", taken),
                           ("a_folder_with_the_fresh_name", fresh_taken)):
    habits.add(row_name + "_in_place_of_the_classes", in_place_of_the_classes(row_make), "folder")


@habit("folder")
def thousands_of_files_in_kubelets_folder(t):
    for n in range(drawn(2000)):
        path = os.path.join(t.node.kubelet.folder, f"x{n}")
        with open(path, "w", encoding="ascii"):
            pass
        os.unlink(path)
    yield


# ---- the processes of pods: all at the same time, because the plugin looks at them each ten seconds only ----

PROCESSES = []  # name and function of the node and a number, from which the function may take a hundred pids


def process(f):
    PROCESSES.append((f.__name__, f))
    return f


def sparse(node, name, size, first=b""):
    """A file of zeros, which takes no room."""
    write(node, name, "")
    with open(node.world.path(name), "wb") as f:
        f.write(first)
        f.truncate(size)


def pretender(node, pid, uid=STRANGE + "50", **files):
    """A process with the name of MPS, and with a device of NVIDIA open if root runs the test."""
    add_process(node, pid, uid, comm="nvidia-cuda-mps", **files)
    os.makedirs(node.world.path(f"proc/{pid}/fd"), exist_ok=True)
    for at, uuid in enumerate(node.gpus):  # so that the device is none of the node's
        write(node, f"proc/driver/nvidia/gpus/0000:0{at}:00.0/information", f"GPU UUID: \t {uuid}\nDevice Minor: \t {at}\n")
    device = node.world.path("nvidia200")
    with contextlib.suppress(PermissionError, FileExistsError):
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(195, 200))
    with contextlib.suppress(FileExistsError):
        os.symlink(device, node.world.path(f"proc/{pid}/fd/0"))


@process
def an_environment_of_gigabytes(node, pid):
    pretender(node, pid)
    sparse(node, f"proc/{pid}/environ", 64 << 30)


@process
def one_variable_of_100_mib(node, pid):
    pretender(node, pid)
    with open(node.world.path(f"proc/{pid}/environ"), "wb") as f:
        for _ in range(10):
            f.write(TEN_MIB)


@process
def a_folder_of_subletds_that_is_none(node, pid):
    for n, folder in enumerate(("/mps/", "/mps/1.2", "mps/1000.0.abc", "/x/mps/99999999999.0.zzzz", "/x/mps/\x1b[2J")):
        pretender(node, pid + n, environ=f"CUDA_MPS_PIPE_DIRECTORY={folder}\0")


@process
def thousands_of_descriptors(node, pid):
    pretender(node, pid)
    for n in range(1, drawn(3000)):
        os.symlink("/dev/null", node.world.path(f"proc/{pid}/fd/{n}"))


@process
def names_that_a_terminal_obeys(node, pid):
    for n, comm in enumerate(("nvidia-cuda-mps\x1b[2J", "\x1b]0;x\x07", "x\ny", "x" * 100000, "")):
        add_process(node, pid + n, FIRST, comm=comm, loader=MUSL)


@process
def cgroups_of_megabytes(node, pid):
    add_process(node, pid, SECOND, cgroup="0::/" + "kubepods/" * (8 * MIB // 9) + "\n")


@process
def cgroups_that_are_none(node, pid):
    for n, text in enumerate(("", "\n\n\n", "0::/kubepods/pod", f"0::/user.slice/kubepods/pod{FIRST}", "0::/../../..", "9" * 5000,
                              f"0::/kubepods/pod{FIRST}\x1b")):
        add_process(node, pid + n, FIRST, cgroup=text)


@process
def maps_of_65000_lines(node, pid):
    """The kernel allows a process as many; and a pod, as many processes as it likes."""
    lines = "7f0000000000-7f0000001000 r--p 00000000 00:00 0 /x\n" * 65000
    for n in range(drawn(20)):
        add_process(node, pid + n, SECOND, maps=lines)


@process
def a_map_that_is_one_line(node, pid):
    add_process(node, pid, SECOND, maps="x" * 10 * MIB)


@process
def what_is_no_process(node, pid):
    for name in ("99999999999999999999999", "-5", "0", f"{pid}x", "4294967297"):
        write(node, f"proc/{name}/comm", "nvidia-cuda-mps\n")
    write(node, f"proc/{pid}", "a file")
    os.symlink("/", node.world.path(f"proc/{pid + 1}"))
    os.symlink(f"{pid + 2}", node.world.path(f"proc/{pid + 2}"))


@process
def thousands_of_processes(node, pid):
    for n in range(drawn(1000)):
        write(node, f"proc/{100000 + n}/comm", "sh\n")
