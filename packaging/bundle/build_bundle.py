#!/usr/bin/env python3
"""Packs all that a node without internet needs into one folder: build_bundle.py BIN OUT [PATH…]

BIN: where a build has its programs. OUT/lockstep-VERSION is replaced. It needs glibc and nothing
else, no Python either:

  bin/lockstep, bin/lockstep-worker    stripped
  lib/                                 Debian's libraries, libstdc++ among them
  torch/lib/, nvidia/…/lib/            LibTorch's libraries, and NVIDIA's that it is linked with
  examples/, sbatch_files/, tools/, LICENSE, NOTICE, licenses/
  PATH…                                copies, by their last name: a config, a tokenizer, tokens

The programs find their libraries by a DT_RPATH relative to themselves, before any LD_LIBRARY_PATH,
so the folder may lie anywhere, or be a squashfs.
"""
import pathlib
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "packaging/wheel"))
from build_wheel import fail, portable_copy, shared_files, what_they_are  # noqa: E402
from needs import bundled_libraries, of_bundle, policy_of, versions_needed  # noqa: E402
from notice import OF_BUNDLE, notice  # noqa: E402


def placed(libraries):
    """{path in the bundle: file}. LibTorch's libraries look for NVIDIA's beside torch/."""
    torch = libraries["libtorch_cpu.so"].resolve().parents[2]
    result = {}
    for name, file in libraries.items():
        real = file.resolve()
        folder = real.parent.relative_to(torch) if real.is_relative_to(torch) else "lib"
        result[f"{folder}/{name}"] = real
    return result


def with_what_is_opened(files):
    """CUDA's libraries open others of their folders by name, which no table of theirs says."""
    more = {}
    for path, file in files.items():
        if path.startswith("nvidia/"):
            more |= {f"{pathlib.Path(path).parent}/{sibling.name}": sibling
                     for sibling in file.parent.glob("*.so*")}
    return files | more


def check_extras(extras, own):
    for extra in extras:
        if not extra.exists():
            fail("there is no", extra)
        if extra.name in own:
            fail(extra, "would take the place of the bundle's own", extra.name)
        own.add(extra.name)


def write(folder, files, texts, extras):
    for path, file in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, folder / path)
    for path, words in texts.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(words)
    for extra in extras:
        to = folder / extra.name
        shutil.copytree(extra, to) if extra.is_dir() else shutil.copy(extra, to)


def build(bin_folder, out, extras):
    programs = [bin_folder / name for name in ("lockstep", "lockstep-worker")]
    version, [minor] = what_they_are(*programs)
    libraries = placed(bundled_libraries(programs, of_bundle))
    debian = {pathlib.Path(path).name: file for path, file in libraries.items()
              if path.startswith("lib/")}
    text, copyrights = notice(f"Lockstep {version}", debian, OF_BUNDLE)
    if "torch/lib/libtorch_cuda.so" in libraries:
        libraries = with_what_is_opened(libraries)
    texts = {"NOTICE": text, "LICENSE": (ROOT / "LICENSE").read_text()}
    texts |= {f"licenses/debian/{package}": words for package, words in copyrights.items()}
    files = libraries | shared_files()
    check_extras(extras, {path.split("/")[0] for path in ["bin/lockstep", *files, *texts]})
    folder = out / f"lockstep-{version}"
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    places = sorted({str(pathlib.Path(path).parent) for path in libraries})
    for program in programs:
        portable_copy(program, partial / "bin" / program.name,
                      ":".join(f"$ORIGIN/../{place}" for place in places))
    write(partial, files, texts, extras)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    elves = [*(folder / "bin").iterdir(), *(folder / path for path in libraries)]
    glibc = policy_of({need for need in versions_needed(elves) if need.startswith("GLIBC_")})
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {size / 1e6:.0f} MB, LibTorch {minor}, {len(libraries)} libraries; "
          f"it needs glibc {'.'.join(map(str, glibc))} or newer")


def main(arguments):
    if len(arguments) < 2 or any(word.startswith("-") for word in arguments):
        print(__doc__)
        return 64
    bin_folder, out, *extras = [pathlib.Path(word).absolute() for word in arguments]
    build(bin_folder, out, extras)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
