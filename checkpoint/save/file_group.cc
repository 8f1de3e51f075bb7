#include "checkpoint/save/file_group.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::chrono::milliseconds kRingPoll{500};  // at whether to go on waiting

std::string ring_key(const std::string& attempt, int rank) {
  return text("save/", attempt, "/chunks/", rank);
}

// Where the page of rank `of` is, for rank `to`: each is heard once.
std::string page_key(int of, int to) { return text("save/page_of/", of, "/for/", to); }

// `page`: of the rank that is heard, where it is known.
Result<std::string> hear_address(Ballot& ballot, const std::string& key, const char* of_what,
                                 const SharedRegion* page, const Patience& patience) {
  std::chrono::milliseconds left = patience.deadline;
  while (!*patience.gave_up) {
    // Who dies does nothing after: what it said before is heard, if it is asked for afterwards.
    const bool lives = page == nullptr || page->creator_lives();
    auto words = ballot.hear(key, std::min(left, kRingPoll));
    if (words.ok()) ballot.forget(key);
    if (words.ok() || words.error().code != Code::kTimeout) return words;
    if (!lives) return Error{Code::kIo, "its process died"};
    left -= std::min(left, kRingPoll);
    if (left.count() == 0)
      return Error{Code::kTimeout,
                   text("did not say within ", patience.deadline.count(), " ms where ", of_what)};
  }
  return Error{Code::kAborted, "the engine was stopped"};
}

Result<std::string> hear_of_chunks(Ballot& ballot, const std::string& key, const SharedRegion& page,
                                   const Patience& patience) {
  auto words = hear_address(ballot, key, "its chunks are", &page, patience);
  if (words.ok() && words.value().empty()) return Error{Code::kIo, "failed before its first chunk"};
  return words;
}

}  // namespace

FileGroup file_group(int rank, int world_size, const std::vector<int>& node_of_rank,
                     int ranks_per_file) {
  LOCKSTEP_CHECK(rank >= 0 && rank < world_size && ranks_per_file >= 1, "rank ", rank, " of ",
                 world_size, ", ", ranks_per_file, " ranks a file");
  LOCKSTEP_CHECK(node_of_rank.empty() || std::ssize(node_of_rank) == world_size,
                 node_of_rank.size(), " nodes are named for ", world_size, " ranks");
  const auto together = [&](int other) {
    return other >= 0 && other < world_size &&
           (node_of_rank.empty() ||
            node_of_rank[static_cast<size_t>(other)] == node_of_rank[static_cast<size_t>(rank)]);
  };
  int first = rank, end = rank + 1;  // of the ranks of the node that follow each other
  while (together(first - 1)) --first;
  const int writer = rank - (rank - first) % ranks_per_file;
  while (end < writer + ranks_per_file && together(end)) ++end;
  LOCKSTEP_CHECK(writer <= rank && rank < end && end - writer <= ranks_per_file, "rank ", rank,
                 " writes with ranks ", writer, " to ", end - 1);
  return {writer, end - writer};
}

Result<FileNeighbours> FileNeighbours::create(Ballot& ballot, int rank, const FileGroup& group) {
  FileNeighbours neighbours(ballot, rank, group);
  if (group.ranks == 1) return neighbours;
  LOCKSTEP_TRY(neighbours.mine_, SharedRegion::create(1));
  for (const int other : neighbours.others())
    LOCKSTEP_RETURN_IF_ERROR(ballot.tell(page_key(rank, other), neighbours.mine_->address()));
  return neighbours;
}

std::vector<int> FileNeighbours::others() const {
  if (rank_ != group_.writer) return {group_.writer};
  std::vector<int> ranks(static_cast<size_t>(group_.ranks - 1));
  std::iota(ranks.begin(), ranks.end(), group_.writer + 1);
  return ranks;
}

Result<void> FileNeighbours::meet(const Patience& patience) {
  for (const int other : others()) {
    if (pages_.contains(other)) continue;
    const auto address =
        hear_address(*ballot_, page_key(other, rank_), "its shared memory is", nullptr, patience);
    if (!address.ok()) return address.error().in(text("rank ", other));
    auto page = SharedRegion::open(address.value());
    if (!page.ok())
      return Error{Code::kConfig,
                   text("cannot open the shared memory of rank ", other,
                        " of the same node: ", page.error().message,
                        "; ranks that share a checkpoint file exchange chunks through it. Run them "
                        "in one container and as one user, or set checkpoint.ranks_per_file = 1")};
    pages_.emplace(other, std::move(page).value());
  }
  LOCKSTEP_CHECK(pages_.size() == others().size(), "rank ", rank_, " has ", pages_.size(),
                 " pages of ", others().size(), " neighbours");
  return {};
}

Result<void> tell_address(Ballot& ballot, const std::string& attempt, int rank,
                          const std::string& address) {
  return ballot.tell(ring_key(attempt, rank), address);
}

Result<std::vector<ChunkInbox>> open_inboxes(Ballot& ballot, const std::string& attempt,
                                             const FileNeighbours& neighbours,
                                             const Patience& patience) {
  const FileGroup& group = neighbours.group();
  std::vector<ChunkInbox> inboxes;
  std::optional<Error> failed;
  for (int rank = group.writer + 1; rank < group.writer + group.ranks; ++rank) {
    const auto address =
        hear_of_chunks(ballot, ring_key(attempt, rank), neighbours.page_of(rank), patience);
    auto inbox = address.ok() ? ChunkInbox::open(rank, address.value(), patience)
                              : Result<ChunkInbox>(address.error().in(text("rank ", rank)));
    if (inbox.ok())
      inboxes.push_back(std::move(inbox).value());
    else if (!failed)
      failed = inbox.error();
  }
  LOCKSTEP_CHECK(failed || std::ssize(inboxes) == group.ranks - 1, inboxes.size(),
                 " inboxes for a file of ", group.ranks, " ranks");
  if (!failed) return inboxes;
  for (ChunkInbox& inbox : inboxes) inbox.abandon(*failed);
  return *failed;
}

}  // namespace lockstep::checkpoint
