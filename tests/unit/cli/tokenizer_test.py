"""The tokenizer of the data against that of the model's folder: tokenizer_test.py PROGRAM"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
          "intermediate_size": 176, "num_hidden_layers": 1, "num_attention_heads": 4,
          "num_key_value_heads": 2, "vocab_size": 320, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "max_position_embeddings": 64, "hidden_act": "silu", "tie_word_embeddings": False,
          "torch_dtype": "float32"}
WORDS = ["--model.init=random", "--training.seq_len=32", "--training.local_batch_size=1",
         "--training.slots=1"]


def lockstep(*words):
    done = subprocess.run([sys.argv[1], *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return done


with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    (folder / "empty.toml").write_text("")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(CONFIG))
    for name, text in (("a", "to be or not to be, that is the question\n"), ("b", "xyz zyx yxz\n")):
        (folder / f"{name}.txt").write_text(text * 80)
        lockstep("prepare", folder / f"{name}.txt", "--val-fraction", "0", "--train-bpe", "270",
                 "--out", folder / name)
    lockstep("prepare", folder / "a.txt", "--val-fraction", "0", "--out", folder / "bytes")

    def said(data):
        return lockstep("train", folder / "empty.toml", "--dry-run", f"--data.path={folder / data}",
                        f"--model.hf_assets_path={folder / 'model'}", *WORDS).stderr
    assert "tokenizer" not in said("a"), said("a")  # the model has none
    shutil.copy(folder / "a" / "tokenizer" / "tokenizer.json", folder / "model")
    assert "tokenizer" not in said("a"), said("a")
    for data in ("b", "bytes"):
        assert f"data in {folder / data} were prepared with another tokenizer" in said(data), data
