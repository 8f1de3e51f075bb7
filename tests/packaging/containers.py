"""What packaging/ says of images and environments, as far as it can be held without a registry of
images or a channel of conda: paths, programs, presets and packages that exist, one list of steps
for both kinds of images, no root in them. (tools/check_container runs the steps, and
tools/check_prefix environment.yml's.)"""
import json
import os
import pathlib
import re
import sys
import tomllib

TESTS = pathlib.Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
sys.path[:0] = [str(TESTS / "multirank"), str(ROOT / "packaging")]
from lockstep_run import Test, check  # noqa: E402
import containerfile  # noqa: E402

SETUP = (ROOT / "tools/setup").read_text().replace("\\\n", "")
PRESETS = {preset["name"] for preset in
           json.loads((ROOT / "CMakePresets.json").read_text())["buildPresets"]}


def list_of_setup(name):
    return re.search(rf'readonly {name}="([^"]+)"', SETUP).group(1).split()


def packages_of(step):
    found = re.search(r"apt-get install -y --no-install-recommends ([a-z0-9 .+-]+)", step)
    return found.group(1).split() if found else []


def scripts_find_what_they_source(stage):
    there = set()
    for instruction, rest in stage.steps:
        if instruction == "COPY" and not rest.startswith("--"):
            there.add(rest.split()[0])
        if instruction != "RUN":
            continue
        for path in re.findall(r"(?:^|&& )(tools/\S+)", rest):
            sourced = re.findall(r'^source "\$root/(\S+)"', (ROOT / path).read_text(), re.M)
            check(path != "tools/setup" or sourced, path, "sources nothing that is found here")
            for needed in [path, *sourced]:
                parents = {str(parent) for parent in pathlib.PurePath(needed).parents}
                check(there & {needed, *parents}, stage.name, path, needed, "is not copied")


def images(stages):
    by_name = {stage.name: stage for stage in stages}
    for stage in stages:
        scripts_find_what_they_source(stage)
        for step in stage.words("RUN"):
            for path in re.findall(r"(?:^|&& )((?:tools|packaging)/\S+)", step):
                check(os.access(ROOT / path, os.X_OK), stage.name, path)
            for preset in re.findall(r"--preset (\S+)", step):
                check(preset in PRESETS, stage.name, preset)
            twice = set(packages_of(step)) & set(list_of_setup("kSystemPackages"))
            check(not twice, stage.name, twice, "are installed by tools/setup")
        for words in stage.words("COPY"):
            *flags, source, to = words.split()
            if not flags:
                check((ROOT / source).exists() and not to.startswith("/"), stage.name, words)
                continue
            origin = by_name[flags[0].removeprefix("--from=")]
            check(stages.index(origin) < stages.index(stage), stage.name, words)
            check(any(step.endswith(f" {source}") for step in origin.words("RUN")), words)
    for stage in (by_name["cpu"], by_name["cuda"]):
        check(stage.words("USER") == ["lockstep"], stage.name, "runs as root")
        check(any("useradd" in step for step in stage.words("RUN")), stage)
        check(any(re.match(r"PATH=/opt/lockstep/bin:", words) for words in stage.words("ENV")),
              stage.name)
    check(stages[-1].name == "cpu", "a build without --target makes", stages[-1].name)


def apptainer(stages):
    text = (ROOT / "packaging/lockstep.def").read_text()
    posts = [[line.strip() for line in part.split("\n%")[0].splitlines() if line.strip()]
             for part in text.split("%post\n")[1:]]
    build, final = ({stage.name: stage for stage in stages}[name] for name in ("build", "cpu"))
    check(posts[0][0] == f"cd {build.words('WORKDIR')[0]}", posts[0])
    # The second stage begins with a header, which ends the section before it.
    steps = posts[0][1:posts[0].index("Bootstrap: docker")]
    check(sorted(steps) == sorted(build.words("RUN")), steps)
    check(posts[1] == [step for step in final.words("RUN") if "useradd" not in step], posts[1])
    for base in re.findall(r"^From: (\S+)$", text, re.M):
        check(build.base.endswith(f"/{base}"), base)
    check(f"export {final.words('ENV')[0]}\n" in text, final.words("ENV"))


def conda():
    text = (ROOT / "packaging/environment.yml").read_text()
    stands_for = set(" ".join(re.findall(r"^  - \S+ +# (.+)$", text, re.M)).split())
    elsewhere = {"libgloo-dev", "libjs-chart.js"}
    wanted = set(list_of_setup("kSystemPackages")) - elsewhere
    check(stands_for == wanted, stands_for ^ wanted)
    check(all(package in text for package in elsewhere), "it is not said where these come from")
    # tools/check_prefix runs these, with values for FOLDER and FILE.
    steps = re.findall(r"^#   (.+)$", text, re.M)
    check(steps[0].startswith("conda ") and steps[-1] == "make build", steps)
    cmake = "".join(path.read_text() for path in sorted((ROOT / "cmake").glob("*.cmake")))
    given = re.findall(r" -D(\w+)=(\w+)", "\n".join(steps))
    check([value for _, value in given] == ["FOLDER", "FILE"], given)
    check(all(re.search(rf"find_\w+\({name} ", cmake) for name, _ in given), given)
    for name in re.findall(r"LOCKSTEP_\w+(?==)", "\n".join(steps[:3])):
        check(f"${{{name}:-" in SETUP, name, "is not read by tools/setup")
    pins = re.findall(r"^      - (\S+)$", text, re.M)
    version = re.search(r"readonly kTorchVersion=(\S+)", SETUP).group(1)
    told = [pin.replace("$kTorchVersion", version) for pin in list_of_setup("kTorchPins")]
    check(pins == told, pins, told)


def ignored():
    git = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()}
    images_ignore = set((ROOT / ".dockerignore").read_text().split("\n"))
    for name in ("build", ".deps", "results", ".cache"):
        check(name in git and name in images_ignore, name)


def environment():
    with open(ROOT / "sbatch_files/environment.toml", "rb") as file:
        edf = tomllib.load(file)
    check(edf.keys() == {"image", "mounts", "workdir", "annotations", "env"}, edf.keys())
    hook = edf["annotations"]["com"]["hooks"]["aws_ofi_nccl"]
    check(hook == {"enabled": "true", "variant": "cuda-dl"}, hook)
    check(edf["env"]["CUDA_CACHE_DISABLE"] == "1", edf["env"])
    check(all(isinstance(value, str) for value in edf["env"].values()), edf["env"])
    check({"/etc/slurm", "/etc/container_engine_pyxis.conf"} <= set(edf["mounts"]), edf["mounts"])
    every = [edf["image"], edf["workdir"], *edf["mounts"], *edf["env"].values()]
    for value in every:  # the engine replaces ${NAME} alone
        check(not re.search(r"\$(?!\{\w+\})", value), value)


with Test("containers") as test:
    found = containerfile.stages()
    for name, body in (("the Containerfile names what exists", lambda: images(found)),
                       ("Apptainer's steps are the Containerfile's", lambda: apptainer(found)),
                       ("environment.yml has all that tools/setup installs", conda),
                       ("a checkout's builds and downloads stay out of images", ignored),
                       ("environment.toml is what a container engine reads", environment)):
        with test.case(name):
            body()
