"""Which worker lockstep starts, and which program it has others run: programs_test.py LOCKSTEP"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile


def check_workers(folder):
    program, worker = folder / "lockstep", folder / "other" / "worker"
    shutil.copy(sys.argv[1], program)  # alone in its folder
    worker.parent.mkdir()
    worker.write_text("#!/bin/sh\necho the other worker: $1\n")
    worker.chmod(0o755)
    config = folder / "empty.toml"
    config.write_text("")

    def ask(*words, **variables):
        clean = {name: value for name, value in os.environ.items() if "LOCKSTEP" not in name}
        return subprocess.run([program, *words], env=clean | variables, capture_output=True,
                              text=True, timeout=60, cwd=folder)

    evaluate = ["eval", "--hf", folder, "--tokens", folder / "none.npy"]
    for variables, said in (
            ({}, f"cannot find {folder}/lockstep-worker: this build has no Torch parts"),
            ({"LOCKSTEP_NO_WORKER": "torch is on holiday"}, "torch is on holiday"),
            ({"LOCKSTEP_WORKER": "/nowhere/worker"},
             "cannot find /nowhere/worker, which LOCKSTEP_WORKER names")):
        done = ask(*evaluate, **variables)
        assert done.returncode == 64 and said in done.stderr and not done.stdout, (said, done)
    for variables in ({}, {"LOCKSTEP_NO_WORKER": "it is not asked"}):
        done = ask(*evaluate, LOCKSTEP_WORKER=str(worker), **variables)
        assert done.returncode == 0 and done.stdout == "the other worker: eval\n", done
    # More than a pipe holds, so that the worker has ended before it is all written.
    done = ask(*evaluate[:-1], "x" * 100_000, LOCKSTEP_WORKER=str(worker))
    assert done.returncode == 0 and done.stdout == "the other worker: eval\n", done

    submit = ["submit", config, "--exclusive", "--dry-run"]
    for entry, variables in ((program, {}), ("/env/bin/lockstep",
                                             {"LOCKSTEP_ENTRY": "/env/bin/lockstep"})):
        done = ask(*submit, **variables)
        assert done.returncode == 0 and f"|| LOCKSTEP={entry}\n" in done.stdout, done


def check_pack(folder):
    """No pack is made of a program that lacks a library."""
    worker, packs = folder / "worker", folder / "packs"
    code = pathlib.Path(sys.argv[1]).read_bytes()
    assert b"libm.so.6" in code
    worker.write_bytes(code.replace(b"libm.so.6", b"libm.so.9"))
    worker.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if "LOCKSTEP" not in name}
    done = subprocess.run([sys.argv[1], "stage", packs], capture_output=True, text=True,
                          env=clean | {"LOCKSTEP_WORKER": str(worker)}, timeout=60)
    said = f"{worker} does not start on this machine: the loader cannot find libm.so.9"
    assert done.returncode == 64 and said in done.stderr and not done.stdout, done
    assert not packs.exists(), list(packs.iterdir())


def program_of(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def check_jobs(folder):
    """What `lockstep submit` asks Slurm for, and that GPUs need a worker with CUDA."""
    slurm, config = folder / "slurm", folder / "empty.toml"
    slurm.mkdir()
    config.write_text("")
    program_of(slurm / "sbatch", 'echo "submitted $1"')
    version = "lockstep-worker 0.1.0, commit unknown, LibTorch 2.11.0"
    workers = {name: program_of(folder / name, f"echo '{version}{more}'; exit {status}")
               for name, more, status in (("cpu", "", 0), ("cuda", " with CUDA", 0),
                                          ("broken", " with CUDA", 127))}

    def ask(*words, worker="cpu", **variables):
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith(("LOCKSTEP", "SLURM", "SBATCH"))}
        clean |= {"PATH": f"{slurm}:{os.environ['PATH']}", "LOCKSTEP_WORKER": workers[worker]}
        return subprocess.run([sys.argv[1], *words], env=clean | variables, capture_output=True,
                              text=True, timeout=60, cwd=folder)

    def shows(said, *words, **variables):
        done = ask("submit", config, "--dry-run", *words, **variables)
        assert done.returncode == 0 and f"\n{said}\n" in done.stdout, (said, done)
        return done.stdout

    def refuses(said, *words, **variables):
        done = ask(*words, **variables)
        assert done.returncode == 64 and said in done.stderr, (said, done)
        assert "submitted" not in done.stdout, done

    program_of(slurm / "sinfo", "exit 1")
    refuses("with --cpus-per-task N, or take whole nodes with --exclusive", "submit", config, "-N2")
    done = ask("submit", config, "-N2", "--dry-run")  # also where there is no Slurm
    assert done.returncode == 0 and "#SBATCH --nodes=2\n" in done.stdout, done
    assert "could not be submitted" in done.stderr and "#SBATCH --cpus" not in done.stdout, done
    shows("#SBATCH --cpus-per-task=7", "-N2", "--cpus-per-task=7")
    program_of(slurm / "sinfo", "printf 'small|4|1:4:1|(null)\\n"
                                "normal*|64|2:16:2|gpu:a100:4(S:0-1)\\n'")
    shows("#SBATCH --cpus-per-task=64", "-N2")
    shows("#SBATCH --cpus-per-task=16", "--gpus=2", "-N2")
    shows("#SBATCH --cpus-per-task=32", "--hint=nomultithread")
    shows("#SBATCH --cpus-per-task=4", "-psmall")
    shows("#SBATCH --cpus-per-task=4", SBATCH_PARTITION="small")
    assert "cpus-per-task=" not in shows("#SBATCH --exclusive", "--exclusive").split("\n\n")[0]
    shows("[[ -n ${LOCKSTEP:-} ]] || LOCKSTEP=lockstep", "--container-image=site/lockstep:1")

    with_gpus = ("submit", config, "--gpus-per-node=4")
    refuses(f"GPUs are requested, but {workers['cpu']} computes on CPUs only", *with_gpus)
    refuses(f"{workers['broken']} --version ended with status 127", *with_gpus, worker="broken")
    refuses("computes on CPUs only", "submit", "--check-gpus")
    assert ask("submit", "--check-gpus", worker="cuda").returncode == 0
    # A wheel has both, and chooses by what the node has, which may be a login node.
    assert ask("submit", "--check-gpus", LOCKSTEP_GPU_WORKER=workers["cuda"]).returncode == 0
    for words, worker in ((with_gpus, "cuda"), (with_gpus[:2], "cpu"),
                          ((*with_gpus, "--environment=e"), "cpu"),
                          ((*with_gpus, "--container-image=i"), "cpu")):
        done = ask(*words, worker=worker)
        assert done.returncode == 0 and "submitted logs/" in done.stdout, done


def check_python(folder):
    """Which Python and which script `lockstep track` becomes."""
    program, script = folder / "bin/lockstep", folder / "share/tools/track"
    program.parent.mkdir()
    script.parent.mkdir(parents=True)
    shutil.copy(sys.argv[1], program)
    python = program_of(folder / "python", f'if [ "$1" = -c ]; then printf %s "{folder}/python"; '
                                           'else echo "ran $* of $LOCKSTEP"; fi')
    broken = program_of(folder / "broken", "exit 3")

    def ask(**variables):
        return subprocess.run([program, "track", "--to", "wandb", "--once", "--", "-run"],
                              env=variables, capture_output=True, text=True, timeout=60)

    done = ask()
    assert done.returncode == 64, done
    assert f"no tools/track for the programs in {folder}/bin" in done.stderr, done
    script.write_text("")
    done = ask(LOCKSTEP_PYTHON=python)
    assert done.stdout == f"ran {script} --to=wandb --once -- -run of {program}\n", done
    for said, variables in (
            ("this command needs Python 3.9 or newer", {"PATH": "/nowhere"}),
            ("this command needs Python 3.9 or newer", {"LOCKSTEP_PYTHON": "/nowhere/python"}),
            (f"{broken} does not start or is too old", {"LOCKSTEP_PYTHON": broken})):
        done = ask(**variables)
        assert done.returncode == 64 and said in done.stderr, (said, done)


with tempfile.TemporaryDirectory() as scratch:
    check_python(pathlib.Path(scratch).resolve())


with tempfile.TemporaryDirectory() as scratch:
    check_pack(pathlib.Path(scratch).resolve())


with tempfile.TemporaryDirectory() as scratch:
    check_jobs(pathlib.Path(scratch).resolve())


with tempfile.TemporaryDirectory() as scratch:
    check_workers(pathlib.Path(scratch).resolve())
