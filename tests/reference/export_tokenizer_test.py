"""transformers' AutoTokenizer on exported folders: export_tokenizer_test.py FOLDER_OF_PROGRAMS

The tokenizer of an export gives a text the ids that the data have: one that `prepare --train-bpe`
made, and GPT-2's two files, which have other names there.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import transformers

import lockstep_files

TEXT = "The quick brown fox, it's 42 years old!\n\tÄpfel  and naïve cafés.\n" * 40
MODEL = ["--model.dim=64", "--model.n_layers=1", "--model.n_heads=4", "--model.n_kv_heads=2",
         "--training.seq_len=32", "--training.local_batch_size=1", "--training.slots=1",
         "--training.steps=1", "--validation.freq=0"]


def exported(programs, folder, name, *words):
    """The folder that a run of one step on these tokens exports, and the tokens."""
    def lockstep(*command):
        subprocess.run([programs / "lockstep", *command], check=True, timeout=120)
    tokens, config = folder / f"{name}_tokens", folder / "empty.toml"
    config.write_text("")
    lockstep("prepare", folder / "text.txt", "--val-fraction", "0", "--out", tokens, *words)
    lockstep("train", config, *MODEL, f"--data.path={tokens}", f"--job.dump_folder={folder / name}")
    lockstep("export", folder / name, folder / f"{name}_hf")
    return folder / f"{name}_hf", tokens


def main(programs):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text.txt").write_text(TEXT)
        learnt, tokens = exported(programs, folder, "learnt", "--train-bpe", "300")
        two_files = folder / "two_files"
        two_files.mkdir()
        model = json.loads((tokens / "tokenizer/tokenizer.json").read_text())["model"]
        merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
        (two_files / "encoder.json").write_text(json.dumps(model["vocab"]))
        (two_files / "vocab.bpe").write_text("\n".join(["#version: 0.2", *merges]) + "\n")
        pairs = [(learnt, tokens),
                 exported(programs, folder, "two", "--tokenizer", two_files / "encoder.json")]
        for hf, data in pairs:
            tokenizer = transformers.AutoTokenizer.from_pretrained(hf)
            ids = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
            found = lockstep_files.Tokens(data, "train").stream.tolist()
            assert found == ids + [tokenizer.eos_token_id], (hf, found[:20], ids[:20])
            print(f"{hf.name}: {type(tokenizer).__name__}, {len(ids)} ids equal")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
