#include "core/train/agreement.h"

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/ballot/verdict.h"
#include "core/comm/gather_words.h"
#include "core/train/store_ballot.h"

namespace lockstep::core {

using nlohmann::ordered_json;

Result<std::optional<Error>> settle_for_all(
    checkpoint::Ballot& ballot, Communicator& comm, const std::string& key,
    const Result<checkpoint::Fingerprints>& mine,
    const std::function<Result<void>(const checkpoint::Fingerprints&)>& check,
    std::chrono::milliseconds deadline) {
  LOCKSTEP_TRY(auto wrong,
               checkpoint::settle(ballot, key, comm.rank(), comm.world_size(),
                                  checkpoint::Verdict::of(comm.rank(), mine), check, deadline));
  if (wrong) (void)gather_words(comm, {0}).ok();  // what fails here changes nothing
  return wrong;
}

Result<void> all_well(SharedStore& store, Communicator& comm, const std::string& key,
                      const Result<void>& mine, double timeout_s) {
  using Sums = Result<checkpoint::Fingerprints>;
  StoreBallot ballot(store);
  LOCKSTEP_TRY(
      const std::optional<Error> wrong,
      settle_for_all(
          ballot, comm, key, mine.ok() ? Sums(checkpoint::Fingerprints()) : Sums(mine.error()),
          [](const checkpoint::Fingerprints&) { return Result<void>(); },
          std::chrono::milliseconds(static_cast<int64_t>(timeout_s * 1000))));
  if (wrong) return *wrong;
  return {};
}

Result<Proposal> Agreement::share(size_t round, const Proposal& mine) {
  const std::string key = text(prefix_, "/", round);
  if (comm_.rank() == 0) {
    const ordered_json json{{"snapshot", mine.snapshot},   {"directory", mine.directory},
                            {"disk_step", mine.disk_step}, {"generation", mine.next_generation},
                            {"nonce", mine.nonce},         {"refusal", mine.refusal},
                            {"unread", mine.unread}};
    LOCKSTEP_RETURN_IF_ERROR(store_.set(key, json.dump()));
    return mine;
  }
  LOCKSTEP_TRY(const std::string value, store_.get(key, timeout_s_));
  const auto json = ordered_json::parse(value);
  return Proposal{json["snapshot"], json["directory"], json["disk_step"], json["generation"],
                  json["nonce"],    json["refusal"],   json["unread"]};
}

Result<std::optional<Error>> Agreement::outcome(size_t round, const Result<LoadedPart>& mine) {
  using checkpoint::Fingerprints;
  const auto sums = mine.ok() ? Result<Fingerprints>(mine.value().sums) : mine.error();
  StoreBallot ballot(store_);
  auto settled = checkpoint::settle(
      ballot, text(prefix_, "/", round), comm_.rank(), comm_.world_size(),
      checkpoint::Verdict::of(comm_.rank(), sums),
      [&](const Fingerprints& whole) {
        return checkpoint::check_fingerprints(mine.value().manifest, whole);
      },
      std::chrono::milliseconds(static_cast<int64_t>(timeout_s_ * 1000)));
  const bool failed = settled.ok() && settled.value() && !mine.ok();
  if (failed) settled.value()->message = mine.error().message;  // the log says whose it is
  return settled;
}

}  // namespace lockstep::core
