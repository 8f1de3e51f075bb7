"""Files that were made to harm who reads them: hostile inputs that once crashed a program, kept it
busy for minutes, or had it write where it must not. crafted_test.py LOCKSTEP

Each ends within seconds, by the status that says what is wrong, and with no signal."""
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile

LEVELS = 100_000
NESTED = "[" * LEVELS + "]" * LEVELS
DEADLINE_S = 30
REFUSED = 64


def lockstep(*words, status=REFUSED):
    done = subprocess.run([sys.argv[1], *map(str, words)], capture_output=True, text=True,
                          errors="replace", stdin=subprocess.DEVNULL, timeout=DEADLINE_S,
                          check=False)
    printed = done.stdout + done.stderr
    assert done.returncode == status, (words, done.returncode, printed[-2000:])
    return printed


def config_that_is_no_file(folder):
    pipe = folder / "pipe.toml"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f"echo '[training]\nseq_len = 77' > {pipe}"])
    assert "2 x 77 tokens" in lockstep("plan", pipe, "--model.vocab_size", 300, status=0)
    assert writer.wait(DEADLINE_S) == 0
    assert "longer than" in lockstep("plan", "/dev/zero")


def tokenizers(folder):
    text = folder / "text"
    text.mkdir()
    (text / "a.txt").write_text("a b\n")
    bpe = '"model":{"type":"BPE","vocab":{"a":0},"merges":[]'
    steps = '{"type":"Sequence","normalizers":[' * LEVELS + "]}" * LEVELS
    crafted = {
        "tokenizer.json": ("{%s},\"normalizer\":%s}" % (bpe, steps),
                           '{"model":{"type":%s}}' % NESTED,
                           '{%s,"end_of_word_suffix":%s}}' % (bpe, NESTED),
                           "[" * 10_000_000),
        "tekken.json": ('{"config":{},"vocab":[],"special_tokens":%s}' % NESTED,),
        "a.tiktoken": ("".join(f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in
                               enumerate([bytes([i]) for i in range(256)] + [b"a" * 1_600_000])),)}
    for name, bodies in crafted.items():
        for number, body in enumerate(bodies):
            each = folder / f"{number}_{name}"
            each.mkdir()
            (each / name).write_text(body)
            said = lockstep("prepare", text, "--out", folder / "out", "--tokenizer", each / name)
            assert name in said, said[-2000:]


def models(folder):
    sizes = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
             "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 300,
             "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "num_hidden_layers": 2}
    fine, config = json.dumps(sizes)[:-1], folder / "empty.toml"
    config.write_text("")
    for number, (body, said) in enumerate((
            (f'{fine},"unknown":{NESTED}}}', "not a JSON object"),
            (f'{fine},"rope_scaling":{NESTED}}}', "not a JSON object"),
            (json.dumps(sizes | {"num_hidden_layers": 1 << 24}), "num_hidden_layers"))):
        each = folder / f"model_{number}"
        each.mkdir()
        (each / "config.json").write_text(body)
        assert said in lockstep("plan", config, "--model.hf_assets_path", each)


def tokens(folder):
    crafted, config = folder / "tokens", folder / "empty.toml"
    config.write_text("")
    crafted.mkdir()
    (crafted / "manifest.json").write_text('{"format":"lockstep-tokens","x":%s}' % NESTED)
    assert "not a token manifest" in lockstep("plan", config, "--data.path", crafted)


def run_folders(folder):
    """`status` reads what is ours, writes nothing, and shows no command of a terminal."""
    victim = folder / "victim"
    victim.write_text("x" * 10)
    run = folder / "\x1b[31mred"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step":"x","loss":[],"t":{}}\n{"step":9e99}\n[]\n'
                                       '{"step":1,"loss":1}\n' + NESTED + "\n")
    (run / "events.jsonl").write_text('{"event":5,"t":"x","generation":[]}\n[1]\n"s"\n'
                                      + NESTED + "\n")
    (run / "workers.json").write_text(json.dumps({
        "generation": 1, "world_size": 1, "agent_pid": os.getpid(), "state": "running",
        "exit_status": -1, "workers": [{
            "rank": 0, "pid": os.getpid(), "progress_page": str(victim), "step": 1, "phase": 3,
            "save_phase": 0, "committed_step": -1, "unix_ns": 1}]}))
    lockstep("status", run, status=0)
    assert victim.read_text() == "x" * 10
    said = lockstep("compare", run, run)
    assert "\x1b" not in said and "\\x1b[31mred" in said, said


for case in (config_that_is_no_file, tokenizers, models, tokens, run_folders):
    with tempfile.TemporaryDirectory() as scratch:
        case(pathlib.Path(scratch))
print("crafted inputs: ok")
