"""The device plugin among hostile strangers, and beside a hostile API server, daemon and node. The tables are in
hostile_plugin.py and hostile_node.py."""

import pytest

import habits
import hostile_node
import kubelet
from hostile_plugin import Target
from node import LATE, MUSL, add_process
from world import SANITIZER

pytestmark = pytest.mark.skipif(bool(kubelet.MISSING), reason=kubelet.MISSING or "")
MEMORY_KIB = 48 << 10  # the manifests' limit is 64 MiB


def check_memory(target):
    print(f"{target.memory_kib()} KiB of anonymous memory, {target.memory_kib('VmHWM')} KiB of memory at most")
    if not SANITIZER:
        assert target.memory_kib("VmHWM") <= MEMORY_KIB


SIDES = {"strangers": (("grpc", "client"), 40), "api_server": (("api",), 70), "daemon": (("daemon",), 20), "folders": (("folder",), 15)}


@pytest.mark.parametrize("side", SIDES)
def test_kubelet_is_served_beside_hostile(world, side):
    kinds, least = SIDES[side]
    target = Target(world, kinds=kinds)
    try:
        wrong, (seconds, name), tried = habits.run(target)
        print(f"{tried} habits; the bystander waited for {seconds:.2f} s at most, beside {name}")
        print("\n".join(f"{habit}: {what}" for habit, what in wrong.items()))
        assert not wrong, wrong
        assert tried >= least
        check_memory(target)
    finally:
        target.close()


def test_kubelet_is_served_beside_hostile_processes(world):
    """The plugin looks at them once before it registers. It has looked at all when it tells of the last."""
    def add(node):
        for n, (_, f) in enumerate(hostile_node.PROCESSES):
            f(node, 1000 * (n + 1))
        node.api.put(kubelet.pod("late", LATE))
        add_process(node, 99999, LATE, loader=MUSL)

    target = Target(world, kinds=[], before=add)
    try:
        target.node.says("default/late runs on musl")
        target.begun("processes")
        target.ask()
        target.ended("processes")
        said = target.plugin.err()
        assert said.count("runs on musl") == 2 and "is unhealthy" not in said
        assert said.replace("\n", "").isprintable()
        check_memory(target)
    finally:
        target.close()
