#include "checkpoint/save/vote.h"

#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/number.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

using nlohmann::json;

// What the parts must agree on, with a name for the message.
std::string disagreement(const Manifest& a, const Manifest& b) {
  if (a.step != b.step) return text("step: ", a.step, " and ", b.step);
  if (a.generation != b.generation) return text("generation: ", a.generation, ", ", b.generation);
  if (a.nonce != b.nonce) return text("nonce: ", a.nonce, " and ", b.nonce);
  if (a.world_size != b.world_size) return text("world size: ", a.world_size, ", ", b.world_size);
  if (a.codec != b.codec) return text("codec: ", a.codec, " and ", b.codec);
  if (a.ephemeral != b.ephemeral) return "whether the checkpoint is ephemeral";
  if (a.validation_loss != b.validation_loss) return "validation loss";
  if (a.chunking != b.chunking) return "chunk size";
  if (a.trainer_state != b.trainer_state)
    return text("trainer state: ", a.trainer_state, " and ", b.trainer_state);
  return "";
}

uint64_t number_of(const std::string& hex) { return parse_number<uint64_t>(hex, 16).value(); }

Result<void> add_tensors(const Manifest& part, std::map<std::string, ManifestTensor>& whole) {
  for (const ManifestTensor& tensor : part.tensors) {
    ManifestTensor& sum =
        whole.try_emplace(tensor.name, ManifestTensor{tensor.name, tensor.global_shape, {}, {}})
            .first->second;
    if (sum.global_shape != tensor.global_shape)
      return Error{Code::kBug,
                   text(tensor.name, ": shape ", shape_text(tensor.global_shape), " on this rank, ",
                        shape_text(sum.global_shape), " on another rank")};
    for (const auto& [kind, hex] : tensor.fingerprint) {
      const Dtype here = tensor.dtype_of(*kind_from_name(kind));
      if (sum.fingerprint.contains(kind) && sum.dtype_of(*kind_from_name(kind)) != here)
        return Error{Code::kBug, text(kind, "/", tensor.name, " is ", dtype_word(here),
                                      " on this rank and has another type on another rank")};
      if (here != Dtype::kF32) sum.dtypes[kind] = here;
      std::string& total = sum.fingerprint[kind];
      total = hex64((total.empty() ? 0 : number_of(total)) + number_of(hex));
    }
  }
  return {};
}

}  // namespace

std::string vote_text(const Vote& vote) {
  LOCKSTEP_CHECK(vote.rank >= 0 && (!vote.disk_full || !vote.error.empty()), "rank ", vote.rank,
                 " votes for a save on a full disk");
  json j{{"rank", vote.rank}, {"error", vote.error}, {"disk_full", vote.disk_full}};
  if (vote.error.empty()) j["part"] = manifest_text(vote.part);
  return dump_json(j);
}

Result<Vote> parse_vote(const std::string& contents) {
  const json j = parse_json(contents, /*allow_exceptions=*/false);
  Vote vote;
  try {
    vote.rank = j.at("rank");
    vote.error = j.at("error");
    vote.disk_full = j.at("disk_full");
    if (!vote.error.empty()) return vote;
    LOCKSTEP_TRY(vote.part, parse_manifest(j.at("part"), Coverage::kPart));
  } catch (const json::exception& e) {
    return Error{Code::kCorrupt, text("cannot parse the vote of a rank: ", e.what())};
  }
  return vote;
}

Result<Manifest> merge_votes(const std::vector<Vote>& votes, Coverage coverage) {
  LOCKSTEP_CHECK(!votes.empty(), "nobody voted");
  std::string failed;
  bool disk_full = false;
  for (const Vote& vote : votes) {
    disk_full = disk_full || vote.disk_full;
    if (!vote.error.empty())
      failed += text(failed.empty() ? "" : "; ", "rank ", vote.rank, ": ", vote.error);
  }
  if (!failed.empty()) return Error{disk_full ? Code::kNoSpace : Code::kIo, failed};
  Manifest whole = votes.front().part;
  whole.files.clear();
  whole.parts.clear();
  whole.tensors.clear();
  std::map<std::string, ManifestTensor> tensors;
  for (const Vote& vote : votes) {
    const std::string differs = disagreement(votes.front().part, vote.part);
    if (!differs.empty())
      return Error{Code::kBug,
                   text("ranks ", votes.front().rank, " and ", vote.rank, " differ in ", differs)};
    if (auto added = add_tensors(vote.part, tensors); !added.ok())
      return added.error().in(text("rank ", vote.rank));
    whole.files.insert(whole.files.end(), vote.part.files.begin(), vote.part.files.end());
    whole.parts.insert(whole.parts.end(), vote.part.parts.begin(), vote.part.parts.end());
  }
  if (!whole.files.empty() && !whole.parts.empty())
    return Error{Code::kBug, "some ranks voted with manifest parts and others without"};
  std::vector<ManifestTensor> sorted;
  for (auto& [name, tensor] : tensors) sorted.push_back(std::move(tensor));
  whole.set_tensors(std::move(sorted));
  LOCKSTEP_CHECK(whole.tensors.size() == tensors.size() && whole.step == votes.back().part.step,
                 whole.tensors.size(), " tensors of ", tensors.size(), ", step ", whole.step);
  if (coverage == Coverage::kWhole) LOCKSTEP_RETURN_IF_ERROR(check_coverage(whole));
  return whole;
}

std::string outcome_text(const Result<void>& committed) {
  const std::string error = committed.ok() ? "" : committed.error().message;
  const bool disk_full = !committed.ok() && committed.error().code == Code::kNoSpace;
  const json j{{"committed", committed.ok()}, {"error", error}, {"disk_full", disk_full}};
  return dump_json(j);
}

Result<void> parse_outcome(const std::string& contents) {
  const json j = parse_json(contents, /*allow_exceptions=*/false);
  if (!j.is_object() || !j.contains("committed") || !j["committed"].is_boolean())
    return Error{Code::kCorrupt, text("cannot parse the outcome of rank 0: ", contents)};
  if (j["committed"].get<bool>()) return {};
  const bool disk_full = j.contains("disk_full") && j["disk_full"] == true;
  return Error{disk_full ? Code::kNoSpace : Code::kIo, j.value("error", "not committed")};
}

bool is_stale(const Manifest& previous, const Manifest& next, int64_t updates_between) {
  if (updates_between == 0 || previous.tensors.size() != next.tensors.size()) return false;
  for (size_t i = 0; i < next.tensors.size(); ++i)
    if (previous.tensors[i].name != next.tensors[i].name ||
        previous.tensors[i].fingerprint != next.tensors[i].fingerprint)
      return false;
  return true;
}

}  // namespace lockstep::checkpoint
