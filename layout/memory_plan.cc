#include "layout/memory_plan.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/text.h"
#include "layout/decoder_model.h"
#include "layout/memory_walk.h"
#include "layout/muon_plan.h"
#include "layout/shard_layout.h"
#include "layout/step_time.h"

namespace lockstep::layout {
namespace {

constexpr const char* kNames[kMemoryUses] = {
    "parameters: fp32 master",
    "optimizer: moments",
    "parameters: bf16 copy",
    "gathered units",
    "parameters kept in the node",
    "gradients: exchange buffers",
    "gradients: fp32 sums in a slot",
    "gradients: partial sums of slots",
    "pooled buffers, idle",
    "activations saved",
    "working memory of a stage",
    "head chunk: logits",
    "whole sums, Muon's matrices (update)",
    "rotary table",
    "batch, losses, norms",
};
constexpr int64_t kMaxLayers = 4096, kMaxBatch = 65536;  // the config's limits
constexpr int64_t kStepsOfAll = 100;                     // factors are multiples of 1 / this

// Bytes of the state of all trained units that rank 0 owns: what it writes to checkpoints.
int64_t state_bytes(const ModelSpec& spec, const Strategy& strategy) {
  int64_t weights = 0, muons = 0;
  for (const UnitSpec& unit : spec.units) {
    if (unit.frozen) continue;
    const ShardLayout layout = strategy.layout_of(unit);
    weights += layout.owned_elements();
    if (strategy.muon)
      muons += muon_elements(unit, segments_of(unit, layout.first_tile(0), layout.tile_count(0)));
  }
  return weights * 4 + (2 * weights - muons) * strategy.moment_bytes();
}

// What other ranks of this node have still to read of this one: about what it gives to a gather,
// and the gradients, of three units as large as the largest (core/comm/node_communicator).
int64_t outbox_bytes(const ModelSpec& spec, const Strategy& strategy) {
  ShardLayout largest;
  for (const UnitSpec& unit : spec.units)
    if (unit.tiles() > largest.tiles) largest = strategy.layout_of(unit);
  const int64_t shard =
      strategy.sizes.shard > 1 ? largest.joint_elements() * strategy.compute_bytes() : 0;
  const int64_t gradients = (largest.padded_elements() - largest.joint_elements()) *
                            (strategy.map.block() ? 4 : strategy.compute_bytes());
  return 3 * (shard + gradients);
}

std::vector<MemoryRow> host_rows(const Config& config, const ModelSpec& spec, const Ranks& ranks) {
  constexpr int64_t kChunkBytes = int64_t{4} << 18;
  const Config::Checkpoint& c = config.checkpoint;
  const Strategy strategy = ranks.strategy(config);
  const int64_t state = state_bytes(spec, strategy);
  std::vector<MemoryRow> rows;
  if (ranks.world_size > 1)
    rows.push_back({"shared with ranks of this node", outbox_bytes(spec, strategy)});
  if (c.enable) {
    rows.push_back({kStagedRow, state});  // StagingArea::create
    // ChunkPipeline: slot_count encoded chunks
    rows.push_back({"checkpoint: chunks being compressed", (2 * c.threads + 2) * kChunkBytes});
    if (ranks.world_size > 1 && c.ranks_per_file > 1)  // kChunksInRing
      rows.push_back({"checkpoint: chunks handed to a neighbour rank", 4 * kChunkBytes});
  }
  if (c.enable && c.memory_interval > 0)  // MemoryTier::make_slots: two, and the buddy's two
    rows.push_back({kSnapshotRow, (c.buddy ? 4 : 2) * state});
  // SlotLoader: data.prefetch ready, one being filled; tokens and labels
  rows.push_back(
      {"batches read ahead", (config.data.prefetch + 1) * 2 * 8 * config.training.local_batch_size *
                                 config.training.seq_len});
  return rows;
}

// NCCL allocates for each channel. A rank's links share 32 blocks (core/comm/join.cc), and NCCL's
// src/graph/connect.cc makes no more channels than blocks.
constexpr int64_t kMiB = 1 << 20, kBlocks = 32;

// NCCL's communicators of a rank, as core/comm/join.cc makes them (LinksOf).
struct DeviceLinks {
  std::vector<Members> exchanges;  // of each communicator for gradients: its ranks
  int64_t gathers = 0;             // communicators for parameters and sums

  int64_t count() const { return std::ssize(exchanges) + gathers; }
  int64_t channels() const { return kBlocks / count(); }  // of each
};

DeviceLinks links_of(const Strategy& strategy, int64_t per_node) {
  const int64_t world = strategy.map.world_size, group = strategy.sizes.group;
  const Members all{world, 1, per_node};
  if (!strategy.sizes.two_legs(strategy.map.world_size)) return {{all}, 1};
  DeviceLinks links{{{group, 1, per_node}, {world / group, group, per_node}}, 2};
  const bool native = strategy.reduction == Reduction::kNative;
  if (native) links.exchanges.clear();
  if (native || strategy.muon) links.exchanges.push_back(all);
  return links;
}

// Channels over which a rank sends to a peer: one number for all peers, the fewest that any of them
// needs (NCCL 2.30.7, src/graph/paths.cc). NVLink needs all. A card of 400 Gbit/s needs 4, at 14
// GB/s each, and gets fewer when the peers would not fit into a turn of 8 a channel.
int64_t channels_of_peer(const Members& members, int64_t channels) {
  constexpr int64_t kNetChannels = 4, kPeersAtOnce = 8;
  if (members.near() == members.count) return channels;
  const int64_t turns = (members.count + kPeersAtOnce - 1) / kPeersAtOnce;
  int64_t of_peer = std::min(kNetChannels, channels);
  while (of_peer > 1 && of_peer * turns > channels) of_peer /= 2;
  return of_peer;
}

// What libraries take of a GPU, from what they are known to allocate. NCCL, the exchanges' sends
// and receives: to each peer of the node, over NVLink, 10 MiB to receive and 2 to send a channel
// (8 H100: 2.7 of 3.3 GB that were seen, NCCL issue 1685). Peers elsewhere share buffers of 16 x
// 128 KiB a channel (src/transport/net.cc, sharedNetBuffersInit): one to receive into, and one to
// send from for each rank of the communicator on this node, as the GPU nearest to a card sends for
// all (PXN). Its gathers: a ring over all channels, both ways, in each communicator.
std::vector<MemoryRow> gpu_rows(const Strategy& strategy, const Ranks& ranks) {
  std::vector<MemoryRow> rows{{"cuBLAS workspace", 8 * 4 * kMiB}};  // core/cuda: :4096:8
  const int64_t world = ranks.world_size;
  const int64_t per_node = ranks.per_node > 0 ? std::min(ranks.per_node, world) : world;
  if (world == 1) return rows;
  const DeviceLinks links = links_of(strategy, per_node);
  int64_t near = 0, network = 0;
  for (const Members& members : links.exchanges) {
    near += (members.near() - 1) * channels_of_peer(members, links.channels()) * 12 * kMiB;
    if (members.near() < members.count)
      network += (members.near() + 1) * links.channels() * 2 * kMiB;
  }
  if (near > 0) rows.push_back({"NCCL: exchanges, buffers for each peer of the node", near});
  if (network > 0) rows.push_back({"NCCL: exchanges, buffers for the network", network});
  rows.push_back({"NCCL: gathers, rings", links.count() * links.channels() * 12 * kMiB});
  return rows;
}

// The largest n in [1, most] for which fits(n); 0: none. Requires: what fits, fits for less.
int64_t largest(int64_t most, const std::function<bool(int64_t)>& fits) {
  int64_t good = 0, next = 1;
  while (next <= most && fits(next)) {
    good = next;
    next *= 2;
  }
  int64_t bad = std::min(next, most + 1);
  while (good + 1 < bad) {
    const int64_t middle = good + (bad - good) / 2;
    (fits(middle) ? good : bad) = middle;
  }
  return good;
}

// With training.enable_cpu_offload the state lies on the host; the device keeps a copy of the shard
// in the compute type, in fp32 as large as the master weights.
int64_t offloaded_bytes(const Config& config, const MemoryLedger& ledger) {
  if (!config.training.enable_cpu_offload) return 0;
  const auto live = [&](MemoryUse use) { return ledger.peak()[static_cast<size_t>(use)]; };
  const bool has_copy = live(MemoryUse::kComputeCopy) > 0;
  return live(MemoryUse::kOptimizer) + (has_copy ? live(MemoryUse::kMaster) : 0);
}

int64_t device_bytes(const Config& config, const ModelSpec& spec, const Ranks& ranks) {
  const MemoryLedger ledger = walk_training(config, spec, ranks);
  return ledger.peak_total() - offloaded_bytes(config, ledger);
}

int64_t times(int64_t n, double factor) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(n) * factor));
}

// What the config says of the batch has to be said anew.
std::string batch_flags(const Config& config, int64_t slots) {
  const bool by_size = config.training.global_batch_size > 0;
  const bool by_slots = config.training.slots > 0 || !by_size;
  return text(by_slots ? text("--training.slots ", slots) : "", by_slots && by_size ? " " : "",
              by_size
                  ? text("--training.global_batch_size ", slots * config.training.local_batch_size)
                  : "");
}

}  // namespace

MemoryPlan plan_memory(const Config& config, const ModelSpec& spec, const Ranks& ranks) {
  const MemoryLedger ledger = walk_training(config, spec, ranks);
  MemoryPlan plan;
  plan.peak_bytes = ledger.peak_total();
  plan.offloaded_bytes = offloaded_bytes(config, ledger);
  const MemoryLedger::Moment& moment = ledger.peak_moment();
  plan.peak_at = moment.layer < 0 ? moment.doing : text(moment.doing, " ", moment.layer);
  for (size_t i = 0; i < kMemoryUses; ++i)
    if (ledger.peak()[i] > 0) plan.tensors.push_back({kNames[i], ledger.peak()[i]});
  plan.host = host_rows(config, spec, ranks);
  plan.gpu = gpu_rows(ranks.strategy(config), ranks);
  return plan;
}

Occupancy occupancy(int64_t slots, int64_t world_size) {
  const int64_t rounds = (slots + world_size - 1) / world_size;
  return {world_size, rounds,
          static_cast<double>(slots) / static_cast<double>(rounds * world_size)};
}

double speed_left(int64_t slots, int64_t all, int64_t left) {
  return static_cast<double>(occupancy(slots, all).rounds) /
         static_cast<double>(occupancy(slots, left).rounds);
}

std::string idle_ranks_warning(const Config& config, int64_t ranks) {
  const int64_t slots = config.slots();
  const Occupancy use = occupancy(slots, ranks);
  const double idle = 1.0 - use.busy;
  const int64_t places = use.rounds * ranks;
  if (ranks <= slots && idle <= kMuchIdle) return "";
  const std::string when = ranks > slots
                               ? ""
                               : text(" in the last of the ", use.rounds, " rounds of a step, ",
                                      fixed(100 * idle, 0), " % of the ranks' time");
  return text(places - slots, " of ", ranks, " ranks compute nothing", when, ": a step has ",
              counted(slots, "slot"),
              " (training.slots), and one rank computes each slot. The global batch is slots times "
              "training.local_batch_size sequences for any number of ranks; a new run with ",
              batch_flags(config, places), " keeps all of them busy");
}

std::optional<LargestBatch> largest_batch(const Config& config, const ModelSpec& spec,
                                          const Ranks& ranks, int64_t room_bytes) {
  Config tried = config;
  const auto peak = [&](int64_t batch) {
    tried.training.slots = config.slots();
    tried.training.global_batch_size = 0;
    tried.training.local_batch_size = batch;
    return device_bytes(tried, spec, ranks);
  };
  const int64_t batch = largest(kMaxBatch, [&](int64_t n) { return peak(n) <= room_bytes; });
  if (batch == 0) return std::nullopt;
  return LargestBatch{batch, peak(batch)};
}

DecoderShape scaled(const DecoderShape& shape, ScalingStrategy strategy, double factor) {
  DecoderShape s = shape;
  s.n_layers = std::min(kMaxLayers, times(shape.n_layers, factor));
  for (size_t i = 0; !s.windows.empty() && i < static_cast<size_t>(s.n_layers); ++i) {
    const int64_t window = shape.windows[i % shape.windows.size()];
    i < s.windows.size() ? void(s.windows[i] = window) : s.windows.push_back(window);
  }
  if (strategy == ScalingStrategy::kLayers) return s;
  constexpr int64_t kGrain = 64;
  const auto grains = [factor](int64_t n) {
    return kGrain * times(n, factor / static_cast<double>(kGrain));
  };
  s.n_kv_heads = times(shape.n_kv_heads, factor);
  s.n_heads = shape.n_heads / shape.n_kv_heads * s.n_kv_heads;
  const bool heads_fill = shape.n_heads * shape.head_dim == shape.dim;
  s.dim = heads_fill ? s.n_heads * s.head_dim : grains(shape.dim);
  s.ffn_dim = grains(shape.ffn_dim);
  return s;
}

std::optional<LargestModel> largest_model(const Config& config, const DecoderShape& shape,
                                          ScalingStrategy strategy, const Ranks& ranks,
                                          int64_t room_bytes) {
  // In steps of whole layers, or of hundredths.
  const bool layers = strategy == ScalingStrategy::kLayers;
  const int64_t steps = layers ? shape.n_layers : kStepsOfAll;
  const auto factor = [steps](int64_t n) {
    return static_cast<double>(n) / static_cast<double>(steps);
  };
  const auto peak = [&](int64_t n) {
    return device_bytes(config, create(scaled(shape, strategy, factor(n)), config.lora), ranks);
  };
  const int64_t most = kMaxLayers * steps / shape.n_layers;
  const int64_t n = largest(most, [&](int64_t k) { return peak(k) <= room_bytes; });
  if (n == 0) return std::nullopt;
  LargestModel model{factor(n), scaled(shape, strategy, factor(n)), 0, peak(n)};
  model.parameters = create(model.shape, config.lora).parameter_count();
  return model;
}

}  // namespace lockstep::layout
