"""sublet-extender: the real program over HTTP, with a fake API server and requests as kube-scheduler sends them."""

import copy
import http.client
import json
import os
import random
import socket
import subprocess
import threading
import time

import pytest

pytest.importorskip("jsonpatch", reason="python3-jsonpatch is not installed")

import extender as tools  # noqa: E402
import malformed  # noqa: E402
import toy_pairs  # noqa: E402
import trained  # noqa: E402
from extender import Extender, node, pod, request_of  # noqa: E402
from kubelet import ClusterServer  # noqa: E402
from webhook import Authority  # noqa: E402
from world import GENEROUS_S, PATIENCE, cpu_s, wait_for  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists(tools.PROGRAM) or not os.path.exists(trained.PAIRING),
                                reason="sublet-extender is not built (no libxgboost or LEMON)")

GOOD = "loader-17", "small-8"  # both leave the card idle much of the time
BAD = "stream-11", "stencil-10"  # each wants the card all the time
LARGE = "large-a", "large-b"  # do not fit the card together


@pytest.fixture(scope="session", name="trained")
def _trained(tmp_path_factory):
    model, jobs = trained.small(tmp_path_factory)
    for name in LARGE:
        job = copy.deepcopy(jobs["gemm-3"])
        job |= {"name": name, "memory": {"peak_bytes": 100 << 30}}
        jobs[name] = job
    return model, jobs


@pytest.fixture(name="start")
def _start(tmp_path, trained):
    """Starts extenders with the trained model; more arguments are those of Extender."""
    started = []

    def start(options=(), model=trained[0], jobs=trained[1], nodes=(), pods=(), **more):
        api = more.pop("api", None) or ClusterServer()
        for n in nodes:
            api.nodes.put(n)
        for p in pods:
            api.put(p)
        folder = tmp_path / str(len(started))
        folder.mkdir()
        started.append(Extender(folder, model, jobs, options, api=api, **more))
        return started[-1]
    yield start
    for e in started:
        e.close()


def test_a_pair_that_keeps_both_bounds_passes_and_another_is_explained(start, trained, tmp_path):
    model, jobs = trained
    e = start(["--qos", "0.5"], nodes=[node("a"), node("b"), node("c")],
              pods=[pod("on-a", GOOD[1], on="a"), pod("on-b", BAD[1], on="b")])
    assert e.filter(pod("new", GOOD[0]), ["a", "c"]) == (["a", "c"], {})
    passed, failed = e.filter(pod("new", BAD[0]), ["b", "c"])
    both = tools.predict(tmp_path, model, jobs[BAD[0]], jobs[BAD[1]])
    assert passed == ["c"] and min(both) < 0.5
    assert failed["b"].startswith(f"node(s) where jobs {BAD[0]} and {BAD[1]} would slow each other too much: "
                                  f"progress {both[0]:.2f} and {both[1]:.2f} is predicted, and ")
    assert failed["b"].endswith(" is needed (bounds 0.50 and 0.50, and a margin)")


def test_each_bound_counts_of_the_new_job_and_of_the_one_that_runs(start, trained, tmp_path):
    model, jobs = trained
    new, runs = tools.predict(tmp_path, model, jobs[GOOD[0]], jobs[GOOD[1]])
    below, above = (f"{min(new, runs) * 0.8:.2f}", f"{max(new, runs) * 1.05:.2f}")
    e = start(["--qos", below], nodes=[node("default"), node("strict"), node("percent")],
              pods=[pod("p1", GOOD[1], on="default"), pod("p2", GOOD[1], on="strict", qos=above),
                    pod("p3", GOOD[1], on="percent", qos=f"{float(below) * 100:.0f}%")])
    names = ["default", "strict", "percent"]
    assert e.filter(pod("new", GOOD[0]), names)[0] == ["default", "percent"]
    assert e.filter(pod("new", GOOD[0], qos=above), names)[0] == []
    # An annotation that is no bound is told, and the default counts.
    assert e.filter(pod("new", GOOD[0], qos="fast"), names)[0] == ["default", "percent"]
    e.wait_for_line(r"pod research/new: cannot read sublet.dev/qos: the bound is 0.\d\d; write it as 0.7 or 70%")


def test_a_third_job_finds_no_place_on_a_gpu(start):
    e = start(["--qos", "0.3"], nodes=[node("a")], pods=[pod("p1", GOOD[0], on="a"), pod("p2", GOOD[1], on="a")])
    assert e.filter(pod("new", GOOD[0]), ["a"])[1] == {"a": "node(s) where each GPU that is left to measured jobs has two"}


def test_several_gpus_are_dealt_out_by_matching(start):
    """Two jobs that go badly together have a GPU each; a third goes only beside one of them."""
    e = start(["--qos", "0.55"], nodes=[node("two", 2), node("three", 3)],
              pods=[pod("p1", BAD[0], on="two"), pod("p2", GOOD[1], on="two"),
                    pod("p3", BAD[0], on="three"), pod("p4", BAD[1], on="three"), pod("p5", BAD[0], on="three")])
    assert e.filter(pod("new", GOOD[0]), ["two", "three"])[0] == ["two"]
    passed, failed = e.filter(pod("new", BAD[1]), ["two", "three"])
    assert passed == [] and set(failed) == {"two", "three"}
    # Two jobs that would go well together have a GPU each, and do not move to make room.
    e.api.nodes.put(node("apart", 2))
    e.api.put(pod("p7", GOOD[0], on="apart"))
    e.api.put(pod("p8", GOOD[1], on="apart"))
    e.await_filter(pod("new", BAD[0]), ["apart"], [], "both pods count")
    # With the good pair on one GPU the other is full, too: nothing is left for a fourth.
    e.api.put(pod("p6", GOOD[0], on="two"))
    e.await_filter(pod("new", GOOD[0]), ["two"], [], "the third pod counts")


def test_jobs_past_memory_take_turns(start):
    e = start(["--qos", "0.3"], nodes=[node("a"), node("b")], pods=[pod("p", LARGE[0], on="a")])
    assert e.filter(pod("new", LARGE[1]), ["a", "b"])[0] == ["a", "b"]
    assert e.filter(pod("new", LARGE[1], qos="0.6"), ["a", "b"])[0] == ["b"]


def test_without_a_model_only_jobs_past_memory_are_predicted(start):
    e = start(["--qos", "0.3"], model=None, nodes=[node("a"), node("b")],
              pods=[pod("p", LARGE[0], on="a"), pod("q", GOOD[0], on="b")])
    assert e.filter(pod("new", LARGE[1]), ["a"])[0] == ["a"]
    assert e.filter(pod("new", GOOD[1]), ["b"])[1] == {"b": f"node(s) where nothing predicts job {GOOD[1]} beside {GOOD[0]}"}


def test_pods_without_a_measured_job_pass_everywhere(start):
    e = start(nodes=[node("a"), node("b")], pods=[pod("p", BAD[0], on="a"), pod("q", BAD[1], on="a")])
    for one in (pod("plain"), pod("unknown", "nobody-measured-this"), pod("no GPU", GOOD[0], gpus=0),
                pod("path", "../../etc/passwd"), pod("long", "x" * 5000), pod("empty", "")):
        assert e.filter(one, ["a", "b"]) == (["a", "b"], {})
        assert e.scores(one, ["a", "b"]) == [0, 0]
    e.wait_for_line(r"pod research/unknown: there is no job file nobody-measured-this.json, so nothing is predicted for it")


def test_nodes_of_which_nothing_is_known_pass(start):
    e = start(nodes=[node("other", product="NVIDIA-A100-SXM4-80GB"), node("none", gpus=0), node("ours", product="Toy-GPU")],
              pods=[pod("p", BAD[0], on="other"), pod("q", BAD[0], on="ours")])
    assert e.filter(pod("new", BAD[1]), ["other", "none", "ours", "unheard-of"])[0] == ["other", "none", "unheard-of"]
    assert e.scores(pod("new", BAD[1]), ["other", "none", "unheard-of"]) == [0, 0, 0]


def test_pods_that_are_not_measured_have_their_gpus_for_themselves(start):
    e = start(["--qos", "0.3"], nodes=[node("a", 1), node("b", 2)], pods=[pod("p", on="a"), pod("q", on="b")])
    passed, failed = e.filter(pod("new", GOOD[0]), ["a", "b"])
    assert passed == ["b"]
    assert failed["a"] == "node(s) where pods whose job is not measured, or that have several GPUs, have all 1 GPUs"


def test_a_pod_with_several_gpus_has_them_alone(start):
    e = start(["--qos", "0.3"], nodes=[node("a", 2), node("b", 3)],
              pods=[pod("p", GOOD[0], on="a"), pod("q", GOOD[0], on="b")])
    assert e.filter(pod("new", GOOD[1], gpus=2), ["a", "b"]) == (
        ["b"], {"a": "node(s) that may not have 2 GPUs free"})
    assert e.filter(pod("new", GOOD[1], gpus=1), ["a", "b"])[0] == ["a", "b"]


@pytest.mark.parametrize("prefer", ["pack", "spread"])
def test_the_owner_chooses_pairs_first_or_free_gpus_first(start, prefer):
    e = start(["--qos", "0.3", "--prefer", prefer], nodes=[node(n) for n in ("free", "better", "worse", "never")],
              pods=[pod("p", GOOD[1], on="better"), pod("q", BAD[0], on="worse"), pod("r", on="never")])
    free, better, worse, never = e.scores(pod("new", GOOD[0]), ["free", "better", "worse", "never"])
    assert better > worse > never == 0
    assert free < worse if prefer == "pack" else free > better


def test_whole_nodes_are_answered_with_whole_nodes(start):
    """With nodeCacheCapable: false the scheduler sends the nodes, and expects them back."""
    e = start(["--qos", "0.5"], nodes=[node("a"), node("b")], pods=[pod("p", BAD[0], on="a")])
    nodes = {"metadata": {}, "items": [node("a"), node("b"), node("only-in-the-request", gpus=2)]}
    request = {"Pod": pod("new", BAD[1]), "Nodes": nodes, "NodeNames": None}
    status, body = e.ask("POST", "/filter", json.dumps(request))
    answer = json.loads(body)
    assert status == 200 and answer["NodeNames"] is None and list(answer["FailedNodes"]) == ["a"]
    assert answer["Nodes"] == {"metadata": {}, "items": nodes["items"][1:]}
    status, body = e.ask("POST", "/prioritize", json.dumps(request))
    assert [a["Host"] for a in json.loads(body)] == ["a", "b", "only-in-the-request"]
    assert json.loads(body)[2]["Score"] > 0, "the node is read from the request"
    status, body = e.ask("POST", "/filter", json.dumps(request | {"Nodes": {"metadata": {}, "items": None}}))
    assert status == 200 and json.loads(body)["Nodes"]["items"] == []


# ---- the cluster changes ----

def test_pods_and_nodes_that_come_and_go_are_followed(start):
    e = start(["--qos", "0.5"], nodes=[node("a")])
    new, runs = pod("new", BAD[0]), pod("runs", BAD[1], on="a")
    assert e.filter(new, ["a"])[0] == ["a"]
    e.api.put(runs)
    e.await_filter(new, ["a"], [], "the pod that came")
    e.api.nodes.put(node("a", gpus=2))
    e.await_filter(new, ["a"], ["a"], "the second GPU")
    e.api.nodes.put(node("a", gpus=1))
    e.await_filter(new, ["a"], [], "the GPU that is gone")
    e.api.put(copy.deepcopy(runs) | {"status": {"phase": "Failed"}})
    e.await_filter(new, ["a"], ["a"], "the pod that ended")
    e.api.put(runs)
    e.await_filter(new, ["a"], [], "the pod that runs again")
    e.api.remove(runs["metadata"]["uid"])
    e.await_filter(new, ["a"], ["a"], "the pod that was deleted")


def test_the_pod_that_is_asked_about_does_not_count_itself(start):
    """A pod that was bound a moment ago may be asked about again."""
    one = pod("bound", BAD[0], on="a")
    e = start(["--qos", "0.5"], nodes=[node("a")], pods=[one])
    asked = copy.deepcopy(one)
    del asked["spec"]["nodeName"]
    assert e.filter(asked, ["a"])[0] == ["a"]


def test_the_next_pod_waits_until_the_last_one_is_on_its_node(start):
    """The scheduler asks about the next pod before the last one is bound. The next pod waits for half a second at most, so
    on a busy machine it may be answered too early: then the test tries again."""
    tries = []
    while (False, [[]]) not in tries:
        assert len(tries) < 10, tries
        e = start(["--qos", "0.5"], nodes=[node("a")])
        first, next_pod, passed = pod("first", BAD[0]), pod("next", BAD[1]), []
        assert e.filter(first, ["a"])[0] == ["a"] and e.scores(first, ["a"]) != [0]
        asking = threading.Thread(target=lambda: passed.append(e.filter(next_pod, ["a"])[0]))
        asking.start()
        time.sleep(0.1)
        early = bool(passed)
        e.api.put(copy.deepcopy(first) | {"spec": first["spec"] | {"nodeName": "a"}})
        asking.join()
        tries.append((early, passed))


def test_a_pod_that_is_not_bound_holds_up_the_next_for_a_moment_only(start):
    e = start(["--qos", "0.5"], nodes=[node("a")])
    assert e.filter(pod("first", BAD[0]), ["a"])[0] == ["a"]
    began = time.monotonic()
    assert e.filter(pod("no job"), ["a"])[0] == ["a"], "pods without a job do not wait"
    assert e.filter(pod("next", BAD[1]), ["a"])[0] == ["a"]
    assert time.monotonic() - began > 0.3
    assert e.filter(pod("refused", BAD[1]), [])[0] == []
    assert e.end() == 0


def test_watches_that_are_cut_or_too_old_miss_nothing(start):
    e = start(["--qos", "0.5"], nodes=[node("a"), node("b")])
    new = pod("new", BAD[0])
    runs = pod("runs", BAD[1], on="a")
    e.api.broken = 503
    e.api.cut()
    e.api.put(runs)
    e.wait_for_line(r"cannot read the cluster's pods from http://\S+: it answers 503; trying again")
    # What is known goes on to count.
    assert e.filter(new, ["a", "b"])[0] == ["a", "b"]
    e.api.broken = None
    e.await_filter(new, ["a", "b"], ["b"], "the pod that came while the API server was away")
    e.wait_for_line(r"the cluster's pods are read from http://\S+ again")
    e.api.cut()
    e.api.remove(runs["metadata"]["uid"])
    e.api.put(pod("other", BAD[1], on="b"))
    e.api.forget()
    e.await_filter(new, ["a", "b"], ["a"], "a list replaces what the watch missed")


def test_many_pods_come_in_pages(start):
    pods = [pod(f"p{i}", GOOD[i % 2], on=f"n{i % 300}") for i in range(600)]
    e = start(["--qos", "0.5"], nodes=[node(f"n{i}") for i in range(301)], pods=pods)
    e.wait_for_line(r"knows the cluster: 600 pods have GPUs")
    assert e.filter(pod("new", GOOD[0]), [f"n{i}" for i in range(301)])[0] == ["n300"]


def test_until_the_cluster_is_known_measured_pods_are_refused_and_others_pass(start):
    api = ClusterServer()
    api.broken = 500
    e = start(nodes=[node("a")], api=api, wait=False)
    assert e.ask("GET", "/healthz") == (200, b"ok\n")
    sentence = b"the cluster's pods and nodes are not known yet\n"
    assert e.ask("GET", "/readyz") == (503, sentence)
    for path in ("/filter", "/prioritize"):
        assert e.ask("POST", path, request_of(pod("new", GOOD[0]), ["a"])) == (503, sentence)
    assert e.filter(pod("plain"), ["a"]) == (["a"], {})
    api.broken = None
    e.wait_for_line("knows the cluster")
    assert e.ask("GET", "/readyz") == (200, b"ok\n")
    assert e.filter(pod("new", GOOD[0]), ["a"]) == (["a"], {})


# ---- job files ----

def test_job_files_that_change_are_read_again(start, trained):
    e = start(["--qos", "0.5"], nodes=[node("a")], pods=[pod("p", BAD[0], on="a")], jobs={n: trained[1][n] for n in BAD})
    new = pod("new", "later")
    assert e.filter(new, ["a"])[0] == ["a"], "a job that is not measured yet passes"
    e.write("later", json.dumps(trained[1][BAD[1]]))
    e.wait_for_line(r"knows 3 jobs from")
    assert e.filter(new, ["a"])[0] == []
    e.write("later", json.dumps(trained[1][GOOD[0]] | {"memory": {"peak_bytes": 1 << 30}}))
    e.write(BAD[0], json.dumps(trained[1][GOOD[1]]))
    e.await_filter(new, ["a"], ["a"], "both files have changed")
    os.unlink(e.folder / "later.json")
    e.wait_for_line(r"knows 2 jobs from")


def test_a_broken_job_file_leaves_the_last_good_one(start, trained):
    e = start(["--qos", "0.5"], nodes=[node("a")], pods=[pod("p", BAD[0], on="a")], jobs={n: trained[1][n] for n in BAD})
    assert e.filter(pod("new", BAD[1]), ["a"])[0] == []
    e.write(BAD[1], "{")
    e.wait_for_line(rf"{BAD[1]}.json: .*; the last good file stays")
    assert e.filter(pod("new", BAD[1]), ["a"])[0] == []
    e.write("third", "[]")
    e.wait_for_line(r"third.json: .*; the job is left out")
    e.write("fourth", json.dumps(trained[1][BAD[0]] | {"measured": trained[1][BAD[0]]["measured"] | {"gpu": "Other"}}))
    e.wait_for_line(r"job fourth is left out: it was measured on Other, and the predictions are for Toy GPU")
    assert e.filter(pod("new", BAD[1]), ["a"])[0] == []


def test_links_as_kubelet_makes_them_are_followed(start, trained):
    e = start(["--qos", "0.3"], nodes=[node("a")], pods=[pod("p", BAD[0], on="a")], jobs={})
    for number in (1, 2):  # a ConfigMap's files are links into a folder that is replaced as a whole
        real = e.folder / f"..2026_{number}"
        real.mkdir()
        (real / f"{BAD[0]}.json").write_text(json.dumps(trained[1][BAD[0]]))
        (real / "new.json").write_text(json.dumps(trained[1][(None, BAD[1], GOOD[0])[number]]))
        os.symlink(real.name, e.folder / "..data_tmp")
        os.rename(e.folder / "..data_tmp", e.folder / "..data")
        for name in (f"{BAD[0]}.json", "new.json") if number == 1 else ():
            os.symlink(f"..data/{name}", e.folder / name)
        e.await_filter(pod("new", "new", qos="0.6"), ["a"], [[], ["a"]][number - 1], f"the folder number {number}")


# ---- requests that are none ----

def test_requests_that_are_none_get_a_sentence(start):
    e = start(nodes=[node("a")])
    good = json.loads(request_of(pod("new", GOOD[0]), ["a"]))
    for body, sentence in [
            ("", "the request is no JSON"), ("{", "the request is no JSON"), ("[]", "the request is no object with Pod and NodeNames"),
            ("{}", "the request has no Pod"), (json.dumps(good | {"Pod": None}), "the request has no Pod"),
            (json.dumps(good | {"Pod": {}}), "the request's Pod has no uid or no spec"),
            (json.dumps({"pod": good["Pod"], "nodenames": ["a"]}), "the request has no Pod"),
            (json.dumps(good | {"NodeNames": None}), "the request has neither NodeNames nor Nodes with items"),
            (json.dumps(good | {"NodeNames": {"a": 1}}), "the request has neither NodeNames nor Nodes with items"),
            (json.dumps(good | {"NodeNames": ["a", 7]}), "a node of the request has no name"),
            (json.dumps(good | {"NodeNames": None, "Nodes": {"items": [{}]}}), "a node of the request has no name"),
            ("[" * 1100000, "the request has more values than a pod and its nodes have")]:
        for path in ("/filter", "/prioritize"):
            status, answer = e.ask("POST", path, body)
            assert status == 400 and answer.decode().startswith(sentence) and answer.endswith(b"\n"), (body[:80], answer)
    assert e.ask("GET", "/filter") == (405, b"requests are sent with POST\n")
    assert e.ask("GET", "/") == (404, b"there are /filter, /prioritize, /healthz and /readyz\n")
    assert e.ask("POST", "/healthz", "x")[0] == 405
    assert e.filter(pod("new", GOOD[0]), ["a"])[0] == ["a"]


def test_bodies_are_bounded(start):
    e = start(nodes=[node("a")])
    with socket.create_connection(("127.0.0.1", e.port), timeout=30) as s:
        s.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\nExpect: 100-continue\r\n\r\n")
        assert b" 413 " in s.recv(1000)
    before = e.memory_kib("VmRSS")
    many = [f"node-{i:05}.cluster.example" for i in range(100000)]
    assert e.filter(pod("new", GOOD[0]), many)[0] == many
    assert e.memory_kib() - before < 400 * 1024 or tools.SANITIZED


def strange(chance, good):
    request = json.loads(json.dumps(good))
    for _ in range(chance.randint(1, 4)):
        path = chance.choice(malformed.places(request)[1:])
        inner = request
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = copy.deepcopy(chance.choice(malformed.VALUES))
    return json.dumps(request, ensure_ascii=chance.random() < 0.5).encode("utf-8", "surrogatepass")


def broken(chance, good):
    text = bytearray(json.dumps(good).encode())
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(text) + 1)
        if chance.random() < 0.4:
            del text[at:at + chance.randint(1, 500)]
        else:
            text[at:at + 1] = chance.choice(malformed.PIECES)
    return bytes(text)


def test_a_thousand_malformed_requests_are_answered(start):
    e = start(["--qos", "0.4"], nodes=[node("a"), node("b", 2)],
              pods=[pod("p", BAD[0], on="a", qos="0.5"), pod("q", GOOD[0], on="b"), pod("r", GOOD[1], on="b")])
    chance, statuses, c = random.Random(7), {}, e.connect()
    names = json.loads(request_of(pod("new", GOOD[0], qos="0.4"), ["a", "b", "c"]))
    whole = {"Pod": pod("new", BAD[0], uid=names["Pod"]["metadata"]["uid"]), "NodeNames": None,
             "Nodes": {"metadata": {}, "items": [node("a"), node("b", 2)]}}
    for n in range(1000):
        body = chance.choice([strange, strange, broken])(chance, chance.choice([names, whole]))
        status, answer = e.ask("POST", chance.choice(["/filter", "/prioritize"]), body, c)
        assert status in (200, 400), (n, status, answer)
        assert json.loads(answer) is not None if status == 200 else len(answer) > 10, (n, body)
        statuses[status] = statuses.get(status, 0) + 1
    c.close()
    assert min(statuses.values()) > 100 and len(statuses) == 2, statuses
    for n in range(60):  # … and requests whose framing is wrong
        head = b"POST /filter HTTP/1.1\r\nHost: x\r\n" + b"\r\n".join(chance.sample(malformed.HEADERS, 2)) + b"\r\n\r\n"
        with socket.create_connection(("127.0.0.1", e.port), timeout=30) as s:
            s.settimeout(0.05)
            try:
                s.sendall(head + json.dumps(names).encode())
                s.recv(65536)
            except (TimeoutError, OSError):
                pass
    assert e.process.poll() is None
    assert e.filter(pod("new", GOOD[1], qos="0.55"), ["a", "b"])[0] == ["b"]


def test_strange_objects_of_the_api_server_do_not_stop_it(start):
    e = start(["--qos", "0.5"], nodes=[node("a")], pods=[pod("p", BAD[0], on="a")])
    chance = random.Random(3)
    for number in range(300):
        for store, one in ((e.api, pod("x", GOOD[0], on="a", uid=f"strange-{number}")), (e.api.nodes, node("strange"))):
            one = json.loads(strange(chance, one))
            if isinstance(one.get("metadata"), dict):
                one["metadata"]["uid"] = f"strange-{number}"  # the fake server's own key
                store.put(one)
    for number in range(300):
        if f"strange-{number}" in e.api.pods:
            e.api.remove(f"strange-{number}")
    e.await_filter(pod("new", BAD[1]), ["a"], [], "what is good is still known")


# ---- how it is served ----

def test_a_client_ca_that_cannot_be_used_ends_it_with_a_sentence(tmp_path):
    certificate, key = Authority(tmp_path).sign()
    for ca, text in (("/nowhere", "cannot read /nowhere"), ("/dev/null", "/dev/null has no certificate of an authority in it"),
                     (str(key), "has no certificate of an authority in it")):
        done = subprocess.run([tools.PROGRAM, "--api-server", "http://localhost:1", "--jobs", "/", "--certificate", certificate,
                               "--key", key, "--client-ca", ca], capture_output=True, text=True, timeout=20, env={})
        assert done.returncode == 1 and text in done.stderr, done.stderr


def test_https_is_served_with_a_certificate_that_is_renewed(start, tmp_path):
    authority = Authority(tmp_path)
    certificate, key = authority.sign()
    e = start(["--certificate", certificate, "--key", key], nodes=[node("a")])
    with authority.trusting().wrap_socket(socket.create_connection(("127.0.0.1", e.port)), server_hostname="localhost") as s:
        s.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert s.recv(1000).startswith(b"HTTP/1.1 200")
        assert s.version() in ("TLSv1.3", "TLSv1.2")


def test_with_a_client_ca_only_its_clients_may_ask_and_all_may_probe(start, tmp_path):
    folders = [tmp_path / name for name in ("ours", "other")]
    for folder in folders:
        folder.mkdir()
    ours, other = map(Authority, folders)
    certificate, key = ours.sign(purpose="serverAuth")
    e = start(["--certificate", certificate, "--key", key, "--client-ca", ours.certificate], nodes=[node("a")])

    def ask(method, path, shown):
        context = ours.trusting()
        if shown:
            context.load_cert_chain(*shown)
        connection = http.client.HTTPSConnection("localhost", e.port, context=context, timeout=30)
        try:
            return [e.ask(method, path, tools.request_of(pod("new", GOOD[0]), ["a"]) if method == "POST" else None, connection)
                    for _ in range(2)][1]  # the second one on the same connection
        finally:
            connection.close()

    client = ours.sign(purpose="clientAuth")
    status, body = ask("POST", "/filter", client)
    assert status == 200 and json.loads(body)["NodeNames"] == ["a"]
    assert ask("POST", "/prioritize", client)[0] == 200
    expired, since = ours.sign(purpose="clientAuth", days=0), time.time()
    wait_for(lambda: time.time() > since + 1, GENEROUS_S, "the certificate to expire")  # its end is a whole second
    for shown in (None, other.sign(purpose="clientAuth"), (certificate, key), expired):
        for path in ("/filter", "/prioritize"):
            status, body = ask("POST", path, shown)
            assert status == 403 and b"only clients with a client certificate from an authority in its --client-ca" in body, (shown, body)
        assert ask("GET", "/healthz", shown) == (200, b"ok\n")


def test_sigterm_ends_it(start):
    e = start(nodes=[node("a")])
    assert e.filter(pod("new", GOOD[0]), ["a"])[0] == ["a"]
    assert e.end() == 0


def test_a_large_cluster_is_answered_in_time(start):
    """The scheduler waits for 5 s, unless its configuration says otherwise. Counted is the processor's time, which does not
    depend on other programs."""
    jobs = [j["name"] for _, j in toy_pairs.jobs(24)]
    e = start(["--qos", "0.5"], nodes=[node(f"n{n}", 8) for n in range(500)],
              pods=[pod(f"p{n}-{i}", jobs[(n + 7 * i) % 24], on=f"n{n}") for n in range(500) for i in range(9)])
    began = cpu_s(e.process.pid)
    passed, failed = e.filter(pod("new", GOOD[0]), [f"n{n}" for n in range(500)])
    took = cpu_s(e.process.pid) - began
    print(f"500 nodes with 8 GPUs and 9 jobs each: {took:.2f} s, {len(passed)} pass, {len(failed)} do not")
    assert took < 5 * PATIENCE


@pytest.mark.parametrize("args, text", [
    ([], "--jobs DIR is needed: where are the job files?"),
    (["--jobs", "/"], "whom to ask for pods? --api-server URL says it"),
    (["--jobs", "/", "--key", "x"], "--certificate and --key are given together"),
    (["--jobs", "/", "--api-server", "http://localhost:1", "--client-ca", "x"], "--client-ca needs --certificate and --key"),
    (["--jobs", "/", "--qos", "1"], "--qos"),
    (["--jobs", "/", "--prefer", "x"], "--prefer")])
def test_a_wrong_command_line_is_refused_in_one_sentence(args, text):
    done = subprocess.run([tools.PROGRAM, *args], capture_output=True, text=True, timeout=20, env={})
    assert done.returncode == 2 and text in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("args, text", [
    (["--jobs", "/nowhere"], "cannot read the folder /nowhere: No such file or directory"),
    (["--jobs", "/", "--model", "/dev/null"], "this is no JSON"),
    (["--jobs", "/", "--certificate", "/nowhere", "--key", "/nowhere"], "cannot read /nowhere"),
    (["--jobs", "/", "--listen", "here"], "\"here\" is no address")])
def test_what_cannot_be_used_ends_it_with_a_sentence(args, text):
    done = subprocess.run([tools.PROGRAM, "--api-server", "http://localhost:1", *args], capture_output=True, text=True,
                          timeout=20, env={})
    assert done.returncode == 1 and text in done.stderr, done.stderr
