"""PyTorch recomputes what `lockstep train` logged and saved: validation loss, training losses, and
one whole optimizer step (backward, clipping, AdamW, or torch.optim.Muon with AdamW for the rest),
of packed documents as well, which do not see each other. With Muon also all steps that follow. The
model, the data reader and the optimizer step share no code with Lockstep. They run in fp64, so a
difference is Lockstep's fp32 rounding; Muon's iteration is in bf16 in both, and such a difference
moves it by roundings of bf16.

  torch_loss_test.py FOLDER_OF_PROGRAMS

transformers' LlamaForCausalLM with the same weights (fp32) is a third opinion on the loss.
"""
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

import lockstep_files as files
import torch
import torch.nn.functional as F

LOSS_TOLERANCE = 1e-5    # absolute, on validation losses
STEP_TOLERANCE = 1e-5    # relative, on training losses and gradient norms
WEIGHT_TOLERANCE = 1e-6  # absolute, on weights after one step; the step itself moves them by lr
MUON_TOLERANCE = 0.02    # of the norm by which a step moves a matrix
MUON_LOSS_TOLERANCE = 1e-4  # relative, on losses of steps that begin in Muon's weights

STEPS, WARMUP, SEED = 8, 2, 1234
CHECKED_STEP = 5  # the optimizer step from 5 to 6 is redone here; 7 shows its loss
LR, MIN_LR_FACTOR, BETA1, BETA2, EPS, WEIGHT_DECAY, MAX_NORM = 2e-3, 0.1, 0.9, 0.95, 1e-8, 0.1, 0.5
MOMENTUM = 0.95
VALIDATION_FREQ, VALIDATION_SLOTS = 4, 5

CASES = {  # heads share keys in both; slots that the ranks do not divide; head_dim != dim / heads
    "untied": dict(dim=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=16, ffn_dim=160,
                   norm_eps=1e-5, rope_theta=10000.0, tied=False, strategy="full_shard", ranks=2,
                   slots=2, batch=2, seq=64),
    "tied": dict(dim=48, n_layers=3, n_heads=6, n_kv_heads=2, head_dim=12, ffn_dim=96,
                 norm_eps=1e-6, rope_theta=5000.0, tied=True, strategy="ddp", ranks=2,
                 slots=3, batch=1, seq=80),
    "packed": dict(dim=48, n_layers=3, n_heads=6, n_kv_heads=2, head_dim=12, ffn_dim=96,
                   norm_eps=1e-6, rope_theta=5000.0, tied=False, strategy="full_shard", ranks=2,
                   slots=2, batch=3, seq=96, data="packed"),
    "muon": dict(dim=64, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=16, ffn_dim=160,
                 norm_eps=1e-5, rope_theta=10000.0, tied=False, strategy="full_shard", ranks=3,
                 slots=3, batch=2, seq=64, optimizer="Muon"),
}


def write_text(folder):
    """Words with Zipf's frequencies; many small files, so that some are held out."""
    source = random.Random(7)
    words = ["".join(source.choices("etaoinshrdlucmfw", k=source.randint(2, 9)))
             for _ in range(500)]
    weights = [1 / rank for rank in range(1, len(words) + 1)]
    for i in range(120):
        text = " ".join(source.choices(words, weights, k=400)) + ".\n"
        (folder / f"{i:03d}.txt").write_text(text)


def write_records(path):
    """Short documents, some of one word."""
    source = random.Random(8)
    words = ["".join(source.choices("etaoinshrdlu", k=source.randint(2, 7))) for _ in range(200)]
    lines = [json.dumps({"text": " ".join(source.choices(words, k=1 + i * i % 23))})
             for i in range(900)]
    path.write_text("\n".join(lines))


def lockstep(programs, *arguments):
    done = subprocess.run([programs / "lockstep", *map(str, arguments)], capture_output=True,
                          text=True, timeout=240)
    assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"


def train(programs, case, run, tokens):
    keys = {
        "job.dump_folder": run, "data.path": tokens,
        "model.dim": case["dim"], "model.n_layers": case["n_layers"],
        "model.n_heads": case["n_heads"], "model.n_kv_heads": case["n_kv_heads"],
        "model.head_dim": case["head_dim"], "model.ffn_dim": case["ffn_dim"],
        "model.norm_eps": case["norm_eps"], "model.rope_theta": case["rope_theta"],
        "optimizer.name": case.get("optimizer", "AdamW"), "optimizer.momentum": MOMENTUM,
        "optimizer.lr": LR, "optimizer.beta1": BETA1, "optimizer.beta2": BETA2,
        "optimizer.eps": EPS, "optimizer.weight_decay": WEIGHT_DECAY,
        "lr_scheduler.warmup_steps": WARMUP, "lr_scheduler.min_lr_factor": MIN_LR_FACTOR,
        "training.steps": STEPS, "training.local_batch_size": case["batch"],
        "training.seq_len": case["seq"], "training.slots": case["slots"],
        "training.max_norm": MAX_NORM, "training.seed": SEED,
        "parallelism.strategy": case["strategy"],
        "checkpoint.interval": 1, "checkpoint.keep_latest_k": 0, "checkpoint.when_busy": "wait",
        "validation.freq": VALIDATION_FREQ, "validation.slots": VALIDATION_SLOTS,
    }
    config = run.parent / f"{run.name}.toml"
    config.write_text("")
    flags = [word for key, value in keys.items() for word in (f"--{key}", value)]
    if case["tied"]:
        flags.append("--model.tie_word_embeddings")
    lockstep(programs, "train", config, "--nproc-per-node", case["ranks"], *flags)


# ---- the model, in plain functions ----------------------------------------------------------

def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotary(x, cos, sin):
    """[B, H, T, E]; the two halves of a head are the two coordinates (rotate-half)."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def positions_of(documents):
    """[B, T], counted from the first token of each document."""
    t = torch.arange(documents.shape[1]).expand_as(documents)
    new = torch.ones_like(documents, dtype=torch.bool)
    new[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return t - torch.where(new, t, 0).cummax(1).values


def hidden_by(documents):
    """[B, 1, T, T]: True where a query must not look: later tokens and other documents."""
    t = documents.shape[1]
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    return (future | (documents[:, :, None] != documents[:, None, :]))[:, None]


def rotary_tables(case, positions, dtype):
    """cos and sin [B, 1, T, E]; the angles are formed in fp32, as the published models do."""
    e = case["head_dim"]
    frequency = 1.0 / (case["rope_theta"] ** (torch.arange(0, e, 2, dtype=torch.float64) / e))
    angle = (positions.float()[:, None, :, None] * frequency.float()).to(dtype)
    return torch.cat((angle, angle), -1).cos(), torch.cat((angle, angle), -1).sin()


def attention(case, w, prefix, x, tables, hidden):
    b, t, _ = x.shape
    heads, n_kv = {}, case["n_kv_heads"]
    for name, count in (("q", case["n_heads"]), ("k", n_kv), ("v", n_kv)):
        y = F.linear(x, w[f"{prefix}{name}_proj.weight"])
        heads[name] = y.view(b, t, count, case["head_dim"]).transpose(1, 2)
    q, k = rotary(heads["q"], *tables), rotary(heads["k"], *tables)
    group = case["n_heads"] // n_kv
    k, v = k.repeat_interleave(group, 1), heads["v"].repeat_interleave(group, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(case["head_dim"])
    mixed = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
    return F.linear(mixed.transpose(1, 2).reshape(b, t, -1), w[f"{prefix}o_proj.weight"])


def logits(case, w, tokens, documents):
    x = F.embedding(tokens, w["model.embed_tokens.weight"])
    tables, hidden = rotary_tables(case, positions_of(documents), x.dtype), hidden_by(documents)
    for layer in range(case["n_layers"]):
        p = f"model.layers.{layer}."
        h = rms_norm(x, w[p + "input_layernorm.weight"], case["norm_eps"])
        x = x + attention(case, w, p + "self_attn.", h, tables, hidden)
        h = rms_norm(x, w[p + "post_attention_layernorm.weight"], case["norm_eps"])
        h = F.silu(F.linear(h, w[p + "mlp.gate_proj.weight"])) * F.linear(
            h, w[p + "mlp.up_proj.weight"])
        x = x + F.linear(h, w[p + "mlp.down_proj.weight"])
    x = rms_norm(x, w["model.norm.weight"], case["norm_eps"])
    return F.linear(x, w["model.embed_tokens.weight" if case["tied"] else "lm_head.weight"])


def loss_of(case, w, slots):
    """Mean loss per counted token over the slots; `w` may be a function from tokens and documents
    to logits."""
    forward = w if callable(w) else lambda *inputs: logits(case, w, *inputs)
    total = sum(F.cross_entropy(forward(x, d).flatten(0, 1), y.flatten(), reduction="sum")
                for x, y, d in slots)
    return total / sum((y != -100).sum() for _, y, _ in slots)


# ---- what Lockstep saw and left ---------------------------------------------------------------

def slots_of(case, data, step, count):
    parts = [data.slot(step, slot, seed=SEED, seq_len=case["seq"], batch_size=case["batch"],
                       slots=count) for slot in range(count)]
    return [tuple(torch.from_numpy(part.copy()) for part in one) for one in parts]


def state_at(run, step, kind):
    read = files.tensors(files.checkpoint_of(run, step), kind)
    return {name: torch.from_numpy(tensor).double() for name, tensor in read.items()}


def learning_rate(step):
    if step <= WARMUP:
        return LR * step / WARMUP
    shape = 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (STEPS - WARMUP)))
    return LR * (MIN_LR_FACTOR + (1 - MIN_LR_FACTOR) * shape)


def close(what, ours, theirs, tolerance):
    print(f"  {what}: PyTorch {ours:.9f}  Lockstep {theirs:.9f}  difference {ours - theirs:+.2e}")
    assert abs(ours - theirs) <= tolerance, (what, ours, theirs, tolerance)


def check_validation(case, run, lines, data):
    held_out = slots_of(case, data, 0, VALIDATION_SLOTS)
    logged = [step for step, line in lines.items() if "validation_loss" in line]
    assert logged == [4, 8], logged
    for step in logged:
        with torch.no_grad():
            loss = loss_of(case, state_at(run, step, "param"), held_out).item()
        close(f"validation loss at step {step}", loss, lines[step]["validation_loss"],
              LOSS_TOLERANCE)
    return held_out


def check_transformers(case, run, lines, held_out):
    from transformers import LlamaConfig, LlamaForCausalLM
    weights = {n: t.float() for n, t in state_at(run, STEPS, "param").items()}
    model = LlamaForCausalLM(LlamaConfig(
        hidden_size=case["dim"], num_hidden_layers=case["n_layers"],
        num_attention_heads=case["n_heads"], num_key_value_heads=case["n_kv_heads"],
        head_dim=case["head_dim"], intermediate_size=case["ffn_dim"],
        rms_norm_eps=case["norm_eps"], tie_word_embeddings=case["tied"],
        vocab_size=weights["model.embed_tokens.weight"].shape[0],
        rope_parameters={"rope_type": "default", "rope_theta": case["rope_theta"]}))
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert missing == (["lm_head.weight"] if case["tied"] else []) and not unexpected, missing

    def forward(tokens, documents):
        seen = torch.zeros(hidden_by(documents).shape).masked_fill(hidden_by(documents), -math.inf)
        return model(tokens, attention_mask=seen, position_ids=positions_of(documents)).logits

    with torch.no_grad():
        loss = loss_of(case, forward, held_out).item()
    close("validation loss by transformers", loss, lines[STEPS]["validation_loss"],
          LOSS_TOLERANCE)


def is_muons(case, name, parameter):
    return "optimizer" in case and ".layers." in name and parameter.dim() == 2


class Training:
    """PyTorch's optimizers, continued from what a checkpoint has; decay on matrices alone."""

    def __init__(self, case, run, step):
        self.case, self.step = case, step
        kinds = ("adam_m", "adam_v") + (("momentum",) if "optimizer" in case else ())
        state = {kind: state_at(run, step, kind) for kind in kinds}
        self.parameters = {name: w.requires_grad_()
                           for name, w in state_at(run, step, "param").items()}
        muons = {n: p for n, p in self.parameters.items() if is_muons(case, n, p)}
        others = {n: p for n, p in self.parameters.items() if n not in muons}
        assert state.get("momentum", {}).keys() == muons.keys(), state.get("momentum", {}).keys()
        assert state["adam_m"].keys() == state["adam_v"].keys() == others.keys()
        groups = [{"params": [p for p in others.values() if (p.dim() >= 2) == matrices],
                   "weight_decay": WEIGHT_DECAY if matrices else 0.0}
                  for matrices in (True, False)]
        adamw = torch.optim.AdamW(groups, betas=(BETA1, BETA2), eps=EPS)
        for name, parameter in others.items():
            adamw.state[parameter] = {"step": torch.tensor(float(step)),
                                      "exp_avg": state["adam_m"][name],
                                      "exp_avg_sq": state["adam_v"][name]}
        self.optimizers = [adamw]
        if muons:
            muon = torch.optim.Muon(muons.values(), weight_decay=WEIGHT_DECAY, momentum=MOMENTUM,
                                    adjust_lr_fn="match_rms_adamw")
            for name, parameter in muons.items():
                muon.state[parameter] = {"momentum_buffer": state["momentum"][name]}
            self.optimizers.append(muon)

    def take_step(self, slots):
        """The loss before the step, and the gradient norm."""
        self.step += 1
        loss = loss_of(self.case, self.parameters, slots)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(self.step)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.parameters.values(), MAX_NORM).item()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss.item(), norm

    def weights(self):
        return {name: p.detach().clone() for name, p in self.parameters.items()}


def check_step(case, run, lines, data):
    step = CHECKED_STEP + 1
    training = Training(case, run, CHECKED_STEP)
    before = training.weights()
    loss, norm = training.take_step(slots_of(case, data, CHECKED_STEP, case["slots"]))
    after = training.weights()
    line = lines[step]
    close(f"loss of step {step}", loss, line["loss"], STEP_TOLERANCE * line["loss"])
    close(f"learning rate of step {step}", learning_rate(step), line["lr"], 1e-12)
    assert norm > MAX_NORM, f"gradient norm {norm}: the step does not clip"
    close(f"gradient norm of step {step}", norm, line["grad_norm"],
          STEP_TOLERANCE * line["grad_norm"])
    theirs = state_at(run, step, "param")
    assert theirs.keys() == after.keys()
    worst, moved, worst_of_muon = 0.0, 0.0, 0.0
    for name, ours in after.items():
        off, way = ours - theirs[name], ours - before[name]
        if is_muons(case, name, ours):
            worst_of_muon = max(worst_of_muon, (off.norm() / way.norm()).item())
            continue
        worst = max(worst, off.abs().max().item())
        moved = max(moved, way.abs().max().item())
    print(f"  weights after step {step}: off by at most {worst:.2e}; the step moves {moved:.2e}")
    if "optimizer" in case:
        print(f"  Muon's matrices: off by at most {worst_of_muon:.2e} of the norm of their step")
    assert worst_of_muon <= MUON_TOLERANCE, worst_of_muon
    assert worst <= WEIGHT_TOLERANCE and moved > 100 * WEIGHT_TOLERANCE, (worst, moved)
    with torch.no_grad():
        loss = loss_of(case, after, slots_of(case, data, step, case["slots"])).item()
    line = lines[step + 1]
    tolerance = MUON_LOSS_TOLERANCE if "optimizer" in case else STEP_TOLERANCE
    close(f"loss of step {step + 1}, after PyTorch's own step", loss, line["loss"],
          tolerance * line["loss"])


def check_trajectory(case, run, lines, data):
    """All steps from the first checkpoint on, by PyTorch alone."""
    training = Training(case, run, 1)
    for step in range(2, STEPS + 1):
        loss, norm = training.take_step(slots_of(case, data, step - 1, case["slots"]))
        close(f"PyTorch's own loss of step {step}", loss, lines[step]["loss"],
              MUON_LOSS_TOLERANCE * lines[step]["loss"])
        print(f"    gradient norm: PyTorch {norm:.6f}  Lockstep {lines[step]['grad_norm']:.6f}")


def main(programs):
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "text").mkdir()
        write_text(folder / "text")
        lockstep(programs, "prepare", folder / "text", "--out", folder / "tokens",
                 "--val-fraction", 0.2, "--shard-tokens", 30000)
        write_records(folder / "records.jsonl")
        lockstep(programs, "prepare", folder / "records.jsonl", "--text-field", "text", "--pack",
                 CASES["packed"]["seq"], "--out", folder / "packed", "--val-fraction", 0.2,
                 "--shard-tokens", 10000)
        for name, case in CASES.items():
            tokens = folder / case.get("data", "tokens")
            held_out, training = files.Tokens(tokens, "val"), files.Tokens(tokens, "train")
            assert training.shard_count > 1 and len(held_out.stream) > 1000
            assert (training.starts.sum() > 500) == ("data" in case), training.starts.sum()
            print(f"{name}: {case['strategy']} on {case['ranks']} ranks")
            run = folder / name
            train(programs, case, run, tokens)
            lines = files.metrics(run)
            assert sorted(lines) == list(range(1, STEPS + 1)), sorted(lines)
            slots = check_validation(case, run, lines, held_out)
            check_step(case, run, lines, training)
            if "optimizer" in case:
                check_trajectory(case, run, lines, training)
            check_transformers(case, run, lines, slots)
    print("PyTorch agrees")


main(pathlib.Path(sys.argv[1]))
