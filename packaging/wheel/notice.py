"""What a wheel holds that is not ours, and under which licence, from Debian's copyright files."""
import pathlib
import re
import typing

from machine import SYSROOT, output_of

PAGE_SCRIPT = "script of a page"  # the same on every architecture: the host's
# Packages of tools/setup whose code the build puts into our programs: how, and the licence where
# Debian's file does not serve (libboost-dev's is that of the packaging, and another one has 2 MB).
LINKED_IN = {
    "libboost-dev": ("headers", "BSL-1.0, which asks for no notice in a program"),
    "libcli11-dev": ("headers", None),
    "libgloo-dev": ("headers", None),
    "libhdf5-dev": ("static library", None),
    "libhwy-dev": ("headers", None),
    "libjs-chart.js": (PAGE_SCRIPT, None),
    "libtomlplusplus-dev": ("headers", None),
    "nlohmann-json3-dev": ("headers", None),
}
# The same of programs that also run on older systems (packaging/wheel/CMakeLists.txt): with others
# these libraries are bundled.
LINKED_IN_IF_PORTABLE = {
    "libsodium-dev": ("static library", None),
    "libstdc++-12-dev": ("static library",
                         "GPL-3 with GCC's Runtime Library Exception: no conditions for a program"),
    "libzstd-dev": ("static library", None),
}
# Those whose library is bundled, or is every machine's (zlib), and those of the tests alone.
NOT_LINKED_IN = ("libisal-dev", "libpcre2-dev", "libsentencepiece-dev",
                 "libutf8proc-dev", "libxxhash-dev", "zlib1g-dev",
                 "libbenchmark-dev", "libgmock-dev", "libgtest-dev")


class Package(typing.NamedTuple):
    """A Debian package, of the host or of a Debian in a folder (tools/setup)."""
    name: str
    root: pathlib.Path = pathlib.Path("/")

    def field(self, name):
        return output_of("dpkg-query", f"--admindir={self.root}/var/lib/dpkg", "-W", "-f",
                         f"${{{name}}}\n", self.name).splitlines()[0]

    def version(self):
        return self.field("Version")

    def copyright(self):
        return (self.root / "usr/share/doc" / self.name / "copyright").read_text(errors="replace")


def package_of(file):
    """The package that installed it, in whichever of the merged folders it says so."""
    real = pathlib.Path(file).resolve()
    root = next(folder for folder in real.parents if (folder / "var/lib/dpkg/status").exists())
    inside = f"/{real.relative_to(root)}"
    owners = output_of("dpkg-query", f"--admindir={root}/var/lib/dpkg", "-S", f"*/{real.name}")
    for line in owners.splitlines():
        packages, _, path = line.partition(": ")
        if path in (inside, inside.removeprefix("/usr")):
            return Package(packages.split(":")[0], root)
    raise SystemExit(f"packaging: no Debian package owns {real}, so its licence is unknown")


def licence_in(text):
    """The short name that a copyright file has for all files; not every file is so regular."""
    for paragraph in re.split(r"\n\s*\n", text):
        if re.match(r"Files:\s*\*\s*$", paragraph, re.M):
            short = re.search(r"^License:[ \t]*(\S.*)$", paragraph, re.M)
            return short.group(1) if short else "see the file"
    return "see the file"


def parts(libraries):
    """([(how, package, licence)], {package's name: copyright file}) of what is not ours: {name:
    file} of bundled libraries, and what is compiled in."""
    portable = not any(name.startswith("libzstd.") for name in libraries)
    linked_in = LINKED_IN | (LINKED_IN_IF_PORTABLE if portable else {})
    found = [(name, package_of(file), None) for name, file in sorted(libraries.items())]
    arm = SYSROOT in {package.root for _, package, _ in found}
    home = SYSROOT if arm else pathlib.Path("/")
    found += [(how, Package(name) if how == PAGE_SCRIPT else Package(name, home), licence)
              for name, (how, licence) in sorted(linked_in.items())]
    rows, copyrights = [], {}
    for how, package, licence in found:
        if not licence:
            copyrights[package.name] = package.copyright()
            licence = licence_in(copyrights[package.name])
        rows.append((how, package, licence))
    return rows, copyrights


OF_WHEEL = """\
This wheel also holds what follows, as Debian has it: libraries (*.so.N) in
lockstep_trainer/lib, unchanged, and code of others inside the programs (headers, static
libraries, a script of a page), LibTorch's headers among it (BSD-3-Clause; torch comes with its
licence, and none of its libraries is in this wheel).
Each package's whole copyright file is licenses/debian/PACKAGE."""
OF_BUNDLE = """\
This folder also holds LibTorch's libraries (torch/lib; BSD-3-Clause), those of NVIDIA
that LibTorch loads (nvidia; the CUDA Toolkit's End User License Agreement), and what follows, as
Debian has it: libraries (*.so.N) in lib, unchanged, and code of others inside the programs
(headers, static libraries, a script of a page). Each package's whole copyright file is
licenses/debian/PACKAGE."""


def notice(ours, libraries, words):
    """(text, {package's name: copyright file}) for {name: file} of bundled libraries; words: what
    they are in."""
    found, copyrights = parts(libraries)
    rows = [(how, f"{package.name} {package.version()}", licence)
            for how, package, licence in found]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    table = "".join(f"  {how:{widths[0]}}  {package:{widths[1]}}  {licence}\n"
                    for how, package, licence in rows)
    head = f"{ours} is under the Apache License 2.0 (LICENSE)."
    return f"{head}\n\n{words}\n\n{table}", copyrights
