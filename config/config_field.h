// The table behind config.h: every key once. Private to config/ and its tests.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "config/sections.h"

namespace lockstep {
inline namespace base {

// Where the value lives in a Config; the alternative is the key's type.
template <typename... T>
using ConfigMemberOf = std::variant<T* (*)(Config&)...>;
using ConfigMember =
    ConfigMemberOf<bool, int64_t, double, std::string, std::vector<int64_t>,
                   std::vector<std::string>, ModelFamily, InitialWeights, OptimizerKind, LrDecay,
                   FloatType, Reduction, NanPolicy, AuditAction, ShardingStrategy, BackwardPrefetch,
                   WrapPolicy, SlotMapKind, ReshardAfterForward, Recompute, Codec, WhenBusy,
                   DataKind, OnDataChange, OnWorkerLoss, OnNodeLoss, Grow, StragglerAction,
                   HealthAction, Requeue, BrokenRule>;

// May the key change a bit of the loss curve? Then it is part of the run's identity.
enum class Bits { kSame, kMayChange };

inline constexpr double kMaxConfigCount = 1e15;  // exact as a double, and far from overflow

struct ConfigLimits {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;  // min itself is not allowed
};

struct ConfigField {
  const char* section;
  const char* key;
  ConfigMember member;
  Bits bits;
  const char* help;
  ConfigLimits limits;

  std::string name() const { return std::string(section) + "." + key; }
  bool is_bool() const { return std::holds_alternative<bool* (*)(Config&)>(member); }
};

struct ConfigAlias {
  const char* alias;  // with '_'; typed with '-' or '_'
  const char* name;   // section.key
  const char* help;
  // A key of words that is typed as a boolean: what true and false stand for.
  const char* on = nullptr;
  const char* off = nullptr;
};

// In the order of config.h.
const std::vector<ConfigField>& config_fields();
const std::vector<ConfigAlias>& config_aliases();
// nullptr when there is none.
const ConfigField* find_config_field(std::string_view section, std::string_view key);

// The words of a key that is a choice among some; else none.
std::vector<std::string> words_of(const ConfigField& field);
// "boolean", "integer", "number", "string", "list of integers", "list of strings"
const char* type_name(const ConfigField& field);
// The value as one types it after the flag; doubles in the shortest form that reads back exactly.
std::string value_text(const Config& config, const ConfigField& field);
// ">= 1", "one of: a, b", or "".
std::string limits_text(const ConfigField& field);
// Errors: kConfig, wrong_value: the field's value in `config` is outside of its limits.
Result<void> check_limits(const Config& config, const ConfigField& field);
// `value`, as one types it, is outside of the limits, or not one of the words. kConfig.
Error wrong_value(const ConfigField& field, const std::string& value);

}  // namespace base
}  // namespace lockstep
