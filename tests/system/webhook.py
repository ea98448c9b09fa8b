"""sublet-webhook as the tests start it: certificates, reviews as the API server sends them, and clients.

The patches are applied by python3-jsonpatch, which shares no code with the webhook."""

import asyncio
import base64
import copy
import http.client
import json
import os
import ssl
import subprocess
import uuid

import jsonpatch

from served import Served
from world import BUILD

PROGRAM = os.path.join(BUILD, "sublet-webhook")
SANITIZED = b"__asan_init" in open(PROGRAM, "rb").read() if os.path.exists(PROGRAM) else False


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Authority:
    """A certificate authority in a folder, such as a cluster has for its webhooks."""

    def __init__(self, folder):
        self.folder, self.serial = folder, 0
        self.certificate = folder / "ca.crt"
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj", "/CN=ca",
                "-addext", "keyUsage=critical,keyCertSign,cRLSign", "-keyout", folder / "ca.key", "-out", self.certificate)

    def sign(self, key_type=("ec", "-pkeyopt", "ec_paramgen_curve:P-256"), purpose=None, days=1):
        """Returns the paths of a new certificate and its key. purpose: what it may be used for only."""
        self.serial += 1
        certificate, key, request = (self.folder / f"{self.serial}.{end}" for end in ("crt", "key", "csr"))
        names = self.folder / "names"
        names.write_text("subjectAltName=DNS:localhost,DNS:sublet-webhook.sublet.svc,IP:127.0.0.1\n"
                         "authorityKeyIdentifier=keyid\n" +
                         (f"extendedKeyUsage={purpose}\n" if purpose else ""))
        openssl("req", "-newkey", *key_type, "-nodes", "-subj", "/CN=sublet-webhook", "-keyout", key, "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self.folder / "ca.key",
                "-set_serial", self.serial, "-days", days, "-extfile", names, "-out", certificate)
        return certificate, key

    def trusting(self):
        return ssl.create_default_context(cafile=str(self.certificate))


class Webhook(Served):
    """A running sublet-webhook."""

    def __init__(self, folder, options=(), authority=None):
        self.authority = authority or Authority(folder)
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew()
        self.context = self.authority.trusting()
        self.log = folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [PROGRAM, "--listen", "127.0.0.1:0", "--certificate", str(self.certificate), "--key", str(self.key), *options],
                stderr=log, stdin=subprocess.DEVNULL)
        self.port = int(self.wait_for_line(r"serves reviews on 127\.0\.0\.1 port (\d+)")[1])

    def renew(self):
        """Puts a new certificate in place of the old one, each file by a rename. Returns its serial number."""
        for new, shown in zip(self.authority.sign(), (self.certificate, self.key)):
            os.rename(new, shown)
        return self.authority.serial

    def connect(self, timeout=30):
        return http.client.HTTPSConnection("localhost", self.port, context=self.context, timeout=timeout)

    def ask(self, method, path, body=None, connection=None, headers=None):
        """Returns the status and the body of the answer."""
        c = connection or self.connect()
        try:
            c.request(method, path, body, headers or {}, encode_chunked="Transfer-Encoding" in (headers or {}))
            answer = c.getresponse()
            return answer.status, answer.read()
        finally:
            if not connection:
                c.close()

    def review(self, review, path="/mutate", connection=None):
        """Returns the response to a review."""
        status, body = self.ask("POST", path, json.dumps(review), connection, {"Content-Type": "application/json"})
        assert status == 200, body
        return response_to(review, json.loads(body))

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert "ERROR: " not in self.text() and "runtime error" not in self.text(), self.text()


def response_to(review, answer):
    """Checks what Kubernetes demands of every answer, and returns its response."""
    response = answer["response"]
    assert answer["apiVersion"] == review["apiVersion"] and answer["kind"] == "AdmissionReview"
    assert response["uid"] == review["request"]["uid"] and response["allowed"] is True
    assert ("patch" in response) == ("patchType" in response)
    assert response.get("patchType", "JSONPatch") == "JSONPatch"
    assert not response.keys() - {"uid", "allowed", "patch", "patchType", "warnings"}
    for warning in response.get("warnings", []):
        assert 0 < len(warning.encode()) < 256 and warning.isprintable()
    return response


def patch_of(response):
    return json.loads(base64.b64decode(response["patch"], validate=True)) if "patch" in response else []


def patched(pod, response):
    """Returns the pod after the response's patch. The patch must change something, or be missing."""
    after = jsonpatch.JsonPatch(patch_of(response)).apply(copy.deepcopy(pod))
    assert (after != pod) == ("patch" in response)
    return after


def review_of(pod, version="v1", operation="CREATE", **more):
    """Returns a review with everything that an API server of 1.20 to 1.34 writes."""
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    resource = {"group": "", "version": "v1", "resource": "pods"}
    request = {
        "uid": str(uuid.uuid4()), "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
        "namespace": "research", "operation": operation,
        "userInfo": {"username": "system:serviceaccount:kube-system:replicaset-controller",
                     "uid": "a2c1c1f2-5b4e-4f0c-9f93-9b5f2f6f7d11",
                     "groups": ["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
                     "extra": {"authentication.kubernetes.io/credential-id": ["JTI=3a5c"]}},
        "object": pod, "oldObject": None, "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}}
    return {"kind": "AdmissionReview", "apiVersion": f"admission.k8s.io/{version}", "request": {**request, **more}}


def container(name="main", gpus=None, resource="nvidia.com/gpu", env=None, **more):
    """Returns a container as the API server shows it to webhooks: with defaults."""
    asked = {"cpu": "2", "memory": "8Gi"} | ({resource: gpus} if gpus is not None else {})
    return {"name": name, "image": "registry.example/team/train:2026-11", "command": ["python3", "-m", "train"],
            "args": ["--out=/data/~run/1", "--label=a/b~c"],
            "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}},
                    {"name": "OMP_NUM_THREADS", "value": "2"}, *(env or [])],
            "resources": {"limits": dict(asked), "requests": dict(asked)},
            "volumeMounts": [{"name": "data", "mountPath": "/data"},
                             {"name": "kube-api-access-x7k2p", "readOnly": True,
                              "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            "livenessProbe": {"httpGet": {"path": "/live", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1,
                              "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}, **more}


def pod(*containers, labels=None, annotations=None, **spec):
    """Returns a pod of a Deployment, as its ReplicaSet creates it."""
    return {
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "generateName": "trainer-6d5f9c7b8d-", "namespace": "research", "creationTimestamp": None,
            "labels": {"app.kubernetes.io/name": "trainer", "pod-template-hash": "6d5f9c7b8d", **(labels or {})},
            **({"annotations": dict(annotations)} if annotations is not None else {}),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "trainer-6d5f9c7b8d",
                                 "uid": "8f4a3c1e-0b7d-4a6e-9c55-2f1f0d0b7c3a", "controller": True, "blockOwnerDeletion": True}],
            "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                               "time": "2026-11-27T16:00:00Z", "fieldsType": "FieldsV1",
                               "fieldsV1": {"f:metadata": {"f:generateName": {}, "f:labels": {".": {}}},
                                            "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": {".": {}, "f:image": {}}}}}}]},
        "spec": {
            "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                        {"name": "kube-api-access-x7k2p", "projected": {"defaultMode": 420, "sources": [
                            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {
                                "apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}}]}}],
            "containers": list(containers), "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default",
            "securityContext": {"runAsUser": 1000, "fsGroup": 1000}, "schedulerName": "default-scheduler",
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "In", "values": ["NVIDIA-H200"]}]}]}}},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
                            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                             "tolerationSeconds": 300}],
            "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority", **spec},
        "status": {}}


def as_large_as(review, size):
    """Returns the review's text, made this long by variables of the first container, as real pods have them."""
    review = copy.deepcopy(review)
    env = review["request"]["object"]["spec"]["containers"][0]["env"]
    one = {"name": "SETTING_1234567", "value": "with \"quotes\" and /paths/of/~files"}
    room = size - len(json.dumps(review))
    env += [{**one, "name": f"SETTING_{i:07}"} for i in range(room // (len(json.dumps(one)) + 2))]
    text = json.dumps(review).encode()
    return text + b" " * (size - len(text))


async def _one(webhook, path, text, gate, timeout):
    async with gate:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection("127.0.0.1", webhook.port, ssl=webhook.context, server_hostname="localhost",
                                    ssl_handshake_timeout=timeout), timeout)
    try:
        writer.write(b"POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" %
                     (path.encode(), len(text), text))
        answer = await asyncio.wait_for(reader.read(), timeout)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), answer[:200]
        return json.loads(body)
    finally:
        writer.close()


def ask_at_once(webhook, texts, path="/mutate", timeout=600, connecting=None):
    """Sends all texts at the same time, each over a connection of its own. Returns the answers in order. connecting: at
    most so many handshakes at once, because the webhook ends connections whose handshakes this process is slow to do."""
    async def all_of_them():
        gate = asyncio.Semaphore(connecting or len(texts))
        return await asyncio.gather(*(_one(webhook, path, text, gate, timeout) for text in texts))
    return asyncio.run(all_of_them())
