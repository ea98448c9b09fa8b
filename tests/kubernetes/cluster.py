"""A Kubernetes cluster of one node, for tests: etcd, API server, scheduler, controller manager, kubelet, containerd.

Everything lives in one folder, and in namespaces of its own for processes, mounts and the network, so that it ends with
the process that made it. As root. Outside it makes cgroups named kubepods and a few empty folders, and the kubelet
changes three settings of the kernel: stop() takes all of that back."""

import contextlib
import json
import os
import pathlib
import secrets
import signal
import subprocess
import time

NODE, NODE_IP = "node", "192.0.2.2"
API = f"https://{NODE_IP}:6443"
GENEROUS_S = 60
KERNEL = ("vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")

CONTAINERD = """
version = 2
root = "{run}/containerd"
state = "{run}/containerd-state"
oom_score = 0
[grpc]
address = "{run}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "docker.io/sublet-test/pause:1"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{run}/cni"
"""

NETWORK = {
    "cniVersion": "0.4.0", "name": "pods", "plugins": [
        {"type": "ptp", "ipMasq": False,
         "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/24"}]], "dataDir": "{run}/ips",
                  "routes": [{"dst": "0.0.0.0/0"}]}}]}

KUBELET = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
cgroupDriver: cgroupfs
failSwapOn: false
enforceNodeAllocatable: []
evictionHard: {{memory.available: 100Mi, nodefs.available: 100Mi, nodefs.inodesFree: "0%", imagefs.available: 100Mi}}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 2s
syncFrequency: 2s
"""


def run(*command, **more):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.returncode}\n{done.stdout}")
    return done.stdout


def eventually(what, check, seconds=GENEROUS_S):
    """Waits until check() returns something true, and returns it."""
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            last = check()
            if last:
                return last
        except (OSError, RuntimeError, ValueError, KeyError, IndexError) as e:
            last = e
        time.sleep(0.25)
    raise TimeoutError(f"{what}: not within {seconds} s; last: {last}")


class Cluster:
    """built: the folder of build.sh. folder: for everything else; it must not exist."""

    def __init__(self, built, folder):
        self.bin, self.run = pathlib.Path(built) / "bin", pathlib.Path(folder)
        self.running = {}
        self.kernel, self.made = {}, []

    # ---- beginning and end ----

    def start(self, images):
        self.run.mkdir(parents=True)
        self.kernel = {k: pathlib.Path("/proc/sys", k).read_text() for k in KERNEL}
        self._mount()
        self._network()
        self._keys()
        self._control_plane()
        self.start_containerd()
        for image in images:
            run("ctr", "--address", self.run / "containerd.sock", "-n", "k8s.io", "images", "import", image)
        self.start_kubelet()
        eventually("the node is ready", lambda: "True" in self.kubectl(
            "get", "node", NODE, "-o", "jsonpath={.status.conditions[?(@.type=='Ready')].status}"))

    def stop(self):
        for name in reversed(list(self.running)):
            self.end(name)
        for k, v in self.kernel.items():
            with contextlib.suppress(OSError):
                pathlib.Path("/proc/sys", k).write_text(v)
        for path in self.made:
            with contextlib.suppress(OSError, RuntimeError):
                run("umount", "--recursive", "--lazy", path)
                os.rmdir(path)
        # Shims and containers are left in the cgroups.
        for _ in range(50):
            groups = pathlib.Path("/sys/fs/cgroup")  # of version 2, or a folder for each controller of version 1
            left = [p for top in [*groups.glob("kubepods"), *groups.glob("*/kubepods")] for p in [top, *top.rglob("*")]
                    if p.is_dir()]
            for p in sorted(left, key=lambda p: -len(p.parts)):
                with contextlib.suppress(OSError):
                    for pid in (p / "cgroup.procs").read_text().split():
                        os.kill(int(pid), signal.SIGKILL)
                    p.rmdir()
            if not left:
                break
            time.sleep(0.1)

    def begin(self, name, *command, **environment):
        log = open(self.run / f"{name}.log", "ab")
        self.running[name] = subprocess.Popen([str(c) for c in command], stdout=log, stderr=log,
                                              env={**os.environ, **environment})

    def end(self, name, how=signal.SIGTERM):
        process = self.running.pop(name)
        process.send_signal(how)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    # ---- its parts ----

    def _mount(self):
        """Paths that are fixed in the kubelet or in the manifests."""
        for path in ("/var/lib/kubelet", "/var/log/pods", "/var/log/containers", "/run/sublet", "/var/lib/sublet",
                     "/var/lib/cni", "/run/containerd"):
            own = self.run / "root" / path[1:]
            own.mkdir(parents=True)
            self.mount(own, path)
        run("mount", "--make-rshared", "/")

    def mount(self, own, path):
        if not os.path.exists(path):
            os.makedirs(path)
            self.made.append(path)
        run("mount", "--bind", own, path)

    def _network(self):
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "outside")
        run("ip", "addr", "add", f"{NODE_IP}/24", "dev", "node0")
        for name in ("node0", "outside"):
            run("ip", "link", "set", name, "up")
        run("ip", "route", "add", "default", "via", "192.0.2.1")
        pathlib.Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        (self.run / "cni").mkdir()
        (self.run / "cni/pods.conflist").write_text(json.dumps(NETWORK).replace("{run}", str(self.run)))

    def _keys(self):
        keys = self.run / "keys"
        keys.mkdir()
        run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test", "-addext",
            "keyUsage=critical,keyCertSign,cRLSign", "-keyout", keys / "ca.key", "-out", keys / "ca.crt")
        run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=api", "-keyout", keys / "api.key", "-out",
            keys / "api.csr")
        (keys / "names").write_text(f"subjectAltName=IP:{NODE_IP},IP:127.0.0.1,IP:10.96.0.1,DNS:kubernetes.default.svc\n"
                                    "authorityKeyIdentifier=keyid\n")
        run("openssl", "x509", "-req", "-in", keys / "api.csr", "-CA", keys / "ca.crt", "-CAkey", keys / "ca.key",
            "-CAcreateserial", "-days", "2", "-extfile", keys / "names", "-out", keys / "api.crt")
        run("openssl", "genrsa", "-out", keys / "accounts.key", "2048")
        self.tokens = {name: secrets.token_hex(16) for name in ("admin", "kubelet")}
        (keys / "tokens.csv").write_text(
            f"{self.tokens['admin']},admin,1,system:masters\n"
            f"{self.tokens['kubelet']},system:node:{NODE},2,system:nodes\n")
        for name, token in self.tokens.items():
            (keys / name).write_text(json.dumps({
                "apiVersion": "v1", "kind": "Config", "current-context": "test",
                "clusters": [{"name": "test", "cluster": {"server": API, "certificate-authority": str(keys / "ca.crt")}}],
                "users": [{"name": "test", "user": {"token": token}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}]}))

    def _control_plane(self):
        keys = self.run / "keys"
        self.begin("etcd", "etcd", "--data-dir", self.run / "etcd", "--listen-client-urls", "http://127.0.0.1:23790",
                   "--advertise-client-urls", "http://127.0.0.1:23790", "--listen-peer-urls", "http://127.0.0.1:23800",
                   ETCD_UNSUPPORTED_ARCH="arm64")
        self.begin("api", self.bin / "kube-apiserver", "--etcd-servers=http://127.0.0.1:23790",
                   f"--bind-address={NODE_IP}", f"--advertise-address={NODE_IP}", "--secure-port=6443",
                   f"--tls-cert-file={keys}/api.crt", f"--tls-private-key-file={keys}/api.key",
                   f"--token-auth-file={keys}/tokens.csv", "--authorization-mode=Node,RBAC",
                   f"--service-account-key-file={keys}/accounts.key",
                   f"--service-account-signing-key-file={keys}/accounts.key",
                   "--service-account-issuer=https://kubernetes.default.svc",
                   "--service-cluster-ip-range=10.96.0.0/24", "--allow-privileged=true",
                   "--kubelet-preferred-address-types=InternalIP",  # the node's name does not resolve
                   "--enable-aggregator-routing=true",  # webhooks are called at their pods: there is no kube-proxy
                   f"--cert-dir={self.run}/api")
        eventually("the API server answers", lambda: self.kubectl("get", "--raw", "/readyz"))
        admin = keys / "admin"
        self.begin("controllers", self.bin / "kube-controller-manager", f"--kubeconfig={admin}",
                   f"--service-account-private-key-file={keys}/accounts.key", f"--root-ca-file={keys}/ca.crt",
                   "--use-service-account-credentials=true", "--leader-elect=false",
                   "--node-monitor-grace-period=10s", "--port=0", f"--cert-dir={self.run}/controllers")
        self.begin("scheduler", self.bin / "kube-scheduler", f"--kubeconfig={admin}", "--leader-elect=false",
                   "--port=0", f"--cert-dir={self.run}/scheduler")

    def start_containerd(self):
        (self.run / "containerd.toml").write_text(CONTAINERD.format(run=self.run))
        self.begin("containerd", "containerd", "--config", self.run / "containerd.toml", "--log-level", "warn")
        eventually("containerd answers", lambda: run("ctr", "--address", self.run / "containerd.sock", "version"))

    def start_kubelet(self):
        (self.run / "kubelet.yaml").write_text(KUBELET.format())
        self.begin("kubelet", self.bin / "kubelet", f"--config={self.run}/kubelet.yaml",
                   f"--kubeconfig={self.run}/keys/kubelet", "--container-runtime=remote",
                   f"--container-runtime-endpoint=unix://{self.run}/containerd.sock", f"--hostname-override={NODE}",
                   f"--node-ip={NODE_IP}", f"--cert-dir={self.run}/kubelet")

    # ---- asking it ----

    def kubectl(self, *arguments, text=None):
        return run(self.bin / "kubectl", "--kubeconfig", self.run / "keys/admin", *arguments, input=text)

    def get(self, *arguments):
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def logs(self, pod):
        """What a pod's containers have written, also after the pod is gone."""
        lines = []
        for path in sorted(pathlib.Path("/var/log/pods").glob(f"*_{pod}_*/*/*.log")):
            for line in path.read_text(errors="replace").splitlines():
                lines.append(line.split(" ", 3)[3] if line.count(" ") >= 3 else line)
        return "\n".join(lines)


