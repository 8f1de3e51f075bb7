"""`lockstep checkpoint` as a user types it, right and wrong:
tools_test.py WRITE_CHECKPOINT LOCKSTEP"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

LOCKSTEP = sys.argv[2]
COMMANDS = ("list", "inspect", "verify", "diff", "reshard", "export", "import", "index", "prune")


def run(*words, expect=0):
    """What `lockstep checkpoint words` prints; stderr when it fails."""
    done = subprocess.run([LOCKSTEP, "checkpoint", *map(str, words)], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == expect, (words, done.returncode, done.stdout, done.stderr)
    if expect == 64:
        assert done.stderr and not done.stdout, (words, done.stdout)
        return done.stderr
    assert done.stderr == "", done.stderr  # short and not on a terminal: no progress
    return done.stdout


def refused(*words, say):
    printed = run(*words, expect=64)
    assert say in printed, (words, say, printed)


def check_help():
    overview = run("--help")
    for command in COMMANDS:
        assert f"  {command} " in overview, command
        page = run(command, "--help")
        assert f"Examples:\n  lockstep checkpoint {command} " in page and "--json" in page, page


def check_diff(run_folder, directories):
    zstd, gzip, _ = directories
    assert "the checkpoints are equal" in run("diff", zstd, gzip)
    same = json.loads(run("diff", run_folder, zstd, "--json"))
    assert same["equal"] and same["equal_tensors"] == 21 and same["tensors"] == [], same
    assert {field["name"] for field in same["layout"]} == {"codec", "generation"}, same["layout"]


def check_writing(folder, source):
    made = json.loads(run("reshard", source, folder / "r", "--world-size", 4, "--json"))
    assert run("diff", source, made["directory"]).endswith("the checkpoints are equal\n")
    assert "whole" in run("verify", folder / "r")
    refused("reshard", source, folder / "r", "--world-size", 2, say="exists already")
    refused("reshard", source, source.parent, "--world-size", 2, say="exists already")
    refused("reshard", source, folder / "r2", "--world-size", 0, say="world-size")
    assert not (folder / "r2").exists()

    out = folder / "out"
    printed = json.loads(run("export", source, out, "--dtype", "bf16", "--json"))
    assert printed["files"] == [str(out / "model.safetensors")]
    refused("export", source, out, say="exists already")
    refused("export", source, source, say="exists already")
    refused("export", source, folder / "o2", "--max-shard-size", "big", say="5GB")
    refused("export", source, folder / "o2", "--kind", "adam", say="adam")
    run("export", source, folder / "o3", "--max-shard-size", "0.1 MiB")
    assert len(list((folder / "o3").iterdir())) > 2

    imported = json.loads(run("import", out, folder / "i", "--json"))["directory"]
    difference = json.loads(run("diff", source, imported, "--json", expect=1))
    assert len(difference["only_a"]) == 14 and difference["only_b"] == [], difference
    assert difference["tensors"] and difference["tensors"][0]["max_abs"] < 1e-3, difference
    refused("export", imported, folder / "o4", "--kind", "adam_m", say="adam_m")
    assert "step 0 " in run("inspect", folder / "i")

    (pathlib.Path(imported) / "index.h5").unlink()
    said = run("verify", imported)
    assert "MISSING" in said and "index.h5 is missing" in said and "whole" in said, said
    assert "index.h5" in json.loads(run("verify", imported, "--json"))["missing"]
    run("index", imported)
    assert json.loads(run("verify", imported, "--json"))["missing"] == ""
    assert (pathlib.Path(imported) / "index.h5").stat().st_size > 0

    model = out / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    refused("import", out, folder / "i2", say="model.safetensors: tensor ")
    refused("import", folder / "nothing", folder / "i2", say="nothing")
    refused("import", folder, folder / "i2", say="no *.safetensors")
    assert not (folder / "i2").exists()


def refuse_orphans_of_a_living_run(run_folder):
    """A run is alive while the agent is that workers.json names: here one that waits for its
    config, which nobody writes."""
    config = run_folder / "config"
    os.mkfifo(config)
    with subprocess.Popen([LOCKSTEP, "plan", config], stdout=subprocess.DEVNULL) as agent:
        try:
            (run_folder / "workers.json").write_text(json.dumps({
                "generation": 1, "world_size": 1, "agent_pid": agent.pid, "state": "running",
                "exit_status": -1, "workers": [], "nodes": []}))
            for place in ("", "/", "/checkpoints", "/checkpoints/", "/checkpoints/."):
                refused("prune", f"{run_folder}{place}", "--keep-latest", 1, "--orphans",
                        say="a run is active in")
            run("prune", run_folder, "--keep-latest", 1, "--orphans", "--dry-run")
        finally:
            agent.kill()


def check_prune(run_folder):
    def names():
        return sorted(path.name for path in (run_folder / "checkpoints").glob("step_*"))

    kept = run_folder / "checkpoints"
    source = kept / "step_00000012.g1-7f2a91"
    run("export", source, run_folder / "weights")
    run("import", run_folder / "weights", run_folder)
    (kept / "step_00000013.g4-7f2a91").mkdir()  # a save that may be under way
    (kept / "step_00000009.g1-7f2a91").mkdir()  # one that is not
    before = names()
    printed = run("prune", run_folder, "--keep-latest", 1, "--dry-run")
    assert printed.count("would remove") == 3 and names() == before, printed
    gone = json.loads(run("prune", run_folder, "--keep-latest", 2, "--keep-every", 6, "--json"))
    assert gone["removed"] == [str(source)] and len(gone["kept"]) == 5, gone  # step 0 stays
    assert names() == [name for name in before if name != source.name], names()
    run("prune", run_folder, "--keep-latest", 2)
    assert [name for name in names() if "step_00000000" in name] == [], names()
    refuse_orphans_of_a_living_run(run_folder)
    run("prune", run_folder, "--keep-latest", 1, "--orphans")
    assert names() == ["step_00000012.g3-7f2a91"], names()
    assert "whole" in run("verify", run_folder)
    refused("prune", run_folder, "--keep-latest", 0, say="keep-latest")
    refused("prune", run_folder, say="keep-latest")


def check_wrong_input(folder, source):
    empty = folder / "empty"
    empty.mkdir()
    for command, more in (("inspect", ()), ("verify", ()), ("diff", (source,)), ("index", ()),
                          ("reshard", (folder / "x", "--world-size", "2")),
                          ("export", (folder / "x",))):
        refused(command, folder / "missing", *more, say="missing")
        refused(command, empty, *more, say="holds no checkpoint")
        damaged = folder / "damaged" / source.name
        shutil.copytree(source, damaged)
        manifest = damaged / "manifest.json"
        manifest.write_text(manifest.read_text()[:500])
        if command == "verify":
            for given in (damaged, damaged.parent):
                printed = run(command, given, expect=1)
                assert "DAMAGED" in printed and "manifest.json: truncated" in printed, printed
        else:
            refused(command, damaged, *more, say="manifest.json: truncated")
            refused(command, damaged.parent, *more, say="no usable checkpoint")
        manifest.unlink()
        refused(command, damaged, *more, say="manifest.json")
        shutil.rmtree(damaged.parent)
    refused("prune", empty, "--keep-latest", 1, say="holds no checkpoint")
    hurt = folder / "hurt" / source.name
    shutil.copytree(source, hurt)
    (hurt / "rank_00001.h5").unlink()
    listed = run("list", hurt.parent, expect=1)
    assert "NOT USABLE: rank_00001.h5 is missing" in listed, listed
    assert json.loads(run("list", hurt.parent, "--json", expect=1))[0]["committed"] is False
    for words in (("export", hurt, folder / "x"),
                  ("reshard", hurt, folder / "x", "--world-size", 2)):
        refused(*words, say="rank_00001.h5")
        left = list((folder / "x").rglob("*")) if (folder / "x").exists() else []
        assert not left, left
    if os.geteuid() != 0:  # root may read everything
        locked = folder / "locked"
        shutil.copytree(source, locked / source.name)
        (locked / source.name / "manifest.json").chmod(0)
        refused("inspect", locked / source.name, say="Permission denied")
    (folder / "file").write_text("x")
    refused("reshard", source, folder / "file", "--world-size", 2, say="file")
    refused("export", source, folder / "file" / "out", say="file")


def main(write_checkpoint):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run_folder = folder / "run"
        run_folder.mkdir()
        lines = subprocess.run([write_checkpoint, run_folder], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        directories = [pathlib.Path(line.split(" ", 1)[1]) for line in lines]
        check_help()
        check_diff(run_folder, directories)
        check_writing(folder, directories[0])
        check_wrong_input(folder, directories[0])
        check_prune(run_folder)


if __name__ == "__main__":
    main(sys.argv[1])
