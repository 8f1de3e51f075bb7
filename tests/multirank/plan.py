"""`lockstep plan` against what a run really takes: the peak of the counting allocator, for other
families, shapes, types, strategies and world sizes. RSS is printed beside it."""
import json

from lockstep_run import EXIT_CONFIG, Test, check, flags

TOLERANCE = 0.03
MIB = 1 << 20
SCRATCH = 1.25 * MIB  # of oneDNN, beside the tensors: 1.1 MiB in bf16 on a CPU with AMX

LLAMA = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 4,
         "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 704,
         "vocab_size": 2000, "rms_norm_eps": 1e-5, "max_position_embeddings": 2048,
         "rope_theta": 10000.0, "tie_word_embeddings": False}
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 48, "vocab_size": 30000}
MISTRAL = LLAMA | {"model_type": "mistral", "sliding_window": 64, "intermediate_size": 1000}
GEMMA2 = LLAMA | {"model_type": "gemma2", "head_dim": 48, "sliding_window": 64, "vocab_size": 10000,
                  "tie_word_embeddings": True}
GEMMA3 = GEMMA2 | {"model_type": "gemma3_text", "num_hidden_layers": 7}
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "intermediate_size": 352,
                   "output_router_logits": True}
QWEN3_MOE = LLAMA | {"model_type": "qwen3_moe", "head_dim": 48, "num_experts": 16,
                     "num_experts_per_tok": 4, "moe_intermediate_size": 100}
GPT2 = {"model_type": "gpt2", "n_embd": 320, "n_layer": 5, "n_head": 5, "n_positions": 512,
        "vocab_size": 10000, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}

SMALL = {"training.local_batch_size": 2, "training.seq_len": 128, "training.slots": 4,
         "training.threads": 1}
BF16 = {"training.mixed_precision_param": "bfloat16"}
# name: (config.json or None, world size, keys)
CONFIGS = {
    "llama, single, fp32": (LLAMA, 1, {"parallelism.strategy": "single", "training.seq_len": 512}),
    "qwen3, full_shard, bf16": (QWEN3, 2, BF16),
    "llama, Muon, full_shard, bf16": (LLAMA, 2, BF16 | {"optimizer.name": "Muon"}),
    "gpt2, Muon, hybrid, fp32": (GPT2, 4, {
        "parallelism.strategy": "hybrid", "parallelism.data_parallel_shard_degree": 2,
        "optimizer.name": "Muon"}),
    "llama, moments in bf16, full_shard": (LLAMA, 2, BF16 | {"optimizer.state_dtype": "bfloat16"}),
    "gpt2, moments in bf16, ddp, fp32": (GPT2, 2, {
        "parallelism.strategy": "ddp", "optimizer.state_dtype": "bfloat16"}),
    "gpt2, ddp, fp32": (GPT2, 2, {"parallelism.strategy": "ddp"}),
    "mistral, full_shard, bf16": (MISTRAL, 3, BF16 | {"training.seq_len": 192,
                                                      "training.slots": 5}),
    "llama, shard_grad_op, size_based, bf16": (LLAMA, 2, BF16 | {
        "parallelism.strategy": "shard_grad_op", "parallelism.wrap_policy": "size_based",
        "parallelism.min_num_params": 1_000_000}),
    "gpt2, hybrid, block, fp32": (GPT2, 4, {
        "parallelism.strategy": "hybrid", "parallelism.data_parallel_shard_degree": 2,
        "parallelism.slot_map": "block", "training.slots": 9}),
    "llama, full_shard, block, one unit, bf16": (LLAMA, 2, BF16 | {
        "parallelism.slot_map": "block", "parallelism.wrap_policy": "none",
        "training.slots": 7}),
    "llama, full_shard, checkpointing, bf16": (LLAMA, 2, BF16 | {
        "activation_checkpoint.mode": "full", "training.seq_len": 512, "model.dropout": 0.1}),
    "qwen3, single, every second block, plain attention, fp32": (QWEN3, 1, {
        "activation_checkpoint.mode": "selective", "model.fused_attention": "false",
        "parallelism.strategy": "single", "training.seq_len": 256}),
    "gemma2, full_shard, bf16": (GEMMA2, 2, BF16 | {"training.seq_len": 256}),
    "gemma3, single, checkpointing, plain attention, fp32": (GEMMA3, 1, {
        "activation_checkpoint.mode": "full", "model.fused_attention": "false",
        "parallelism.strategy": "single", "training.seq_len": 256}),
    "mixtral, full_shard, bf16": (MIXTRAL, 2, BF16 | {"training.seq_len": 256}),
    "qwen3_moe, single, checkpointing, fp32": (QWEN3_MOE, 1, {
        "activation_checkpoint.mode": "full", "parallelism.strategy": "single",
        "training.seq_len": 256}),
    "llama, adapters, full_shard, bf16": (LLAMA, 2, BF16 | {
        "lora.rank": 16, "training.seq_len": 512, "training.local_batch_size": 1,
        "lora.target_modules": "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"}),
    "gpt2, adapters, ddp, checkpointing, fp32": (GPT2, 2, {
        "parallelism.strategy": "ddp", "lora.rank": 8, "lora.dropout": 0.1,
        "activation_checkpoint.mode": "full"}),
    "linear of 30 M, full_shard, fp32": (None, 4, {
        "model.name": "linear", "model.dim": 2304, "model.n_layers": 5, "model.n_heads": 8,
        "model.vocab_size": 700, "training.local_batch_size": 1, "training.slots": 2,
        "training.seq_len": 64}),
}


def plan(test, keys, *words, **how):
    return test.command("plan", test.folder / "empty.toml", *flags(SMALL | keys), *words,
                        **({"timeout_s": 120} | how))


def from_config(test, config):
    folder = test.folder / f"model_{config['model_type']}"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return {"model.hf_assets_path": folder, "model.init": "random"}


def compare(test, name, config, world_size, keys):
    keys = dict(keys)
    if config:
        keys |= from_config(test, config)
    printed = json.loads(plan(test, keys, "--world-size", world_size, "--probe", "--json"))
    probe = printed["probe"]
    print(f"       {name} on {world_size}: {printed['parameters']:,} parameters, predicted "
          f"{probe['predicted_bytes'] / MIB:.2f} MiB at {printed['peak_at']}, measured "
          f"{probe['measured_bytes'] / MIB:.2f} MiB ({100 * probe['deviation']:+.2f} %), RSS "
          f"{probe['rss_bytes'] / MIB:.0f} MiB", flush=True)
    check(sum(row["bytes"] for row in printed["tensors"]) == printed["peak_bytes"], printed)
    beyond = probe["measured_bytes"] - probe["predicted_bytes"]
    check(abs(probe["deviation"]) <= TOLERANCE or 0 <= beyond <= SCRATCH, name,
          f"is off by {probe['deviation']:.3f}")
    check(probe["rss_bytes"] > probe["measured_bytes"], "less memory than tensors", probe)


def refused(test, keys, words, status, *said):
    printed = plan(test, keys, *words, status=status)
    for part in said:
        check(part in printed, f"not said: {part}\n{printed}")


LLAMA_8B = LLAMA | {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
                    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}
LLAMA_70B = LLAMA_8B | {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64,
                        "intermediate_size": 28672}
# name: (config.json, H100s, GiB that are enough with full checkpointing; None: it does not fit)
ON_DEVICES = {"8b": (LLAMA_8B, 8, 36), "8b on 64": (LLAMA_8B, 64, 21),
              "70b on 16": (LLAMA_70B, 16, None), "70b": (LLAMA_70B, 64, 60),
              "70b on 256": (LLAMA_70B, 256, 48)}


def on_devices(test):
    for name, (config, world_size, enough_gib) in ON_DEVICES.items():
        with test.case(f"Llama 3, {name}, on H100s"):
            folder = test.folder / f"llama_{name.split()[0]}"
            folder.mkdir(exist_ok=True)
            (folder / "config.json").write_text(json.dumps(config))
            keys = BF16 | {"model.hf_assets_path": folder, "model.init": "random",
                           "training.slots": world_size, "training.local_batch_size": 1,
                           "training.seq_len": 8192, "activation_checkpoint.mode": "full"}
            printed = json.loads(plan(test, keys, "--world-size", world_size, "--device", "h100",
                                      "--json"))["device"]
            memory = printed["memory"]
            print(f"       {memory['device_bytes'] / 2**30:.1f} GiB of a device, "
                  f"{memory['host_bytes'] / 2**30:.1f} of its host, "
                  f"{printed['tokens_per_s_rank']:.0f} tokens/s a device, MFU "
                  f"{printed['mfu']:.3f}", flush=True)
            check(sum(row["bytes"] for row in memory["device"]) == memory["device_bytes"], memory)
            check(sum(row["bytes"] for row in memory["host"]) == memory["host_bytes"], memory)
            check(memory["fits"] == (enough_gib is not None), memory)
            check(not enough_gib or memory["device_bytes"] <= enough_gib * 2**30, memory)
            seconds = sum(phase["seconds"] for phase in printed["phases"])
            check(abs(seconds / printed["step_s"] - 1) < 1e-9, printed)
            check(printed["tokens_per_s"] * printed["step_s"] > 0.999 * world_size * 8192, printed)
    with test.case("of experts, those that a token meets"):
        printed = json.loads(plan(test, from_config(test, QWEN3_MOE), "--json"))
        expert = 3 * 256 * 100
        idle = printed["parameters"] - printed["active_parameters"]
        check(idle == 4 * (16 - 4) * expert, printed["parameters"], printed["active_parameters"])
        check("4 of 16 experts" in plan(test, from_config(test, QWEN3_MOE)), "not said")
    with test.case("a node that is lost"):
        keys = {"model.vocab_size": 256, "training.slots": 64}
        words = ("--world-size", 64, "--ranks-per-node", 8)
        lost = json.loads(plan(test, keys, *words, "--json"))["nodes_lost"]
        check(lost["ranks_left"] == [0.875, 0.75], lost)
        check([row["slots"] for row in lost["slots"]] == [64, 128, 256], lost)
        check([row["speed_left"] for row in lost["slots"]]
              == [[0.5, 0.5], [2 / 3, 2 / 3], [0.8, 4 / 6]], lost)
        check(lost["recommended_slots"] == 256, lost)
        check("--training.slots 256 loses least" in plan(test, keys, *words), "no advice")
        check("nodes_lost" not in json.loads(plan(test, keys, "--world-size", 64, "--json")),
              "one node cannot be lost alone")
    with test.case("parameters that a node keeps"):
        folder = test.folder / "llama_70b"
        keys = BF16 | {"model.hf_assets_path": folder, "model.init": "random",
                       "training.slots": 256, "training.local_batch_size": 1,
                       "training.seq_len": 8192, "activation_checkpoint.mode": "full",
                       "parallelism.slot_map": "group_block"}
        words = ("--world-size", 64, "--device", "h200")
        world = json.loads(plan(test, keys, *words, "--json"))["device"]
        kept = keys | {"parallelism.reshard_after_forward": "node"}
        node = json.loads(plan(test, kept, *words, "--json"))["device"]
        advice = world["reshard_after_forward_node"]
        print(f"       from other nodes {world['received_from_others_bytes'] / 1e9:.1f} GB, kept "
              f"{node['received_from_others_bytes'] / 1e9:.1f}, for "
              f"{advice['more_device_bytes'] / 2**30:.1f} GiB", flush=True)
        for key in ("received_from_others_bytes", "step_s"):
            check(advice[key] == node[key], key, advice, node)
        check(node["received_from_others_bytes"] < 0.35 * world["received_from_others_bytes"],
              node, world)
        more = node["memory"]["device_bytes"] - world["memory"]["device_bytes"]
        check(advice["more_device_bytes"] == more, advice, more)
        check("reshard_after_forward_node" not in node, node)
        check("with --parallelism.reshard_after_forward node" in plan(test, keys, *words), "unsaid")
        one_node = plan(test, kept, "--world-size", 8, "--device", "h200")
        check("changes nothing: all ranks are on one node" in one_node, one_node)
        refused(test, kept | {"parallelism.strategy": "shard_grad_op"}, words, EXIT_CONFIG,
                "parallelism.reshard_after_forward = node is for")
    with test.case("a file has the rates of a device"):
        vocab = {"model.vocab_size": 256}
        built_in = json.loads(plan(test, vocab, "--device", "a100", "--json"))["device"]
        rates = {key: rate for key, rate in built_in["rates"].items() if key != "name"}

        def write(rates):
            (test.folder / "mine.toml").write_text(
                "".join(f"{key} = {rate}\n" for key, rate in rates.items()))
            return test.folder / "mine.toml"
        mine = json.loads(plan(test, vocab, "--device", write(rates), "--json"))["device"]
        check(mine["step_s"] == built_in["step_s"], mine, built_in)
        for wrong, said in ((rates | {"launch_ms": 1}, "unknown key launch_ms"),
                            (rates | {"launch_us": '"6"'}, "launch_us is of type string"),
                            (rates | {"memory_gib": 0}, "memory_gib = 0"),
                            ({**rates, "launch_us": None}, "mine.toml"),
                            ({k: r for k, r in rates.items() if k != "launch_us"},
                             "launch_us is missing")):
            refused(test, vocab, ["--device", write(wrong)], EXIT_CONFIG, said)
        refused(test, vocab, ["--device", "h1000"], EXIT_CONFIG, "h1000", "gh200")
        refused(test, vocab, ["--device", test.folder], EXIT_CONFIG, "directory")


def errors(test):
    vocab = {"model.vocab_size": 256}
    with test.case("errors say what to do"):
        for size in ("80 apples", "24"):
            refused(test, vocab, ["--device-memory", size], EXIT_CONFIG, size, "80GiB")
        refused(test, {}, [], EXIT_CONFIG, "model.vocab_size")
        refused(test, vocab | {"parallelism.strategy": "single"}, ["--world-size", 2], EXIT_CONFIG,
                "single")
        refused(test, {"model.dimm": 3}, [], EXIT_CONFIG, "model.dimm", "did you mean")
        refused(test, from_config(test, MIXTRAL), ["--device", "h100"], EXIT_CONFIG, "mixtral",
                "CPUs only")
        refused(test, vocab, ["--scaling-strategy", "wider"], EXIT_CONFIG, "wider")
    with test.case("a probe's ranks are on one node, and so are those of its prediction"):
        keys = vocab | {"training.slots": 8}
        words = ["--world-size", 4, "--json"]
        alone = json.loads(plan(test, keys, *words))
        printed = json.loads(plan(test, keys, *words, "--ranks-per-node", 2, "--probe"))
        check(printed["peak_bytes"] != alone["peak_bytes"], printed["peak_bytes"])
        check(printed["probe"]["predicted_bytes"] == alone["peak_bytes"], printed["probe"], alone)
        check(abs(printed["probe"]["deviation"]) <= TOLERANCE, printed["probe"])
    with test.case("a probe that takes too long is stopped"):
        refused(test, vocab | {"training.slots": 4096, "training.seq_len": 512},
                ["--probe", "--probe-seconds", 2], EXIT_CONFIG, "--probe-seconds 2")
    with test.case("what does not fit is said so"):
        printed = plan(test, vocab, "--world-size", 2, "--device-memory", "1MiB")
        for words in ("DOES NOT FIT", "none, not even 1"):
            check(words in printed, printed)


def main():
    with Test("plan") as test:
        (test.folder / "empty.toml").write_text("")
        for name, (config, world_size, keys) in CONFIGS.items():
            with test.case(name):
                compare(test, name, config, world_size, keys)
        on_devices(test)
        errors(test)


main()
