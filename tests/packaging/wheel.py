"""The wheel of this build (packaging/wheel): what is in it, what it says of itself, that it
installs without a network, trains the build's bits, and what it says where it cannot."""
import base64
import csv
import hashlib
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import zipfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
WHEEL = TESTS.parent / "packaging/wheel"
sys.path[:0] = [str(TESTS / "multirank"), str(WHEEL)]
from lockstep_run import (BIN_DIR, EXIT_CONFIG, NO_CHECKPOINTS, TINY, Test, check,  # noqa: E402
                          check_same, flags, program, tail, whole_curve)
import build_wheel  # noqa: E402
import needs  # noqa: E402
import notice  # noqa: E402
from pack import check_pack  # noqa: E402

TORCH = pathlib.Path(os.environ["LOCKSTEP_TORCH"])  # what the build is linked with
CUDA = next(TORCH.glob("nvidia/*/lib"))
STEPS = 4
RUN_TIMEOUT_S = 300
KEYS = TINY | NO_CHECKPOINTS | {"training.steps": STEPS, "lr_scheduler.total_steps": STEPS}


def run(*command, status=0, environment=None, **more):
    """What it printed; it must end with `status`."""
    done = subprocess.run([str(word) for word in command], env=environment, capture_output=True,
                          text=True, timeout=RUN_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False,
                          **more)
    printed = done.stdout + done.stderr
    check(done.returncode == status, *command, f"\nexit {done.returncode}, not {status}:\n",
          tail(printed))
    return printed


def refusal(body, *arguments):
    """What it says where it refuses, else what it returns."""
    try:
        return body(*arguments)
    except SystemExit as error:
        return str(error)


def other_worker(test, minor):
    """(folder with a worker that says it is of another LibTorch than this build's, its minor)"""
    folder, other = test.folder / "other", f"2.{int(minor.split('.')[1]) + 2}"
    shutil.copytree(BIN_DIR / "wheel", folder)
    worker = folder / "lockstep-worker"
    raw = worker.read_bytes().replace(f"LibTorch {minor}.".encode(), f"LibTorch {other}.".encode())
    worker.write_bytes(raw)
    return folder, other


class Installed:
    """A Python environment with the wheel in it and nothing else."""

    def __init__(self, test, wheel):
        home = test.folder / "environment"
        run(sys.executable, "-m", "venv", "--without-pip", home)
        self.python, self.lockstep = home / "bin/python3", home / "bin/lockstep"
        run(sys.executable, "-m", "pip", f"--python={self.python}", "install", "--no-index",
            "--no-deps", "--no-compile", "--disable-pip-version-check", wheel)
        self.site = next(home.glob("lib/python*/site-packages"))
        self.package = self.site / "lockstep_trainer"
        self.manual = home / "share/man/man1/lockstep.1"
        self.workers = sorted(self.package.glob("torch-*/lockstep-worker"))
        self.environment = test.environment

    def run(self, *words, status=0, **variables):
        return run(self.lockstep, *words, status=status, environment=self.environment | variables)

    def put_torch(self, version, build_torch=None):
        """As pip would, as far as lockstep looks: the build's torch, or one that does not load."""
        for path in [*self.site.glob("torch*"), *self.site.glob("nvidia")]:
            path.unlink() if path.is_symlink() else shutil.rmtree(path)
        (self.site / f"torch-{version}.dist-info").mkdir()
        if build_torch:
            for name in ("torch", "nvidia"):
                (self.site / name).symlink_to(build_torch / name)
        else:
            (self.site / "torch/lib").mkdir(parents=True)
            (self.site / "torch/lib/libtorch_cpu.so").write_text("not a library")

    def curve_of(self, test, name, ranks, **variables):
        folder = test.folder / name
        self.run("launch", test.config, *flags(KEYS), f"--data.path={test.tokens()}",
                 f"--job.dump_folder={folder}", f"--nproc-per-node={ranks}", **variables)
        return whole_curve(folder, STEPS)


def policies(test):
    def tag(*versions):
        found = refusal(needs.policy_of, versions)
        return found if isinstance(found, str) else found[1]

    with test.case("a tag allows every version that is needed, and no more"):
        for expected, versions in ((28, ["GLIBC_2.2.5"]), (34, ["GLIBC_2.17", "GLIBC_2.34"]),
                                   (35, ["GLIBC_2.34", "GLIBCXX_3.4.30", "ZLIB_1.2.9"]),
                                   (38, ["GLIBC_2.38", "GLIBCXX_3.4.30", "GCC_3.0"]),
                                   (36, ["GLIBC_2.34", "GLIBC_ABI_DT_RELR"])):
            check(tag(*versions) == expected, versions, "gave", tag(*versions))
        for refused in ("GLIBC_PRIVATE", "GLIBCXX_3.4.99", "CXXABI_TM_1"):
            check(refused in str(tag("GLIBC_2.34", refused)), refused, "was taken")


def several_workers(test):
    """(the folders of BIN, the minor versions of their workers)"""
    programs = [BIN_DIR / "wheel/lockstep", BIN_DIR / "wheel/lockstep-worker"]
    _, [minor] = build_wheel.what_they_are(*programs)
    folder, other = other_worker(test, minor)
    with test.case("workers of one commit and several versions of torch, and the extra says which"):
        for minors, words in ((["2.15"], ">=2.15,<2.16"), (["2.15", "2.11", "2.14"],
                                                          ">=2.11,<2.16,!=2.12.*,!=2.13.*")):
            check(build_wheel.requirement(minors) == f"torch{words}", minors)
        check("two major" in refusal(build_wheel.requirement, ["2.15", "3.0"]), "was taken")
        _, found = build_wheel.what_they_are(*programs, folder / "lockstep-worker")
        check(list(found) == [minor, other], found)
        for words, more in (("two workers are for the same version", programs[1:]),
                            ("not of the same build", [folder / "lockstep-worker", programs[1]])):
            first = programs[:1] if words.startswith("not") else programs
            said = refusal(build_wheel.what_they_are, *first, *more)
            check(words in str(said), words, said)
    return [BIN_DIR / "wheel", folder], [minor, other]


def contents(test, wheel):
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    info = next(name.rsplit("/", 1)[0] for name in files if name.endswith("/METADATA"))
    with test.case("RECORD has the digest of every file"):
        record = files[f"{info}/RECORD"].decode().splitlines()
        rows = {row[0]: row[1:] for row in csv.reader(record)}
        check(rows.keys() == files.keys(), rows.keys() ^ files.keys())
        for name, raw in files.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).decode().rstrip("=")
            wanted = ["", ""] if name.endswith("/RECORD") else [f"sha256={digest}", str(len(raw))]
            check(rows[name] == wanted, name, rows[name])
    with test.case("manual pages, and completion of shells, where pip puts them for their readers"):
        share = info.removesuffix(".dist-info") + ".data/data/share/"
        pages = {name for name in files if name.startswith(share + "man/man1/lockstep")}
        check(share + "man/man1/lockstep-train.1" in pages and len(pages) > 15, pages)
        for name, word in (("bash-completion/completions/lockstep", b"COMPREPLY"),
                           ("zsh/site-functions/_lockstep", b"#compdef lockstep"),
                           ("fish/vendor_completions.d/lockstep.fish", b"complete -c lockstep")):
            check(word in files[share + name], name)
    with test.case("NOTICE and the licences say whose every library is"):
        told = files[f"{info}/licenses/NOTICE"].decode()
        for name in files:
            if name.startswith("lockstep_trainer/lib/"):
                row = re.search(rf"^  {re.escape(pathlib.Path(name).name)} +(\S+) \S+  +\S", told,
                                re.M)
                check(row, name, "is not in", told)
                check(len(files[f"{info}/licenses/debian/{row.group(1)}"]) > 500, name)
        for line in files[f"{info}/METADATA"].decode().splitlines():
            if line.startswith("License-File: "):
                check(f"{info}/licenses/{line.split()[1]}" in files, line)
    with test.case("NOTICE knows every library that tools/setup installs"):
        setup = (TESTS.parent / "tools/setup").read_text().replace("\\\n", "")
        system = re.search(r'kSystemPackages="([^"]+)"', setup).group(1).split()
        known = {*notice.LINKED_IN, *notice.LINKED_IN_IF_PORTABLE, *notice.NOT_LINKED_IN}
        known -= {"libstdc++-12-dev"}  # the compiler's
        libraries = {package for package in system if re.match(r"libjs-|.*-dev$", package)}
        check(libraries == known, libraries ^ known)


def linkage(test, wheel, installed):
    with test.case("man looks for pages beside the folder of the program"):
        check(".TH" in installed.manual.read_text(), installed.manual)
    portable = os.environ["LOCKSTEP_PORTABLE"] == "1"
    programs = [installed.package / "bin/lockstep", *installed.workers]
    files = [*programs, *(installed.package / "lib").iterdir()]
    with test.case("the tag has every symbol version that a program or library needs"):
        claimed = int(re.search(r"-py3-none-manylinux_2_(\d+)_x86_64\.whl$", wheel.name).group(1))
        check(not portable or claimed == 31, wheel.name)  # Debian 11, Ubuntu 20.04
        undefined = "".join(re.findall(r".*\*UND\*.*\n", run("objdump", "-T", *files)))
        needed = [int(minor) for minor in re.findall(r"\bGLIBC_2\.(\d+)", undefined)]
        check(needed and max(needed) <= claimed, max(needed), claimed)
        newest = max(int(patch) for patch in re.findall(r"GLIBCXX_3\.4\.(\d+)", undefined))
        allowed = max(newest["GLIBCXX"][2] for (_, minor), newest in needs.POLICIES.items()
                      if minor <= claimed and "GLIBCXX" in newest)
        check(newest <= allowed, newest, allowed)
    with test.case("a program has no C++ runtime beside that of its libraries"):
        for file in programs:
            thrown = re.findall(r"^.*\b__cxa_throw$", run("objdump", "-T", file), re.M)
            check(len(thrown) == 1 and "*UND*" in thrown[0], file.name, thrown)
    with test.case("libraries come from the wheel, from torch or from the system"):
        libraries = str(TORCH / "torch/lib")
        for file in programs:
            printed = run("ldd", file, environment=os.environ | {"LD_LIBRARY_PATH": libraries})
            for line in filter(lambda line: "=>" in line, printed.splitlines()):
                name, place = line.split("=>")[0].strip(), line.split("=>")[1].split()[0]
                ours = pathlib.Path(os.path.normpath(place)).is_relative_to(installed.package)
                of_torch = str(TORCH) in place
                check(ours or of_torch or needs.OF_SYSTEM.match(name), file.name, line)


def of_cuda(test, minor):
    """What a wheel does with a worker for GPUs, as far as a machine without one can tell."""
    with test.case("a worker with CUDA stands beside the one for the CPU"):
        lines = {name: f"{name} 0.1.0, commit 1, LibTorch {minor}.0{more}\n" for name, more in
                 (("lockstep", ""), ("cpu", ""), ("cuda", " with CUDA"))}
        said_by, build_wheel.said_by = build_wheel.said_by, lambda program, _: lines[program]
        try:
            _, found = build_wheel.what_they_are("lockstep", "cpu", "cuda")
            twice = refusal(build_wheel.what_they_are, "lockstep", "cpu", "cuda", "cuda")
            mixed = refusal(build_wheel.what_they_are, "lockstep", "cuda")
        finally:
            build_wheel.said_by = said_by
        check(found == {minor: "cpu", f"{minor}-cuda": "cuda"}, found)
        check(build_wheel.minors_of(found) == [minor], found)
        check("these workers need a worker for CPUs too: 2.11-cuda" in
              refusal(build_wheel.minors_of, {minor: "cpu", "2.11-cuda": "cuda"}))
        check("two workers are for the same version" in twice, twice)
        check("not of the same build" in mixed, mixed)


def chooses_cuda(test, installed, minor):
    """By the driver, the torch and CUDA_VISIBLE_DEVICES."""
    driver, cuda = test.folder / "driver", installed.package / f"torch-{minor}-cuda/lockstep-worker"
    cuda.parent.mkdir()
    cuda.write_text("a worker\n")
    code = (f"import lockstep_trainer.entry as l, os; l.DRIVER = '{driver}'\n"
            "e = l.program_environment(dict(os.environ), '', '')\n"
            "print({name: e[name] for name in sorted(e) if 'WORKER' in name})")

    def chosen(**variables):
        return run(installed.python, "-c", code, environment=installed.environment | variables)

    cpu = installed.package / f"torch-{minor}/lockstep-worker"
    with test.case("a torch without CUDA: the worker for the CPU, whatever the driver"):
        installed.put_torch(f"{minor}.0+cpu")
        driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.1  Mon\n")
        check(chosen() == f"{{'LOCKSTEP_WORKER': '{cpu}'}}\n", chosen())
    with test.case("a torch with CUDA: the worker for GPUs where NVIDIA's driver is"):
        (installed.site / "torch/lib/libtorch_cuda.so").write_text("not a library")
        both = "{{'LOCKSTEP_GPU_WORKER': '" + str(cuda) + "', 'LOCKSTEP_WORKER': '{}'}}\n"
        for line in ("UNIX x86_64 Kernel Module  580.95.05  Tue",
                     "UNIX Open Kernel Module for x86_64  610.3  Release Build"):
            driver.write_text(f"NVRM version: NVIDIA {line}\nGCC version:  gcc version 12.2.0\n")
            check(chosen() == both.format(cuda), chosen())
        for hidden in ("", "-1"):
            check(chosen(CUDA_VISIBLE_DEVICES=hidden) == both.format(cpu), hidden)
        driver.unlink()
        check(chosen() == both.format(cpu), chosen())
    with test.case("a driver too old for CUDA 13"):
        driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n")
        said = chosen()
        check("driver on this machine is 550.54.15, but CUDA 13 needs 580 or newer" in said, said)
        check("'LOCKSTEP_WORKER'" not in said, "a worker is chosen all the same", said)
        check(chosen(CUDA_VISIBLE_DEVICES="") == both.format(cpu), "for the CPU")
        compat = test.folder / "compat"
        compat.mkdir()
        (compat / "libcuda.so.1").write_text("")
        check(chosen(LD_LIBRARY_PATH=str(compat)) == both.format(cuda), "with cuda-compat")
    shutil.rmtree(cuda.parent)


def field(number, value):
    """Of a protocol buffer."""
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def sentencepiece_model():
    """Of sentencepiece_model.proto: the letters and some pieces of "hello world", by unigrams."""
    unknown, control, normal, unigram = 2, 3, 1, 1
    pieces = [("<unk>", 0.0, unknown), ("<s>", 0.0, control), ("</s>", 0.0, control)]
    words = ["\u2581", *"helowrd", "he", "ll", "llo", "hello", "\u2581hello", "\u2581wor", "ld"]
    pieces += [(word, -1 - index / 2, normal) for index, word in enumerate(words)]
    model = b"".join(field(1, field(1, word.encode()) + field(2, score) + field(3, kind))
                     for word, score, kind in pieces)
    return model + field(2, field(3, unigram)) + field(3, field(1, b"identity") + field(3, 1))


def tokens_of(test, installed):
    """sentencepiece is another version's in a wheel for older systems."""
    model, text = test.folder / "tokenizer.model", test.folder / "hello.txt"
    model.write_bytes(sentencepiece_model())
    text.write_text("hello world\nwor held lord\n  hello hello\n" * 50)
    with test.case("the build's tokens, by sentencepiece too"):
        made = {}
        for name, command in (("build", program("lockstep")), ("wheel", installed.lockstep)):
            out = test.folder / f"tokens_{name}"
            run(command, "prepare", text, "--tokenizer", model, "--out", out, "--val-fraction", "0")
            made[name] = {path.name: path.read_bytes() for path in sorted(out.rglob("*"))
                          if path.is_file()}
        check(made["wheel"] == made["build"] and len(made["build"]) > 1, made["build"].keys())


def without_torch(test, installed, minors):
    refused = ["train", test.config, *flags(KEYS), f"--data.path={test.tokens()}",
               f"--job.dump_folder={test.folder}/refused"]
    fits = (f"its workers are for torch {', '.join(minors)}: python -m pip install "
            f"'torch=={minors[-1]}.*'")
    with test.case("it says what the build says"):
        for words in (["--version"], ["--help"], ["help", "launch"]):
            check(installed.run(*words) == run(program("lockstep"), *words), *words)
    with test.case("no torch"):
        printed = installed.run(*refused, status=EXIT_CONFIG)
        check(f"the Python {installed.python} has no torch" in printed, printed)
        check(fits in printed, printed)
        check(fits in installed.run("doctor", status=1), "doctor does not say it")
    code = "import lockstep_trainer as l, sys; print(l.command(*sys.argv[1:]), end='')"
    with test.case("`import lockstep_trainer` runs the wheel's program"):
        printed = run(installed.python, "-c", code, "--version", environment=installed.environment)
        check(printed == run(program("lockstep"), "--version"), printed)
        printed = run(installed.python, "-c", code, *refused, status=1,
                      environment=installed.environment)
        check("CommandFailed" in printed and fits in printed, printed)
    with test.case("`lockstep track` runs this Python, which has no tracker's client"):
        printed = installed.run("track", test.folder, "--to", "mlflow", status=EXIT_CONFIG)
        check(f"`{installed.python} -m pip install mlflow` installs it" in printed, printed)
    with test.case("a torch that no worker fits"):
        installed.put_torch("9.9.1+cpu")
        printed = installed.run(*refused, status=EXIT_CONFIG)
        check(f"fits torch 9.9.1+cpu in {installed.site}; {fits}" in printed, printed)
    with test.case("LOCKSTEP_TORCH names a folder without torch"):
        printed = installed.run(*refused, status=EXIT_CONFIG, LOCKSTEP_TORCH=str(test.folder))
        check(f"in {test.folder} (from LOCKSTEP_TORCH)" in printed, printed)
    with test.case("a CPU without AVX2"):
        cpuinfo = test.folder / "cpuinfo"
        cpuinfo.write_text("processor\t: 0\nmodel name\t: Old Core\nflags\t\t: fpu avx sse4_2\n\n")
        code = f"import lockstep_trainer.entry as l; l.CPUINFO = '{cpuinfo}'; l.main()"
        printed = run(installed.python, "-c", code, *refused, status=EXIT_CONFIG,
                      environment=installed.environment)
        check("this CPU (Old Core) has no AVX2" in printed, printed)
    with test.case("a reader that goes away ends it, as it does the build's"):
        for each in (program("lockstep"), installed.lockstep):
            read_end, write_end = os.pipe()
            os.close(read_end)
            done = subprocess.run([each, "--help"], stdout=write_end, check=False)
            os.close(write_end)
            check(done.returncode == -13, each, done.returncode)
    check(not (test.folder / "refused").exists(), "something was trained")


def with_torch(test, installed, minors):
    reference = test.train("build", 2, KEYS)
    with test.case("the torch of LOCKSTEP_TORCH, beside another one: the build's bits"):
        found = installed.curve_of(test, "elsewhere", 2, LOCKSTEP_TORCH=str(TORCH))
        check_same(whole_curve(reference, STEPS), found, "the wheel and the build")
    with test.case("the torch of this Python: the build's bits, under a foreign library path"):
        installed.put_torch(f"{minors[0]}.0+cpu", TORCH)
        foreign = test.folder / "foreign"
        foreign.mkdir()
        for name in ("libtorch_cpu.so", "libzstd.so.1"):
            (foreign / name).write_text("not a library")
        found = installed.curve_of(test, "installed", 1, LD_LIBRARY_PATH=str(foreign))
        check_same(whole_curve(reference, STEPS), found, "the wheel and the build")
    with test.case("lockstep_trainer.start: the build's bits"):
        folder = test.folder / "of_python"
        code = ("import lockstep_trainer as l, sys; print(l.start(sys.argv[1], "
                "nproc_per_node=2, flags=sys.argv[2:]).wait(check=True))")
        run(installed.python, "-c", code, test.config, *flags(KEYS),
            f"--data.path={test.tokens()}", f"--job.dump_folder={folder}",
            environment=installed.environment)
        check_same(whole_curve(reference, STEPS), whole_curve(folder, STEPS), "start and the build")
    with test.case("what it stages stands alone"):
        check_pack(installed.run("stage", test.folder / "packs"), test.folder / "unpacked")
    with test.case("each torch gets the worker that is linked with it"):
        code = "import lockstep_trainer.entry as l; print(l.program_environment({}, '', ''))"
        for minor in minors:
            installed.put_torch(f"{minor}.1", TORCH)
            worker = installed.package / f"torch-{minor}/lockstep-worker"
            said = run(installed.python, "-c", code, environment=installed.environment)
            check(f"'LOCKSTEP_WORKER': '{worker}'" in said, said)
            check(f"LibTorch {minor}." in run(worker, "--version", environment=installed.environment
                                              | {"LD_LIBRARY_PATH": f"{TORCH}/torch/lib:{CUDA}"}))
    with test.case("batch scripts run the script of this Python"):
        printed = installed.run("submit", test.config, "--exclusive", "--dry-run")
        check(f"|| LOCKSTEP={installed.lockstep}\n" in printed, printed[:600])
    with test.case("`lockstep demo` is tools/demo"):
        printed = installed.run("demo", "/nonexistent/text", status=EXIT_CONFIG)
        check("1. Text to tokens" in printed and "/nonexistent/text" in printed, printed)


with Test("wheel") as test:
    test.config = test.folder / "empty.toml"
    test.config.write_text("")
    policies(test)
    folders, minors = several_workers(test)
    with test.case("builds, and installs without a network"):
        run(sys.executable, WHEEL / "build_wheel.py", test.folder, *folders)
        [wheel] = test.folder.glob("*.whl")
        installed = Installed(test, wheel)
    if not test.failures:
        contents(test, wheel)
        linkage(test, wheel, installed)
        tokens_of(test, installed)
        of_cuda(test, minors[0])
        without_torch(test, installed, minors)
        with_torch(test, installed, minors)
        chooses_cuda(test, installed, minors[0])
