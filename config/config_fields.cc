#include "config/config_field.h"

#include "config/config.h"

namespace lockstep {
inline namespace base {
namespace {

// "section", "key" and the member they name, from one mention.
#define AT(section, key) #section, #key, +[](Config & config) { return &config.section.key; }

constexpr Bits kSame = Bits::kSame, kMayChange = Bits::kMayChange;

ConfigLimits at_least(double min) { return {.min = min, .max = kMaxConfigCount}; }
ConfigLimits within(double min, double max) { return {.min = min, .max = max}; }
ConfigLimits above(double min) { return {.min = min, .above_min = true}; }
ConfigLimits seconds() { return {.min = 0, .max = 1e9, .above_min = true}; }
ConfigLimits any() { return {}; }
ConfigLimits choice() { return {}; }  // its words are its limits

// An entry a key.
// clang-format off
void add_model(std::vector<ConfigField>& table) {
  table.insert(table.end(), {
    {AT(job, name), kSame, "the run's name", any()},
    {AT(job, dump_folder), kSame, "where the run's outputs go; empty: results/training/<name>",
     any()},
    {AT(job, description), kSame, "free text, kept in run_args.json", any()},
    {AT(model, name), kMayChange,
     "model family; linear: a stack of dim x dim layers; all but it and llama come from "
     "model.hf_assets_path", choice()},
    {AT(model, dim), kMayChange, "width of the residual stream", within(1, 1 << 20)},
    {AT(model, n_layers), kMayChange, "transformer blocks", within(1, 4096)},
    {AT(model, n_heads), kMayChange, "query heads", within(1, 65536)},
    {AT(model, n_kv_heads), kMayChange, "key/value heads; divides n_heads", within(1, 65536)},
    {AT(model, head_dim), kMayChange, "width of a head, even; 0: dim / n_heads",
     within(0, 1 << 20)},
    {AT(model, ffn_dim), kMayChange,
     "inner width of the feed-forward; 0: 8/3 dim, up to a multiple of 64", within(0, 1 << 24)},
    {AT(model, vocab_size), kMayChange, "vocabulary; 0: the data manifest's", within(0, 1 << 24)},
    {AT(model, norm_eps), kMayChange, "epsilon of RMSNorm", above(0)},
    {AT(model, rope_theta), kMayChange, "base of the rotary frequencies", above(0)},
    {AT(model, tie_word_embeddings), kMayChange, "the head uses the embedding's weight", any()},
    {AT(model, fused_attention), kMayChange,
     "flash attention; false: scores and probabilities as whole matrices", any()},
    {AT(model, dropout), kMayChange,
     "probability, of the embedding's output and of each branch's before it is added",
     within(0, 0.9)},
    // Neutral by themselves: the trainer adds the architecture and the weights' hash.
    {AT(model, hf_assets_path), kSame,
     "a Hugging Face folder: its config.json says what the model is, in place of the keys above",
     any()},
    {AT(model, init), kSame,
     "initial weights: hf reads *.safetensors of model.hf_assets_path, where that is given",
     choice()},
    {AT(model, ignore_fields), kSame,
     "fields of its config.json that are not known here and change no arithmetic: they are passed "
     "over",
     any()},
  });
}

void add_training(std::vector<ConfigField>& table) {
  table.insert(table.end(), {
    {AT(optimizer, name), kMayChange,
     "optimizer; Muon: of the matrices of blocks, with AdamW for the rest", choice()},
    {AT(optimizer, lr), kMayChange, "peak learning rate", at_least(0)},
    {AT(optimizer, beta1), kMayChange, "decay of the first moment, below 1", within(0, 0.9999999)},
    {AT(optimizer, beta2), kMayChange, "decay of the second moment, below 1",
     within(0, 0.9999999)},
    {AT(optimizer, eps), kMayChange, "added to the root of the second moment", above(0)},
    {AT(optimizer, weight_decay), kMayChange, "decoupled weight decay", at_least(0)},
    {AT(optimizer, momentum), kMayChange, "Muon's: decay of a matrix's momentum, below 1",
     within(0, 0.9999999)},
    {AT(optimizer, state_dtype), kMayChange,
     "what AdamW's moments are kept in; bfloat16: by stochastic rounding", choice()},
    {AT(lr_scheduler, warmup_steps), kMayChange, "steps of linear warm-up", at_least(0)},
    {AT(lr_scheduler, decay_type), kMayChange, "shape of the decay", choice()},
    {AT(lr_scheduler, decay_ratio), kMayChange,
     "share of total_steps, at their end, in which the rate decays; 0: after the warm-up",
     within(0, 1)},
    {AT(lr_scheduler, min_lr_factor), kMayChange, "last learning rate / peak", within(0, 1)},
    {AT(lr_scheduler, total_steps), kMayChange,
     "steps that the schedule spans; 0: training.steps. Set it to make a run longer later "
     "without another curve",
     at_least(0)},
    // Neutral by itself: total_steps stands for it in the identity.
    {AT(training, steps), kSame, "optimizer steps, where training.epochs does not say them",
     at_least(1)},
    // Neutral by itself: the steps that it stands for.
    {AT(training, epochs), kSame,
     "passes over the samples of the one source, which say training.steps; 0: none", at_least(0)},
    {AT(training, local_batch_size), kMayChange, "B: sequences in a slot", within(1, 65536)},
    {AT(training, seq_len), kMayChange, "T: tokens in a sequence", within(1, 1 << 22)},
    {AT(training, slots), kMayChange,
     "V: slots (micro-batches) in a step, whatever the world size; 0: from global_batch_size, "
     "else 4",
     within(0, 65536)},
    // Neutral by itself: slots stands for it in the identity.
    {AT(training, global_batch_size), kSame, "sequences in a step = V * B; 0: from slots",
     at_least(0)},
    {AT(training, max_norm), kMayChange, "gradients are clipped to this global norm; 0: never",
     at_least(0)},
    {AT(training, mixed_precision_param), kMayChange,
     "type of compute and of gradients on the wire", choice()},
    {AT(training, reduction), kMayChange,
     "how slot gradients are added; only tree gives equal bits at any world size", choice()},
    {AT(training, z_loss), kMayChange,
     "weight of the square of log(sum(exp(logits))) in the loss; 0: none", within(0, 1)},
    {AT(training, label_smoothing), kMayChange,
     "share of the target spread over the whole vocabulary", within(0, 0.999)},
    {AT(training, nan_policy), kMayChange,
     "loss or gradient norm not finite: stop; skip the update; or go back to the newest checkpoint "
     "and leave the step out", choice()},
    {AT(training, enable_cpu_offload), kSame,
     "weights' shards and optimizer state in host memory, updated there", any()},
    {AT(training, seed), kMayChange, "seed of weights and data order", at_least(0)},
    {AT(training, threads), kMayChange, "intra-op threads of a rank", within(1, 1024)},
  });
}

void add_sharding_and_lora(std::vector<ConfigField>& table) {
  table.insert(table.end(), {
    {AT(parallelism, strategy), kSame, "who holds what; fsdp is another word for full_shard",
     choice()},
    {AT(parallelism, data_parallel_shard_degree), kSame,
     "hybrid: ranks that share one copy of the state; 0: those of a node", within(0, 65536)},
    {AT(parallelism, forward_prefetch), kSame, "gather the next unit during forward", any()},
    {AT(parallelism, backward_prefetch), kSame,
     "gather the next unit before this one's backward, after it, or when it is needed", choice()},
    {AT(parallelism, wrap_policy), kSame,
     "units that are gathered and freed together: each block; runs of at least min_num_params; or "
     "the whole model", choice()},
    {AT(parallelism, min_num_params), kSame, "parameters of a unit under size_based, at least",
     at_least(1)},
    {AT(parallelism, slot_map), kSame,
     "rank r takes every W-th slot; or a contiguous run whose sum it ships once a step; or the "
     "ranks of a node take one together, whose sum crosses to other nodes once a step (where the "
     "nodes make no groups, as under cyclic, but for ddp as under block)", choice()},
    {AT(parallelism, reshard_after_forward), kSame,
     "full_shard: freed parameters are gathered again from the shards of all ranks; or, up to the "
     "update, inside the node, whose ranks keep a part each of what came from other nodes",
     choice()},
    {AT(activation_checkpoint, mode), kSame,
     "blocks whose inner activations are computed again in backward: none, all, or every "
     "selective_ac_option-th", choice()},
    {AT(activation_checkpoint, selective_ac_option), kSame, "selective: every so many blocks",
     within(1, 4096)},
    // Neutral: the trainer adds all four to the identity where there are adapters.
    {AT(lora, rank), kSame,
     "rank of the adapters that are trained in place of the weights; 0: no adapters",
     within(0, 4096)},
    {AT(lora, alpha), kSame, "an adapter's output is added times alpha / rank", above(0)},
    {AT(lora, dropout), kSame, "share of an adapter's input that is dropped while training",
     within(0, 0.999)},
    {AT(lora, target_modules), kSame,
     "matrices of each block with an adapter, as q_proj, down_proj, c_attn; all-linear: all of "
     "them; empty: q_proj and v_proj, of gpt2 c_attn",
     any()},
  });
}

void add_checkpoint(std::vector<ConfigField>& table) {
  table.insert(table.end(), {
    {AT(checkpoint, enable), kSame, "save checkpoints, and resume from the newest one", any()},
    {AT(checkpoint, folder), kSame, "under job.dump_folder unless absolute", any()},
    {AT(checkpoint, interval), kSame, "steps between saves; 0: none by steps", at_least(0)},
    {AT(checkpoint, interval_minutes), kSame, "a save at the latest so many minutes after the last "
     "one; 0: none by time", at_least(0)},
    {AT(checkpoint, ephemeral_interval), kSame,
     "steps between saves that go with the next commit; 0: none", at_least(0)},
    {AT(checkpoint, keep_latest_k), kSame, "checkpoints kept, at least 2; 0: all", at_least(0)},
    {AT(checkpoint, keep_every), kSame, "multiples of so many steps stay for ever; 0: none",
     at_least(0)},
    {AT(checkpoint, keep_minutes), kSame, "one for each so many minutes stays for ever; 0: none",
     at_least(0)},
    {AT(checkpoint, keep_best), kSame,
     "save whenever a validation has the lowest loss so far; the last such checkpoint stays",
     any()},
    {AT(checkpoint, codec), kSame, "compression of the chunks", choice()},
    {AT(checkpoint, threads), kSame, "compressor threads of a rank", within(1, 256)},
    {AT(checkpoint, nice), kSame, "nice value of the compressors; above 0 training comes first",
     within(0, 19)},
    {AT(checkpoint, ranks_per_file), kSame,
     "ranks of a node that share a file of a checkpoint, which the first of them writes; 1: each "
     "has its own", within(1, 1024)},
    {AT(checkpoint, when_busy), kSame, "a save is due while one is in flight", choice()},
    {AT(checkpoint, outage_minutes), kSame,
     "for so long saves may fail, and are tried again, before they end the run; 0: the first one "
     "does", at_least(0)},
    {AT(checkpoint, vote_timeout_seconds), kSame,
     "for all ranks to have written their part of a save", seconds()},
    {AT(checkpoint, strict_identity), kSame, "refuse to resume when bits may differ", any()},
    {AT(checkpoint, initial_load_path), kMayChange,
     "checkpoint, or run folder, that a run without checkpoints of its own starts from, at step 0; "
     "empty: none",
     any()},
    {AT(checkpoint, initial_load_model_only), kMayChange,
     "from there take the weights only, not the optimizer's state", any()},
    {AT(checkpoint, exclude_from_loading), kMayChange,
     "patterns of tensor names, * for anything, that are not taken from there but initialized",
     any()},
    {AT(checkpoint, memory_interval), kSame,
     "steps between snapshots in host memory, used first after a worker's death; 0: none",
     at_least(0)},
    {AT(checkpoint, memory_folder), kSame,
     "where snapshots live: a tmpfs, or a folder on each node's own disk; empty: /dev/shm", any()},
    {AT(checkpoint, buddy), kSame, "a rank of another node keeps a copy of each snapshot", any()},
  });
}

void add_machinery(std::vector<ConfigField>& table) {
  table.insert(table.end(), {
    {AT(comm, train_timeout_seconds), kSame, "deadline of a collective", seconds()},
    {AT(comm, init_timeout_seconds), kSame, "deadline for the ranks to find each other", seconds()},
    {AT(validation, freq), kSame, "steps between validations; 0: never", at_least(0)},
    {AT(validation, slots), kSame, "held-out slots of a validation", within(1, 65536)},
    {AT(validation, patience), kSame,
     "so many validations in a row without a lower loss end the run; 0: none do", at_least(0)},
    {AT(audit, interval), kSame,
     "steps between audits, each of which computes a round of slots again on other ranks, takes "
     "fingerprints of weights and moments again, and compares the bits; 0: never",
     at_least(0)},
    {AT(audit, action), kSame,
     "an audit finds that a rank has wrong bits: warn; stop; or evict: go on without its node, "
     "from the newest checkpoint that was audited", choice()},
    {AT(audit, slot), kSame,
     "in an audit every rank computes this slot of the step, and all must agree; -1: each computes "
     "one that another rank had", at_least(-1)},
    {AT(metrics, log_freq), kSame, "steps between console lines", at_least(1)},
    {AT(metrics, enable_tensorboard), kSame, "write TensorBoard events", any()},
    {AT(metrics, peak_tflops), kSame, "measured GEMM peak of a rank's device, for MFU; 0: unknown",
     at_least(0)},
    {AT(profiling, enable_profiling), kSame, "write Chrome traces of some steps", any()},
    {AT(profiling, save_traces_folder), kSame, "under job.dump_folder unless absolute", any()},
    {AT(profiling, profile_freq), kSame, "steps between traced steps", at_least(1)},
  });
}

void add_data(std::vector<ConfigField>& table) {
  table.insert(table.end(), {
    // Neutral: the trainer adds the hashes and weights of the sources to the identity.
    {AT(data, path), kSame, "a folder made by `lockstep prepare`, or a file or folder of data.kind",
     any()},
    {AT(data, kind), kSame,
     "tokens: made by prepare; megatron: .bin and .idx; llmc: llm.c's .bin; nanogpt: .bin of u16; "
     "npy: an integer array, of one dimension, or [steps, sequences, T] in file order", choice()},
    {AT(data, sources), kSame, "several of them in place of data.path: a mixture", any()},
    {AT(data, weights), kSame,
     "integers, one a source: its share of the samples; empty: the number of its training tokens",
     at_least(1)},
    {AT(data, temperature), kSame, "each weight becomes weight^(1/temperature); above 1: more even",
     above(0)},
    // Neutral: what it did to a run is in the run's checkpoints.
    {AT(data, on_change), kSame,
     "a resume has another batch, sequence length or mixture: jump to where a run with it from the "
     "start would be; or continue behind what was drawn of each source",
     choice()},
    {AT(data, document_mask), kMayChange,
     "where the data says where documents start (prepare --pack): attention stays inside a "
     "document, and positions count from its first token", any()},
    {AT(data, prefetch), kSame, "slots kept ready", within(1, 1024)},
    {AT(data, read_timeout_seconds), kSame,
     "for a read that fails, and is tried again, or does not end; then the run ends", seconds()},
  });
}

// The keys of a run on several nodes.
void add_nodes(std::vector<ConfigField>& table) {
  table.insert(table.end(), {
    {AT(launcher, nnodes), kSame, "nodes of `launch`, one agent each: N or MIN:MAX", any()},
    {AT(launcher, rdzv_endpoint), kSame,
     "where the agents meet: HOST:PORT (an address of the node that coordinates) or file:DIR (a "
     "folder that all see); empty: the run folder", any()},
    {AT(launcher, rdzv_id), kSame,
     "tells jobs at one endpoint apart; empty: SLURM_JOB_ID, or job", any()},
    {AT(launcher, local_addr), kSame,
     "this node's interface or address; empty: that of the route to the others", any()},
    {AT(launcher, spares), kSame, "nodes kept out while there are more than MIN", at_least(0)},
    {AT(launcher, on_node_loss), kSame,
     "shrink: a spare, else go on with MIN or more; spare: a spare, else end; wait: for as many as "
     "before; fail: end", choice()},
    {AT(launcher, grow), kSame,
     "auto: a spare that has stayed and makes steps faster joins the running job at the end of a "
     "step, and no step is computed again; never: at the next restart", choice()},
    {AT(launcher, grow_after_seconds), kSame,
     "a spare joins after so long, and planned changes are so far apart at least",
     within(0, 1e9)},
    {AT(launcher, last_call_seconds), kSame, "from MIN nodes on, for more to come",
     within(0, 1e9)},
    {AT(launcher, join_seconds), kSame, "for MIN nodes to come, and for the first coordinator",
     within(1, 1e9)},
    {AT(launcher, silence_seconds), kSame,
     "a node that is silent for so long is lost, 0.5 or more; more where links flap, and each "
     "silent node that is lost costs as much longer; 0: 1.5, above 4096 nodes in proportion",
     within(0, 60)},
    {AT(launcher, ack_seconds), kSame,
     "a node that does not agree to a generation for so long is lost, two thirds of the silence or "
     "more; 0: 1, above 1000 nodes a millisecond for each", within(0, 3600)},
    {AT(launcher, reap_seconds), kSame,
     "a node whose workers do not end for so long after SIGKILL is lost; more where much "
     "page-locked memory is let go", within(1, 3600)},
    {AT(launcher, straggler), kSame,
     "a rank that stays slow: warn: is named; evict: a spare takes the place of its node, which is "
     "a spare from then on; without a spare it is named alone", choice()},
    {AT(launcher, straggler_factor), kSame,
     "slow is who takes so much more time for a slot than the median of the others", above(1)},
    {AT(launcher, straggler_seconds), kSame,
     "for so long, in ten steps at least, but for a few of them", within(1, 1e9)},
    {AT(launcher, health), kSame,
     "counters of a node's hardware (memory errors, GPU faults, links, throttling): off: not read; "
     "warn: what they say is in the log; evict: a node whose memory or GPU has an error that "
     "cannot be corrected runs no more workers, where the job can go on without it", choice()},
    {AT(launcher, status_endpoint), kSame,
     "where the agent that coordinates serves a status page and Prometheus metrics, to who has the "
     "token in its log: HOST:PORT or INTERFACE:PORT; empty: nowhere", any()},
    {AT(debug, break_rule), kMayChange, "tests only: breaks one rule of the arithmetic", choice()},
    {AT(debug, nan_steps), kMayChange, "tests only: the loss of these steps is not a number",
     at_least(1)},
    {AT(debug, stop_at), kSame,
     "tests only: GENERATION:RANK:MOMENT:STEP, where that worker stops itself (SIGSTOP)", any()},
  });
}

void add_launcher(std::vector<ConfigField>& table) {
  table.insert(table.end(), {
    {AT(launcher, nproc_per_node), kSame,
     "processes; a list gives each restart its own number, the last one repeats. Empty: 1",
     within(1, 4096)},
    {AT(launcher, on_worker_loss), kSame, "restart with as many processes, or with those left",
     choice()},
    {AT(launcher, min_nproc), kSame, "fewer processes than this end the run", within(1, 4096)},
    {AT(launcher, max_restarts), kSame,
     "restarts in a row without a new checkpoint before giving up; more than 3 count as 3",
     at_least(0)},
    {AT(launcher, grace_seconds), kSame,
     "from SIGTERM to SIGKILL; longer, to hang_seconds at most, while a save or a validation goes "
     "on. The last save begins so long before the end of a Slurm allocation, or halfway through a "
     "short one",
     within(0, 1e9)},
    {AT(launcher, hang_seconds), kSame,
     "no progress for this long is a hang; less (60 or more) in a phase whose pace is known; 5 of "
     "a stopped process",
     seconds()},
    {AT(launcher, requeue), kSame,
     "under Slurm, ask for a requeue: auto: where the job was submitted with --requeue; force: "
     "even with --no-requeue", choice()},
  });
  add_nodes(table);
}

#undef AT

// clang-format on

}  // namespace

const std::vector<ConfigField>& config_fields() {
  static const std::vector<ConfigField> table = [] {
    std::vector<ConfigField> rows;
    add_model(rows);
    add_training(rows);
    add_sharding_and_lora(rows);
    add_checkpoint(rows);
    add_machinery(rows);
    add_data(rows);
    add_launcher(rows);
    return rows;
  }();
  return table;
}

const std::vector<ConfigAlias>& config_aliases() {
  static const std::vector<ConfigAlias> table = {
      {"data_parallel", "parallelism.strategy", "fsdp | ddp | single | shard_grad_op | hybrid"},
      {"batch_size", "training.local_batch_size", "sequences in a slot"},
      {"batch_size_per_device", "training.local_batch_size", "sequences in a slot"},
      {"gradient_accumulation_steps", "training.slots",
       "V = slots in a step: with one process, what the name says; more processes share them"},
      {"set_seed", "training.seed", "seed of weights and data order"},
      {"learning_rate", "optimizer.lr", "peak learning rate"},
      {"forward_prefetch", "parallelism.forward_prefetch", "gather the next unit during forward"},
      {"backward_prefetch", "parallelism.backward_prefetch", "BACKWARD_PRE | BACKWARD_POST | NONE"},
      {"auto_wrap_policy", "parallelism.wrap_policy", "module_wrap | size_based | none"},
      {"min_num_params", "parallelism.min_num_params", "parameters of a unit under size_based"},
      {"gradient_checkpointing", "activation_checkpoint.mode",
       "a bare flag means full; --no_gradient_checkpointing: none", "full", "none"},
      {"cpu_offload", "training.enable_cpu_offload", "shards and optimizer state in host memory"},
      {"fused_attention", "model.fused_attention", "flash attention"},
      {"nproc_per_node", "launcher.nproc_per_node", "processes, or a list as 2,3,1"},
      {"max_restarts", "launcher.max_restarts",
       "restarts without progress before giving up, at most 3"},
      {"requeue", "launcher.requeue", "auto | never | force"},
      {"nnodes", "launcher.nnodes", "nodes: N or MIN:MAX"},
      {"rdzv_endpoint", "launcher.rdzv_endpoint", "HOST:PORT or file:DIR"},
      {"rdzv_id", "launcher.rdzv_id", "tells jobs at one endpoint apart"},
      {"local_addr", "launcher.local_addr", "this node's interface or address"},
      {"spares", "launcher.spares", "nodes kept out of a generation"},
      {"on_node_loss", "launcher.on_node_loss", "when a node is lost"},
      {"status_endpoint", "launcher.status_endpoint", "HOST:PORT or INTERFACE:PORT"},
  };
  return table;
}

const ConfigField* find_config_field(std::string_view section, std::string_view key) {
  for (const ConfigField& field : config_fields())
    if (section == field.section && key == field.key) return &field;
  return nullptr;
}

}  // namespace base
}  // namespace lockstep
