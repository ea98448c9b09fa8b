#!/usr/bin/env python3
"""The program that sublet bench runs with --program torch: training, or a large language model that answers. It knows
nothing of sublet. Its arguments and its lines are those of sublet-bench-job (bench_job.c).

    bench_torch.py BYTES SEED CPU PAUSE SECONDS ROUNDS PHASES [decoder]
    bench_torch.py about        prints which model `decoder` is, or an empty line where there is no transformers

Training: a deep network of square layers whose weights, gradients and momenta take BYTES, and all change in every step.
decoder: a decoder of 24 billion parameters in bfloat16 with random weights, in the shape of Mistral Small 24B. A round
reads a prompt and computes the first token of the answer."""

import os
import select
import struct
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # makes cuBLAS deterministic

import torch  # noqa: E402
from torch import nn  # noqa: E402

DEVICE = "cuda"
SPARE = 1 << 30  # of BYTES: activations, the libraries' workspaces
BATCH = 64
SHAPE = {"vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40,
         "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128}
PROMPT = 512  # tokens


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return x + 0.1 * torch.relu(self.linear(x))


class Training:
    def __init__(self, size, seed):
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True)
        width = 8192 if size > 8 * SPARE else 512
        room = size - SPARE if size > 8 * SPARE else size
        layers = max(2, room // (3 * 4 * width * width))
        with torch.device(DEVICE):
            self.net = nn.Sequential(*(Block(width) for _ in range(layers)))
            self.x = torch.randn(BATCH, width)
            self.goal = torch.randn(BATCH, width)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)
        self.losses = []
        self.round()  # makes gradients and momenta
        self.losses.clear()

    def round(self):
        self.optimizer.zero_grad(set_to_none=False)
        loss = nn.functional.mse_loss(self.net(self.x), self.goal)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def result(self):
        """Returns how many results were wrong, and a digest of all weights and losses."""
        digest = 0
        for loss in self.losses:
            digest = (digest * 1000003 ^ struct.unpack("<Q", struct.pack("<d", loss))[0]) % (1 << 64)
        for p in self.net.parameters():
            digest = (digest * 1000003 ^ p.detach().view(torch.int32).sum(dtype=torch.int64).item()) % (1 << 64)
        return 0, digest


def about():
    """Returns which model `decoder` is, and nothing where transformers is missing."""
    try:
        import transformers
    except ImportError:
        return ""
    return f"24B bf16, transformers {transformers.__version__}"


class Decoder:
    def __init__(self, _, seed):
        import transformers
        torch.manual_seed(seed)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(DEVICE):
            self.net = transformers.MistralForCausalLM(transformers.MistralConfig(**SHAPE, sliding_window=None))
        torch.set_default_dtype(torch.float32)
        self.net.requires_grad_(False).eval()
        self.prompt = torch.randint(SHAPE["vocab_size"], (1, PROMPT), device=DEVICE)
        self.sum = self.weights()
        self.tokens = []
        self.round()  # loads the libraries' kernels

    def weights(self):
        return sum(p.view(torch.int16).sum(dtype=torch.int64).item() for p in self.net.parameters()) % (1 << 64)

    def round(self):
        logits = self.net(self.prompt, use_cache=True, logits_to_keep=1).logits
        self.tokens.append(logits[0, -1].argmax().item())

    def result(self):
        wrong = sum(t != self.tokens[0] for t in self.tokens) + (self.weights() != self.sum)
        return wrong, (self.sum * 1000003 ^ self.tokens[0]) % (1 << 64)


def compute(seconds):
    """Computes on one processor, as a data loader does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10000))


def mix(key, round_number):
    """The same as gpu_work_mix()."""
    x = (key * 0x9E3779B97F4A7C15 + round_number) % (1 << 64)
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
    return x ^ x >> 27


def input_within(seconds):
    return bool(select.select([0], [], [], seconds)[0])


def main(argv):
    if argv[1:] == ["about"]:
        print(about())
        return 0
    size, seed, cpu, pause, seconds, rounds, phases = (kind(text) for kind, text in zip(
        (int, int, float, float, float, int, int), argv[1:8]))
    try:
        work = (Decoder if argv[8:] == ["decoder"] else Training)(size, seed)
    except torch.cuda.OutOfMemoryError:
        print("memory 0", flush=True)
        return 0
    print("filled", flush=True)
    if not os.read(0, 8):
        return 1
    phase = 0
    while phases == 0 or phase < phases:
        compute(cpu)
        if input_within(pause * (0.5 + (mix(seed, phase) >> 11) / (1 << 53))) and phases == 0:
            break
        began, n = time.monotonic(), 0
        while True:
            work.round()
            n += 1
            if n >= rounds if rounds else time.monotonic() - began >= seconds:
                break
        rounds = n
        print(f"phase {time.monotonic() - began:.6f}", flush=True)
        phase += 1
    wrong, digest = work.result()
    print(f"done {rounds} {wrong} {digest:016x}", flush=True)
    while os.read(0, 64):
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
