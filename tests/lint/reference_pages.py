#!/usr/bin/env python3
"""Reference pages say what the source says: reference_pages.py [ROOT]

  docs/EXIT_CODES.md        the codes are those of launcher/control/incident.h; the table says where
                            the batch script stops, as sbatch_files/common.sh does
  docs/RUN_FOLDER.md        every key and event that is written is named, and no other one
  docs/TROUBLESHOOTING.md   every message that is quoted, as **`text`**, is in the source; its parts
                            between … must each be in one literal
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
LITERAL = r'"((?:[^"\\\n]|\\.)*)"'
# Where keys of a run folder's files are written, and what they are called there.
RECORD = ("core/train/run_record.cc", "launcher/host/run_files.cc", "launcher/slurm/starts.cc",
          "launcher/slurm/ends.cc")
KEY = r'\{"([a-zA-Z_]+)",|(?:json|line|own)\["([a-z_]+)"\]'
PHASES = ("core/device/phase_watch.cc", r'\{"([a-z_]+)", "')
# Events: of the machines of launcher/control.
EVENT = r'record\("(\w+)"|LoggedEvent \w+\{"(\w+)"|event\.event == "(\w+)"'
STATES = {"done", "failed"}  # the last event is named after one


def read(path):
    return (ROOT / path).read_text()


def found_in(path, pattern):
    return {word for found in re.finditer(pattern, read(path)) for word in found.groups() if word}


def first_column(page):
    """Words in backquotes of the first cells of tables."""
    cells = re.findall(r"^\| ((?:`[^`|]+`(?:, )?)+) \|", page, re.M)
    return {word for cell in cells for word in re.findall(r"`(\w+)`", cell)}


def exit_codes():
    page = read("docs/EXIT_CODES.md")
    rows = dict(re.findall(r"^\| (\d+) \| ([a-z ]+) \|", page, re.M))
    header = read("launcher/control/incident.h")
    for name, code in re.findall(r"kExit(\w+) = (\d+);", header):
        words = re.sub(r"(?<!^)([A-Z])", r" \1", name).lower()
        if rows.pop(code, None) != words:
            yield f"docs/EXIT_CODES.md: code {code} is \"{words}\""
    for code in rows:
        yield f"docs/EXIT_CODES.md: no program ends with {code}"
    script = read("sbatch_files/common.sh")
    stops = set(re.search(r"^ +([\d |]+)\) break ;;$", script, re.M).group(1).split(" | "))
    cells = dict(re.findall(r"^\| (\d+) \|(?:[^|]+\|){3} (ends|launches again) \|", page, re.M))
    for code, then in cells.items():
        if (then == "ends") != (code in stops):
            yield f"docs/EXIT_CODES.md: code {code}: the batch script does not do that"


def run_folder():
    page = read("docs/RUN_FOLDER.md")
    written = set().union(*(found_in(path, KEY) for path in RECORD), found_in(*PHASES))
    events = set().union(*(found_in(path, EVENT) for path in ROOT.glob("launcher/control/*.cc")))
    named = set(re.findall(r"`([a-zA-Z_]+)`", page))
    for word in sorted((written | events) - named):
        yield f"docs/RUN_FOLDER.md: does not name {word}"
    for word in sorted(first_column(page) - written - events - STATES):
        yield f"docs/RUN_FOLDER.md: nothing writes {word}"


def literals(text):
    """String literals, those that follow each other as one."""
    for run in re.finditer(rf"{LITERAL}(?:\s*{LITERAL})*", text):
        yield "".join(re.findall(LITERAL, run.group(0))).replace('\\"', '"')


def texts():
    for path in sorted(ROOT.glob("*/**/*")):
        folder = path.relative_to(ROOT).parts[0]
        if path.suffix in (".cc", ".h") and folder not in ("tests", "bench", "build"):
            yield from literals(path.read_text())
        elif folder == "sbatch_files" and path.is_file():
            yield path.read_text()


def messages():
    quotes = re.findall(r"\*\*`([^`]+)`\*\*", read("docs/TROUBLESHOOTING.md"))
    said = "\n".join(texts())
    for quote in quotes:
        for part in re.split(r" ?… ?", quote):
            if part not in said:
                yield f"docs/TROUBLESHOOTING.md: nothing in the source says \"{part}\" ({quote})"
    if len(quotes) < 30:
        yield f"docs/TROUBLESHOOTING.md: {len(quotes)} messages"


def main():
    wrong = [*exit_codes(), *run_folder(), *messages()]
    for line in wrong:
        print(line)
    print(f"reference pages: {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
