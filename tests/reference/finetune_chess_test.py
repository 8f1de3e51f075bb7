"""examples/finetune_chess from its first game to folders that transformers and PEFT read.

  finetune_chess_test.py SOURCE_FOLDER FOLDER_OF_PROGRAMS
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import chess
import peft
import torch
import transformers

STEPS, GAMES = 20, 60


def check_games(path):
    """Legal to the last move, by the library's own parser of SAN."""
    games = [json.loads(line)["text"] for line in path.read_text().splitlines()]
    assert len(games) == GAMES and len(set(games)) == GAMES
    for game in games:
        board = chess.Board()
        *moves, result = game.split()
        for word in moves:
            if not word.endswith("."):
                board.push_san(word)
        assert result == board.result(), game


def check_run(folder, less):
    """The mean loss of the last five steps is at least `less` below that of the first five."""
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    losses = [line["loss"] for line in lines]
    assert sum(losses[-5:]) / 5 < sum(losses[:5]) / 5 - less, losses
    assert lines[-1]["validation_loss"] > 0


def main(source, programs):
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "out"
        environment = os.environ | {"PYTHON": sys.executable,
                                    "PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run([source / "examples/finetune_chess/run", "--games", str(GAMES),
                               "--steps", str(STEPS), "--ranks", "2", out], env=environment,
                              capture_output=True, text=True, errors="replace",
                              timeout=240)  # a model that knows little writes broken UTF-8
        assert done.returncode == 0, done.stdout + done.stderr
        for style in ("random", "greedy"):
            check_games(out / f"{style}.jsonl")
        check_run(out / "full", 0.2)
        check_run(out / "lora", 0.02)
        ids = torch.arange(3, 43).view(2, 20)
        logits = {}
        for name in ("model", "chess_model", "greedy_model"):
            model = transformers.AutoModelForCausalLM.from_pretrained(out / name).float().eval()
            with torch.no_grad():
                logits[name] = model(ids).logits
        base = transformers.AutoModelForCausalLM.from_pretrained(out / "chess_model").float()
        adapted = peft.PeftModel.from_pretrained(base, out / "greedy_adapters").eval()
        with torch.no_grad():
            difference = (adapted(ids).logits - logits["greedy_model"]).abs().max().item()
        assert difference < 1e-4, difference
        for one, other in (("model", "chess_model"), ("chess_model", "greedy_model")):
            assert (logits[one] - logits[other]).abs().max() > 0.01, (one, other)
        tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(out / "greedy_model" / "tokenizer.json"))
        assert tokenizer.decode(tokenizer.encode("1. e4 c5")) == "1. e4 c5"
    print("a chess model was fine-tuned twice")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
