// Waits, orders and buffer rules that training on a device relies on, each of which can be left
// out. Left out, a run must fail or give other bits under some seed.
#pragma once

#include "tests/unit/core/sim_mutation.h"

namespace lockstep::core {

// Of two legs between two nodes of two ranks.
inline std::vector<Mutation> mutations_between_nodes() {
  using Rule = SimCall::Rule;
  constexpr auto kAfter = Rule::kCollectiveAfter, kWait = Rule::kCollectiveWait;
  const SimRun nodes{.setting = {.world_size = 4, .bf16 = true, .ranks_of_node = 2}};
  SimRun over_rounds = nodes;
  over_rounds.setting.map = SlotMapKind::kGroupBlock;
  SimRun copies = nodes;
  copies.setting.strategy = ShardingStrategy::kDdp;
  SimRun kept = nodes, staged = nodes;
  kept.setting.reshard = staged.setting.reshard = ReshardAfterForward::kNode;
  staged.staged = true;
  const std::string gather = "group all_gather of parameters";
  return {
      {"the second leg of a gather begins early", {{Rule::kSecondLeg, gather}}, nodes, 1},
      {"the second leg of a gather is not waited for", {{kWait, gather}}, nodes, 1},
      {"the first leg of a gather begins early",
       {{kAfter, "peers all_gather of parameters"}},
       nodes,
       1},
      {"what a node keeps is shared before it has come", {{Rule::kSecondLeg, gather}}, kept, 1},
      {"what a node keeps is shared before it has come to the host",
       {{kWait, "peers all_gather of the host"}},
       staged,
       1},
      {"a gather from what a node keeps is not waited for", {{kWait, gather}}, kept, 1},
      {"a node's slots are not waited for", {{kWait, "group exchange"}}, over_rounds, 1},
      {"a node's sums are not waited for", {{kWait, "peers exchange"}}, over_rounds, 1},
      {"the second leg of a gather of sums begins early",
       {{Rule::kSecondLeg, "group all_gather of sums"}},
       copies,
       1},
      {"the second leg of a gather of sums is not waited for",
       {{kWait, "group all_gather of sums"}},
       copies,
       1},
  };
}

inline std::vector<Mutation> mutations_in_one_leg() {
  using Rule = SimCall::Rule;
  constexpr auto kAfter = Rule::kCollectiveAfter, kWait = Rule::kCollectiveWait,
                 kPeers = Rule::kCollectivePeers, kToHost = Rule::kCopyToHost;
  const SimRun one{.setting = {.strategy = ShardingStrategy::kSingle, .bf16 = true}};
  const SimRun full{.setting = {.world_size = 2, .bf16 = true}}, fp32{.setting = {.world_size = 2}};
  const SimRun kept{
      .setting = {.strategy = ShardingStrategy::kShardGradOp, .world_size = 3, .bf16 = true}};
  const SimRun ddp{.setting = {.strategy = ShardingStrategy::kDdp, .world_size = 2, .bf16 = true}};
  SimRun blocks = ddp, native = full, offload = full, offload_fp32 = fp32, staged = full;
  blocks.setting.map = SlotMapKind::kBlock;
  native.reduction = Reduction::kNative;
  offload.setting.offload = offload_fp32.setting.offload = staged.staged = true;
  SimRun evaluated = full, muon = full, offload_muon = offload;
  evaluated.evaluates = true;
  const SimRun hybrid{
      .setting = {.strategy = ShardingStrategy::kHybrid, .world_size = 4, .bf16 = true}};
  SimRun added = hybrid;
  added.setting.map = SlotMapKind::kBlock;
  muon.optimizer = offload_muon.optimizer = OptimizerKind::kMuon;
  const std::string gather = "group all_gather of parameters", exchange = "group exchange",
                    copies = "peers exchange", sums = "peers all_gather of sums",
                    matrices = "world exchange", host = "world all_gather of the host",
                    native_sum = "world all_reduce";
  return {
      {"a gather begins before the weights are written", {{kAfter, gather}}, full, 1},
      {"a gather is not waited for", {{kWait, gather}}, full, 1},
      {"a gather of what is kept until backward is not waited for", {{kWait, gather}}, kept, 1},
      {"a gather of fp32 is not waited for", {{kWait, gather}}, fp32, 1},
      {"an exchange begins before the gradients are written", {{kAfter, exchange}}, full, 1},
      {"an exchange is not waited for", {{kWait, exchange}}, full, 1},
      {"an exchange of fp32 begins early", {{kAfter, exchange}}, fp32, 1},
      {"an exchange between groups begins early", {{kAfter, copies}}, hybrid, 1},
      {"an exchange between groups is not waited for", {{kWait, copies}}, hybrid, 1},
      {"an exchange in a group is not waited for", {{kWait, exchange}}, hybrid, 1},
      {"parts for the second exchange are given back early", {{kPeers, copies}}, hybrid, 4},
      {"sums of a block of slots leave before they are made", {{kAfter, copies}}, blocks, 1},
      {"sums of a block of slots are not waited for", {{kWait, copies}}, blocks, 1},
      {"an exchange in a group that adds its sums begins early", {{kAfter, exchange}}, added, 1},
      {"sums of a group are not waited for", {{kWait, copies}}, added, 1},
      {"sums of a block of slots are given back early", {{kPeers, copies}}, blocks, 37},
      {"sums of a group are given back early", {{kPeers, copies}}, added, 9},
      {"a gather of sums begins before they are folded", {{kAfter, sums}}, ddp, 1},
      {"a gather of sums is not waited for", {{kWait, sums}}, ddp, 1},
      {"a sum over ranks begins early", {{kAfter, native_sum}}, native, 1},
      {"a sum over ranks is not waited for", {{kWait, native_sum}}, native, 1},
      {"Muon's directions leave before they are written", {{kAfter, matrices}}, muon, 1},
      {"Muon's matrices are not waited for", {{kWait, matrices}}, muon, 1},
      {"offloaded directions of Muon leave early", {{kAfter, matrices}}, offload_muon, 1},
      {"the losses of all ranks are not waited for", {{kWait, host, 24}}, full, 1},
      {"the norms of all ranks are not waited for", {{kWait, host, 20}}, full, 1},
      {"the evaluated losses are not waited for", {{kWait, host, 8}}, evaluated, 1},
      {"losses are read before they are on the host", {{kToHost, "Double", 8}}, one, 1},
      {"digests are read before they are on the host", {{kToHost, "Long"}}, full, 1},
      {"norms are read before they are on the host", {{kToHost, "Double", 10}}, full, 1},
      {"offloaded gradients are read before they are on the host",
       {{kToHost, "Float"}},
       offload,
       1},
      {"the memory of tokens is used again before they are copied",
       {{Rule::kHostReuse, "Long"}},
       one,
       1},
      {"the memory of offloaded weights is used again before they are copied",
       {{Rule::kHostReuse, "BFloat16"}, {Rule::kCopyFromHost, "BFloat16"}},
       offload,
       1},
      {"staged tensors leave before they are on the host", {{kToHost, "BFloat16"}}, staged, 1},
  };
}

// The rules of core/device/block_copies.h and phase_watch.h.
inline std::vector<Mutation> mutations_of_saves_and_times() {
  using Rule = SimCall::Rule;
  const SimRun back{.setting = {.world_size = 2, .bf16 = true}, .goes_back = true};
  SimRun full = back;
  full.goes_back = false;
  return {
      {"a save copies the state before the update has made it",
       {{Rule::kStreamWait, "other"}},
       back,
       1},
      {"a save reads the state before it is on the host", {{Rule::kSynchronize, "event"}}, back, 1},
      {"an update begins before a save has copied the state",
       {{Rule::kStreamWait, "compute"}},
       back,
       11},
      {"a phase's time is read before it is over", {{Rule::kTimeRead, "a mark"}}, full, 1},
  };
}

inline std::vector<Mutation> mutations() {
  std::vector<Mutation> all = mutations_in_one_leg();
  for (const auto& more : {mutations_between_nodes(), mutations_of_saves_and_times()})
    all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace lockstep::core
