"""sublet-webhook over TLS: the real program, with reviews of the shapes that an API server sends."""

import copy
import json
import os
import random
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time

import pytest

pytest.importorskip("jsonpatch", reason="python3-jsonpatch is not installed")

import malformed  # noqa: E402
from webhook import (PROGRAM, SANITIZED, Authority, Webhook, as_large_as, ask_at_once, container, patch_of,  # noqa: E402
                     patched, pod, response_to, review_of)

pytestmark = pytest.mark.skipif(not os.path.exists(PROGRAM), reason="sublet-webhook is not built (no gnutls)")

YES = {"sublet.dev/share": "true"}
NO = {"sublet.dev/share": "false"}


@pytest.fixture(scope="session")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def webhook(tmp_path, authority):
    w = Webhook(tmp_path, authority=authority)
    yield w
    w.close()


@pytest.fixture(scope="module")
def served(tmp_path_factory, authority):
    """One webhook for all tests that only ask."""
    w = Webhook(tmp_path_factory.mktemp("webhook"), authority=authority)
    yield w
    w.close()


def mutate(webhook, before, path="/mutate", version="v1", **more):
    """Returns the pod after its review, and the warnings. A second review of the result must change nothing."""
    untouched = copy.deepcopy(before)
    response = webhook.review(review_of(before, version, **more), path)
    after = patched(before, response)
    again = webhook.review(review_of(after, version, **more), path)
    assert patch_of(again) == [], "not idempotent"
    assert before == untouched
    return after, response.get("warnings", [])


def with_gpus(before, *counts, resource="sublet.dev/gpu"):
    """Returns the pod whose containers ask for so many shared GPUs, and for none of NVIDIA's."""
    after = copy.deepcopy(before)
    for c, count in zip(after["spec"]["containers"], counts):
        for kind in c["resources"].values():
            kind.pop("nvidia.com/gpu", None)
            if count is not None:
                kind[resource] = count
    return after


# ---- resources ----

@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("where", ["labels", "annotations"])
def test_pods_that_opted_in_share_and_keep_everything_else(served, version, where):
    before = pod(container(gpus="2"), container("side"), **{where: YES})
    after, warnings = mutate(served, before, version=version)
    assert after == with_gpus(before, "2", None)
    assert not warnings


@pytest.mark.parametrize("count", ["1", "8", "0", 2])
def test_counts_are_kept_as_they_were_written(served, count):
    before = pod(container("a", count), container("b", "3"), labels=YES)
    after, _ = mutate(served, before)
    assert after == with_gpus(before, count, "3")


def test_pods_that_did_not_opt_in_stay(served):
    before = pod(container(gpus="1"), annotations={"example.com/x": "y"})
    assert mutate(served, before) == (before, [])
    assert mutate(served, pod(container(gpus="1"), labels=NO)) == (pod(container(gpus="1"), labels=NO), [])


def test_the_path_of_namespaces_takes_all_that_did_not_opt_out(served):
    before = pod(container(gpus="1"))
    assert mutate(served, before, "/mutate-all") == (with_gpus(before, "1"), [])
    for where in ("labels", "annotations"):
        out = pod(container(gpus="1"), **{where: NO})
        assert mutate(served, out, "/mutate-all") == (out, [])
    both = pod(container(gpus="1"), labels=YES, annotations=NO)
    assert mutate(served, both, "/mutate-all") == (both, [])


def test_an_unclear_opinion_is_told(served):
    before = pod(container(gpus="1"), labels={"sublet.dev/share": "yes"})
    after, warnings = mutate(served, before)
    assert after == before
    assert warnings == ['sublet ignores sublet.dev/share among the pod\'s labels: "yes" is neither true nor false']


def test_init_containers_share_and_ephemeral_ones_do_not(served):
    before = pod(container(gpus="1"), labels=YES, initContainers=[container("fetch", "1"), container("plain")],
                 ephemeralContainers=[{"name": "debug", "image": "busybox", "targetContainerName": "main",
                                       "resources": {"limits": {"nvidia.com/gpu": "1"}}}])
    after, _ = mutate(served, before)
    expected = with_gpus(before, "1")
    for kind in expected["spec"]["initContainers"][0]["resources"].values():
        kind["sublet.dev/gpu"] = kind.pop("nvidia.com/gpu")
    assert after == expected


@pytest.mark.parametrize("resources", [{"limits": {"nvidia.com/gpu": "1"}}, {"requests": {"nvidia.com/gpu": "1"}},
                                       {"limits": {"nvidia.com/gpu": "1"}, "requests": None, "claims": [{"name": "x"}]}])
def test_limits_or_requests_alone_are_replaced_where_they_stand(served, resources):
    before = pod({"name": "main", "image": "x", "resources": resources}, labels=YES)
    after, _ = mutate(served, before)
    changed = after["spec"]["containers"][0]["resources"]
    assert changed == json.loads(json.dumps(resources).replace("nvidia.com/gpu", "sublet.dev/gpu"))


def test_mig_instances_stay_and_are_told(served):
    before = pod(container("a", "1", "nvidia.com/mig-1g.10gb"), container("b", "1"), labels=YES)
    after, warnings = mutate(served, before)
    assert after == with_gpus(before, None, "1")
    assert warnings == ['container "a" keeps nvidia.com/mig-1g.10gb: sublet shares nvidia.com/gpu only']


def test_pods_that_ask_for_both_stay_with_a_reason(served):
    before = pod(container("a", "1"), container("b", "1", "sublet.dev/gpu"), labels=YES)
    after, warnings = mutate(served, before)
    assert after == before
    assert warnings == ["sublet leaves this pod as it is: it asks for both nvidia.com/gpu and sublet.dev/gpu; "
                        "ask for one of them"]


@pytest.mark.parametrize("more", [
    {"operation": "UPDATE"}, {"operation": "DELETE"}, {"subResource": "ephemeralcontainers"}, {"subResource": "resize"},
    {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
    {"kind": {"group": "example.com", "version": "v1", "kind": "Pod"}}])
def test_only_new_pods_are_changed(served, more):
    before = pod(container(gpus="1"), labels=YES)
    assert served.review(review_of(before, **more)).keys() == {"uid", "allowed"}


TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize("tolerations, added", [
    (None, True), ([], True), ([{"key": "nvidia.com/gpu", "operator": "Equal", "value": "x", "effect": "NoSchedule"}], True),
    ([{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}], True),
    ([{"key": "example.com/gpu", "operator": "Exists"}], True),
    ([TAINT], False), ([{"key": "nvidia.com/gpu", "operator": "Exists"}], False), ([{"operator": "Exists"}], False),
    ([{"operator": "Exists", "effect": "NoSchedule"}], False)])
def test_a_pod_that_shares_tolerates_the_taint_of_nodes_with_gpus(served, tolerations, added):
    before = pod(container(gpus="1"), labels=YES, tolerations=tolerations)
    after, warnings = mutate(served, before)
    expected = with_gpus(before, "1")
    if added:
        expected["spec"]["tolerations"] = [*(tolerations or []), TAINT]
    assert (after, warnings) == (expected, [])


def test_a_pod_that_asks_for_the_shared_resource_itself_gets_the_toleration_too(served):
    before = pod(container(gpus="1", resource="sublet.dev/gpu"), labels=YES)
    del before["spec"]["tolerations"]
    after, _ = mutate(served, before)
    assert after["spec"].pop("tolerations") == [TAINT] and after == before


def test_a_pod_without_a_gpu_gets_no_toleration(served):
    before = pod(container(), labels=YES, tolerations=[])
    assert mutate(served, before) == (before, [])


def test_names_of_resources_are_options(tmp_path, authority):
    w = Webhook(tmp_path, ["--resource-from=example.com/a~b/c", "--resource-to", "example.org/~0/1"], authority)
    try:
        before = pod(container(gpus="1", resource="example.com/a~b/c"), labels=YES)
        after, _ = mutate(w, before)
        for kind in before["spec"]["containers"][0]["resources"].values():
            kind["example.org/~0/1"] = kind.pop("example.com/a~b/c")
        assert after == before
    finally:
        w.close()


# ---- the words of others ----

def memory(request=None, limit=None):
    return [{"name": f"NVIDIA_GPU_MEMORY_{n}", "value": v} for n, v in (("REQUEST", request), ("LIMIT", limit)) if v]


WORDS = [
    # containers, annotations, sublet's annotations, counts
    ([container(env=memory("8192", "16384"))], {}, {"memory-request": "8192Mi", "memory-cap": "16384Mi"}, ["1"]),
    ([container(gpus="2", env=memory(limit="2000"))], {}, {"memory-cap": "2000Mi"}, ["2"]),
    ([container(env=memory("100"))], {}, {"memory-request": "100Mi"}, ["1"]),
    ([container("a", env=memory("1000", "2000")), container("b", env=memory("500", "500"))], {},
     {"memory-request": "1500Mi", "memory-cap": "2500Mi"}, ["1", "1"]),
    ([container()], {"gpu-memory": "2000"}, {"memory-request": "2000Mi", "memory-cap": "2000Mi"}, ["1"]),
    ([container()], {"gpu-fraction": "0.5"}, {"minimum": "47.5%"}, ["1"]),
    ([container()], {"gpu-fraction": "0.0001"}, {"minimum": "0.1%"}, ["1"]),
    ([container("a"), container("b")], {"gpu-fraction": "0.3", "gpu-fraction-container-name": "b"},
     {"minimum": "28.5%"}, [None, "1"]),
    ([container()], {"gpu-memory": "4096", "gpu-fraction-num-devices": "2"},
     {"memory-request": "4096Mi", "memory-cap": "4096Mi"}, ["2"]),
    ([container("a"), container("trainer")], {"nvidia.com/container.trainer.gpu-memory.request": "8Gi",
                                              "nvidia.com/container.trainer.gpu-memory.limit": "16Gi"},
     {"memory-request": "8192Mi", "memory-cap": "16384Mi"}, [None, "1"]),
    ([container("trainer")], {"nvidia.com/container.trainer.gpu-memory.request": "1500M"},
     {"memory-request": "1431Mi", "memory-cap": "1431Mi"}, ["1"]),
    ([container("trainer", env=memory("1", "1"))], {"nvidia.com/container.trainer.gpu-memory.limit": "2Gi"},
     {"memory-request": "2048Mi", "memory-cap": "2048Mi"}, ["1"]),
    # sublet's own words win
    ([container(env=memory("1000", "2000"))], {"sublet.dev/memory-cap": "5Gi"}, {"memory-request": "1000Mi"}, ["1"]),
    ([container(env=memory("1000", "2000"))], {"sublet.dev/minimum": "20%"}, {"memory-cap": "2000Mi"}, ["1"]),
    # a container that already shares
    ([container(gpus="1", resource="sublet.dev/gpu", env=memory("1000"))], {}, {"memory-request": "1000Mi"}, ["1"]),
]


@pytest.mark.parametrize("containers, said, made, counts", WORDS)
def test_words_of_others_become_sublets(served, containers, said, made, counts):
    before = pod(*containers, labels=YES, annotations=said or None)
    after, warnings = mutate(served, before)
    expected = with_gpus(before, *counts)
    expected["metadata"]["annotations"] = {**said, **{"sublet.dev/" + k: v for k, v in made.items()}}
    assert after == expected
    assert not warnings


def test_words_alone_opt_no_pod_in(served):
    before = pod(container(env=memory("1000", "2000")), annotations={"gpu-fraction": "0.5"})
    assert mutate(served, before) == (before, [])


def test_words_give_a_container_without_resources_the_resource(served):
    for resources in ({}, {"resources": {}}, {"resources": None}, {"resources": {"limits": None}}):
        before = pod({"name": "main", "image": "x", "env": memory(limit="10"), **resources}, labels=YES)
        after, _ = mutate(served, before)
        assert after["spec"]["containers"][0]["resources"] == {"limits": {"sublet.dev/gpu": "1"},
                                                               "requests": {"sublet.dev/gpu": "1"}}


def test_init_containers_count_as_kubernetes_counts_them(served):
    before = pod(container("a", env=memory("1000", "1000")), container("b", env=memory("1000", "1000")), labels=YES,
                 initContainers=[container("load", env=memory("3000", "3000")),
                                 container("cache", env=memory("10", "20"), restartPolicy="Always")])
    after, _ = mutate(served, before)
    assert after["metadata"]["annotations"] == {"sublet.dev/memory-cap": "3020Mi", "sublet.dev/memory-request": "3010Mi"}


UNREAD = [
    ({"env": memory(limit="8Gi")}, {}, 'sublet ignores NVIDIA_GPU_MEMORY_LIMIT: "8Gi" is not a number of MiB'),
    ({"env": memory("0")}, {}, 'sublet ignores NVIDIA_GPU_MEMORY_REQUEST: "0" is not a number of MiB'),
    ({"env": memory("99999999999999999999")}, {}, '"99999999999999999999" is not a number of MiB'),
    ({"env": [{"name": "NVIDIA_GPU_MEMORY_LIMIT", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]}, {},
     'sublet ignores NVIDIA_GPU_MEMORY_LIMIT of container "main": only a value that stands in the pod can be read'),
    ({"env": memory("2000", "1000")}, {}, 'container "main" requests of the GPU: it is more than its limit'),
    ({}, {"gpu-fraction": "1"}, 'sublet ignores gpu-fraction: "1" is not a number between 0 and 1'),
    ({}, {"gpu-fraction": "NaN"}, "is not a number between 0 and 1"),
    ({}, {"gpu-memory": "4096Mi"}, 'sublet ignores gpu-memory: "4096Mi" is not a number of MiB'),
    ({}, {"gpu-fraction": "0.5", "gpu-fraction-container-name": "nobody"}, 'the pod has no container "nobody"'),
    ({}, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "-1"}, '"-1" is not a number of GPUs'),
    ({}, {"nvidia.com/container.nobody.gpu-memory.limit": "1Gi"}, "the pod has no container of that name"),
    ({}, {"nvidia.com/container.main.gpu-memory.limit": "much"}, '"much" is not an amount of memory, such as 8Gi, of at least 1Mi'),
    ({}, {"nvidia.com/container.main.gpu-memory.limit": "8192m"}, '"8192m" is not an amount of memory, such as 8Gi, of at least 1Mi'),
    ({}, {"gpu-fraction": "0.5", "mps": "true"}, "sublet ignores the annotation mps"),
    ({"name": "bad\x1b[31m\nname", "gpus": "1", "resource": "nvidia.com/mig-1g.5gb"}, {}, 'container "bad?[31m?name" keeps'),
]


@pytest.mark.parametrize("given, annotations, sentence", UNREAD)
def test_words_that_cannot_be_read_are_told(served, given, annotations, sentence):
    _, warnings = mutate(served, pod(container(**given), labels=YES, annotations=annotations))
    assert any(sentence in w for w in warnings), warnings


@pytest.mark.parametrize("resource", ["volcano.sh/vgpu-number", "volcano.sh/gpu-number", "nvidia.com/gpumem", "nvidia.com/gpucores",
                                      "nvidia.com/vgpu-number", "aliyun.com/gpu-mem", "tencent.com/vcuda-core"])
def test_resources_of_other_systems_stay_and_are_told(served, resource):
    before = pod(container("main", "1", resource), labels=YES)
    assert mutate(served, before) == (before, [f'container "main" keeps {resource}: sublet shares nvidia.com/gpu only'])


@pytest.mark.parametrize("word", ["volcano.sh/vgpu-mode", "hami.io/gpu-scheduler-policy", "nvidia.com/use-gputype",
                                  "nvidia.com/nouse-gpuuuid"])
def test_annotations_of_other_systems_are_told_if_the_pod_gets_no_gpu(served, word):
    before = pod(container(), labels=YES, annotations={word: "x"})
    assert mutate(served, before) == (before, [f"sublet ignores {word}, and the pod gets no shared GPU: ask for nvidia.com/gpu"])
    before = pod(container(gpus="1"), labels=YES, annotations={word: "x"})
    assert mutate(served, before) == (with_gpus(before, "1"), [])


def test_a_container_without_a_limit_is_not_under_anothers_cap(served):
    after, warnings = mutate(served, pod(container("a", env=memory(limit="1000")), container("b", "1"), labels=YES))
    assert "annotations" not in after["metadata"]
    assert warnings == ['the pod gets no sublet.dev/memory-cap, because container "b" has no limit']


def test_a_pod_of_another_scheduler_is_told_that_it_needs_it(served):
    before = pod(container(), labels=YES, annotations={"gpu-fraction": "0.5"}, schedulerName="kai-scheduler")
    after, warnings = mutate(served, before)
    assert after["spec"]["schedulerName"] == "kai-scheduler"
    assert warnings == ['the pod keeps spec.schedulerName "kai-scheduler": without that scheduler in the cluster it is '
                        "not placed"]


# ---- requests that are no reviews ----

@pytest.mark.parametrize("text, reason", [
    (b"", "is no JSON"), (b"{", "is no JSON"), (b"\xff\xfe", "is no JSON"), (b"[" * 100000, "is no JSON"),
    (b"[]", "no AdmissionReview"), (b"{}", "no AdmissionReview"),
    (b'{"kind":"AdmissionReview"}', "apiVersion"),
    (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v2"}', "apiVersion"),
    (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}', "no request"),
    (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":[]}', "no request"),
    (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":7}}', "no uid"),
    (b'[' + b'[],' * 500000 + b'[]]', "more values")])
def test_what_is_no_review_is_refused_with_a_reason(served, text, reason):
    status, body = served.ask("POST", "/mutate", text)
    assert status == 400 and reason in body.decode() and len(body) < 300


@pytest.mark.parametrize("strange", [None, [], "pod", 7, {}, {"spec": []}, {"metadata": {}, "spec": None}])
def test_a_review_without_a_pod_in_it_is_allowed_with_a_warning(served, strange):
    response = served.review(review_of(strange), "/mutate-all")
    assert "patch" not in response
    assert response["warnings"] == ["sublet leaves this pod as it is: the review has no pod with metadata and a specification"]


def test_paths_and_methods(served):
    assert served.ask("GET", "/healthz") == (200, b"ok\n")
    assert served.ask("GET", "/readyz") == (200, b"ok\n")
    assert served.ask("HEAD", "/healthz")[0] == 200
    assert served.ask("GET", "/mutate")[0] == 405
    assert served.ask("POST", "/healthz", b"x")[0] == 405
    assert served.ask("GET", "/")[0] == 404
    assert served.ask("POST", "/mutate/x", b"{}")[0] == 404


def test_too_large_bodies_are_refused(served):
    c = served.connect()
    c.putrequest("POST", "/mutate")
    c.putheader("Content-Length", (3 << 20) + 1)
    c.endheaders()
    assert c.getresponse().status == 413
    c.close()
    chunks = (b" " * (1 << 20) for _ in range(4))
    assert served.ask("POST", "/mutate", chunks, headers={"Transfer-Encoding": "chunked"})[0] == 413
    review = review_of(pod(container(gpus="1"), labels=YES))
    status, body = served.ask("POST", "/mutate", as_large_as(review, 3 << 20))
    assert status == 200 and patch_of(response_to(review, json.loads(body)))
    text = json.dumps(review).encode()
    status, body = served.ask("POST", "/mutate", iter([text[:10], text[10:]]), headers={"Transfer-Encoding": "chunked"})
    assert status == 200 and patch_of(response_to(review, json.loads(body)))


def test_malformed_requests_get_an_answer_or_a_closed_connection(served):
    answers = malformed.send(served, number=150, seed=os.environ.get("SUBLET_SEED", "1"))
    assert answers["answered"] > 100 and answers["lost"] == 0
    review = review_of(pod(container(gpus="1"), labels=YES))
    assert patch_of(served.review(review))


# ---- clients ----

def test_one_connection_carries_many_reviews(served):
    c = served.connect()
    for n in range(50):
        before = pod(container(gpus=str(n)), labels=YES)
        assert patched(before, served.review(review_of(before), connection=c)) == with_gpus(before, str(n))
    c.close()


def test_a_thousand_reviews_at_once_are_all_answered(webhook):
    reviews = [review_of(pod(container(gpus=str(n)), labels=YES)) for n in range(1000)]
    answers = ask_at_once(webhook, [json.dumps(r).encode() for r in reviews], connecting=64)
    for n, (review, answer) in enumerate(zip(reviews, answers)):
        before = review["request"]["object"]
        assert patched(before, response_to(review, answer)) == with_gpus(before, str(n))
    if not SANITIZED:
        assert webhook.memory_kib() < 20 << 10


def test_large_reviews_at_once_wait_for_room_and_are_all_answered(webhook):
    review = review_of(pod(container(gpus="1"), labels=YES))
    sizes = [3 << 20, 100 << 10, 1 << 20, 40 << 10] * 10
    for answer in ask_at_once(webhook, [as_large_as(review, size) for size in sizes]):
        assert patch_of(response_to(review, answer))


def slow_clients(webhook, number):
    """Returns sockets on which requests stand still: before the handshake, in the header, and in the body."""
    starts = [b"", b"POST /mutate HTTP/1.1\r\nHost: x\r\nX-", b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n{"]
    made = []
    for n in range(number):
        s = socket.create_connection(("127.0.0.1", webhook.port), timeout=30)
        if n % 4:
            s = webhook.context.wrap_socket(s, server_hostname="localhost")
            s.sendall(starts[n % 3])
        made.append(s)
    return made


def test_slow_clients_block_nobody_and_are_ended(webhook):
    review = review_of(pod(container(gpus="1"), labels=YES))
    for _ in range(3):  # a machine that is busy for so long may disturb a try
        slow = slow_clients(webhook, 200)
        began = time.monotonic()
        for answer in ask_at_once(webhook, [json.dumps(review).encode()] * 100):
            assert patch_of(response_to(review, answer))
        took = time.monotonic() - began
        if took < 8:
            break
        for s in slow:
            s.close()
    assert took < 8, "they waited for the slow ones"
    for s in slow:
        s.settimeout(30)
        try:
            assert s.recv(1) == b""
        except (ssl.SSLError, ConnectionError):
            pass
        s.close()


def test_more_idle_connections_than_there_are_keep_nobody_out(webhook):
    idle = []
    for _ in range(256):
        c = webhook.connect()
        assert webhook.ask("GET", "/healthz", connection=c)[0] == 200
        idle.append(c)
    review = review_of(pod(container(gpus="1"), labels=YES))
    for _ in range(20):
        assert patch_of(webhook.review(review))
    for c in idle:
        c.close()


def test_with_a_client_ca_only_its_clients_may_ask_and_all_may_probe(tmp_path, authority):
    w = Webhook(tmp_path, ["--client-ca", str(authority.certificate)], authority)
    try:
        text = json.dumps(review_of(pod(container(gpus="1"), labels=YES)))
        assert w.ask("POST", "/mutate", text) == (403, b"the webhook answers only clients with a client certificate "
                                                       b"from an authority in its --client-ca\n")
        assert w.ask("GET", "/healthz") == (200, b"ok\n")
        w.context.load_cert_chain(*authority.sign(purpose="clientAuth"))
        assert w.ask("POST", "/mutate", text)[0] == 200
    finally:
        w.close()


def test_a_request_may_name_the_whole_address(served):
    assert served.ask("GET", "https://sublet-webhook.sublet-system.svc/healthz") == (200, b"ok\n")
    assert served.ask("GET", "HTTP://x:1/readyz")[0] == 200
    assert served.ask("GET", "http://healthz")[0] == 404


# ---- certificates, the end ----

def serial_shown(webhook):
    with webhook.context.wrap_socket(socket.create_connection(("127.0.0.1", webhook.port), timeout=20),
                                     server_hostname="localhost") as s:
        return int(s.getpeercert()["serialNumber"], 16)


def wait_for_serial(webhook, serial):
    for _ in range(100):
        if serial_shown(webhook) == serial:
            return
        time.sleep(0.1)
    raise AssertionError(f"still shows {serial_shown(webhook)}, not {serial}")


def test_a_renewed_certificate_is_shown_without_a_restart(webhook):
    first = webhook.authority.serial
    assert serial_shown(webhook) == first
    old = webhook.connect()
    assert webhook.ask("GET", "/healthz", connection=old)[0] == 200
    half = socket.create_connection(("127.0.0.1", webhook.port), timeout=20)  # its handshake comes later
    wait_for_serial(webhook, webhook.renew())
    wait_for_serial(webhook, webhook.renew())
    assert webhook.ask("GET", "/healthz", connection=old)[0] == 200
    with webhook.context.wrap_socket(half, server_hostname="localhost") as s:
        assert int(s.getpeercert()["serialNumber"], 16) == webhook.authority.serial
    webhook.wait_for_line("shows the new certificate in ")


def test_a_certificate_that_kubelet_swaps_by_a_link_is_shown(tmp_path, authority):
    """A volume of a Secret: tls.crt -> ..data/tls.crt, and ..data -> a new folder."""
    folder = tmp_path / "volume"
    folder.mkdir()

    def swap(name):
        (folder / name).mkdir()
        for new, shown in zip(authority.sign(), ("tls.crt", "tls.key")):
            os.rename(new, folder / name / shown)
        os.symlink(name, folder / "..data_tmp")
        os.rename(folder / "..data_tmp", folder / "..data")
        return authority.serial

    swap("..1")
    for name in ("tls.crt", "tls.key"):
        os.symlink("..data/" + name, folder / name)
    w = Webhook(tmp_path, ["--certificate", str(folder / "tls.crt"), "--key", str(folder / "tls.key")], authority)
    try:
        wait_for_serial(w, swap("..2"))
    finally:
        w.close()


def test_a_certificate_that_does_not_fit_its_key_is_told_and_the_last_one_stays(webhook):
    good = webhook.authority.serial
    certificate, _ = webhook.authority.sign()
    os.rename(certificate, webhook.certificate)
    for _ in range(100):
        assert serial_shown(webhook) == good
        if "the last good one stays" in webhook.text():
            break
        time.sleep(0.1)
    assert webhook.text().count("the last good one stays") == 1
    webhook.certificate.unlink()
    webhook.key.unlink()
    for _ in range(100):
        assert serial_shown(webhook) == good
        if "cannot read " in webhook.text():
            break
        time.sleep(0.1)
    else:
        pytest.fail("nothing is told of missing files")
    wait_for_serial(webhook, webhook.renew())


def test_open_requests_are_answered_before_the_end(webhook):
    review = review_of(pod(container(gpus="1"), labels=YES))
    text = json.dumps(review).encode()
    raw = socket.create_connection(("127.0.0.1", webhook.port), timeout=30)
    with webhook.context.wrap_socket(raw, server_hostname="localhost") as s:
        s.sendall(b"POST /mutate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(text) + text[:100])
        idle = webhook.connect()
        assert webhook.ask("GET", "/readyz", connection=idle)[0] == 200
        status = []
        ended = threading.Thread(target=lambda: status.append(webhook.end()))
        ended.start()
        webhook.wait_for_line("ends, after open requests")
        for _ in range(200):  # nobody new is let in
            try:
                socket.create_connection(("127.0.0.1", webhook.port), timeout=5).close()
                time.sleep(0.02)
            except OSError:
                break
        else:
            pytest.fail("new clients are let in")
        s.sendall(text[100:])
        answer = b""
        while True:
            try:
                got = s.recv(65536)
            except ssl.SSLEOFError:
                break
            if not got:
                break
            answer += got
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200") and b"Connection: close" in head
        assert patch_of(response_to(review, json.loads(body)))
    ended.join()
    assert status == [0]


def test_an_ending_webhook_lingers_unready_and_answers(tmp_path, authority):
    w = Webhook(tmp_path, ["--linger", "2s"], authority)
    try:
        began, status = time.monotonic(), []
        ended = threading.Thread(target=lambda: status.append(w.end()))
        ended.start()
        w.wait_for_line("ends, after open requests")
        assert w.ask("GET", "/readyz") == (503, b"the webhook is ending\n")
        assert w.ask("GET", "/healthz")[0] == 200
        assert patch_of(w.review(review_of(pod(container(gpus="1"), labels=YES))))
        ended.join()
        assert status == [0] and time.monotonic() - began >= 2
    finally:
        w.close()


def test_the_end_waits_for_no_silent_client(webhook):
    slow = slow_clients(webhook, 8)
    assert webhook.end(60) == 0, "less than the two minutes that a connection may be silent"
    for s in slow:
        s.close()


@pytest.mark.parametrize("arguments, status, sentence", [
    ([], 2, "--certificate and --key are needed"),
    (["--sing"], 2, 'unknown option "--sing": sublet-webhook --help lists what there is'),
    (["x"], 2, 'unknown argument "x"'),
    (["--key"], 2, "--key needs FILE"),
    (["--help=x"], 2, "--help takes no value"),
    (["--certificate", "C", "--key", "K", "--resource-to=cpu"], 2, "a resource has a name such as nvidia.com/gpu"),
    (["--certificate", "C", "--key", "K", "--resource-to=nvidia.com/gpu"], 2, "are the same"),
    (["--certificate", "C", "--key", "K", "--linger=5"], 2, "--linger is a time such as 5s, of at most 5min"),
    (["--certificate", "/nowhere/c", "--key", "/nowhere/k"], 1, "cannot read /nowhere/c"),
])
def test_a_wrong_command_line_is_told(arguments, status, sentence):
    got = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=30, check=False)
    assert got.returncode == status and sentence in got.stderr and not got.stdout


@pytest.mark.parametrize("address, status, sentence", [
    ("localhost:1", 2, "is no address such as"), ("8443", 2, "is no address such as"), ("1.2.3.4:", 2, "is no address"),
    ("192.0.2.1:8443", 1, "192.0.2.1:8443: Cannot assign requested address")])
def test_a_wrong_address_is_told(tmp_path, authority, address, status, sentence):
    certificate, key = authority.sign()
    got = subprocess.run([PROGRAM, "--listen", address, "--certificate", str(certificate), "--key", str(key)],
                         capture_output=True, text=True, timeout=30, check=False)
    assert got.returncode == status and sentence in got.stderr


def test_a_client_ca_that_cannot_be_used_is_told(tmp_path, authority):
    certificate, key = authority.sign()
    got = subprocess.run([PROGRAM, "--certificate", str(certificate), "--key", str(key), "--client-ca", "/dev/null"],
                         capture_output=True, text=True, timeout=30, check=False)
    assert got.returncode == 2 and "/dev/null has no certificate of an authority in it" in got.stderr


def test_keys_of_other_kinds_and_both_versions_of_tls_work(tmp_path, authority):
    for kind in (("rsa:2048",), ("ed25519",)):
        folder = tmp_path / kind[0].split(":")[0]
        folder.mkdir()
        certificate, key = authority.sign(kind)
        w = Webhook(folder, ["--certificate", str(certificate), "--key", str(key)], authority)
        try:
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                w.context.minimum_version = w.context.maximum_version = version
                assert w.ask("GET", "/healthz")[0] == 200
                w.context.minimum_version, w.context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.MAXIMUM_SUPPORTED
        finally:
            w.close()


def test_the_manual_page_has_every_option():
    page = os.path.join(os.path.dirname(PROGRAM), "sublet-webhook.8")
    if not os.path.exists(page):
        pytest.skip("a build without manual pages; in one for this machine, without a sanitizer, they run")
    with open(page, encoding="utf-8") as f:
        text = f.read().replace("\\-", "-")
    said = subprocess.run([PROGRAM, "--help"], capture_output=True, text=True, timeout=20, check=True).stdout
    options = re.findall(r"^  (--[a-z-]+)", said, re.M)
    assert len(options) == 9 and all(re.search(rf"^\.B {o}\b", text, re.M) for o in options)
    if shutil.which("groff"):
        done = subprocess.run(["groff", "-man", "-ww", "-z", page], capture_output=True, text=True, timeout=20, check=False)
        assert done.stderr == ""


def test_any_pod_stays_a_pod(served):
    """Pods put together at random: each patch applies, changes only what it may, and is complete."""
    chance = random.Random(os.environ.get("SUBLET_SEED", "7"))
    c = served.connect()
    for _ in range(200):
        def make(name):
            words = memory(*(chance.choice([None, "1", "70000", "8Gi", ""]) for _ in range(2)))
            return container(name, chance.choice([None, None, "1", "4"]),
                             chance.choice(["nvidia.com/gpu"] * 4 + ["sublet.dev/gpu", "nvidia.com/mig-1g.10gb"]), env=words)
        annotations = {k: v for k, v in (("gpu-fraction", "0.25"), ("gpu-memory", "100"), ("mps", "true"),
                                         ("sublet.dev/minimum", "10%"), ("gpu-fraction-container-name", "c1"))
                       if chance.random() < 0.3}
        before = pod(*(make(f"c{i}") for i in range(chance.randint(1, 4))), labels=chance.choice([YES, {}]),
                     annotations=chance.choice([None, annotations]))
        response = served.review(review_of(before), connection=c)
        after = patched(before, response)
        assert patch_of(served.review(review_of(after), connection=c)) == []
        for a in (before, after):
            a["metadata"].pop("annotations", None)
            for one in a["spec"]["containers"]:
                for kind in one["resources"].values():
                    for resource in ("nvidia.com/gpu", "sublet.dev/gpu"):
                        kind.pop(resource, None)
        assert after == before
    c.close()
