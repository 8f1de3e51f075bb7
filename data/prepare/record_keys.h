// Which keys of a record, and of a turn of a conversation, may stand next to those that are learnt.
// A key that is not known might say that something is not to be learnt, so it is an error. A value
// that is null, or an empty text, list or object, says nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lockstep::data {

enum class KeyPlace { kText, kPair, kChat, kTurn };  // a record of that format, or a turn

// Keys that say where a record is from, and change nothing: "id", "source", "metadata", …
bool is_inert_key(std::string_view key, KeyPlace place);
std::vector<std::string> inert_keys(KeyPlace place);

// Whether the key changes what is learnt, or is refused with a reason of its own. The manifest
// names those of these that --ignore-key passed over.
bool has_meaning(std::string_view key);

// null, "", [] or {}.
bool is_empty_value(const nlohmann::ordered_json& value);

// Whether "weight", "loss_weight", "train", "trainable" or "loss" of a turn or a record says that
// it is learnt. Errors: kConfig, another value than 0, 1, false, true; two that contradict each
// other.
enum class LearningMark { kNotSaid, kLearnt, kNotLearnt };
Result<LearningMark> learning_of(const nlohmann::ordered_json& object);

// Errors: kConfig, naming the key: one that is none of `used` and not inert; one that asks for what
// is not computed here, with the reason. Each says how --ignore-key passes over it.
Result<void> check_keys(const nlohmann::ordered_json& object, KeyPlace place,
                        const std::set<std::string>& used);

// Which flags fit to the keys of a record: "--text-field text", …; "": none is known.
std::string flags_for(const nlohmann::ordered_json& record);

// "a, b, c", in their order by name.
std::string key_names(const nlohmann::ordered_json& object);

}  // namespace lockstep::data
