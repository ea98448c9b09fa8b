"""A kubelet as the device plugin sees it, on an implementation of gRPC of its own (tests/kubernetes/kubelet.js), and
an API server with the pods of one node."""

import http.server
import json
import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from world import BUILD, GENEROUS_S, PATIENCE, ROOT, wait_for

FOLDER = os.path.join(ROOT, "tests", "kubernetes")
PLUGIN = os.path.join(BUILD, "sublet-device-plugin")
# The reason why tests with a kubelet are skipped; None if they run.
if not os.path.exists(PLUGIN):
    MISSING = "this build has no sublet-device-plugin; with the libraries of ./dev install-deps they run"
elif not shutil.which("node") or not os.path.exists(os.path.join(FOLDER, "node_modules", "@grpc", "grpc-js")):
    MISSING = "no Node.js, or none of its packages; after ./dev install-deps they run"
else:
    MISSING = None


class Kubelet:
    """Starts at once. Each restart() makes a new kubelet in the same directory."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.events, self.process, self.number = [], None, 0
        self.start()

    def start(self):
        self.began = len(self.events)
        self.process = subprocess.Popen(["node", os.path.join(FOLDER, "kubelet.js"), self.folder], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        threading.Thread(target=self._read, args=(self.process,), daemon=True).start()
        self.await_event("ready")

    def _read(self, process):
        for line in process.stdout:
            self.events.append(json.loads(line))

    def kill(self):
        self.process.kill()
        self.process.wait()

    def restart(self):
        self.kill()
        self.start()

    def of(self, kind):
        """Returns the events of this kind since the kubelet started."""
        return [e for e in self.events[self.began:] if e["event"] == kind]

    def await_event(self, kind, n=1):
        return wait_for(lambda: self.of(kind)[n - 1:], 20, f"{n} times {kind!r}", interval=0.005,
                        report=lambda: str(self.events[-5:]))[0]

    def await_devices(self, condition, what):
        return wait_for(lambda: next((e for e in self.of("list")[-1:] if condition(e)), None), 30, what,
                        report=lambda: str([(len(e["devices"]), len(e["healthy"])) for e in self.of("list")]))

    def send(self, **order):
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def ask(self, **order):
        self.number += 1
        number = self.number
        self.send(id=number, **order)
        return wait_for(lambda: [e for e in self.of("answer") if e["id"] == number], 60, f"the answer to {order}",
                        interval=0.002)[0]

    def call(self, method, **request):
        return self.ask(call=method, request=request)

    def allocate(self, *containers):
        return self.call("Allocate", container_requests=[{"devices_ids": ids} for ids in containers])

    def prefer(self, available, size, must=()):
        done = self.call("GetPreferredAllocation", container_requests=[
            {"available_deviceIDs": available, "must_include_deviceIDs": list(must), "allocation_size": size}])
        assert done["code"] == 0, done
        return done["response"]["container_responses"][0]["deviceIDs"]


def pod(name, uid, phase="Running", resource="sublet.dev/gpu", created="2026-11-27T10:00:00Z", namespace="default", **annotations):
    """Returns a pod as the API server shows it. Annotations as minimum="30%", memory_cap="1Gi"."""
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": created,
                         "annotations": {"sublet.dev/" + k.replace("_", "-"): v for k, v in annotations.items()}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]},
            "status": {"phase": phase}}


def answer_json(request, status, answer):
    body = json.dumps(answer).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


class Store:
    """Objects of one kind that an API server lists and watches: resource versions, pages, bookmarks, 410."""

    def __init__(self, kind):
        self.kind = kind
        self.pods, self.version, self.oldest = {}, 10, 0
        self.log = []  # (version, type, object)
        self.changed = threading.Condition()
        self.watches = set()

    def put(self, one):
        self._change("MODIFIED" if one["metadata"]["uid"] in self.pods else "ADDED", one)

    def remove(self, uid):
        self._change("DELETED", self.pods[uid])

    def _change(self, kind, one):
        with self.changed:
            self.version += 1
            one = json.loads(json.dumps(one))
            one["metadata"]["resourceVersion"] = str(self.version)
            self.log.append((self.version, kind, one))
            if kind == "DELETED":
                del self.pods[one["metadata"]["uid"]]
            else:
                self.pods[one["metadata"]["uid"]] = one
            self.changed.notify_all()

    def forget(self):
        """Versions until now are too old from here on, as after a compaction of etcd."""
        with self.changed:
            self.version += 10
            self.oldest = self.version
            self.changed.notify_all()

    def cut(self):
        """Cuts all watches."""
        for connection in list(self.watches):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def list_to(self, request):
        query = dict(part.split("=", 1) for part in request.path.split("?", 1)[1].split("&"))
        with self.changed:
            names = sorted(self.pods)
            at, limit = int(query.get("continue", "0")), int(query["limit"])
            page = [self.pods[name] for name in names[at:at + limit]]
            meta = {"resourceVersion": str(self.version)}
            if at + limit < len(names):
                meta["continue"] = str(at + limit)
        answer_json(request, 200, {"kind": self.kind + "List", "metadata": meta, "items": page})

    def watch_to(self, request):
        version = int(request.path.split("resourceVersion=")[1].split("&")[0])
        request.send_response(200)
        request.send_header("Content-Type", "application/json")
        request.send_header("Connection", "close")
        request.end_headers()
        self.watches.add(request.connection)
        try:
            while True:
                with self.changed:
                    if version < self.oldest:
                        event = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
                        request.wfile.write(json.dumps(event).encode() + b"\n")
                        return
                    news = [entry for entry in self.log if entry[0] > version]
                    if not news and not self.changed.wait(1):
                        news = [(version, "BOOKMARK", {"kind": self.kind, "metadata": {"resourceVersion": str(version)}})]
                for version, kind, one in news:
                    request.wfile.write(json.dumps({"type": kind, "object": one}).encode() + b"\n")
                request.wfile.flush()
        except OSError:
            pass
        finally:
            self.watches.discard(request.connection)
            request.close_connection = True


class ApiServer(Store):
    """Lists and watches pods as the API server does, with tokens. Takes Events."""

    def __init__(self, tls=None):
        super().__init__("Pod")
        self.token, self.asked, self.wrong = "first", [], []
        self.asked_at = []  # when each of `asked` came
        self.broken = None  # a status that is answered to all requests
        self.events = {}  # the Events that it has taken, by namespace and name
        self.posts, self.refuse_posts, self.hold_posts = 0, None, threading.Event()
        self.hold_posts.set()  # clear it, and POST requests wait
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.serve(self)

            def _refuse(self):
                outer.wrong.append((self.command, self.path))
                self.send_error(405)

            def do_POST(self):
                outer.take_event(self)

            do_PUT = do_PATCH = do_DELETE = _refuse

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if tls else ''}://localhost:{self.server.server_port}"
        # shutdown() waits until the server looks again, after half a second if nothing else is said.
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.hold_posts.set()
        self.cut()
        self.server.shutdown()
        self.server.server_close()

    # ---- what the test does ----

    def lists(self):
        return [path for path in self.asked if "watch=1" not in path and "continue=" not in path]

    # ---- what it answers ----

    def serve(self, request):
        self.asked_at.append(time.monotonic())
        self.asked.append(request.path)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            answer_json(request, 401, {"kind": "Status", "code": 401})
        elif self.broken:
            answer_json(request, self.broken, {"kind": "Status", "code": self.broken})
        else:
            store = self.store_of(request.path)
            if not store:
                answer_json(request, 404, {"kind": "Status", "code": 404})
            elif "watch=1" in request.path:
                store.watch_to(request)
            else:
                store.list_to(request)

    def store_of(self, path):
        return self if path.startswith("/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1&") else None

    def take_event(self, request):
        body = request.rfile.read(int(request.headers["Content-Length"]))
        self.posts += 1
        self.hold_posts.wait()
        found = re.fullmatch(r"/api/v1/namespaces/([a-z0-9-]+)/events", request.path)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            status = 401
        elif self.refuse_posts or not found:
            status = self.refuse_posts or 404
        elif request.headers.get("Content-Type") != "application/json":
            status = 415
        else:
            event = json.loads(body)
            key = (found.group(1), event["metadata"]["name"])
            status = 409 if key in self.events else 201
            self.events.setdefault(key, event)
        answer_json(request, status, {"kind": "Status", "code": status})


class ClusterServer(ApiServer):
    """The API server for a reader of all pods that are on a node and have not ended, and of all nodes."""

    def __init__(self):
        super().__init__()
        self.nodes = Store("Node")

    def store_of(self, path):
        running = "fieldSelector=spec.nodeName%21%3D%2Cstatus.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed&"
        return (self if path.startswith("/api/v1/pods?" + running) else
                self.nodes if path.startswith("/api/v1/nodes?") else None)

    def cut(self):
        super().cut()
        self.nodes.cut()
