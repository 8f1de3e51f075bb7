"""The safetensors library reads what `lockstep checkpoint export` writes, and `import` reads what
it writes: safetensors_test.py WRITE_CHECKPOINT LOCKSTEP"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
from safetensors.torch import load_file, save_file

from format_reader import Checkpoint


def tool(lockstep, *words):
    done = subprocess.run([lockstep, "checkpoint", *map(str, words), "--json"], check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)


def exported(lockstep, source, out, *flags):
    """{name: tensor} of all files that one export wrote."""
    tensors = {}
    for path in tool(lockstep, "export", source, out, *flags)["files"]:
        if path.endswith(".safetensors"):
            tensors |= load_file(path)
    return tensors


def main(write_checkpoint, lockstep):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        subprocess.run([write_checkpoint, folder], check=True, capture_output=True)
        source = sorted((folder / "checkpoints").glob("step_*"))[0]
        want = {key: torch.from_numpy(values.copy())
                for key, values in Checkpoint(source).tensors().items()}
        weights = {name: value for (kind, name), value in want.items() if kind == "param"}

        found = exported(lockstep, source, folder / "fp32")
        assert found.keys() == weights.keys()
        assert all(torch.equal(found[name], weights[name]) for name in weights)

        found = exported(lockstep, source, folder / "bf16", "--dtype", "bf16",
                         "--max-shard-size", "100KB")
        index = json.loads((folder / "bf16" / "model.safetensors.index.json").read_text())
        assert index["weight_map"].keys() == weights.keys() and len(
            set(index["weight_map"].values())) > 1
        for name, value in weights.items():
            assert found[name].dtype == torch.bfloat16
            assert torch.equal(found[name], value.to(torch.bfloat16)), name

        found = exported(lockstep, source, folder / "all", "--kind", "all")
        assert all(torch.equal(found[f"{kind}/{name}"], value)
                   for (kind, name), value in want.items())

        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            narrow = {name: value.to(dtype) for name, value in weights.items()}
            out = folder / str(dtype)
            out.mkdir()
            save_file(narrow, out / "model.safetensors", metadata={"format": "pt"})
            made = tool(lockstep, "import", out, folder / f"from_{dtype}", "--with-optimizer",
                        "zeros", "--world-size", 2)
            got = Checkpoint(made["directory"]).tensors()
            assert len(got) == 3 * len(weights)
            for (kind, name), value in got.items():
                expected = narrow[name].to(torch.float32).numpy() if kind == "param" else 0
                assert (numpy.asarray(value) == expected).all(), (kind, name)
        print(f"{len(want)} tensors, torch {torch.__version__}")


if __name__ == "__main__":
    main(*sys.argv[1:])
