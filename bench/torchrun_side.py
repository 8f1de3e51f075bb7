"""The other side of restart_bench.py: what torchrun restarts. FSDP2 of fsdp2_step.py's model, a DCP
checkpoint every --every steps, which a restarted process loads.

  RESTART_FOLDER=DIR torchrun --max-restarts 3 torchrun_side.py --strategy fsdp2 --seq 128

Each rank says what it does and when, a JSON line each, in DIR/events_RANK.jsonl.
"""
import json
import os
import pathlib
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import fsdp2_step

FOLDER = pathlib.Path(os.environ["RESTART_FOLDER"])
RANK = int(os.environ["RANK"])
EVERY = 5


def say(event, step=0):
    line = {"event": event, "step": step, "t": time.time(), "pid": os.getpid(),
            "restart": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}
    with open(FOLDER / f"events_{RANK}.jsonl", "a") as file:
        file.write(json.dumps(line) + "\n")


def states(net, optimizer):
    model, optim = get_state_dict(net, optimizer)
    return {"model": model, "optim": optim}


def load(net, optimizer):
    """The step of the newest checkpoint; 0 without one."""
    latest = FOLDER / "latest"
    if not latest.exists():
        return 0
    step = int(latest.read_text())
    state = states(net, optimizer)
    dcp.load(state, checkpoint_id=str(FOLDER / f"step_{step}"))
    set_state_dict(net, optimizer, model_state_dict=state["model"],
                   optim_state_dict=state["optim"])
    return step


def main():
    a = fsdp2_step.arguments()
    torch.set_num_threads(a.threads)
    say("start")
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    net, autocast = fsdp2_step.wrap(fsdp2_step.Llama(a), a, dist.get_world_size())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, fused=True)
    step = load(net, optimizer)
    say("loaded", step)
    tokens = torch.randint(a.vocab, (a.batch, a.seq + 1))
    while True:
        step += 1
        fsdp2_step.one_step(net, autocast, optimizer, [(tokens[:, :-1], tokens[:, 1:])], a)
        say("step", step)
        if step % EVERY == 0:
            dcp.save(states(net, optimizer), checkpoint_id=str(FOLDER / f"step_{step}"))
            if RANK == 0:
                (FOLDER / "latest.tmp").write_text(str(step))
                (FOLDER / "latest.tmp").rename(FOLDER / "latest")
            dist.barrier()


if __name__ == "__main__":
    main()
