#!/usr/bin/env python3
"""Trains a real network with deterministic algorithms, and obeys the lines on stdin. It knows nothing of sublet, like
the program of any user. Each answer is one JSON line.

  train STEPS EPOCH      STEPS steps in epochs of EPOCH: the losses as hexadecimal float32, the ballast checked and
                         changed after every epoch
  measure NET SECONDS [PAUSE [AFTER [SEED]]]
                         steps of one network for that many seconds: the seconds a step. After each step it sleeps for
                         PAUSE seconds, up to half more or less. The first AFTER seconds do not count
  exit                   ends the program (so does the end of stdin)

Ballast is memory that is neither model nor activation: random words, made on the GPU. Their sum is taken when they are
made and again an epoch later."""

import argparse
import json
import os
import random
import struct
import sys
import sysconfig
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch  # noqa: E402
from torch import nn  # noqa: E402

WORDS = (1 << 30) // 8  # words of one piece of ballast


def say(event, **fields):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **fields}), flush=True)


class Pictures:
    """ResNet-50 on pictures of ten kinds: each kind is a smooth pattern, shifted and under noise. The pictures are made
    from the seed, because no data set can be fetched; they lie in pinned host memory and are copied in step by step, as
    a loader does."""

    COUNT, BATCH = 512, 64

    def __init__(self, seed):
        import torchvision

        host = torch.Generator().manual_seed(seed)
        torch.manual_seed(seed)
        self.model = torchvision.models.resnet50(num_classes=10).cuda().to(memory_format=torch.channels_last)
        coarse = torch.rand(10, 3, 7, 7, generator=host)
        kinds = nn.functional.interpolate(coarse, size=(224, 224), mode="bilinear", align_corners=False)
        self.labels = torch.randint(10, (self.COUNT,), generator=host)
        self.pictures = torch.empty(self.COUNT, 3, 224, 224).pin_memory()
        for i in range(self.COUNT):
            shift = int(torch.randint(32, (1,), generator=host))
            self.pictures[i] = kinds[self.labels[i]].roll(shift, dims=2)
        self.pictures += 0.3 * torch.randn(self.pictures.shape, generator=host)
        self.labels = self.labels.pin_memory()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.n = 0

    def copy_gb_s(self):
        """Measures how fast the card reads the pictures, which depends on their place in host memory."""
        there = torch.empty_like(self.pictures, device="cuda")
        times = []
        for _ in range(5):
            torch.cuda.synchronize()
            began = time.monotonic()
            there.copy_(self.pictures, non_blocking=True)
            torch.cuda.synchronize()
            times.append(time.monotonic() - began)
        return round(there.nbytes / min(times) / 1e9, 1)

    def step(self):
        start = self.n * self.BATCH % self.COUNT
        self.n += 1
        x = self.pictures[start:start + self.BATCH].cuda(non_blocking=True).to(memory_format=torch.channels_last)
        y = self.labels[start:start + self.BATCH].cuda(non_blocking=True)
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Text:
    """A transformer that learns to write Python: it predicts the next byte of the standard library's sources."""

    BATCH, LENGTH, WIDTH, LAYERS, HEADS = 16, 512, 768, 8, 12

    class Net(nn.Module):
        def __init__(self, width, layers, heads, length):
            super().__init__()
            self.byte = nn.Embedding(256, width)
            self.place = nn.Parameter(torch.randn(length, width) * 0.02)
            layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
            self.out = nn.Linear(width, 256)
            self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length))

        def forward(self, x):
            return self.out(self.layers(self.byte(x) + self.place, mask=self.mask, is_causal=True))

    def __init__(self, seed):
        torch.manual_seed(seed)
        # The backward pass of the fast attention kernels adds up in no fixed order.
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.cuda.enable_mem_efficient_sdp(False)
        torch.backends.cuda.enable_cudnn_sdp(False)
        self.model = self.Net(self.WIDTH, self.LAYERS, self.HEADS, self.LENGTH).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=2e-4)
        self.text = torch.frombuffer(bytearray(self.sources()), dtype=torch.uint8).cuda()
        self.host = torch.Generator().manual_seed(seed)

    @staticmethod
    def sources():
        folder = sysconfig.get_paths()["stdlib"]
        names = sorted(n for n in os.listdir(folder) if n.endswith(".py"))
        data = b"".join(open(os.path.join(folder, n), "rb").read() for n in names)
        if len(data) < 1 << 20:
            sys.exit("trainer.py: the standard library's sources are not here")
        return data

    def step(self):
        starts = torch.randint(len(self.text) - self.LENGTH - 1, (self.BATCH, 1), generator=self.host)
        at = starts.cuda(non_blocking=True) + torch.arange(self.LENGTH + 1, device="cuda")
        piece = self.text[at].long()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            out = self.model(piece[:, :-1])
            loss = nn.functional.cross_entropy(out.reshape(-1, 256).float(), piece[:, 1:].reshape(-1))
        loss.backward()
        self.optimizer.step()
        return loss.detach()


NETS = {"resnet50": Pictures, "transformer": Text}


class Ballast:
    def __init__(self, gib, seed):
        self.generator = torch.Generator(device="cuda").manual_seed(seed)
        self.pieces = [torch.empty(WORDS, dtype=torch.int64, device="cuda") for _ in range(gib)]
        self.sums = []
        self.change()

    def sum(self):
        return torch.stack([p.sum() for p in self.pieces]).tolist() if self.pieces else []

    def change(self):
        for p in self.pieces:
            p.random_(generator=self.generator)
        self.sums = self.sum()

    def check(self):
        """True if the ballast is unchanged since it was made an epoch ago."""
        return self.sum() == self.sums


def train(net, ballast, steps, epoch):
    losses = torch.zeros(epoch, device="cuda")
    done = 0
    while done < steps:
        n = min(epoch, steps - done)
        for i in range(n):
            losses[i] = net.step()
        values = losses[:n].tolist()
        unharmed = ballast.check()
        before = ballast.sums
        ballast.change()
        done += n
        say("epoch", steps=done, losses=[struct.pack(">f", v).hex() for v in values], last=values[-1],
            ballast_unharmed=unharmed, ballast=f"{sum(before) & (1 << 64) - 1:016x}")
        if not unharmed:
            sys.exit("trainer.py: the ballast is not what it was")
    say("trained", steps=done, allocated=torch.cuda.memory_allocated())


def run_for(net, seconds, pause, pauses):
    """Returns the seconds a step of rounds of ten steps with one synchronise each."""
    rounds = []
    began = end = time.monotonic()
    while end - began < seconds:
        start = end
        for _ in range(10):
            net.step()
            if pause:
                torch.cuda.synchronize()
                time.sleep(pause * (0.5 + pauses.random()))
        torch.cuda.synchronize()
        end = time.monotonic()
        rounds.append((end - start) / 10)
    return rounds


def measure(net, seconds, pause=0, after=0, seed=0):
    """Returns the median seconds a step, and the processors' seconds a step."""
    pauses = random.Random(seed)
    torch.cuda.synchronize()
    run_for(net, after, pause, pauses)
    processors, began = time.process_time(), time.monotonic()
    rounds = run_for(net, seconds, pause, pauses)
    end = time.monotonic()
    rounds.sort()
    return {"median_s": rounds[len(rounds) // 2], "mean_s": (end - began) / (10 * len(rounds)),
            "steps": 10 * len(rounds), "seconds": end - began,
            "cpu_s": (time.process_time() - processors) / (10 * len(rounds))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", action="append", choices=NETS, required=True)
    parser.add_argument("--ballast-gib", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=Pictures.BATCH, help="pictures in a step of resnet50")
    parser.add_argument("--warm-up", type=int, default=0, help="steps before the first order")
    parser.add_argument("--hold", action="store_true", help="wait for a line on stdin before touching the GPU")
    arguments = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.set_num_threads(4)
    say("imported")
    if arguments.hold:
        sys.stdin.readline()
    Pictures.BATCH = arguments.batch
    nets = {name: NETS[name](arguments.seed) for name in arguments.net}
    for net in nets.values():
        for _ in range(arguments.warm_up):
            net.step()
    ballast = Ballast(arguments.ballast_gib, arguments.seed)
    torch.cuda.synchronize()
    say("ready", allocated=torch.cuda.memory_allocated(), reserved=torch.cuda.memory_reserved(),
        free=torch.cuda.mem_get_info()[0], total=torch.cuda.mem_get_info()[1],
        copy_gb_s=[net.copy_gb_s() for net in nets.values() if isinstance(net, Pictures)])
    for line in sys.stdin:
        words = line.split()
        if not words:
            continue
        if words[0] == "train":
            train(nets[arguments.net[0]], ballast, int(words[1]), int(words[2]))
        elif words[0] == "measure":
            say("measured", net=words[1], **measure(nets[words[1]], *map(float, words[2:])))
        elif words[0] == "exit":
            break
        else:
            sys.exit(f"trainer.py: unknown order {line!r}")
    say("end", ballast_unharmed=ballast.check())


if __name__ == "__main__":
    main()
