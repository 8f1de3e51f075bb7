"""transformers and Lockstep compute the same from the same Hugging Face folder.

  hf_parity_test.py FOLDER_OF_PROGRAMS [CASE …]

Every case is a small random model that transformers saves. Compared: logits and loss (`lockstep
eval`); losses and gradient norms of 20 AdamW steps (`lockstep train`, data.kind npy, against
torch.optim.AdamW); the trained weights, exported and loaded by transformers again. One case of each
family trains on two ranks as well, for the same bits, and in bfloat16.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

LOGIT_TOLERANCE = 1e-4  # absolute
LOSS_TOLERANCE = 1e-5   # absolute, of the untrained model
NORM_TOLERANCE = 1e-4   # relative, of the first step's gradient
CURVE_TOLERANCE = 1e-4  # absolute, of every step's loss
BF16_TOLERANCE = 0.03   # the same, computed in bfloat16

STEPS, SLOTS, B, T, VOCABULARY = 20, 2, 2, 48, 311
LR, BETAS, WEIGHT_DECAY, MAX_NORM = 1e-3, (0.9, 0.95), 0.1, 1.0

SIZES = dict(hidden_size=64, intermediate_size=112, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=256,
             initializer_range=0.08)
GPT2_SIZES = dict(n_embd=64, n_layer=3, n_head=4, n_positions=64, vocab_size=VOCABULARY,
                  initializer_range=0.08, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
# Within these sizes its three kinds of frequencies (kept, blended, stretched) all occur.
LLAMA3 = dict(rope_type="llama3", rope_theta=5000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=64)
# Sequences here are longer than what these models say they were trained on: frequencies change.
LINEAR = dict(rope_type="linear", rope_theta=5000.0, factor=4.0)
DYNAMIC = dict(rope_type="dynamic", rope_theta=5000.0, factor=4.0)
# Of the 12 pairs some are kept, some blended and some stretched.
YARN = dict(rope_type="yarn", rope_theta=5000.0, factor=4.0, beta_fast=4.0,
            original_max_position_embeddings=32)
YARN_FIELDS = YARN | dict(beta_slow=0.5, truncate=False, mscale=0.7, mscale_all_dim=1.3)

# Scores and logits are so large that the caps bend them. No token is for padding: transformers
# begins its row of the embedding with zeros, and lets no gradient reach it.
GEMMA = SIZES | dict(head_dim=24, query_pre_attn_scalar=20, sliding_window=11, pad_token_id=None,
                     initializer_range=0.15)
GEMMA3_ROPE = dict(full_attention=dict(rope_type="linear", rope_theta=5000.0, factor=4.0),
                   sliding_attention=dict(rope_type="default", rope_theta=100.0))
MIXTRAL = SIZES | dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=72)
QWEN3_MOE = SIZES | dict(head_dim=32, num_experts=8, num_experts_per_tok=3,
                         moe_intermediate_size=48)
# Large enough to be seen in losses and gradients.
BALANCE = dict(output_router_logits=True, router_aux_loss_coef=0.5)

# name: model_type, config; what else is done to the folder or with it
CASES = {
    "llama": ("llama", SIZES | dict(rope_parameters=LLAMA3, head_dim=24), dict(ranks=2)),
    "llama_bias_tied": ("llama", SIZES | dict(attention_bias=True, mlp_bias=True,
                                              tie_word_embeddings=True), dict(shards=True)),
    "llama_linear": ("llama", SIZES | dict(rope_parameters=LINEAR), {}),
    "llama_dynamic": ("llama", SIZES | dict(rope_parameters=DYNAMIC, max_position_embeddings=32),
                      dict(old=True)),
    "llama_yarn": ("llama", SIZES | dict(rope_parameters=YARN, head_dim=24), dict(ranks=2)),
    "qwen3_yarn_fields": ("qwen3", SIZES | dict(rope_parameters=YARN_FIELDS, head_dim=24), {}),
    "llama_old_spelling": ("llama", SIZES | dict(rope_parameters=LLAMA3), dict(old=True)),
    "mistral": ("mistral", SIZES | dict(sliding_window=11, head_dim=20), dict(ranks=2)),
    "qwen2": ("qwen2", SIZES | dict(tie_word_embeddings=True, use_sliding_window=True,
                                    sliding_window=13, max_window_layers=1), dict(ranks=2)),
    "qwen3": ("qwen3", SIZES | dict(head_dim=32, tie_word_embeddings=True), dict(ranks=2)),
    "qwen3_untied": ("qwen3", SIZES | dict(head_dim=8, attention_bias=True), dict(shards=True)),
    "gemma2": ("gemma2", GEMMA | dict(attn_logit_softcapping=3.0, final_logit_softcapping=2.0),
               dict(ranks=2)),
    "gemma2_untied": ("gemma2", GEMMA | dict(attn_logit_softcapping=None, attention_bias=True,
                                             final_logit_softcapping=None,
                                             tie_word_embeddings=False), dict(shards=True)),
    "gemma3": ("gemma3_text", GEMMA | dict(rope_parameters=GEMMA3_ROPE, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"]), dict(ranks=2)),
    "gemma3_capped": ("gemma3_text", GEMMA | dict(final_logit_softcapping=2.0,
                                                  num_hidden_layers=6), {}),
    "mixtral": ("mixtral", MIXTRAL, dict(ranks=2)),
    "mixtral_balanced": ("mixtral", MIXTRAL | BALANCE | dict(sliding_window=9), dict(ranks=2)),
    "qwen3_moe": ("qwen3_moe", QWEN3_MOE | dict(norm_topk_prob=True), dict(ranks=2)),
    "qwen3_moe_balanced": ("qwen3_moe", QWEN3_MOE | BALANCE | dict(
        tie_word_embeddings=True, attention_bias=True), dict(shards=True)),
    "gpt2": ("gpt2", GPT2_SIZES, dict(ranks=2, base=True)),
    "gpt2_untied": ("gpt2", GPT2_SIZES | dict(tie_word_embeddings=False, n_inner=100),
                    dict(shards=True)),
}


def lockstep(programs, *arguments):
    done = subprocess.run([programs / "lockstep", *map(str, arguments)], capture_output=True,
                          text=True, timeout=240)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def make_model(model_type, config):
    """Random weights, the norms' and biases' too: ones and zeros would hide what they do."""
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(model_type, **config))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return model.float().eval()


def old_spelling(folder):
    """config.json as transformers 4 wrote it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope
    config["torch_dtype"] = config.pop("dtype")
    path.write_text(json.dumps(config))


def base_names(folder):
    """The names that a base model saves, and a buffer that old versions saved with them."""
    from safetensors.torch import load_file, save_file
    path = folder / "model.safetensors"
    tensors = {name.removeprefix("transformer."): t for name, t in load_file(path).items()}
    tensors["h.0.attn.bias"] = torch.ones(1, 1, 4, 4)
    save_file(tensors, path, metadata={"format": "pt"})


def save_model(model, folder, options):
    shard = {"max_shard_size": "60KB"} if options.get("shards") else {}
    model.save_pretrained(folder, **shard)
    assert (folder / "model.safetensors.index.json").exists() == bool(shard), list(folder.iterdir())
    (folder / "tokenizer_config.json").write_text('{"a": "tokenizer"}')
    if options.get("old"):
        old_spelling(folder)
    if options.get("base"):
        base_names(folder)


def tokens_like_text(seed):
    """Zipf's frequencies, so that there is something to learn."""
    weights = 1.0 / numpy.arange(1, VOCABULARY + 1)
    return numpy.random.default_rng(seed).choice(
        VOCABULARY, size=(STEPS, SLOTS * B, T), p=weights / weights.sum()).astype(numpy.int32)


def difference(what, theirs, ours, tolerance):
    worst = float(numpy.abs(numpy.asarray(theirs) - numpy.asarray(ours)).max())
    print(f"  {what}: off by at most {worst:.2e} (allowed {tolerance:.0e})")
    assert numpy.isfinite(worst) and worst <= tolerance, what


def evaluate(programs, folder, path, output):
    report = json.loads(lockstep(programs, "eval", "--hf", folder, "--tokens", path, "--logits",
                                 output))
    return report, numpy.load(output)


def forward(model, tokens):
    """Logits of all batches, and the mean of the batches' losses, cross-entropy alone."""
    logits, losses = [], []
    plain = {"output_router_logits": False} if hasattr(model.config, "num_experts_per_tok") else {}
    with torch.no_grad():
        for batch in torch.from_numpy(tokens).long():
            output = model(input_ids=batch, labels=batch, **plain)
            logits.append(output.logits.numpy())
            losses.append(output.loss.item())
    return numpy.stack(logits), sum(losses) / len(losses)


def loss_of(model, batch):
    """The mean of the slots' losses: a loss that is not a sum over tokens is a slot's own."""
    slots = batch.split(B)
    return sum(model(input_ids=slot, labels=slot).loss for slot in slots) / len(slots)


def train_in_torch(model, tokens):
    """Losses and gradient norms before clipping; decay on matrices alone."""
    parameters = list(model.parameters())
    groups = [{"params": [p for p in parameters if (p.dim() >= 2) == matrices],
               "weight_decay": WEIGHT_DECAY if matrices else 0.0} for matrices in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=1e-8)
    losses, norms = [], []
    for batch in torch.from_numpy(tokens).long():
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, MAX_NORM).item())
        optimizer.step()
    return losses, norms


def train(programs, folder, path, run, ranks, compute="float32", more=(), steps=STEPS):
    (run.parent / "empty.toml").write_text("")
    lockstep(programs, "train", run.parent / "empty.toml", "--model.hf_assets_path", folder,
             "--data.kind", "npy", "--data.path", path, "--job.dump_folder", run,
             "--training.steps", STEPS, "--training.slots", SLOTS,
             "--training.local_batch_size", B, "--training.seq_len", T,
             "--training.mixed_precision_param", compute,
             "--training.max_norm", MAX_NORM, "--optimizer.lr", LR,
             "--optimizer.beta1", BETAS[0], "--optimizer.beta2", BETAS[1],
             "--optimizer.weight_decay", WEIGHT_DECAY, "--lr_scheduler.decay_type", "none",
             "--checkpoint.interval", 0, "--nproc-per-node", ranks, *more)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, steps + 1))
    return lines


def check_export(programs, model, folder, path, tokens, run, scratch, dtypes):
    for dtype in dtypes:
        exported = scratch / f"exported_{dtype}"
        lockstep(programs, "export", run, exported, "--hf", folder, "--dtype", dtype,
                 "--max-file-gb", 1e-4)
        assert (exported / "tokenizer_config.json").read_bytes() == (
            folder / "tokenizer_config.json").read_bytes()
        loaded, notes = transformers.AutoModelForCausalLM.from_pretrained(
            exported, dtype="auto", output_loading_info=True)
        assert loaded.dtype == getattr(torch, dtype), loaded.dtype
        assert not any(notes[key] for key in ("missing_keys", "unexpected_keys",
                                              "mismatched_keys")), notes
        theirs, _ = forward(loaded.float().eval(), tokens[:2])
        numpy.save(path, tokens[:2])
        _, ours = evaluate(programs, exported, path, scratch / "logits.npy")
        difference(f"logits of the {dtype} export", theirs, ours, LOGIT_TOLERANCE)
        if dtype == "float32":
            trained, _ = forward(model, tokens[:2])
            difference("logits after training", trained, ours, LOGIT_TOLERANCE)


def check_case(programs, name, scratch):
    model_type, config, options = CASES[name]
    print(f"{name}: {model_type}")
    model = make_model(model_type, config)
    folder, path = scratch / "hf", scratch / "tokens.npy"
    save_model(model, folder, options)
    tokens = tokens_like_text(2)
    numpy.save(path, tokens)

    report, logits = evaluate(programs, folder, path, scratch / "logits.npy")
    theirs, loss = forward(model, tokens)
    assert numpy.abs(theirs).max() > 0.5, "logits so small that anything would agree"
    difference("logits", theirs, logits, LOGIT_TOLERANCE)
    difference("loss", loss, report["loss"], LOSS_TOLERANCE)
    assert report["tokens"] == STEPS * SLOTS * B * (T - 1)
    assert report["parameters"] == sum(p.numel() for p in model.parameters())

    lines = train(programs, folder, path, scratch / "run", 1)
    losses, norms = train_in_torch(model.train(), tokens)
    assert losses[-1] < losses[0] - 0.1, losses
    difference("gradient norm, relative", 1.0, lines[0]["grad_norm"] / norms[0], NORM_TOLERANCE)
    difference(f"losses of {STEPS} steps", losses, [line["loss"] for line in lines],
               CURVE_TOLERANCE)
    if "ranks" in options:
        sharded = train(programs, folder, path, scratch / "sharded", options["ranks"])
        keys = ("loss_hex", "grad_norm_hex")
        assert [[line[k] for k in keys] for line in sharded] == [
            [line[k] for k in keys] for line in lines], "other bits on more ranks"
        assert {line["world_size"] for line in sharded} == {options["ranks"]}
        narrow = train(programs, folder, path, scratch / "narrow", 1, "bfloat16")
        difference("losses in bfloat16", losses, [line["loss"] for line in narrow],
                   BF16_TOLERANCE)
    dtypes = ("float32", "bfloat16") if "ranks" in options else ("float32",)
    check_export(programs, model.eval(), folder, path, tokens, scratch / "run", scratch, dtypes)


def run_cases(cases, check_case, said):
    """Those that the command line names, or all; each in a folder of its own."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    programs, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    for name in names or cases:
        with tempfile.TemporaryDirectory() as scratch:
            check_case(programs, name, pathlib.Path(scratch))
    print(said)


if __name__ == "__main__":
    run_cases(CASES, check_case, "transformers agrees")
