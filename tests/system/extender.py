"""sublet-extender as the tests start it: job files, a cluster on a fake API server, and requests as kube-scheduler sends
them."""

import http.client
import json
import os
import subprocess
import uuid

from kubelet import ClusterServer
from served import Served
from trained import ONE_THREAD, PAIRING
from world import BUILD, wait_for

PROGRAM = os.path.join(BUILD, "sublet-extender")
SANITIZED = b"__asan_init" in open(PROGRAM, "rb").read() if os.path.exists(PROGRAM) else False


def predict(folder, model, a, b):
    """Returns what `sublet predict` says of two jobs in the driver's slices: the progress of both."""
    paths = []
    for name, job in (("a", a), ("b", b)):
        paths.append(folder / f"predicted-{name}.json")
        paths[-1].write_text(json.dumps(job))
    done = subprocess.run([PAIRING, "predict", "--way", "sliced", "--json", "--model", model, *paths], check=True, text=True,
                          capture_output=True, env=ONE_THREAD, timeout=60)
    return [p["value"] for p in json.loads(done.stdout)["ways"]["sliced"]["progress"]]


def node(name, gpus=1, product=None, devices=100):
    """Returns a node as the API server shows it, as far as anybody could mind."""
    labels = {"kubernetes.io/hostname": name, **({"nvidia.com/gpu.product": product} if product else {})}
    room = {"cpu": "64", "memory": "527930048Ki", "pods": "110", "hugepages-1Gi": "0"}
    room |= {"sublet.dev/gpu": str(gpus * devices)} if gpus else {}
    return {"metadata": {"name": name, "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), "labels": labels,
                         "creationTimestamp": "2026-11-27T10:00:00Z",
                         "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}]},
            "spec": {"podCIDR": "10.1.0.0/24", "providerID": "x://" + name}, "status": {
                "capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}],
                "images": [{"names": ["registry.example/a@sha256:" + "0" * 64], "sizeBytes": 9007199254740993}]}}


def pod(name, job=None, on=None, gpus=1, qos=None, phase=None, uid=None, **annotations):
    """Returns a pod as Go writes it to an extender."""
    words = {**({"sublet.dev/job": job} if job is not None else {}), **({"sublet.dev/qos": qos} if qos is not None else {}),
             **annotations}
    asked = {"cpu": "2", "memory": "8Gi", **({"sublet.dev/gpu": str(gpus)} if gpus else {})}
    return {"metadata": {"name": name, "namespace": "research", "uid": uid or str(uuid.uuid4()), "creationTimestamp":
                         "2026-11-27T10:00:00Z", "labels": {"app": "x"}, **({"annotations": words} if words else {})},
            "spec": {"containers": [{"name": "main", "image": "registry.example/train", "command": ["python3", "train.py"],
                                     "resources": {"limits": asked, "requests": asked},
                                     "terminationMessagePath": "/dev/termination-log"}],
                     "restartPolicy": "Always", "schedulerName": "default-scheduler", "securityContext": {},
                     **({"nodeName": on} if on else {}),
                     "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]},
            "status": {"phase": phase or ("Running" if on else "Pending"), "qosClass": "Guaranteed"}}


class Extender(Served):
    """A running sublet-extender, its cluster and its folder of jobs."""

    LINE_S = 30

    def __init__(self, folder, model, jobs, options=(), api=None, wait=True):
        self.folder, self.jobs = folder / "jobs", jobs
        self.api = api or ClusterServer()
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            for name in jobs:
                self.write(name)
        token = folder / "token"
        token.write_text(self.api.token)
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--listen", "127.0.0.1:0", "--jobs", str(self.folder), "--api-server", self.api.url, "--token-file",
                 str(token), "--ca-file", str(folder / "none") if self.api.url.startswith("https") else "/dev/null",
                 *(["--model", str(model)] if model else []), *map(str, options)],
                stderr=log, stdin=subprocess.DEVNULL)
        self.port = int(self.wait_for_line(r"serves requests on 127\.0\.0\.1 port (\d+)")[1])
        if wait:
            self.wait_for_line(r"knows the cluster")

    def write(self, name, text=None):
        """Puts a job file in place at once, as kubelet does. text: instead of the job of this name."""
        new = self.folder / f".{name}.new"
        new.write_text(json.dumps(self.jobs[name]) if text is None else text)
        os.rename(new, self.folder / f"{name}.json")

    def connect(self, timeout=30):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, connection=None):
        """Returns the status and the body of the answer."""
        c = connection or self.connect()
        try:
            c.request(method, path, body, {"Content-Type": "application/json", "Accept-Encoding": "gzip"} if body else {})
            answer = c.getresponse()
            return answer.status, answer.read()
        finally:
            if not connection:
                c.close()

    def filter(self, one, names, connection=None):
        """Returns the nodes that pass, and the sentences about the others."""
        status, body = self.ask("POST", "/filter", request_of(one, names), connection)
        assert status == 200, body
        answer = json.loads(body)
        assert answer.keys() == {"Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error"}
        assert answer["Nodes"] is None and answer["Error"] == "" and answer["FailedAndUnresolvableNodes"] == {}
        assert sorted([*answer["NodeNames"], *answer["FailedNodes"]]) == sorted(names)
        passed = set(answer["NodeNames"])
        assert answer["NodeNames"] == [n for n in names if n in passed], "the order has changed"
        return answer["NodeNames"], answer["FailedNodes"]

    def scores(self, one, names):
        status, body = self.ask("POST", "/prioritize", request_of(one, names))
        assert status == 200, body
        answer = json.loads(body)
        assert [a["Host"] for a in answer] == list(names)
        for a in answer:
            assert a.keys() == {"Host", "Score"} and type(a["Score"]) is int and 0 <= a["Score"] <= 10
        return [a["Score"] for a in answer]

    def await_filter(self, one, names, passing, what):
        """The API server tells of changes a moment later."""
        return wait_for(lambda: self.filter(one, names)[0] == passing, 20, what, report=self.text)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.api.close()
        assert "ERROR: " not in self.text() and "runtime error" not in self.text(), self.text()
        assert not self.api.wrong, "it asked for more than to read"


def request_of(one, names):
    return json.dumps({"Pod": one, "Nodes": None, "NodeNames": list(names)})
