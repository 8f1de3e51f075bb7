"""The other side of train_bench.py: a training loop as PyTorch users write it, on CPU over Gloo
(of bench/gpu/llama_bench.py: --device cuda, over NCCL).

  torchrun --nproc-per-node 2 fsdp2_step.py --strategy fsdp2 --precision bf16
  python fsdp2_step.py --strategy single

FSDP2 (one group per block, fp32 master shards, gradients reduced in fp32 unless --reduce-dtype says
otherwise; fsdp2-keep does not reshard after forward), DDP, or one process; fused AdamW; gradient
norm clipped to 1. The same shapes as Lockstep's llama: RMSNorm, rotary embeddings, grouped keys,
SwiGLU, untied head; or with --config the model of transformers that a config.json describes, as
transformers computes it. Rank 0 prints one JSON line. Batches are made before the clock starts.
"""
import argparse
import contextlib
import json
import os
import resource
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def arguments():
    parser = argparse.ArgumentParser()
    for name, value in (("dim", 512), ("layers", 8), ("heads", 8), ("kv-heads", 4), ("ffn", 1408),
                        ("vocab", 8192), ("seq", 256), ("batch", 2), ("accumulate", 1),
                        ("steps", 8), ("warmup", 3), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--strategy", choices=("fsdp2", "fsdp2-keep", "ddp", "single"),
                        default="fsdp2")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--reduce-dtype", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--config", help="a config.json, in place of the sizes above")
    parser.add_argument("--ac", action="store_true", help="activation checkpointing of every block")
    parser.add_argument("--compile", action="store_true", help="torch.compile of every block")
    return parser.parse_args()


class Block(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.heads, self.kv_heads, self.width = a.heads, a.kv_heads, a.dim // a.heads
        kv = self.kv_heads * self.width
        self.norm_1, self.norm_2 = nn.RMSNorm(a.dim, eps=1e-5), nn.RMSNorm(a.dim, eps=1e-5)
        self.q, self.o = (nn.Linear(a.dim, a.dim, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(a.dim, kv, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(a.dim, a.ffn, bias=False) for _ in range(2))
        self.down = nn.Linear(a.ffn, a.dim, bias=False)

    def split(self, x, count):
        return x.unflatten(-1, (count, self.width)).transpose(1, 2)

    def forward(self, x, cos, sin):
        h = self.norm_1(x)
        q = rotated(self.split(self.q(h), self.heads), cos, sin)
        k = rotated(self.split(self.k(h), self.kv_heads), cos, sin)
        v = self.split(self.v(h), self.kv_heads)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        h = self.norm_2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotated(x, cos, sin):
    first, second = x.float().chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    return turned.to(x.dtype)


class Llama(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embed = nn.Embedding(a.vocab, a.dim)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.norm = nn.RMSNorm(a.dim, eps=1e-5)
        self.head = nn.Linear(a.dim, a.vocab, bias=False)
        width = a.dim // a.heads
        frequency = 10000.0 ** (-torch.arange(0, width, 2).float() / width)
        angle = torch.outer(torch.arange(a.seq).float(), frequency)
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def model_of(a):
    if not a.config:
        return Llama(a)
    import transformers
    fields = json.loads(open(a.config).read())
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), use_cache=False, **fields)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)


def wrap(model, a, world):
    """(what to call, what holds around the forward)."""
    owner, name = (model, "blocks") if hasattr(model, "blocks") else (model.model, "layers")
    if a.ac:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
        setattr(owner, name, nn.ModuleList(map(checkpoint_wrapper, getattr(owner, name))))
    blocks = getattr(owner, name)
    if a.compile:
        for block in blocks:
            block.compile()
    autocast = contextlib.nullcontext
    if not a.strategy.startswith("fsdp2") and a.precision == "bf16":
        autocast = lambda: torch.autocast(a.device, torch.bfloat16)  # noqa: E731
    if a.strategy == "single":
        return model, autocast
    if a.strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model), autocast
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    mesh = dist.device_mesh.init_device_mesh(a.device, (world,))
    types = {}
    if a.precision == "bf16":
        reduce = {"fp32": torch.float32, "bf16": torch.bfloat16}[a.reduce_dtype]
        types = {"param_dtype": torch.bfloat16, "reduce_dtype": reduce}
    policy = MixedPrecisionPolicy(cast_forward_inputs=False, **types)  # rotary tables stay fp32
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy,
                    reshard_after_forward=a.strategy == "fsdp2")
    return fully_shard(model, mesh=mesh, mp_policy=policy), autocast


def one_step(net, autocast, optimizer, batches, a):
    total = 0.0
    for i, (inputs, labels) in enumerate(batches):
        last = i + 1 == len(batches)
        hold = contextlib.nullcontext()
        if a.strategy.startswith("fsdp2"):
            net.set_requires_gradient_sync(last)
        elif a.strategy == "ddp" and not last:
            hold = net.no_sync()
        with hold:
            with autocast():
                logits = net(inputs)
            logits = getattr(logits, "logits", logits)
            loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten()) / len(batches)
            loss.backward()
        total += loss.detach()
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if dist.is_initialized():
        dist.all_reduce(total)
        total /= dist.get_world_size()
    return float(total), float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    if a.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if a.strategy != "single":
        dist.init_process_group("nccl" if a.device == "cuda" else "gloo")
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.manual_seed(1)
    with torch.device(a.device):
        model = model_of(a)
    parameters = sum(p.numel() for p in model.parameters())
    net, autocast = wrap(model, a, world)
    groups = [{"params": [p for p in net.parameters() if (p.dim() >= 2) == matrices],
               "weight_decay": 0.1 if matrices else 0.0} for matrices in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), fused=True)
    seconds, losses = [], []
    for step in range(a.warmup + a.steps):
        source = torch.Generator().manual_seed(1000 * step + rank)
        rows = torch.randint(0, 257, (a.accumulate, a.batch, a.seq + 1), generator=source)
        rows = rows.to(a.device)
        batches = [(r[:, :-1].contiguous(), r[:, 1:].contiguous()) for r in rows]
        if dist.is_initialized():
            dist.barrier()
        start = time.perf_counter()
        loss, _ = one_step(net, autocast, optimizer, batches, a)
        seconds.append(time.perf_counter() - start)
        losses.append(round(loss, 5))
    step_s = statistics.median(seconds[a.warmup:])
    tokens = world * a.accumulate * a.batch * a.seq
    peak_mib = torch.tensor(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                            device=a.device)
    if dist.is_initialized():
        dist.all_reduce(peak_mib, dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"parameters": parameters, "tokens_per_step": tokens,
                          "step_s": round(step_s, 4), "tokens_per_s": round(tokens / step_s, 1),
                          "peak_rss_mib": round(peak_mib.item()),
                          "peak_device_mib": round(torch.cuda.max_memory_allocated() / 2**20)
                          if a.device == "cuda" else 0,
                          "losses": [losses[0], losses[-1]]}), flush=True)
    if dist.is_initialized():
        dist.barrier()
        os._exit(0)  # FSDP2 over Gloo sometimes aborts while the interpreter is torn down


if __name__ == "__main__":
    main()
