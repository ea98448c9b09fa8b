#!/usr/bin/env python3
"""One inference job: a detector looks at pictures of all sizes, with a pause after each batch. It knows nothing of
sublet, nor of the memory that PyTorch keeps unused. The line "go" on stdin starts the job, "stop" ends it."""

import argparse
import json
import sys
import threading
import time

import torch
import torchvision

SIDES = (800, 864, 928, 992, 1056, 1120, 1216, 1333)  # sizes of pictures as in COCO


def say(event, **fields):
    print(json.dumps({"event": event, "t_ns": time.monotonic_ns(), **fields}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pause", type=float, default=0.5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.backends.cudnn.benchmark = False
    net = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).cuda().eval()
    host = torch.Generator().manual_seed(arguments.seed)
    pictures = [torch.rand(3, 800, side, generator=host) for side in SIDES]
    done = 0

    def look():
        nonlocal done
        side = int(torch.randint(len(SIDES), (1,), generator=host))
        with torch.no_grad():
            found = net([pictures[side].cuda() for _ in range(arguments.batch)])
        torch.cuda.synchronize()
        done += 1
        return len(found)

    for _ in range(3):
        look()
    say("ready", reserved=torch.cuda.max_memory_reserved(), allocated=torch.cuda.memory_allocated())
    sys.stdin.readline()
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
    done, began = 0, time.monotonic()
    while not stop.is_set():
        look()
        stop.wait(arguments.pause)
    say("done", iterations=done, seconds=time.monotonic() - began, reserved=torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
