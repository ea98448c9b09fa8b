"""PyTorch: typical uses, one case each."""

import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import common  # noqa: E402


class Net(nn.Module):
    """Pictures and words through convolutions and attention."""

    def __init__(self, width=256, layers=3):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 5, 2, 2), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, width, 3, 4, 1))
        self.words = nn.Embedding(4000, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, 4000)

    def forward(self, pictures, words):
        x = self.stem(pictures).flatten(2).transpose(1, 2)
        x = torch.cat([x, self.words(words)], 1)
        return self.head(self.body(x)[:, -words.shape[1]:])


def host_batch(seed, n=32):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, 3, 64, 64, generator=g), torch.randint(4000, (n, 64), generator=g)


def net(**sizes):
    torch.manual_seed(1)
    torch.backends.cudnn.deterministic = True
    return Net(**sizes).cuda()


def train(model, batches, dtype=torch.float32, optimizer=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for pictures, words in batches:
        pictures, words = pictures.cuda(non_blocking=True), words.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
            out = model(pictures, words)
            loss = F.cross_entropy(out[:, :-1].reshape(-1, 4000).float(), words[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def said(name, *tensors):
    common.result(name, *[t.detach().float().cpu().numpy() for t in tensors])


def trained(model, batches, **how):
    losses = train(model, batches, **how)
    said("losses", losses)
    said("parameters", *model.parameters())


def batches(n):
    return (host_batch(i) for i in range(n))


def fp32():
    torch.use_deterministic_algorithms(True)
    trained(net(), batches(60))


def bf16():
    torch.use_deterministic_algorithms(True)
    trained(net(), batches(60), dtype=torch.bfloat16)


def compiled():
    torch.use_deterministic_algorithms(True)
    model = net(width=128, layers=1)
    losses = train(torch.compile(model), batches(12))
    said("losses", losses)
    said("parameters", *model.parameters())


def compiled_graphs():
    """Inductor's CUDA graphs keep their memory in private pools."""
    model = net(width=128, layers=1).eval()
    f = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for i in range(12):
            pictures, words = (t.cuda() for t in host_batch(i))
            out = f(pictures, words).clone()
    said("out", out)


def graphs():
    """A whole training step is captured once."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    pictures, words = (t.cuda() for t in host_batch(0))

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(pictures, words).reshape(-1, 4000), words.reshape(-1))
        loss.backward()
        optimizer.step()
        return loss

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    losses = []
    for i in range(80):
        for to, of in zip((pictures, words), host_batch(i)):
            to.copy_(of)
        graph.replay()
        losses.append(loss.clone())
    said("losses", torch.stack(losses))
    said("parameters", *model.parameters())


class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, i):
        r = np.random.default_rng(i)
        return r.standard_normal((3, 64, 64), dtype=np.float32), r.integers(4000, size=64)


def loader():
    """Workers are forked from a process that has a context, and a thread pins their batches."""
    model = net()
    torch.zeros(1).cuda()
    data = torch.utils.data.DataLoader(Pictures(), batch_size=32, num_workers=3, pin_memory=True, persistent_workers=True)
    for _ in range(2):
        trained(model, data)


def expandable():
    """The environment chooses expandable segments: PyTorch maps and unmaps memory itself."""
    sizes()


def stream_ordered():
    """The environment chooses cudaMallocAsync as the allocator."""
    sizes()


def sizes():
    """Batches of all sizes, with the cache emptied between them."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for i in range(30):
        losses.append(train(model, [host_batch(i, 8 + i * 7 % 40)], optimizer=optimizer))
        if i % 5 == 0:
            torch.cuda.empty_cache()
    said("losses", torch.cat(losses))
    said("parameters", *model.parameters())


def out_of_memory():
    """Between the steps of a training the driver refuses allocations, and the program tries again with less, as users
    do. A TiB fits no card; the next size is small, so that the cases beside this one lose no memory."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, sums, refused = [], [], 0
    for i in range(8):
        losses.append(train(model, [host_batch(i)], optimizer=optimizer))
        n, scratch = 1 << 40, None
        while scratch is None:
            try:
                scratch = torch.full((n,), i + 1, dtype=torch.uint8, device="cuda")
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
                refused, n = refused + 1, n // 4096
        sums.append(scratch.sum(dtype=torch.int64).item())
        del scratch
    common.result("refused", [refused, torch.cuda.memory_stats()["num_ooms"]])
    common.result("sums", sums)
    said("losses", torch.cat(losses))
    said("parameters", *model.parameters())


def receive(inbox, outbox):
    for tensor in iter(inbox.get, None):
        tensor.mul_(2)
        outbox.put(float(tensor.double().sum()))
        del tensor
    outbox.put(None)


def another_process():
    """Sends tensors to a process, which changes them in place and sends its own tensors back."""
    context = mp.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=receive, args=(inbox, outbox))
    child.start()
    kept, sums = [], []
    for i in range(12):
        t = torch.arange(1 << (10 + i), dtype=torch.float32, device="cuda") % (i + 7)
        kept.append(t)
        inbox.put(t)
        sums.append(outbox.get(timeout=60))
    inbox.put(None)
    outbox.get(timeout=60)
    child.join(30)
    common.result("sums", sums)
    said("tensors", *kept)


def streams():
    """Work on several streams by several threads, with events between them."""
    import threading

    torch.manual_seed(3)
    a = [torch.randn(512, 512, device="cuda") for _ in range(6)]
    torch.cuda.synchronize()
    out = [None] * len(a)

    def work(i):
        s = torch.cuda.Stream()
        with torch.cuda.stream(s):
            x = a[i]
            for _ in range(100):
                x = torch.tanh(x @ a[i]) + torch.roll(x, 1, 0)
                y = x.to("cpu", non_blocking=True)
                x = x + y.to("cuda") * 0.01
            out[i] = x
        s.synchronize()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(a))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    said("out", *out)


def libraries():
    """FFT, sparse, solvers, sort, and what cuBLAS, cuSOLVER and the like allocate for themselves."""
    torch.manual_seed(4)
    a = torch.randn(700, 700, device="cuda")
    said("fft", torch.view_as_real(torch.fft.fft2(a)))
    said("solve", torch.linalg.solve(a + 40 * torch.eye(700, device="cuda"), a))
    said("svd", torch.linalg.svdvals(a))
    said("sort", torch.sort(a.flatten())[0], torch.cumsum(a, 0))
    said("sparse", torch.sparse.mm(a.relu().to_sparse_csr(), a))
    said("random", torch.randn(1 << 20, device="cuda"), torch.randperm(1 << 16, device="cuda"))
    said("attention", F.scaled_dot_product_attention(*[torch.randn(4, 8, 512, 64, device="cuda", dtype=torch.float16)
                                                       for _ in range(3)], is_causal=True))


def two_gpus():
    """Two halves of a network on two GPUs that need each other's results all the time."""
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(5)
    a = torch.randn(2048, 2048).to("cuda:0")
    b = torch.randn(2048, 2048).to("cuda:1")
    for i in range(300):
        a = torch.tanh(a @ a.T / 45)
        b = torch.tanh(b @ b.T / 45) + a.to("cuda:1", non_blocking=True)
        a = a + 0.5 * torch.roll(b, i, 0).to("cuda:0", non_blocking=True)
        if i % 60 == 0:
            torch.cuda.empty_cache()
    said("first", a)
    said("second", b)


if __name__ == "__main__":
    common.run({f.__name__: f for f in (fp32, bf16, compiled, compiled_graphs, graphs, loader, expandable, stream_ordered,
                                        sizes, out_of_memory, another_process, streams, libraries, two_gpus)})
