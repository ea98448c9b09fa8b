"""What the steps of the cluster's test share: the simulated card, what was found, pods, and questions to the daemon."""

import json
import os
import pathlib
import re
import subprocess
import time

from cluster import NODE, run

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy/kubernetes"
HERE = ROOT / "tests/kubernetes"
RELEASE = re.search(r"project\(sublet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
SIM = {"SIMCUDA_SESSION": "+cluster", "SIMCUDA_MEMORY": "256MiB", "SIMCUDA_GPUS": "1"}
DAEMON_DIR = "/run/sublet"


class Course:
    """build: sublet's build folder. folder: for what the steps write."""

    def __init__(self, cluster, build, folder):
        self.cluster, self.build, self.folder = cluster, build, folder
        self.manifests = folder / "manifests"  # a copy of the repository's, in the words of the cluster's kubectl
        self.found = []

    def note(self, what, value=""):
        print(f"{time.strftime('%H:%M:%S')}  {what}{': ' if value != '' else ''}{value}", flush=True)
        self.found.append((what, value))

    # ---- programs of pods, alone ----

    def alone(self, *command, cwd=None):
        """What a program prints without sublet, on a card of its own."""
        done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, text=True, check=True, cwd=cwd,
                              env={**os.environ, **SIM, "SIMCUDA_SESSION": "alone", "PYTHONDONTWRITEBYTECODE": "1",
                                   "LD_LIBRARY_PATH": str(self.build / "sim")})
        return done.stdout

    def job_alone(self, job):
        """Returns rounds, mismatches and digest of a job (JOBS of e2e.py), which makes no pauses then."""
        size, key, phases, _, rounds = job.split()
        return self.alone(self.build / "sublet-demo-job", size, key, phases, 0, rounds).splitlines()[-1]

    # ---- pods ----

    def apply(self, document):
        self.cluster.kubectl("apply", "-f", "-", text=json.dumps(document))

    def phase(self, namespace, name):
        return self.cluster.get("pod", name, "-n", namespace)["status"].get("phase")

    def refused(self, *arguments):
        """What kubectl prints, also if it fails."""
        try:
            return self.cluster.kubectl(*arguments)
        except RuntimeError as e:
            return str(e)

    def remove(self, namespace, *names):
        """At once, and without waiting for the kubelet."""
        self.cluster.kubectl("delete", "pod", *names, "-n", namespace, "--grace-period=0", "--force", "--wait=false")

    def allocatable(self):
        return int(self.cluster.get("node", NODE)["status"]["allocatable"].get("sublet.dev/gpu", 0))

    # ---- the daemon ----

    def sublet(self, *arguments):
        return run(self.build / "sublet", *arguments, "--daemon", DAEMON_DIR)

    def status(self):
        return json.loads(self.sublet("status", "--json"))

    def clients(self):
        return [c for gpu in self.status()["gpus"] for c in gpu["clients"]]

    def clients_of(self, *pods):
        """The rows of these pods, once each of them has one."""
        rows = [c for c in self.clients() if f"{c.get('pod_namespace')}/{c.get('pod_name')}" in pods]
        return rows if {f"{c['pod_namespace']}/{c['pod_name']}" for c in rows} == set(pods) else None


def job_pod(name, namespace, resource, job, annotations=None, uid=0, memory="2Gi"):
    """job: the arguments of sublet-demo-job, or a list: a whole command line."""
    what = {"args": job.split()} if isinstance(job, str) else {"command": job}
    environment = {**SIM, "LD_LIBRARY_PATH": "/sim"}
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 2,
            "automountServiceAccountToken": False,
            "containers": [{
                "name": "job", "image": "sublet-test/job:1", **what,
                "env": [{"name": k, "value": v} for k, v in environment.items()],
                "securityContext": {"runAsUser": uid, "readOnlyRootFilesystem": True},
                "resources": {"limits": {resource: 1, "memory": memory}},
                "volumeMounts": [{"name": "sim", "mountPath": "/sim", "readOnly": True},
                                 {"name": "shm", "mountPath": "/dev/shm"}]}],
            "volumes": [{"name": "sim", "hostPath": {"path": "/sim"}}, {"name": "shm", "hostPath": {"path": "/dev/shm"}}],
        }}
