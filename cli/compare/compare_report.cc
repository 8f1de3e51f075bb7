#include "cli/compare/compare_report.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "cli/shared/size_words.h"
#include "cli/shared/text_table.h"
#include "config/identity_difference.h"

namespace lockstep::cli {
namespace {

using nlohmann::json;

// Enough digits to tell two floats apart, no more than a person wants to read.
std::string number(double value) {
  if (value == 0) return "0";
  std::ostringstream out;
  out.precision(9);
  out << value;
  return out.str();
}

// "9 (left out), 12 (not finite)"
std::string skipped_text(const RunLog& log) {
  constexpr size_t kShown = 4;
  std::string out;
  size_t count = 0;
  for (const StepRecord& record : log.steps) {
    if (record.skipped.empty()) continue;
    if (++count <= kShown)
      out += text(count == 1 ? "" : ", ", record.step, " (", record.skipped, ")");
  }
  return count > kShown ? text(out, " and ", count - kShown, " more") : count > 0 ? out : "none";
}

bool any_skipped(const std::vector<RunLog>& logs) {
  return std::any_of(logs.begin(), logs.end(),
                     [](const RunLog& log) { return skipped_text(log) != "none"; });
}

std::string rate_text(std::optional<double> value, int decimals, const char* unit = "") {
  return value ? fixed(*value, decimals) + unit : "N/A";
}

std::string steps_text(const RunLog& log) {
  std::string words = grouped(static_cast<int64_t>(log.steps.size()));
  if (log.redone_steps > 0) {
    words += text(" (+", grouped(log.redone_steps), " redone, ",
                  log.mismatches.empty() ? "each repeated its loss bit for bit"
                                         : text(log.mismatches.size(), " DIFFERED"),
                  ")");
  }
  return words;
}

template <typename Cell>
void log_row(TextTable& table, const std::string& name, const std::vector<RunLog>& logs,
             Cell cell) {
  std::vector<std::string> cells = {name};
  for (const RunLog& log : logs) cells.push_back(cell(log));
  table.row(std::move(cells));
}

template <typename Cell>
void difference_row(TextTable& table, const char* name, const std::vector<Difference>& differences,
                    Cell cell) {
  std::vector<std::string> cells = {name, ""};
  for (const Difference& each : differences) cells.push_back(cell(each));
  table.row(std::move(cells));
}

std::string identical_text(const Difference& each) {
  return text(grouped(each.identical_steps), " of ", grouped(each.common_steps),
              each.exact ? "" : " (as printed)");
}

// Of few ranks each: "0: 1.20 GiB, 1: 1.18 GiB".
std::string peaks_text(const RunLog& log) {
  constexpr size_t kShown = 4;
  const auto& peaks = log.memory.peak_bytes;
  if (peaks.empty()) return "N/A";
  std::string out;
  if (peaks.size() > kShown) {
    const auto [least, most] =
        std::minmax_element(peaks.begin(), peaks.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    return text(size_of(least->second), " (rank ", least->first, ") to ", size_of(most->second),
                " (rank ", most->first, ")");
  }
  for (const auto& [rank, bytes] : peaks)
    out += text(out.empty() ? "" : ", ", rank, ": ", size_of(bytes));
  return out;
}

// The stages of all runs: those of the first, then what others have beside them.
std::vector<std::string> stages_of(const std::vector<RunLog>& logs) {
  std::vector<std::string> stages;
  for (const RunLog& log : logs)
    for (const StageMemory& each : log.memory.stages)
      if (std::find(stages.begin(), stages.end(), each.stage) == stages.end())
        stages.push_back(each.stage);
  return stages;
}

void memory_rows(TextTable& table, const std::vector<RunLog>& logs) {
  const bool known = std::any_of(logs.begin(), logs.end(),
                                 [](const RunLog& log) { return !log.memory.peak_bytes.empty(); });
  if (!known) return;
  table.rule();
  log_row(table, "peak memory by rank", logs, peaks_text);
  for (const std::string& stage : stages_of(logs))
    log_row(table, "memory " + stage, logs, [&](const RunLog& log) -> std::string {
      for (const StageMemory& each : log.memory.stages)
        if (each.stage == stage)
          return text(size_of(each.allocated_bytes), ", peak ", size_of(each.peak_bytes));
      return "N/A";
    });
}

// "3.21 (step 60), least 3.2 (step 40)"
std::string validation_text(const RunLog& log) {
  const StepRecord *last = nullptr, *least = nullptr;
  for (const StepRecord& record : log.steps) {
    if (!record.validation_loss) continue;
    last = &record;
    if (least == nullptr || *record.validation_loss < *least->validation_loss) least = &record;
  }
  if (last == nullptr) return "none";
  std::string out = text(number(*last->validation_loss), " (step ", last->step, ")");
  if (least != last)
    out += text(", least ", number(*least->validation_loss), " (step ", least->step, ")");
  return out;
}

bool any_validation(const std::vector<RunLog>& logs) {
  return std::any_of(logs.begin(), logs.end(),
                     [](const RunLog& log) { return validation_text(log) != "none"; });
}

TextTable table_of(const std::vector<RunLog>& logs, const std::vector<Difference>& differences) {
  TextTable table;
  log_row(table, "run", logs, [](const RunLog& log) { return log.name; });
  log_row(table, "read from", logs, [](const RunLog& log) { return log.format; });
  table.rule();
  log_row(table, "steps", logs, steps_text);
  if (any_skipped(logs)) log_row(table, "steps without update", logs, skipped_text);
  log_row(table, "final loss", logs,
          [](const RunLog& log) { return number(log.steps.back().loss); });
  if (any_validation(logs)) log_row(table, "validation loss", logs, validation_text);
  // A console log of torchtitan or Megatron-LM, and ours, has one rank's.
  const auto whose = [](const RunLog& log, const std::string& rate) {
    return rate == "N/A" || !log.rates_of_a_rank ? rate : rate + " a rank";
  };
  log_row(table, "mean tokens/s of all ranks", logs, [&](const RunLog& log) {
    return whose(log, log.tokens_per_s ? grouped(std::llround(*log.tokens_per_s)) : "N/A");
  });
  log_row(table, "MFU", logs, [](const RunLog& log) { return rate_text(log.mfu_pct, 2, " %"); });
  log_row(table, "TFLOP/s of all ranks", logs,
          [&](const RunLog& log) { return whose(log, rate_text(log.tflops, 3)); });
  log_row(table, "restarts", logs, [](const RunLog& log) { return grouped(log.restarts); });
  log_row(table, "world size (steps)", logs, [](const RunLog& log) {
    const std::string words = world_sizes_text(log);
    return words.empty() ? "N/A" : words;
  });
  memory_rows(table, logs);
  if (differences.empty()) return table;
  table.rule();
  difference_row(table, "steps in both", differences, [](const Difference& each) {
    return text(grouped(each.common_steps), " (", each.first_step, "-", each.last_step, ")");
  });
  difference_row(table, "max |loss difference|", differences, [](const Difference& each) {
    return number(each.max_loss) +
           (each.max_loss == 0 ? "" : text(" (step ", each.max_loss_step, ")"));
  });
  difference_row(table, "max relative", differences,
                 [](const Difference& each) { return number(each.max_relative); });
  difference_row(table, "bit-identical steps", differences, identical_text);
  return table;
}

// Why bits may differ; "" where nothing says so.
std::string other_identity(const RunLog& reference, const RunLog& run) {
  constexpr size_t kShown = 5;
  if (reference.identity.empty() || run.identity.empty()) return "";
  const auto differing = identity_difference(reference.identity, run.identity);
  std::string out;
  for (size_t i = 0; i < std::min(kShown, differing.size()); ++i)
    out +=
        text(i == 0 ? "  the runs differ in keys that may change the loss: " : "; ", differing[i]);
  if (differing.size() > kShown) out += text("; and ", differing.size() - kShown, " more");
  return out.empty() ? out : out + "\n";
}

std::string verdict(const RunLog& reference, const RunLog& run, const Difference& each) {
  std::string words = text(run.name, ": ");
  if (!each.first_different_step) {
    return words + (each.exact
                        ? "every loss and gradient norm equals the reference's, bit for bit.\n"
                        : "every printed loss equals the reference's.\n");
  }
  const int64_t step = *each.first_different_step;
  const auto by_step = [](const StepRecord& record, int64_t wanted) {
    return record.step < wanted;
  };
  const auto a = std::lower_bound(reference.steps.begin(), reference.steps.end(), step, by_step);
  const auto b = std::lower_bound(run.steps.begin(), run.steps.end(), step, by_step);
  words +=
      text("first differs at step ", step, ": loss ", number(a->loss), " (", hex_float(a->loss),
           ") there, ", number(b->loss), " (", hex_float(b->loss), ") here");
  if (a->grad_norm && b->grad_norm && a->loss == b->loss) {
    words += text("; gradient norm ", hex_float(*a->grad_norm), " and ", hex_float(*b->grad_norm));
  }
  return words + "\n" + other_identity(reference, run);
}

std::string mismatches_text(const RunLog& log) {
  constexpr size_t kShown = 5;
  std::string out;
  for (size_t i = 0; i < std::min(log.mismatches.size(), kShown); ++i) {
    const RedoneMismatch& each = log.mismatches[i];
    out += text("WARNING: ", log.name, ": step ", each.step, " was redone with a different ",
                each.quantity, ": ", hex_float(each.first), " before, ", hex_float(each.redone),
                " after\n");
  }
  if (log.mismatches.size() > kShown) {
    out += text("WARNING: ", log.name, ": and ", log.mismatches.size() - kShown, " more\n");
  }
  return out;
}

// JSON has no NaN; null stands for it.
json finite(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json log_json(const RunLog& log) {
  json generations = json::array(), mismatches = json::array(), skipped = json::array();
  json validation = json::array(), peaks = json::array(), stages = json::array();
  for (const StepRecord& record : log.steps) {
    if (!record.skipped.empty())
      skipped.push_back({{"step", record.step}, {"why", record.skipped}});
    if (record.validation_loss)
      validation.push_back({{"step", record.step}, {"loss", finite(*record.validation_loss)}});
  }
  for (const auto& [rank, bytes] : log.memory.peak_bytes)
    peaks.push_back({{"rank", rank}, {"bytes", bytes}});
  for (const StageMemory& each : log.memory.stages)
    stages.push_back({{"stage", each.stage},
                      {"allocated_bytes", each.allocated_bytes},
                      {"peak_bytes", each.peak_bytes}});
  for (const Generation& each : log.generations) {
    generations.push_back({{"generation", each.index},
                           {"world_size", each.world_size},
                           {"first_step", each.first_step},
                           {"last_step", each.last_step},
                           {"ended_by", each.ended_by}});
  }
  for (const RedoneMismatch& each : log.mismatches) {
    mismatches.push_back({{"step", each.step},
                          {"quantity", each.quantity},
                          {"first_hex", hex_float(each.first)},
                          {"redone_hex", hex_float(each.redone)}});
  }
  return {{"run", log.name},
          {"source", log.source.string()},
          {"format", log.format},
          {"steps", log.steps.size()},
          {"redone_steps", log.redone_steps},
          {"final_loss", finite(log.steps.back().loss)},
          {"final_loss_hex", hex_float(log.steps.back().loss)},
          {"tokens_per_s", or_null(log.tokens_per_s)},
          {"mfu_pct", or_null(log.mfu_pct)},
          {"tflops", or_null(log.tflops)},
          {"restarts", log.restarts},
          {"generations", generations},
          {"redone_mismatches", mismatches},
          {"steps_without_update", skipped},
          {"validation", validation},
          {"peak_memory", peaks},
          {"memory_by_stage", stages},
          {"remarks", log.remarks}};
}

json difference_json(const RunLog& run, const Difference& each) {
  return {{"run", run.name},
          {"common_steps", each.common_steps},
          {"first_step", each.first_step},
          {"last_step", each.last_step},
          {"max_loss_difference", finite(each.max_loss)},
          {"max_loss_difference_step", each.max_loss_step},
          {"max_relative_difference", finite(each.max_relative)},
          {"exact", each.exact},
          {"identical_steps", each.identical_steps},
          {"identical", each.exact && each.identical()},
          {"first_different_step", or_null(each.first_different_step)}};
}

}  // namespace

std::string world_sizes_text(const RunLog& log) {
  std::string words;
  for (const Generation& each : log.generations) {
    if (each.world_size <= 0) continue;
    words += text(words.empty() ? "" : ", ", each.world_size, " (", each.first_step, "-",
                  each.last_step, ")");
  }
  return words;
}

std::string report_text(const std::vector<RunLog>& logs,
                        const std::vector<Difference>& differences) {
  std::string out = table_of(logs, differences).str() + "\n";
  for (size_t i = 0; i < differences.size(); ++i)
    out += verdict(logs[0], logs[i + 1], differences[i]);
  for (const RunLog& log : logs) out += mismatches_text(log);
  for (const RunLog& log : logs) {
    for (const std::string& remark : log.remarks)
      out += text("note: ", log.name, ": ", remark, "\n");
  }
  return out;
}

std::string report_json(const std::vector<RunLog>& logs,
                        const std::vector<Difference>& differences) {
  json out = {{"runs", json::array()}, {"differences", json::array()}};
  for (const RunLog& log : logs) out["runs"].push_back(log_json(log));
  for (size_t i = 0; i < differences.size(); ++i) {
    out["differences"].push_back(difference_json(logs[i + 1], differences[i]));
  }
  // A folder may be named in no encoding at all.
  return dump_json(out, 2) + "\n";
}

}  // namespace lockstep::cli
