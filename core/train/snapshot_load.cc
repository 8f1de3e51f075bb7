// 1. plan; 2. read what this node's memory has; 3. ask the other
// nodes' ranks for the rest: counts, then requests, then bytes in rounds.
#include "core/train/snapshot_load.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <map>

#include "base/check.h"

namespace lockstep::core {
namespace {

using checkpoint::PartRead;
using checkpoint::Snapshot;

constexpr int64_t kRoundBytes = int64_t{16} << 20;  // from one rank to one other

struct Request {  // as it travels
  int64_t part = 0, offset = 0, bytes = 0;
};
constexpr int64_t kRequestWords = 3;
static_assert(sizeof(Request) == kRequestWords * sizeof(int64_t));

// Requests [first, last) that make up the round after `first`: both sides count alike.
struct Round {
  size_t last = 0;
  int64_t bytes = 0;
};
Round round_from(const std::vector<Request>& requests, size_t first) {
  Round round{first, 0};
  while (round.last < requests.size() &&
         (round.bytes == 0 || round.bytes + requests[round.last].bytes <= kRoundBytes))
    round.bytes += requests[round.last++].bytes;
  return round;
}

int64_t rounds_of(const std::vector<Request>& requests) {
  int64_t rounds = 0;
  for (size_t at = 0; at < requests.size(); ++rounds) at = round_from(requests, at).last;
  return rounds;
}

// The parts that lie on this node, opened once.
class LocalParts {
 public:
  LocalParts(FileSystem& file_system, const Snapshot& snapshot, int node)
      : file_system_(file_system), snapshot_(snapshot), node_(node) {}
  const Snapshot::Home* home(int64_t part) const {
    for (const Snapshot::Home& home : snapshot_.homes[static_cast<size_t>(part)])
      if (home.node == node_) return &home;
    return nullptr;
  }
  Result<void> read(int64_t part, int64_t offset, std::span<std::byte> to) {
    const Snapshot::Home* const from = home(part);
    LOCKSTEP_CHECK(from != nullptr, "part ", part, " is not on node ", node_);
    std::unique_ptr<File>& file = files_[part];
    if (!file) {
      LOCKSTEP_TRY(file, file_system_.open(from->path));
    }
    return file->read_at(to, from->data_offset + offset);
  }

 private:
  FileSystem& file_system_;
  const Snapshot& snapshot_;
  const int node_;
  std::map<int64_t, std::unique_ptr<File>> files_;
};

// Collective throughout. A file that cannot be read is remembered and its bytes are sent as they
// are: the fingerprints refuse them, and nobody waits.
class Exchange {
 public:
  Exchange(Communicator& comm, LocalParts& parts)
      : comm_(comm),
        parts_(parts),
        wanted_(static_cast<size_t>(comm.world_size())),
        places_(wanted_.size()),
        asked_(wanted_.size()) {}

  void want(int holder, const PartRead& read) {
    for (size_t at = 0; at < read.to.size(); at += kRoundBytes) {
      const auto to = read.to.subspan(at, std::min<size_t>(kRoundBytes, read.to.size() - at));
      wanted_[static_cast<size_t>(holder)].push_back(
          {read.rank, read.offset + static_cast<int64_t>(at), static_cast<int64_t>(to.size())});
      places_[static_cast<size_t>(holder)].push_back(to);
    }
  }

  Result<int64_t> run() {
    LOCKSTEP_TRY(const int64_t requests, share_requests());
    if (requests == 0) return int64_t{0};
    int64_t most = 0;
    for (size_t r = 0; r < wanted_.size(); ++r)
      most = std::max({most, rounds_of(wanted_[r]), rounds_of(asked_[r])});
    LOCKSTEP_TRY(const std::vector<int64_t> rounds, gather({most}));
    most = *std::max_element(rounds.begin(), rounds.end());
    std::vector<size_t> got(wanted_.size(), 0), sent(wanted_.size(), 0);
    int64_t fetched = 0;
    for (int64_t round = 0; round < most; ++round) {
      LOCKSTEP_TRY(const int64_t bytes, one_round(got, sent));
      fetched += bytes;
    }
    if (!failed_.ok()) return failed_.error();
    return fetched;
  }

 private:
  Result<std::vector<int64_t>> gather(const std::vector<int64_t>& mine) {
    const auto n = static_cast<int64_t>(mine.size());
    at::Tensor in = at::zeros({n}, at::kLong), out = at::zeros({n * comm_.world_size()}, at::kLong);
    std::copy(mine.begin(), mine.end(), in.data_ptr<int64_t>());
    auto done = comm_.all_gather(out, in)->wait();
    if (!done.ok()) return done.error().in("sharing what is missing of a snapshot");
    return std::vector<int64_t>(out.data_ptr<int64_t>(), out.data_ptr<int64_t>() + out.numel());
  }

  // Fills asked_. Returns the number of requests of all ranks.
  Result<int64_t> share_requests() {
    const size_t ranks = wanted_.size();
    std::vector<int64_t> mine;
    for (const auto& list : wanted_) mine.push_back(static_cast<int64_t>(list.size()));
    LOCKSTEP_TRY(const std::vector<int64_t> counts, gather(mine));
    int64_t all = 0, in_words = 0, out_words = 0;
    for (int64_t count : counts) all += count;
    if (all == 0) return all;
    std::vector<int64_t> in_counts, out_counts;
    for (size_t r = 0; r < ranks; ++r) {
      asked_[r].resize(static_cast<size_t>(counts[r * ranks + static_cast<size_t>(comm_.rank())]));
      in_counts.push_back(kRequestWords * mine[r]);
      out_counts.push_back(kRequestWords * static_cast<int64_t>(asked_[r].size()));
      in_words += in_counts.back();
      out_words += out_counts.back();
    }
    at::Tensor in = at::empty({in_words}, at::kLong), out = at::empty({out_words}, at::kLong);
    auto* to = reinterpret_cast<Request*>(in.data_ptr<int64_t>());
    for (const auto& list : wanted_) to = std::copy(list.begin(), list.end(), to);
    auto done = comm_.all_to_all(out, out_counts, in, in_counts)->wait();
    if (!done.ok()) return done.error().in("asking for parts of a snapshot");
    const auto* from = reinterpret_cast<const Request*>(out.data_ptr<int64_t>());
    for (auto& list : asked_) {
      std::copy(from, from + list.size(), list.begin());
      from += list.size();
    }
    return all;
  }

  Result<int64_t> one_round(std::vector<size_t>& got, std::vector<size_t>& sent) {
    std::vector<int64_t> out_counts, in_counts;
    int64_t out_bytes = 0, in_bytes = 0;
    for (size_t r = 0; r < wanted_.size(); ++r) {
      out_bytes += out_counts.emplace_back(round_from(wanted_[r], got[r]).bytes);
      in_bytes += in_counts.emplace_back(round_from(asked_[r], sent[r]).bytes);
    }
    at::Tensor in = at::zeros({in_bytes}, at::kByte), out = at::empty({out_bytes}, at::kByte);
    auto* answer = reinterpret_cast<std::byte*>(in.data_ptr());
    for (size_t r = 0; r < asked_.size(); ++r)
      for (const size_t last = round_from(asked_[r], sent[r]).last; sent[r] < last; ++sent[r]) {
        const Request& q = asked_[r][sent[r]];
        const auto read = parts_.read(q.part, q.offset, {answer, static_cast<size_t>(q.bytes)});
        if (!read.ok() && failed_.ok()) failed_ = read;
        answer += q.bytes;
      }
    auto done = comm_.all_to_all(out, out_counts, in, in_counts)->wait();
    if (!done.ok()) return done.error().in("fetching parts of a snapshot");
    const auto* from = reinterpret_cast<const std::byte*>(out.data_ptr());
    for (size_t r = 0; r < wanted_.size(); ++r)
      for (const size_t last = round_from(wanted_[r], got[r]).last; got[r] < last; ++got[r]) {
        const std::span<std::byte> to = places_[r][got[r]];
        std::memcpy(to.data(), from, to.size());
        from += to.size();
      }
    return out_bytes;
  }

  Communicator& comm_;
  LocalParts& parts_;
  std::vector<std::vector<Request>> wanted_;               // by holder
  std::vector<std::vector<std::span<std::byte>>> places_;  // where each answer belongs
  std::vector<std::vector<Request>> asked_;                // by who asks
  Result<void> failed_;
};

}  // namespace

Result<SnapshotLoad> load_snapshot(FileSystem& file_system, const MemoryPlace& place,
                                   const Snapshot& snapshot, Communicator& comm,
                                   const std::vector<checkpoint::LiveTarget>& targets) {
  SnapshotLoad load;
  LocalParts parts(file_system, snapshot, place.node());
  Exchange exchange(comm, parts);
  Result<void> local;
  const auto reads = checkpoint::plan_reads(snapshot.whole, targets);
  for (const PartRead& read : reads.ok() ? reads.value() : std::vector<PartRead>()) {
    if (parts.home(read.rank) != nullptr) {
      if (local.ok()) local = parts.read(read.rank, read.offset, read.to);
      load.local_bytes += static_cast<int64_t>(read.to.size());
    } else {
      const int node = snapshot.homes[static_cast<size_t>(read.rank)].front().node;
      const std::vector<int> holders = place.ranks_on(node);
      exchange.want(holders[static_cast<size_t>(read.rank) % holders.size()], read);
    }
  }
  LOCKSTEP_TRY(load.fetched_bytes, exchange.run());
  if (!reads.ok()) return reads.error();
  if (!local.ok()) return local.error();
  return load;
}

}  // namespace lockstep::core
