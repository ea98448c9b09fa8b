"""PyTorch: tensors sent to another process and back, as DataLoader workers and parameter servers do. The consumer is
started anew (spawn), so that it has a CUDA context of its own."""

import os

import torch
import torch.multiprocessing as mp

import common

SIZES = [1, 1000, 100_000, 3_000_000, 50_000_000]
ROUNDS = 6


def consume(tasks, answers):
    """Adds up each tensor that it gets, changes it in place, and sends a tensor of its own back."""
    kept = []
    while True:
        task = tasks.get()
        if task is None:
            break
        total = task.double().sum().item()
        task.mul_(-1)
        torch.cuda.synchronize()
        mine = torch.arange(task.numel() % 1000 + 1, device="cuda", dtype=torch.float32)
        kept.append(mine)  # kept until the other side has released it
        answers.put((total, mine))
        del task, mine
        torch.cuda.ipc_collect()
    kept.clear()


def exchange():
    context = mp.get_context("spawn")
    tasks, answers = context.Queue(), context.Queue()
    child = context.Process(target=consume, args=(tasks, answers))
    child.start()
    torch.manual_seed(1)
    ballast = [torch.randint(0, 1 << 30, (1 << 28,), device="cuda", dtype=torch.int32)
               for _ in range(int(os.environ.get("BALLAST_GIB", "1")))]
    before = [b.sum().item() for b in ballast]
    for i in range(ROUNDS):
        sent = [torch.randn(n, device="cuda") + i for n in SIZES]
        for k, t in enumerate(sent + [sent[3][1000:2000], sent[4].view(1000, -1)[:, 7]]):  # also parts of sent tensors
            copy = t.clone()
            tasks.put(t)
            total, theirs = answers.get(timeout=120)
            assert torch.equal(t, -copy), "it was not changed in place"
            common.result(f"round {i}, tensor {k}", t.cpu(), theirs.cpu(), torch.tensor(total))
            del theirs
            t.mul_(-1)  # restores the tensor
        del sent, t, copy
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()
    tasks.put(None)
    child.join(60)
    assert child.exitcode == 0, child.exitcode
    assert [b.sum().item() for b in ballast] == before


if __name__ == "__main__":
    common.run({"exchange": exchange})
