// The closed sets of words that a configuration holds: each is an enum with its words.
#pragma once

#include "config/choice.h"

#include "config/model_family.h"

namespace lockstep {
inline namespace base {

enum class InitialWeights { kHf, kRandom };
enum class OptimizerKind {
  kAdamW,
  kMuon,  // the matrices of blocks by Muon, everything else by AdamW
};
enum class LrDecay { kCosine, kLinear, kSqrt, kNone };
// What is computed in, and what gradients and gathered parameters travel in.
enum class FloatType { kFloat32, kBfloat16 };
enum class Reduction {
  kTree,       // bits do not depend on the world size
  kUnordered,  // plain running sum per round: for comparison
  kNative,     // the backend's own all-reduce: for comparison
};
enum class NanPolicy { kStop, kSkip, kRollback };
// What follows where an audit finds that a device computes wrongly, or holds wrong bits.
enum class AuditAction {
  kWarn,   // it is said, and training goes on
  kStop,   // the run ends before the update
  kEvict,  // its node is taken out, and the others go back to what was audited
};
enum class ShardingStrategy { kSingle, kDdp, kFullShard, kShardGradOp, kHybrid };
// When the gather of the unit that backward needs next is started: before this unit's backward,
// after it, or when it is needed.
enum class BackwardPrefetch { kPre, kPost, kNone };
enum class WrapPolicy { kModuleWrap, kSizeBased, kNone };
enum class SlotMapKind { kCyclic, kBlock, kGroupBlock };
enum class ReshardAfterForward { kWorld, kNode };
enum class Recompute { kNone, kFull, kSelective };
enum class Codec { kZstd, kNone, kGzip };
enum class WhenBusy { kSkip, kWait };
enum class DataKind { kTokens, kMegatron, kLlmc, kNanogpt, kNpy };
// Where the order of samples goes on when batch, sequence length or sources change in mid-run.
enum class OnDataChange {
  kJump,      // where a run would be that had them from the start
  kContinue,  // behind what was drawn of each source
};
enum class OnWorkerLoss { kRespawn, kShrink };
enum class OnNodeLoss {
  kShrink,  // a spare takes over; without one go on with at least min_nodes
  kSpare,   // a spare takes over; when none comes in fence_ns the job ends, to be resumed
  kWait,    // as many nodes as before, however long (join_ns) that takes
  kFail,    // the job ends, to be resumed
};
// Whether a spare that makes steps faster joins the running job.
enum class Grow { kAuto, kNever };
enum class StragglerAction {
  kWarn,
  kEvict,  // a spare takes the place of its node
};
// What follows when counters of a node's hardware say that it is failing.
enum class HealthAction {
  kOff,  // nobody reads them
  kWarn,
  kEvict,  // the node runs no more workers
};
enum class Requeue { kAuto, kNever, kForce };
// Rules of the arithmetic, as docs/ARCHITECTURE.md numbers them.
enum class BrokenRule { kNone, kRule1, kRule3, kRule4, kRule5, kRule6 };

// The words of each enum, in the order of its values.
constexpr auto words_for(ModelFamily) {
  return word_list<ModelFamily::kLinear>("llama", "mistral", "qwen2", "qwen3", "gpt2", "gemma2",
                                         "gemma3_text", "mixtral", "qwen3_moe", "linear");
}
constexpr auto words_for(InitialWeights) {
  return word_list<InitialWeights::kRandom>("hf", "random");
}
constexpr auto words_for(OptimizerKind) { return word_list<OptimizerKind::kMuon>("AdamW", "Muon"); }
constexpr auto words_for(LrDecay) {
  return word_list<LrDecay::kNone>("cosine", "linear", "sqrt", "none");
}
constexpr auto words_for(FloatType) {
  return word_list<FloatType::kBfloat16>("float32", "bfloat16");
}
constexpr auto words_for(Reduction) {
  return word_list<Reduction::kNative>("tree", "unordered", "native");
}
constexpr auto words_for(NanPolicy) {
  return word_list<NanPolicy::kRollback>("stop", "skip", "rollback");
}
constexpr auto words_for(AuditAction) {
  return word_list<AuditAction::kEvict>("warn", "stop", "evict");
}
constexpr auto words_for(ShardingStrategy) {
  return word_list<ShardingStrategy::kHybrid>("single", "ddp", "full_shard", "shard_grad_op",
                                              "hybrid");
}
constexpr auto words_for(BackwardPrefetch) {
  return word_list<BackwardPrefetch::kNone>("BACKWARD_PRE", "BACKWARD_POST", "NONE");
}
constexpr auto words_for(WrapPolicy) {
  return word_list<WrapPolicy::kNone>("module_wrap", "size_based", "none");
}
constexpr auto words_for(SlotMapKind) {
  return word_list<SlotMapKind::kGroupBlock>("cyclic", "block", "group_block");
}
constexpr auto words_for(ReshardAfterForward) {
  return word_list<ReshardAfterForward::kNode>("world", "node");
}
constexpr auto words_for(Recompute) {
  return word_list<Recompute::kSelective>("none", "full", "selective");
}
constexpr auto words_for(Codec) { return word_list<Codec::kGzip>("zstd", "none", "gzip"); }
constexpr auto words_for(WhenBusy) { return word_list<WhenBusy::kWait>("skip", "wait"); }
constexpr auto words_for(DataKind) {
  return word_list<DataKind::kNpy>("tokens", "megatron", "llmc", "nanogpt", "npy");
}
constexpr auto words_for(OnDataChange) {
  return word_list<OnDataChange::kContinue>("jump", "continue");
}
constexpr auto words_for(OnWorkerLoss) {
  return word_list<OnWorkerLoss::kShrink>("respawn", "shrink");
}
constexpr auto words_for(OnNodeLoss) {
  return word_list<OnNodeLoss::kFail>("shrink", "spare", "wait", "fail");
}
constexpr auto words_for(Grow) { return word_list<Grow::kNever>("auto", "never"); }
constexpr auto words_for(StragglerAction) {
  return word_list<StragglerAction::kEvict>("warn", "evict");
}
constexpr auto words_for(HealthAction) {
  return word_list<HealthAction::kEvict>("off", "warn", "evict");
}
constexpr auto words_for(Requeue) { return word_list<Requeue::kForce>("auto", "never", "force"); }
constexpr auto words_for(BrokenRule) {
  return word_list<BrokenRule::kRule6>("", "1", "3", "4", "5", "6");
}

}  // namespace base
}  // namespace lockstep
