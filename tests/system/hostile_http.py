"""Habits of hostile clients of a server of HTTP: rows of the table of habits.py."""

import contextlib
import json
import socket
import ssl
import struct
import threading
import time

import habits
from habits import drawn, habit

ATTACKER = "127.0.0.2"  # the bystander asks from 127.0.0.1
ANSWER_S = 20  # more than any client may keep others waiting; a server that starves others does so for longer
STATUSES = {200, 400, 403, 404, 405, 408, 411, 413, 414, 417, 431, 501, 503, 505}
MIB = 1 << 20


class Target(habits.Target):
    """A server at a port of this machine.

    kinds: "http", "tls" or "plain", "json" (it reads bodies). path: of the requests that it serves. good: a body that
    it answers with 200. ask: the bystander's request, which checks the answer. attacker: where the hostile ones ask
    from."""

    def __init__(self, port, kinds, path, ask, process, context=None, good=b"", attacker=ATTACKER):
        super().__init__(kinds, process)
        self.port, self.path, self.ask, self.context, self.good, self.attacker = port, path, ask, context, good, attacker

    def raw(self):
        """Returns a socket without TLS."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_S, source_address=(self.attacker, 0))

    def open(self):
        s = self.raw()
        return self.context.wrap_socket(s, server_hostname="localhost") if self.context else s

    def head(self, *lines, method="POST"):
        return "\r\n".join((f"{method} {self.path} HTTP/1.1", "Host: x", *lines, "", "")).encode()

    def post(self, body):
        return self.head(f"Content-Length: {len(body)}") + body


def send(s, data, wait=0.2):
    """Sends what the server takes in this time."""
    s.settimeout(wait)
    with contextlib.suppress(OSError):
        for part in habits.parts(data):
            s.sendall(part)


def read(s, wait=0.03):
    """Returns what the server has to say by now."""
    got = b""
    s.settimeout(wait)
    with contextlib.suppress(OSError):
        while more := s.recv(65536):
            got += more
    return got


def check(answer):
    """Whatever comes must be an answer for clients, not an accident of the server."""
    if answer.startswith(b"HTTP/1."):
        assert int(answer[9:12]) in STATUSES, answer[:200]


def bytes_habit(name, make, *kinds, must=None):
    """A habit that sends some bytes, and looks at the answer. must: the statuses of which one has to come."""
    def send_bytes(t):
        with t.open() as s:
            send(s, make(t), ANSWER_S if must else 0.2)
            answer = answer_of(s) if must else read(s)
            check(answer)
            assert not must or int(answer[9:12]) in must, answer[:200]
            yield
    habits.add(name, send_bytes, "http", *kinds)


def answer_of(s):
    """Returns the head of the next answer."""
    got = b""
    s.settimeout(ANSWER_S)
    while b"\r\n\r\n" not in got:
        more = s.recv(65536)
        if not more:  # a server may do that to one address where others wait for a place
            raise ConnectionError(f"the connection ended: {got!r}")
        got += more
    return got


@contextlib.contextmanager
def many(t, number, begun=b"", opened=None):
    """Holds so many connections on which something has begun."""
    held = []
    try:
        for _ in range(drawn(number)):
            s = (opened or t.open)()
            held.append(s)
            if begun:
                send(s, begun)
        if begun:
            time.sleep(0.1)  # so that the server, too, has come as far
        yield held
    finally:
        for s in held:
            s.close()


# ---- silence, and halves ----


@habit("http")
def three_hundred_silent_connections(t):
    with many(t, 300, opened=t.raw):
        yield


@habit("json", "tls")
def connections_that_were_cut_by_the_server(t):
    """All places are taken by silent ones, until the server has ended them. It takes seconds, so one server has to do."""
    with many(t, 256, opened=t.raw) as held:
        for s in held:
            s.settimeout(ANSWER_S)
            with contextlib.suppress(ConnectionError):
                assert s.recv(1) == b"", "a silent connection got bytes"
        yield


@habit("http")
def connections_that_come_and_leave(t):
    for _ in range(4):
        with many(t, 256, opened=t.raw):
            pass
    yield


@habit("http")
def a_half_request_line(t):
    with many(t, 8, f"POST {t.path[:4]}".encode()):
        yield


@habit("http")
def a_half_header(t):
    with many(t, 8, t.head()[:-9] + b"\r\nX-"):
        yield


@habit("http")
def a_header_without_an_end(t):
    with many(t, 8, t.head()[:-2]):
        yield


@habit("http")
def an_expected_100_and_nothing_after_it(t):
    with many(t, 8, t.head("Content-Length: 100", "Expect: 100-continue")):
        yield


@habit("http")
def bodies_of_which_one_byte_comes(t):
    with many(t, 8, t.head(f"Content-Length: {3 * MIB}") + b"{"):
        yield


@habit("json", "tls")
def large_bodies_that_stop_in_the_middle(t):
    with many(t, 8, t.head(f"Content-Length: {2 * MIB}") + b" " * 100000):
        yield


@habit("http")
def a_slow_body(t):
    with t.open() as s:
        send(s, t.head("Content-Length: 100"))
        for _ in range(5):
            send(s, b" ")
            time.sleep(0.01)
        yield


@habit("http")
def a_client_that_shuts_its_side(t):
    with t.raw() as s:
        send(s, t.head()[:-4])
        with contextlib.suppress(OSError):  # where TLS is meant, the server may have ended it by now
            s.shutdown(socket.SHUT_WR)
        yield


@habit("http")
def a_reset_in_a_body(t):
    s = t.raw()
    send(s, t.head("Content-Length: 1000") + b"{")
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
    yield


# ---- rates ----


@habit("http")
def answers_that_nobody_reads(t):
    with many(t, 4, t.head(method="GET") * 2000):
        yield


@habit("http")
def two_hundred_requests_in_one_write(t):
    with t.open() as s:
        send(s, t.head("Content-Length: 0") * 200)
        check(read(s))
        yield


@habit("http")
def connections_that_come_all_the_time(t):
    """An answer takes longer than it takes them to use up the places."""
    until, held = threading.Event(), [[] for _ in range(4)]

    def come(mine):
        while not until.is_set():
            with contextlib.suppress(OSError):
                mine.append(t.raw())
            if len(mine) > 12:
                mine.pop(0).close()

    threads = [threading.Thread(target=come, args=(mine,)) for mine in held]
    for thread in threads:
        thread.start()
    try:
        for _ in range(10):
            t.ask()
        yield
    finally:
        until.set()
        for thread, mine in zip(threads, held):
            thread.join()
            for s in mine:
                s.close()


@habit("http")
def floods_of_requests(t):
    """Threads that send as fast as the server reads."""
    until = threading.Event()

    def flood():
        while not until.is_set():
            with contextlib.suppress(OSError):
                with t.open() as s:
                    send(s, t.post(b"{}") * 50)

    threads = [threading.Thread(target=flood) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        until.set()
        for thread in threads:
            thread.join()


# ---- TLS ----


def client_hello(t):
    bio, out = ssl.MemoryBIO(), ssl.MemoryBIO()
    o = t.context.wrap_bio(bio, out, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        o.do_handshake()
    return out.read()


@habit("tls")
def a_half_handshake(t):
    with many(t, 8, client_hello(t)[:50], opened=t.raw):
        yield


@habit("tls")
def a_handshake_without_its_end(t):
    with many(t, 8, client_hello(t), opened=t.raw):
        yield


@habit("tls")
def records_of_garbage(t):
    for record in (b"\x16\x03\x01\xff\xff" + b"\xff" * 70000, b"\x15\x03\x03\x00\x02\x02\x28", b"\x80\x80" * 500,
                   client_hello(t)[:40] + b"\x00" * 400):
        with t.raw() as s:
            send(s, record)
            read(s)
    yield


@habit("tls")
def http_without_tls(t):
    with t.raw() as s:
        send(s, t.head(method="GET"))
        read(s)
        yield


@habit("plain", "http")
def tls_where_there_is_none(t):
    with t.raw() as s:
        send(s, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)) * 2)
        check(read(s))
        yield


# ---- bad HTTP: name, bytes, kinds, and the statuses of which one must come ----

for row in [
        ("a_negative_length", lambda t: t.head("Content-Length: -1")),
        ("a_length_past_64_bits", lambda t: t.head("Content-Length: 99999999999999999999")),
        ("a_length_that_is_no_number", lambda t: t.head("Content-Length: x")),
        ("two_lengths", lambda t: t.head("Content-Length: 7", "Content-Length: 70000") + b"{}     "),
        ("a_length_less_than_the_body", lambda t: t.head("Content-Length: 1") + b"{}" * 1000),
        ("a_length_and_chunks", lambda t: t.head("Content-Length: 3", "Transfer-Encoding: chunked") + b"400\r\n" + b"x" * 1024 +
         b"\r\n0\r\n\r\n"),
        ("chunks_without_a_number", lambda t: t.head("Transfer-Encoding: chunked") + b"zz\r\n{}\r\n0\r\n\r\n"),
        ("a_chunk_past_64_bits", lambda t: t.head("Transfer-Encoding: chunked") + b"f" * 40 + b"\r\n{}\r\n"),
        ("a_negative_chunk", lambda t: t.head("Transfer-Encoding: chunked") + b"-1\r\n{}\r\n0\r\n\r\n"),
        ("a_chunk_longer_than_said", lambda t: t.head("Transfer-Encoding: chunked") + b"1\r\n{}{}{}\r\n0\r\n\r\n"),
        ("chunks_without_an_end", lambda t: t.head("Transfer-Encoding: chunked") + b"2\r\n{}\r\n" * 50),
        ("a_chunk_with_a_long_extension", lambda t: t.head("Transfer-Encoding: chunked") + b"2;" + b"e" * 60000 + b"\r\n{}\r\n"),
        ("thousands_of_trailers", lambda t: t.head("Transfer-Encoding: chunked") + b"0\r\n" + b"a: b\r\n" * 9000 + b"\r\n"),
        ("an_unknown_encoding", lambda t: t.head("Transfer-Encoding: gzip, nothing")),
        ("a_header_of_64_kib", lambda t: t.head("X: " + "y" * 65536)),
        ("ten_thousand_headers", lambda t: t.head(*(f"H{i}: v" for i in range(10000)))),
        ("a_header_without_a_colon", lambda t: t.head("nothing", ": x", "\x00: \x00")),
        ("a_folded_header", lambda t: t.head("X: a\r\n b\r\n\tc")),
        ("a_target_of_64_kib", lambda t: b"GET /" + b"a" * 65536 + b" HTTP/1.1\r\n\r\n"),
        ("a_target_with_nul_and_dots", lambda t: b"GET /..%2f%00/\x00" + t.path.encode() + b" HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a_target_without_a_slash", lambda t: b"GET metrics?%%%zz=%&&=;# HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("a_whole_address_without_a_path", lambda t: b"GET http://x HTTP/1.1\r\nHost: y\r\n\r\n", (), {404}),
        ("an_unknown_method", lambda t: t.head(method="BREW"), (), {405}),
        ("a_method_of_8_kib", lambda t: t.head(method="M" * 8192)),
        ("connect", lambda t: b"CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n"),
        ("version_9", lambda t: f"GET {t.path} HTTP/9.9\r\n\r\n".encode()),
        ("version_0_9", lambda t: f"GET {t.path}\r\n\r\n".encode()),
        ("http_2", lambda t: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
        ("an_upgrade", lambda t: t.head("Connection: upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABk", method="GET")),
        ("garbage", lambda t: bytes((i * 7919 >> 3) & 255 for i in range(5000)) + b"\r\n\r\n"),
        ("lines_without_returns", lambda t: f"GET {t.path} HTTP/1.1\nHost: x\n\n".encode()),
        ("empty_lines_without_end", lambda t: b"\r\n" * 30000)]:
    bytes_habit(*row[:2], *(row[2] if len(row) > 2 else ()), must=row[3] if len(row) > 3 else None)


# ---- bad JSON ----


def changed(t, change):
    """Returns the good body after a change."""
    document = json.loads(t.good)
    change(document)
    return json.dumps(document).encode()


def pod_of(document):
    return document["Pod"] if "Pod" in document else document["request"]["object"]


def meta(field, value):
    return lambda t: changed(t, lambda d: pod_of(d)["metadata"].update({field: value}))


def spec(field, value):
    return lambda t: changed(t, lambda d: pod_of(d)["spec"].update({field: value}))


BODIES = [
    ("an_empty_body", lambda t: b"", {400}), ("an_open_brace", lambda t: b"{", {400}),
    ("a_body_of_nul", lambda t: b"\0" * 1000, {400}), ("a_body_of_blanks", lambda t: b" " * (2 * MIB), {400}),
    ("deep_arrays", lambda t: b"[" * 100000 + b"]" * 100000, {400}),
    ("deep_objects", lambda t: b'{"a":' * 50000 + b"1" + b"}" * 50000, {400}),
    ("a_number_past_all_bounds", lambda t: t.good[:-1] + b',"n":' + b"9" * 5000 + b"}", {400}),
    ("a_number_with_a_huge_exponent", lambda t: t.good[:-1] + b',"n":1e99999}', {400}),
    ("bytes_that_are_not_utf_8", lambda t: t.good[:-1] + b',"n":"\xff\xc0\xaf"}', {400}),
    ("a_lone_surrogate", lambda t: t.good[:-1] + b',"n":"\\ud800"}', {400}),
    ("a_mark_of_the_byte_order", lambda t: b"\xef\xbb\xbf" + t.good, {400}),
    ("garbage_after_the_end", lambda t: t.good + b"}", {400}),
    ("keys_that_come_twice", lambda t: t.good[:-1] + b"," + t.good[1:], {200, 400}),
    ("half_a_million_values", lambda t: b"[" + b"0," * 500000 + b"0]", {400}),
    ("an_array", lambda t: b"[" + t.good + b"]", {400}), ("a_text", lambda t: b'"AdmissionReview"', {400}),
    ("metadata_that_is_a_number", lambda t: changed(t, lambda d: pod_of(d).update(metadata=7)), {200, 400}),
    ("a_specification_that_is_a_list", lambda t: changed(t, lambda d: pod_of(d).update(spec=[])), {200, 400}),
    ("labels_that_are_a_list", meta("labels", ["sublet.dev/share"]), {200}),
    ("annotations_of_wrong_types", meta("annotations", {"sublet.dev/share": {"true": True}, "gpu-fraction": [0.5]}), {200}),
    ("annotations_with_nul_and_colours", meta("annotations", {"sublet.dev/share": "\0\x1b[2J\u202e", "sublet.dev/job": "\x9b"}),
     {200}),
    ("an_annotation_of_100_kib", meta("annotations", {"a" * 100000: "b" * 100000, "gpu-fraction": "9" * 100000}), {200}),
    ("ten_thousand_annotations", meta("annotations", {f"volcano.sh/gpu-{i}": "x" for i in range(10000)}), {200}),
    ("a_name_of_a_kilobyte", lambda t: changed(t, lambda d: pod_of(d)["spec"]["containers"][0].update(name="n" * 1000)), {200}),
    ("ten_thousand_containers", spec("containers", [{"name": f"c{i}", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
                                                    for i in range(10000)]), {200}),
    ("containers_that_are_an_object", spec("containers", {"name": "main"}), {200}),
    ("containers_of_wrong_types", spec("containers", [None, 7, "main", [], {"name": 5, "resources": [], "env": {"a": 1}},
                                                      {"resources": {"limits": {"nvidia.com/gpu": {}}}}]), {200}),
    ("tolerations_of_wrong_types", spec("tolerations", [7, None, {"key": [], "operator": {}, "effect": 1}]), {200}),
    ("the_largest_body", lambda t: t.good + b" " * (3 * MIB - len(t.good)), {200}),
]
for name, make, must in BODIES:
    bytes_habit(name, lambda t, make=make: t.post(make(t)), "json", must=must)
bytes_habit("a_body_that_is_too_large", lambda t: t.head(f"Content-Length: {17 * MIB}"), "json", must={413})
bytes_habit("chunks_that_become_too_large", lambda t: t.head("Transfer-Encoding: chunked") +
            (b"100000\r\n" + b" " * MIB + b"\r\n") * 17, "json")
