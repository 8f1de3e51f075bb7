"""The bundle (packaging/bundle): what it needs of a machine, and a training of two ranks in a root
file system that has glibc's libraries and nothing else: no shell, no Python, no other library."""
import os
import pathlib
import re
import shutil
import subprocess
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
PACKAGING = TESTS.parent / "packaging"
sys.path[:0] = [str(TESTS / "multirank"), str(PACKAGING / "wheel")]
from lockstep_run import (BIN_DIR, NO_CHECKPOINTS, TINY, Test, check, check_same,  # noqa: E402
                          flags, program, tail, whole_curve)
import needs  # noqa: E402
from pack import check_pack  # noqa: E402

STEPS = 4
KEYS = TINY | NO_CHECKPOINTS | {"training.steps": STEPS, "lr_scheduler.total_steps": STEPS}
# Without root, as the owner of a user namespace.
ISOLATED = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private",
            *([] if os.geteuid() == 0 else ["--map-root-user"])]
IN_ROOT = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'


def run(*command, status=0, **more):
    """What it printed; it must end with `status`."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=200, stdin=subprocess.DEVNULL, check=False, **more)
    printed = done.stdout + done.stderr
    check(done.returncode == status, *command, f"\nexit {done.returncode}, not {status}:\n",
          tail(printed))
    return printed


def build(out, *extras, status=0):
    return run(sys.executable, PACKAGING / "bundle/build_bundle.py", BIN_DIR, out, *extras,
               status=status)


def root_with_libc(folder):
    """A root file system with glibc's libraries, where the loader looks for them."""
    places = re.findall(r"(/\S+) \(0x", run("ldd", program("lockstep-worker")))
    for place in places:
        if needs.OF_LIBC.match(pathlib.Path(place).name):
            to = folder / place.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(pathlib.Path(place).resolve(), to)
    for name in ("proc", "dev", "tmp", "opt", "run"):
        (folder / name).mkdir()
    return folder


def elves(bundle):
    return [path for path in bundle.rglob("*")
            if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]


def closed(test, bundle, said):
    with test.case("all that it needs is in it, but glibc"):
        found = elves(bundle)
        names = {path.name for path in found}
        check({"lockstep", "lockstep-worker", "libtorch_cpu.so", "libstdc++.so.6"} <= names, names)
        for path in found:
            missing = {name for name in needs.needed(path)
                       if name not in names and not needs.OF_LIBC.match(name)}
            check(not missing, path, missing)
    with test.case("it says which glibc it needs"):
        newest = max(int(minor) for path in elves(bundle)
                     for minor in re.findall(r"\bGLIBC_2\.(\d+)", run("objdump", "-T", path)))
        check(f"it needs glibc 2.{newest} or newer" in said, newest, said)
    with test.case("NOTICE and the licences say whose every library is"):
        told = (bundle / "NOTICE").read_text()
        for path in (bundle / "lib").iterdir():
            row = re.search(rf"^  {re.escape(path.name)} +(\S+) \S+  +\S", told, re.M)
            check(row, path.name, "is not in", told)
            check((bundle / "licenses/debian" / row.group(1)).stat().st_size > 500, path)
        check("End User License Agreement" in told, told)
    with test.case("what it stages stands alone"):
        check_pack(run(bundle / "bin/lockstep", "stage", test.folder / "packs"),
                   test.folder / "unpacked")
    with test.case("batch scripts find its program"):
        settings = bundle / "sbatch_files/settings.sh"
        printed = run("bash", "-c", f'source "{settings}"; echo "$LOCKSTEP"',
                      env={"PATH": os.defpath})
        check(os.path.normpath(printed.strip()) == str(bundle / "bin/lockstep"), printed)


def trains(test, root, bundle):
    place = "/" + str(bundle.relative_to(root))
    words = [*flags(KEYS), f"--data.path={place}/tokens", "--job.dump_folder=/run/bundled",
             "--nproc-per-node=2"]
    with test.case("the root has no program and no library but those of glibc"):
        outside = {path.name for path in elves(root) if not path.is_relative_to(bundle)}
        check(outside and all(needs.OF_LIBC.match(name) for name in outside), outside)
    if subprocess.run([*ISOLATED, "true"], capture_output=True, check=False).returncode != 0:
        print("not shown here, where nobody may make namespaces: two ranks train in it")
        return
    with test.case("two ranks train in it: the build's bits"):
        reference = test.train("build", 2, KEYS)
        run(*ISOLATED, "sh", "-c", IN_ROOT, root, f"{place}/bin/lockstep", "launch",
            f"{place}/empty.toml", *words, env={"PATH": os.environ["PATH"]})
        check_same(whole_curve(reference, STEPS), whole_curve(root / "run/bundled", STEPS),
                   "the bundle and the build")


with Test("bundle") as test:
    config = test.folder / "empty.toml"
    config.write_text("# every key comes from the command line\n")
    tokens = test.folder / "tokens"
    shutil.copytree(test.tokens(), tokens)
    root = root_with_libc(test.folder / "root")
    with test.case("builds, with a config and tokens"):
        said = build(root / "opt", config, tokens)
        [bundle] = (root / "opt").iterdir()
        check((bundle / "empty.toml").exists() and (bundle / "tokens").is_dir(), bundle)
    with test.case("what would take a place of its own, or is not there, is refused"):
        check("no /nowhere" in build(test.folder / "refused", "/nowhere", status=1), "taken")
        own = test.folder / "lib"
        own.mkdir()
        check("the bundle's own lib" in build(test.folder / "refused", own, status=1), "taken")
        check(not list((test.folder / "refused").glob("lockstep-*[0-9]")), "a folder is left")
    if not test.failures:
        closed(test, bundle, said)
        trains(test, root, bundle)
