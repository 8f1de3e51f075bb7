#include "cli/sweep/sweep_words.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "base/number.h"
#include "base/text.h"

namespace lockstep::cli {
namespace {

constexpr size_t kMostNameBytes = 200;  // a file system takes 255
constexpr std::string_view kFolderKey = "--job.dump_folder";

// "training.seq-len" and "training.seq_len" are one key.
std::string with_underscores(std::string key) {
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

Result<SweepAxis> axis_of(const std::string& words) {
  const size_t equals = words.find('=');
  if (equals == 0 || equals == words.npos || equals + 1 == words.size())
    return Error{Code::kConfig,
                 text("--over ", words, " is not a key with values; use for example --over ",
                      "training.local_batch_size=1,2,4")};
  SweepAxis axis{with_underscores(words.substr(0, equals)), split(words.substr(equals + 1), ',')};
  if (axis.key.starts_with("__")) axis.key.erase(0, 2);  // it was typed as a flag
  if (text("--", axis.key) == kFolderKey)
    return Error{
        Code::kConfig,
        "--over job.dump_folder is not allowed, because each row has its own folder in --out"};
  std::set<std::string> seen;
  for (const std::string& value : axis.values) {
    if (value.empty()) return Error{Code::kConfig, text("--over ", words, " has an empty value")};
    if (!seen.insert(value).second)
      return Error{Code::kConfig, text("--over ", words, ": ", value, " appears twice")};
  }
  return axis;
}

Result<void> add_axis(const std::string& words, SweepWords& sweep) {
  LOCKSTEP_TRY(SweepAxis axis, axis_of(words));
  for (const SweepAxis& other : sweep.axes)
    if (other.key == axis.key)
      return Error{Code::kConfig, text("--over ", axis.key, " is given twice")};
  sweep.axes.push_back(std::move(axis));
  return {};
}

Result<void> set_value(const std::string& flag, const std::string& value, SweepWords& sweep) {
  if (flag == "--over") return add_axis(value, sweep);
  if (flag == "--out") {
    if (value.empty()) return Error{Code::kConfig, "--out needs a folder"};
    sweep.out = value;
    return {};
  }
  sweep.steps = parse_number(value).value_or(0);
  if (sweep.steps >= 1 && sweep.steps <= kMaxSweepSteps) return {};
  return Error{Code::kConfig, text("--steps ", value, " is not a number of steps")};
}

// What a folder may be called on any file system, and what a shell reads as it is.
std::string as_name(std::string words) {
  for (char& c : words) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain && std::string_view("._=,+-").find(c) == std::string_view::npos) c = '_';
  }
  return words;
}

}  // namespace

Result<SweepWords> split_sweep_words(const std::vector<std::string>& arguments) {
  SweepWords sweep;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const size_t equals = word.find('=');
    const std::string flag = word.substr(0, equals);
    if (word == "--json") {
      sweep.json = true;
    } else if (word == "--report") {
      sweep.report = true;
    } else if (word == "--submit") {
      sweep.submit = true;
    } else if (flag == "--over" || flag == "--out" || flag == "--steps") {
      if (equals == word.npos && i + 1 == arguments.size())
        return Error{Code::kConfig, text(flag, " needs a value")};
      LOCKSTEP_RETURN_IF_ERROR(
          set_value(flag, equals != word.npos ? word.substr(equals + 1) : arguments[++i], sweep));
    } else if (with_underscores(flag.substr(std::min<size_t>(2, flag.size()))) ==
               kFolderKey.substr(2)) {
      return Error{
          Code::kConfig,
          "--job.dump_folder is not allowed; --out FOLDER sets where the runs of the rows are"};
    } else {
      sweep.launch.push_back(word);
    }
  }
  if (sweep.axes.empty())
    return Error{Code::kConfig,
                 "no values are given; use for example --over training.local_batch_size=1,2,4"};
  return sweep;
}

std::vector<std::string> short_names(const std::vector<SweepAxis>& axes) {
  const auto last_part = [](const std::string& key) { return key.substr(key.rfind('.') + 1); };
  std::vector<std::string> names;
  for (const SweepAxis& axis : axes) {
    const auto count = std::count_if(axes.begin(), axes.end(), [&](const SweepAxis& other) {
      return last_part(other.key) == last_part(axis.key);
    });
    names.push_back(count == 1 ? last_part(axis.key) : axis.key);
  }
  return names;
}

Result<std::vector<SweepRow>> rows_of(const std::vector<SweepAxis>& axes) {
  const std::vector<std::string> names = short_names(axes);
  std::vector<SweepRow> rows{{"", {}}};
  for (size_t i = 0; i < axes.size(); ++i) {
    std::vector<SweepRow> longer;
    for (const SweepRow& row : rows)
      for (const std::string& value : axes[i].values) {
        if (longer.size() == kMaxSweepRows)
          return Error{Code::kConfig,
                       text("the sweep has more than ", kMaxSweepRows, " rows; give fewer values")};
        SweepRow next = row;
        next.values.push_back(value);
        next.name += text(i == 0 ? "" : ",", as_name(names[i]), "=", as_name(value));
        longer.push_back(std::move(next));
      }
    rows = std::move(longer);
  }
  std::set<std::string> seen;
  for (const SweepRow& row : rows) {
    if (row.name.size() > kMostNameBytes)
      return Error{Code::kConfig,
                   text("row ", row.name, " has a name that is too long for a folder")};
    if (!seen.insert(row.name).second)
      return Error{Code::kConfig, text("two rows would have the same folder, ", row.name)};
  }
  return rows;
}

std::vector<std::string> config_words(const SweepWords& words, const SweepRow& row,
                                      const std::filesystem::path& out) {
  std::vector<std::string> all{
      text("--training.steps=", words.steps), "--training.epochs=0", "--checkpoint.enable=false",
      "--checkpoint.keep_best=false",         "--validation.freq=0", "--validation.patience=0"};
  all.insert(all.end(), words.launch.begin(), words.launch.end());
  for (size_t i = 0; i < words.axes.size(); ++i)
    all.push_back(text("--", words.axes[i].key, "=", row.values[i]));
  all.push_back(text(kFolderKey, "=", (out / row.name).string()));
  return all;
}

}  // namespace lockstep::cli
