#include "cli/compare/run_log.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.h"
#include "base/text.h"
#include "cli/shared/folder_name.h"
#include "cli/shared/json_fields.h"
#include "cli/shared/restart_count.h"
#include "cli/shared/run_args.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

Error bad(const std::string& where, size_t line, const std::string& what) {
  return {Code::kConfig, text(where, ":", line, ": ", what)};
}

struct Exact {
  std::optional<double> value;
  bool hexadecimal = false;
};

// `key` from its hexadecimal twin `key`_hex where there is one: that is the exact value.
Result<Exact> exact_number(const json& object, const std::string& key) {
  const auto hex = object.find(key + "_hex");
  if (hex != object.end() && !hex->is_null()) {
    const auto value = hex->is_string() ? parse_hex_float(hex->get<std::string>()) : std::nullopt;
    if (!value) return Error{Code::kConfig, text(key, "_hex is not a hexadecimal float")};
    return Exact{value, true};
  }
  const auto decimal = object.find(key);
  if (decimal == object.end() || decimal->is_null()) return Exact{};
  if (!decimal->is_number()) return Error{Code::kConfig, text(key, " is not a number")};
  return Exact{decimal->get<double>(), false};
}

std::optional<double> first_number(const json& object, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_number()) return found->get<double>();
  }
  return std::nullopt;
}

std::vector<int64_t> integers_of(const json& object, const char* key) {
  std::vector<int64_t> all;
  const json list = object.value(key, json::array());
  for (const json& each : list)
    if (each.is_number_integer()) all.push_back(each.get<int64_t>());
  return all;
}

SlotRecord parse_slot(const json& audit) {
  SlotRecord record;
  record.slot = integer_or(audit, "slot", -1);
  if (record.slot < 0) return record;
  record.loss_hex = string_or_empty(audit, "loss_hex");
  const json digests = audit.value("digests", json::object());
  for (const auto& [unit, digest] : digests.items())
    if (digest.is_string()) record.digests[unit] = digest.get<std::string>();
  record.wrong = integers_of(audit, "wrong");
  record.undecided = integers_of(audit, "undecided");
  record.same = record.wrong.empty() && record.undecided.empty();
  record.difference = string_or_empty(audit, "difference");
  return record;
}

Result<StepRecord> parse_record(const json& object) {
  if (!object.is_object()) return Error{Code::kConfig, "not a JSON object"};
  StepRecord record;
  record.step = integer_or(object, "step", -1);
  if (record.step < 0) return Error{Code::kConfig, "\"step\" is missing or not a count"};
  LOCKSTEP_TRY(const Exact loss, exact_number(object, "loss"));
  if (!loss.value) return Error{Code::kConfig, "it has no \"loss\""};
  LOCKSTEP_TRY(const Exact grad_norm, exact_number(object, "grad_norm"));
  record.loss = *loss.value;
  record.grad_norm = grad_norm.value;
  record.validation_loss = first_number(object, {"validation_loss"});
  record.exact = loss.hexadecimal && (grad_norm.hexadecimal || !grad_norm.value);
  record.generation = integer_or(object, "generation", 0);
  record.world_size = integer_or(object, "world_size", 0);
  record.tokens = number_or(object, "tokens", 0);
  record.step_time_s = number_or(object, "step_time_s", 0);
  record.skipped = string_or_empty(object, "skipped");
  const json digests = object.value("digests", json::object());
  record.weights = strings_of(digests, "weights");
  record.gradients = strings_of(digests, "gradients");
  record.slot = parse_slot(object.value("audit", json::object()));
  return record;
}

// Adds the next record of the file to what the ones before it said.
void take(const StepRecord& record, std::map<int64_t, StepRecord>& by_step, RunLog& log) {
  const auto [found, is_new] = by_step.try_emplace(record.step, record);
  if (!is_new) {
    ++log.redone_steps;
    const StepRecord& first = found->second;
    if (!same_bits(first.loss, record.loss)) {
      log.mismatches.push_back({record.step, "loss", first.loss, record.loss});
    } else if (first.grad_norm && record.grad_norm &&
               !same_bits(*first.grad_norm, *record.grad_norm)) {
      log.mismatches.push_back({record.step, "gradient norm", *first.grad_norm, *record.grad_norm});
    }
    found->second = record;
  }
  if (log.generations.empty() || log.generations.back().index != record.generation) {
    log.generations.push_back({record.generation, record.world_size, record.step, record.step, ""});
  }
  log.generations.back().last_step = record.step;
}

// Tokens of all steps over their time; the first step of a generation, which warms up, left out.
std::optional<double> mean_tokens_per_s(const std::vector<StepRecord>& records) {
  double tokens = 0, seconds = 0;
  for (size_t i = 1; i < records.size(); ++i) {
    if (records[i].generation != records[i - 1].generation) continue;
    tokens += records[i].tokens;
    seconds += records[i].step_time_s;
  }
  if (!(tokens > 0 && seconds > 0)) return std::nullopt;
  return tokens / seconds;
}

// Each line of a JSONL file; a last line without its newline was cut by a kill and is left out.
template <typename Take>
Result<void> each_line(std::string_view contents, const std::string& where, RunLog& log,
                       Take take_line) {
  const std::vector<std::string> lines = split(contents, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    if (lines[i].empty()) continue;
    const json object = parse_json(lines[i], /*allow_exceptions=*/false);
    if (object.is_discarded()) {
      if (i + 1 < lines.size()) return bad(where, i + 1, "not JSON");
      log.remarks.push_back(
          text(where, ":", i + 1, ": the last line is truncated and was skipped"));
      continue;
    }
    if (Result<void> taken = take_line(object); !taken.ok()) {
      return bad(where, i + 1, taken.error().message);
    }
  }
  return {};
}

// Why a generation ended, in the words of the launcher, and how many were restarts.
Result<void> add_events(std::string_view contents, const std::string& where, RunLog& log) {
  RestartCount count;
  std::map<int64_t, std::string> reasons;
  LOCKSTEP_RETURN_IF_ERROR(each_line(contents, where, log, [&](const json& object) -> Result<void> {
    if (!object.is_object()) return Error{Code::kConfig, "not a JSON object"};
    const std::string event = string_or_empty(object, "event");
    const std::string reason = string_or_empty(object, "reason");
    count.on(event);
    if (event == "stop_requested")
      reasons.try_emplace(integer_or(object, "generation", 0), "stopped on request");
    const bool is_end = event == "failure_detected" ||
                        (event == "worker_exit" && reason.find("exit code 0") == reason.npos);
    if (is_end) {
      const int64_t rank = integer_or(object, "rank", -1);
      reasons.try_emplace(integer_or(object, "generation", 0),
                          rank < 0 ? reason : text("rank ", rank, " ", reason));
    }
    return {};
  }));
  for (Generation& generation : log.generations) {
    if (const auto found = reasons.find(generation.index); found != reasons.end()) {
      generation.ended_by = found->second;
    }
  }
  log.restarts = count.restarts();
  return {};
}

Result<void> add_totals(std::string_view contents, const std::string& where, RunLog& log) {
  const json totals = parse_json(contents, /*allow_exceptions=*/false);
  if (!totals.is_object()) return Error{Code::kConfig, text(where, ": not a JSON object")};
  if (const auto rate = first_number(totals, {"tokens_per_s", "mean_tokens_per_s"})) {
    log.tokens_per_s = rate;
  }
  log.mfu_pct = first_number(totals, {"mfu_pct", "mfu"});
  log.tflops = first_number(totals, {"tflops", "mean_tflops"});
  if (const auto gb = first_number(totals, {"peak_memory_GB"})) {
    int64_t& of_rank_0 = log.memory.peak_bytes[0];
    of_rank_0 = std::max(of_rank_0, bytes_of_gb(*gb));
  }
  return {};
}

using Reader = Result<void> (*)(std::string_view, const std::string&, RunLog&);

Result<void> add_file_if_there(FileSystem& file_system, const std::filesystem::path& path,
                               Reader reader, RunLog& log) {
  if (!file_system.exists(path)) return {};
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, path));
  return reader(contents, path.string(), log);
}

Result<RunLog> read_run_folder(FileSystem& file_system, const std::filesystem::path& folder) {
  const auto metrics = folder / "metrics.jsonl";
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, metrics));
  LOCKSTEP_TRY(RunLog log, parse_metrics_jsonl(contents, metrics.string()));
  log.format = "run folder";
  log.identity = identity_of_run(file_system, folder);
  log.memory = read_run_memory(file_system, folder);
  LOCKSTEP_RETURN_IF_ERROR(
      add_file_if_there(file_system, folder / "events.jsonl", add_events, log));
  LOCKSTEP_RETURN_IF_ERROR(
      add_file_if_there(file_system, folder / "metrics.json", add_totals, log));
  return log;
}

Result<RunLog> read_any(FileSystem& file_system, const std::filesystem::path& path) {
  if (!file_system.exists(path)) {
    return Error{Code::kNotFound, text(path.string(), ": there is no such run folder or log")};
  }
  if (file_system.exists(path / "metrics.jsonl")) return read_run_folder(file_system, path);
  const std::filesystem::path state = path / "trainer_state.json";
  if (file_system.exists(state)) return read_any(file_system, state);
  if (file_system.exists(path / ".")) {
    return Error{Code::kConfig, text(path.string(),
                                     ": this folder has no metrics.jsonl; is it a "
                                     "run's folder, and has the run finished its first step?")};
  }
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, path));
  if (is_trainer_state(contents)) return parse_trainer_state(contents, path.string());
  if (contents.starts_with("{\"")) return parse_metrics_jsonl(contents, path.string());
  return parse_console_log(contents, path.string());
}

}  // namespace

Result<RunLog> parse_metrics_jsonl(std::string_view contents, const std::string& where) {
  RunLog log;
  log.format = "metrics.jsonl";
  std::vector<StepRecord> records;
  std::map<int64_t, StepRecord> by_step;
  LOCKSTEP_RETURN_IF_ERROR(each_line(contents, where, log, [&](const json& object) -> Result<void> {
    LOCKSTEP_TRY(const StepRecord record, parse_record(object));
    records.push_back(record);
    take(record, by_step, log);
    return {};
  }));
  if (by_step.empty()) return Error{Code::kConfig, text(where, ": no step was logged")};
  for (const auto& [step, record] : by_step) log.steps.push_back(record);
  log.tokens_per_s = mean_tokens_per_s(records);
  log.restarts = static_cast<int64_t>(log.generations.size()) - 1;
  return log;
}

Result<RunLog> read_run_log(FileSystem& file_system, const std::filesystem::path& path) {
  LOCKSTEP_TRY(RunLog log, read_any(file_system, path));
  log.source = path;
  log.name = folder_name(path);
  return log;
}

}  // namespace lockstep::cli
