"""examples/read_checkpoint.py and `lockstep checkpoint` on a real checkpoint:
example_test.py WRITE_CHECKPOINT READ_CHECKPOINT LOCKSTEP"""
import json
import pathlib
import subprocess
import sys
import tempfile


def run(*command, expect=0):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert done.returncode == expect, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def main(write_checkpoint, read_checkpoint, lockstep):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        run(write_checkpoint, folder)
        checkpoint = folder / "checkpoints" / "step_00000012.g3-7f2a91"

        out = run(sys.executable, read_checkpoint, checkpoint)
        assert "step 12, written by 3 ranks" in out and "embed.weight (263, 33): std" in out, out

        listed = json.loads(run(lockstep, "checkpoint", "list", folder, "--json"))
        assert [entry["generation"] for entry in listed] == [3, 2, 1]
        assert all(entry["committed"] for entry in listed)
        assert "step_00000012.g1-7f2a91" in run(lockstep, "checkpoint", "list", folder)
        inspected = json.loads(run(lockstep, "checkpoint", "inspect", checkpoint, "--json"))
        assert inspected["trainer_state"] == {"step": 12} and inspected["codec"] == "none"
        assert "embed.weight [263, 33]" in run(lockstep, "checkpoint", "inspect", f"{checkpoint}/")
        assert "whole" in run(lockstep, "checkpoint", "verify", folder)

        many = folder / "many"  # whose manifest is in parts: an index only when it is asked for
        made = json.loads(run(lockstep, "checkpoint", "reshard", checkpoint, many, "--world-size",
                              257, "--json"))["directory"]
        run(lockstep, "checkpoint", "diff", checkpoint, made)
        assert json.loads(run(lockstep, "checkpoint", "inspect", made, "--json"))[
            "format_version"] == 3
        sizes = [path.stat().st_size for path in pathlib.Path(made).glob("rank_*.h5")]
        of_many = json.loads(run(lockstep, "checkpoint", "list", many, "--json"))
        assert [entry["size_bytes"] for entry in of_many] == [sum(sizes)]
        run(lockstep, "checkpoint", "index", made)
        of_index = run(sys.executable, read_checkpoint, made)
        assert of_index.splitlines()[1:] == out.splitlines()[1:], of_index
        assert "written by 257 ranks" in of_index

        rank = checkpoint / "rank_00001.h5"
        data = bytearray(rank.read_bytes())
        data[len(data) // 2] ^= 1
        rank.write_bytes(data)
        damaged = run(lockstep, "checkpoint", "verify", checkpoint, expect=1)
        assert "rank_00001.h5" in damaged and "chunk" in damaged, damaged
        with open(rank, "r+b") as file:
            file.truncate(len(data) // 2)  # what a resume passes over is not passed over here
        damaged = run(lockstep, "checkpoint", "verify", folder, expect=1)
        assert "DAMAGED" in damaged and "rank_00001.h5" in damaged, damaged
        assert checkpoint.name in damaged and "whole" not in damaged, damaged
        rank.unlink()
        assert "rank_00001.h5" in run(lockstep, "checkpoint", "verify", folder, expect=1)
        assert checkpoint.name in run(lockstep, "checkpoint", "list", folder)  # opens no rank file
        with open(checkpoint / "manifest.json", "r+b") as file:
            file.truncate(7)
        out = run(lockstep, "checkpoint", "list", folder)
        assert "NOT USABLE" in out and "manifest.json" in out, out
        run(lockstep, "checkpoint", "list", folder / "nothing", expect=64)
        assert "Examples:" in run(lockstep, "checkpoint", "verify", "--help")
        run(lockstep, "checkpoint", "verify", expect=64)


if __name__ == "__main__":
    main(*sys.argv[1:])
