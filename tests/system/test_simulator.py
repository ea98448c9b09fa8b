"""The simulated driver as people use it: sessions of several users, settings that come too late, and what the command line
says there."""

import os
import pty
import subprocess
import sys

import pytest

import others
from others import BUILD, as_user
from world import NO_PYTHON, World, wait_for

SUBLET = os.path.join(BUILD, "sublet")
JOB = os.path.join(BUILD, "sublet-demo-job")
ALICE, BOB = others.LAST - 20001, others.LAST - 20002


@pytest.fixture
def machine():
    m = World(memory="256MiB")
    os.chmod(m.root, 0o755)
    m.env["XDG_RUNTIME_DIR"] = m.path("runtime")
    os.mkdir(m.path("runtime"), 0o700)
    del m.env["LD_LIBRARY_PATH"], m.env["SUBLET_DIR"], m.env["SIMCUDA_SESSION"]
    yield m
    m.env["SIMCUDA_SESSION"] = m.session
    m.env["LD_LIBRARY_PATH"] = os.path.join(BUILD, "sim")
    m.close()


@others.needed
def test_two_users_take_turns_on_a_session_of_all_users(machine):
    machine.session = "+" + machine.session
    sim, place = f"--sim=session={machine.session}", machine.path("lab")
    daemon = machine.start([SUBLET, "run", sim, "--", os.path.join(BUILD, "subletd"), "--shared", "--dir", place])
    wait_for(lambda: os.path.exists(os.path.join(place, "client.sock")), 30, "the daemon", report=daemon.report)
    programs = [machine.start([*as_user(uid), SUBLET, "run", sim, "--daemon", place, "--", JOB, "140MiB", "1", "3", ".3"])
                for uid in (ALICE, BOB)]
    assert all("done" in p.ok().out() for p in programs)
    gpu = machine.status(place)["gpus"][0]
    assert gpu["handoffs"] > 0
    machine.sublet("stop", "--daemon", place)
    assert daemon.wait() == 0


def test_a_setting_that_comes_too_late_is_said_to_be_ignored(machine):
    sim = f"--sim=session={machine.session}"
    first = machine.start([SUBLET, "run", sim, "--", JOB, "10MiB"])
    wait_for(lambda: "pause" in first.out(), 30, "the first program", report=first.report)
    done = machine.sublet("run", f"{sim},memory=1GiB", "--", JOB, "10MiB", "1", "1", "0")
    assert done.returncode == 0 and "SIMCUDA_MEMORY=1GiB is ignored" in done.stderr
    assert "1 x 256 MiB" in done.stderr and len(done.stderr.splitlines()) == 1
    assert machine.sublet("run", sim, "--", JOB, "10MiB", "1", "1", "0").stderr == ""
    assert str(first.pid) in machine.sublet("status", sim).stdout
    assert machine.sublet("stop", sim).returncode == 0


@pytest.mark.parametrize("jump", ["+1 year", "-10 days"])
@pytest.mark.parametrize("shared", [False, True], ids=["plain", "sublet"])
def test_a_program_whose_clock_jumps_does_not_hold_up_the_next_ones(world, jump, shared):
    """libfaketime gives each process another CLOCK_MONOTONIC. The bus of the session has one time for all."""
    if shared:
        world.start_daemon()
    world.program("fill", "--rounds", "2", shared=shared).ok()
    world.program("fill", "--rounds", "2", shared=shared, before=("faketime", jump)).ok()
    world.program("fill", "--rounds", "2", shared=shared).ok()


def test_env_speaks_to_a_terminal_and_doctor_knows_the_simulator_afterwards(machine):
    sim = f"--sim=session={machine.session}"
    lines = subprocess.run([SUBLET, "env", sim], env=machine.env, capture_output=True, text=True, timeout=60)
    assert lines.returncode == 0 and lines.stderr == "", "a script gets nothing but the variables"
    done = subprocess.run(["sh", "-c", f"{lines.stdout}\n{SUBLET} doctor"], env=machine.env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, text=True, timeout=60)
    assert "simulated driver" in done.stdout and "NVIDIA driver" not in done.stdout
    assert "warn  no daemon" not in done.stdout
    master, slave = pty.openpty()
    done = subprocess.run([SUBLET, "env", sim], env=machine.env, stdout=slave, stderr=subprocess.PIPE, text=True,
                          timeout=60)
    os.close(slave)
    os.close(master)
    assert 'eval "$(sublet env' in done.stderr and "    unset " in done.stderr and " LD_PRELOAD " in done.stderr
    assert "statically linked programs then run unshared" in done.stderr and "built for musl do not start" in done.stderr
    assert "sublet doctor names those" in machine.sublet("help", "env").stdout


WRITER = r"""
import ctypes, os, sys, time
cu = ctypes.CDLL("libcuda.so.1")
def call(name, *a):
    r = getattr(cu, name)(*a)
    assert r == 0, (name, r)
class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]
class Prop(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("meta", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]
class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]
u64, MIB2 = ctypes.c_uint64, 2 << 20
call("cuInit", 0)
context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuModuleLoadData", ctypes.byref(module), open(sys.argv[1], "rb").read() + b"\0")
call("cuModuleGetFunction", ctypes.byref(function), module, b"count")
prop = Prop(type=1, handles=1, location=Location(1, 0))
access = Access(Location(1, 0), 3)
def mapped(handle):
    at = u64()
    call("cuMemAddressReserve", ctypes.byref(at), ctypes.c_size_t(MIB2), ctypes.c_size_t(0), u64(0), u64(0))
    call("cuMemMap", at, ctypes.c_size_t(MIB2), ctypes.c_size_t(0), handle, u64(0))
    call("cuMemSetAccess", at, ctypes.c_size_t(MIB2), ctypes.byref(access), ctypes.c_size_t(1))
    return at
def word(at):
    v = ctypes.c_uint32()
    call("cuMemcpyDtoHAsync_v2", ctypes.byref(v), at, ctypes.c_size_t(4), side)
    call("cuStreamSynchronize", side)
    return v.value
flag, device = ctypes.c_void_p(), u64()
call("cuMemHostAlloc", ctypes.byref(flag), ctypes.c_size_t(4096), 2)
end = ctypes.c_uint32.from_address(flag.value + 4)
count = ctypes.c_uint32.from_address(flag.value)
call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), flag, 0)
side, stream = ctypes.c_void_p(), ctypes.c_void_p()
call("cuStreamCreate", ctypes.byref(side), 1)
call("cuStreamCreate", ctypes.byref(stream), 1)
for _ in range(20):
    handle, again, fd = u64(), u64(), ctypes.c_int()
    call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(MIB2), ctypes.byref(prop), u64(0))
    at = mapped(handle)
    call("cuMemsetD8_v2", at, 0, ctypes.c_size_t(MIB2))
    call("cuCtxSynchronize")
    end.value = count.value = 0
    a, b = u64(device.value), u64(at.value)
    params = (ctypes.c_void_p * 2)(ctypes.addressof(a), ctypes.addressof(b))
    call("cuLaunchKernel", function, 1, 1, 1, 1, 1, 1, 0, stream, params, None)
    while count.value < 1000: time.sleep(0.001)
    call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, 1, u64(0))
    call("cuMemImportFromShareableHandle", ctypes.byref(again), ctypes.c_void_p(fd.value), 1)
    os.close(fd.value)
    other = mapped(again)
    seen = count.value
    while count.value < seen + 1000: time.sleep(0.001)
    end.value = 1
    call("cuStreamSynchronize", stream)
    assert word(at) == word(other) == count.value, (word(at), word(other), count.value)
print("right")
"""

COUNT = """.version 6.0
.target sm_50
.address_size 64
.visible .entry count(.param .u64 host, .param .u64 word)
{
.reg .u64 %h, %w;
.reg .u32 %n, %m, %end;
.reg .pred %more;
ld.param.u64 %h, [host];
ld.param.u64 %w, [word];
mov.u32 %n, 0;
LOOP:
add.u32 %n, %n, 1;
ld.volatile.global.u32 %m, [%w];
add.u32 %m, %m, 1;
st.volatile.global.u32 [%w], %m;
st.volatile.global.u32 [%h], %n;
ld.volatile.global.u32 %end, [%h+4];
setp.eq.u32 %more, %end, 0;
@%more bra LOOP;
ret;
}
"""


@pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))
def test_memory_exported_under_a_kernel_that_writes_it_loses_no_byte(world):
    """The kernel counts in memory that becomes a file meanwhile, and the count is the same in both mappings."""
    for name, text in (("writer.py", WRITER), ("count.ptx", COUNT)):
        with open(world.path(name), "w", encoding="ascii") as f:
            f.write(text)
    assert world.start([sys.executable, world.path("writer.py"), world.path("count.ptx")]).ok().out() == "right\n"


WAITER = r"""
import ctypes, time
cu = ctypes.CDLL("libcuda.so.1")
def call(name, *a):
    r = getattr(cu, name)(*a)
    assert r == 0, (name, r)
context, host, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(4096), 2)
call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), host, 0)
streams = [ctypes.c_void_p() for _ in range(2)]
for s in streams:
    call("cuStreamCreate", ctypes.byref(s), 1)
call("cuStreamWaitValue32_v2", streams[0], device, 1, 0)
call("cuStreamWriteValue32_v2", streams[1], ctypes.c_uint64(device.value + 4), 1, 0)
time.sleep(0.3)
print("behind" if cu.cuStreamQuery(streams[1]) else "beside")
ctypes.c_uint32.from_address(host.value).value = 1
for s in streams:
    call("cuStreamSynchronize", s)
"""


@pytest.mark.skipif(NO_PYTHON is not None, reason=str(NO_PYTHON))
@pytest.mark.parametrize("connections, place", [("", "beside"), ("1", "behind"), ("2", "beside")])
def test_a_wait_holds_up_later_work_of_its_connection(world, connections, place):
    with open(world.path("waiter.py"), "w", encoding="ascii") as f:
        f.write(WAITER)
    assert world.start([sys.executable, world.path("waiter.py")], CUDA_DEVICE_MAX_CONNECTIONS=connections).ok().out() == place + "\n"
