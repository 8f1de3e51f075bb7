"""Reads a Lockstep checkpoint with h5py alone: read_checkpoint.py CHECKPOINT_DIR [TENSOR]
pip install h5py hdf5plugin"""
import json
import pathlib
import sys

import h5py
import hdf5plugin  # noqa: F401  # registers zstd; codec = "gzip" and "none" do not need it

directory = pathlib.Path(sys.argv[1])
manifest = json.loads((directory / "manifest.json").read_text())
print(f"step {manifest['step']}, written by {manifest['world_size']} ranks")
with h5py.File(directory / "index.h5") as index:
    for name in sys.argv[2:] or index["param"]:
        # Of a matrix that Muon updates there is "momentum" in place of Adam's two.
        kinds = [kind for kind in ("adam_m", "adam_v", "momentum") if f"{kind}/{name}" in index]
        weights = index[f"param/{name}"][...]
        print(f"{name} {weights.shape}: std {weights.std():.3g}",
              *(f"|{kind}| {abs(index[f'{kind}/{name}'][...]).mean():.3g}" for kind in kinds))
