"""bash, zsh and fish complete the words of lockstep: completion_test.py PROGRAM [SHELL…]

The shells are the real ones. bash calls the function that its script defines, fish is asked by
`complete -C`, and zsh has a terminal."""
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1])
PATIENCE_S = 60
ENVIRONMENT = {**os.environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}", "TERM": "dumb"}


def run(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S,
                          env=ENVIRONMENT, **more)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout


def script(shell):
    return run(PROGRAM, "completion", shell)


def bash(line, folder):
    """What bash offers for the last word of `line`. As readline does it, "=" is a word."""
    words = [word for word in re.split(r" |(=)", line) if word is not None]
    call = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _lockstep; ' \
           'printf "%s\\n" "${COMPREPLY[@]}"'
    return run("bash", "--norc", "-uc", call, "bash", folder / "bash", *words, cwd=folder).split()


def fish(line, folder):
    call = "source $argv[1]; complete -C $argv[2]"
    lines = run("fish", "--no-config", "-c", call, folder / "fish", line, cwd=folder).splitlines()
    return [each.split("\t")[0].removesuffix("=") for each in lines]


class Zsh:
    """A zsh on a terminal, in `folder`. It completes a word when it is the only one there is."""

    def __init__(self, folder):
        pid, self.terminal = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**ENVIRONMENT, "PS1": "", "COLUMNS": "400"})
        self.pid, self.said = pid, ""
        self.type(f"unsetopt zle_bracketed_paste; autoload -Uz compinit; compinit -D -u; "
                  f"source {folder}/zsh; echo rea''dy\n")
        self.until("ready")

    def type(self, words):
        os.write(self.terminal, words.encode())

    def until(self, words):
        while words not in self.said:
            assert select.select([self.terminal], [], [], PATIENCE_S)[0], (words, self.said)
            self.said += os.read(self.terminal, 65536).decode(errors="replace").replace("\a", "")
        self.said = self.said[self.said.index(words) + len(words):]

    def completes(self, line, whole):
        self.type(line + "\t")
        self.until(whole)
        self.type("\x15")  # Ctrl-U: an empty line again

    def end(self):
        self.type("\x15exit\n")
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def check(offers):
    """`offers(line)`: the words that a shell has for its end."""
    assert {"train", "track"} == set(offers("lockstep tra")), offers("lockstep tra")
    assert {"launch", "checkpoint", "completion", "help"} <= set(offers("lockstep "))
    assert "--training.steps" in offers("lockstep train --training.st")
    assert "--dry-run" in offers("lockstep train config.toml --dry")
    assert {"ddp", "full_shard"} <= set(offers("lockstep launch --parallelism.strategy "))
    assert offers("lockstep train config.toml --lr_scheduler.decay_type co") == ["cosine"]
    assert offers("lockstep export --dtype b") == ["bfloat16"]
    assert offers("lockstep export --training.st") == []  # it takes no keys
    assert offers("lockstep checkpoint pru") == ["prune"]
    assert offers("lockstep checkpoint prune --keep-e") == ["--keep-every"]
    assert offers("lockstep compare --pl") == ["--plot"]
    assert offers("lockstep compare --x ") == ["step", "tokens"]
    assert offers("lockstep help pre") == ["prepare"]
    assert offers("lockstep sweep --ov") == ["--over"]
    assert "--account" in offers("lockstep submit --acc")
    assert offers("lockstep train conf") == ["config.toml"]
    assert offers("lockstep prepare --out con") == ["config.toml"]
    assert offers("lockstep train --training.steps con") == []  # a number
    assert offers("lockstep completion f") == ["fish"]


def check_zsh(folder):
    zsh = Zsh(folder)
    for line, whole in (("lockstep trai", "lockstep train "),
                        ("lockstep checkpoint pru", "lockstep checkpoint prune "),
                        ("lockstep train --training.max", "--training.max_norm "),
                        ("lockstep train --lr_scheduler.decay_type co", "decay_type cosine "),
                        ("lockstep train --lr_scheduler.decay_type=co", "decay_type=cosine "),
                        ("lockstep export --dtype b", "--dtype bfloat16 "),
                        ("lockstep sweep --ov", "--over "),
                        ("lockstep train conf", "train config.toml ")):
        zsh.completes(line, whole)
    zsh.end()


with tempfile.TemporaryDirectory() as scratch:
    folder = pathlib.Path(scratch)
    (folder / "config.toml").touch()
    for shell in ("bash", "zsh", "fish"):
        (folder / shell).write_text(script(shell))
    for shell in sys.argv[2:]:
        if shell == "zsh":
            check_zsh(folder)
        else:
            check(lambda line: {"bash": bash, "fish": fish}[shell](line, folder))
    if "bash" in sys.argv[2:]:
        assert bash("lockstep train --lr_scheduler.decay_type=co", folder) == ["cosine"]
unknown = subprocess.run([PROGRAM, "completion", "tcsh"], capture_output=True, text=True)
assert unknown.returncode == 64 and "bash" in unknown.stderr, unknown
