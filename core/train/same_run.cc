#include "core/train/same_run.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "base/hash.h"
#include "base/text.h"
#include "config/identity_difference.h"
#include "core/train/identity.h"

namespace lockstep::core {
namespace {

constexpr size_t kNamedKeys = 4, kNamedRanks = 8;  // of an error
constexpr char kEnd = '\0';                        // of a line; values may hold anything else

std::string joined(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all.append(line).push_back(kEnd);
  return all;
}

std::vector<std::string> separate(const std::string& all) {
  std::vector<std::string> lines = split(all, kEnd);
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

// The ranks whose lines are not rank 0's.
Result<std::vector<int>> odd_ranks(const std::string& mine, Communicator& comm) {
  const at::Tensor hash = at::full({1}, static_cast<int64_t>(xxh3_64(mine)), at::kLong);
  const at::Tensor hashes_W = at::empty({comm.world_size()}, at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(comm.all_gather(hashes_W, hash)->wait());
  const int64_t* hash_of = hashes_W.const_data_ptr<int64_t>();
  std::vector<int> odd;
  for (int r = 1; r < comm.world_size(); ++r)
    if (hash_of[r] != hash_of[0]) odd.push_back(r);
  return odd;
}

}  // namespace

std::string run_difference(const std::string& what, const std::vector<int>& odd,
                           const std::vector<std::string>& rank_0s,
                           const std::vector<std::string>& theirs) {
  const int rank = odd.front();
  std::string out = text("rank ", rank, " has a different ", what, " than rank 0: ");
  const std::vector<LineDifference> differing = differing_lines(rank_0s, theirs);
  for (size_t i = 0; i < std::min(differing.size(), kNamedKeys); ++i)
    out += text(i == 0 ? "" : "; ", differing[i].name, " is ", differing[i].is, ", and ",
                differing[i].was, " on rank 0");
  if (differing.size() > kNamedKeys) out += text("; and ", differing.size() - kNamedKeys, " more");
  for (size_t i = 1; i < std::min(odd.size(), kNamedRanks); ++i)
    out += text(i == 1 ? ". These also differ from rank 0: " : ", ", odd[i]);
  if (odd.size() > kNamedRanks) out += text(" and ", odd.size() - kNamedRanks, " more");
  return out +
         ". All ranks of a job must compute the same run: start each with the same config, "
         "on the same kind of device";
}

Result<void> check_same_run(const std::string& what, const std::vector<std::string>& lines,
                            Communicator& comm, SharedStore& store, double timeout_s) {
  if (comm.world_size() == 1) return {};
  const std::string mine = joined(lines);
  LOCKSTEP_TRY(const std::vector<int> odd, odd_ranks(mine, comm));
  if (odd.empty()) return {};
  const std::string prefix = text("same_run/", what, "/");
  if (comm.rank() == 0) LOCKSTEP_RETURN_IF_ERROR(store.set(prefix + "rank0", mine));
  if (comm.rank() == odd.front()) {
    LOCKSTEP_TRY(const std::string rank_0s, store.get(prefix + "rank0", timeout_s));
    LOCKSTEP_RETURN_IF_ERROR(
        store.set(prefix + "word", run_difference(what, odd, separate(rank_0s), lines)));
  }
  LOCKSTEP_TRY(std::string word, store.get(prefix + "word", timeout_s));
  (void)odd_ranks("", comm).ok();  // who is not there any more has its reason
  return Error{Code::kConfig, std::move(word)};
}

}  // namespace lockstep::core
