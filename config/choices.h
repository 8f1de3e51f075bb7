// The closed sets of words that a configuration holds: each is an enum with its words. Where a file
// or a flag is read the word becomes a value, once; where one is written the value becomes a word.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <type_traits>

namespace lockstep {
inline namespace base {

enum class ModelFamily { kLlama, kMistral, kQwen2, kQwen3, kGpt2, kLinear };
enum class InitialWeights { kHf, kRandom };
enum class OptimizerKind { kAdamW };
enum class LrDecay { kCosine, kLinear, kNone };
// What is computed in, and what gradients and gathered parameters travel in.
enum class FloatType { kFloat32, kBfloat16 };
enum class Reduction {
  kTree,       // bits do not depend on the world size
  kUnordered,  // plain running sum per round: for comparison
  kNative,     // the backend's own all-reduce: for comparison
};
enum class NanPolicy { kStop, kSkip, kRollback };
enum class ShardingStrategy { kSingle, kDdp, kFullShard, kShardGradOp, kHybrid };
// When the gather of the unit that backward needs next is started: before this unit's backward,
// after it, or when it is needed.
enum class BackwardPrefetch { kPre, kPost, kNone };
enum class WrapPolicy { kModuleWrap, kSizeBased, kNone };
enum class SlotMapKind { kCyclic, kBlock };
enum class Recompute { kNone, kFull, kSelective };
enum class Codec { kZstd, kNone, kGzip };
enum class WhenBusy { kSkip, kWait };
enum class DataKind { kTokens, kMegatron, kLlmc, kNanogpt, kNpy };
enum class OnWorkerLoss { kRespawn, kShrink };
enum class OnNodeLoss {
  kShrink,  // a spare takes over; without one go on with at least min_nodes
  kSpare,   // a spare takes over; when none comes in fence_ns the job ends, to be resumed
  kWait,    // as many nodes as before, however long (join_ns) that takes
  kFail,    // the job ends, to be resumed
};
enum class Requeue { kAuto, kNever, kForce };
// Rules of the arithmetic, as docs/ARCHITECTURE.md numbers them.
enum class BrokenRule { kNone, kRule1, kRule3, kRule4, kRule5, kRule6 };

template <typename... Words>
consteval auto word_list(Words... each) {
  return std::array<std::string_view, sizeof...(each)>{each...};
}

// The words of an enum, in the order of its values.
template <typename T>
inline constexpr std::array<std::string_view, 0> kWords{};

template <>
inline constexpr auto kWords<ModelFamily> = word_list("llama", "mistral", "qwen2", "qwen3", "gpt2",
                                                      "linear");
template <>
inline constexpr auto kWords<InitialWeights> = word_list("hf", "random");
template <>
inline constexpr auto kWords<OptimizerKind> = word_list("AdamW");
template <>
inline constexpr auto kWords<LrDecay> = word_list("cosine", "linear", "none");
template <>
inline constexpr auto kWords<FloatType> = word_list("float32", "bfloat16");
template <>
inline constexpr auto kWords<Reduction> = word_list("tree", "unordered", "native");
template <>
inline constexpr auto kWords<NanPolicy> = word_list("stop", "skip", "rollback");
template <>
inline constexpr auto kWords<ShardingStrategy> = word_list("single", "ddp", "full_shard",
                                                           "shard_grad_op", "hybrid");
template <>
inline constexpr auto kWords<BackwardPrefetch> = word_list("BACKWARD_PRE", "BACKWARD_POST", "NONE");
template <>
inline constexpr auto kWords<WrapPolicy> = word_list("module_wrap", "size_based", "none");
template <>
inline constexpr auto kWords<SlotMapKind> = word_list("cyclic", "block");
template <>
inline constexpr auto kWords<Recompute> = word_list("none", "full", "selective");
template <>
inline constexpr auto kWords<Codec> = word_list("zstd", "none", "gzip");
template <>
inline constexpr auto kWords<WhenBusy> = word_list("skip", "wait");
template <>
inline constexpr auto kWords<DataKind> = word_list("tokens", "megatron", "llmc", "nanogpt", "npy");
template <>
inline constexpr auto kWords<OnWorkerLoss> = word_list("respawn", "shrink");
template <>
inline constexpr auto kWords<OnNodeLoss> = word_list("shrink", "spare", "wait", "fail");
template <>
inline constexpr auto kWords<Requeue> = word_list("auto", "never", "force");
template <>
inline constexpr auto kWords<BrokenRule> = word_list("", "1", "3", "4", "5", "6");

template <typename T>
concept Choice = std::is_enum_v<T> && !kWords<T>.empty();

template <Choice T>
constexpr std::string_view word_of(T value) {
  return kWords<T>.at(static_cast<size_t>(value));
}

// Nothing where `word` is none of them.
template <Choice T>
constexpr std::optional<T> choice_of(std::string_view word) {
  for (size_t i = 0; i < kWords<T>.size(); ++i)
    if (kWords<T>[i] == word) return static_cast<T>(i);
  return std::nullopt;
}

template <Choice T>
std::ostream& operator<<(std::ostream& out, T value) {
  return out << word_of(value);
}

}  // namespace base
}  // namespace lockstep

// In JSON too it is its word, and not a number.
template <lockstep::Choice T>
struct nlohmann::adl_serializer<T, void> {
  template <typename Json>
  static void to_json(Json& json, T value) {
    json = std::string(lockstep::word_of(value));
  }
};
