"""Reads a checkpoint from docs/FORMAT.md alone: manifest -> chunk table -> rows -> pread -> checks
-> decoding, with numpy, zlib, and the C libraries of zstd and XXH3; no HDF5, no code of Lockstep's.
"""
import ctypes
import ctypes.util
import json
import pathlib
import zlib

import numpy

ROW = numpy.dtype([("dataset", "<u4"), ("chunk", "<u4"), ("file_offset", "<u8"),
                   ("stored_bytes", "<u4"), ("raw_bytes", "<u4"), ("filter_mask", "<u4"),
                   ("crc32c", "<u4"), ("xxh3", "<u8")])
CRC_LIMIT = 30000  # bytes: slow in Python

_xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
_zstd = ctypes.CDLL(ctypes.util.find_library("zstd"))
_zstd.ZSTD_decompress.restype = ctypes.c_size_t
_zstd.ZSTD_decompress.argtypes = [ctypes.c_char_p, ctypes.c_size_t] * 2


def xxh3(data):
    return _xxhash.XXH3_64bits(data, len(data))


def hex64(value):
    return f"{value:016x}"


def unzstd(data, size):
    out = ctypes.create_string_buffer(size)
    assert _zstd.ZSTD_decompress(out, size, data, len(data)) == size, "zstd"
    return out.raw


def _crc_of_byte(crc):
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_CRC = [_crc_of_byte(byte) for byte in range(256)]


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def fletcher32(data):
    if len(data) % 2:
        data += b"\0"
    words = numpy.frombuffer(data, ">u2").astype(numpy.uint64)
    places = numpy.arange(len(words), 0, -1, dtype=numpy.uint64)
    low, high = int(words.sum()), int((words * places).sum())

    def fold(total):
        return total and (total - 1) % 65535 + 1
    return fold(high) << 16 | fold(low)


def fingerprint(words, flat_start):
    index = numpy.arange(1, len(words) + 1, dtype=numpy.uint64) + numpy.uint64(flat_start)
    z = index * numpy.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> numpy.uint64(32))) * numpy.uint64(0xD6E8FEB86659FD93)
    weight = (z ^ (z >> numpy.uint64(32))) | numpy.uint64(1)
    return int((words.astype(numpy.uint64) * weight).sum(dtype=numpy.uint64))


def _runs(pieces):
    """{kind/name: [[begin, end], …]}: the elements that pieces have, none of them twice."""
    runs = {}
    for key, start, length in sorted(pieces):
        own = runs.setdefault(key, [])
        if own and start <= own[-1][1]:
            assert start == own[-1][1], f"{key}: element {start} appears twice"
            own[-1][1] += length
        else:
            own.append([start, start + length])
    return runs


class Checkpoint:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        text = (self.directory / "manifest.json").read_bytes()
        self.manifest = json.loads(text)
        at = text.rindex(b'"self_xxh3"')
        digits = hex64(xxh3(text[:at]))
        assert text[at:] == f'"self_xxh3": "{digits}"\n}}\n'.encode(), "self_xxh3"
        assert self.manifest["format"] == "lockstep-checkpoint"
        version = self.manifest["format_version"]
        assert version in (1, 2, 3)
        self.narrow = {f"{kind}/{tensor['name']}" for tensor in self.manifest["tensors"]
                       for kind, word in tensor.get("dtype", {}).items() if word == "bfloat16"}
        assert version == 3 or bool(self.narrow) == (version == 2)
        names = [tensor["name"] for tensor in self.manifest["tensors"]]
        assert names == sorted(names)
        assert ("parts" in self.manifest) == (version == 3) == ("files" not in self.manifest)
        self.files = (self.manifest["files"] if version < 3 else
                      [file for part in self.manifest["parts"] for file in self._files(part)])

    def _files(self, part):
        """What a part of the manifest says of its files."""
        text = (self.directory / part["name"]).read_bytes()
        assert len(text) == part["size_bytes"] and hex64(xxh3(text)) == part["xxh3"], part["name"]
        files = json.loads(text)["files"]
        assert len(files) == part["file_count"]
        assert sum(file["size_bytes"] for file in files) == part["stored_bytes"]
        assert _runs(piece for file in files for piece in file["pieces"]) == _runs(
            part["pieces"]), part["name"]
        return files

    def tensors(self):
        """{(kind, name): whole tensor in its shape}, bf16 as its 16 bits; every byte and every hash
        is checked."""
        flat, filled = {}, {}
        for tensor in self.manifest["tensors"]:
            for kind in tensor["fingerprint"]:
                size = int(numpy.prod(tensor["global_shape"], dtype=numpy.int64))
                key = f"{kind}/{tensor['name']}"
                flat[key] = numpy.empty(size, "<u2" if key in self.narrow else "<f4")
                filled[f"{kind}/{tensor['name']}"] = numpy.zeros(size, numpy.int8)
        for entry in self.files:
            for key, start, values in self._pieces(entry):
                flat[key][start:start + len(values)] = values
                filled[key][start:start + len(values)] += 1
        tensors = {}
        for tensor in self.manifest["tensors"]:
            for kind, digits in tensor["fingerprint"].items():
                key = f"{kind}/{tensor['name']}"
                assert (filled[key] == 1).all(), key
                words = flat[key].view("<u2" if key in self.narrow else "<u4")
                assert hex64(fingerprint(words, 0)) == digits, key
                tensors[kind, tensor["name"]] = flat[key].reshape(tensor["global_shape"])
        return tensors

    def _pieces(self, entry):
        """(kind/name, flat_start, elements) of each piece of a rank file."""
        data = (self.directory / entry["name"]).read_bytes()
        assert len(data) == entry["size_bytes"], entry["name"]
        at = entry["chunk_table_offset"]
        table = data[at:at + entry["chunk_rows"] * ROW.itemsize]
        assert hex64(xxh3(table)) == entry["chunk_table_xxh3"]
        rows = numpy.frombuffer(table, ROW)
        self._check_outside(entry, data, rows)
        rows = iter(rows)
        for position, (key, start, length) in enumerate(entry["pieces"]):
            elements = min(length, self.manifest["chunk_elements"])
            count = -(-length // elements)
            if self.manifest.get("equal_chunks"):
                elements = -(-length // count)
            element = 2 if key in self.narrow else 4
            parts = []
            for chunk in range(count):
                row = next(rows)
                assert row["dataset"] == position and row["chunk"] == chunk
                assert row["raw_bytes"] == element * elements
                parts.append(self._chunk(data, row, element))
            values = numpy.frombuffer(b"".join(parts), "<u2" if element == 2 else "<f4")
            yield key, start, values[:length]
        assert next(rows, None) is None

    def _check_outside(self, entry, data, rows):
        outside, at = [], 0
        for row in sorted(rows, key=lambda row: row["file_offset"]):
            outside.append(data[at:int(row["file_offset"])])
            at = int(row["file_offset"]) + int(row["stored_bytes"])
        outside.append(data[at:])
        assert hex64(xxh3(b"".join(outside))) == entry["outside_xxh3"]

    def _chunk(self, data, row, element):
        first = int(row["file_offset"])
        stored = data[first:first + int(row["stored_bytes"])]
        if len(stored) <= CRC_LIMIT:
            assert crc32c(stored) == row["crc32c"]
        body, check = stored[:-4], int.from_bytes(stored[-4:], "little")
        assert fletcher32(body) == check
        size = int(row["raw_bytes"])
        codec = self.manifest["codec"]
        if codec == "none" or row["filter_mask"] == 3:
            raw = body
        else:
            assert row["filter_mask"] == 0
            planes = unzstd(body, size) if codec == "zstd" else zlib.decompress(body)
            rows = numpy.frombuffer(planes, numpy.uint8).reshape(element, size // element)
            raw = rows.T.tobytes()
        assert len(raw) == size and xxh3(raw) == row["xxh3"]
        return raw
