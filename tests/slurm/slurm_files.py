"""Every script of sbatch_files: accepted as it is by `sbatch --test-only`, and run on the lab's
nodes with a tiny model on CPUs; `lockstep submit` and `lockstep sweep --submit` as well."""
import concurrent.futures
import json
import subprocess

import lab
from lockstep_run import (SOURCE_DIR, TINY, Test, check, check_same, curve, metrics, program,
                          whole_curve)
from slurm_run import KEYS, STEPS, Job, job_environment, run_words, submitted_id

NODES = 5
SUBMIT = str(SOURCE_DIR / "sbatch_files" / "submit")
SCRIPTS = sorted(path.stem for path in (SOURCE_DIR / "sbatch_files").glob("*.sbatch"))
EACH = {"NPROC_PER_NODE": "1"}  # workers of a node, of jobs on two
QUICK = TINY | {"training.steps": 8, "checkpoint.interval": 4}


class Files:
    def __init__(self, cluster, test):
        self.cluster, self.test = cluster, test
        self.environment = job_environment(cluster, test) | {"MY_USER": "somebody"}
        self.without_cuda = self.environment
        self.environment = self.environment | {"LOCKSTEP_WORKER": self.worker_that_says_cuda()}
        self.home = test.folder / "jobs"
        self.home.mkdir()
        self.tested = set()
        self.quick = curve(test.train("quick", 1, QUICK))

    def worker_that_says_cuda(self):
        """The scripts ask for GPUs, and the lab's are made of paper."""
        path = self.test.folder / "lockstep-worker"
        path.write_text('#!/bin/bash\n[[ "$*" != --version ]] || exec echo "LibTorch with CUDA"\n'
                        f'exec {program("lockstep-worker")} "$@"\n')
        path.chmod(0o755)
        return str(path)

    def gpus_without_cuda(self):
        """Refused before it is submitted; and by the agents, where nobody asked before."""
        refused = "computes on CPUs only"
        home = self.test.folder / "jobs_without_cuda"
        home.mkdir()
        done = subprocess.run([SUBMIT, "single_gpu"], cwd=home, env=self.without_cuda,
                              capture_output=True, text=True, check=False)
        check(done.returncode == 64 and refused in done.stderr, done)
        name = "lockstep-single-gpu"
        written = home / "logs" / name / "single_gpu.sbatch"
        folder = self.test.folder / "runs" / "without_cuda"
        there = {"SBATCH_FILES": str(SOURCE_DIR / "sbatch_files")}
        printed = lab.must("sbatch", written, *run_words(self.test, folder, QUICK), cwd=home,
                           environment=self.without_cuda | there)
        job = Job(self.cluster, name, submitted_id(printed), folder, written.parent)
        job.expect("FAILED", "64:0")
        job.must_say(refused)

    def submit(self, script, *options, keys=None, folder=None, words=None, **environment):
        """The job of a script that the user gave these sbatch options and this environment."""
        self.tested.add(script)
        folder = folder or self.test.folder / "runs" / script
        words = words or run_words(self.test, folder, QUICK if keys is None else keys)
        printed = lab.must(SUBMIT, script, "--exclusive", *options, "--", *words, cwd=self.home,
                           environment=self.environment | environment)
        name = f"lockstep-{script.replace('_', '-')}"
        return Job(self.cluster, name, submitted_id(printed), folder, self.home / "logs" / name)

    def as_they_are(self):
        for script in SCRIPTS:
            printed = lab.must(SUBMIT, script, "--test-only", cwd=self.home,
                               environment=self.environment)
            check("to start at" in printed, script, printed)
            written = self.home / "logs" / f"lockstep-{script.replace('_', '-')}" / \
                f"{script}.sbatch"
            text = written.read_text()
            check("--mail-user=somebody" in text and "$MY_USER" not in text, script, text[:900])
            check(f"--output=logs/{written.parent.name}/%x-%" in text, script, text[:900])

    def whole_run(self, script, *options, **environment):
        job = self.submit(script, *options, **environment)
        job.expect("COMPLETED", "0:0")
        check_same(self.quick, curve(job.folder), script)
        return job

    def two_nodes(self, script):
        job = self.whole_run(script, "--nodes=2", **EACH)
        check({line["world_size"] for line in metrics(job.folder)} == {2}, job.describe())

    def attention_fsdp(self):
        job = self.submit("attention_fsdp")
        folder = self.home / "results/training/attention_fsdp"
        for task in range(4):
            Job(self.cluster, job.name, f"{job.id}_{task}", folder, job.home).expect("COMPLETED",
                                                                                     "0:0")
        for strategy in ("fsdp", "ddp"):
            check_same(self.quick, curve(folder / f"{strategy}--fused_attention"), strategy)
        check_same(curve(folder / "fsdp--no_fused_attention"),
                   curve(folder / "ddp--no_fused_attention"), "no_fused_attention")
        for run in folder.iterdir():
            fused = json.loads((run / "run_args.json").read_text())["config"]["model"]
            check(fused["fused_attention"] == (not run.name.endswith("no_fused_attention")), run)

    def loss_ablation(self):
        folder = self.test.folder / "runs" / "ablation"
        job = self.submit("loss_ablation", ABLATION="--optimizer.lr 1e-4",
                          ABLATION_FOLDER=str(folder))
        job.expect("COMPLETED", "0:0")
        check_same(self.quick, curve(folder / "base"), "base")
        check(curve(folder / "ablated") != self.quick, "the ablation changes nothing")
        check("<svg" in (folder / "losses.svg").read_text(), job.describe())

    def largest_model(self):
        job = self.submit("largest_model", WORLD_SIZES="1 4", DEVICE_MEMORY="80GiB",
                          words=run_words(self.test, "unused", QUICK)[:-3])
        job.expect("COMPLETED", "0:0")
        job.must_say("== 1 GPUs", "== 4 GPUs", "Largest model")

    def chained_then_resumed(self):
        """The first of two is told that its time ends; the second one goes on, and is told too."""
        reference = whole_curve(self.test.train("chain_reference", 1, KEYS), STEPS)
        jobs = [self.submit("chained", keys=KEYS) for _ in range(2)]
        for job, step in zip(jobs, (8, 50)):
            with job.held(step):
                job.is_told_to_stop(lambda job=job: lab.must("scancel", "--signal=USR1", job.id))
            job.expect("FAILED", "75:0")
        resumed = self.submit("resume", "--nodes=2", keys=KEYS, folder=jobs[0].folder,
                              RUN=str(jobs[0].folder), **EACH)
        resumed.expect("COMPLETED", "0:0")
        resumed.must_say("step_000")
        check_same(reference, whole_curve(jobs[0].folder, STEPS), "chained, then resumed")

    def lockstep_submit(self):
        comment = "it's a \"nightly\" run, #1 --no-kill=off"
        words = [program("lockstep"), "submit", "--job-name=by_command", "--nodes=2",
                 "--comment", comment,
                 "--exclusive", *run_words(self.test, self.test.folder / "runs" / "by_command",
                                           QUICK)]
        shown = lab.must(*words, "--dry-run", cwd=self.home, environment=self.environment)
        check("#SBATCH --no-requeue\n" in shown, shown)
        check(not (self.home / "logs" / "by_command").exists(), "--dry-run wrote something")
        printed = lab.must(*words, cwd=self.home, environment=self.environment | EACH)
        check(printed.startswith(shown), printed)
        job = Job(self.cluster, "by_command", submitted_id(printed),
                  self.test.folder / "runs" / "by_command", self.home / "logs" / "by_command")
        told = lab.must("scontrol", "-o", "show", "job", job.id)
        check(f"Comment={comment} " in told, told)
        job.expect("COMPLETED", "0:0")
        job.must_say(", no-requeue, no-kill")
        check_same(self.quick, curve(job.folder), "lockstep submit")

    def staged(self):
        """The nodes' own disks are folders of theirs; what the loader says there goes with them."""
        name, libraries = "staged", self.test.folder / "libraries"
        libraries.mkdir()
        folder = self.test.folder / "runs" / name
        words = [program("lockstep"), "submit", "--stage", f"--job-name={name}", "--nodes=2",
                 "--exclusive", *run_words(self.test, folder, QUICK)]
        told = {"TMPDIR": str(self.cluster.disk), "LD_DEBUG": "libs",
                "LD_DEBUG_OUTPUT": str(libraries / "of")}
        printed = lab.must(*words, cwd=self.home, environment=self.without_cuda | EACH | told)
        job = Job(self.cluster, name, submitted_id(printed), folder, self.home / "logs" / name)
        job.expect("COMPLETED", "0:0")
        check_same(self.quick, curve(folder), name)
        for words in ("staging failed", "no complete pack", "sbcast ended"):
            check(words not in job.log(), job.describe())
        loaded = [line.split()[-1] for path in libraries.iterdir()
                  for line in path.read_text(errors="replace").splitlines()
                  if "calling init: " in line and line.endswith("/libtorch_cpu.so")]
        check(all(path.startswith(f"{self.cluster.disk}/lockstep-stage.") for path in loaded),
              loaded)
        nodes = {path.split("/lockstep-stage.")[1].split("/")[0] for path in loaded}
        check(len(nodes) == 2, loaded)
        left = list((self.cluster.folder / "disks").glob("*/*"))
        check(not left, left)

    def sweep(self):
        """An array of the two rows that can be run; the same call then finds nothing to do."""
        out = self.test.folder / "runs" / "sweep"
        words = [program("lockstep"), "sweep", *run_words(self.test, "unused", QUICK)[:-3],
                 "--over", "model.n_heads=4,7", "--over", "parallelism.strategy=ddp,full_shard",
                 "--out", out]
        submit = ["--submit", "--job-name=by_sweep", "--nodes=2", "--exclusive"]
        shown = lab.must(*words, *submit, "--dry-run", cwd=self.home, environment=self.environment)
        check("#SBATCH --array=0-1\n" in shown and not out.exists(), shown)
        status, printed = lab.run(*words, *submit, "--array=0-3", cwd=self.home,
                                  environment=self.environment)
        check(status == 64 and "a sweep counts its tasks itself" in printed, status, printed)
        printed = lab.must(*words, *submit, "--array=%1", cwd=self.home,
                           environment=self.environment | EACH)
        check("#SBATCH --array=0-1%1\n" in printed, printed)
        rows = [out / f"n_heads=4,strategy={strategy}" for strategy in ("ddp", "full_shard")]
        for task, row in enumerate(rows):
            Job(self.cluster, "by_sweep", f"{submitted_id(printed)}_{task}", row,
                self.home / "logs" / "by_sweep").expect("COMPLETED", "0:0")
            check({line["world_size"] for line in metrics(row)} == {2}, row)
            check_same(self.quick, curve(row), row.name)
        printed = lab.must(*words, "--report", "--json", cwd=self.home,
                           environment=self.environment)
        table = json.loads(printed[printed.index("{"):])["rows"]
        check([row["status"] for row in table] == [0, 0, 64, 64], table)
        printed = lab.must(*words, *submit, cwd=self.home, environment=self.environment)
        check("every row is settled" in printed, printed)


def run_all(test, files):
    bodies = [("chained, then resumed", files.chained_then_resumed),
              ("attention x FSDP", files.attention_fsdp), ("loss ablation", files.loss_ablation),
              ("lockstep submit", files.lockstep_submit), ("staged", files.staged),
              ("sweep", files.sweep),
              ("largest model", files.largest_model),
              ("GPUs without CUDA", files.gpus_without_cuda)]
    for script in ("single_gpu", "one_node_fsdp"):
        bodies.append((script, lambda script=script: files.whole_run(script)))
    for script in ("multi_node", "multi_node_requeue", "ddp"):
        bodies.append((script, lambda script=script: files.two_nodes(script)))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name, body in bodies:
            pool.submit(test.run_case, name, body)


lab.enter()
with Test("slurm_files") as test, lab.Lab(NODES) as cluster:
    files = Files(cluster, test)
    test.run_case("as they are", files.as_they_are)
    run_all(test, files)
    with test.case("every script was run"):
        check(files.tested == set(SCRIPTS), f"not run: {set(SCRIPTS) - files.tested}")
