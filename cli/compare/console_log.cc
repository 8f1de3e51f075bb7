// Console logs of other trainers: one table row a format, numbers found by the words beside them.
#include <array>
#include <cstdlib>
#include <map>

#include "base/text.h"
#include "cli/compare/run_log.h"

namespace lockstep::cli {
namespace {

// "\x1b[31m" and its like: colours.
std::string without_ansi(std::string_view line) {
  std::string plain;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b') {
      plain.push_back(line[i]);
      continue;
    }
    if (i + 1 < line.size() && line[i + 1] == '[') ++i;
    while (i + 1 < line.size() && !std::isalpha(static_cast<unsigned char>(line[i + 1]))) ++i;
    ++i;
  }
  return plain;
}

bool starts_word(std::string_view line, size_t at) {
  return at == 0 ||
         !(std::isalnum(static_cast<unsigned char>(line[at - 1])) || line[at - 1] == '_');
}

// The number that begins at `at` (blanks and quotes skipped, thousands separators dropped).
std::optional<double> number_at(std::string_view line, size_t at) {
  while (at < line.size() && (line[at] == ' ' || line[at] == '\'' || line[at] == '"')) ++at;
  std::string digits;
  for (; at < line.size(); ++at) {
    const bool separator = line[at] == ',' && at + 1 < line.size() &&
                           std::isdigit(static_cast<unsigned char>(line[at + 1])) != 0;
    if (separator) continue;
    if (!std::isalnum(static_cast<unsigned char>(line[at])) && line[at] != '.' && line[at] != '-' &&
        line[at] != '+') {
      break;
    }
    digits.push_back(line[at]);
  }
  if (digits.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits.c_str(), &end);
  if (*end != '\0') return std::nullopt;  // a word, such as "info"
  return value;
}

// The number after the whole word `key`. No key: no number.
std::optional<double> number_after(std::string_view line, std::string_view key) {
  if (key.empty()) return std::nullopt;
  for (size_t at = line.find(key); at != line.npos; at = line.find(key, at + 1)) {
    if (!starts_word(line, at)) continue;
    if (auto value = number_at(line, at + key.size())) return value;
  }
  return std::nullopt;
}

// The number that ends where `key` begins: "45.2% bf16 MFU".
std::optional<double> number_before(std::string_view line, std::string_view key) {
  const size_t end = key.empty() ? line.npos : line.find(key);
  if (end == line.npos) return std::nullopt;
  size_t start = end;
  while (start > 0 && (std::isdigit(static_cast<unsigned char>(line[start - 1])) ||
                       line[start - 1] == '.' || line[start - 1] == ',')) {
    --start;
  }
  return number_at(line, start);
}

constexpr double kMaxStep = 1e15;  // what a double counts exactly, and no log reaches

struct Format {
  const char* name;
  const char* must_hold;  // a line without it is not a step
  const char* must_lack;  // nor is one with it
  const char* step;       // "": lines are counted
  const char* loss;
  const char* grad_norm;
  const char* tokens_per_s;
  const char* tflops;
  const char* mfu;
  bool rates_before_words;  // "58.2% bf16 MFU" instead of "mfu: 58.2"
  bool rates_of_a_rank;
};

constexpr std::array kFormats = {
    Format{"torchtitan log", "loss:", "validate",
           "step:", "loss:", "grad_norm:", "tps:", "tflops:", "mfu:", false, true},
    Format{"Megatron-LM log", "lm loss:", "validation", "iteration", "lm loss:", "grad norm:", "",
           "throughput per GPU (TFLOP/s/GPU):", "", false, true},
    Format{"llm.c log", "| ", "val loss", "step", "loss", "norm", " tok/s", "", "% bf16 MFU", true,
           false},
    Format{"nanoGPT log", "iter ", "val loss", "iter", "loss", "", "", "", "mfu", false, false},
    Format{"Hugging Face Trainer log", "'loss':", "'eval_loss'", "", "'loss':", "'grad_norm':", "",
           "", "", false, false},
};

struct Line {
  StepRecord record;
  std::optional<double> tokens_per_s, tflops, mfu_pct;
};

std::optional<Line> parse_line(const Format& format, std::string_view line, int64_t counted) {
  if (line.find(format.must_hold) == line.npos || line.find(format.must_lack) != line.npos)
    return {};
  const auto loss = number_after(line, format.loss);
  const auto step =
      *format.step ? number_after(line, format.step) : static_cast<double>(counted + 1);
  if (!loss || !step || !(*step >= 0 && *step < kMaxStep)) return {};
  Line parsed;
  parsed.record.step = static_cast<int64_t>(*step);
  parsed.record.loss = *loss;
  parsed.record.grad_norm = number_after(line, format.grad_norm);
  const auto rate = format.rates_before_words ? number_before : number_after;
  parsed.tokens_per_s = rate(line, format.tokens_per_s);
  parsed.tflops = rate(line, format.tflops);
  parsed.mfu_pct = rate(line, format.mfu);
  return parsed;
}

class Mean {
 public:
  void add(std::optional<double> value) {
    if (!value) return;
    sum_ += *value;
    ++count_;
  }
  std::optional<double> value() const {
    if (count_ == 0) return std::nullopt;
    return sum_ / static_cast<double>(count_);
  }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

// The first format of which the log has a line; a run prints in one format only.
const Format* detect(const std::vector<std::string>& lines) {
  for (const Format& format : kFormats) {
    for (const std::string& line : lines) {
      if (parse_line(format, line, 0)) return &format;
    }
  }
  return nullptr;
}

}  // namespace

Result<RunLog> parse_console_log(std::string_view contents, const std::string& where) {
  std::vector<std::string> lines;
  for (const std::string& line : split(contents, '\n')) lines.push_back(without_ansi(line));
  const Format* format = detect(lines);
  if (!format) {
    std::string known;
    for (const Format& candidate : kFormats)
      known += text(known.empty() ? "" : ", ", candidate.name);
    return Error{Code::kConfig, text(where, ": cannot parse this log: of its ", lines.size(),
                                     " lines none is a training step of ", known,
                                     ", and it is not a metrics.jsonl or a trainer_state.json")};
  }
  std::map<int64_t, StepRecord> by_step;  // every rank may print the same line
  Mean tokens_per_s, tflops, mfu_pct;
  int64_t counted = 0;
  for (const std::string& line : lines) {
    const auto parsed = parse_line(*format, line, counted);
    if (!parsed) continue;
    by_step[parsed->record.step] = parsed->record;
    if (counted++ == 0) continue;  // the first step pays for warming up
    tokens_per_s.add(parsed->tokens_per_s);
    tflops.add(parsed->tflops);
    mfu_pct.add(parsed->mfu_pct);
  }
  RunLog log;
  log.format = format->name;
  log.remarks.push_back("its losses have only the digits that the log printed");
  if (!*format->step)
    log.remarks.push_back("its lines have no step number, so they are counted from 1");
  for (auto& [step, record] : by_step) log.steps.push_back(record);
  log.tokens_per_s = tokens_per_s.value();
  log.rates_of_a_rank = format->rates_of_a_rank;
  log.tflops = tflops.value();
  log.mfu_pct = mfu_pct.value();
  return log;
}

}  // namespace lockstep::cli
