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
constexpr const char* kAbout =
    R"(Computes steps of a run again, on this machine, and says whether the bits are those that the
run logged: "was it the node, or the data?". The first step that differs is named, and the units of
the model whose weights or gradients differ in it.

It starts from the newest checkpoint before --from, or from the initial weights, and needs the run's
data. Any number of processes gives the same bits; another kind of CPU may not, and that is said.
The run's folder is only read. Exit status 1: the bits differ.

With --follow it goes on behind a run that still trains, on a spare node or beside it, until the run
has ended, --to is reached, Ctrl-C ends it, or a bit differs: every step is checked, whatever the
run's own audits look at. Give the replay a machine about as fast as the run, or it falls behind.

Examples:
  lockstep replay results/training/demo --from 21 --to 40
  lockstep replay results/training/demo --from 1 --nproc-per-node 2
  lockstep replay results/training/demo --from 900 --out replayed    # and keep what was computed
  srun --nodes=1 --ntasks=1 lockstep replay results/big --from 1 --follow --nproc-per-node 4
)";

struct Options {
  Path run, out;             // out empty: a folder that goes
  int64_t from = 0, to = 0;  // to 0: the last step that there is
  int64_t nproc = 1;
  bool follow = false;
};

constexpr int64_t kLookMs = 500;  // between looks at the log of a run that is followed
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

// The flags of `run`, whose config is `config`, for a run of its steps in `folder`, but how many.
std::vector<std::string> flags_for(const Options& o, std::vector<std::string> flags,
                                   const Config& config, const Path& folder) {
  std::erase_if(flags, [](const std::string& flag) {
    const bool starts_state = flag.starts_with("--checkpoint.initial_load") ||
                              flag.starts_with("--checkpoint.exclude_from_loading");
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
  return flags;
}

// The newest one before --from; nothing: the initial weights.
Result<std::optional<Path>> start_of(const Options& o, const Path& checkpoints) {
  if (!posix_file_system().exists(checkpoints)) return std::optional<Path>();
  LOCKSTEP_TRY(const auto entries, checkpoint::list_checkpoints(posix_file_system(), checkpoints));
  for (const auto& entry : entries)  // newest first
    if (entry.usable() && entry.step < o.from) return std::optional(entry.directory);
  return std::optional<Path>();
}

// The replay's folder with `start` as its newest checkpoint, by a link.
Result<void> lay_out(const Path& folder, const std::optional<Path>& start) {
  FileSystem& file_system = posix_file_system();
  if (file_system.exists(folder / "metrics.jsonl"))
    return Error{Code::kConfig,
                 text(folder.string(), " is a run's folder already; --out names a new one")};
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(folder / "checkpoints"));
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, folder / kConfigFile,
                                        "# lockstep replay gives all keys as flags\n"));
  if (!start) return {};
  std::error_code failed;
  const Path link = folder / "checkpoints" / start->filename();
  std::filesystem::create_directory_symlink(std::filesystem::absolute(*start), link, failed);
  if (!failed) return {};
  return Error{Code::kIo, text("link ", link.string(), ": ", failed.message())};
}

// Trains in `folder` up to step `to`. Returns the exit status.
int compute(const Path& folder, std::vector<std::string> flags, int64_t to) {
  flags.insert(flags.begin(), {"train", (folder / kConfigFile).string()});
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
    log_warning("the run was computed under another identity, and bits may differ for that: ",
                line);
}

// What was found of steps --from to the last one computed.
struct Finding {
  bool same = true;
  std::string text = "no step was computed";
};

Result<Finding> compare(const Options& o, const Path& folder, const std::string& began,
                        int64_t to) {
  LOCKSTEP_TRY(const RunLog logged, read_run_log(posix_file_system(), o.run));
  LOCKSTEP_TRY(const RunLog replayed, read_run_log(posix_file_system(), folder));
  const auto units = trained_units_of_run(posix_file_system(), o.run);
  LOCKSTEP_TRY(const auto difference, first_difference(logged, replayed, units, o.from, to));
  const std::string what =
      text("steps ", o.from, " to ", to, " of ", o.run.string(), ", computed again from ", began,
           " by ", counted(o.nproc, "rank"), ": ");
  if (difference) return Finding{false, what + *difference};
  const auto has = [&](const RunLog& log) { return !find_step(log, to)->weights.empty(); };
  const std::string digests =
      has(logged) && has(replayed)
          ? text(", and so are the weights and gradients of ", units.size(), " units")
          : std::string("; there are no digests of units to compare");
  return Finding{true,
                 text(what, "every loss and gradient norm is the same to the last bit", digests)};
}

// The step to compute up to when `done` is compared: `end`, or with --follow the newest one that
// the run has logged, waited for. Nothing: the run has ended, or a signal ended the wait.
Result<std::optional<int64_t>> next_step(const Options& o, int64_t done, int64_t end) {
  if (!o.follow) return std::optional(end);
  launcher::StopSignals signals;
  for (;;) {
    const bool over = run_has_finished(posix_file_system(), o.run);  // before its log is read
    LOCKSTEP_TRY(const RunLog logged, read_run_log(posix_file_system(), o.run));
    const int64_t last = std::min(end, logged.steps.back().step);
    if (last > done) return std::optional(last);
    if (over) return std::optional<int64_t>();
    launcher::wait_readable({signals.descriptor()}, kLookMs);
    if (!signals.take().empty()) return std::optional<int64_t>();
  }
}

// From here on the replay's own checkpoints are the newest, and old ones go: the link to the run's,
// which is not retention's to empty, first.
Result<void> keep_own(const Path& folder, const std::optional<Path>& start,
                      std::vector<std::string>& flags) {
  if (start)
    LOCKSTEP_RETURN_IF_ERROR(
        posix_file_system().remove(folder / "checkpoints" / start->filename()));
  std::replace(flags.begin(), flags.end(), std::string(kKeepAll), std::string(kKeepFew));
  return {};
}

Result<int> replay_in(const Options& o, const Path& folder) {
  LOCKSTEP_TRY(const auto of_run, run_flags(posix_file_system(), o.run));
  LOCKSTEP_TRY(const ParsedConfig parsed, parse_config("", of_run));
  LOCKSTEP_TRY(const auto start, start_of(o, parsed.config.checkpoint_folder()));
  auto flags = flags_for(o, of_run, parsed.config, folder);
  LOCKSTEP_RETURN_IF_ERROR(lay_out(folder, start));
  const std::string began = start ? start->filename().string() : "the initial weights";
  const int64_t end = o.to != 0 ? o.to : parsed.config.training.steps;
  log_notice("replay: steps ", o.from, " to ", end, ", from ", began, ", in ", folder.string(),
             o.out.empty() ? ", which goes at the end (--out DIR keeps it)" : "");
  Finding finding;
  for (int64_t done = o.from - 1; finding.same && done < end;) {
    LOCKSTEP_TRY(const auto next, next_step(o, done, end));
    if (!next) break;
    const int status = compute(folder, flags, *next);
    if (o.follow && status == launcher::kExitResume) break;  // Ctrl-C
    if (status != 0) return status;
    if (done < o.from) compare_identities(o.run, folder);
    LOCKSTEP_TRY(finding, compare(o, folder, began, *next));
    if (o.follow && finding.same)
      log_notice("replay: steps ", o.from, " to ", *next,
                 " are the same; those that the run has "
                 "made since come next");
    if (done < o.from) LOCKSTEP_RETURN_IF_ERROR(keep_own(folder, start, flags));
    done = *next;
  }
  std::cout << finding.text << "\n";
  return finding.same ? 0 : kExitDifferent;
}

Result<int> replay(Options o) {
  if (o.to == 0 && !o.follow) {
    LOCKSTEP_TRY(const RunLog logged, read_run_log(posix_file_system(), o.run));
    o.to = logged.steps.back().step;
  }
  if (o.to != 0 && o.to < o.from)
    return Error{Code::kConfig, text("--from ", o.from, " is behind the last step, ", o.to)};
  if (!o.out.empty()) return replay_in(o, o.out);
  LOCKSTEP_TRY(const auto scratch, launcher::ScratchFolder::create());
  return replay_in(o, scratch.path());
}

}  // namespace

int replay_command(int argc, char** argv) {
  Options o;
  CLI::App app{kAbout, "lockstep replay"};
  app.add_option("RUN", o.run, "Folder of the run")->required();
  app.add_option("--from", o.from, "First step to compare")->required()->check(CLI::PositiveNumber);
  app.add_option("--to", o.to,
                 "Last step; else the last one that the run logged, or will log (--follow)")
      ->check(CLI::PositiveNumber);
  app.add_option("--nproc-per-node", o.nproc, "Processes that compute")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  app.add_flag("--follow", o.follow, "Go on behind a run that still trains");
  app.add_option("--out", o.out, "Keep what was computed in this folder, a run's")
      ->type_name("DIR");
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const Result<int> status = replay(std::move(o));
  if (status.ok()) return status.value();
  log_error(status.error().message);
  return status_of_input(status.error().code);
}

}  // namespace lockstep::cli
