#include "core/train/resume.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/attempt.h"
#include "checkpoint/selection.h"
#include "core/train/agreement.h"
#include "core/train/state_pieces.h"

namespace lockstep::core {
namespace {

using nlohmann::ordered_json;

// Committed once (they have a manifest) and not usable now, a line each.
std::string damaged_text(FileSystem& file_system,
                         const std::vector<checkpoint::CatalogEntry>& entries) {
  std::string all;
  for (const auto& entry : entries)
    if (!entry.committed && file_system.exists(entry.directory / "manifest.json"))
      all += text("\n  ", entry.directory.string(), ": ", entry.problem);
  return all;
}

// Training on from step 0 would in time let retention remove what could still be mended.
Error refuse_to_start_over(const Config& config, const std::string& damaged) {
  return {Code::kConfig,
          text("there are checkpoints in ", config.checkpoint_folder().string(),
               " and none can be used; mend one, or move the folder away to start from step 0:",
               damaged)};
}

Result<LoadedPart> load_candidate(FileSystem& file_system, const Config& config,
                                  const std::string& directory, TrainingStep& step,
                                  Resumed& resumed) {
  LoadedPart part;
  LOCKSTEP_TRY(part.manifest, checkpoint::read_manifest(file_system, directory));
  LOCKSTEP_TRY(resumed.state, TrainerState::from_json(part.manifest.trainer_state));
  if (resumed.state.slots != config.slots())
    return Error{Code::kConfig,
                 text("the run in ", directory, " has ", resumed.state.slots,
                      " slots a step and the config says ", config.slots(),
                      "; the number of slots is part of the run: give --training.slots ",
                      resumed.state.slots, ", or start a new run with another --job.dump_folder")};
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::check_match(part.manifest, model_pieces(step.units()),
                                                   parameter_names(step.units())));
  const std::vector<checkpoint::LiveTarget> targets = held_targets(step.units(), false);
  LOCKSTEP_TRY(const auto statistics,
               checkpoint::load_pieces(file_system, directory, part.manifest, targets,
                                       checkpoint::reader_threads()));
  resumed.read_bytes = statistics.read_bytes;
  resumed.directory = directory;
  if (!Strategy::create(config).replicate_state) part.sums = statistics.sums;
  return part;
}

}  // namespace

std::string TrainerState::to_json() const {
  return ordered_json{{"step", step},
                      {"slots", slots},
                      {"tokens", tokens},
                      {"skipped_steps", skipped_steps},
                      {"identity", identity}}
      .dump();
}

Result<TrainerState> TrainerState::from_json(const std::string& json) {
  const auto j = ordered_json::parse(json, nullptr, /*allow_exceptions=*/false);
  const bool whole = j.is_object() && j.contains("step") && j.contains("slots") &&
                     j.contains("tokens") && j.contains("skipped_steps") && j.contains("identity");
  if (!whole)
    return Error{Code::kCorrupt, text("the manifest's trainer state is not one of ours: ", json)};
  TrainerState s;
  s.step = j["step"];
  s.slots = j["slots"];
  s.tokens = j["tokens"];
  s.skipped_steps = j["skipped_steps"];
  s.identity = j["identity"].get<std::vector<std::string>>();
  return s;
}

Result<Resumed> resume_newest(FileSystem& file_system, const Config& config, SharedStore& store,
                              Communicator& comm, TrainingStep& step, const std::string& nonce_hint,
                              int64_t generation_hint) {
  const double start = system_clock().monotonic_s();
  Agreement agreement(store, comm, config.comm.init_timeout_seconds, "resume");
  std::vector<checkpoint::CatalogEntry> entries;
  if (comm.rank() == 0 && file_system.exists(config.checkpoint_folder())) {
    LOCKSTEP_TRY(entries, checkpoint::list_checkpoints(file_system, config.checkpoint_folder()));
    for (const auto& entry : entries)
      if (!entry.committed)
        log_warning("not usable: ", entry.directory.filename().string(), ": ", entry.problem);
  }
  Proposal mine{"", std::max<int64_t>(1, generation_hint),
                nonce_hint.empty() ? checkpoint::fresh_nonce(system_clock()) : nonce_hint, ""};
  for (const auto& entry : entries)
    mine.next_generation = std::max(mine.next_generation, entry.generation + 1);
  std::string damaged = damaged_text(file_system, entries);
  std::erase_if(entries, [](const auto& entry) { return !entry.committed; });
  Resumed resumed;
  for (size_t round = 0;; ++round) {
    mine.directory = round < entries.size() ? entries[round].directory.string() : "";
    if (mine.directory.empty()) mine.refusal = damaged;
    LOCKSTEP_TRY(const Proposal agreed, agreement.share(round, mine));
    resumed.next_generation = agreed.next_generation;
    resumed.nonce = agreed.nonce;
    if (!agreed.refusal.empty()) return refuse_to_start_over(config, agreed.refusal);
    if (agreed.directory.empty()) break;
    const Result<LoadedPart> loaded =
        load_candidate(file_system, config, agreed.directory, step, resumed);
    LOCKSTEP_TRY(const std::optional<Error> failure, agreement.outcome(round, loaded));
    if (!failure) break;
    if (failure->code == Code::kConfig) return *failure;
    if (comm.rank() == 0)
      log_error("cannot use ", agreed.directory, ": ", failure->message,
                "; falling back to the checkpoint before it");
    damaged += text("\n  ", agreed.directory, ": ", failure->message);
    ++resumed.fallbacks;
    resumed.state = TrainerState{};
    resumed.directory.clear();
  }
  resumed.seconds = system_clock().monotonic_s() - start;
  return resumed;
}

}  // namespace lockstep::core
