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
            ({}, f"no {folder}/lockstep-worker: this build has no Torch parts"),
            ({"LOCKSTEP_NO_WORKER": "torch is on holiday"}, "torch is on holiday"),
            ({"LOCKSTEP_WORKER": "/nowhere/worker"},
             "no /nowhere/worker, which LOCKSTEP_WORKER names")):
        done = ask(*evaluate, **variables)
        assert done.returncode == 64 and said in done.stderr and not done.stdout, (said, done)
    for variables in ({}, {"LOCKSTEP_NO_WORKER": "it is not asked"}):
        done = ask(*evaluate, LOCKSTEP_WORKER=str(worker), **variables)
        assert done.returncode == 0 and done.stdout == "the other worker: eval\n", done
    # More than a pipe holds, so that the worker has ended before it is all written.
    done = ask(*evaluate[:-1], "x" * 100_000, LOCKSTEP_WORKER=str(worker))
    assert done.returncode == 0 and done.stdout == "the other worker: eval\n", done

    submit = ["submit", config, "--nodes", "2", "--dry-run"]
    for entry, variables in ((program, {}), ("/env/bin/lockstep",
                                             {"LOCKSTEP_ENTRY": "/env/bin/lockstep"})):
        done = ask(*submit, **variables)
        assert done.returncode == 0 and f'LOCKSTEP="${{LOCKSTEP:-{entry}}}"' in done.stdout, done


with tempfile.TemporaryDirectory() as scratch:
    check_workers(pathlib.Path(scratch).resolve())
