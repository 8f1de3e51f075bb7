"""What `make release` makes (packaging/release): sums, the wheel's checks, an SBOM that knows what
the programs load, link and include, the changes of the version; and what it refuses."""
import contextlib
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import zipfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(TESTS / "multirank"), str(ROOT / "packaging/release")]
from lockstep_run import BIN_DIR, Test, check  # noqa: E402
import build_release as release  # noqa: E402
import needs  # noqa: E402

TORCH = pathlib.Path(os.environ["LOCKSTEP_TORCH"])
BUILD = BIN_DIR.parent
OLD_DEBIAN = (ROOT / ".deps/bullseye").resolve()
PROGRAMS = [BIN_DIR / "wheel/lockstep", BIN_DIR / "wheel/lockstep-worker"]
LINKED_IN = "bin/wheel" if os.environ["LOCKSTEP_PORTABLE"] == "1" else "bin"
# Of the compiler and of every machine.
OF_TOOLCHAIN = re.compile(
    r"(libc6-dev|linux-libc-dev|libstdc\+\+-\d+-dev|libgcc-\d+-dev|zlib1g-dev)$")
CHANGELOG = "# Changelog\n\n## Unreleased\n{}\n## 9.9.9 (2030-01-01)\n- a\n- b\n\n## 9.9.8\n- c\n"


def output_of(*command, **more):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True,
                          text=True, **more).stdout


@contextlib.contextmanager
def refused(words):
    try:
        yield
    except SystemExit as error:
        check(words in str(error), error)
    else:
        raise AssertionError(f"it was not refused: {words}")


def how(component):
    return component["properties"][0]["value"]


def owners(files, root=""):
    """{the Debian package that has each file}, of the Debian in this folder"""
    told = subprocess.run(["dpkg-query", f"--admindir={root}/var/lib/dpkg", "-S", *files],
                          capture_output=True, text=True, check=False).stdout
    return {package.split(":")[0] for line in told.splitlines()
            for package in line.rpartition(": ")[0].split(", ")}


def needs_of_package(package):
    told = output_of("dpkg-query", "-W", "-f", "${Depends}\n", package)
    return set(re.findall(r"(?:^|[,|] )([a-z0-9.+-]+)", told))


def loaded(components):
    """Against ldd: each library that the programs load and that is not the system's or torch's."""
    wanted = {}
    for program in PROGRAMS:
        told = output_of("ldd", program)
        wanted |= {name: pathlib.Path(place) for name, place
                   in re.findall(r"^\s+(\S+) => (/\S+)", told, re.M) if needs.of_wheel(name)}
    of_torch = {name for name, place in wanted.items() if str(place).startswith(str(TORCH))}
    wanted = {f"lib/{name}": place for name, place in wanted.items() if name not in of_torch}
    bundled = {how(each): each for each in components if "hashes" in each}
    check(bundled.keys() == wanted.keys(), bundled.keys() ^ wanted.keys())
    for name, place in wanted.items():
        digest = hashlib.sha256(place.read_bytes()).hexdigest()
        check(bundled[name]["hashes"] == [{"alg": "SHA-256", "content": digest}], name)
        real = str(place.resolve())
        root = str(OLD_DEBIAN) if real.startswith(str(OLD_DEBIAN)) else ""
        inside = real.removeprefix(root)
        check(bundled[name]["name"] in owners([inside, inside.removeprefix("/usr")], root), name)


def linked(components):
    """Against the link commands: each archive that is not ours."""
    words = []
    for program in PROGRAMS:
        command = output_of("ninja", "-C", BUILD, "-t", "commands", "-s",
                            f"{LINKED_IN}/{program.name}")
        words += shlex.split(command)
    archives = sorted({word for word in words if word.startswith("/usr/") and word.endswith(".a")})
    static = {each["name"] for each in components if how(each) == "static library"}
    check(archives and owners(archives) == static, archives, static)


def included(components):
    """Against the compiler's own lists: each package whose headers the programs' objects read."""
    ours, headers = False, set()
    for line in output_of("ninja", "-C", BUILD, "-t", "deps").splitlines():
        if not line.startswith(" "):
            ours = not line.startswith(("tests/", "bench/"))
        elif ours and line.strip().startswith("/usr/include/"):
            headers.add(line.strip())
    read = {package for package in owners(sorted(headers)) if not OF_TOOLCHAIN.match(package)}
    check(len(read) > 5, read)
    told = {each["name"] for each in components if each["name"] != "torch"}
    # The headers of libboost-dev, say, are libboost1.74-dev's.
    behind = set().union(*map(needs_of_package, told))
    for package in read:
        check(package in told | behind or needs_of_package(package) & told, package,
              "is compiled in, and the SBOM lacks it")
    by_headers = {each["name"] for each in components if how(each) == "headers"} - {"torch"}
    for package in by_headers:
        check(({package} | needs_of_package(package)) & read, package, "is in no program")


def scripts(components):
    """Against the program: the version that Chart.js says there is the package's."""
    told = set(re.findall(rb"Chart\.js v([0-9.]+)", PROGRAMS[0].read_bytes()))
    named = {each["version"].split("+")[0].encode() for each in components
             if how(each) == "script of a page"}
    check(len(told) == 1 and told == named, told, named)


def bill(folder, wheel):
    [path] = folder.glob("*.cdx.json")
    told = json.loads(path.read_text())
    check((told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.5"), told)
    components = told["components"]
    for each in components:
        check(each["version"] and each["purl"].startswith("pkg:"), each)
        check(list(each["licenses"][0]["license"].values())[0], each)
    with zipfile.ZipFile(wheel) as archive:
        inside = {name.removeprefix("lockstep_trainer/"): archive.read(name)
                  for name in archive.namelist() if name.startswith("lockstep_trainer/lib/")}
    check(inside.keys() == {how(each) for each in components if "hashes" in each}, inside.keys())
    [notice_file] = folder.glob("NOTICE-*")
    text = notice_file.read_text()
    for each in components:
        check(f" {each['name']} {each['version']}" in text or each["name"] == "torch", each)
    check(told["metadata"]["component"]["version"] == wheel.name.split("-")[1], told["metadata"])
    return components


def refusals(wheel, folder):
    changes = release.changes_of(CHANGELOG.format(""), "9.9.9")
    check(changes == "## 9.9.9 (2030-01-01)\n- a\n- b\n", changes)
    with refused('"Unreleased" is not empty'):
        release.changes_of(CHANGELOG.format("- new\n"), "9.9.9")
    with refused('no section "## 9.9.7"'):
        release.changes_of(CHANGELOG.format(""), "9.9.7")
    line = "lockstep {}, commit {}, LibTorch 2.11.0"
    release.check_programs(line.format("1.2.3", "0a1b2c3d4e5f"), "1.2.3")
    for version, commit, words in (("1.2.4", "0a1b", "build again"), ("1.2.3", "0a1b+", "clean"),
                                   ("1.2.3", "unknown", "clean commit")):
        with refused(words):
            release.check_programs(line.format(version, commit), "1.2.3")
    old = folder / re.sub(r"manylinux_2_\d+", "manylinux_2_28", wheel.name)
    old.write_bytes(wheel.read_bytes())
    with refused("needs what its tag does not allow: lib"):
        release.check_wheel(old, TORCH / "torch/lib")
    most, release.MAX_WHEEL_BYTES = release.MAX_WHEEL_BYTES, wheel.stat().st_size - 1
    with refused("bytes, and"):
        release.check_wheel(wheel, TORCH / "torch/lib")
    release.MAX_WHEEL_BYTES = most


def names_in_pages():
    """Pages show the names of the files of this version."""
    version, found = release.project_version(), []
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        found += [(page.name, named) for named in
                  re.findall(r"\b(?:lockstep_trainer|build/bundle/lockstep)-(\d+\.\d+\.\d+)",
                             page.read_text())]
    check(found and all(named == version for _, named in found), found, version)
    for program in PROGRAMS:
        check(output_of(program, "--version").split()[1] == version + ",", program)


with Test("release") as test:
    out = test.folder / "dist"
    with test.case("makes all of it, and the sums are right"):
        release.make([[BIN_DIR / "wheel"]], out, "## 9.9.9\n- a\n")
        [wheel] = out.glob("*.whl")
        output_of("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=out)
        sums = {line.split()[1] for line in (out / "SHA256SUMS").read_text().splitlines()}
        check(sums == {path.name for path in out.iterdir()} - {"SHA256SUMS"} and len(sums) == 4,
              sums)
    with test.case("auditwheel says the same tag"):
        said = release.auditwheel_tag(wheel, TORCH / "torch/lib")
        check(said and wheel.name.endswith(f"-{said}.whl"), said, wheel.name)
    if not test.failures:
        components = bill(out, wheel)
        for name, body in (("SBOM and ldd", loaded), ("SBOM and the link", linked),
                           ("SBOM and the headers", included),
                           ("SBOM and scripts", scripts)):
            with test.case(name):
                body(components)
        with test.case("what must not be released is refused"):
            refusals(wheel, test.folder)
    with test.case("pages and programs have the one version"):
        names_in_pages()
