"""The manifests of deploy/kubernetes, rendered by kubectl. A real API server takes them in `./dev e2e-k8s`."""

import base64
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

from manifests import MISSING, render

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy/kubernetes"
PLAIN = ["base", *(f"overlays/{o}" for o in ("cdi", "devices", "runtime-class"))]
RELEASE = re.search(r"project\(sublet VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "")


@pytest.fixture(scope="module", name="deploy")
def _deploy(tmp_path_factory):
    """A copy, in which certificate.sh has run."""
    copy = tmp_path_factory.mktemp("deploy") / "kubernetes"
    shutil.copytree(DEPLOY, copy)
    for program in ("webhook", "extender"):
        subprocess.run([copy / program / "certificate.sh"], check=True, stdout=subprocess.DEVNULL)
    return copy


def of_kind(documents, kind):
    return [d for d in documents if d["kind"] == kind]


def the_only(documents, kind):
    (one,) = of_kind(documents, kind)
    return one


def containers(documents):
    return {c["name"]: c for d in documents if d["kind"] in ("DaemonSet", "Deployment")
            for c in d["spec"]["template"]["spec"]["containers"]}


@pytest.mark.parametrize("overlay", PLAIN)
def test_a_node_gets_the_daemon_and_the_plugin_of_this_release(deploy, overlay):
    documents = render(deploy / overlay)
    assert {n: c["image"] for n, c in containers(documents).items()} == {
        "daemon": f"sublet/daemon:{RELEASE}", "plugin": f"sublet/device-plugin:{RELEASE}"}
    spec = the_only(documents, "DaemonSet")["spec"]["template"]["spec"]
    assert spec["hostPID"]
    assert spec["priorityClassName"] == the_only(documents, "PriorityClass")["metadata"]["name"]
    (config,) = (v["configMap"]["name"] for v in spec["volumes"] if "configMap" in v)
    assert config == the_only(documents, "ConfigMap")["metadata"]["name"]


def test_the_ways_to_the_gpu_differ_by_an_option_of_the_plugin(deploy):
    options = {o: containers(render(deploy / o))["plugin"].get("args", []) for o in PLAIN}
    assert options == {"base": [], "overlays/cdi": ["--gpu-access", "cdi"],
                       "overlays/devices": ["--gpu-access", "devices"], "overlays/runtime-class": []}
    spec = the_only(render(deploy / "overlays/runtime-class"), "DaemonSet")["spec"]["template"]["spec"]
    assert spec["runtimeClassName"] == "nvidia"


def test_without_a_runtime_of_nvidia_the_daemon_takes_nvml_alone_from_the_node(deploy):
    """No engine brings a GPU into a pod that asks for none, and other libraries of the node may need another glibc."""
    for overlay in ("overlays/cdi", "overlays/devices"):
        documents = render(deploy / overlay)
        daemon, volumes = containers(documents)["daemon"], the_only(documents, "DaemonSet")["spec"]["template"]["spec"]["volumes"]
        (nvml,) = (m for m in daemon["volumeMounts"] if m["name"] == "nvml")
        (path,) = (v["hostPath"] for v in volumes if v["name"] == "nvml")
        assert path == {"path": nvml["mountPath"], "type": "File"} and nvml["readOnly"]
        assert path["path"].endswith("/libnvidia-ml.so.1")
        environment = {e["name"]: e.get("value") for e in daemon["env"]}
        assert environment["NVIDIA_VISIBLE_DEVICES"] == "void" and "LD_LIBRARY_PATH" not in environment
        assert daemon["securityContext"]["privileged"]  # the device nodes


def test_only_the_plugin_may_ask_the_api_server_and_only_to_read_pods_and_make_events(deploy):
    documents = render(deploy / "overlays/with-webhook")
    rules = [r for d in documents if d["kind"].endswith("Role") for r in d["rules"]]
    assert rules == [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
                     {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
    for d in documents:
        if d["kind"] in ("DaemonSet", "Deployment"):
            assert d["spec"]["template"]["spec"]["automountServiceAccountToken"] is False
    tokens = [n for n, c in containers(documents).items()
              if any("serviceaccount" in m["mountPath"] for m in c["volumeMounts"])]
    assert tokens == ["plugin"]


def test_containers_are_as_unprivileged_as_their_work_allows(deploy):
    for name, c in containers(render(deploy / "overlays/with-webhook")).items():
        context = c["securityContext"]
        assert context["readOnlyRootFilesystem"] and context["allowPrivilegeEscalation"] is False
        assert context["capabilities"]["drop"] == ["ALL"]
        assert not context.get("privileged")
        assert (name == "webhook") == context.get("runAsNonRoot", False)


def test_the_webhook_cannot_stop_a_cluster(deploy):
    documents = render(deploy / "overlays/with-webhook")
    hooks = the_only(documents, "MutatingWebhookConfiguration")["webhooks"]
    authority = (deploy / "webhook/certificate/authority.yaml").read_text()
    assert len(hooks) == 2
    for h in hooks:
        assert h["failurePolicy"] == "Ignore"
        assert h["timeoutSeconds"] <= 3
        assert h["sideEffects"] == "None"
        assert h["clientConfig"]["caBundle"] in authority
        # It does not wait for itself.
        assert {"key": "sublet.dev/system", "operator": "DoesNotExist"} in h["namespaceSelector"]["matchExpressions"]
        (rule,) = h["rules"]
        assert rule["operations"] == ["CREATE"] and rule["resources"] == ["pods"]
    (namespace,) = (d for d in of_kind(documents, "Namespace"))
    assert namespace["metadata"]["labels"]["sublet.dev/system"] == "true"
    assert {h["clientConfig"]["service"]["path"] for h in hooks} == {"/mutate", "/mutate-all"}


def test_the_certificate_is_for_the_service_and_its_authority_signed_it(deploy, tmp_path):
    folder = deploy / "webhook/certificate"
    hook = yaml.safe_load((folder / "authority.yaml").read_text())["webhooks"][0]
    authority = tmp_path / "ca.crt"
    authority.write_bytes(base64.b64decode(hook["clientConfig"]["caBundle"]))
    subprocess.run(["openssl", "verify", "-x509_strict", "-CAfile", authority, "-verify_hostname", "sublet-webhook.sublet-system.svc",
                    folder / "tls.crt"], check=True, stdout=subprocess.DEVNULL)
    assert (folder / "tls.key").stat().st_mode & 0o077 == 0


def test_the_extender_reads_pods_and_nodes_and_writes_nothing(deploy):
    documents = render(deploy / "extender")
    assert [r for d in documents if d["kind"].endswith("Role") for r in d["rules"]] == [
        {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": ["list", "watch"]}]
    (subject,) = the_only(documents, "ClusterRoleBinding")["subjects"]
    spec = the_only(documents, "Deployment")["spec"]["template"]["spec"]
    assert subject["name"] == spec["serviceAccountName"] == the_only(documents, "ServiceAccount")["metadata"]["name"]
    c = containers(documents)["extender"]
    assert c["image"] == f"sublet/extender:{RELEASE}"
    context = c["securityContext"]
    assert context["runAsNonRoot"] and context["readOnlyRootFilesystem"] and context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]
    mounted = {m["mountPath"] for m in c["volumeMounts"]}
    assert {"/certificate", "/jobs", "/model", "/var/run/secrets/kubernetes.io/serviceaccount"} == mounted
    assert {v["name"] for v in spec["volumes"]} == {m["name"] for m in c["volumeMounts"]}


def test_the_extender_cannot_stop_a_cluster(deploy):
    config = yaml.safe_load((deploy / "extender/scheduler.yaml").read_text())
    (extender,) = config["extenders"]
    assert extender["ignorable"] is True and extender["nodeCacheCapable"] is True
    assert extender["managedResources"] == [{"name": "sublet.dev/gpu", "ignoredByScheduler": False}]
    service = the_only(render(deploy / "extender"), "Service")
    (port,) = service["spec"]["ports"]
    name = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert extender["urlPrefix"] == f"https://{name}:{port['port']}" and extender["tlsConfig"]["serverName"] == name
    folder = deploy / "extender/certificate"
    subprocess.run(["openssl", "verify", "-x509_strict", "-CAfile", folder / "ca.crt", "-verify_hostname", name,
                    folder / "tls.crt"], check=True, stdout=subprocess.DEVNULL)


def test_the_extender_knows_the_schedulers_certificate_and_not_its_own_as_a_clients(deploy):
    folder, documents = deploy / "extender/certificate", render(deploy / "extender")
    args = containers(documents)["extender"]["args"]
    assert args[args.index("--client-ca") + 1] == "/certificate/ca.crt"
    shown = base64.b64decode(the_only(documents, "Secret")["data"]["ca.crt"])
    assert shown == (folder / "ca.crt").read_bytes()
    for name, good in (("client", True), ("tls", False)):
        done = subprocess.run(["openssl", "verify", "-x509_strict", "-CAfile", folder / "ca.crt", "-purpose", "sslclient",
                               folder / f"{name}.crt"], check=False, capture_output=True)
        assert (done.returncode == 0) == good, name
    (extender,) = yaml.safe_load((deploy / "extender/scheduler.yaml").read_text())["extenders"]
    assert {"caFile", "certFile", "keyFile"} <= extender["tlsConfig"].keys()


@pytest.mark.parametrize("path", sorted(p.name for p in (DEPLOY / "examples").glob("*.yaml")))
def test_an_example_asks_for_a_shared_gpu(path):
    specs = []
    for d in yaml.safe_load_all((DEPLOY / "examples" / path).read_text()):
        if d["kind"] == "Pod":
            specs.append(d["spec"])
        elif "template" in d.get("spec", {}):
            specs.append(d["spec"]["template"]["spec"])
    assert specs
    for spec in specs:
        assert [c["resources"]["limits"] for c in spec["containers"]] == [{"sublet.dev/gpu": 1}]


def test_the_clusters_test_runs_the_example_of_two_notebooks_with_another_image_and_the_simulated_card(tmp_path):
    """./dev e2e-k8s opens them."""
    folder = tmp_path / "notebooks"
    shutil.copytree(ROOT / "tests/kubernetes/notebooks", folder)
    shutil.copy(DEPLOY / "examples/two-notebooks.yaml", folder)
    tried, example = render(folder), list(yaml.safe_load_all((folder / "two-notebooks.yaml").read_text()))
    assert len(tried) == len(example) == 2
    for one, meant in zip(tried, example):
        (container,), (other,) = one["spec"]["containers"], meant["spec"]["containers"]
        assert container.pop("image") == "sublet-test/notebook:1" and other.pop("image").startswith("quay.io/jupyter/")
        assert {e["name"] for e in container.pop("env")} == {"LD_LIBRARY_PATH", "SIMCUDA_SESSION", "SIMCUDA_MEMORY",
                                                            "SIMCUDA_GPUS"}
        assert {m["name"] for m in container.pop("volumeMounts")} == {v["name"] for v in one["spec"].pop("volumes")} == {
            "sim", "shm"}
        assert one["metadata"].pop("namespace") == "default"
        assert one == meant
