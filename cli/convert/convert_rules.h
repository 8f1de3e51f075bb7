// What several keys of another tool say together, and what it does where nothing is said.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace lockstep::cli {

using KeyWords = std::map<std::string, std::string>;  // our key, and its value as one types it

// A value as one types it after a flag: without quotes, a list with commas.
std::string word_of_value(const nlohmann::ordered_json& value);

// The keys whose values ours say in another way (Becomes::kOtherwise).
class ForeignFacts {
 public:
  // False: this value of the key has no counterpart. `name`: as the table has it.
  bool take(const std::string& name, const nlohmann::ordered_json& value);
  // What they come to, next to `values`. `ranks`: 0 where the number is not known.
  KeyWords keys(const std::string& tool, const KeyWords& values, int64_t ranks);
  // A sentence for each thing that the reader has to see to.
  const std::vector<std::string>& remarks() const { return remarks_; }

 private:
  bool take_strategy(const std::string& name, const std::string& word);
  bool take_training(const std::string& name, const nlohmann::ordered_json& value,
                     const std::string& word);
  void add_strategy(int64_t ranks);
  void add_batch(const std::string& tool, const KeyWords& values, int64_t ranks);

  KeyWords keys_;
  std::vector<std::string> remarks_;
  int64_t replicate_ = 1, shard_ = -1, accumulation_ = 0;
  bool degrees_ = false, keeps_parameters_ = false, validation_off_ = false, validation_on_ = false;
  double min_lr_ = -1, warmup_ratio_ = 0;
  std::string host_, port_;
};

// Where the curve depends on it and ours is another one.
KeyWords defaults_of(const std::string& tool, const KeyWords& values);

}  // namespace lockstep::cli
