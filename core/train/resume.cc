#include "core/train/resume.h"

#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "core/train/state_pieces.h"

namespace lockstep::core {
namespace {

using nlohmann::ordered_json;

// One rank's part of one candidate, loaded.
struct LoadedPart {
  checkpoint::Manifest manifest;
  checkpoint::Fingerprints sums;  // of what this rank alone holds; empty where every rank holds all
};

// What rank 0 proposes in round k: a directory, or that there is none left.
struct Proposal {
  std::string directory;
  int64_t next_generation = 1;
  std::string nonce;
  std::string refusal;  // checkpoints were committed and none can be used: what is wrong with each
};

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

std::string fresh_nonce() {
  const uint64_t now = static_cast<uint64_t>(system_clock().unix_ns());
  return hex64(mix64(now)).substr(0, 6);
}

class Agreement {
 public:
  Agreement(SharedStore& store, Communicator& comm, double timeout_s)
      : store_(store), comm_(comm), timeout_s_(timeout_s) {}

  Result<Proposal> share(size_t round, const Proposal& mine) {
    const std::string key = text("resume/", round);
    if (comm_.rank() == 0) {
      const ordered_json json{{"directory", mine.directory},
                              {"generation", mine.next_generation},
                              {"nonce", mine.nonce},
                              {"refusal", mine.refusal}};
      LOCKSTEP_RETURN_IF_ERROR(store_.set(key, json.dump()));
      return mine;
    }
    LOCKSTEP_TRY(const std::string value, store_.get(key, timeout_s_));
    const auto json = ordered_json::parse(value);
    return Proposal{json["directory"], json["generation"], json["nonce"], json["refusal"]};
  }

  // Every rank's outcome of round k: the first error in rank order, or none. The parts'
  // fingerprints add up to the whole tensors', which the manifest has.
  Result<std::optional<Error>> outcome(size_t round, const Result<LoadedPart>& mine) {
    const std::string prefix = text("resume/", round, "/");
    const ordered_json word = mine.ok()
                                  ? ordered_json{{"sums", mine.value().sums}}
                                  : ordered_json{{"code", static_cast<int>(mine.error().code)},
                                                 {"message", mine.error().message}};
    LOCKSTEP_RETURN_IF_ERROR(store_.set(text(prefix, comm_.rank()), word.dump()));
    std::optional<Error> first;
    checkpoint::Fingerprints whole;
    for (int r = 0; r < comm_.world_size(); ++r) {
      LOCKSTEP_TRY(const std::string said, store_.get(text(prefix, r), timeout_s_));
      const auto theirs = ordered_json::parse(said);
      if (theirs.contains("code") && !first)
        first = Error{static_cast<Code>(theirs["code"].get<int>()),
                      text("rank ", r, ": ", theirs["message"].get<std::string>())};
      if (theirs.contains("sums"))
        for (const auto& [tensor, sum] : theirs["sums"].get<checkpoint::Fingerprints>())
          whole[tensor] += sum;
    }
    if (first) return first;
    const auto same = checkpoint::check_fingerprints(mine.value().manifest, whole);
    return same.ok() ? std::optional<Error>() : std::optional<Error>(same.error());
  }

 private:
  SharedStore& store_;
  Communicator& comm_;
  double timeout_s_;
};

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
  Agreement agreement(store, comm, config.comm.init_timeout_seconds);
  std::vector<checkpoint::CatalogEntry> entries;
  if (comm.rank() == 0 && file_system.exists(config.checkpoint_folder())) {
    LOCKSTEP_TRY(entries, checkpoint::list_checkpoints(file_system, config.checkpoint_folder()));
    for (const auto& entry : entries)
      if (!entry.committed)
        log_warning("not usable: ", entry.directory.filename().string(), ": ", entry.problem);
  }
  Proposal mine{"", std::max<int64_t>(1, generation_hint),
                nonce_hint.empty() ? fresh_nonce() : nonce_hint, ""};
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
