"""PEFT and Lockstep train the same adapters of the same Hugging Face folder.

  lora_test.py FOLDER_OF_PROGRAMS [CASE …]

Compared: losses and gradient norms of 20 AdamW steps from the same first adapters; every adapter's
gradient, which Adam's m of two successive checkpoints gives; the logits of the exported adapters in
PEFT, of the exported merged folder in transformers, and of `lockstep eval` of that folder. Two
ranks give the bits of one.
"""
import numpy
import peft
import torch
import transformers
from safetensors.torch import load_file

from hf_parity_test import (BETAS, CASES as MODELS, MAX_NORM, STEPS, WEIGHT_DECAY, difference,
                            evaluate, forward, lockstep, make_model, run_cases, save_model,
                            tokens_like_text, train)

LOGIT_TOLERANCE = 1e-4     # absolute
CURVE_TOLERANCE = 1e-4     # absolute, of every step's loss
NORM_TOLERANCE = 1e-4      # relative, of every step's gradient
GRADIENT_TOLERANCE = 1e-4  # of each adapter's largest element
MERGE_TOLERANCE = 1e-6     # absolute: W + scale B A, added up in another order

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# name: the model of hf_parity_test, keys of [lora], further keys
CASES = {
    "llama, defaults": ("llama", {"rank": 8}, {}),
    "llama, everything, checkpointing": (
        "llama_bias_tied", {"rank": 5, "alpha": 20, "target_modules": ALL},
        {"activation_checkpoint.mode": "full"}),
    "qwen3, some of the stacked": (
        "qwen3", {"rank": 4, "alpha": 4, "target_modules": ["k_proj", "up_proj"]}, {}),
    "gemma2, everything": ("gemma2", {"rank": 4, "target_modules": ALL}, {}),
    "mixtral, attention": ("mixtral", {"rank": 4, "target_modules": ALL[:4]}, {}),
    "gpt2, everything": ("gpt2", {"rank": 6, "target_modules": ["c_attn", "c_proj", "c_fc"]}, {}),
}
# At 1e-2 the second case has a step with a gradient 25 times that of its neighbours; there PEFT in
# fp32 is 9e-4 from PEFT in fp64, and so are we.
LR = 3e-3
CHECKPOINT = 5  # the step whose adapters and next gradients are compared


def words(keys):
    flat = []
    for key, value in keys.items():
        flat += [f"--{key}", ",".join(value) if isinstance(value, list) else value]
    return flat


def load_peft(base, folder):
    model = peft.PeftModel.from_pretrained(base, folder, is_trainable=True)
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    assert trained and all(".lora_" in name for name in trained), list(trained)
    assert set(trained) == {name.replace(".weight", ".default.weight")
                            for name in load_file(folder / "adapter_model.safetensors")}
    return model, trained


def train_in_peft(base, folder, tokens):
    """Losses and gradient norms before clipping; decay on all adapters: they are matrices."""
    model, trained = load_peft(base, folder)
    optimizer = torch.optim.AdamW(trained.values(), lr=LR, betas=BETAS, eps=1e-8,
                                  weight_decay=WEIGHT_DECAY)
    losses, norms = [], []
    for batch in torch.from_numpy(tokens).long():
        optimizer.zero_grad()
        loss = model(input_ids=batch, labels=batch).loss
        loss.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(trained.values(), MAX_NORM).item())
        optimizer.step()
    return losses, norms


def checkpoint_of(run, step):
    (found,) = run.glob(f"checkpoints/step_{step:08d}.*")
    return found


def moments(programs, run, step, scratch):
    folder = scratch / f"moments_{step}"
    lockstep(programs, "checkpoint", "export", checkpoint_of(run, step), folder, "--kind",
             "adam_m")
    return load_file(folder / "model.safetensors")


def check_gradients(programs, base, run, adapters, batch, norm, scratch):
    """m' = beta m + (1 - beta) clip g gives g."""
    before = moments(programs, run, CHECKPOINT, scratch)
    after = moments(programs, run, CHECKPOINT + 1, scratch)
    clip = min(1.0, MAX_NORM / (norm + 1e-6))
    model, trained = load_peft(base, adapters)
    model(input_ids=batch, labels=batch).loss.backward()
    worst = 0.0
    for name, parameter in trained.items():
        ours = name.removeprefix("base_model.model.").replace(".default", "")
        got = (after[ours] - BETAS[0] * before[ours]) / (1 - BETAS[0]) / clip
        largest = parameter.grad.abs().max().item()
        assert largest > 1e-5, f"{name} has no gradient"
        worst = max(worst, ((parameter.grad - got).abs().max() / largest).item())
    difference(f"gradients of {len(trained)} adapters", 0.0, worst, GRADIENT_TOLERANCE)


def check_exports(programs, fresh, folder, run, adapters, tokens, scratch):
    """The same logits from PEFT, transformers and Lockstep."""
    path = scratch / "few.npy"
    numpy.save(path, tokens[:2])
    merged = scratch / "merged"
    lockstep(programs, "export", checkpoint_of(run, CHECKPOINT), merged, "--max-file-gb", 1e-4)
    model, notes = transformers.AutoModelForCausalLM.from_pretrained(
        merged, dtype="auto", output_loading_info=True)
    assert not any(notes[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), (
        notes)
    assert (merged / "tokenizer_config.json").exists()
    theirs, _ = forward(load_peft(fresh(), adapters)[0].eval(), tokens[:2])
    plain, _ = forward(fresh(), tokens[:2])
    assert numpy.abs(theirs - plain).max() > 0.01, "the adapters do nothing"
    loaded, _ = forward(model.eval(), tokens[:2])
    _, ours = evaluate(programs, merged, path, scratch / "logits.npy")
    difference("logits of the merged folder in transformers", theirs, loaded, LOGIT_TOLERANCE)
    difference("logits of the merged folder here", theirs, ours, LOGIT_TOLERANCE)
    unloaded = load_peft(fresh(), adapters)[0].merge_and_unload().state_dict()
    ours = model.state_dict()  # by transformers' names, which those in files may not be
    assert ours.keys() == unloaded.keys(), ours.keys() ^ unloaded.keys()
    worst = max((unloaded[name] - t).abs().max().item() for name, t in ours.items())
    difference(f"{len(ours)} merged weights", 0.0, worst, MERGE_TOLERANCE)
    narrow = scratch / "narrow"
    lockstep(programs, "export", "--lora", run, narrow, "--dtype", "bfloat16")
    assert {t.dtype for t in load_file(narrow / "adapter_model.safetensors").values()} == {
        torch.bfloat16}


def check_case(programs, name, scratch):
    model_name, lora, more = CASES[name]
    model_type, config, options = MODELS[model_name]
    print(name)
    model = make_model(model_type, config)
    folder, path = scratch / "hf", scratch / "tokens.npy"
    save_model(model, folder, options)
    tokens = tokens_like_text(2)
    numpy.save(path, tokens)

    def fresh():
        return transformers.AutoModelForCausalLM.from_pretrained(folder).float().eval()

    keys = {f"lora.{key}": value for key, value in lora.items()} | more
    keys |= {"optimizer.lr": LR, "checkpoint.interval": 1, "checkpoint.keep_latest_k": 0,
             "checkpoint.when_busy": "wait"}
    train(programs, folder, path, scratch / "start", 1, more=words(keys | {
        "optimizer.lr": 0, "training.steps": 1}), steps=1)
    first = scratch / "first"
    lockstep(programs, "export", "--lora", scratch / "start", first)
    run = scratch / "run"
    lines = train(programs, folder, path, run, 1, more=words(keys))
    losses, norms = train_in_peft(fresh(), first, tokens)
    difference(f"losses of {STEPS} steps", losses, [line["loss"] for line in lines],
               CURVE_TOLERANCE)
    difference("gradient norms, relative", numpy.ones(STEPS),
               [line["grad_norm"] / norm for line, norm in zip(lines, norms)], NORM_TOLERANCE)
    adapters = scratch / "adapters"
    lockstep(programs, "export", "--lora", checkpoint_of(run, CHECKPOINT), adapters)
    check_gradients(programs, fresh(), run, adapters, torch.from_numpy(tokens[CHECKPOINT]).long(),
                    lines[CHECKPOINT]["grad_norm"], scratch)
    check_exports(programs, fresh, folder, run, adapters, tokens, scratch)
    two = train(programs, folder, path, scratch / "two", 2, more=words(keys))
    for key in ("loss_hex", "grad_norm_hex"):
        assert [line[key] for line in two] == [line[key] for line in lines], f"{key} on two ranks"


if __name__ == "__main__":
    run_cases(CASES, check_case, "PEFT agrees")
