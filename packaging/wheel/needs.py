"""What programs need of the machine that runs them: libraries, and versions of their symbols."""
import pathlib
import re

from machine import binutil, output_of, places_of_libraries

# Every machine has them: a manylinux tag says which versions (PEP 600).
OF_SYSTEM = re.compile(r"(ld-linux.*|linux-vdso|"
                       r"lib(c|m|dl|rt|pthread|util|resolv|z|stdc\+\+|gcc_s))\.so(\.|$)")
# Of these, what glibc itself has.
OF_LIBC = re.compile(r"(ld-linux.*|linux-vdso|lib(c|m|dl|rt|pthread|util|resolv))\.so(\.|$)")
# They come with torch: libgomp too, for a process has one pool of threads.
OF_TORCH = re.compile(r"lib(torch|c10|gomp|shm|caffe2|nccl|nv|cu(da|blas|dnn|fft|file|rand|solver|"
                      r"sparse|pti))")
# The newest versions that a tag allows, as in auditwheel 6.8's policies for x86-64. A tag between
# two rows allows what the row before it does, and its own glibc.
POLICIES = {(2, 28): {"GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7,), "ZLIB": (1, 2, 9)},
            (2, 31): {"GLIBCXX": (3, 4, 28), "CXXABI": (1, 3, 12)},
            (2, 34): {"GLIBCXX": (3, 4, 29), "CXXABI": (1, 3, 13)},
            (2, 35): {"GLIBCXX": (3, 4, 30), "GCC": (12,)},
            (2, 37): {"ZLIB": (1, 2, 12)},
            (2, 39): {"GLIBCXX": (3, 4, 33), "CXXABI": (1, 3, 15), "GCC": (14,)}}
# A feature of the loader that came with this glibc.
LOADER_FEATURES = {"GLIBC_ABI_DT_RELR": (2, 36)}


def head_of(file):
    return output_of(binutil("objdump", file), "-p", file)


def needed(program):
    return re.findall(r"^\s+NEEDED\s+(\S+)$", head_of(program), re.M)


def of_wheel(name):
    """Whether a wheel brings this library."""
    return not OF_SYSTEM.match(name) and not OF_TORCH.match(name)


def of_bundle(name):
    """Whether a folder that needs nothing but glibc brings it."""
    return not OF_LIBC.match(name)


def bundled_libraries(programs, travels):
    """{name: file} of the libraries that must travel with the programs, theirs included."""
    found = {}
    for program in programs:
        places = places_of_libraries(program)
        open_names = needed(program)
        while open_names:
            name = open_names.pop()
            if name in found or not travels(name):
                continue
            if name not in places:
                raise SystemExit(f"packaging: {program} needs {name}, which is missing")
            found[name] = pathlib.Path(places[name])
            open_names += needed(found[name])
    return found


def versions_needed(files):
    """The versions, as GLIBC_2.34, that the files need of the system's libraries."""
    versions = set()
    for file in files:
        library = ""
        for line in head_of(file).splitlines():
            start = re.match(r"\s+required from (\S+):", line)
            entry = re.match(r"\s+0x[0-9a-f]+ 0x[0-9a-f]+ \d+ (\S+)$", line)
            if start:
                library = start.group(1)
            elif entry and OF_SYSTEM.match(library):
                versions.add(entry.group(1))
    return versions


def numbers(version):
    return tuple(int(part) for part in version.split("."))


def policy_of(versions):
    """The oldest (2, N) of manylinux_2_N that has all these versions."""
    oldest = min(POLICIES)
    for version in versions:
        name, _, number = version.partition("_")
        if version in LOADER_FEATURES:
            fits = [LOADER_FEATURES[version]]
        elif not re.fullmatch(r"[\d.]+", number):
            fits = []
        elif name == "GLIBC":
            fits = [numbers(number)[:2]]
        else:
            fits = [glibc for glibc, newest in POLICIES.items()
                    if numbers(number) <= newest.get(name, ())]
        if not fits:
            raise SystemExit(f"packaging: no known manylinux policy has {version}")
        oldest = max(oldest, min(fits))
    return oldest
