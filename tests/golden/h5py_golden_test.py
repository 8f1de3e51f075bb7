#!/usr/bin/env python3
"""h5py + hdf5plugin alone read every dataset of the golden checkpoints: h5py_golden_test.py FOLDER

FOLDER/checkpoint_v*/<codec>/step_*/{rank_*,index}.h5. The values are those of golden_model.h.
"""
import pathlib
import sys

import h5py
import hdf5plugin  # noqa: F401  registers zstd
import numpy as np



def values(key, count, start=0):
    """The 32-bit words of elements start … of tensor `key`, as golden_model.h defines them."""
    fnv = 0xCBF29CE484222325
    for byte in key.encode():
        fnv = (fnv ^ byte) * 0x100000001B3 % 2**64
    index = np.arange(start, start + count, dtype=np.uint64)
    if "/long." in key:
        index >>= np.uint64(12)
    z = (index + np.uint64(fnv)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return (z >> np.uint64(32) & np.uint64(0x807FFFFF) | np.uint64(0x3C000000)).astype(np.uint32)


def check_rank_file(path):
    elements = 0
    with h5py.File(path) as file:
        for kind in ("param", "adam_m", "adam_v"):
            for dataset in file[kind].values():
                key = f"{kind}/{dataset.attrs['name'].decode()}"
                words = dataset[...].view(np.uint32)
                start = int(dataset.attrs["flat_start"])
                assert np.array_equal(words, values(key, words.size, start)), (path, key)
                elements += words.size
    return elements


def check_index(path):
    elements = 0
    with h5py.File(path) as index:
        for kind in ("param", "adam_m", "adam_v"):
            for name, dataset in index[kind].items():
                words = dataset[...].reshape(-1).view(np.uint32)
                assert np.array_equal(words, values(f"{kind}/{name}", words.size)), (path, name)
                elements += words.size
    return elements


def main(folder):
    sets = sorted(pathlib.Path(folder).glob("checkpoint_v*"))
    assert {"checkpoint_v1", "checkpoint_v1_shared", "checkpoint_v3"} <= {
        each.name for each in sets}, sets
    for directory in (directory for each in sets for directory in each.glob("*/step_*")):
        ranks = sorted(directory.glob("rank_*.h5"))
        name = directory.parts[-3]
        in_parts = name == "checkpoint_v3"  # where no index is written
        files = 10 if in_parts else 1 if name == "checkpoint_v1_shared" else 2
        assert len(ranks) == files, ranks
        in_ranks = sum(check_rank_file(path) for path in ranks)
        assert in_ranks > 10000
        assert in_parts or in_ranks == check_index(directory / "index.h5")
        print(f"{'/'.join(directory.parts[-3:-1])}: {in_ranks} elements read by h5py "
              f"{h5py.version.version}")


if __name__ == "__main__":
    main(sys.argv[1])
