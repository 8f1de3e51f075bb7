#include "core/train/run_record.h"

#include <unistd.h>

#include <cstdio>

#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "core/train/memory_stats.h"

namespace lockstep::core {
namespace {

constexpr const char* kValidationTag = "validation_metrics/loss";

using nlohmann::ordered_json;

// A number for JSON: null where it is not finite.
ordered_json number(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr);
}

ordered_json hex_of(const std::vector<uint64_t>& digests) {
  ordered_json all = ordered_json::array();
  for (const uint64_t digest : digests) all.push_back(hex64(digest));
  return all;
}

// In the order of the digests.
ordered_json names_of_trained(const layout::ModelSpec& spec) {
  ordered_json names = ordered_json::array();
  for (const layout::UnitSpec& unit : spec.units)
    if (!unit.frozen) names.push_back(unit.name);
  return names;
}

ordered_json json_of(const Snapshots::Totals& t) {
  return {{"complete", t.complete},   {"failed", t.failed},   {"skipped", t.skipped},
          {"last_step", t.last_step}, {"stall_s", t.stall_s}, {"copy_s", t.copy_s},
          {"buddy_s", t.buddy_s}};
}

ordered_json json_of(const StepAudit& audit, double seconds) {
  ordered_json json{{"same", audit.verdict.same}, {"rounds", audit.rounds}, {"seconds", seconds}};
  if (audit.slot) {
    json["slot"] = audit.slot->slot;
    json["loss_hex"] = hex_float(audit.slot->loss);
    json["digests"] = ordered_json::object();
    for (const auto& [unit, digest] : audit.slot->gradients) json["digests"][unit] = hex64(digest);
  }
  if (audit.verdict.same) return json;
  json["wrong"] = audit.verdict.wrong;
  json["undecided"] = audit.verdict.undecided;
  json["difference"] = audit.difference;
  return json;
}

// By kind: all, and what came from other nodes; of one step out of `steps`.
ordered_json json_of(const WireBytes& bytes, double steps) {
  const auto kind = [steps](const WireBytes::Count& c) {
    return ordered_json{{"all", std::llround(static_cast<double>(c.all) / steps)},
                        {"other_nodes", std::llround(static_cast<double>(c.other_nodes) / steps)}};
  };
  return {{"gather", kind(bytes.gather)},
          {"exchange", kind(bytes.exchange)},
          {"other", kind(bytes.other)}};
}

// What was drawn until `step`, and each change of what is drawn.
ordered_json json_of(const std::vector<data::DataStretch>& stretches, int64_t step) {
  ordered_json drawn = ordered_json::array(), changes = ordered_json::array();
  for (const data::Drawn& d : data::drawn(stretches, step))
    drawn.push_back({{"source", d.source}, {"samples", d.samples}, {"tokens", d.tokens}});
  for (size_t i = 1; i < stretches.size(); ++i) {
    const data::DataStretch& s = stretches[i];
    changes.push_back({{"after_step", s.first_step},
                       {"samples_per_step", s.samples_per_step},
                       {"seq_len", s.seq_len},
                       {"sources", s.sources}});
    for (const data::SourceStart& start : data::starts_of(s))
      changes.back()["first_sample"][start.source] = start.sample;
  }
  return {{"drawn", drawn}, {"changes", changes}};
}

std::vector<std::pair<const char*, double>> named(const StepPhases& phases) {
  std::vector<std::pair<const char*, double>> all;
  for (size_t i = 0; i < kStepPhases; ++i)
    all.emplace_back(name_of(static_cast<StepPhase>(i)), phases.seconds[i]);
  return all;
}

}  // namespace

RunRecord::RunRecord(FileSystem& file_system, Clock& clock, const Config& config,
                     const layout::ModelSpec& spec, Options options)
    : file_system_(file_system),
      clock_(clock),
      config_(config),
      spec_(spec),
      options_(std::move(options)) {}

Result<std::unique_ptr<RunRecord>> RunRecord::create(FileSystem& file_system, Clock& clock,
                                                     const Config& config,
                                                     const layout::ModelSpec& spec,
                                                     Options options) {
  std::unique_ptr<RunRecord> record(
      new RunRecord(file_system, clock, config, spec, std::move(options)));
  const auto opened =
      record->writes_.ask<Result<void>>([own = record.get()] { return own->open_files(); });
  if (opened && !opened->ok()) return opened->error();
  if (!opened)
    log_warning(record->folder().string(),
                ": the storage of this file has not answered for a second; step lines are written "
                "when it does");
  return record;
}

Result<void> RunRecord::open_files() {
  LOCKSTEP_RETURN_IF_ERROR(file_system_.make_directories(folder()));
  const ordered_json args{{"config", ordered_json::parse(config_json(config_))},
                          {"identity_hash", options_.identity_hash},
                          {"identity", options_.identity},
                          {"parameters", spec_.parameter_count()},
                          {"trained_parameters", spec_.trained_count()},
                          {"trained_units", names_of_trained(spec_)},
                          {"world_size", options_.world_size},
                          {"transport", options_.transport}};
  LOCKSTEP_RETURN_IF_ERROR(
      publish_file(file_system_, folder() / "run_args.json", args.dump(2) + "\n"));
  if (config_.metrics.enable_tensorboard) {
    LOCKSTEP_TRY(tensorboard_, TensorboardWriter::create(file_system_, clock_,
                                                         {folder() / "tb", "rank0", getpid()}));
  }
  LOCKSTEP_TRY(steps_, StepLog::open(file_system_, folder() / "metrics.jsonl"));
  return {};
}

// Storage that comes back may refuse its first calls.
bool RunRecord::has_files() {
  if (steps_) return true;
  const auto opened = open_files();
  if (!opened.ok() && !std::exchange(said_closed_, true))
    log_warning("the step log lacks lines: ", opened.error().message);
  return steps_ != nullptr;
}

double RunRecord::tflops(double tokens_per_s_per_rank) const {
  return spec_.flops_per_token(config_.training.seq_len) * tokens_per_s_per_rank * 1e-12;
}

void RunRecord::add_step(const StepRecord& r) {
  const StepOutcome& o = r.outcome;
  const std::string hex = hex_float(o.loss);
  const double all = static_cast<double>(config_.tokens_per_step());
  LoggedStep logged{r.step,
                    hex,
                    static_cast<double>(clock_.unix_ns()) * 1e-9,
                    r.step_time_s(),
                    static_cast<double>(o.valid_tokens),
                    r.phases[StepPhase::kDataWait],
                    options_.generation,
                    options_.world_size};
  ordered_json line{{"step", r.step},
                    {"loss", number(o.loss)},
                    {"loss_hex", hex},
                    {"grad_norm", number(o.grad_norm)},
                    {"grad_norm_hex", hex_float(o.grad_norm)},
                    {"lr", r.lr},
                    {"tokens", o.valid_tokens},
                    {"step_time_s", r.step_time_s()},
                    {"data_wait_s", r.phases[StepPhase::kDataWait]},
                    {"world_size", options_.world_size},
                    {"generation", options_.generation},
                    {"training_tokens_pct", 100.0 * static_cast<double>(o.valid_tokens) / all},
                    {"stall_s", r.phases[StepPhase::kStall]},
                    {"wire_bytes", json_of(r.wire, 1)},
                    {"max_memory_bytes", memory_stats().max_allocated_bytes},
                    {"phases_s", ordered_json::object()},
                    {"t", logged.t}};
  for (const auto& [phase, seconds] : named(r.phases)) line["phases_s"][phase] = seconds;
  if (!r.skipped.empty()) line["skipped"] = r.skipped;
  if (!o.digests.weights.empty())
    line["digests"] = {{"weights", hex_of(o.digests.weights)},
                       {"gradients", hex_of(o.digests.gradients)}};
  if (o.audit) line["audit"] = json_of(*o.audit, r.phases[StepPhase::kAudit]);
  if (r.validation_loss) line["validation_loss"] = number(*r.validation_loss);
  window_tokens_ += static_cast<double>(o.valid_tokens);
  window_s_ += r.step_time_s();
  ++steps_here_;
  wire_sum_.add(r.wire);
  phase_sums_.add(r.phases);
  validation_sum_s_ += r.validation_s;
  write_step(r, std::move(logged), line.dump());
}

void RunRecord::add_line(LoggedStep logged, const std::string& line) {
  if (!has_files()) return;
  if (const std::string* const known = steps_->first_loss_hex(logged.step)) {
    ++redone_;
    if (*known != logged.loss_hex) {
      ++mismatches_;
      log_error("step ", logged.step, " was redone and its loss is ", logged.loss_hex, "; it was ",
                *known, " before the restart; the bits differ from here on");
    }
  }
  steps_->add(std::move(logged));
  steps_->write(line);
}

// The step's line, and what people watch where it is due.
void RunRecord::write_step(const StepRecord& r, LoggedStep logged, std::string line) {
  std::string shown;
  std::vector<Scalar> scalars;
  const bool last = r.step == config_.training.steps;
  if (steps_here_ == 1 || r.step % config_.metrics.log_freq == 0 || last || r.validation_loss) {
    const double tps = window_s_ > 0 ? window_tokens_ / window_s_ / options_.world_size : 0.0;
    const double step_s =
        window_s_ / std::max(1.0, window_tokens_ / static_cast<double>(config_.tokens_per_step()));
    window_tokens_ = window_s_ = 0;
    shown = console_line(r, tps, step_s);
    scalars = scalars_of(r, tps);
  }
  const bool written = writes_.run([this, logged = std::move(logged), line = std::move(line),
                                    shown = std::move(shown), scalars = std::move(scalars)] {
    add_line(logged, line);
    if (shown.empty()) return;
    *options_.console << shown << std::flush;
    add_scalars(logged.step, scalars);
  });
  if (!written && left_out_++ == 0)
    log_warning("step lines are dropped from step ", r.step,
                " on: the storage of the step log hangs and the log queue is full");
}

// The phases of a step, and what comes after it.
std::vector<std::pair<const char*, double>> RunRecord::phase_means() const {
  auto means = named(phase_sums_);
  means.push_back({"validation", validation_sum_s_});
  means.push_back({"checkpoint_begin", begun_save_s_});
  for (auto& [phase, seconds] : means)
    seconds /= std::max<double>(1, static_cast<double>(steps_here_));
  return means;
}

std::string RunRecord::phase_table() const {
  const auto means = phase_means();
  double all = 0;
  for (const auto& [phase, seconds] : means) all += seconds;
  std::string table = "phase              s/step   share\n";
  char line[64];
  const auto row = [&](const char* phase, double seconds) {
    std::snprintf(line, sizeof line, "%-16s %9.6f  %5.1f%%\n", phase, seconds,
                  all > 0 ? 100 * seconds / all : 0.0);
    table += line;
  };
  for (const auto& [phase, seconds] : means) row(phase, seconds);
  row("all", all);
  return table;
}

std::string RunRecord::console_line(const StepRecord& r, double tps, double step_s) const {
  const MemoryStats memory = memory_stats();
  const double gib = static_cast<double>(memory.max_allocated_bytes) / (1 << 30);
  const double percent = 100.0 * static_cast<double>(memory.max_allocated_bytes) /
                         static_cast<double>(memory.total_bytes);
  const double peak = config_.metrics.peak_tflops;
  const std::string mfu = peak > 0 ? fixed(100.0 * tflops(tps) / peak, 2) + "%" : "N/A";
  const double eta_s = static_cast<double>(config_.training.steps - r.step) * step_s;
  char line[256];
  std::string out;
  if (r.validation_loss) {
    std::snprintf(line, sizeof line, "validate step: %ld  loss: %8.5f\n", static_cast<long>(r.step),
                  *r.validation_loss);
    out += line;
  }
  std::snprintf(line, sizeof line,
                "step: %ld/%ld  loss: %8.5f  grad_norm: %7.4f  memory: %5.2fGiB(%.2f%%)  tps: %s  "
                "tflops: %.2f  mfu: %s  eta: %s\n",
                static_cast<long>(r.step), static_cast<long>(config_.training.steps),
                r.outcome.loss, r.outcome.grad_norm, gib, percent,
                grouped(static_cast<int64_t>(tps)).c_str(), tflops(tps), mfu.c_str(),
                duration_text(eta_s).c_str());
  return out + line;
}

void RunRecord::add_late_validation(int64_t step, double loss) {
  writes_.run([this, step, loss] { add_scalars(step, {{kValidationTag, loss}}); });
}

void RunRecord::add_scalars(int64_t step, const std::vector<Scalar>& scalars) {
  if (!tensorboard_) return;
  if (auto added = tensorboard_->add_scalars(step, scalars); !added.ok())
    log_warning("cannot write a TensorBoard event: ", added.error().message);
}

std::vector<Scalar> RunRecord::scalars_of(const StepRecord& r, double tps) const {
  if (!config_.metrics.enable_tensorboard) return {};
  const double peak = config_.metrics.peak_tflops;
  std::vector<Scalar> scalars{{"loss_metrics/global_avg_loss", r.outcome.loss},
                              {"grad_norm", r.outcome.grad_norm},
                              {"throughput(tps)", tps},
                              {"tflops", tflops(tps)},
                              {"mfu(%)", peak > 0 ? 100.0 * tflops(tps) / peak : 0.0},
                              {"time_metrics/end_to_end(s)", r.step_time_s()},
                              {"time_metrics/data_loading(s)", r.phases[StepPhase::kDataWait]},
                              {"memory/max_reserved(GiB)",
                               static_cast<double>(memory_stats().max_allocated_bytes) / (1 << 30)},
                              {"lr", r.lr},
                              {"checkpoint/stall(s)", r.phases[StepPhase::kStall]}};
  if (r.validation_loss) scalars.push_back({kValidationTag, *r.validation_loss});
  return scalars;
}

void RunRecord::add_save(const checkpoint::SaveReport& s, double stall_s) {
  stall_s_ += stall_s;
  if (!s.committed) {
    ++failed_saves_;
    return;
  }
  ++committed_saves_;
  save_bytes_ += static_cast<double>(s.raw_bytes);
  stored_bytes_ += static_cast<double>(s.stored_bytes);
  save_s_ += s.stage_s + s.write_s + s.sync_s;
}

void RunRecord::set_skip_list(std::vector<int64_t> steps, int64_t rollbacks) {
  skip_list_ = std::move(steps);
  rollbacks_ = rollbacks;
}

ordered_json RunRecord::of_history(bool finished, const std::vector<data::DataStretch>& data) {
  double tokens = 0, busy_s = 0, rank_s = 0;
  std::map<int64_t, double> useful;  // the last time a step was done is the one that counts
  ordered_json worlds = ordered_json::array();
  int64_t generation = -1;
  const std::vector<LoggedStep>& history = steps_->steps();
  for (const LoggedStep& line : history) {
    tokens += line.tokens;
    busy_s += line.step_time_s;
    rank_s += line.step_time_s * static_cast<double>(line.world_size);
    useful[line.step] = line.step_time_s;
    if (line.generation != generation)
      worlds.push_back({{"generation", line.generation},
                        {"from_step", line.step},
                        {"world_size", line.world_size}});
    generation = line.generation;
  }
  double useful_s = 0;
  for (const auto& [step, s] : useful) useful_s += s;
  const double wall =
      history.empty() ? 0.0 : history.back().t - history.front().t + history.front().step_time_s;
  const double tps = busy_s > 0 ? tokens / busy_s : 0.0;
  const double per_rank = rank_s > 0 ? tokens / rank_s : 0.0, peak = config_.metrics.peak_tflops;
  return {
      {"finished", finished},
      {"steps", useful.empty() ? 0 : useful.rbegin()->first},
      {"wall_clock_s", wall},
      {"tokens", tokens},
      {"tokens_per_s", tps},
      {"tokens_per_s_per_rank", per_rank},
      {"tflops", tflops(tps)},
      {"mfu_pct", peak > 0 ? ordered_json(100.0 * tflops(per_rank) / peak) : ordered_json("N/A")},
      {"mfu_note",
       "6*(params-embedding) + 12*layers*heads*head_dim*seq_len FLOPs a token; on CPU against "
       "metrics.peak_tflops, a measured GEMM peak, where given"},
      {"world_sizes", worlds},
      {"restarts", worlds.empty() ? 0 : worlds.size() - 1},
      {"redone_steps", redone_},
      {"redone_mismatches", mismatches_},
      {"goodput_pct", wall > 0 ? 100.0 * useful_s / wall : 0.0},
      {"data", json_of(data, useful.empty() ? 0 : useful.rbegin()->first)}};
}

void RunRecord::publish_metrics(bool finished) {
  const double n = std::max<double>(1, static_cast<double>(steps_here_));
  const MemoryStats memory = memory_stats();
  ordered_json own{
      {"peak_memory_GB", static_cast<double>(memory.max_allocated_bytes) / 1e9},
      {"peak_rss_GB", static_cast<double>(memory.max_rss_bytes) / 1e9},
      {"sharding_strategy", config_.parallelism.strategy},
      {"device_model", options_.device},
      {"skip_list", skip_list_},
      {"rollbacks", rollbacks_},
      {"checkpoint",
       {{"committed", committed_saves_},
        {"failed", failed_saves_},
        {"skipped", skipped_saves_},
        {"stall_s", stall_s_},
        {"raw_bytes_per_rank", save_bytes_},
        {"stored_bytes_per_rank", stored_bytes_},
        {"bandwidth_MB_per_s_per_rank", save_s_ > 0 ? save_bytes_ / save_s_ / 1e6 : 0.0}}},
      {"wire_bytes_per_step", json_of(wire_sum_, n)},
      {"phases_s_per_step", ordered_json::object()}};
  for (const auto& [phase, seconds] : phase_means()) own["phases_s_per_step"][phase] = seconds;
  if (snapshots_) own["memory_snapshots"] = json_of(*snapshots_);
  const auto publish = [this, finished, own = std::move(own), data = data_] {
    if (!has_files()) return;
    steps_->flush();
    ordered_json metrics = of_history(finished, data);
    metrics.update(own);
    if (auto done = publish_file(file_system_, folder() / "metrics.json", metrics.dump(2) + "\n");
        !done.ok())
      log_warning("cannot write metrics.json: ", done.error().message);
  };
  writes_.post_latest("metrics.json", publish);
}

void RunRecord::finish(bool finished) {
  publish_metrics(finished);
  writes_.finish();
}

}  // namespace lockstep::core
