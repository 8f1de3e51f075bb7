#include "core/train/agreement.h"

#include <nlohmann/json.hpp>

#include "base/text.h"

namespace lockstep::core {

using nlohmann::ordered_json;

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
  const std::string prefix = text(prefix_, "/", round, "/");
  const ordered_json word = mine.ok() ? ordered_json{{"sums", mine.value().sums}}
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

}  // namespace lockstep::core
