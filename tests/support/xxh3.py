"""XXH3 with 64 bits, as the C library has it."""
import ctypes
import ctypes.util

_xxhash = ctypes.CDLL(ctypes.util.find_library("xxhash"))
_xxhash.XXH3_64bits_withSeed.restype = ctypes.c_uint64
_xxhash.XXH3_64bits_withSeed.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64]


def xxh3(raw, seed=0):
    return _xxhash.XXH3_64bits_withSeed(raw, len(raw), seed)
