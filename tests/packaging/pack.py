"""`lockstep stage` of a package: what it packs needs nothing of the folder that it comes from."""
import os
import re
import subprocess
import tarfile

from lockstep_run import check
from needs import needed


def check_pack(printed, unpacked):
    """printed: what `lockstep stage` said. The pack is unpacked into a new folder."""
    pack = re.search(r"^[0-9a-f]{64} (\S+)$", printed, re.M)[1]
    with tarfile.open(pack) as archive:
        archive.extractall(unpacked)
    worker = unpacked / "bin/lockstep-worker"
    clean = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    said = subprocess.run(["ldd", worker], env=clean, capture_output=True, text=True,
                          check=True).stdout
    loaded = dict(re.findall(r"^\s+(\S+) => (\S+)", said, re.M))
    check("libtorch_cpu.so" in needed(worker) and "not" not in loaded.values(), said)
    for name, path in loaded.items():
        ours = os.path.normpath(path) == str(unpacked / "lib" / name)
        check(ours or path.startswith(("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")), said)
    check(os.path.normpath(loaded["libtorch_cpu.so"]).startswith(f"{unpacked}/"), said)
    for program in ("lockstep", "lockstep-worker"):
        subprocess.run([unpacked / "bin" / program, "--version"], env=clean, capture_output=True,
                       check=True)
