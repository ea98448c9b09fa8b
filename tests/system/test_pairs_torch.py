"""The worker of sublet bench pairs that runs models, on a PyTorch and a clock that this test fakes. No model is built."""

import contextlib
import importlib.util
import io
import sys
import types

import pytest

from world import BUILD

PROGRAM = f"{BUILD}/pairs_torch.py"
AT = 10.0


class Gpu:
    """Does one thing after the other. Launching costs the host a little time."""

    def __init__(self):
        self.now, self.free, self.slower, self.reserved, self.captures = 0.0, 0.0, 1.0, 0, True
        self.captured = None  # what is captured at this moment

    def work(self, seconds):
        if self.captured is not None:
            self.captured.append(seconds)
            return
        self.now += 1e-5
        self.free = max(self.free, self.now) + seconds * self.slower

    def sleep(self, seconds):
        self.now += seconds

    def synchronize(self):
        self.now = max(self.now, self.free)


def fake_torch(gpu):
    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = max(gpu.free, gpu.now)

        def synchronize(self):
            gpu.now = max(gpu.now, self.at)

        def elapsed_time(self, later):
            return (later.at - self.at) * 1e3

    class Graph:
        def __init__(self):
            self.work = []

        def replay(self):
            for seconds in self.work:
                gpu.work(seconds)

    @contextlib.contextmanager
    def graph(captured):
        if not gpu.captures:
            raise RuntimeError("operation not permitted when stream is capturing")
        gpu.captured = captured.work
        yield
        gpu.captured = None
    stream = types.SimpleNamespace(wait_stream=lambda other: None)
    cuda = types.SimpleNamespace(
        Event=Event, CUDAGraph=Graph, graph=graph, Stream=lambda: stream, current_stream=lambda: stream,
        stream=lambda side: contextlib.nullcontext(), synchronize=gpu.synchronize, empty_cache=lambda: None,
        memory_reserved=lambda: gpu.reserved, max_memory_reserved=lambda: gpu.reserved, reset_peak_memory_stats=lambda: None,
        OutOfMemoryError=MemoryError)
    return types.SimpleNamespace(cuda=cuda, manual_seed=lambda seed: None, zeros=lambda n, device: None,
                                 backends=types.SimpleNamespace(mha=types.SimpleNamespace(set_fastpath_enabled=lambda on: None)))


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setitem(sys.modules, "torch", fake_torch(gpu))
    return gpu


@pytest.fixture
def program(gpu, monkeypatch):
    spec = importlib.util.spec_from_file_location("pairs_torch", PROGRAM)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "time", types.SimpleNamespace(monotonic=lambda: gpu.now, sleep=gpu.sleep))
    return module


@pytest.fixture
def worker(program):
    return program.Worker(8 << 30, io.StringIO())


def offer(worker, program, gpu, *jobs):
    """Lets the worker run these jobs instead of models: each (name, seconds of a step, share)."""
    for name, seconds, share in jobs:
        worker.jobs[name] = program.Job(name, "test", lambda seconds=seconds: lambda: gpu.work(seconds), share)


def ask(worker, order):
    worker.answers.truncate(0)
    worker.answers.seek(0)
    worker.obey(order.split())
    return worker.answers.getvalue().split()


def rate(worker, gpu, seconds=1.0):
    gpu.free = gpu.now = gpu.now + AT
    answer = ask(worker, f"run {seconds} {int((gpu.now + 0.3) * 1e9)}")
    assert answer[0] == "ran", answer
    return float(answer[1]) / seconds


@pytest.mark.parametrize("step", (2e-5, 0.003, 0.2))
def test_all_steps_within_the_window_are_counted(worker, program, gpu, step):
    offer(worker, program, gpu, ("model", step, None))
    assert ask(worker, "job model 0")[::3] == ["job", "graph"]
    assert rate(worker, gpu) == pytest.approx(1 / step, rel=0.01)
    gpu.slower = 2
    assert rate(worker, gpu) == pytest.approx(0.5 / step, rel=0.01)


@pytest.mark.parametrize("share", (0.15, 0.35, 0.6))
def test_a_server_answers_as_many_requests_as_are_asked_until_the_gpu_is_too_slow(worker, program, gpu, share):
    offer(worker, program, gpu, ("server", 0.004, share))
    interval = int(ask(worker, "job server 0")[1])
    assert interval == pytest.approx(4000 / share, rel=0.02)
    asked = 1e6 / interval
    assert rate(worker, gpu) == pytest.approx(asked, rel=0.01)
    gpu.slower = 1.5
    assert rate(worker, gpu) == pytest.approx(asked, rel=0.01)
    gpu.slower = 10
    assert rate(worker, gpu) == pytest.approx(25, rel=0.05)


def test_every_worker_of_a_server_asks_at_the_rate_that_it_is_told(worker, program, gpu):
    offer(worker, program, gpu, ("server", 0.004, 0.5))
    gpu.slower = 1.25  # another program runs while this one prepares
    assert ask(worker, "job server 8000")[1] == "8000"
    gpu.slower = 1
    assert rate(worker, gpu) == pytest.approx(125, rel=0.01)


def test_a_step_that_no_graph_holds_runs_eagerly_and_the_answer_says_so(worker, program, gpu, capsys):
    offer(worker, program, gpu, ("model", 0.003, None))
    gpu.captures = False
    assert ask(worker, "job model 0")[3] == "eager"
    assert "model cannot be captured as a graph" in capsys.readouterr().err
    assert rate(worker, gpu) == pytest.approx(333.3, rel=0.01)


def test_a_job_that_is_named_eager_is_not_captured(worker, program, gpu, capsys):
    offer(worker, program, gpu, ("model-eager", 0.003, None))
    assert ask(worker, "job model-eager 0")[3] == "eager"
    assert capsys.readouterr().err == ""


def test_the_model_that_was_used_longest_ago_goes_if_memory_is_short(worker, program, gpu):
    offer(worker, program, gpu, ("a", 0.003, None), ("b", 0.003, None), ("c", 0.003, None))
    ask(worker, "job a 0")
    ask(worker, "job b 0")
    ask(worker, "job a 0")
    gpu.reserved = 6 << 30
    worker.torch.cuda.empty_cache = lambda: setattr(gpu, "reserved", len(worker.models) * 3 << 30)
    ask(worker, "job c 0")
    assert set(worker.models) == {"a", "c"}


def test_the_jobs_are_many_families_and_have_names_that_the_bench_can_keep(program):
    names = [job.name for job in program.JOBS]
    assert len(set(names)) == len(names) >= 60 and len({job.family for job in program.JOBS}) >= 24
    assert all(len(job.name) < 64 and len(job.family) < 24 and " " not in job.name + job.family for job in program.JOBS)
    assert {job.share for job in program.JOBS if job.family == "server"} == {0.15, 0.35, 0.6}
    assert all((job.share is None) == ("-serve-" not in job.name) for job in program.JOBS)
