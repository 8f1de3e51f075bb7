#include "cli/serve/watched_run.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/record/catalog.h"
#include "cli/shared/file_end.h"
#include "cli/status/status_report.h"
#include "launcher/host/run_files.h"

namespace lockstep::cli {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMaxDocumentBytes = int64_t{16} << 20;  // of a file that is read whole
constexpr size_t kMaxEvents = 500;                        // that are shown
constexpr size_t kMaxMarks = 2000;
constexpr int64_t kLookAgain_ns =
    20'000'000'000;  // at a run that does not train, and did not change

ordered_json number_or_null(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json json_of(const std::vector<Mark>& marks, const RunSeries& series) {
  ordered_json all = ordered_json::array();
  const auto steps = series.steps();
  const auto tokens = series.axis(Axis::kTokens), seconds = series.axis(Axis::kSeconds);
  for (const Mark& mark : marks) {
    const auto after = std::upper_bound(steps.begin(), steps.end(), mark.step);
    if (after == steps.begin() || all.size() >= kMaxMarks) continue;
    const auto at = static_cast<size_t>(after - steps.begin() - 1);
    all.push_back({{"kind", name_of(mark.kind)},
                   {"step", mark.step},
                   {"tokens", tokens[at]},
                   {"seconds", seconds[at]},
                   {"words", mark.words}});
  }
  return all;
}

ordered_json json_of(const RunSeries& series, int64_t damaged_events) {
  return {{"steps", series.steps().size()},
          {"redone", series.redone_steps()},
          {"skipped_updates", series.skipped_updates()},
          {"damaged_lines", series.damaged_lines()},
          {"damaged_events", damaged_events},
          {"passed_over", series.passed_over_steps()}};
}

}  // namespace

WatchedRun::WatchedRun(FileSystem& file_system, Clock& clock, FoundRun found)
    : file_system_(file_system),
      clock_(clock),
      found_(std::move(found)),
      observer_(file_system, clock, found_.folder) {}

const RunSeries& WatchedRun::series() {
  const auto path = found_.folder / "metrics.jsonl";
  if (file_system_.exists(path)) {
    if (const auto read = series_.follow(file_system_, path); !read)
      trouble_ = read.error().message;
  }
  return series_;
}

// When each of the run's files was written last.
std::string WatchedRun::changed_at() const {
  std::string all;
  for (const char* name : kRunFiles) {
    const auto written = file_system_.written_unix_ns(found_.folder / name);
    all += text(written ? written.value() : -1, " ");
  }
  return all;
}

void WatchedRun::look() {
  std::string changed = changed_at();
  const int64_t now_ns = clock_.monotonic_ns();
  const bool calm = changed == looked_at_ && !(status_ && status_->running());
  if (calm && now_ns - looked_ns_ < kLookAgain_ns) return;
  if (changed != looked_at_) args_ = document("run_args.json");
  looked_at_ = std::move(changed);
  looked_ns_ = now_ns;
  auto status = observer_.look();
  if (!status) {
    status_.reset();
    trouble_ = status.error().message;
    return;
  }
  trouble_.clear();
  status_ = std::move(status).value();
  if (status_->logged_age_s >= 0)
    logged_unix_s_ = static_cast<double>(clock_.unix_ns()) * 1e-9 - status_->logged_age_s;
}

ordered_json WatchedRun::summary() {
  look();
  ordered_json all{{"run", found_.id}, {"logged_unix_s", logged_unix_s_}, {"trouble", trouble_}};
  for (const char* key : {"parameters", "transport"})
    if (args_.is_object() && args_.contains(key)) all[key] = args_[key];
  const ordered_json config =
      args_.is_object() ? args_.value("config", ordered_json()) : ordered_json();
  if (config.is_object()) {
    const auto nested = [&](const char* path) {
      return config.value(ordered_json::json_pointer(path), ordered_json());
    };
    all["model"] = nested("/model/name");
    all["strategy"] = nested("/parallelism/strategy");
  }
  if (!status_) return all;
  const RunStatus& s = *status_;
  all["state"] = s.state;
  all["generation"] = s.membership.generation;
  all["world_size"] = s.membership.world_size;
  all["step"] = s.step;
  all["planned_steps"] = s.planned_steps;
  all["loss"] = s.loss ? number_or_null(*s.loss) : ordered_json(nullptr);
  all["tokens_per_s"] = s.tokens_per_s;
  all["step_time_s"] = s.step_time_s;
  all["eta_s"] = s.eta_s();
  all["checkpoint_step"] = s.checkpoint_step;
  all["restarts"] = s.restarts;
  all["last_failure"] = s.last_failure;
  return all;
}

std::vector<int64_t> WatchedRun::kept_checkpoints() const {
  const auto folder = found_.folder / "checkpoints";
  if (file_system_.is_link(folder) || !file_system_.exists(folder)) return {};
  std::vector<int64_t> steps;
  const auto entries = checkpoint::list_from_newest(file_system_, folder);
  for (const auto& entry : entries ? entries.value() : decltype(entries.value()){})
    if (entry.committed) steps.push_back(entry.step);
  return steps;
}

ordered_json WatchedRun::details() {
  ordered_json all = summary();
  const RunSeries& steps = series();
  const EventList list = parse_events(
      end_of_file(file_system_, found_.folder / "events.jsonl", kMaxDocumentBytes), kMaxEvents);
  all["marks"] = json_of(marks_of(steps.starts(), list.events, kept_checkpoints()), steps);
  all["counts"] = json_of(steps, list.damaged_lines);
  all["validation_loss"] = number_or_null(steps.last(Field::kValidationLoss));
  all["grad_norm"] = number_or_null(steps.last(Field::kGradNorm));
  all["memory"] = number_or_null(steps.last(Field::kMemory));
  all["events"] = list.events;
  all["totals"] = document("metrics.json");
  all["status"] = status_ ? parse_json<ordered_json>(status_json(*status_, true)) : ordered_json();
  return all;
}

ordered_json WatchedRun::run_args() const { return document("run_args.json"); }

ordered_json WatchedRun::logged_phases() const {
  const ordered_json totals = document("metrics.json");
  const auto phases = totals.is_object() ? totals.find("phases_s_per_step") : totals.end();
  return phases != totals.end() && phases->is_object() ? *phases : ordered_json::object();
}

ordered_json WatchedRun::document(const char* name) const {
  const auto parsed =
      parse_json<ordered_json>(end_of_file(file_system_, found_.folder / name, kMaxDocumentBytes),
                               /*allow_exceptions=*/false);
  return parsed.is_object() ? parsed : ordered_json();
}

}  // namespace lockstep::cli
