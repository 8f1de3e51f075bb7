// trainer_state.json, which transformers' Trainer writes into each checkpoint.
#include <array>
#include <limits>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "cli/compare/run_log.h"
#include "cli/shared/json_fields.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

// Python writes these words, which are no JSON; they become strings.
constexpr std::array<std::pair<const char*, double>, 3> kNotFinite = {
    {{"NaN", std::numeric_limits<double>::quiet_NaN()},
     {"Infinity", std::numeric_limits<double>::infinity()},
     {"-Infinity", -std::numeric_limits<double>::infinity()}}};

std::string with_quotes(std::string contents) {
  for (const auto& [word, value] : kNotFinite) {
    const std::string bare = text(": ", word), quoted = text(": \"", word, "\"");
    for (size_t at = contents.find(bare); at != contents.npos; at = contents.find(bare, at))
      contents.replace(at, bare.size(), quoted), at += quoted.size();
  }
  return contents;
}

std::optional<double> number_in(const json& entry, const char* key) {
  const auto found = entry.find(key);
  if (found == entry.end()) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  for (const auto& [word, value] : kNotFinite)
    if (*found == word) return value;
  return std::nullopt;
}

}  // namespace

bool is_trainer_state(std::string_view contents) {
  return contents.starts_with('{') && contents.find("\"log_history\"") != contents.npos;
}

Result<RunLog> parse_trainer_state(std::string_view contents, const std::string& where) {
  const json state = parse_json(with_quotes(std::string(contents)), /*allow_exceptions=*/false);
  if (!state.is_object() || !state.contains("log_history") || !state["log_history"].is_array())
    return Error{Code::kConfig, text(where,
                                     ": not a trainer_state.json: it is no JSON object with "
                                     "a list log_history")};
  RunLog log;
  log.format = "trainer_state.json";
  std::map<int64_t, StepRecord> by_step;
  for (const json& entry : state["log_history"]) {
    const int64_t step = entry.is_object() ? integer_or(entry, "step", -1) : -1;
    if (step < 0) return Error{Code::kConfig, text(where, ": an entry of log_history has no step")};
    if (const auto loss = number_in(entry, "loss")) {
      StepRecord& record = by_step[step];
      record.step = step;
      record.loss = *loss;
      record.grad_norm = number_in(entry, "grad_norm");
    }
    const auto validation = number_in(entry, "eval_loss");
    if (const auto trained = by_step.find(step); validation && trained != by_step.end())
      trained->second.validation_loss = validation;
  }
  if (by_step.empty()) return Error{Code::kConfig, text(where, ": no loss of a step was logged")};
  for (const auto& [step, record] : by_step) log.steps.push_back(record);
  log.remarks.push_back(
      "losses are rounded, and each is the mean of the steps since the one before it (Trainer's "
      "logging_steps)");
  return log;
}

}  // namespace lockstep::cli
