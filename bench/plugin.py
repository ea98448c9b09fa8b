#!/usr/bin/env python3
"""Measures the device plugin on the simulated driver: how long Allocate takes with 200 devices, how long after a restart of
kubelet the plugin is registered again, and its memory. The goals are 20 ms at the 99th percentile, 2 s, and 20 MB. The
kubelet is that of the tests, whose own time is in the figures. Prints a readable line and a JSON line.

    plugin.py BUILD [--allocates N] [--restarts N]"""

import argparse
import json
import os
import re
import sys


def percentile(sorted_values, part):
    return sorted_values[min(int(len(sorted_values) * part), len(sorted_values) - 1)]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    arguments.add_argument("build")
    arguments.add_argument("--allocates", type=int, default=1000)
    arguments.add_argument("--restarts", type=int, default=5)
    a = arguments.parse_args()
    os.environ["SUBLET_BUILD"] = a.build
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tests", "system"))
    from kubelet import MISSING, PLUGIN, Kubelet
    from world import World, cpu_s

    if MISSING:
        sys.exit(MISSING)
    world = World(gpus=2)
    try:
        world.start_daemon()
        kubelet = Kubelet(world.path("kubelet"))
        plugin = world.start([PLUGIN, "--dir", world.dir, "--kubelet-dir", kubelet.folder])
        devices = kubelet.await_devices(lambda e: e["healthy"], "the devices")["healthy"]
        request = {"container_requests": [{"devices_ids": devices}]}
        kubelet.ask(bench="Allocate", request=request, times=50)  # both programs warm up
        before = cpu_s(plugin.pid)
        ms = sorted(kubelet.ask(bench="Allocate", request=request, times=a.allocates)["response"])
        cpu_ms = (cpu_s(plugin.pid) - before) / a.allocates * 1000
        # What a call costs that does nothing: the rest is gRPC, Node.js and this machine's other work.
        nothing = sorted(kubelet.ask(bench="GetDevicePluginOptions", request={}, times=a.allocates)["response"])
        back = []
        for _ in range(a.restarts):
            kubelet.restart()
            back.append(kubelet.await_event("register")["at"] - kubelet.of("ready")[0]["at"])
        with open(f"/proc/{plugin.pid}/status", encoding="ascii") as f:
            memory = dict(re.findall(r"^(\w+):\s+(\d+) kB$", f.read(), re.M))
        kubelet.kill()
    finally:
        world.close()
    found = {"devices": len(devices), "allocates": len(ms), "p50_ms": percentile(ms, 0.5), "p99_ms": percentile(ms, 0.99),
             "max_ms": ms[-1], "cpu_ms": cpu_ms,
             "nothing_p50_ms": percentile(nothing, 0.5), "nothing_p99_ms": percentile(nothing, 0.99),
             "registered_s": max(back), "rss_kb": int(memory["VmRSS"]), "anonymous_kb": int(memory["RssAnon"])}
    print(f"{found['allocates']} times Allocate of {found['devices']} devices: {found['p50_ms']:.2f} ms at the median, "
          f"{found['p99_ms']:.2f} ms at the 99th percentile, at most {found['max_ms']:.2f} ms; {cpu_ms:.2f} ms of the plugin's "
          f"processor time each. A call that does nothing: {found['nothing_p50_ms']:.2f} and {found['nothing_p99_ms']:.2f} ms. "
          f"Registered at most {found['registered_s']:.3f} s after kubelet was back. {found['rss_kb']} kB resident, "
          f"{found['anonymous_kb']} kB of it anonymous")
    print(json.dumps(found))


main()
