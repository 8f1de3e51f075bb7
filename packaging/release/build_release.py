#!/usr/bin/env python3
"""Makes what a release carries, and refuses what must not be released:
build_release.py OUT BIN[,BIN…] [BIN[,BIN…]]

BIN: what packaging/wheel/build_wheel.py takes, of a clean commit; a list for each architecture.
OUT, which is replaced, gets CHANGES.md (the version's section of docs/CHANGELOG.md), SHA256SUMS of
all, and for each architecture

  lockstep_trainer-VERSION-….whl           checked: symbols against its tag, auditwheel, size
  lockstep_trainer-VERSION-ARCH.cdx.json   SBOM (CycloneDX): all of others that is inside, with
                                           licences
  NOTICE-ARCH                              the same for people, as in the wheel

The version is that of project() in CMakeLists.txt, which the programs say; nothing else names it.
"""
import hashlib
import json
import pathlib
import re
import shutil
import sys
import tempfile
import urllib.parse
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "packaging/wheel"))
import build_wheel  # noqa: E402
from build_wheel import PYTHON_TOOLS, fail  # noqa: E402
from machine import NAMES, binutil, output_of, said_by  # noqa: E402
from needs import POLICIES, bundled_libraries, head_of, numbers, of_wheel  # noqa: E402
from notice import parts  # noqa: E402

MAX_WHEEL_BYTES = 100_000_000  # without workers for CUDA: PyPI's limit
CHANGELOG = "docs/CHANGELOG.md"


# ---- is this a release? --------------------------------------------------------------------------
def project_version():
    return re.search(r"^project\(lockstep VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(),
                     re.M).group(1)


def check_programs(line, version):
    """`line`: what a program says of itself."""
    said, commit = re.match(r"\S+ (\S+), commit (\S+),", line).groups()
    if said != version:
        fail(f"the programs are of version {said}, but CMakeLists.txt says {version}; build again")
    if not re.fullmatch(r"[0-9a-f]+", commit):
        fail(f"the programs say \"commit {commit}\"; build a release from a clean commit")


def changes_of(changelog, version):
    """The section of this version, with its heading."""
    sections = re.split(r"^(?=## )", changelog, flags=re.M)
    named = {section.split("\n")[0][3:].split(" ")[0]: section for section in sections[1:]}
    if named.get("Unreleased", "").partition("\n")[2].strip():
        fail(f"{CHANGELOG}: \"Unreleased\" is not empty; give the section its version, and "
             "give project() in CMakeLists.txt the same")
    if version not in named:
        fail(f"{CHANGELOG} has no section \"## {version}\"")
    return named[version].rstrip() + "\n"


# ---- is the wheel what its name says? ------------------------------------------------------------
def parts_of_tag(wheel):
    """("2_31", "x86_64") of a wheel for manylinux_2_31_x86_64"""
    machines = "|".join(NAMES.values())
    return re.fullmatch(rf"manylinux_(\d+_\d+)_({machines})", wheel.stem.split("-")[-1]).groups()


def symbol_faults(files, glibc):
    """What the files need of the system that manylinux_2_N does not allow, as objdump tells."""
    level = numbers(glibc.replace("_", "."))
    allowed = {"GLIBC": level}
    for policy, newest in POLICIES.items():
        if policy <= level:
            allowed |= newest
    faults = set()
    for file in files:
        undefined = re.findall(r"\*UND\*.*?\b(GLIBC|GLIBCXX|CXXABI|GCC)_([\d.]+)",
                               output_of(binutil("objdump", file), "-T", file))
        faults |= {f"{pathlib.Path(file).name}: {name}_{version}" for name, version in undefined
                   if numbers(version) > allowed[name]}
    return sorted(faults)


def auditwheel_tag(wheel, torch):
    """The tag that the symbols allow, as auditwheel says. (It calls the wheel itself linux_x86_64,
    for torch's libraries are not in it. It reads them, though, libgomp among them, and would take
    the host's: torch is the folder where they are.)"""
    auditwheel = shutil.which("auditwheel", path=str(PYTHON_TOOLS)) or shutil.which("auditwheel")
    if not auditwheel:
        fail("auditwheel is not installed: tools/setup --test")
    said = " ".join(output_of("env", f"LD_LIBRARY_PATH={torch}", auditwheel, "show", wheel).split())
    return re.search(r'constrains the platform tag to "([^"]+)"', said).group(1)


def check_wheel(wheel, torch):
    """torch: the folder with LibTorch's libraries."""
    tag = wheel.stem.split("-")[-1]
    size = wheel.stat().st_size
    if size > MAX_WHEEL_BYTES:
        fail(f"{wheel.name} has {size} bytes, and {MAX_WHEEL_BYTES} are allowed")
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch)
        files = [path for path in pathlib.Path(scratch).rglob("*")
                 if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
        faults = symbol_faults(files, parts_of_tag(wheel)[0])
    if faults:
        fail(f"{wheel.name} needs what its tag does not allow:", *faults)
    said = auditwheel_tag(wheel, torch)
    if said != tag:
        fail(f"auditwheel says {said} of {wheel.name}")


# ---- what is in it -------------------------------------------------------------------------------
def component(how, package, licence, file):
    architecture, version = package.field("Architecture"), package.version()
    result = {"type": "library", "name": package.name, "version": version,
              "licenses": [{"license": {"name": licence}}],
              "purl": f"pkg:deb/debian/{package.name}@{urllib.parse.quote(version, safe='')}"
                      f"?arch={architecture}",
              "properties": [{"name": "lockstep:how", "value": f"lib/{how}" if file else how}]}
    if file:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        result["hashes"] = [{"alg": "SHA-256", "content": digest}]
    return result


def sbom(version, minors, libraries):
    """CycloneDX, for {name: file} of bundled libraries, and what is compiled into the programs."""
    rows, _ = parts(libraries)
    components = [component(how, package, licence, libraries.get(how))
                  for how, package, licence in rows]
    components += [{"type": "library", "name": "torch", "version": minor,
                    "licenses": [{"license": {"id": "BSD-3-Clause"}}],
                    "purl": f"pkg:pypi/torch@{minor}",
                    "properties": [{"name": "lockstep:how", "value": "headers"}]}
                   for minor in minors]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
            "metadata": {"component": {
                "type": "application", "name": build_wheel.NAME, "version": version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
                "purl": f"pkg:pypi/{build_wheel.NAME}@{version}"}},
            "components": components}


# ---- all of it -----------------------------------------------------------------------------------
def notice_of(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/licenses/NOTICE")]
        return archive.read(name).decode()


def programs_of(bin_folders):
    return [bin_folders[0] / "lockstep", *(each / "lockstep-worker" for each in bin_folders)]


def libtorch_of(worker):
    """The folder with the LibTorch that it is linked with, in its DT_RPATH."""
    path = re.search(r"^\s+R(?:UN)?PATH\s+(\S+)$", head_of(worker), re.M).group(1)
    return next(folder for folder in map(pathlib.Path, path.split(":"))
                if (folder / "libtorch_cpu.so").exists())


def add_architecture(bin_folders, out):
    """The wheel of these programs, checked, with what it says of others."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "wheel"
        build_wheel.build(bin_folders, folder, pathlib.Path(scratch))
        [built] = folder.glob("*.whl")
        wheel = pathlib.Path(shutil.move(built, out / built.name))
    programs, (_, machine) = programs_of(bin_folders), parts_of_tag(wheel)
    check_wheel(wheel, libtorch_of(programs[1]))
    version, workers = build_wheel.what_they_are(*programs)
    bill = sbom(version, build_wheel.minors_of(workers), bundled_libraries(programs, of_wheel))
    name = f"{build_wheel.MODULE}-{version}-{machine}.cdx.json"
    (out / name).write_text(json.dumps(bill, indent=1) + "\n")
    (out / f"NOTICE-{machine}").write_text(notice_of(wheel))


def make(architectures, out, changes):
    """Everything in OUT, from programs that may be released with these changes."""
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    for bin_folders in architectures:
        add_architecture(bin_folders, partial)
    (partial / "CHANGES.md").write_text(changes)
    sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
            for path in sorted(partial.iterdir())]
    (partial / "SHA256SUMS").write_text("".join(sums))
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)
    print(f"{out}: {', '.join(path.name for path in sorted(out.iterdir()))}")


def main(arguments):
    if len(arguments) < 2 or any(word.startswith("-") for word in arguments):
        print(__doc__)
        return 64
    out, *lists = arguments
    architectures = [[pathlib.Path(word).absolute() for word in each.split(",")] for each in lists]
    version = project_version()
    changes = changes_of((ROOT / CHANGELOG).read_text(), version)
    for bin_folders in architectures:
        for program in programs_of(bin_folders):
            check_programs(said_by(program, "--version"), version)
    if output_of("git", "-C", ROOT, "status", "--porcelain"):
        fail("files differ from the commit; build a release from a clean commit")
    make(architectures, pathlib.Path(out).absolute(), changes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
