"""Programs that are for this machine, or for 64-bit Arm and cross-built (preset aarch64)."""
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
SYSROOT = ROOT / ".deps/aarch64"           # Debian's arm64 libraries: tools/setup --aarch64
NAMES = {62: "x86_64", 183: "aarch64"}     # of e_machine in an ELF file's head


def output_of(*words):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True,
                          text=True).stdout


def machine_of(program):
    with open(program, "rb") as file:
        number = int.from_bytes(file.read(20)[18:], "little")
    if number not in NAMES:
        raise SystemExit(f"packaging: {program} is for an unsupported machine ({number})")
    return NAMES[number]


def is_foreign(program):
    return machine_of(program) != platform.machine()


def binutil(name, program):
    """The tool of binutils that reads and writes this program."""
    return f"{machine_of(program)}-linux-gnu-{name}" if is_foreign(program) else name


def said_by(program, *words):
    """What it prints; a foreign one runs under qemu-user."""
    emulator = [ROOT / "cmake/run_aarch64"] if is_foreign(program) else []
    return output_of(*emulator, program, *words)


def places_of_libraries(program):
    """{name: file} of what the loader would find for it."""
    if not is_foreign(program):
        return dict(re.findall(r"^\s+(\S+) => (/\S+)", output_of("ldd", program), re.M))
    folders = [SYSROOT / top / "aarch64-linux-gnu" for top in ("usr/lib", "lib")]
    return {file.name: file for folder in folders for file in folder.glob("*.so*")}
