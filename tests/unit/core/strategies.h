// A small model trained under any setting of the neutral keys, ranks as threads.
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <thread>

#include "hf/configured_model.h"
#include "tests/support/thread_group.h"
#include "tests/unit/core/on_device.h"
#include "tests/unit/core/step_line.h"

namespace lockstep::core {

struct Setting {
  ShardingStrategy strategy = ShardingStrategy::kFullShard;
  int world_size = 1, shard_degree = 2;
  bool bf16 = false, offload = false, forward_prefetch = true;
  Recompute checkpointing = Recompute::kNone;
  BackwardPrefetch backward_prefetch = BackwardPrefetch::kPre;
  WrapPolicy wrap = WrapPolicy::kModuleWrap;
  SlotMapKind map = SlotMapKind::kCyclic;
  int ranks_of_node = 0;  // 0: all are on one node
  ReshardAfterForward reshard = ReshardAfterForward::kWorld;

  std::string name() const {
    return text(strategy, " W=", world_size, " S=", shard_degree, bf16 ? " bf16" : " fp32",
                offload ? " offload" : "", forward_prefetch ? "" : " no forward prefetch",
                " checkpointing=", checkpointing, " ", backward_prefetch, " ", wrap, " ", map,
                " a node ", ranks_of_node, " reshard=", reshard);
  }
  Config config() const {
    Config c;
    c.model.dim = 32;
    c.model.n_layers = 3;
    c.model.n_heads = 4;
    c.model.n_kv_heads = 2;
    c.model.ffn_dim = 48;
    c.model.tie_word_embeddings = true;
    c.training.seq_len = 8;
    c.training.local_batch_size = 1;
    c.training.slots = 5;
    c.training.mixed_precision_param = bf16 ? FloatType::kBfloat16 : FloatType::kFloat32;
    c.training.enable_cpu_offload = offload;
    c.parallelism.strategy = strategy;
    c.parallelism.data_parallel_shard_degree = shard_degree;
    c.parallelism.forward_prefetch = forward_prefetch;
    c.parallelism.backward_prefetch = backward_prefetch;
    c.parallelism.wrap_policy = wrap;
    c.parallelism.min_num_params = 9000;
    c.parallelism.slot_map = map;
    c.parallelism.reshard_after_forward = reshard;
    c.activation_checkpoint.mode = checkpointing;
    return c;
  }
};

// What must not depend on the setting: bits of every step's loss and norm, and of the final state.
struct Curve {
  std::vector<std::string> steps;
  std::vector<std::string> state;  // "name kind hash", by name
  bool operator==(const Curve&) const = default;
};

inline data::SlotBatch batch_of(const Config& config, int64_t step, int64_t slot) {
  data::SlotBatch batch;
  batch.step = step;
  batch.slot = slot;
  const int64_t count = config.training.local_batch_size * config.training.seq_len;
  for (int64_t i = 0; i <= count; ++i) {
    const std::string key = text(step, " ", slot, " ", i);
    const auto token = static_cast<int64_t>(xxh3_64(key) % 11 * 3);
    if (i < count) batch.tokens.push_back(token);
    if (i > 0) batch.labels.push_back(i % 5 == 0 && slot == 2 ? -100 : token);
    // Documents of other lengths in every slot; the first has none but its sequences.
    if (i < count && (i % config.training.seq_len == 0 || (slot > 0 && (i + step) % 5 == slot)))
      batch.document_starts.push_back(i);
  }
  batch.valid_tokens = count - std::count(batch.labels.begin(), batch.labels.end(), -100);
  return batch;
}

// A segment of the state on the host, `offset` elements in, by kind; fp32 or bf16.
inline std::map<std::string, at::Tensor> state_at(Unit& unit, const Segment& s, int64_t offset) {
  const ShardState::HostState& state = unit.state.host();
  const int64_t at = offset + s.range_offset;
  std::map<std::string, at::Tensor> kinds{{" w", state.master_S.narrow(0, at, s.length)},
                                          {" m", state.adam_m_S.narrow(0, at, s.length)}};
  if (!unit.state.is_muons(s.param))
    kinds[" v"] = state.adam_v_A.narrow(0, unit.state.place_in_v(s.param, at), s.length);
  return kinds;
}

// What this rank owns goes into whole tensors, by "name kind".
inline void collect(TrainingStep& model, std::map<std::string, std::vector<float>>& whole) {
  model.pull_state();
  for (auto& unit : model.units()) {
    if (unit->spec.frozen) continue;
    for (const Segment& s : unit->state.owned_segments()) {
      const layout::ParamSpec& param = unit->spec.params[static_cast<size_t>(s.param)];
      for (const auto& [kind, held] : state_at(*unit, s, unit->state.owned_offset())) {
        std::vector<float>& out = whole[param.name + kind];
        out.resize(static_cast<size_t>(param.elements()));
        const at::Tensor wide = held.to(at::kFloat);
        std::copy_n(wide.data_ptr<float>(), s.length, out.data() + s.flat_start);
      }
    }
  }
}

// `inspect`: of each rank's model after the last step, one at a time.
using Inspect = std::function<void(int rank, TrainingStep&, const Groups&)>;
inline Curve train(const Setting& setting, int64_t steps, Config config,
                   at::Device device = at::kCPU, const Inspect& inspect = {}) {
  const layout::ModelSpec spec = hf::configured_model(config, 40).value();
  const int w = setting.world_size, node = setting.ranks_of_node;
  ThreadGroups groups(w, layout::group_sizes(config, w, node), node);
  Curve curve;
  std::mutex mutex;
  std::map<std::string, std::vector<float>> whole;
  auto rank_of_run = [&](int rank) {
    at::set_num_threads(1);
    Staged staged;
    TrainingStep model(config, spec, on_device(groups.of(rank), device, staged));
    ASSERT_TRUE(model.initialize(nullptr).ok());
    for (int64_t step = 1; step <= steps; ++step) {
      const std::vector<int64_t> slots = model.slot_map().slots_of(rank);
      size_t next = 0;
      auto outcome = model.run(
          step, 1e-2, [] { return RankFlags{}; },
          [&]() -> Result<data::SlotBatch> { return batch_of(config, step, slots[next++]); },
          [] {});
      ASSERT_TRUE(outcome.ok()) << outcome.error().message;
      EXPECT_EQ(next, slots.size());
      if (rank == 0) curve.steps.push_back(line_of(*outcome));
    }
    std::lock_guard lock(mutex);
    collect(model, whole);
    if (inspect) inspect(rank, model, groups.of(rank));
  };
  std::vector<std::thread> ranks;
  for (int r = 0; r < setting.world_size; ++r) ranks.emplace_back(rank_of_run, r);
  for (std::thread& t : ranks) t.join();
  for (const auto& [name, values] : whole)
    curve.state.push_back(text(name, " ", hex64(xxh3_64(std::as_bytes(std::span(values))))));
  return curve;
}

}  // namespace lockstep::core
