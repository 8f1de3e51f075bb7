#include "checkpoint/save/file_group.h"

#include <algorithm>

#include "base/clock.h"
#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

constexpr std::chrono::milliseconds kLook{500};  // at whether to go on waiting

std::string key_of(const std::string& attempt, int rank) {
  return text("save/", attempt, "/chunks/", rank);
}

Result<std::string> hear_address(Ballot& ballot, const std::string& key, const Patience& patience) {
  std::chrono::milliseconds left = patience.deadline;
  while (!*patience.gave_up) {
    auto words = ballot.hear(key, std::min(left, kLook));
    if (words.ok()) ballot.forget(key);
    if (words.ok() && words.value().empty())
      return Error{Code::kIo, "failed before its first chunk"};
    if (words.ok() || words.error().code != Code::kTimeout) return words;
    left -= std::min(left, kLook);
    if (left.count() == 0)
      return Error{Code::kTimeout,
                   text("has not said in ", patience.deadline.count(), " ms where its chunks are")};
  }
  return Error{Code::kAborted, "the engine was stopped"};
}

}  // namespace

FileGroup file_group(int rank, int world_size, const std::vector<int>& node_of_rank,
                     int ranks_per_file) {
  const auto together = [&](int other) {
    return other >= 0 && other < world_size &&
           (node_of_rank.empty() ||
            node_of_rank[static_cast<size_t>(other)] == node_of_rank[static_cast<size_t>(rank)]);
  };
  int first = rank, end = rank + 1;  // of the ranks of the node that follow each other
  while (together(first - 1)) --first;
  const int writer = rank - (rank - first) % ranks_per_file;
  while (end < writer + ranks_per_file && together(end)) ++end;
  return {writer, end - writer};
}

Result<void> tell_address(Ballot& ballot, const std::string& attempt, int rank,
                          const std::string& address) {
  return ballot.tell(key_of(attempt, rank), address);
}

Result<std::vector<ChunkInbox>> open_inboxes(Ballot& ballot, const std::string& attempt,
                                             const FileGroup& group, const Patience& patience) {
  std::vector<ChunkInbox> inboxes;
  std::optional<Error> failed;
  for (int rank = group.writer + 1; rank < group.writer + group.ranks; ++rank) {
    const auto address = hear_address(ballot, key_of(attempt, rank), patience);
    auto inbox = address.ok() ? ChunkInbox::open(rank, address.value(), patience)
                              : Result<ChunkInbox>(address.error().in(text("rank ", rank)));
    if (inbox.ok())
      inboxes.push_back(std::move(inbox).value());
    else if (!failed)
      failed = inbox.error();
  }
  if (!failed) return inboxes;
  for (ChunkInbox& inbox : inboxes) inbox.abandon(*failed);
  return *failed;
}

}  // namespace lockstep::checkpoint
