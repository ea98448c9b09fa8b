#!/usr/bin/python3
"""Lets a real kube-scheduler ask sublet-extender, with a real API server and nodes without kubelets, on a model of the
toy card of the tests. As root, in a network namespace of its own:

    unshare --net tests/kubernetes/scheduler.py BUILD KUBERNETES FOLDER

BUILD: sublet's build folder. KUBERNETES: the folder of build.sh. FOLDER: for everything else; it must not exist. Ends
with an exception at the first thing that does not hold."""

import json
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/kubernetes"), str(ROOT / "tests/system")]
BUILD, KUBERNETES, FOLDER = (pathlib.Path(a).resolve() for a in sys.argv[1:4])
os.environ["SUBLET_BUILD"] = str(BUILD)
import extender as tools  # noqa: E402
import trained  # noqa: E402
import yaml  # noqa: E402
from cluster import API, Cluster, eventually, run  # noqa: E402
from webhook import Authority  # noqa: E402

DEPLOY = ROOT / "deploy/kubernetes/extender"
TOKEN = "of-the-extender"
BAD = "stream-11", "stencil-10", "stream-23", "stencil-22"  # no two of them keep half of their progress


class Scheduling(Cluster):
    def start(self, images=()):
        self.run.mkdir(parents=True)
        self._network()
        self._keys()
        self._control_plane()
        self.end("scheduler")
        eventually("the account of pods", lambda: self.kubectl("get", "serviceaccount", "default"))

    def apply(self, one):
        path = self.run / "applied.json"
        path.write_text(json.dumps(one))
        self.kubectl("create", "-f", path)

    def make_node(self, name):
        """A node that looks as if its kubelet and its device plugin had told of one GPU."""
        room = {"cpu": "64", "memory": "64Gi", "pods": "110", "sublet.dev/gpu": "100"}
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        (self.run / "status.json").write_text(json.dumps({"status": {"capacity": room, "allocatable": room, "conditions": [
            {"type": "Ready", "status": "True"}]}}))
        run("curl", "-sSf", "--cacert", self.run / "keys/ca.crt", "-H", f"Authorization: Bearer {self.tokens['admin']}", "-X",
            "PATCH", "-H", "Content-Type: application/merge-patch+json", "--data-binary", f"@{self.run}/status.json",
            f"{API}/api/v1/nodes/{name}/status")

    def make_pods(self, qos="0.5", **jobs):
        self.apply({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Pod",
             "metadata": {"name": name, "annotations": {"sublet.dev/job": job, "sublet.dev/qos": qos} if job else {}},
             "spec": {"automountServiceAccountToken": False, "tolerations": [{"operator": "Exists"}], "containers": [
                 {"name": "c", "image": "x", "resources": {"limits": {"sublet.dev/gpu": "1"}}}]}}
            for name, job in jobs.items()]})

    def places(self):
        return {p["metadata"]["name"]: p["spec"].get("nodeName") for p in json.loads(
            self.kubectl("get", "pods", "-o", "json"))["items"]}

    def await_places(self, *names):
        def all_placed():
            places = self.places()
            return places if all(places[name] for name in names) else None
        return eventually(f"{names} are placed", all_placed, 120)

    def start_extender(self):
        for document in yaml.safe_load_all((DEPLOY / "rights.yaml").read_text()):
            if document["kind"] == "ClusterRole":
                self.apply(document)
        self.kubectl("create", "clusterrolebinding", "extender", "--clusterrole=sublet-extender", "--user=extender")
        model, jobs = trained.train(self.run)
        (self.run / "jobs").mkdir()
        for name, job in jobs.items():
            (self.run / "jobs" / f"{name}.json").write_text(json.dumps(job))
        (self.run / "token").write_text(TOKEN)
        (self.run / "authority").mkdir()
        authority = Authority(self.run / "authority")
        certificate, key = authority.sign(purpose="serverAuth")
        self.begin("extender", tools.PROGRAM, "--listen", "127.0.0.1:8444", "--certificate", certificate, "--key", key,
                   "--client-ca", authority.certificate, "--jobs", self.run / "jobs", "--model", model, "--prefer", "spread",
                   "--api-server", API, "--token-file", self.run / "token", "--ca-file", self.run / "keys/ca.crt", SUBLET_LOG="debug")
        return authority

    def start_scheduler(self, authority):
        config = yaml.safe_load((DEPLOY / "scheduler.yaml").read_text())
        config |= {"apiVersion": "kubescheduler.config.k8s.io/v1beta1", "leaderElection": {"leaderElect": False},
                   "clientConnection": {"kubeconfig": str(self.run / "keys/admin")}}
        client = dict(zip(("certFile", "keyFile"), map(str, authority.sign(purpose="clientAuth"))))
        config["extenders"][0] |= {"urlPrefix": "https://127.0.0.1:8444",
                                   "tlsConfig": {"serverName": "localhost", "caFile": str(authority.certificate), **client}}
        (self.run / "scheduler.yaml").write_text(yaml.dump(config))
        self.begin("scheduler", self.bin / "kube-scheduler", f"--config={self.run}/scheduler.yaml", "--port=0",
                   f"--cert-dir={self.run}/scheduler")

    def _keys(self):
        super()._keys()
        with open(self.run / "keys/tokens.csv", "a", encoding="ascii") as f:
            f.write(f"{TOKEN},extender,3\n")


def check(cluster):
    cluster.start()
    authority = cluster.start_extender()
    for name in ("n1", "n2", "n3"):
        cluster.make_node(name)
    cluster.start_scheduler(authority)
    # At once, so that the scheduler asks about the next one before the last one is bound.
    cluster.make_pods("0.4", a=BAD[0], b=BAD[1], c=BAD[2])
    places = cluster.await_places("a", "b", "c")
    assert len(set(places.values())) == 3, places
    cluster.make_pods(d=BAD[3])
    reason = eventually("the pod's event", lambda: [e["message"] for e in json.loads(cluster.kubectl(
        "get", "events", "-o", "json"))["items"] if e["involvedObject"]["name"] == "d"])[0]
    assert reason.startswith("0/3 nodes are available: 1 node(s) where jobs stencil-22 and "), reason
    print(reason)
    cluster.make_pods(good="loader-17", plain=None)
    cluster.await_places("good", "plain")
    assert not cluster.places()["d"]
    cluster.kubectl("delete", "pod", "a", "b", "c", "plain", "--force", "--grace-period=0", "--wait=false")
    cluster.await_places("d")
    cluster.end("extender")
    cluster.make_pods(e=BAD[0], f=BAD[1], g=BAD[2], h=BAD[3])
    print("without the extender:", cluster.await_places("e", "f", "g", "h"))
    print((cluster.run / "extender.log").read_text())


def main():
    cluster = Scheduling(KUBERNETES, FOLDER)
    try:
        check(cluster)
    finally:
        for name in reversed(list(cluster.running)):
            cluster.end(name)


main()
