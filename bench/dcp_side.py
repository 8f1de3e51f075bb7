"""The other side of checkpoint_bench.py: PyTorch's distributed checkpoints (DCP) of the same state.

  torchrun --standalone --nproc-per-node 2 dcp_side.py --manifest …/manifest.json --dir DIR

Every tensor of the manifest as a DTensor sharded over the ranks, fp32, random: DCP does not
compress. Saves: synchronous; async_save by a thread; the same with asynchronous staging. While an
asynchronous save runs, the main thread multiplies 512 x 512 matrices. Loads: with the page cache
dropped. Rank 0 prints one JSON line; seconds are the slowest rank's, lists hold every run.
"""
import argparse
import json
import os
import pathlib
import shutil
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.tensor import Shard, distribute_tensor


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--manifest", required=True, help="of one of Lockstep's checkpoints")
    parser.add_argument("--dir", type=pathlib.Path, required=True)
    parser.add_argument("--repeat", type=int, default=3)
    return parser.parse_args()


def make_state(manifest, mesh):
    state, generator = {}, torch.Generator().manual_seed(dist.get_rank())
    for tensor in json.load(open(manifest))["tensors"]:
        for kind in tensor["fingerprint"]:
            whole = torch.zeros(tensor["global_shape"])
            sharded = distribute_tensor(whole, mesh, [Shard(0)])
            sharded.to_local().normal_(generator=generator)
            state[f"{kind}/{tensor['name']}"] = sharded
    return state


def slowest(seconds):
    t = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(t, op=dist.ReduceOp.MAX)
    return round(float(t), 4)


def settle():
    dist.barrier()
    os.sync()
    dist.barrier()


class Compute:
    """Stands for training: products of 512 x 512 matrices."""

    def __init__(self):
        self.a = torch.randn(512, 512)

    def rate(self, still_running):
        count, start = 0, time.perf_counter()
        while still_running():
            self.a @ self.a
            count += 1
        return count / (time.perf_counter() - start)


def asynchronous(state, where, group, stager, compute, base_rate):
    start = time.perf_counter()
    saving = dcp.async_save(state, checkpoint_id=where, process_group=group,
                            async_checkpointer_type=AsyncCheckpointerType.THREAD,
                            async_stager=stager)
    stall = time.perf_counter() - start
    staged = getattr(saving, "staging_completion", None)
    done = getattr(saving, "upload_completion", saving)
    frozen = stall if staged is None else None

    def running():
        nonlocal frozen
        if frozen is None and staged.done():
            frozen = time.perf_counter() - start
        return not done.done()

    background = time.perf_counter()
    rate = compute.rate(running)
    background = time.perf_counter() - background
    done.result()
    return {"stall_s": slowest(stall), "frozen_s": slowest(frozen or stall + background),
            "durable_s": slowest(stall + background),
            "compute_lost_s": slowest(stall + background * max(0.0, 1 - rate / base_rate))}


def drop_cache(folder):
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def main():
    a = arguments()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    group = dist.new_group(backend="gloo")
    state = make_state(a.manifest, mesh)
    kept, scratch = a.dir / "dcp_kept", a.dir / "dcp_scratch"

    def clean(folder):
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
        settle()

    out = {"save_s": [], "load_cold_s": [], "thread": [], "thread_async_staging": []}
    for _ in range(a.repeat):
        clean(kept)
        start = time.perf_counter()
        dcp.save(state, checkpoint_id=kept)
        out["save_s"].append(slowest(time.perf_counter() - start))
    out["bytes_on_disk"] = sum(p.stat().st_size for p in kept.rglob("*") if p.is_file())
    compute = Compute()
    for name, options in (("thread", None), ("thread_async_staging", (False, False, True, False))):
        for n in range(a.repeat + 1):  # the first carries one-off costs
            clean(scratch)
            end = time.perf_counter() + 1.5
            base = compute.rate(lambda: time.perf_counter() < end)
            stager = DefaultStager(StagingOptions(*options)) if options else None
            run = asynchronous(state, scratch, group, stager, compute, base)
            if stager:
                stager.close()
            if n > 0:
                out[name].append(run)
    clean(scratch)
    for _ in range(a.repeat):
        settle()
        if dist.get_rank() == 0:
            drop_cache(kept)
        dist.barrier()
        start = time.perf_counter()
        dcp.load(state, checkpoint_id=kept)
        out["load_cold_s"].append(slowest(time.perf_counter() - start))
    clean(kept)
    if dist.get_rank() == 0:
        print(json.dumps(out), flush=True)
    dist.barrier()
    os._exit(0)  # Gloo may abort while the interpreter is torn down


if __name__ == "__main__":
    main()
