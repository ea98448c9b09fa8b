#!/usr/bin/env python3
"""The models that sublet bench pairs runs with --torch: training, inference, numerical programs, and servers that answer
requests at a fixed rate. Weights are random, and inputs are on the GPU already. It knows nothing of sublet. Its lines
are those of sublet-pairs-job (pairs_job.c); the answer to "job NAME LOOPS" is "job LOOPS SECONDS graph" or "... eager",
and LOOPS are a server's microseconds from one request to the next.

    pairs_torch.py list              prints a line "NAME FAMILY" for each job; needs no PyTorch
    pairs_torch.py work BYTES        obeys lines on stdin; models take about BYTES of GPU memory, then the one that was
                                     used longest ago goes

A step is captured as a CUDA graph, so that the GPU bounds its speed, and not the processor that launches its kernels.
Steps that no graph can hold have "eager" in their names."""

import collections
import gc
import json
import os
import sys
import tempfile
import time

WARM_S = 0.25
AHEAD = 3  # groups of steps that are submitted and not done
GROUP_S = 0.0005  # a group takes about so long ...
GROUP_MAX = 32
FIRST_STEPS = 3  # of a model that was just made: they load the libraries' kernels
FIRST_S = 0.5  # ... and it runs at least so long before it counts as prepared: it begins slower ...
AGAIN_S = 0.1  # ... also if it was dropped, and made again
NEEDED = 4 << 30  # bytes that a model is expected to take, before it has been made
PROFILED_STEPS = 3
KERNELS_MAX = 64

# make: builds the model and returns a step. share: of a server, the part of the time in which the GPU computes answers.
Job = collections.namedtuple("Job", "name family make share", defaults=(None,))
JOBS = (
    Job("resnet50-train-b32-bf16", "conv", lambda: vision("resnet50", 32, 224, "bfloat16", True)),
    Job("resnet18-train-b64-fp32", "conv", lambda: vision("resnet18", 64, 224, "float32", True)),
    Job("resnet50-infer-b1-fp32", "conv", lambda: vision("resnet50", 1, 224, "float32", False)),
    Job("resnet50-infer-b64-fp16", "conv", lambda: vision("resnet50", 64, 224, "float16", False)),
    Job("vgg16-infer-b32-fp32", "conv", lambda: vision("vgg16", 32, 224, "float32", False)),
    Job("mobilenet-train-b64-fp32", "mobile", lambda: vision("mobilenet_v3_large", 64, 224, "float32", True)),
    Job("mobilenet-infer-b1-fp16", "mobile", lambda: vision("mobilenet_v3_large", 1, 224, "float16", False)),
    Job("efficientnet-infer-b32-bf16", "mobile", lambda: vision("efficientnet_b0", 32, 224, "bfloat16", False)),
    Job("vit-train-b32-bf16", "vit", lambda: vision("vit_b_16", 32, 224, "bfloat16", True)),
    Job("vit-infer-b64-fp16", "vit", lambda: vision("vit_b_16", 64, 224, "float16", False)),
    Job("vit-infer-b1-fp32", "vit", lambda: vision("vit_b_16", 1, 224, "float32", False)),
    Job("bert-train-b8-fp32", "encoder", lambda: encoder(8, 128, "float32", True)),
    Job("bert-train-b32-bf16", "encoder", lambda: encoder(32, 128, "bfloat16", True)),
    Job("bert-infer-b16-bf16", "encoder", lambda: encoder(16, 256, "bfloat16", False)),
    Job("bert-infer-b1-fp16", "encoder", lambda: encoder(1, 128, "float16", False)),
    Job("gpt-train-b8-bf16", "gpt", lambda: gpt(8, 512, True)),
    Job("gpt-train-b1-bf16", "gpt", lambda: gpt(1, 512, True)),
    Job("gpt-infer-b4-bf16", "gpt", lambda: gpt(4, 1024, False)),
    Job("decode-b1-bf16", "decode", lambda: decoding(1, 1024)),
    Job("decode-b32-bf16", "decode", lambda: decoding(32, 512)),
    Job("decode-b8-long-bf16", "decode", lambda: decoding(8, 3072)),
    Job("lstm-train-b64-fp32", "lstm", lambda: lstm(64, 128, "float32", True)),
    Job("lstm-infer-b16-fp16", "lstm", lambda: lstm(16, 64, "float16", False)),
    Job("dlrm-train-b4096-fp32-eager", "dlrm", lambda: dlrm(4096, True)),  # its sparse gradients wait for the GPU
    Job("dlrm-infer-b2048-fp32", "dlrm", lambda: dlrm(2048, False)),
    Job("unet-infer-b4-bf16", "unet", lambda: unet(4, 64, False)),
    Job("unet-train-b1-bf16", "unet", lambda: unet(1, 64, True)),
    Job("gnn-train-fp32", "graph", lambda: graph(100_000, 1_500_000, 64, True)),
    Job("gnn-infer-fp32-small", "graph", lambda: graph(20_000, 200_000, 64, False)),
    Job("gemm-infer-fp16", "gemm", lambda: gemm(8192, 4096, "float16")),
    Job("gemm-infer-b64-bf16", "gemm", lambda: gemm(8192, 64, "bfloat16")),
    Job("gemm-infer-fp32", "gemm", lambda: gemm(4096, 2048, "float32")),
    Job("mlp-train-fp32-small", "small", lambda: small(256, True)),
    Job("mlp-infer-fp32-small", "small", lambda: small(64, False)),
    Job("convnext-train-b16-bf16", "convnext", lambda: vision("convnext_tiny", 16, 224, "bfloat16", True)),
    Job("convnext-infer-b32-fp16", "convnext", lambda: vision("convnext_tiny", 32, 224, "float16", False)),
    Job("swin-train-b16-bf16", "swin", lambda: vision("swin_t", 16, 224, "bfloat16", True)),
    Job("swin-infer-b8-fp32", "swin", lambda: vision("swin_t", 8, 224, "float32", False)),
    Job("densenet-train-b16-bf16", "conv", lambda: vision("densenet121", 16, 224, "bfloat16", True)),
    Job("regnet-infer-b32-fp16", "regnet", lambda: vision("regnet_y_3_2gf", 32, 224, "float16", False)),
    Job("video-train-b2-fp32", "conv3d", lambda: video(2, "float32", True)),
    Job("video-infer-b4-fp16", "conv3d", lambda: video(4, "float16", False)),
    Job("volume-train-b1-bf16", "conv3d", lambda: volume(1, 64, "bfloat16", True)),
    Job("wavenet-train-b2-fp32", "speech", lambda: wavenet(2, "float32", True)),
    Job("wavenet-infer-b1-fp16", "speech", lambda: wavenet(1, "float16", False)),
    Job("moe-train-b2048-bf16", "moe", lambda: experts(2048, True)),
    Job("moe-infer-b256-bf16", "moe", lambda: experts(256, False)),
    Job("attention-train-16k-bf16", "attention", lambda: attention(16384, "bfloat16", True)),
    Job("attention-infer-4k-fp32", "attention", lambda: attention(4096, "float32", False)),
    Job("fourier-train-b4-fp32", "fourier", lambda: fourier(4, 256)),
    Job("longconv-infer-b8-fp32", "fourier", lambda: long_convolution(8, 8192)),
    Job("sort-int64", "sort", lambda: sorting(1 << 23, 2048)),
    Job("scan-fp32", "sort", lambda: scans(1 << 25)),
    Job("heat-fp32", "stencil", lambda: heat(4096, 4, "float32")),
    Job("heat-fp64-small", "stencil", lambda: heat(1024, 16, "float64")),
    Job("montecarlo-fp32", "montecarlo", lambda: monte_carlo(1 << 23, 16)),
    Job("gemm-fp64", "double", lambda: gemm(4096, 1024, "float64")),
    Job("conjugate-fp64", "double", lambda: conjugate_gradients(8192, 4)),
    Job("int8-infer-b2048", "int8", lambda: int8(4096, 2048)),
    Job("gan-train-b64-fp32", "gan", lambda: gan(64)),
    Job("resnet50-serve-b8-fp16-15", "server", lambda: vision("resnet50", 8, 224, "float16", False), 0.15),
    Job("decode-serve-b8-bf16-15", "server", lambda: decoding(8, 1024), 0.15),
    Job("bert-serve-b8-bf16-35", "server", lambda: encoder(8, 128, "bfloat16", False), 0.35),
    Job("unet-serve-b1-bf16-35", "server", lambda: unet(1, 64, False), 0.35),
    Job("vit-serve-b16-fp16-60", "server", lambda: vision("vit_b_16", 16, 224, "float16", False), 0.6),
    Job("dlrm-serve-b2048-fp32-60", "server", lambda: dlrm(2048, False), 0.6),
)


def on_gpu():
    """Returns a context in which tensors are made on the GPU."""
    import torch
    return torch.device("cuda")


def training(net, inputs, goal, optimizer=None):
    """Returns a step of training: forward, backward, update."""
    import torch
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        goal(net(*inputs)).backward()
        optimizer.step()
    step.forget = lambda: optimizer.zero_grad(set_to_none=True)
    return step


def inference(net, inputs):
    import torch
    net.eval().requires_grad_(False)

    def step():
        with torch.no_grad():
            net(*inputs)
    return step


def computing(compute, *inputs):
    """Returns a step of a program that has no network."""
    import torch

    def step():
        with torch.no_grad():
            compute(*inputs)
    return step


def mean_square(y):
    return y.float().square().mean()


def network(make, shape, dtype, trains):
    """Returns a step of the network that make() returns, with random inputs of this shape."""
    import torch
    dtype = getattr(torch, dtype)
    with on_gpu():
        net, x = make().to(dtype), torch.randn(*shape, dtype=dtype)
    return training(net, (x,), mean_square) if trains else inference(net, (x,))


def vision(name, batch, size, dtype, trains):
    import torch
    import torchvision
    dtype = getattr(torch, dtype)
    with on_gpu():
        net = getattr(torchvision.models, name)(weights=None)
        net = net.to(dtype)
        x = torch.randn(batch, 3, size, size, dtype=dtype)
    if not name.startswith("vit"):
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    return training(net, (x,), mean_square) if trains else inference(net, (x,))


def encoder(batch, tokens, dtype, trains):
    from torch import nn

    def make():
        layer = nn.TransformerEncoderLayer(768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        return nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    return network(make, (batch, tokens, 768), dtype, trains)


def decoder_block(width, heads):
    """A layer of a decoder; with a cache it gets one token, and reads the keys and values of those before."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

        def forward(self, x, cache=None):
            batch, tokens, _ = x.shape
            q, k, v = (t.view(batch, tokens, heads, width // heads).transpose(1, 2)
                       for t in self.qkv(self.before(x)).chunk(3, dim=-1))
            if cache is None:
                y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                cache[0][:, :, -1:], cache[1][:, :, -1:] = k, v
                y = functional.scaled_dot_product_attention(q, *cache)
            x = x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
            return x + self.down(functional.gelu(self.up(self.after(x))))
    return Block().to(torch.bfloat16)


def gpt(batch, tokens, trains, width=768, layers=12, words=32768):
    import torch
    from torch import nn
    with on_gpu():
        net = nn.Sequential(nn.Embedding(words, width), *(decoder_block(width, 12) for _ in range(layers)),
                            nn.LayerNorm(width), nn.Linear(width, words, bias=False)).to(torch.bfloat16)
        x = torch.randint(words, (batch, tokens))
    if not trains:
        return inference(net, (x,))

    def goal(y):
        return nn.functional.cross_entropy(y.view(-1, words), x.view(-1))
    return training(net, (x,), goal, torch.optim.AdamW(net.parameters(), lr=1e-5, capturable=True))


def decoding(batch, length, width=2048, layers=16, words=32768):
    """Each step computes one more token of each answer; the weights and the cache are read once."""
    import torch
    from torch import nn
    heads = 16
    with on_gpu():
        blocks = nn.ModuleList(decoder_block(width, heads) for _ in range(layers)).requires_grad_(False)
        words_in = nn.Embedding(words, width).to(torch.bfloat16).requires_grad_(False)
        words_out = nn.Linear(width, words, bias=False).to(torch.bfloat16).requires_grad_(False)
        token = torch.zeros(batch, 1, dtype=torch.long)
        caches = [[torch.randn(batch, heads, length, width // heads, dtype=torch.bfloat16) for _ in range(2)]
                  for _ in range(layers)]

    def step():
        with torch.no_grad():
            x = words_in(token)
            for block, cache in zip(blocks, caches):
                x = block(x, cache)
            token.copy_(words_out(x).argmax(-1))
    return step


def lstm(batch, tokens, dtype, trains):
    import torch
    from torch import nn
    dtype = getattr(torch, dtype)
    with on_gpu():
        net = nn.LSTM(1024, 1024, num_layers=2, batch_first=True).to(dtype)
        x = torch.randn(batch, tokens, 1024, dtype=dtype)
    return training(net, (x,), lambda y: mean_square(y[0])) if trains else inference(net, (x,))


def dlrm(batch, trains, tables=26, rows=200_000, width=64):
    import torch
    from torch import nn

    class Recommender(nn.Module):
        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for _ in range(tables))
            self.bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(width + (tables + 1) * tables // 2, 1024), nn.ReLU(), nn.Linear(1024, 512),
                                     nn.ReLU(), nn.Linear(512, 1))
            self.pairs = torch.tril_indices(tables + 1, tables + 1, -1)

        def forward(self, dense, sparse):
            bottom = self.bottom(dense)
            all_ = torch.stack([bottom] + [table(sparse[i]) for i, table in enumerate(self.tables)], 1)
            mixed = torch.bmm(all_, all_.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([bottom, mixed], 1))
    with on_gpu():
        net = Recommender()
        inputs = torch.randn(batch, 13), torch.randint(rows, (tables, batch, 4))
        net.pairs = net.pairs.to(inputs[0].device)
    return training(net, inputs, mean_square, torch.optim.SGD(net.parameters(), lr=1e-4)) if trains else inference(net, inputs)


def unet(batch, size, trains, width=192):
    """A denoiser in the shape of those of latent diffusion: residual blocks, attention at the lower resolutions."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Residual(nn.Module):
        def __init__(self, before, after):
            super().__init__()
            self.norms = nn.ModuleList((nn.GroupNorm(32, before), nn.GroupNorm(32, after)))
            self.convs = nn.ModuleList((nn.Conv2d(before, after, 3, padding=1), nn.Conv2d(after, after, 3, padding=1)))
            self.skip = nn.Conv2d(before, after, 1) if before != after else nn.Identity()

        def forward(self, x):
            y = x
            for norm, conv in zip(self.norms, self.convs):
                y = conv(functional.silu(norm(y)))
            return self.skip(x) + y

    class Attention(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.norm, self.qkv, self.out = nn.GroupNorm(32, channels), nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

        def forward(self, x):
            b, c, h, w = x.shape
            q, k, v = self.qkv(self.norm(x)).reshape(b, 3, c // 64, 64, h * w).transpose(-1, -2).unbind(1)
            y = functional.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, h, w)
            return x + self.out(y)

    class Unet(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
            self.down = nn.ModuleList((Residual(width, width), Residual(width, 2 * width), Residual(2 * width, 4 * width)))
            self.attend = nn.ModuleList((nn.Identity(), Attention(2 * width), Attention(4 * width)))
            self.middle = nn.Sequential(Residual(4 * width, 4 * width), Attention(4 * width), Residual(4 * width, 4 * width))
            self.up = nn.ModuleList((Residual(8 * width, 2 * width), Residual(4 * width, width), Residual(2 * width, width)))

        def forward(self, x):
            x, kept = self.into(x), []
            for down, attend in zip(self.down, self.attend):
                x = attend(down(x))
                kept.append(x)
                x = functional.avg_pool2d(x, 2)
            x = self.middle(x)
            for up in self.up:
                x = functional.interpolate(x, scale_factor=2.0)
                x = up(torch.cat([x, kept.pop()], 1))
            return self.out(x)
    with on_gpu():
        net = Unet().to(torch.bfloat16).to(memory_format=torch.channels_last)
        x = torch.randn(batch, 4, size, size, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    return training(net, (x,), mean_square) if trains else inference(net, (x,))


def graph(nodes, edges, width, trains):
    """Three layers of message passing: gather by the edges' beginnings, add up at their ends."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

        def forward(self, x, begins, ends):
            for layer in self.layers:
                x = torch.relu(layer(torch.zeros_like(x).index_add(0, ends, x.index_select(0, begins)) + x))
            return x
    with on_gpu():
        net = Net()
        inputs = torch.randn(nodes, width), torch.randint(nodes, (edges,)), torch.randint(nodes, (edges,))
    return training(net, inputs, mean_square) if trains else inference(net, inputs)


def gemm(width, batch, dtype):
    from torch import nn
    return network(lambda: nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(4))), (batch, width), dtype, False)


def small(batch, trains):
    import torch
    from torch import nn
    with on_gpu():
        net = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(256, 256), nn.ReLU())))
        x = torch.randn(batch, 256)
    if not trains:
        return inference(net, (x,))
    return training(net, (x,), mean_square, torch.optim.Adam(net.parameters(), lr=1e-4, capturable=True))


def video(batch, dtype, trains):
    import torchvision
    return network(lambda: torchvision.models.video.r3d_18(weights=None), (batch, 3, 16, 112, 112), dtype, trains)


def volume(batch, size, dtype, trains, width=16, levels=3):
    """An autoencoder of medical scans: convolutions in three dimensions, down and up again."""
    from torch import nn

    def stage(before, after, conv, **how):
        return nn.Sequential(conv(before, after, **how), nn.InstanceNorm3d(after, affine=True), nn.LeakyReLU(0.01))

    def make():
        down = [width << i for i in range(levels + 1)]
        layers = [stage(1, width, nn.Conv3d, kernel_size=3, padding=1)]
        for a, b in [*zip(down, down[1:]), *zip(down[::-1], down[-2::-1])]:
            resize = (nn.Conv3d, nn.ConvTranspose3d)[a > b]
            layers += [stage(a, b, resize, kernel_size=2, stride=2), stage(b, b, nn.Conv3d, kernel_size=3, padding=1)]
        return nn.Sequential(*layers, nn.Conv3d(width, 1, 1))
    return network(make, (batch, 1, size, size, size), dtype, trains)


def wavenet(batch, dtype, trains, samples=16000, width=64, layers=24):
    """Speech: gated convolutions over samples; the distance of the samples doubles from layer to layer."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.into, self.out = nn.Conv1d(1, width, 1), nn.Conv1d(width, 256, 1)
            self.gates = nn.ModuleList(nn.Conv1d(width, 2 * width, 2, dilation=1 << i % 8) for i in range(layers))
            self.mixes = nn.ModuleList(nn.Conv1d(width, 2 * width, 1) for _ in range(layers))

        def forward(self, x):
            x, skipped = self.into(x), 0
            for gate, mix in zip(self.gates, self.mixes):
                a, b = gate(functional.pad(x, (gate.dilation[0], 0))).chunk(2, 1)
                a, b = mix(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
                x, skipped = x + a, skipped + b
            return self.out(torch.relu(skipped))
    return network(Net, (batch, 1, samples), dtype, trains)


def experts(tokens, trains, width=1024, n=8, taken=2):
    """A layer of experts. Each has room for a fixed number of tokens, so that the host need not know the routes."""
    import torch
    from torch import nn

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(width, n, bias=False)
            self.up = nn.Parameter(torch.randn(n, width, 4 * width) / width ** 0.5)
            self.down = nn.Parameter(torch.randn(n, 4 * width, width) / width ** 0.5 / 2)
            self.slots = torch.arange(tokens * taken * 5 // (4 * n))

        def forward(self, x):
            weights = self.router(x).float().softmax(-1)
            best, which = weights.topk(taken, -1)
            chosen = torch.zeros_like(weights).scatter(1, which, 1.0)
            slot = (chosen.cumsum(0) * chosen - 1).unsqueeze(-1)
            place = (slot == self.slots).to(x.dtype)
            gathered = torch.einsum("tes,tw->esw", place, x)
            y = torch.bmm(nn.functional.silu(torch.bmm(gathered, self.up)), self.down)
            weights = (chosen * weights / best.sum(-1, keepdim=True)).to(x.dtype)
            return torch.einsum("tes,esw->tw", place * weights.unsqueeze(-1), y)
    return network(Experts, (tokens, width), "bfloat16", trains)


def attention(tokens, dtype, trains, heads=8, width=64):
    """Attention alone, over a long text."""
    import torch
    from torch import nn

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.ParameterList(nn.Parameter(torch.randn(1, heads, tokens, width, dtype=dtype)) for _ in range(3))

        def forward(self):
            return nn.functional.scaled_dot_product_attention(*self.qkv, is_causal=True)
    dtype = getattr(torch, dtype)
    with on_gpu():
        net = Attention()
    return training(net, (), mean_square) if trains else inference(net, ())


def fourier(batch, size, width=32, modes=16, layers=4):
    """A Fourier neural operator, which multiplies the lowest frequencies by weights."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList(nn.Parameter(torch.randn(width, width, modes, modes, 2) / width) for _ in range(layers))
            self.mixes = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))

        def forward(self, x):
            for weight, mix in zip(self.weights, self.mixes):
                low = torch.fft.rfft2(x)[:, :, :modes, :modes]
                low = torch.einsum("bixy,ioxy->boxy", low, torch.view_as_complex(weight))
                low = nn.functional.pad(torch.view_as_real(low), (0, 0, 0, size // 2 + 1 - modes, 0, size - modes))
                x = nn.functional.gelu(torch.fft.irfft2(torch.view_as_complex(low), s=(size, size)) + mix(x))
            return x
    return network(Net, (batch, width, size, size), "float32", True)


def long_convolution(batch, tokens, width=256):
    """Convolves each channel with a filter as long as the text, by FFT."""
    import torch
    with on_gpu():
        x, gate = torch.randn(batch, width, tokens), torch.randn(batch, width, tokens)
        kernel = torch.randn(width, tokens) / tokens

    def compute():
        y = torch.fft.irfft(torch.fft.rfft(x, n=2 * tokens) * torch.fft.rfft(kernel, n=2 * tokens))[..., :tokens]
        return y * torch.sigmoid(gate)
    return computing(compute)


def sorting(keys, rows):
    import torch
    with on_gpu():
        long, short = torch.randint(1 << 40, (keys,)), torch.randn(rows, 4096)
    return computing(lambda: (long[long.sort()[1]], short.sort(-1)))


def scans(n):
    import torch
    with on_gpu():
        x, asked = torch.rand(n), torch.rand(n // 16) * (n // 2)
    table = x.view(4096, -1)
    return computing(lambda: (torch.searchsorted(x.cumsum(0), asked), table.cumsum(0), table.cummax(1)))


def heat(size, times, dtype):
    """The heat equation on a square, as programs with arrays write it."""
    import torch
    with on_gpu():
        u = torch.rand(size, size, dtype=getattr(torch, dtype))

    def compute():
        for _ in range(times):
            u[1:-1, 1:-1] += 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return computing(compute)


def monte_carlo(paths, times):
    """The price of an option, from random prices of a share."""
    import torch
    with on_gpu():
        begin = torch.full((paths,), 100.0)

    def compute():
        price, total = begin, torch.zeros_like(begin)
        for _ in range(times):
            price = price * torch.exp(0.01 * torch.randn_like(price) - 0.00005)
            total += price
        return torch.relu(total / times - 101).mean()
    return computing(compute)


def conjugate_gradients(n, times):
    import torch
    with on_gpu():
        matrix = torch.randn(n, n, dtype=torch.float64).mul_(0.1 / n)
        matrix.diagonal().add_(1)
        b = torch.randn(n, dtype=torch.float64)

    def compute():
        x, r, p = torch.zeros_like(b), b, b
        rr = r.dot(r)
        for _ in range(times):
            q = matrix.mv(p)
            a = rr / p.dot(q)
            x, r = x + a * p, r - a * q
            rr, before = r.dot(r), rr
            p = r + rr / before * p
        return x
    return computing(compute)


def int8(width, batch, layers=4):
    """Layers whose weights and inputs are rounded to eight bits."""
    import torch
    with on_gpu():
        weights = [torch.randint(-127, 128, (width, width), dtype=torch.int8) for _ in range(layers)]
        x = torch.randn(batch, width, dtype=torch.bfloat16)

    def compute(y):
        for weight in weights:
            scale = y.abs().amax(-1, keepdim=True) / 127
            product = torch._int_mm((y / scale).round().clamp(-127, 127).to(torch.int8), weight.t())
            y = torch.nn.functional.gelu((product * (scale / (73 * width ** 0.5))).to(torch.bfloat16))
    return computing(compute, x)


def gan(batch, width=64):
    """A generator of pictures, and the network that judges them, one after the other."""
    from torch import nn

    def make():
        layers, widths = [nn.ConvTranspose2d(128, 8 * width, 4)], [8 * width, 4 * width, 2 * width, width]
        for a, b in zip(widths, widths[1:] + [3]):
            layers += [nn.BatchNorm2d(a), nn.ReLU(), nn.ConvTranspose2d(a, b, 4, stride=2, padding=1)]
        layers += [nn.Tanh(), nn.Conv2d(3, width, 4, stride=2, padding=1)]
        for b, a in zip(widths[-2::-1], widths[::-1]):
            layers += [nn.LeakyReLU(0.2), nn.Conv2d(a, b, 4, stride=2, padding=1), nn.BatchNorm2d(b)]
        return nn.Sequential(*layers, nn.LeakyReLU(0.2), nn.Conv2d(8 * width, 1, 4))
    return network(make, (batch, 128, 1, 1), "float32", True)


def capture(step):
    """Returns a step that replays what this one does, as PyTorch's notes on CUDA graphs say."""
    import torch
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(FIRST_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    getattr(step, "forget", lambda: None)()  # a graph's gradients have to be of its own memory
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()

    def replay(kept=step):  # the graph uses the memory that the step holds
        captured.replay()
    return replay


class Model:
    """A job that can run. seconds: of a step alone. interval: of a server, seconds from one request to the next, else 0."""

    def __init__(self, step, is_graph):
        self.step, self.is_graph = step, is_graph
        self.seconds = self.interval = 0.0

    def group(self):
        """How many steps one event observes: more of short ones, so that events cost the host little."""
        return 1 if self.interval else min(max(1, int(GROUP_S / self.seconds)), GROUP_MAX)


class Worker:
    def __init__(self, budget, answers):
        import torch
        self.torch, self.budget, self.answers = torch, budget, answers
        self.jobs = {job.name: job for job in JOBS}
        self.models = {}  # name: Model; the last one was used last
        self.peaks = {}  # name: the most bytes that it had
        self.name = None
        torch.manual_seed(1)
        torch.backends.mha.set_fastpath_enabled(False)
        torch.zeros(1, device="cuda")

    def answer(self, text):
        self.answers.write(text.replace("\n", " ")[:400] + "\n")
        self.answers.flush()

    def drop(self, name):
        self.models.pop(name, None)
        gc.collect()
        self.torch.cuda.empty_cache()

    def job(self, name, interval_us):
        if name not in self.models:
            # A graph's memory counts as reserved only: what its step frees stays with the graph.
            while self.models and self.torch.cuda.memory_reserved() + self.peaks.get(name, NEEDED) > self.budget:
                self.drop(next(iter(self.models)))
            try:
                self.models[name] = self.make(name)
            except self.torch.cuda.OutOfMemoryError:
                for other in list(self.models):
                    self.drop(other)
                self.models[name] = self.make(name)
            self.torch.cuda.empty_cache()
        self.models[name] = model = self.models.pop(name)
        self.name = name
        share = self.jobs[name].share
        if share:
            model.interval = (interval_us or max(round(model.seconds / share * 1e6), 1)) / 1e6
        self.answer(f"job {round(model.interval * 1e6)} {model.seconds:.9f} {'graph' if model.is_graph else 'eager'}")

    def build(self, name):
        step = self.jobs[name].make()
        if name.endswith("eager"):
            return Model(step, False)
        try:
            return Model(capture(step), True)
        except self.torch.cuda.OutOfMemoryError:
            raise
        except Exception as e:  # noqa: BLE001 - PyTorch has many errors for what a graph cannot hold
            print(f"{name} cannot be captured as a graph, and runs eagerly: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
        return Model(self.jobs[name].make(), False)  # half a capture may have left anything in the first one

    def make(self, name):
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()
        before, least = self.torch.cuda.memory_reserved(), AGAIN_S if name in self.peaks else FIRST_S
        self.torch.cuda.reset_peak_memory_stats()
        model = self.build(name)
        for _ in range(FIRST_STEPS):
            model.step()
        self.torch.cuda.synchronize()
        self.peaks[name] = max(0, self.torch.cuda.max_memory_reserved() - before)
        began, n = time.monotonic(), 0
        while n < FIRST_STEPS or time.monotonic() - began < least:
            model.step()
            n += 1
            if n % FIRST_STEPS == 0:
                self.torch.cuda.synchronize()
        self.torch.cuda.synchronize()
        model.seconds = (time.monotonic() - began) / n
        return model

    def run(self, seconds, at_ns):
        """Counts the steps between at_ns and so many seconds later, in parts at its edges: the events' times tell."""
        model, at, count, flying = self.models[self.name], at_ns / 1e9, 0.0, []
        event, group = self.torch.cuda.Event, model.group()
        time.sleep(max(0.0, at - WARM_S - time.monotonic()))
        base = event(enable_timing=True)
        base.record()
        base.synchronize()
        begins = at - time.monotonic()
        ends, done, asked = begins + seconds, 0.0, at - WARM_S
        while True:
            if model.interval:  # a request waits if those before it are not answered
                asked += model.interval
                time.sleep(max(0.0, asked - time.monotonic()))
            over = time.monotonic() >= at + seconds
            if not over or model.interval:  # the first answer after the end tells of the time since the last one before
                for _ in range(group):
                    model.step()
                flying.append(event(enable_timing=True))
                flying[-1].record()
            while flying and (over or len(flying) >= AHEAD):
                oldest = flying.pop(0)
                oldest.synchronize()
                finished = base.elapsed_time(oldest) / 1e3
                if finished > done:
                    count += group * max(0.0, min(finished, ends) - max(done, begins)) / (finished - done)
                done = finished
            if over:
                break
        self.answer(f"ran {count:.6f}")

    def describe(self, path):
        """Writes what PyTorch's profiler knows of the kernels."""
        from torch.profiler import ProfilerActivity, profile
        model = self.models[self.name]
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            for _ in range(PROFILED_STEPS):
                model.step()
            self.torch.cuda.synchronize()
        with tempfile.NamedTemporaryFile(suffix=".json") as trace:
            profiler.export_chrome_trace(trace.name)
            with open(trace.name, encoding="utf-8") as f:
                events = json.load(f)["traceEvents"]
        sm_threads, processors = 2048, self.torch.cuda.get_device_properties(0).multi_processor_count
        found, whole, launches = {}, 0.0, 0
        for e in events:
            if e.get("cat") != "kernel":
                continue
            a = e["args"]
            key = (e["name"][:120], tuple(a.get("grid", (1, 1, 1))), tuple(a.get("block", (1, 1, 1))), a.get("registers per thread", 0),
                   a.get("shared memory", 0))
            n, seconds = found.get(key, (0, 0.0))
            found[key] = n + 1, seconds + e["dur"] / 1e6
            whole += e["dur"] / 1e6
            launches += 1
        kernels = []
        for (name, grid, block, registers, shared), (n, seconds) in sorted(found.items(), key=lambda item: -item[1][1])[:KERNELS_MAX]:
            threads = block[0] * block[1] * block[2]
            blocks = max(1, min(32, sm_threads // threads, 65536 // max(1, max(registers, 16) * threads), 233472 // (shared + 1024)))
            kernels.append({"name": name, "grid": grid, "block": block, "registers": registers, "shared_bytes": shared, "local_bytes": 0,
                            "blocks_per_sm": blocks, "occupancy": min(1.0, blocks * threads / sm_threads),
                            "waves": grid[0] * grid[1] * grid[2] / blocks / processors, "launches_per_step": n / PROFILED_STEPS,
                            "seconds": seconds / n, "share": seconds / whole, "graph": model.is_graph})
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"kernels": kernels, "memory": {"peak_bytes": self.peaks[self.name]},
                       "launches_per_step": launches / PROFILED_STEPS, "busy_s_per_step": whole / PROFILED_STEPS,
                       "other_share": max(0.0, 1 - sum(k["share"] for k in kernels))}, f)
        self.answer("described")

    def obey(self, words):
        try:
            if words[:1] == ["job"]:
                self.job(words[1], int(words[2]))
            elif not self.name:
                self.answer("failed no job")
            elif words[:1] == ["run"]:
                self.run(float(words[1]), int(words[2]))
            elif words[:1] == ["memory"]:
                self.answer(f"memory {self.peaks[self.name]}")
            elif words[:1] == ["describe"]:
                self.describe(words[1])
            else:
                self.answer("failed no such order")
        except Exception as e:  # noqa: BLE001 - a model that fails must not end the others
            self.answer(f"failed {type(e).__name__}: {e}")
            if "CUDA error" in str(e) and "out of memory" not in str(e):
                sys.exit(1)  # such errors stay


def main(argv):
    if argv[1:] == ["list"]:
        for job in JOBS:
            print(job.name, job.family)
        return 0
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # libraries that print do not disturb the answers
    try:
        worker = Worker(int(argv[2]), answers)
    except Exception as e:  # noqa: BLE001
        answers.write(f"failed {type(e).__name__}: {e}".replace("\n", " ")[:400] + "\n")
        answers.flush()
        return 1
    worker.answer("ready")
    for line in sys.stdin:
        if line.split()[:1] == ["quit"]:
            break
        worker.obey(line.split())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
