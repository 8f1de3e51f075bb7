"""What `lockstep` of a wheel runs: it finds the installed LibTorch without importing torch, picks
the worker that was built for it, and becomes the program, so that no Python is left.

  LOCKSTEP_TORCH   a folder with torch/ in it, in place of the torch of this Python
  LOCKSTEP_PYTHON  the Python of `lockstep track`, in place of this one

The worker with CUDA is taken where NVIDIA's driver is and CUDA_VISIBLE_DEVICES does not say that
nothing is visible. Where no worker can run, the program is told why (LOCKSTEP_NO_WORKER): commands
that need a worker say that and end, all others work.
"""
import importlib.util
import os
import pathlib
import platform
import re
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
CPUINFO = "/proc/cpuinfo"
DRIVER = "/proc/driver/nvidia/version"
OLDEST_DRIVER = 580  # that runs CUDA 13


class NoWorker(Exception):
    """Its text is what the person is told."""


def workers(end=""):
    """{minor version of torch: the worker that is linked with it}, the newest last; `end`: "-cuda"
    for those that compute on GPUs"""
    found = [(re.fullmatch(rf"torch-(\d+\.\d+){end}", path.parent.name), path)
             for path in HERE.glob("torch-*/lockstep-worker")]
    return dict(sorted(((name.group(1), path) for name, path in found if name),
                       key=lambda each: [int(n) for n in each[0].split(".")]))


def what_fits():
    minors = list(workers())
    return (f"its workers are for torch {', '.join(minors)}: python -m pip install "
            f"'torch=={minors[-1]}.*', or name a folder with torch/ by LOCKSTEP_TORCH")


def check_cpu(cpuinfo):
    """Of the first processor in the text of /proc/cpuinfo."""
    if platform.machine() != "x86_64":
        return
    facts = dict(re.findall(r"^(flags|model name)\s*:\s*(.*)$", cpuinfo.split("\n\n")[0], re.M))
    if "avx2" not in facts.get("flags", "avx2").split():
        raise NoWorker(f"this CPU ({facts.get('model name', 'unknown')}) has no AVX2: lockstep's "
                       "wheel trains on x86-64 CPUs with AVX2 (2013 and later)")


def torch_folder(environment):
    """The folder with torch/ in it."""
    given = environment.get("LOCKSTEP_TORCH")
    if given:
        folder, who = pathlib.Path(given).absolute(), "LOCKSTEP_TORCH"
    else:
        found = importlib.util.find_spec("torch")
        if not found:
            raise NoWorker(f"the Python {sys.executable} has no torch. This is lockstep's "
                           f"wheel; {what_fits()}")
        folder, who = pathlib.Path(list(found.submodule_search_locations)[0]).parent, sys.executable
    if not (folder / "torch/lib/libtorch_cpu.so").exists():
        raise NoWorker(f"there is no torch/lib/libtorch_cpu.so in {folder} (from {who})")
    return folder


def torch_version(folder):
    """As its metadata say, else its files for CMake."""
    for metadata in sorted(folder.glob("torch-*.dist-info")):
        return metadata.name[len("torch-"):-len(".dist-info")]
    for cmake in folder.glob("torch/share/cmake/Torch/TorchConfigVersion.cmake"):
        return re.search(r'PACKAGE_VERSION "([^"]+)"', cmake.read_text()).group(1)
    raise NoWorker(f"nothing in {folder} says which version of torch it is")


def chosen_worker(folder):
    version = torch_version(folder)
    worker = workers().get(minor_of(version))
    if not worker:
        raise NoWorker(f"no worker of lockstep's wheel fits torch {version} in {folder}; "
                       f"{what_fits()}")
    return worker


def minor_of(version):
    return ".".join(version.split(".")[:2])


def cuda_worker(folder):
    """That for GPUs, if this torch has CUDA and the wheel a worker for it."""
    if (folder / "torch/lib/libtorch_cuda.so").exists():
        return workers("-cuda").get(minor_of(torch_version(folder)))
    return None


def gpus_wanted(environment):
    """Whether NVIDIA's driver is here and may be used; one that is too old is an error."""
    if environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1") or not os.path.exists(DRIVER):
        return False
    found = re.search(r"Kernel Module.*?\s((\d+)\.\d\S*)", pathlib.Path(DRIVER).read_text())
    # NVIDIA's cuda-compat runs a newer CUDA on an older driver.
    compat = any(os.path.exists(f"{path}/libcuda.so.1")
                 for path in environment.get("LD_LIBRARY_PATH", "").split(":") if path)
    if found and int(found.group(2)) < OLDEST_DRIVER and not compat:
        raise NoWorker(f"NVIDIA's driver on this machine is {found.group(1)}, but CUDA 13 needs "
                       f"{OLDEST_DRIVER} or newer, or NVIDIA's cuda-compat in LD_LIBRARY_PATH; "
                       "set CUDA_VISIBLE_DEVICES= (empty) to train on the CPU")
    return True


def library_path(folder, inherited):
    """Torch's libraries before all others: an LD_LIBRARY_PATH may hold another torch or CUDA."""
    ours = [str(path) for path in (folder / "torch/lib", *sorted(folder.glob("nvidia/*/lib")))]
    return ":".join(ours + [path for path in inherited.split(":") if path and path not in ours])


def program_environment(environment, entry, cpuinfo):
    """That of `lockstep`, and of all that it starts."""
    result = {name: value for name, value in environment.items()
              if name not in ("LOCKSTEP_WORKER", "LOCKSTEP_GPU_WORKER", "LOCKSTEP_NO_WORKER")}
    result["LOCKSTEP_ENTRY"] = entry
    result.setdefault("LOCKSTEP_PYTHON", sys.executable)
    try:
        check_cpu(cpuinfo)
        folder = torch_folder(environment)
        worker, for_gpus = chosen_worker(folder), cuda_worker(folder)
        if for_gpus:
            result["LOCKSTEP_GPU_WORKER"] = str(for_gpus)
            if gpus_wanted(environment):
                worker = for_gpus
        result["LOCKSTEP_WORKER"] = str(worker)
        result["LD_LIBRARY_PATH"] = library_path(folder, environment.get("LD_LIBRARY_PATH", ""))
    except NoWorker as reason:
        result["LOCKSTEP_NO_WORKER"] = str(reason)
    return result


def first_processor():
    lines = []
    with open(CPUINFO, encoding="utf-8", errors="replace") as file:
        for line in file:
            if not line.strip():
                break
            lines.append(line)
    return "".join(lines)


def main():
    entry = os.path.abspath(sys.argv[0])
    environment = program_environment(os.environ, entry, first_processor())
    # Python ignores them, and a program would inherit that.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    if sys.argv[1:2] == ["demo"]:
        environment["PATH"] = f"{os.path.dirname(entry)}:{environment.get('PATH', os.defpath)}"
        script = str(HERE / "share/tools/demo")
        os.execvpe("bash", ["bash", script, *sys.argv[2:]], environment)
    program = str(HERE / "bin/lockstep")
    os.execve(program, ["lockstep", *sys.argv[1:]], environment)
