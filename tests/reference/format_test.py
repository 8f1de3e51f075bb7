"""What docs/FORMAT.md says is enough to read what Lockstep writes, in training and with its tools:
format_test.py WRITE_CHECKPOINT LOCKSTEP"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

from format_reader import Checkpoint, hex64, xxh3


def tool(lockstep, *words):
    done = subprocess.run([lockstep, "checkpoint", *map(str, words), "--json"], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)


def check_same(found, raw):
    assert found.keys() == raw.keys(), found.keys() ^ raw.keys()
    for key, values in found.items():
        assert values.tobytes() == raw[key], key


def widened(raw):
    """Moments in bf16 as they come back in from an export: fp32."""
    return {(kind, name): data if kind == "param" else
            (numpy.frombuffer(data, "<u2").astype("<u4") << 16).tobytes()
            for (kind, name), data in raw.items()}


def part_reads(folder, of_files, of_part):
    """Whether a part of a manifest with these pieces is read as one that is true."""
    text = json.dumps({"files": [{"size_bytes": 1, "pieces": of_files}]}).encode()
    (folder / "part.json").write_bytes(text)
    reader = Checkpoint.__new__(Checkpoint)
    reader.directory = folder
    try:
        reader._files({"name": "part.json", "size_bytes": len(text), "xxh3": hex64(xxh3(text)),
                       "file_count": 1, "stored_bytes": 1, "pieces": of_part})
        return True
    except AssertionError:
        return False


def check_every_element_counts(folder):
    """The ends of a part's pieces alone say little: a file may lack what lies between them."""
    key = "param/w"
    whole = [[key, 0, 30]]
    assert part_reads(folder, [[key, 0, 10], [key, 10, 20]], whole)
    assert not part_reads(folder, [[key, 0, 10], [key, 20, 10]], whole)
    assert not part_reads(folder, [[key, 0, 20], [key, 10, 20]], whole)
    assert not part_reads(folder, [*whole, [key, 40, 5]], whole)


def check(write_checkpoint, lockstep, *words):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        check_every_element_counts(folder)
        lines = subprocess.run([write_checkpoint, folder, *words], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        raw = {tuple(path.name.split(".", 1)): path.read_bytes()
               for path in (folder / "raw").iterdir()}
        for line in lines:
            codec, directory = line.split(" ", 1)
            checkpoint = Checkpoint(directory)
            assert checkpoint.manifest["codec"] == codec
            check_same(checkpoint.tensors(), raw)
            made = tool(lockstep, "reshard", directory, folder / codec, "--world-size", 5)
            check_same(Checkpoint(made["directory"]).tensors(), raw)
        made = tool(lockstep, "reshard", directory, folder / "many", "--world-size", 257)
        of_many = Checkpoint(made["directory"])
        assert len(of_many.manifest["parts"]) > 1
        check_same(of_many.tensors(), raw)
        tool(lockstep, "export", directory, folder / "weights", "--kind", "all")
        made = tool(lockstep, "import", folder / "weights", folder / "imported")
        check_same(Checkpoint(made["directory"]).tensors(), widened(raw) if words else raw)
        print(f"{len(raw)} tensors in {2 * len(lines) + 2} checkpoints")


if __name__ == "__main__":
    check(*sys.argv[1:])
    check(*sys.argv[1:], "bf16")
