#!/usr/bin/env python3
"""h5py + hdf5plugin + numpy alone read what Lockstep writes: h5py_read_test.py WRITE_CHECKPOINT

WRITE_CHECKPOINT (write_checkpoint.cc) makes a checkpoint of 3 ranks per codec, and the tensors raw;
then the same with moments in bf16, which h5py gives out as fp32, and with a file that two ranks
share.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import h5py
import hdf5plugin
import numpy as np

KINDS = ("param", "adam_m", "adam_v")
CODEC_FILTERS = {"zstd": [2, 32015, 3], "gzip": [2, 1, 3], "none": [3]}
TABLE = ["dataset", "chunk", "file_offset", "stored_bytes", "raw_bytes", "filter_mask", "crc32c",
         "xxh3"]


def fingerprint(words, flat_start=0):
    """docs/FORMAT.md, in wrapping 64-bit arithmetic."""
    index = np.arange(1, len(words) + 1, dtype=np.uint64) + np.uint64(flat_start)
    z = index * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    weight = (z ^ (z >> np.uint64(32))) | np.uint64(1)
    return int(np.sum(words.astype(np.uint64) * weight, dtype=np.uint64))


CRC32C_TABLE = []


def crc32c(data):
    table = CRC32C_TABLE
    if not table:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def filters_of(dataset):
    pipeline = dataset.id.get_create_plist()
    return [pipeline.get_filter(i)[0] for i in range(pipeline.get_nfilters())]


def bits_equal(array, raw):
    assert array.dtype == np.dtype("<f4"), array.dtype
    assert array.tobytes() == raw.tobytes()


def check_index(directory, manifest, raw):
    with h5py.File(directory / "index.h5") as index:
        for tensor in manifest["tensors"]:
            for kind in KINDS:
                whole = index[f"{kind}/{tensor['name']}"]
                want = raw[kind, tensor["name"]]
                assert list(whole.shape) == (tensor["global_shape"] or [1]), whole.shape
                assert list(whole.attrs["global_shape"]) == tensor["global_shape"]
                bits_equal(whole[...].reshape(-1), want)
                narrow = tensor.get("dtype", {}).get(kind) == "bfloat16"
                words = want.view(np.uint32) >> (16 if narrow else 0)
                assert f"{fingerprint(words):016x}" == tensor["fingerprint"][kind], tensor
        row = index["param/embed.weight"][7]  # one row, one slice: only what is asked for
        bits_equal(row, raw["param", "embed.weight"].reshape(263, 33)[7])


def check_rank_file(path, entry, codec, raw, moments):
    data = path.read_bytes()
    assert len(data) == entry["size_bytes"]
    with h5py.File(path) as file:
        assert file.attrs["format"].decode() == "lockstep-checkpoint"
        assert file.attrs["format_version"] == 1
        table = file["__chunks__"][...]
        assert list(table.dtype.names) == TABLE and table.dtype.itemsize == 40
        assert file["__chunks__"].id.get_offset() == entry["chunk_table_offset"]
        assert len(table) == entry["chunk_rows"]
        rows = iter(table)
        for position, (key, start, length) in enumerate(entry["pieces"]):
            dataset = file[f"{key}@{start}"]
            assert filters_of(dataset) == CODEC_FILTERS[codec]
            kind, name = key.split("/", 1)
            assert dataset.attrs["name"].decode() == name
            assert dataset.attrs["kind"].decode() == kind
            dtype = "float32" if kind == "param" else moments
            assert dataset.attrs["dtype"].decode() == dtype
            assert dataset.id.get_type().get_size() == (2 if dtype == "bfloat16" else 4)
            assert dataset.attrs["flat_start"] == start
            assert dataset.attrs["dataset_index"] == position
            bits_equal(dataset[...], raw[kind, name][start:start + length])
            for chunk in range(dataset.id.get_num_chunks()):
                row, info = next(rows), dataset.id.get_chunk_info(chunk)
                assert row["dataset"] == position and row["chunk"] == chunk
                assert row["file_offset"] == info.byte_offset
                assert row["stored_bytes"] == info.size
                assert row["filter_mask"] == info.filter_mask
                stored = data[info.byte_offset:info.byte_offset + info.size]
                if len(stored) < 20000:
                    assert crc32c(stored) == row["crc32c"]
        assert next(rows, None) is None


def check_damage(directory, shared):
    """A flipped byte in a chunk is an error in h5py, never other numbers."""
    path = directory / ("rank_00000.h5" if shared else "rank_00001.h5")
    with h5py.File(path) as file:
        dataset = file["param/embed.weight@2893"]
        info = dataset.id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[info.byte_offset + info.size // 2] ^= 4
    path.write_bytes(data)
    with h5py.File(directory / "index.h5") as index:
        try:
            index["param/embed.weight"][...]
        except OSError:
            return
    raise AssertionError("a damaged chunk was read without an error")


def check_missing(directory, raw):
    """Without a rank file its elements read as NaN, the others as they are."""
    (directory / "rank_00002.h5").unlink()
    with h5py.File(directory / "index.h5") as index:
        whole = index["adam_m/embed.weight"][...].reshape(-1)
    want = raw["adam_m", "embed.weight"]
    first = 263 * 33 * 2 // 3
    bits_equal(whole[:first], want[:first])
    assert np.isnan(whole[first:]).all()


def raw_of(path, moments):
    if moments == "float32" or path.name.startswith("param."):
        return np.fromfile(path, "<f4")
    return (np.fromfile(path, "<u2").astype("<u4") << 16).view("<f4")


def main(program, moments, *words):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        lines = subprocess.run([program, folder, *words], check=True, capture_output=True,
                               text=True).stdout.split("\n")
        directories = {codec: pathlib.Path(path)
                       for codec, path in (line.split(" ", 1) for line in lines if line)}
        assert set(directories) == set(CODEC_FILTERS), directories
        raw = {tuple(path.name.split(".", 1)): raw_of(path, moments)
               for path in (folder / "raw").iterdir()}
        for codec, directory in directories.items():
            moved = folder / f"moved_{codec}"  # names in the index are relative
            shutil.move(directory, moved)
            manifest = json.loads((moved / "manifest.json").read_text())
            assert manifest["codec"] == codec and manifest["world_size"] == 3
            assert len(manifest["tensors"]) * 3 == len(raw)
            shared = words == ("shared",)
            assert [entry["name"] for entry in manifest["files"]] == [
                f"rank_{rank:05d}.h5" for rank in ((0, 2) if shared else (0, 1, 2))]
            check_index(moved, manifest, raw)
            for entry in manifest["files"]:
                check_rank_file(moved / entry["name"], entry, codec, raw, moments)
            check_missing(moved, raw)
            check_damage(moved, shared)
            print(f"{codec}: {len(raw)} tensors read by h5py {h5py.version.version} (HDF5 "
                  f"{h5py.version.hdf5_version}), hdf5plugin {hdf5plugin.version}")


if __name__ == "__main__":
    main(sys.argv[1], "float32")
    main(sys.argv[1], "bfloat16", "bf16")
    main(sys.argv[1], "float32", "shared")
