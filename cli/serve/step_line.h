// One line of a run's metrics.jsonl as numbers. No JSON value is built: a run of 100,000 steps has
// 60 MB of such lines, and they are read while somebody waits for a picture.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::cli {

// What the dashboard draws of a step; the order is that of kFields.
enum class Field {
  kLoss,
  kValidationLoss,
  kGradNorm,
  kTokensPerSecond,
  kMemory,
  kStepTime,
  kLearningRate,
  // Rank 0's phases of the step, in seconds.
  kDataWait,
  kGatherWait,
  kForward,
  kBackward,
  kExchangeWait,
  kShareWait,
  kFoldAndNorm,
  kCheckpointStall,
  kUpdate,
  kAudit,
  kOther,
};
struct FieldInfo {
  std::string_view name;  // in requests
  std::string_view key;   // in a line, or in its "phases_s"
  std::string_view unit;  // "": none
  bool phase = false;
};
inline constexpr auto kFields = std::to_array<FieldInfo>({
    {"loss", "loss", "nats"},
    {"validation_loss", "validation_loss", "nats"},
    {"grad_norm", "grad_norm", ""},
    {"tokens_per_s", "", "tokens/s"},  // tokens / step_time_s
    {"memory", "max_memory_bytes", "bytes"},
    {"step_time", "step_time_s", "s"},
    {"lr", "lr", ""},
    {"data_wait", "data_wait", "s", true},
    {"gather_wait", "gather_wait", "s", true},
    {"forward", "forward", "s", true},
    {"backward", "backward", "s", true},
    {"exchange_wait", "exchange_wait", "s", true},
    {"share_wait", "share_wait", "s", true},
    {"fold_and_norm", "fold_and_norm", "s", true},
    {"checkpoint_stall", "checkpoint_stall", "s", true},
    {"update", "update", "s", true},
    {"audit", "audit", "s", true},
    {"other", "other", "s", true},
});
inline constexpr size_t kFieldCount = kFields.size();
std::optional<Field> field_of_name(std::string_view name);
constexpr const FieldInfo& info_of(Field field) { return kFields[static_cast<size_t>(field)]; }

struct StepLine {
  int64_t step = -1;
  double tokens = 0, unix_s = 0;
  int64_t generation = 0, world_size = 0;
  bool skipped = false;                   // it made no update
  std::array<float, kFieldCount> values;  // NaN: not logged, or not finite
  float& at(Field field) { return values[static_cast<size_t>(field)]; }
};

// None of a line that is no JSON object with a step and a loss: one that was torn, say, or has
// another one's end. Values nested deeper than kMaxJsonLevels (base/json.h) are refused as well.
std::optional<StepLine> parse_step_line(std::string_view line);

}  // namespace lockstep::cli
