#!/usr/bin/env python3
"""`lockstep prepare --train-bpe` against `tokenizers`: train_bpe_test.py LOCKSTEP

The same texts give its BpeTrainer the same vocabulary and merges; it loads the tokenizer.json that
prepare wrote; and the tokens on disk are the ids that it gives the texts.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import tokenizers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import lockstep_files
import tokenizer_test

VOCABULARY = 3000


def trained_there(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return json.loads(tokenizer.to_str())["model"]


def main(lockstep):
    texts = [text for text in tokenizer_test.tokenizer_texts.paragraphs(tokenizer_test.TEKKEN, 4000)
             if text]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "texts.jsonl").write_text(
            "".join(json.dumps({"text": text}) + "\n" for text in texts))
        command = [lockstep, "prepare", folder / "texts.jsonl", "--text-field", "text",
                   "--val-fraction", "0", "--train-bpe", str(VOCABULARY), "--out", folder / "out"]
        subprocess.run(command, check=True, timeout=120)
        path = folder / "out/tokenizer/tokenizer.json"
        model = json.loads(path.read_text())["model"]
        there = trained_there(texts)
        assert model["vocab"] == there["vocab"], "vocabularies differ"
        assert [merge.split(" ") for merge in model["merges"]] == there["merges"], "merges differ"

        reader = Tokenizer.from_file(str(path))
        wanted = []
        for encoding in reader.encode_batch(texts, add_special_tokens=False):
            wanted += encoding.ids
            if not wanted or wanted[-1] != 0:
                wanted.append(0)  # <|endoftext|>
        found = lockstep_files.Tokens(folder / "out", "train").stream.tolist()
        assert found == wanted, next(i for i, (a, b) in enumerate(zip(found, wanted)) if a != b)
        again = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
        assert "up to date" in again.stdout, again.stdout
        print(f"tokenizers {tokenizers.__version__}: {len(model['merges'])} merges equal, "
              f"{len(found)} ids of {len(texts)} texts equal")


if __name__ == "__main__":
    main(sys.argv[1])
