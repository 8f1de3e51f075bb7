"""What a wheel holds that is not ours, and under which licence, from Debian's copyright files."""
import pathlib
import re

from needs import output_of

# Packages of tools/setup whose code the build puts into our programs: how, and the licence where
# Debian's file does not serve (libboost-dev's is that of the packaging, and another one has 2 MB).
LINKED_IN = {
    "libboost-dev": ("headers", "BSL-1.0, which asks for no notice in a program"),
    "libcli11-dev": ("headers", None),
    "libgloo-dev": ("headers", None),
    "libhdf5-dev": ("static library", None),
    "libhwy-dev": ("headers", None),
    "libjs-chart.js": ("script of a page", None),
    "libtomlplusplus-dev": ("headers", None),
    "nlohmann-json3-dev": ("headers", None),
}
# Those whose library is bundled, or is every machine's (zlib), and those of the tests alone.
NOT_LINKED_IN = ("libisal-dev", "libpcre2-dev", "libsentencepiece-dev", "libsodium-dev",
                 "libutf8proc-dev", "libxxhash-dev", "libzstd-dev", "zlib1g-dev",
                 "libbenchmark-dev", "libgmock-dev", "libgtest-dev")


def package_of(file):
    """The Debian package that installed it, in whichever of the merged folders it says so."""
    real = str(pathlib.Path(file).resolve())
    owners = output_of("dpkg-query", "-S", f"*/{pathlib.Path(real).name}")
    for line in owners.splitlines():
        packages, _, path = line.partition(": ")
        if path in (real, real.removeprefix("/usr")):
            return packages.split(":")[0]
    raise SystemExit(f"packaging: no Debian package owns {real}, so nobody knows its licence")


def version_of(package):
    return output_of("dpkg-query", "-W", "-f", "${Version}\n", package).splitlines()[0]


def copyright_of(package):
    return pathlib.Path("/usr/share/doc", package, "copyright").read_text(errors="replace")


def licence_in(text):
    """The short name that a copyright file has for all files; not every file is so regular."""
    for paragraph in re.split(r"\n\s*\n", text):
        if re.match(r"Files:\s*\*\s*$", paragraph, re.M):
            short = re.search(r"^License:[ \t]*(\S.*)$", paragraph, re.M)
            return short.group(1) if short else "see the file"
    return "see the file"


def parts(libraries):
    """([(how, package, licence)], {package: copyright file}) of what is not ours: {name: file} of
    bundled libraries, and what is compiled in."""
    bundled = {name: package_of(file) for name, file in sorted(libraries.items())}
    rows, copyrights = [], {}
    for package, how in [*((package, name) for name, package in bundled.items()),
                         *((package, how) for package, (how, _) in LINKED_IN.items())]:
        licence = LINKED_IN.get(package, ("", None))[1]
        if not licence:
            copyrights[package] = copyright_of(package)
            licence = licence_in(copyrights[package])
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
    """(text, {package: copyright file}) for {name: file} of bundled libraries; words: where."""
    found, copyrights = parts(libraries)
    rows = [(how, f"{package} {version_of(package)}", licence) for how, package, licence in found]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    table = "".join(f"  {how:{widths[0]}}  {package:{widths[1]}}  {licence}\n"
                    for how, package, licence in rows)
    head = f"{ours} is under the Apache License 2.0 (LICENSE)."
    return f"{head}\n\n{words}\n\n{table}", copyrights
