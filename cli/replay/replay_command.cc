#include "cli/replay/replay_command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <optional>

#include "base/log.h"
#include "base/text.h"
#include "checkpoint/record/catalog.h"
#include "cli/compare/run_log.h"
#include "cli/launch/launch_command.h"
#include "cli/replay/replay_difference.h"
#include "cli/replay/slot_answer.h"
#include "cli/replay/step_tail.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/run_args.h"
#include "config/config.h"
#include "config/identity_difference.h"
#include "launcher/control/incident.h"
#include "launcher/host/process.h"
#include "launcher/host/scratch_folder.h"

namespace lockstep::cli {
namespace {

using Path = std::filesystem::path;

constexpr int kExitDifferent = 1;
constexpr const char* kReplayAbout =
    R"(Computes steps of a run again on this machine and compares the bits with those that the run
logged, to tell a faulty node from bad data. It prints the first step that differs, and the units
of the model whose weights or gradients differ in it.

It starts from the newest checkpoint before --from, or from the initial weights, and needs the data
of the run. Any number of processes gives the same bits; another kind of CPU may not, and then a
warning says so. It only reads the run's folder. Exit status 1: the bits differ.

With --follow it keeps up with a run that still trains, until the run ends, --to is reached, you
press Ctrl-C, or a bit differs. It checks every step. Give the replay a machine about as fast as
that of the run, or it falls behind.

With --slot every process also computes that slot (micro-batch) of each step by itself; a single
process computes it twice. The result of the last step is printed as a line. The log has sums over
all slots and does not tell which slot was wrong: run the same command on the suspect node and on a
sound node of its kind, and compare the two lines. Exit status 1 also means that processes of this
machine disagree.

Examples:
  lockstep replay results/training/demo --from 21 --to 40
  lockstep replay results/training/demo --from 1 --nproc-per-node 2
  lockstep replay results/training/demo --from 900 --out replayed    # and keep what was computed
  lockstep replay results/big --from 84 --to 84 --slot 3             # on two nodes, to compare
  srun --nodes=1 --ntasks=1 lockstep replay results/big --from 1 --follow --nproc-per-node 4
)";

struct ReplayOptions {
  Path run, out;             // out empty: a folder that goes
  int64_t from = 0, to = 0;  // to 0: the last step that there is
  int64_t nproc = 1;
  int64_t slot = -1;  // -1: none by itself
  bool follow = false;
};

constexpr int64_t kLookMs = 500;  // between looks at the log of a run that is followed
constexpr const char* kLog = "metrics.jsonl";
constexpr const char* kConfigFile = "replay.toml";
constexpr const char* kKeepAll = "--checkpoint.keep_latest_k=0";
constexpr const char* kKeepFew = "--checkpoint.keep_latest_k=2";

// Keys that say where, how often and on what a run computes, and not which bits.
constexpr const char* kOwn[] = {"--job.dump_folder=",
                                "--launcher.",
                                "--debug.",
                                "--checkpoint.",
                                "--validation.",
                                "--metrics.enable_tensorboard=",
                                "--metrics.log_freq=",
                                "--profiling.",
                                "--parallelism.strategy=",
                                "--training.steps=",
                                "--lr_scheduler.total_steps=",
                                "--parallelism.data_parallel_shard_degree="};
constexpr const char* kAudit = "--audit.";  // its own with --slot

// The flags of `run`, whose config is `config`, for a run of its steps in `folder`, but how many.
std::vector<std::string> flags_for(const ReplayOptions& o, std::vector<std::string> flags,
                                   const Config& config, const Path& folder) {
  std::erase_if(flags, [&o](const std::string& flag) {
    const bool starts_state = flag.starts_with("--checkpoint.initial_load") ||
                              flag.starts_with("--checkpoint.exclude_from_loading");
    if (o.slot >= 0 && flag.starts_with(kAudit)) return true;
    return !starts_state && std::any_of(std::begin(kOwn), std::end(kOwn),
                                        [&](const char* own) { return flag.starts_with(own); });
  });
  const int64_t total = config.lr_scheduler.total_steps;
  for (const std::string& own :
       {text("--job.dump_folder=", folder.string()),
        text("--lr_scheduler.total_steps=", total > 0 ? total : config.training.steps),
        text("--launcher.nproc_per_node=", o.nproc), std::string("--launcher.requeue=never"),
        std::string("--checkpoint.interval=0"), std::string(kKeepAll),
        std::string("--checkpoint.codec=none"), std::string("--metrics.enable_tensorboard=false"),
        std::string("--metrics.log_freq=1"),
        text("--parallelism.strategy=", o.nproc > 1 ? "full_shard" : "single")})
    flags.push_back(own);
  if (o.slot >= 0)
    for (const std::string& own :
         {text(kAudit, "interval=1"), text(kAudit, "action=warn"), text(kAudit, "slot=", o.slot)})
      flags.push_back(own);
  return flags;
}

// The newest one before --from; nothing: the initial weights.
Result<std::optional<Path>> start_of(const ReplayOptions& o, const Path& checkpoints) {
  if (!posix_file_system().exists(checkpoints)) return std::optional<Path>();
  LOCKSTEP_TRY(const auto entries, checkpoint::list_checkpoints(posix_file_system(), checkpoints));
  for (const auto& entry : entries)  // newest first
    if (entry.usable() && entry.step < o.from) return std::optional(entry.directory);
  return std::optional<Path>();
}

class Replay {
 public:
  Replay(const ReplayOptions& options, Path folder)
      : o_(options),
        folder_(std::move(folder)),
        logged_(posix_file_system(), o_.run / kLog),
        replayed_(posix_file_system(), folder_ / kLog),
        done_(o_.from - 1) {}
  // Says what was found. Returns the exit status.
  Result<int> run();

 private:
  Result<int64_t> next_step();
  Result<void> begin(int64_t to);
  int compute(int64_t to) const;
  Result<void> compare(int64_t to);
  Result<void> add_slot(int64_t to);
  Result<void> keep_own();
  Result<int> end() const;

  const ReplayOptions o_;
  const Path folder_;
  StepTail logged_, replayed_;
  int64_t done_;          // up to this step all are the same
  bool stopped_ = false;  // by a signal
  bool differs_ = false;  // a step after that does, or ranks of this machine disagree
  std::string found_;     // what the last look said
  std::string began_;     // from what it was computed
  Config config_;         // the run's
  std::optional<Path> start_;
  std::vector<std::string> flags_;
  launcher::StopSignals signals_;  // so that none ends this between two waits
};

// The step to compute up to: --to, or with --follow the newest one that the run has logged, waited
// for. The last one again: there is none, since the run has ended or a signal came.
Result<int64_t> Replay::next_step() {
  for (;;) {
    const bool over = !o_.follow || run_has_finished(posix_file_system(), o_.run);
    LOCKSTEP_RETURN_IF_ERROR(logged_.read());
    const int64_t there = logged_.last_step();
    const int64_t last = o_.to == 0 ? there : o_.follow ? std::min(o_.to, there) : o_.to;
    if (last > done_) return last;
    if (over || (o_.to != 0 && last == o_.to)) return done_;
    stopped_ = stopped_ || !signals_.take().empty();
    if (stopped_) return done_;
    launcher::wait_readable({signals_.descriptor()}, kLookMs);
  }
}

// The folder, with what to start from as its newest checkpoint, by a link.
Result<void> Replay::begin(int64_t to) {
  FileSystem& file_system = posix_file_system();
  if (file_system.exists(folder_ / kLog))
    return Error{Code::kConfig,
                 text(folder_.string(), " is already a run's folder; give a new one with --out")};
  LOCKSTEP_TRY(const auto of_run, run_flags(file_system, o_.run));
  LOCKSTEP_TRY(const ParsedConfig parsed, parse_config("", of_run));
  config_ = parsed.config;
  LOCKSTEP_TRY(start_, start_of(o_, config_.checkpoint_folder()));
  flags_ = flags_for(o_, of_run, config_, folder_);
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(folder_ / "checkpoints"));
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, folder_ / kConfigFile,
                                        "# lockstep replay gives all keys as flags\n"));
  began_ = start_ ? start_->filename().string() : "the initial weights";
  log_notice("replay: steps ", o_.from, " to ", to, o_.follow ? " and later" : "", ", from ",
             began_, ", in ", folder_.string(),
             o_.out.empty() ? ", which is removed at the end (--out DIR keeps it)" : "");
  if (!start_) return {};
  std::error_code failed;
  const Path link = folder_ / "checkpoints" / start_->filename();
  std::filesystem::create_directory_symlink(std::filesystem::absolute(*start_), link, failed);
  if (!failed) return {};
  return Error{Code::kIo, text("link ", link.string(), ": ", failed.message())};
}

// Trains up to step `to`. Returns the exit status.
int Replay::compute(int64_t to) const {
  std::vector<std::string> flags{"train", (folder_ / kConfigFile).string()};
  flags.insert(flags.end(), flags_.begin(), flags_.end());
  flags.push_back(text("--training.steps=", to));
  std::vector<char*> words;
  for (std::string& flag : flags) words.push_back(flag.data());
  words.push_back(nullptr);
  return train_command(static_cast<int>(words.size()) - 1, words.data());
}

// Says so where the two were computed under other conditions that may change bits.
void compare_identities(const Path& run, const Path& folder) {
  const auto was = identity_of_run(posix_file_system(), run);
  if (was.empty()) return;
  for (const std::string& line :
       identity_difference(was, identity_of_run(posix_file_system(), folder)))
    log_warning("the run was computed under another identity, so bits may differ for that reason: ",
                line);
}

std::string digests_text(const StepRecord& a, const StepRecord& b, size_t units) {
  return a.weights.empty() || b.weights.empty()
             ? "; there were no digests of units to compare"
             : text(", and so are the weights and gradients of ", units, " units");
}

Result<void> Replay::compare(int64_t to) {
  if (done_ < o_.from) compare_identities(o_.run, folder_);
  LOCKSTEP_RETURN_IF_ERROR(replayed_.read());
  const auto units = trained_units_of_run(posix_file_system(), o_.run);
  LOCKSTEP_TRY(const auto difference, first_difference(logged_.steps(), replayed_.steps(), units,
                                                       {o_.from, done_ + 1, to}));
  differs_ = difference.has_value();
  found_ = text("steps ", o_.from, " to ", to, " of ", o_.run.string(), ", computed again from ",
                began_, " by ", counted(o_.nproc, "rank"), ": ",
                differs_ ? *difference
                         : text("every loss and gradient norm is the same to the last bit",
                                digests_text(logged_.steps().at(to), replayed_.steps().at(to),
                                             units.size())));
  if (o_.slot >= 0) LOCKSTEP_RETURN_IF_ERROR(add_slot(to));
  logged_.forget(to);
  replayed_.forget(to);
  return {};
}

// What this machine computed for --slot.
Result<void> Replay::add_slot(int64_t to) {
  LOCKSTEP_TRY(const std::string line,
               slot_line(replayed_.steps().at(to), logged_.steps().at(to), config_));
  const std::string disagreement = slot_disagreement(replayed_.steps());
  differs_ = differs_ || !disagreement.empty();
  found_ += text("\n", line, disagreement.empty() ? "" : "\n", disagreement);
  return {};
}

// From here on the replay's own checkpoints are the newest, and old ones go: first the link to the
// run's, which is not retention's to empty.
Result<void> Replay::keep_own() {
  if (start_)
    LOCKSTEP_RETURN_IF_ERROR(
        posix_file_system().remove(folder_ / "checkpoints" / start_->filename()));
  std::replace(flags_.begin(), flags_.end(), std::string(kKeepAll), std::string(kKeepFew));
  return {};
}

Result<int> Replay::run() {
  if (o_.follow)
    log_notice("replay: follows ", o_.run.string(), " from step ", o_.from,
               " on, until it has ended, a bit differs, or Ctrl-C");
  for (;;) {
    LOCKSTEP_TRY(const int64_t next, next_step());
    if (next == done_) return end();
    if (began_.empty()) LOCKSTEP_RETURN_IF_ERROR(begin(next));
    const int status = compute(next);
    stopped_ = status == launcher::kExitResume;
    if (stopped_ && o_.follow) return end();
    if (status != 0) return status;
    LOCKSTEP_RETURN_IF_ERROR(compare(next));
    if (differs_) return end();
    if (o_.follow) {
      log_notice("replay: steps ", o_.from, " to ", next,
                 " are the same; continuing with the steps that the run has made since");
      if (done_ < o_.from) LOCKSTEP_RETURN_IF_ERROR(keep_own());
    }
    done_ = next;
  }
}

Result<int> Replay::end() const {
  if (found_.empty() && stopped_) {
    log_warning("replay: stopped before a step was compared");
    return launcher::kExitResume;
  }
  if (found_.empty())
    return Error{Code::kConfig, text("--from ", o_.from, " is after the last step, ",
                                     logged_.last_step(), ", and the run has ended")};
  std::cout << found_ << "\n";
  return differs_ ? kExitDifferent : 0;
}

// Errors: kConfig: there is nothing to compare, and never will be.
Result<ReplayOptions> with_last_step(ReplayOptions o) {
  if (!posix_file_system().exists(o.run))
    return Error{Code::kConfig, text(o.run.string(), ": there is no such run folder")};
  if (o.to == 0 && !o.follow) {
    LOCKSTEP_TRY(const RunLog logged, read_run_log(posix_file_system(), o.run));
    o.to = logged.steps.back().step;
  }
  if (o.to != 0 && o.to < o.from)
    return Error{Code::kConfig, text("--from ", o.from, " is after the last step, ", o.to)};
  return o;
}

Result<int> replay(ReplayOptions options) {
  LOCKSTEP_TRY(const ReplayOptions o, with_last_step(std::move(options)));
  if (!o.out.empty()) return Replay(o, o.out).run();
  LOCKSTEP_TRY(const auto scratch, launcher::ScratchFolder::create());
  return Replay(o, scratch.path()).run();
}

}  // namespace

int replay_command(int argc, char** argv) {
  ReplayOptions o;
  CLI::App app{kReplayAbout, "lockstep replay"};
  app.add_option("RUN", o.run, "Folder of the run")->required();
  app.add_option("--from", o.from, "First step to compare")->required()->check(CLI::PositiveNumber);
  app.add_option("--to", o.to,
                 "Last step (default: the last one that the run logged, or will log with --follow)")
      ->check(CLI::PositiveNumber);
  app.add_option("--nproc-per-node", o.nproc, "Processes that compute")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_flag("--follow", o.follow, "Keep up with a run that still trains");
  app.add_option("--slot", o.slot, "Also compute this slot of each step by itself and print it")
      ->check(CLI::NonNegativeNumber)
      ->excludes("--follow");
  app.add_option("--out", o.out, "Keep the computed run in this folder")->type_name("DIR");
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const Result<int> status = replay(std::move(o));
  if (status.ok()) return status.value();
  log_error(status.error().message);
  return status_of_input(status.error().code);
}

}  // namespace lockstep::cli
