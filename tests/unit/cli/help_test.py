"""`lockstep help WORDS` is `lockstep WORDS --help`, for every command; examples leave no rank idle:
help_test.py PROGRAM"""
import pathlib
import re
import shlex
import subprocess
import sys

SOURCE_DIR = pathlib.Path(__file__).resolve().parents[3]


def ask(*words):
    return subprocess.run([sys.argv[1], *words], cwd=SOURCE_DIR, capture_output=True, text=True,
                          timeout=60)


def examples_of(command):
    """Words of the examples that name a config of ours."""
    shown = ask(command, "--help").stdout.split("\nExamples:\n")[1].replace("\\\n", " ")
    lines = [line for line in shown.splitlines() if re.search(r" examples/\S+\.toml", line)]
    return [shlex.split(line, comments=True) for line in lines]


def slots_and_ranks(words):
    """Slots of a step, and the ranks of each generation."""
    given = dict(zip(words, words[1:]))
    config = (SOURCE_DIR / next(w for w in words if w.endswith(".toml"))).read_text()
    slots = re.search(r"^\[training\]\n.*?^slots = (\d+)", config, re.M | re.S)[1]
    workers = given.get("--nproc-per-node", given.get("--gpus-per-node", "1")).split(",")
    nodes = int(given.get("--nodes", 1))
    return int(given.get("--training.slots", slots)), [nodes * int(each) for each in workers]


def check_ranks(command):
    several = 0
    for words in examples_of(command):
        slots, ranks = slots_and_ranks(words)
        assert all(slots % each == 0 for each in ranks), (slots, ranks, words)
        several += max(ranks) > 1
        if command == "submit":
            done = ask(*words[1:], "--dry-run")
            assert done.returncode == 0 and "compute nothing" not in done.stderr, done
    assert several, f"no example of {command} has several ranks"


def check_idle_ranks():
    """What an example must not do is said, with what to set."""
    submit = ["submit", "examples/demo.toml", "--exclusive", "--dry-run"]
    for words, said in (
            (["--nodes", "4", "--gpus-per-node", "4"], "10 of 16 ranks compute nothing: a step"),
            (["--nodes=2-16"], "10 of 16 ranks compute nothing: a step has 6 slots"),
            (["-N4", "--nproc-per-node=2"], "2 of 8 ranks compute nothing: a step has 6 slots"),
            (["-N4"], "2 of 4 ranks compute nothing in the last of the 2 rounds of a step, 25 %"),
            (["-N4", "--launcher.spares=1"], None), (["-N4", "--training.slots=64"], None)):
        done = ask(*submit, *words)
        assert done.returncode == 0, done
        assert ("compute nothing" in done.stderr) == bool(said), (words, done.stderr)
        assert said is None or said in done.stderr, (words, done.stderr)
    assert "a new run with --training.slots 16 keeps all of them busy" in \
        ask(*submit, "-N16").stderr


listed = ask("help")
assert listed.returncode == 0 and listed.stdout == ask("--help").stdout, listed
commands = re.findall(r"^  ([a-z-]+)  ", listed.stdout, re.MULTILINE)
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
        (["export", "a", "b", "c"], 'lockstep export: "c" is an unexpected argument. See'),
        (["export", "--qqqqqqq", "a"], "--qqqqqqq: unknown option. See `lockstep export --help`"),
        (["checkpoint", "lst", "a"],
         'lockstep checkpoint: no command "lst"; did you mean list? See'),
        (["checkpoint", "list", "a", "--jsn"],
         "lockstep checkpoint list: --jsn: unknown option; did you mean --json? See"),
        (["checkpoint", "prune", "a", "--keep", "1"],
         "lockstep checkpoint prune: --keep: unknown option; did you mean --keep-latest, "
         "--keep-every or --keep-best? See"),
        (["checkpoint", "diff", "a"],
         "lockstep checkpoint diff: B is required (Second checkpoint; a diff needs two "
         "checkpoints). See `lockstep checkpoint diff --help`\n"),
        (["eval"], "lockstep eval needs a MODEL: a run's folder, a checkpoint, or a Hugging Face"),
        (["eval", "results/training/a"], "results/training/a"),
        (["export", "a"], "DIR is required")):
    unknown = ask(*words)
    assert unknown.returncode == 64 and unknown.stdout == "" and wanted in unknown.stderr, unknown
missing = ask("plan", "nowhere.toml")
assert missing.returncode == 64, missing
assert "`make demo`" in ask("demo").stderr

for command in ("train", "launch", "submit", "sweep"):
    check_ranks(command)
check_idle_ranks()

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
