"""Jobs of a real Slurm share the simulated card: srun, sbatch, salloc with --sublet."""

import glob
import os
import signal

import pytest

import others
import slurm as slurm_module
from slurm import LIBRARY
from world import BUILD, GENEROUS_S, MIB, wait_for

pytestmark = pytest.mark.skipif(slurm_module.MISSING is not None, reason=str(slurm_module.MISSING))


@pytest.fixture
def slurm(world):
    world.start_daemon("--shared", config={"quantum": "200ms"})
    s = slurm_module.Slurm(world)
    yield s
    s.close()


def fill(world, mib, seed, *more):
    return [os.path.join(BUILD, "programs", "fill"), "--bytes", f"{mib}MiB", "--block", "8MiB", "--seed", str(seed),
            "--sample", world.path(f"sample-{seed}"), "--sample-bytes", "1MiB", *more]


def hold(mib):
    return [os.path.join(BUILD, "programs", "hold"), "--bytes", f"{mib}MiB", "--block", "4MiB"]


def sums(program):
    return {e["round"]: e["sum"] for e in program.events("round")}


def client(world, job):
    """Waits for the job's program to be a client of the daemon. Returns its row of the status."""
    return wait_for(lambda: [c for c in world.clients().values() if c["slurm_job"] == str(job)], GENEROUS_S, "the job's program",
                    report=world.status_text)[0]


def touch(path):
    with open(path, "w", encoding="utf-8"):
        pass


def test_two_jobs_past_memory_have_the_results_of_undisturbed_runs(world, slurm):
    end = world.path("end")
    assert world.sublet("set", "quantum", "100ms").returncode == 0
    jobs = [slurm.srun("--sublet", *fill(world, 72, seed, "--until", end)) for seed in (1, 2)]
    wait_for(lambda: world.handoffs() >= 4, GENEROUS_S, "4 hand-offs", interval=0.05,
             report=lambda: jobs[0].report() + jobs[1].report())
    assert {c["slurm_job"] for c in world.clients().values()} == {str(n) for n in slurm.classes()}
    touch(end)
    for p in jobs:
        p.ok()
        assert p.err() == ""
    slurm.nothing_left()
    for seed, p in enumerate(jobs, 1):
        assert world.check_sums(p) >= 2
        alone = world.program("fill", *fill(world, 72, seed, "--rounds", str(len(sums(p))))[1:], shared=False).ok()
        assert sums(alone) == sums(p)


def test_a_job_gets_what_its_account_may_have(world, slurm):
    slurm.limit("[default]\nmemory_cap_most = 40MiB\n[account physics]\nminimum_most = 30%\nmemory_cap_most = 64MiB\n"
                "priority_most = 3\n")
    p = slurm.srun("-A", "physics", "--sublet=share=0.5,cap=20G,priority=3", *hold(20), SLURM_JOB_ACCOUNT="chemistry")
    p.await_event("filled")
    now = client(world, 1)
    assert (now["memory_cap"], now["priority"], now["class"]) == (64 * MIB, 3, "slurm-1"), now
    assert "minimum = 30.0%" in slurm.classes()[1]
    p.finish()
    assert p.err() == ("sublet: job 1 gets a minimum of 30% instead of 50%, a memory cap of 64 MiB instead of 20 GiB: its "
                       "account may have no more\n")
    p = slurm.srun("-A", "chemistry", "--sublet", *hold(20), SLURM_JOB_ACCOUNT="physics")  # a user can write that
    p.await_event("filled")
    now = client(world, 2)
    assert (now["memory_cap"], now["priority"], now["class"]) == (40 * MIB, 0, "slurm-2"), now
    p.finish()
    slurm.limit("[default]\nmemory_cap_most = 100MiB\nminimum_most = lots\n")
    p = slurm.srun("--sublet=share=0.5", *hold(60))
    p.await_event("filled")
    assert "minimum" not in slurm.classes()[3]
    p.finish()
    assert "cannot be read" in p.err() and "a minimum of 0% instead of 50%" in p.err()
    slurm.nothing_left()


def test_the_job_that_comes_last_goes_without_a_minimum_that_others_have(world, slurm):
    slurm.limit("[default]\nminimum_most = 60%\n")
    jobs = []
    for share in ("0.6", "0.5"):
        jobs.append(slurm.srun(f"--sublet=share={share},cap=48MiB", *hold(20)))
        jobs[-1].await_event("filled")
    assert {c["class"]: c["memory_cap"] for c in world.clients().values()} == {"slurm-1": 48 * MIB, "slurm-2": 48 * MIB}
    assert "minimum = 60.0%" in slurm.classes()[1] and "minimum" not in slurm.classes()[2]
    for p in jobs:
        p.finish()
    assert [p.err() for p in jobs] == ["", "sublet: job 2 gets no minimum of the GPU's time on this node, because other classes "
                                           "have it\n"]
    slurm.nothing_left()


def test_each_node_of_a_job_sets_it_up(world):
    world.start_daemon("--shared")
    slurm = slurm_module.Slurm(world, nodes=2)
    try:
        done = slurm.run("srun", "--quiet", "-N2", "-n4", "--sublet=cap=64MiB,priority=2", "sh", "-c",
                         f"echo $SLURMD_NODENAME $LD_PRELOAD; test -s {world.dir}/conf.d/60-slurm-$SLURM_JOB_ID.conf")
        assert done.returncode == 0, done.stderr
        assert set(done.stdout.split()) == {*slurm.nodes, LIBRARY}, done.stdout
        assert done.stderr.count("priority 0 instead of 2") == 2, done.stderr  # one line from each node
        slurm.nothing_left()
    finally:
        slurm.close()


def test_a_job_over_its_cap_is_told_in_one_sentence(world, slurm):
    p = slurm.srun("--sublet=cap=40MiB", *hold(60))
    assert p.wait() != 0
    told = [line for line in p.err().splitlines() if "out of memory" in line.lower() and "40 MiB" in line]
    assert len(told) == 1, p.report()
    slurm.nothing_left()


def test_a_cancelled_job_leaves_nothing_and_the_other_goes_on(world, slurm):
    jobs = [slurm.srun("-J", f"job{seed}", "--sublet", *fill(world, 96, seed, "--until", world.path("end"))) for seed in (1, 2)]
    wait_for(lambda: world.handoffs() >= 2, GENEROUS_S, "2 hand-offs", report=world.status_text)
    assert slurm.run("scancel", "--name=job1").returncode == 0
    assert jobs[0].wait() != 0
    wait_for(lambda: len(slurm.classes()) == 1, GENEROUS_S, "the job's file to go")
    touch(world.path("end"))
    assert world.check_sums(jobs[1].ok()) >= 2
    slurm.nothing_left()


def test_a_job_keeps_its_class_when_the_daemon_restarts(world, slurm):
    first = slurm.srun("--sublet=cap=64MiB", *hold(20))
    first.await_event("filled")
    world.daemon.send(9)
    world.daemon.wait()
    second = slurm.srun("--sublet=cap=48MiB", *hold(20))  # no daemon answers now
    wait_for(lambda: len(slurm.classes()) == 2, GENEROUS_S, "the second job's file")
    world.start_daemon("--shared", config={"quantum": "200ms"})
    second.await_event("filled")
    wait_for(lambda: sorted(c["memory_cap"] for c in world.clients().values()) == [48 * MIB, 64 * MIB], GENEROUS_S, "both caps",
             report=world.status_text)
    for p in (first, second):
        p.order("verify")
        p.finish()
        assert p.err() == ""
    slurm.nothing_left()


STEPS = """#!/bin/sh
#SBATCH --sublet=cap=64MiB,weight=0.5
#SBATCH --ntasks=2
{show} batch $LD_PRELOAD
srun -n2 sh -c '{show} task $SLURM_PROCID $LD_PRELOAD' &
LD_PRELOAD=libdl.so.2 srun -n1 --overlap sh -c '{show} own $LD_PRELOAD $XLA_PYTHON_CLIENT_PREALLOCATE' &
srun -n1 --overlap --sublet=off sh -c '{show} off $LD_PRELOAD.' &
wait
{show} class $(grep -c cap {conf}/60-slurm-$SLURM_JOB_ID.conf)
srun -n1 {fill}
"""


def test_all_steps_and_tasks_of_a_batch_script_run_under_sublet(world, slurm):
    script = STEPS.format(show="echo", conf=os.path.join(world.dir, "conf.d"), fill=" ".join(fill(world, 40, 1)))
    _, out = slurm.sbatch(script, "--array=1-2", "-o", os.path.join(slurm.root, "job-%A_%a.out"))
    slurm.nothing_left()
    for task in ("1", "2"):
        with open(out.replace(".out", f"_{task}.out"), encoding="utf-8") as f:
            said = f.read()
        for line in (f"batch {LIBRARY}", f"task 0 {LIBRARY}", f"task 1 {LIBRARY}", f"own {LIBRARY}:libdl.so.2 false", "off .",
                     "class 1"):
            assert line in said.splitlines(), said
        assert '"round"' in said and "error" not in said, said


def test_a_bad_option_is_explained_before_the_job_is_submitted(world, slurm):
    slurm.write("job.sh", "#!/bin/sh\n#SBATCH --sublet=share=2\ntrue\n")
    for argv, said in ((["srun", "--sublet=cap=lots", "true"], "--sublet: cap is a size such as 20GiB, not 'lots'"),
                       (["salloc", "--sublet=memory=1G", "true"],
                        "--sublet does not know 'memory'; it takes share, weight, cap and priority, or off alone"),
                       (["sbatch", os.path.join(slurm.root, "job.sh")], "--sublet: share is MIN:MAX such as 0.2:0.8, not '2'")):
        done = slurm.run(*argv)
        assert done.returncode != 0 and len([l for l in done.stderr.splitlines() if said in l]) == 1, done.stderr
        assert "allocated" not in done.stderr + done.stdout and "Submitted" not in done.stdout
    done = slurm.run("salloc", "--sublet=cap=32MiB", "srun", "sh", "-c", f"echo $SLURM_JOB_ID; cat {world.dir}/conf.d/*.conf")
    assert done.stdout.startswith("1\n") and "memory_cap = 33554432B" in done.stdout, done  # the first job that there is


def test_the_administrator_says_what_follows_without_a_daemon(world, slurm):
    world.sublet("stop")
    os.rmdir(os.path.join(world.dir, "conf.d"))
    done = slurm.run("srun", "--sublet", "-n2", "sh", "-c", "echo $LD_PRELOAD.")
    assert (done.returncode, done.stdout) == (0, ".\n.\n"), done.stderr
    assert done.stderr == (f"sublet: no sublet daemon runs on this node: no {world.dir}/conf.d; the job runs without sublet\n")
    slurm.limit("[plugin]\non_failure = refuse\n")
    done = slurm.run("srun", "--quiet", "--sublet", "sh", "-c", "echo $LD_PRELOAD.")
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert "; the job ends, because it cannot run under sublet here" in done.stderr
    slurm.await_idle()  # it is no fault of the node
    assert slurm.run("srun", "true").returncode == 0


def test_jobs_need_not_ask_where_the_administrator_says_so(world, slurm):
    slurm.limit("[default]\nalways = yes\nmemory_cap_most = 40MiB\n[account trusted]\nalways = no\n")
    show = ("sh", "-c", f"echo $LD_PRELOAD; cat {world.dir}/conf.d/*.conf")
    done = slurm.run("srun", *show)
    assert done.stdout.startswith(LIBRARY) and "memory_cap = 41943040B" in done.stdout, done.stdout
    done = slurm.run("srun", "--sublet=off", *show)
    assert done.stdout.startswith(LIBRARY) and "sublet: --sublet=off: the administrator" in done.stderr, done.stderr
    done = slurm.run("srun", "-A", "trusted", *show)
    assert done.stdout == "\n", done.stdout
    slurm.nothing_left()


def kill_steps(slurm):
    """Kills slurmstepd of the only job. Returns the job's number."""
    (job,) = slurm.classes()
    lock = os.path.join(slurm.world.dir, "conf.d", f".60-slurm-{job}.lock")
    holders = set()
    for path in glob.glob("/proc/[0-9]*/fd/*"):
        try:
            if os.readlink(path) == lock:
                holders.add(int(path.split("/")[2]))
        except OSError:
            continue
    (holder,) = holders  # and no task has inherited it
    os.kill(holder, signal.SIGKILL)
    return job


def test_the_files_of_a_killed_step_go_when_the_next_job_starts(world, slurm):
    p = slurm.srun("--sublet", *hold(20))
    p.await_event("filled")
    job = kill_steps(slurm)
    assert list(slurm.classes()) == [job]
    assert slurm.run("srun", "--sublet", "true").returncode == 0
    assert job not in slurm.classes()
    slurm.run("scancel", str(job))
    slurm.nothing_left(killed=True)


def test_the_last_killed_step_leaves_nothing_when_its_job_ends(world, slurm):
    p = slurm.srun("--sublet", *hold(20))
    p.await_event("filled")
    kill_steps(slurm)
    slurm.run("scancel", "--user=root")
    slurm.nothing_left(killed=True)


@others.needed
def test_another_users_jobs_are_tenants_of_their_own(make_world):
    world = make_world()
    world.session = world.env["SIMCUDA_SESSION"] = "+" + world.session
    world.start_daemon("--shared")
    os.chmod(world.dir, 0o755)
    slurm = slurm_module.Slurm(world)
    slurm.limit("[default]\nmemory_cap_most = 64MiB\n")
    user = others.as_user(others.NOBODY)
    program = [os.path.join(others.BUILD, "programs", "hold"), *hold(20)[1:]]
    try:
        jobs = [slurm.srun("--sublet=priority=5", "--chdir=/", *program, before=user, XDG_CACHE_HOME=None,
                           LD_LIBRARY_PATH=os.path.join(others.BUILD, "sim")) for _ in range(2)]
        for p in jobs:
            p.await_event("filled")
        rows = list(world.clients().values())
        assert {c["slurm_job"] for c in rows} == {"1", "2"} and {c["class"] for c in rows} == {"slurm-1", "slurm-2"}
        assert {(c["memory_cap"], c["priority"]) for c in rows} == {(64 * MIB, 0)}
        for p in jobs:
            p.finish()
        slurm.nothing_left()
    finally:
        slurm.close()


def test_jobs_with_parts_of_a_gpu_run_together(world, slurm):
    """The example of docs/slurm.md: four parts of one GPU."""
    jobs = [slurm.srun("--gres=shard:2", "--sublet", *hold(20)) for _ in range(2)]
    for p in jobs:
        p.await_event("filled")
    third = slurm.srun("--gres=shard:1", "--sublet", *hold(20))
    wait_for(lambda: any("PENDING" in line for line in slurm.jobs()), GENEROUS_S, "the third job to wait for a part")
    whole = slurm.run("srun", "--immediate=1", "--gres=gpu:1", "--sublet", "true")
    assert whole.returncode != 0 and "Unable to allocate" in whole.stderr, whole.stderr
    jobs[0].finish()
    third.await_event("filled")
    for p in (jobs[1], third):
        p.finish()
    slurm.nothing_left()


def test_a_requeued_job_gets_its_class_again(world, slurm):
    end = world.path("end")
    job, out = slurm.sbatch("#!/bin/sh\n#SBATCH --sublet=cap=64MiB --requeue\nsrun " + " ".join(fill(world, 40, 1, "--until", end))
                            + "\n", "--open-mode=append")

    def rounds():
        try:
            with open(out, encoding="utf-8") as f:
                return f.read().count('"event":"filled"')
        except FileNotFoundError:
            return 0

    wait_for(lambda: rounds() == 1, GENEROUS_S, "the job to run")
    assert slurm.run("scontrol", "requeue", str(job)).returncode == 0
    wait_for(lambda: slurm.jobs() == [f"{job} PENDING"], GENEROUS_S, "the first run to end", report=lambda: str(slurm.jobs()))
    assert not slurm.files()
    assert slurm.run("scontrol", "update", f"JobId={job}", "StartTime=now").returncode == 0
    wait_for(lambda: rounds() == 2, GENEROUS_S, "the job to run again", report=lambda: str(slurm.jobs()))
    assert list(slurm.classes()) == [job]
    touch(end)
    slurm.nothing_left()
