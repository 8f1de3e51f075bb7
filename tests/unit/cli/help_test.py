"""`lockstep help WORDS` is `lockstep WORDS --help`, for every command: help_test.py PROGRAM"""
import re
import subprocess
import sys


def ask(*words):
    return subprocess.run([sys.argv[1], *words], capture_output=True, text=True, timeout=60)


listed = ask("help")
assert listed.returncode == 0 and listed.stdout == ask("--help").stdout, listed
commands = re.findall(r"^  ([a-z]+)  ", listed.stdout, re.MULTILINE)
assert {"train", "launch", "status", "checkpoint", "compare"} <= set(commands), commands
for words in [[command] for command in commands] + [["checkpoint", "prune"]]:
    about = ask("help", *words)
    assert about.returncode == 0 and about.stderr == "", about
    assert about.stdout and about.stdout == ask(*words, "--help").stdout, words
for words in (["trian"], ["help", "trian"]):
    unknown = ask(*words)
    assert unknown.returncode == 64 and "did you mean train?" in unknown.stderr, unknown
assert "did you mean" not in ask("xyz").stderr
for words, wanted in (
        (["prepare", "a", "--tokeniser", "x"],
         "lockstep prepare: --tokeniser: unknown option; did you mean --tokenizer? "
         "See `lockstep prepare --help`\n"),
        (["export", "a", "b", "--dtyp=float32"], "--dtyp=float32: unknown option; did you mean "
                                                  "--dtype?"),
        (["export", "a", "b", "c"], 'lockstep export: "c" is one word too many. See'),
        (["export", "--qqqqqqq", "a"], "--qqqqqqq: unknown option. See `lockstep export --help`"),
        (["checkpoint", "lst", "a"],
         'lockstep checkpoint: no command "lst"; did you mean list? See'),
        (["checkpoint", "list", "a", "--jsn"],
         "lockstep checkpoint list: --jsn: unknown option; did you mean --json? See"),
        (["export", "a"], "DIR is required")):
    unknown = ask(*words)
    assert unknown.returncode == 64 and unknown.stdout == "" and wanted in unknown.stderr, unknown
missing = ask("plan", "nowhere.toml")
assert missing.returncode == 64, missing
assert "`make demo`" in ask("demo").stderr

# Names are shown, never obeyed by the terminal.
evil = "a\x1b[31mzqx\u009b2J"
for words in (["status", evil], ["checkpoint", "list", evil], ["compare", evil, evil], [evil],
              ["train", evil], ["export", evil, "out"], ["prepare", evil, "--out", "out"],
              ["plan", evil], ["doctor", evil], ["eval", "--hf", evil, "--data", evil],
              ["prepare", "a", "--" + evil], ["checkpoint", evil]):
    done = ask(*words)
    said = done.stdout + done.stderr
    assert done.returncode and "zqx" in said, (words, done)
    assert "\x1b" not in said and "\u009b" not in said, (words, said)
