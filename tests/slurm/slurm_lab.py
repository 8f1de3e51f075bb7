"""`lockstep launch` under a real Slurm: workers, agents, nodes and batch hosts are lost, time ends,
jobs are cancelled, slurmctld goes, under every policy. Each time: the decision of docs/SLURM.md,
the losses of the undisturbed run, the exit status of the contract, and nothing left behind.

  slurm_lab.py [CASE…] [-CASE…]    all cases, or those whose name contains one of the words, without
                                   those whose name contains one that follows a minus
"""
import concurrent.futures
import json
import signal
import sys
import time

import lab
from lockstep_run import (SOURCE_DIR, Test, check, check_same, committed, metrics, program, send,
                          step_of, wait_until, whole_curve)
from slurm_run import KEYS, POLICIES, STEPS, Job, submit

NODES = 15
AT_ONCE = 4

# A step on one node of two, which is not the batch host. (A job of one node has no other.)
ON_THE_OTHER_NODE = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
trap ':' TERM
other="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -vx "$SLURMD_NODENAME")"
srun --no-kill --kill-on-bad-exit=0 --wait=0 --mpi=none --nodes=1 --ntasks=1 --nodelist="$other" \\
  "$LOCKSTEP" launch $RUN_WORDS
"""
WITHOUT_SCONTROL = """#!/bin/bash
#SBATCH --nodes=1
srun --mpi=none --ntasks=1 /usr/bin/env PATH=/nowhere "$LOCKSTEP" launch $RUN_WORDS
"""
# As `lockstep submit` writes it, but that it waits before it starts the agents of one start.
AFTER_A_WORD = f"""#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --no-kill
echo "the script of start ${{SLURM_RESTART_COUNT:-0}} runs"
while [[ "${{SLURM_RESTART_COUNT:-0}}" == "$START" && ! -e "$GO" ]]; do sleep 0.1; done
source "{SOURCE_DIR}/sbatch_files/common.sh"
launch $RUN_WORDS
"""
# A worker that computes wrongly from step 50 on, on the third node of its job.
WRONG_ON_ONE_NODE = """#!/bin/bash
if [[ "$SLURM_NODEID" == 2 ]]; then export LOCKSTEP_FLIP_BIT="50 -1 0 77 22 1"; fi
exec "$WORKER" "$@"
"""
ARRAY = """#!/bin/bash
#SBATCH --nodes=1
#SBATCH --array=1-2
#SBATCH --requeue
srun --mpi=none --ntasks=1 "$LOCKSTEP" launch $RUN_WORDS \\
  --job.dump_folder="$RUN_FOLDER/$SLURM_ARRAY_TASK_ID"
"""


class Cases:
    def __init__(self, cluster, test):
        self.cluster, self.test = cluster, test
        self.reference = whole_curve(test.train("reference", 1, KEYS), STEPS)

    def job(self, name, *words, **options):
        name = name.replace(", ", "_").replace(" ", "_")
        return submit(self.cluster, self.test, name, words, **options)

    def same_losses(self, job):
        check_same(self.reference, whole_curve(job.folder, STEPS), job.name)

    def job_of(self, nodes, name, *words, **options):
        """A job of several nodes, each with an agent and one worker."""
        return self.job(name, f"--nodes={nodes}", *words, nproc=1, **options)

    def goes_on_by_hand(self, job):
        """What the user does after an end with 75: the same again."""
        again = self.job(job.name + "_again", folder=job.folder)
        again.expect("COMPLETED", "0:0")
        self.same_losses(again)

    def goes_on_requeued(self, job, node, nodes=1):
        """Slurm starts it again without `node`, which comes back in the meantime."""
        with job.held(8, start=1, nodes=nodes):
            self.cluster.node_back(node)
        job.expect("COMPLETED", "0:0", restarts=1, or_more=True)
        self.same_losses(job)

    def is_saved(self, job):
        check(step_of(committed(job.folder)[0]) == metrics(job.folder)[-1]["step"],
              f"its last step is not saved\n{job.describe()}")

    # ---- worker, agent ----
    def worker_then_agent_lost(self, policy):
        job = self.job(f"worker, agent {policy}", *POLICIES[policy])
        with job.held(8) as now:
            send(now.workers[now.coordinator][1], signal.SIGKILL)
        job.wait(lambda: job.events("recovered"), "the workers go on")
        with job.held(50) as now:
            send(now.agents[now.coordinator], signal.SIGKILL)
        job.expect("COMPLETED", "0:0")
        self.same_losses(job)
        job.must_say(f", {policy}", "killed by SIGKILL", "launch 1 of 4 ended with status 1")

    # ---- node: in a job of one node, its batch host and all it has ----
    def node_lost(self, policy):
        job = self.job(f"node {policy}", *POLICIES[policy])
        with job.held(8) as now:
            node = now.coordinator
            self.cluster.kill_node(node)
        if policy.startswith("requeue"):
            self.goes_on_requeued(job, node)
        else:
            job.expect("NODE_FAIL")
            self.cluster.node_back(node)
            self.goes_on_by_hand(job)

    # ---- the batch host of two nodes, while the run is on the other one ----
    def batch_host_lost(self, policy):
        words = ["--requeue" if policy.startswith("requeue") else "--no-requeue"]
        header = "#SBATCH --no-kill" if policy.endswith("no-kill") else "#SBATCH --no-kill=off"
        job = self.job(f"batch host {policy}", *words,
                       script=ON_THE_OTHER_NODE.replace("#SBATCH", f"{header}\n#SBATCH", 1))
        with job.held(8):
            host = job.info()["BatchHost"]
            if policy.endswith("no-kill"):
                self.cluster.kill_node(host)
            else:
                job.is_told_to_stop(lambda: self.cluster.kill_node(host))
        if policy.endswith("no-kill"):
            job.wait(lambda: job.events("done"), "the run is done without the batch host")
            self.same_losses(job)
            # Nobody waits for the agent any more: without its scancel the job would stay RUNNING.
            job.expect("CANCELLED")
            self.cluster.node_back(host)
        elif policy.startswith("requeue"):
            self.goes_on_requeued(job, host)
        else:
            # Slurm sends TERM and waits KillWait before it kills: the workers save.
            job.expect("NODE_FAIL")
            self.cluster.node_back(host)
            self.is_saved(job)
            self.goes_on_by_hand(job)

    # ---- several nodes, an agent each ----
    def worker_agent_coordinator_lost(self, policy):
        """One after the other, of three nodes: three, then two, then one go on."""
        job = self.job_of(3, f"of three {policy}", *POLICIES[policy])
        for step, nodes, victim in ((8, 3, "worker"), (40, 3, "agent"), (75, 2, "coordinator")):
            with job.held(step, nodes=nodes) as now:
                others = sorted(set(now.agents) - {now.coordinator})
                pid = {"worker": now.workers[others[0]][0], "agent": now.agents[others[0]],
                       "coordinator": now.agents[now.coordinator]}[victim]
                moment = time.time()
                send(pid, signal.SIGKILL)
            job.goes_on(moment, f"{victim} (SIGKILL)")
        job.expect("COMPLETED", "0:0")
        self.same_losses(job)
        sizes = {line["generation"]: line["world_size"] for line in metrics(job.folder)}
        check([sizes[key] for key in sorted(sizes)][:4] == [3, 3, 2, 1], sizes)
        check(len(job.events("recovered")) == 3, job.describe())
        job.must_say(f", {policy}", "this node coordinates the job from now on")

    def lost_at_once(self, now, *nodes):
        """None of them sees another one's end, and the others hear from none of them any more."""
        for node in nodes:
            now.freeze(node)
        for node in nodes:
            self.cluster.kill_node(node)

    def majority_lost(self, policy, minimum):
        """Three of five nodes at once, the batch host and the coordinator among them. The two that
        are left meet anew, and go on when they are enough; else they speak for the job."""
        job = self.job_of(5, f"majority of five, {minimum} needed {policy}",
                          f"--min-nodes={minimum}", *POLICIES[policy],
                          keys={"launcher.last_call_seconds": 2}, outlives_srun=True)
        with job.held(8, nodes=5) as now:
            host = job.info()["BatchHost"]
            lost = list(dict.fromkeys([host, now.coordinator, *now.agents]))[:3]
            moment = time.time()
            self.lost_at_once(now, *lost)
        if minimum <= 2:
            job.goes_on(moment, "majority")
            job.wait(lambda: job.events("done"), "the run is done by two of five")
            check(metrics(job.folder)[-1]["world_size"] <= 2, job.describe())
            job.expect("CANCELLED")
            job.must_say(f"the batch script ran on {host}")
        elif policy.startswith("requeue"):
            job.wait(lambda: job.info()["Restarts"] != "0", "the requeue")
            print(f"       {job.name}: requeued {time.time() - moment:.1f} s after the loss",
                  flush=True)
        else:
            job.expect("CANCELLED")
            print(f"       {job.name}: ended {time.time() - moment:.1f} s after the loss",
                  flush=True)
            job.must_say("of 3 nodes joined", f"the batch script ran on {host}")
        for node in lost:
            self.cluster.node_back(node)
        if minimum <= 2:
            self.same_losses(job)
        elif policy.startswith("requeue"):
            job.expect("COMPLETED", "0:0", restarts=1)
            job.must_say("of 3 nodes joined", "is requeued")
            self.same_losses(job)
        else:
            self.goes_on_by_hand(job)

    def leaders_lost(self, policy):
        """The coordinator and both that could take its place, at once: three of seven nodes."""
        job = self.job_of(7, f"leaders of seven {policy}", *POLICIES[policy],
                          keys={"launcher.last_call_seconds": 2}, outlives_srun=True)
        with job.held(8, nodes=7) as now:
            others = [node for node in now.agents if node != now.coordinator]
            heirs = [others[1], others[4]]  # Formation::standbys
            moment = time.time()
            self.lost_at_once(now, now.coordinator, *heirs)
            lost, host = (now.coordinator, *heirs), job.info()["BatchHost"]
        job.goes_on(moment, "coordinator and both standbys")
        job.wait(lambda: job.events("done"), "the run is done by four of seven")
        check(metrics(job.folder)[-1]["world_size"] <= 4, job.describe())
        job.must_say("rejoining the surviving nodes")
        if host in lost:
            job.expect("CANCELLED")
        else:
            job.expect("COMPLETED", "0:0")
        for node in lost:
            self.cluster.node_back(node)
        self.same_losses(job)

    def silent_node_lost(self, victim, policy):
        """Nothing tells that it is gone, it does not answer. Slurm hears of it later."""
        job = self.job_of(3, f"{victim} of three {policy}", *POLICIES[policy])
        with job.held(8, nodes=3) as now:
            host = job.info()["BatchHost"]
            node = {"batch host": host, "coordinator": now.coordinator,
                    "node": next(name for name in sorted(now.agents)
                                 if name not in (host, now.coordinator))}[victim]
            moment = time.time()
            now.freeze(node)
        job.goes_on(moment, f"{victim} (silent)")
        with job.held(8, nodes=2):
            if policy.endswith(", kill"):
                job.is_told_to_stop(lambda: self.cluster.kill_node(node))
            else:
                self.cluster.kill_node(node)
        if policy == "requeue, kill":
            self.goes_on_requeued(job, node, nodes=3)
        elif policy == "no-requeue, kill":
            job.expect("NODE_FAIL")
            self.cluster.node_back(node)
            self.is_saved(job)
            self.goes_on_by_hand(job)
        else:
            self.goes_on_without(job, node, node == host)

    def cut_off(self, policy):
        """A node wakes up when the others have finished: it leaves with 75, the job does not."""
        job = self.job_of(3, f"cut off {policy}", *POLICIES[policy])
        with job.held(8, nodes=3) as now:
            host = job.info()["BatchHost"]
            node = next(name for name in sorted(now.agents) if name not in (host, now.coordinator))
            now.freeze(node)
        job.wait(lambda: job.events("done"), f"the run is done without {node}")
        now.wake(node)
        job.expect("COMPLETED", "0:0")
        said = json.loads((job.folder / "slurm_end.json").read_text())
        check(said == {"launch": f"{job.id}.0.1", "exit_status": 0}, said)
        job.must_say("Exited with exit code 75")
        self.same_losses(job)

    def goes_on_without(self, job, node, batch_host):
        """Until the end. Without the batch host nobody waits for the agents: it takes scancel."""
        job.wait(lambda: job.events("done"), f"the run is done without {node}")
        if batch_host:
            job.expect("CANCELLED")
        else:
            job.expect("COMPLETED", "0:0")
        self.cluster.node_back(node)
        self.same_losses(job)

    def is_requeued(self, job):
        """By us, once; the second start ends the run."""
        job.expect("COMPLETED", "0:0", restarts=1)
        job.must_say("is requeued")
        self.same_losses(job)

    def below_the_minimum(self, policy):
        job = self.job_of(2, f"two needed {policy}", "--min-nodes=2", *POLICIES[policy],
                          keys={"launcher.last_call_seconds": 2})
        with job.held(8, nodes=2) as now:
            send(next(agent for node, agent in now.agents.items() if node != now.coordinator),
                 signal.SIGKILL)
        if policy.startswith("requeue"):
            self.is_requeued(job)
        else:
            job.expect("FAILED", "75:0")
            job.must_say("1 nodes are left and 2 are needed",
                         "to resume from the newest checkpoint: ")
            self.goes_on_by_hand(job)

    # ---- signals ----
    def usr1(self, policy, nodes=1):
        job = self.job_of(nodes, f"usr1 of {nodes} {policy}", *POLICIES[policy])
        with job.held(8, nodes=nodes):
            job.is_told_to_stop(lambda: lab.must("scancel", "--signal=USR1", job.id))
        if policy.startswith("requeue"):
            self.is_requeued(job)
        else:
            job.expect("FAILED", "75:0")
            self.is_saved(job)
            job.must_say("to resume from the newest checkpoint: "
                         f"cd {job.home} && sbatch {job.home}/")
            self.goes_on_by_hand(job)

    def time_limit(self, policy):
        """Slurm looks at its clock each 30 s. With USR1 it sends that at its next look, long before
        the limit; without it TERM comes when the limit is over, and KillWait of grace."""
        warned = policy.startswith("no-requeue")
        job = self.job(f"time limit {policy}", "--time=60", *(["--signal=USR1@600"] * warned),
                       *POLICIES[policy])
        with job.held(8):
            job.is_told_to_stop(lambda: lab.must("scontrol", "update", f"jobid={job.id}",
                                                 f"EndTime=now+{500 if warned else 1}"))
        if policy.startswith("requeue"):
            job.wait(lambda: lab.run("scontrol", "update", f"jobid={job.id}",
                                     "TimeLimit=UNLIMITED")[0] == 0, "a new time limit")
            self.is_requeued(job)
            job.must_say("DUE TO TIME LIMIT")
        else:
            job.expect("FAILED", "75:0")
            check("DUE TO TIME LIMIT" not in job.log(), job.describe())
            check(job.events("stop_requested")[0]["reason"] == "SIGUSR1", job.describe())
            self.goes_on_by_hand(job)

    def limit_without_a_signal(self, policy):
        """Slurm's signal says nothing to an agent: whoever coordinates asks what time is left when
        it begins to. The grace is longer than the job, so half of its time gets the last save."""
        job = self.job_of(3, f"limit without a signal {policy}", "--time=60", "--signal=URG@1",
                          *POLICIES[policy],
                          environment={"LOCKSTEP_OVERRIDES": "--launcher.grace_seconds 3000"})
        with job.held(8, nodes=3) as now:
            lab.must("scontrol", "update", f"jobid={job.id}", "EndTime=now+100")
            send(now.agents[now.coordinator], signal.SIGKILL)
        # Held, as a run of this size would be done before half of the shortest time is over.
        with job.held(8, nodes=2):
            job.is_told_to_stop(lambda: None)
        told = job.events("stop_requested")[0]["reason"]
        check(told == "the allocation is about to end", told)
        job.must_say(" left until the time limit at 20")
        job.must_say("the allocation is shorter than launcher.grace_seconds")
        job.expect("FAILED", "75:0")
        self.goes_on_by_hand(job)

    def scancel(self, policy):
        job = self.job(f"scancel {policy}", *POLICIES[policy])
        with job.held(8):
            job.is_told_to_stop(lambda: lab.must("scancel", job.id))
        job.expect("CANCELLED")
        # The agents have ended: whoever could have asked Slurm for a requeue has done so.
        info = job.info()
        check(info["JobState"] == "CANCELLED" and info["Restarts"] == "0", f"it came back: {info}")
        check("is requeued" not in job.log(), job.describe())
        self.is_saved(job)
        self.goes_on_by_hand(job)

    # ---- the rest ----
    def guard(self, policy):
        """Each start loses a worker and may not go on with fewer: below the minimum."""
        keys = {"checkpoint.enable": "false", "launcher.on_worker_loss": "shrink",
                "launcher.min_nproc": 2}
        job = self.job(f"guard {policy}", *POLICIES[policy], keys=keys)
        starts = 3 if policy.startswith("requeue") else 1
        for start in range(starts):
            with job.held(2, start=start) as now:
                send(now.all_workers()[0], signal.SIGKILL)
        if starts == 1:
            job.expect("FAILED", "75:0")
        else:
            job.expect("FAILED", "93:0", restarts=2)
            job.must_say("not requeued: the job has started 3 times without a new checkpoint")

    def not_started(self, start):
        """A node's slurmd is away when srun starts the agents of the job's first start, or of the
        one that follows a requeue; the next launch finds it."""
        go = self.test.folder / f"go_{start}"
        job = self.job_of(2, f"not started, {start}", *["--requeue"] * start, script=AFTER_A_WORD,
                          environment={"GO": str(go), "START": str(start)})
        if start == 1:
            with job.held(8, nodes=2):
                job.is_told_to_stop(lambda: lab.must("scancel", "--signal=USR1", job.id))
        job.wait(lambda: f"the script of start {start} runs" in job.log(), f"start {start}")
        host, nodes = job.info()["BatchHost"], lab.must("scontrol", "show", "hostnames",
                                                        job.info()["NodeList"]).split()
        away = next(node for node in nodes if node != host)
        self.cluster.stop_node(away)
        go.write_text("")
        job.wait(lambda: "srun could not start the agents" in job.log(), "srun fails")
        self.cluster.node_back(away)
        job.expect("COMPLETED", "0:0", restarts=start)
        job.must_say("launch 1 of 4: srun could not start the agents (status 233)",
                     "the next launch starts in 15 s")
        said = json.loads((job.folder / "slurm_end.json").read_text())
        check(said == {"launch": f"{job.id}.{start}.2", "exit_status": 0}, said)
        check({line["world_size"] for line in metrics(job.folder)} == {2}, job.describe())
        self.same_losses(job)

    def array(self):
        folder = self.test.folder / "runs" / "array"
        script = ARRAY.replace("$RUN_FOLDER", str(folder))
        array = self.job("array", script=script)
        first, second = (Job(self.cluster, "array", f"{array.id}_{task}", folder / task, array.home)
                         for task in ("1", "2"))
        with first.held(8):
            first.is_told_to_stop(lambda: lab.must("scancel", "--signal=USR1", first.id))
        first.expect("COMPLETED", "0:0", restarts=1)
        second.expect("COMPLETED", "0:0")
        self.same_losses(first)
        self.same_losses(second)

    def evicted(self):
        """An audit finds the node that computes wrongly; the others go on without it, from the
        newest checkpoint that is audited, not from those that were saved meanwhile, and with the
        losses of the undisturbed run."""
        worker = self.test.folder / "wrong_on_one_node"
        worker.write_text(WRONG_ON_ONE_NODE.replace("$WORKER", program("lockstep-flip-worker")))
        worker.chmod(0o755)
        job = self.job_of(3, "evicted", keys={"audit.interval": 20, "audit.action": "evict",
                                             "checkpoint.interval": 5},
                          environment={"LOCKSTEP_WORKER": str(worker)})
        job.expect("COMPLETED", "0:0")
        lines, (barred,) = metrics(job.folder), job.events("node_barred")
        done = max(line["step"] for line in lines if line["t"] < barred["t"])
        again = next(line for line in lines if line["t"] > barred["t"])
        wrong = next(line for line in lines if line["step"] == 50)
        print(f"       {job.name}: wrong from step 50 on, found in step {done + 1}, goes on with "
              f"step {again['step']}, {again['t'] - wrong['t']:.2f} s after the wrong one and "
              f"{again['t'] - barred['t']:.2f} s after it was found: {barred['reason']}",
              flush=True)
        marked = json.loads((job.folder / "checkpoints/suspect.json").read_text())["suspect"]
        check([(each["after_step"], each["found_at_step"]) for each in marked] == [(40, 60)],
              marked)
        check(done == 59 and again["step"] <= 41 and lines[-1]["world_size"] == 2, done, again,
              job.describe())
        last = {line["step"]: (line["loss_hex"], line["grad_norm_hex"]) for line in lines}
        check_same(self.reference, last, job.name)

    def without_scontrol(self):
        job = self.job("without scontrol", script=WITHOUT_SCONTROL)
        job.expect("COMPLETED", "0:0")
        job.must_say("cannot ask Slurm about this job",
                     "cannot tell whether the job may be requeued",
                     "cannot tell whether --no-kill is set")
        self.same_losses(job)

    def controller_down(self):
        """Runs alone: nobody else gets an answer meanwhile."""
        job = self.job("controller down", "--requeue")
        stopped = self.job("controller down, USR1", "--requeue")
        with job.held(8) as now, stopped.held(8) as then:
            self.cluster.stop_controller()
            moment = time.monotonic()
            send(now.all_workers()[0], signal.SIGKILL)
            stopped.is_told_to_stop(lambda: send(then.agents[then.coordinator], signal.SIGUSR1))
        job.wait(lambda: job.events("recovered"), "the recovery does not ask Slurm")
        print(f"       recovered {time.monotonic() - moment:.1f} s after the kill: "
              f"{job.events('recovered')[0]['reason']}")
        job.wait(lambda: "cannot ask Slurm about this job" in job.log(),
                 "the end does not wait for Slurm")
        stopped.wait(lambda: "not requeued: " in stopped.log(), "no requeue without slurmctld")
        self.cluster.start_controller()
        job.expect("COMPLETED", "0:0")
        stopped.expect("FAILED", "75:0")
        self.same_losses(job)
        self.goes_on_by_hand(stopped)


def all_cases(cases):
    """Those that take the longest first."""
    requeue, no_requeue = "requeue, no-kill", "no-requeue, no-kill"
    yield "guard: requeue", lambda: cases.guard(requeue)
    for policy in ("requeue, kill", no_requeue):
        yield f"time limit: {policy}", lambda policy=policy: cases.time_limit(policy)
    for policy in POLICIES:
        for kind in ("node_lost", "batch_host_lost", "worker_then_agent_lost",
                     "worker_agent_coordinator_lost"):
            yield (f"{kind.replace('_', ' ')}: {policy}",
                   lambda kind=kind, policy=policy: getattr(cases, kind)(policy))
        for victim in ("node", "batch host", "coordinator"):
            yield (f"{victim} of three, silent: {policy}",
                   lambda victim=victim, policy=policy: cases.silent_node_lost(victim, policy))
    yield (f"limit without a signal: {no_requeue}",
           lambda: cases.limit_without_a_signal(no_requeue))
    for policy in (requeue, no_requeue):
        for kind in ("usr1", "scancel", "below_the_minimum"):
            yield (f"{kind.replace('_', ' ')}: {policy}",
                   lambda kind=kind, policy=policy: getattr(cases, kind)(policy))
        yield f"usr1 of three: {policy}", lambda policy=policy: cases.usr1(policy, 3)
        for minimum in (1, 3):
            yield (f"majority of five lost, {minimum} needed: {policy}",
                   lambda policy=policy, minimum=minimum: cases.majority_lost(policy, minimum))
    yield (f"coordinator and both standbys lost: {no_requeue}",
           lambda: cases.leaders_lost(no_requeue))
    yield f"node of three, cut off: {no_requeue}", lambda: cases.cut_off(no_requeue)
    for start in (0, 1):
        yield (f"not started, {'requeued' if start else 'new'}",
               lambda start=start: cases.not_started(start))
    yield "evicted", cases.evicted
    yield "array", cases.array
    yield "too few workers: no-requeue", lambda: cases.guard(no_requeue)
    yield "without scontrol", cases.without_scontrol


def wanted(name):
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    without = [word[1:] for word in sys.argv[1:] if word.startswith("-")]
    return (not words or any(word in name for word in words)) and \
        not any(word in name for word in without)


lab.enter()
with Test("slurm_lab") as test, lab.Lab(NODES) as cluster:
    cases = Cases(cluster, test)
    chosen = [(name, body) for name, body in all_cases(cases) if wanted(name)]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for name, body in chosen:
            pool.submit(test.run_case, name, body)
    if wanted("slurmctld down"):
        test.run_case("slurmctld down", cases.controller_down)
    with test.case("nobody listens any more"):
        wait_until(lambda: lab.listeners() <= cluster.ports, "ports of jobs to be closed")
