"""Readers of Lockstep's files that share no code with it, written from docs/FORMAT_DATA.md: token
shards, the sample order, metrics.jsonl; and the tensors of a checkpoint's index.h5 through h5py.
"""
import json
import pathlib
import sys

import h5py
import hdf5plugin  # noqa: F401  registers the zstd filter
import numpy

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from xxh3 import xxh3  # noqa: E402

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
HEADER_BYTES = 64
BLOCK_BYTES = 1 << 16


def mix(x):
    """SplitMix64's finaliser."""
    x &= MASK
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


class SampleOrder:
    """The permutation of [0, n) of one epoch."""

    def __init__(self, n, seed, epoch):
        self.n = n
        bits = max(8, (n - 1).bit_length())
        self.left_bits, self.right_bits = bits // 2, bits - bits // 2
        key = mix(mix(xxh3(b"sample_order", seed)) + GOLDEN * (epoch + 1))
        self.keys = [mix(key + GOLDEN * (r + 1)) for r in range(8)]

    def _permute(self, x):
        left_bits, right_bits = self.left_bits, self.right_bits
        left, right = x >> right_bits, x & ((1 << right_bits) - 1)
        for key in self.keys:
            left, right = right, (left ^ mix(right + key)) & ((1 << left_bits) - 1)
            left_bits, right_bits = right_bits, left_bits
        return left << right_bits | right

    def __call__(self, position):
        x = self._permute(position)
        while x >= self.n:
            x = self._permute(x)
        return x


class Tokens:
    """One split of a folder made by `lockstep prepare`. Checks every hash on the way."""

    def __init__(self, folder, split):
        folder = pathlib.Path(folder)
        manifest = json.loads((folder / "manifest.json").read_text())
        stored = manifest.pop("hash")
        text = json.dumps(manifest, sort_keys=True, separators=(",", ":"))
        assert stored == f"{xxh3(text.encode()):016x}", "the manifest's hash"
        self.dtype = {"u16": "<u2", "u32": "<u4"}[manifest["dtype"]]
        shards = [s for s in manifest["shards"] if s["split"] == split]
        self.shard_count = len(shards)
        read = [self._read(folder, s, s["tokens"], self.dtype) for s in shards]
        self.stream = numpy.concatenate(read).astype(numpy.int64)
        assert len(self.stream) == manifest["tokens"][split]
        self.counts = self._bits(folder, shards, "mask", 1)    # as a label
        self.starts = self._bits(folder, shards, "starts", 0)  # where a document starts

    def _read(self, folder, file, count, dtype):
        path = folder / file["file"]
        raw = path.read_bytes()
        end = HEADER_BYTES + count * numpy.dtype(dtype).itemsize
        blocks = [xxh3(raw[at:min(at + BLOCK_BYTES, end)]) for at in range(0, end, BLOCK_BYTES)]
        table = raw[-(-end // 8) * 8:]
        assert raw[:8] == b"LSTOKENS" and file["table_xxh3"] == f"{xxh3(table):016x}", path
        assert numpy.frombuffer(table, "<u8").tolist() == blocks, path
        words = numpy.frombuffer(raw, dtype, count, HEADER_BYTES)
        assert count == int.from_bytes(raw[16:24], "little"), path
        return words

    def _bits(self, folder, shards, name, otherwise):
        """A bit for each token, from the files beside the shards."""
        if name not in shards[0]:
            return numpy.full(len(self.stream), otherwise, bool)
        words = [self._read(folder, s[name], -(-s["tokens"] // 16), "<u2") for s in shards]
        bits = [(w[:, None] >> numpy.arange(16) & 1).reshape(-1)[:s["tokens"]]
                for w, s in zip(words, shards)]
        return numpy.concatenate(bits).astype(bool)

    def slot(self, step, slot, *, seed, seq_len, batch_size, slots):
        """Inputs, labels (-100: does not count) and the number of each input's document in its
        sequence, all [B, T], of a slot; the step counts from 0."""
        n = (len(self.stream) - 1) // seq_len
        labels = numpy.where(self.counts, self.stream, -100)
        rows = []
        for row in range(batch_size):
            index = (step * slots + slot) * batch_size + row
            first = SampleOrder(n, seed, index // n)(index % n) * seq_len
            last = first + seq_len
            rows.append((self.stream[first:last], labels[first + 1:last + 1],
                         numpy.cumsum(self.starts[first:last])))
        return tuple(numpy.stack(part) for part in zip(*rows))


def metrics(run):
    """step -> its line of metrics.jsonl; the loss from its exact hexadecimal form."""
    lines = {}
    for text in (pathlib.Path(run) / "metrics.jsonl").read_text().splitlines():
        line = json.loads(text)
        assert abs(float.fromhex(line["loss_hex"]) - line["loss"]) <= 1e-12 * abs(line["loss"])
        lines[line["step"]] = line
    return lines


def checkpoint_of(run, step):
    found = sorted((pathlib.Path(run) / "checkpoints").glob(f"step_{step:08d}.*/manifest.json"))
    assert len(found) == 1, (step, found)
    return found[0].parent


def tensors(checkpoint, kind):
    """name -> whole tensor of one kind: param, adam_m, adam_v."""
    with h5py.File(checkpoint / "index.h5", "r") as file:
        out = {name: dataset[()] for name, dataset in file[kind].items()}
    for name, tensor in out.items():
        assert tensor.dtype == numpy.float32 and numpy.isfinite(tensor).all(), name
    return out
