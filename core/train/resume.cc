#include "core/train/resume.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/again.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/load/chunk_reader.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/load/selection.h"
#include "checkpoint/record/attempt.h"
#include "checkpoint/record/suspects.h"
#include "checkpoint/snapshot/memory_tier.h"
#include "config/same_training.h"
#include "core/train/agreement.h"
#include "core/train/identity.h"
#include "core/train/snapshot_load.h"
#include "core/train/state_pieces.h"

namespace lockstep::core {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kMostSamples = int64_t{1} << 60;  // of a run

// Committed once (they have or had a manifest) and not usable now, a line each.
std::string damaged_text(const std::vector<checkpoint::CatalogEntry>& entries) {
  std::string all;
  for (const auto& entry : entries)
    if (!entry.committed && (entry.has_manifest || entry.lost_manifest))
      all += text("\n  ", entry.directory.string(), ": ", entry.problem);
  return all;
}

// Training on from step 0 would in time let retention remove what could still be mended. What the
// operating system would not read now it may read after a restart.
Error refuse_to_start_over(const Config& config, const Proposal& refused) {
  return {refused.unread ? Code::kIo : Code::kConfig,
          text("no checkpoint in ", config.checkpoint_folder().string(),
               " can be used; repair one, or move the folder away to start from step 0:",
               refused.refusal)};
}

Result<std::vector<checkpoint::CatalogEntry>> list_all(FileSystem& file_system,
                                                       const std::filesystem::path& folder) {
  std::vector<checkpoint::CatalogEntry> entries;
  const auto listed = again_while_refused(system_clock(), [&]() -> Result<void> {
    LOCKSTEP_TRY(entries, checkpoint::list_from_newest(file_system, folder));
    for (const auto& entry : entries)
      if (entry.unread) return Error{Code::kIo, entry.problem};
    return {};
  });
  // Of the folder itself. One that is not there holds none.
  if (!listed.ok() && entries.empty() && listed.error().code != Code::kNotFound)
    return listed.error();
  return entries;
}

Result<std::vector<checkpoint::Suspects>> read_suspects_of(FileSystem& file_system,
                                                           const Config& config) {
  std::vector<checkpoint::Suspects> found;
  LOCKSTEP_RETURN_IF_ERROR(again_while_refused(system_clock(), [&]() -> Result<void> {
    LOCKSTEP_TRY(found, checkpoint::read_suspects(file_system, config.checkpoint_folder()));
    return {};
  }));
  return found;
}

Result<TrainerState> state_of(const checkpoint::Manifest& manifest, const std::string& where) {
  auto state = TrainerState::from_json(manifest.trainer_state);
  if (!state) return state.error().in(where);
  if (state.value().step != manifest.step)
    return Error{Code::kCorrupt, text(where, ": the manifest is of step ", manifest.step,
                                      " and its trainer state is of step ", state.value().step)};
  return state;
}

Result<TrainerState> same_run(const checkpoint::Manifest& manifest, const Config& config,
                              const std::string& where) {
  LOCKSTEP_TRY(TrainerState state, state_of(manifest, where));
  LOCKSTEP_RETURN_IF_ERROR(can_go_on(state.identity, state.slots, config, where));
  return state;
}

// "memory (generation 3, 2 part(s), 1 of them kept by a buddy)"
std::string snapshot_name(const checkpoint::Snapshot& snapshot) {
  size_t from_buddies = 0;
  for (const auto& homes : snapshot.homes) from_buddies += homes.front().buddy;
  return text("memory (generation ", snapshot.whole.generation, ", ", snapshot.homes.size(),
              " part(s), ",
              from_buddies == 0 ? "all from the ranks' own nodes"
                                : text(from_buddies, " of them kept by a buddy"),
              ")");
}

// One rank's view of what it loads from, collective where `load_snapshot` is.
struct Loader {
  FileSystem& file_system;
  const Config& config;
  const MemoryPlace* memory;
  Communicator& comm;
  TrainingStep& step;

  // All that is trained, and nothing else: a resume with fewer adapters or layers would drop some.
  Result<void> check_tensors(const checkpoint::Manifest& manifest, const TrainerState& state) {
    const auto matched =
        checkpoint::check_match(manifest, model_pieces(step.units()), parameter_names(step.units()),
                                checkpoint::Surplus::kRefused);
    const std::string other = matched.ok() ? "" : other_model(state.identity, config);
    if (other.empty()) return matched;
    return Error{matched.error().code, other};
  }

  Result<LoadedPart> from_disk(const std::string& directory, Resumed& resumed) {
    LoadedPart part;
    const std::vector<checkpoint::LiveTarget> targets = owned_targets(step.units(), false);
    LOCKSTEP_TRY(part.manifest, checkpoint::read_manifest_for(file_system, directory, targets));
    LOCKSTEP_TRY(resumed.state, same_run(part.manifest, config, directory));
    LOCKSTEP_RETURN_IF_ERROR(check_tensors(part.manifest, resumed.state));
    LOCKSTEP_TRY(const auto statistics,
                 checkpoint::load_pieces(file_system, directory, part.manifest, targets,
                                         checkpoint::reader_threads()));
    resumed.read_bytes = statistics.read_bytes;
    resumed.from = directory;
    part.sums = statistics.sums;
    return part;
  }

  Result<LoadedPart> from_memory(const checkpoint::Snapshot& snapshot, Resumed& resumed) {
    LoadedPart part;
    part.manifest = snapshot.whole;
    resumed.from = snapshot_name(snapshot);
    LOCKSTEP_TRY(resumed.state, same_run(part.manifest, config, resumed.from));
    LOCKSTEP_RETURN_IF_ERROR(check_tensors(part.manifest, resumed.state));
    const std::vector<checkpoint::LiveTarget> targets = owned_targets(step.units(), false);
    const auto load = load_snapshot(file_system, *memory, snapshot, comm, targets);
    if (!load.ok()) return load.error();
    resumed.read_bytes = load.value().local_bytes + load.value().fetched_bytes;
    resumed.snapshot_folder =
        checkpoint::snapshot_folder_name(snapshot.whole.generation, snapshot.whole.nonce);
    part.sums = checkpoint::fingerprints(targets);
    return part;
  }

  Result<LoadedPart> load(const Proposal& agreed, Resumed& resumed) {
    if (agreed.snapshot.empty())
      return again_while_refused(system_clock(),
                                 [&] { return from_disk(agreed.directory, resumed); });
    LOCKSTEP_TRY(const auto snapshot, checkpoint::parse_snapshot(agreed.snapshot));
    return from_memory(snapshot, resumed);
  }
};

// What rank 0 proposes, round after round; the last one says that nothing is left.
struct Candidates {
  std::vector<Proposal> rounds;
  std::string damaged;  // checkpoints that were committed and cannot be used, a line each
  bool unread = false;  // and of one of them the operating system refused a read
};

Result<Candidates> find_candidates(FileSystem& file_system, const Config& config,
                                   const std::vector<checkpoint::Inventory>& in_memory,
                                   Proposal common) {
  LOCKSTEP_TRY(auto entries, list_all(file_system, config.checkpoint_folder()));
  for (const auto& entry : entries) {
    if (entry.suspect)
      log_warning("skipping checkpoint ", entry.directory.filename().string(), ": it is suspect (",
                  checkpoint::kSuspectsName, ")");
    else if (!entry.committed)
      log_warning("skipping unusable checkpoint ", entry.directory.filename().string(), ": ",
                  entry.problem);
    common.next_generation = std::max(common.next_generation, entry.generation + 1);
  }
  std::erase_if(entries, [](const auto& entry) { return entry.suspect; });
  for (const auto& inventory : in_memory)
    common.next_generation = std::max(common.next_generation, inventory.last_generation + 1);
  const checkpoint::DiskState disk = checkpoint::disk_state(entries);
  common.disk_step = disk.step;

  Candidates found{{}, damaged_text(entries)};
  for (const auto& entry : entries) found.unread = found.unread || entry.unread;
  std::vector<std::string> passed_over;
  LOCKSTEP_TRY(const auto suspects, read_suspects_of(file_system, config));
  for (const auto& snapshot : checkpoint::usable_snapshots(in_memory, disk, passed_over)) {
    if (checkpoint::is_suspect(suspects, snapshot.whole.step, snapshot.whole.generation)) {
      passed_over.push_back(text("step ", snapshot.whole.step, ": it is suspect"));
      continue;
    }
    found.rounds.push_back(common);
    found.rounds.back().snapshot = checkpoint::snapshot_text(snapshot);
  }
  for (const std::string& why : passed_over) log_info("skipping a snapshot in memory: ", why);
  for (const auto& entry : entries) {
    if (!entry.committed) continue;
    found.rounds.push_back(common);
    found.rounds.back().directory = entry.directory.string();
  }
  found.rounds.push_back(common);
  return found;
}

// Of a run whose data never changed: its identity says what they are. Sources are "" where it does
// not.
data::DataStretch only_stretch(const TrainerState& state) {
  data::DataStretch stretch;
  for (const std::string& line : state.identity) {
    const size_t equals = line.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = line.substr(0, equals), value = line.substr(equals + 1);
    if (name == "training.seq_len") stretch.seq_len = std::atoll(value.c_str());
    if (name == "training.local_batch_size")
      stretch.samples_per_step = state.slots * std::atoll(value.c_str());
    if (name == "data.manifest") stretch.sources = value;
  }
  return stretch;
}

constexpr int64_t kMostSteps = int64_t{1} << 48;

// Reads the members of a JSON object that somebody else may have made. What is not there stays as
// it is; what has another type, or is out of range, is remembered.
class StateFields {
 public:
  explicit StateFields(const ordered_json& object) : object_(object) {
    if (!object.is_object()) wrong_ = "validations";
  }
  const std::string& wrong() const { return wrong_; }  // "": nothing
  void also(const StateFields& other) {
    if (wrong_.empty()) wrong_ = other.wrong_;
  }

  void integer(const char* name, int64_t& value, int64_t least,
               int64_t most = std::numeric_limits<int64_t>::max()) {
    if (const auto* found = find(name)) check(name, is_integer(*found, value, least, most));
  }
  void number(const char* name, double& value) {
    const auto* found = find(name);
    if (found == nullptr) return;
    check(name, found->is_number());
    if (found->is_number()) value = *found;
  }
  void boolean(const char* name, bool& value) {
    const auto* found = find(name);
    if (found == nullptr) return;
    check(name, found->is_boolean());
    if (found->is_boolean()) value = *found;
  }
  void list(const char* name, std::vector<int64_t>& values) {
    if (const auto* found = find(name)) check(name, is_list(*found, values));
  }
  void words(const char* name, std::vector<std::string>& values) {
    const auto* found = find(name);
    if (found == nullptr) return;
    bool good = found->is_array();
    for (const auto& word : good ? *found : ordered_json::array()) {
      good = good && word.is_string();
      if (good) values.push_back(word);
    }
    check(name, good);
  }
  // [[first step, samples a step, tokens of a sample, sources] or […, numbers by source], …]
  void stretches(const ordered_json& all, TrainerState& state) {
    bool good = all.is_array();
    int64_t least = 0;
    for (const auto& each : good ? all : ordered_json::array()) {
      data::DataStretch s;
      good = good && each.is_array() && each.size() >= 4 && each.size() <= 5 &&
             is_integer(each[0], s.first_step, least, state.step) &&
             is_integer(each[1], s.samples_per_step, 1,
                        kMostSamples / std::max<int64_t>(1, state.step)) &&
             is_integer(each[2], s.seq_len, 1, kMostSteps) && each[3].is_string();
      if (!good) break;
      s.sources = each[3];
      const auto sources = std::count(s.sources.begin(), s.sources.end(), ',') + 1;
      good = each.size() == 4 || (is_list(each[4], s.before) && std::ssize(s.before) == sources);
      least = s.first_step + 1;
      state.stretches.push_back(std::move(s));
    }
    check("data", good);
  }

 private:
  const ordered_json* find(const char* name) const {
    const auto found = object_.is_object() ? object_.find(name) : object_.end();
    return found == object_.end() ? nullptr : &*found;
  }
  void check(const char* name, bool good) {
    if (!good && wrong_.empty()) wrong_ = name;
  }
  static bool is_integer(const ordered_json& found, int64_t& value, int64_t least, int64_t most) {
    if (!found.is_number_integer()) return false;
    value = found;  // one beyond the range of int64 becomes negative
    return value >= least && value <= most;
  }
  static bool is_list(const ordered_json& found, std::vector<int64_t>& values) {
    if (!found.is_array()) return false;
    for (const auto& item : found)
      if (!is_integer(item, values.emplace_back(), 0, kMostSamples)) return false;
    return true;
  }

  const ordered_json& object_;
  std::string wrong_;
};

}  // namespace

std::string TrainerState::to_json() const {
  ordered_json json{{"step", step},           {"slots", slots},
                    {"tokens", tokens},       {"skipped_steps", skipped_steps},
                    {"skip_list", skip_list}, {"identity", identity}};
  if (audited_step >= 0) json["audited_step"] = audited_step;
  if (audit_found) json["audit_found"] = true;
  if (validations.step >= 0) {
    const Validations& v = validations;
    ordered_json& all = json["validations"] = {{"step", v.step}, {"without_gain", v.without_gain}};
    if (std::isfinite(v.loss)) all["loss"] = v.loss;
    if (v.best_step >= 0) all.update({{"best_step", v.best_step}, {"best_loss", v.best_loss}});
  }
  if (stretches.size() > 1)
    for (const data::DataStretch& s : stretches) {
      json["data"].push_back({s.first_step, s.samples_per_step, s.seq_len, s.sources});
      if (!s.before.empty()) json["data"].back().push_back(s.before);
    }
  return json.dump();
}

Result<TrainerState> TrainerState::from_json(const std::string& json) {
  const auto j = parse_json<ordered_json>(json, /*allow_exceptions=*/false);
  const bool whole = j.is_object() && j.contains("step") && j.contains("slots") &&
                     j.contains("tokens") && j.contains("skipped_steps") && j.contains("identity");
  if (!whole)
    return Error{Code::kCorrupt, text("cannot parse the trainer state of the manifest: ", json)};
  StateFields of(j);
  TrainerState s;
  of.integer("step", s.step, 0, kMostSteps);
  of.integer("slots", s.slots, 1, kMostSteps);
  of.integer("tokens", s.tokens, 0);
  of.integer("skipped_steps", s.skipped_steps, 0, s.step);
  of.list("skip_list", s.skip_list);                           // older versions know none
  of.integer("audited_step", s.audited_step, -1, s.step + 1);  // the step that ended the run
  of.boolean("audit_found", s.audit_found);
  if (const auto all = j.find("validations"); all != j.end()) {
    StateFields said(*all);
    Validations& v = s.validations;
    said.integer("step", v.step, -1);
    said.number("loss", v.loss);
    said.integer("best_step", v.best_step, -1);
    said.number("best_loss", v.best_loss);
    said.integer("without_gain", v.without_gain, 0);
    of.also(said);
  }
  of.words("identity", s.identity);
  if (const auto all = j.find("data"); all != j.end()) of.stretches(*all, s);
  if (!of.wrong().empty())
    return Error{Code::kCorrupt, text("the manifest's trainer state is damaged: \"", of.wrong(),
                                      "\" has a wrong type or is out of range")};
  if (const auto only = only_stretch(s); s.stretches.empty() && !only.sources.empty())
    s.stretches.push_back(only);
  return s;
}

Result<Resumed> resume_newest(FileSystem& file_system, const Config& config,
                              const ResumeOptions& options, SharedStore& store, Communicator& comm,
                              TrainingStep& step) {
  const double start = system_clock().monotonic_s();
  Agreement agreement(store, comm, config.comm.init_timeout_seconds,
                      text("resume/", options.attempt));
  Candidates candidates{{Proposal()}, ""};
  std::vector<checkpoint::Inventory> in_memory;
  if (options.memory != nullptr) {
    LOCKSTEP_TRY(in_memory, take_inventory(file_system, *options.memory, store));
  }
  if (comm.rank() == 0) {
    Proposal common;
    common.next_generation = std::max<int64_t>(1, options.generation_hint);
    common.nonce =
        options.nonce_hint.empty() ? checkpoint::fresh_nonce(system_clock()) : options.nonce_hint;
    LOCKSTEP_TRY(candidates, find_candidates(file_system, config, in_memory, common));
  }
  Loader loader{file_system, config, options.memory, comm, step};
  Resumed resumed;
  for (size_t round = 0;; ++round) {
    LOCKSTEP_CHECK(
        !candidates.rounds.empty() && (comm.rank() != 0 || round < candidates.rounds.size()),
        "round ", round, " of ", candidates.rounds.size());
    Proposal& mine = candidates.rounds[std::min(round, candidates.rounds.size() - 1)];
    const bool nothing_left = mine.snapshot.empty() && mine.directory.empty();
    if (nothing_left) {
      mine.refusal = candidates.damaged;
      mine.unread = candidates.unread;
    }
    LOCKSTEP_TRY(const Proposal agreed, agreement.share(round, mine));
    resumed.next_generation = agreed.next_generation;
    resumed.nonce = agreed.nonce;
    resumed.disk_step = agreed.disk_step;
    if (!agreed.refusal.empty()) return refuse_to_start_over(config, agreed);
    if (agreed.directory.empty() && agreed.snapshot.empty()) break;
    const Result<LoadedPart> loaded = loader.load(agreed, resumed);
    LOCKSTEP_TRY(const std::optional<Error> failure, agreement.outcome(round, loaded));
    if (!failure) break;
    // Another model on disk ends the run; a snapshot only stands in for the disk.
    if (failure->code == Code::kConfig && agreed.snapshot.empty()) return *failure;
    const std::string what = agreed.snapshot.empty() ? agreed.directory : "a snapshot in memory";
    if (comm.rank() == 0)
      log_error("cannot use ", what, ": ", failure->message, "; falling back to the one before it");
    if (agreed.snapshot.empty()) {
      candidates.damaged += text("\n  ", what, ": ", failure->message);
      candidates.unread = candidates.unread || failure->code == Code::kIo;
    }
    resumed.state = TrainerState{};
    resumed.from.clear();
    resumed.snapshot_folder.clear();
    ++resumed.fallbacks;
  }
  resumed.seconds = system_clock().monotonic_s() - start;
  return resumed;
}

}  // namespace lockstep::core
