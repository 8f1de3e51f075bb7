"""What `train --dry-run` prints is a config that it takes: dry_run_test.py PROGRAM"""
import json
import pathlib
import subprocess
import sys
import tempfile

QWEN3 = {"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 176, "head_dim": 32,
         "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
         "vocab_size": 320, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
         "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": True}
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 1, "n_head": 4, "vocab_size": 320,
        "n_positions": 64}
WORDS = ["--training.seq_len=32", "--training.local_batch_size=2", "--training.slots=1"]


def dry_run(config, *words):
    return subprocess.run([sys.argv[1], "train", config, "--dry-run", *words], capture_output=True,
                          text=True, timeout=60)


def check_folders(folder, data):
    """The printed config says what a model's folder says, and gives itself."""
    empty, whole = folder / "empty.toml", folder / "whole.toml"
    for family, config, said in (
            ("qwen3", QWEN3, ["dim = 64", "head_dim = 32", "tie_word_embeddings = true"]),
            ("gpt2", GPT2, ["dim = 64", "ffn_dim = 256", "n_kv_heads = 4"])):
        model = folder / family
        model.mkdir()
        (model / "config.json").write_text(json.dumps(config))
        first = dry_run(empty, f"--data.path={data}", f"--model.hf_assets_path={model}",
                        "--model.init=random", "--validation.freq=0", *WORDS)
        assert first.returncode == 0, first
        lines = first.stdout.splitlines()
        assert lines[1].startswith(f"# model: {family}, "), lines[1]
        for line in [f'name = "{family}"', "vocab_size = 320", *said]:
            assert line in lines, (line, first.stdout)
        whole.write_text(first.stdout)
        again = dry_run(whole)
        assert again.returncode == 0 and again.stdout == first.stdout, again
        # What contradicts the folder is still refused.
        other = dry_run(whole, "--model.dim=32")
        assert other.returncode == 64 and "model.dim = 32" in other.stderr, other


def check_held_out(folder, data):
    """A validation that no slot can be filled for is found before the run."""
    words = [f"--data.path={data}", "--model.dim=64", "--model.n_layers=1", *WORDS]
    short = dry_run(folder / "empty.toml", *words, "--validation.freq=5")
    assert short.returncode == 64 and "held-out samples for validation" in short.stderr, short
    assert 'split "val"' in short.stderr and "validation.freq = 0" in short.stderr, short
    assert dry_run(folder / "empty.toml", *words, "--validation.freq=0").returncode == 0


def check_idle_ranks(folder, data):
    """Ranks without a slot are said before they are started."""
    words = [f"--data.path={data}", "--model.dim=64", "--model.n_layers=1", "--validation.freq=0",
             *WORDS]
    first = "3 of 4 ranks compute nothing"
    for ranks, slots, said in ((4, 1, first + ": a step has 1 slot ("), (1, 1, None), (4, 8, None),
                               (4, 5, first + " in the last of the 2 rounds of a step, 38 %")):
        done = dry_run(folder / "empty.toml", *words, f"--nproc-per-node={ranks}",
                       f"--training.slots={slots}")
        assert done.returncode == 0 and done.stdout.startswith("# Nothing was started"), done
        assert ("compute nothing" in done.stderr) == bool(said), done.stderr
        assert said is None or said in done.stderr, done.stderr


def check_mistakes(folder):
    """Those of the file and those of the flags are said together, limits with their lines too."""
    wrong = folder / "wrong.toml"
    wrong.write_text("[training]\nstepz = 5\nseq_len = 0\n[parallelism]\n"
                     "tensor_parallel_degree = 2\n")
    for words in (["--optimiser.lr", "3"], ["--optimiser.lr=3"]):
        done = dry_run(wrong, *words)
        assert done.returncode == 64, done
        for said in ("wrong.toml:2: unknown key training.stepz", "wrong.toml:3: training.seq_len",
                     "wrong.toml:5: parallelism.tensor_parallel_degree: this is a key of "
                     "torchtitan", "--optimiser.lr: unknown option", "convert-config"):
            assert said in done.stderr, (said, done.stderr)
    wrong.write_text("[training]\n\nseq_len = 0\n")
    done = dry_run(wrong)
    assert done.returncode == 64 and "wrong.toml:3: training.seq_len = 0: must be" in done.stderr


def check_notes(folder, data):
    """What of config.json is passed over is said before the run, with one word of the user's."""
    model = folder / "noted"
    model.mkdir()
    (model / "config.json").write_text(json.dumps({**QWEN3, "unsloth_fixed": True, "mine": 1}))
    words = [f"--data.path={data}", f"--model.hf_assets_path={model}", "--model.init=random",
             "--validation.freq=0", *WORDS]
    refused = dry_run(folder / "empty.toml", *words)
    assert refused.returncode == 64 and "--model.ignore_fields mine" in refused.stderr, refused
    done = dry_run(folder / "empty.toml", *words, "--model.ignore_fields", "mine")
    assert done.returncode == 0, done
    assert "passed over, for they change no arithmetic: mine, unsloth_fixed" in done.stderr, done


with tempfile.TemporaryDirectory() as scratch:
    scratch = pathlib.Path(scratch)
    (scratch / "empty.toml").write_text("")
    (scratch / "words.txt").write_text("to be or not to be, that is the question\n" * 80)
    subprocess.run([sys.argv[1], "prepare", scratch / "words.txt", "--val-fraction", "0", "--out",
                    scratch / "tokens"], check=True, capture_output=True, timeout=60)
    check_folders(scratch, scratch / "tokens")
    check_held_out(scratch, scratch / "tokens")
    check_idle_ranks(scratch, scratch / "tokens")
    check_mistakes(scratch)
    check_notes(scratch, scratch / "tokens")
