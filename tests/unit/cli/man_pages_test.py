"""The manual pages, read by groff without a warning: man_pages_test.py PROGRAM [GROFF]

Without groff their source is read, which says less."""
import pathlib
import re
import subprocess
import sys
import tempfile

PROGRAM, *GROFF = sys.argv[1:]


def run(*words, ends_well=True):
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode == 0) == ends_well, (words, done)
    return done


def text_of(page):
    """As a terminal shows it, without bold and underlined letters."""
    if not GROFF:
        return page.read_text().replace("\\-", "-")
    shown = run(GROFF[0], "-man", "-ww", "-Tutf8", "-rLL=100n", "-P-cbou", page)
    assert shown.stderr == "", (page.name, shown.stderr)
    return re.sub(r".\x08", "", shown.stdout)


with tempfile.TemporaryDirectory() as folder:
    pages = pathlib.Path(folder) / "man/man1"
    run(PROGRAM, "help", "--man", pages)
    commands = re.findall(r"^  ([a-z-]+)  ", run(PROGRAM, "help").stdout, re.MULTILINE)
    assert len(commands) > 10
    titles = {"lockstep", "lockstep-help", *(f"lockstep-{each}" for each in commands)}
    assert {page.name for page in pages.iterdir()} == {f"{title}.1" for title in titles}
    for title in sorted(titles):
        text = text_of(pages / f"{title}.1")
        assert title.upper() in text and f"{title} - " in text.replace("\\- ", "- "), text
        if title == "lockstep":
            assert all(f"lockstep-{each}" in text for each in commands), text
            continue
        # Every flag that the command's help describes, as it is typed.
        command = title.removeprefix("lockstep-")
        told = "  --man" if command == "help" else run(PROGRAM, command, "--help").stdout
        for flag in set(re.findall(r"^  (?:-\w,)?(--[a-z][a-z-]*)", told, re.MULTILINE)):
            assert flag in text, (title, flag)
    keys = text_of(pages / "lockstep-train.1")
    assert "--data.path" in keys and "--training.local_batch_size" in keys
    assert "one folder" in run(PROGRAM, "help", "--man", ends_well=False).stderr
    (pathlib.Path(folder) / "file").write_text("")
    below = pathlib.Path(folder) / "file/below"
    assert str(below) in run(PROGRAM, "help", "--man", below, ends_well=False).stderr
