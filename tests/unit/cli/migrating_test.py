"""What docs/MIGRATING.md says is ours exists: keys with their values, flags, commands, files. And
every `lockstep` line of the pages for users is one that the program knows.

  migrating_test.py PROGRAM SOURCE_FOLDER
"""
import pathlib
import re
import shlex
import subprocess
import sys

SOURCE = pathlib.Path(sys.argv[2])
PAGE = "docs/MIGRATING.md"
PAGES = (PAGE, "README.md", "examples/README.md", "examples/finetune_chess/README.md")
TAKE_KEYS = {"train", "launch", "submit", "plan", "doctor", "sweep"}
# The first words of commands that are not ours.
FOREIGN = ("torchrun", "srun", "accelerate", "axolotl", "python3")
faults = []


def about(*words):
    done = subprocess.run([sys.argv[1], *words, "--help"], capture_output=True, text=True,
                          timeout=60, check=True)
    return done.stdout


def plain(flag):
    return flag.lstrip("-").replace("-", "_")


def flags_in(text):
    return {plain(flag) for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", text)}


COMMANDS = {}  # {"checkpoint prune": its flags}
for name in re.findall(r"^  ([a-z-]+)  ", about().split("Examples:")[0], re.MULTILINE):
    COMMANDS[name] = flags_in(about(name))
for name in re.findall(r"^  ([a-z-]+)  ", about("checkpoint").split("Subcommands:")[1], re.M):
    COMMANDS[f"checkpoint {name}"] = flags_in(about("checkpoint", name))
TRAIN = about("train")
KEYS = {}  # {"model.dim": the words that its help lists, or none}
for name, more in re.findall(r"^  --([a-z_]+\.\w+) (.*)$", TRAIN, re.MULTILINE):
    words = re.search(r"\(one of: (.*)\)$", more)
    KEYS[name] = words[1].split(", ") if words else None
SECTIONS = {name.split(".")[0] for name in KEYS}
SHORT = flags_in(TRAIN.split("Short names")[1].split("Booleans:")[0])


def is_key(name):
    section, _, key = name.partition(".")
    return name in KEYS or f"{section}.{key.removeprefix('no_')}" in KEYS


def command_fault(line):
    """What is wrong with a command line of ours, or nothing."""
    words = shlex.split(line.replace("…", ""), comments=True)[1:]
    if not words or words[0] in ("help", "--help", "--version", "demo"):  # demo: a wheel's script
        return None
    two = " ".join(words[:2])
    name = two if words[0] == "checkpoint" and two in COMMANDS else words[0]
    if name == "demo":  # of an installed wheel
        wheel = (SOURCE / "packaging/wheel/lockstep_trainer/entry.py").read_text()
        return None if '["demo"]' in wheel else "no command demo in the wheel"
    if name not in COMMANDS:
        return f"no command {name}"
    if name == "checkpoint" and len(words) > 1 and words[1][0] != "-":
        return f"no command {two}"
    for word in words:
        flag = plain(word.split("=")[0])
        if not word.startswith("--") or (name in TAKE_KEYS and (is_key(flag) or flag in SHORT)):
            continue
        if flag not in COMMANDS[name]:
            return f"{name} has no --{flag}"
    return None


def name_fault(span):
    """What is wrong with a name that is said to be ours, or nothing."""
    key = re.fullmatch(r"([a-z_]+\.\w+)(?: = (\w+))?", span)
    if span.startswith("lockstep "):
        return command_fault(span)
    if span.startswith("--"):
        flag = plain(span.split()[0])
        known = is_key(flag) or flag in SHORT or any(flag in each for each in COMMANDS.values())
        return None if known else "no such flag"
    if key and key[1].split(".")[0] in SECTIONS:
        if key[1] not in KEYS:
            return "no such key"
        if key[2] and key[2] not in (KEYS[key[1]] or []):
            return f"one of {KEYS[key[1]]}"
        return None
    if re.fullmatch(r"RUN/\S+|[A-Z_]{4,}", span) or (SOURCE / span).exists():
        return None
    return "neither a key nor a flag, a command or a file"


def check(where, span, fault):
    if fault:
        faults.append(f"{where}: `{span}`: {fault}")


def lines_of(text):
    """(number, line, whether inside a block of code); lines that end in \\ go on."""
    inside, number, rest = False, 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            inside = not inside
        elif inside and line.endswith("\\"):
            rest += line[:-1]
        else:
            yield number, rest + line, inside
            rest = ""


def spans_of(text):
    return re.findall(r"`([^`]+)`", text)


def looks_ours(span):
    section = span.split(".")[0].lstrip("-")
    return span.startswith(("lockstep ", "--")) or ("." in span and section in SECTIONS)


def check_table_row(where, cells):
    """theirs | ours | what differs"""
    theirs, ours = cells[:2]
    if len(cells) != 3 or not theirs or not ours:
        faults.append(f"{where}: not three cells: {cells}")
    elif ours != "-":
        if re.sub(r"`[^`]+`", "", ours).strip(" ,…") or not spans_of(ours):
            faults.append(f"{where}: not names alone: {ours}")
        for span in spans_of(ours):
            check(where, span, name_fault(span))
            rows[section] = rows.get(section, 0) + 1


def slug(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


rows, section = {}, ""
for page in PAGES:
    text = (SOURCE / page).read_text()
    ours_is_second, commands = False, 0
    for number, line, is_code in lines_of(text):
        where = f"{page}:{number}"
        if is_code:
            if line.startswith("lockstep "):
                check(where, line, command_fault(line))
                commands += 1
            continue
        if line.startswith("## "):
            section = line[3:]
        cells = [cell.strip() for cell in line.split("|")[1:-1]] if line.startswith("|") else []
        if not cells or page != PAGE:
            ours_is_second = False
        elif cells[:2] == ["theirs", "ours"]:
            ours_is_second = True
        elif ours_is_second and cells[0].strip("-"):
            check_table_row(where, cells)
        for span in spans_of(" ".join(cells[2:]) if ours_is_second else line):
            if span.startswith("lockstep ") or (page == PAGE and looks_ours(span)):
                check(where, span, name_fault(span))
    for target in re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", text):
        if "://" not in target and target and not (SOURCE / page).parent.joinpath(target).exists():
            faults.append(f"{page}: no {target}")
    headings = {slug(each) for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    for target in re.findall(r"\]\(#([^)]*)\)", text):
        if target not in headings:
            faults.append(f"{page}: no heading #{target}")
    assert commands > 0, f"{page} shows no command: is it read?"

least = {"torchtitan": 50, "torchrun": 6, "accelerate": 20, "axolotl": 40, "Sharding": 5}
for name, count in least.items():
    if rows.get(name, 0) < count:
        faults.append(f"{PAGE}: {name}: {rows.get(name, 0)} names of ours were found, not {count}")
assert len(KEYS) > 90 and len(SHORT) > 15 and len(COMMANDS) > 18, (KEYS, SHORT, COMMANDS)
assert not faults, "\n" + "\n".join(faults)
print(f"{sum(rows.values())} names of ours: {rows}")
