#include "core/comm/transport.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/check.h"
#include "base/text.h"
#include "core/comm/nodes.h"

namespace lockstep::core {
namespace {

constexpr size_t kNamedRanks = 8;  // of an error

using Facts = std::vector<RankFacts>;

std::string place(const Facts& facts, size_t rank) {
  return text("rank ", rank, " on ", facts[rank].host);
}

std::string seen(const RankFacts& f) {
  return f.build == kCpuKind ? "its program is built for CPUs only"
                             : text("it sees ", counted(f.devices, f.build + " device"));
}

// The ranks whose value is not the usual one.
struct OddOnes {
  size_t usual;  // the first rank that has the usual one
  std::vector<size_t> ranks;
};
std::optional<OddOnes> odd_ones(const Facts& facts, std::string RankFacts::*member) {
  std::map<std::string, int> counts;
  for (const RankFacts& f : facts) ++counts[f.*member];
  if (counts.size() == 1) return std::nullopt;
  OddOnes odd{0, {}};
  for (size_t r = 0; r < facts.size(); ++r)
    if (counts[facts[r].*member] > counts[facts[odd.usual].*member]) odd.usual = r;
  for (size_t r = 0; r < facts.size(); ++r)
    if (facts[r].*member != facts[odd.usual].*member) odd.ranks.push_back(r);
  return odd;
}

std::string others(const std::vector<size_t>& ranks) {
  std::string out;
  for (size_t i = 1; i < std::min(ranks.size(), kNamedRanks); ++i)
    out += text(i == 1 ? ". Also different: rank " : ", ", ranks[i]);
  if (ranks.size() > kNamedRanks) out += text(" and ", ranks.size() - kNamedRanks, " more");
  return out;
}

// Rule 1, for one fact. `has`: "computes on", …
Result<void> all_alike(const Facts& facts, std::string RankFacts::*member, const std::string& has,
                       const std::string& advice) {
  const auto odd = odd_ones(facts, member);
  if (!odd) return {};
  const size_t rank = odd->ranks.front(), usual = odd->usual;
  return Error{Code::kConfig,
               text(place(facts, rank), " ", has, " ", facts[rank].*member, " (", seen(facts[rank]),
                    "), and ", place(facts, usual), " ", has, " ", facts[usual].*member, " (",
                    seen(facts[usual]), "), like ", facts.size() - odd->ranks.size(), " of ",
                    facts.size(), " ranks", others(odd->ranks), ". ", advice)};
}

// By UUID: its ranks in order.
std::map<std::string, std::vector<size_t>> ranks_of_devices(const Facts& facts) {
  std::map<std::string, std::vector<size_t>> ranks;
  for (size_t r = 0; r < facts.size(); ++r) ranks[facts[r].uuid].push_back(r);
  return ranks;
}

// Rules 3 to 5.
Result<Transport> by_devices(const Facts& facts) {
  const auto devices = ranks_of_devices(facts);
  size_t fewest = facts.size();
  for (const auto& [uuid, ranks] : devices) fewest = std::min(fewest, ranks.size());
  size_t odd = facts.size();  // the first rank beyond what each device has
  for (const auto& [uuid, ranks] : devices)
    if (ranks.size() > fewest) odd = std::min(odd, ranks[fewest]);
  if (odd == facts.size()) return fewest == 1 ? Transport::kNccl : Transport::kStaged;
  const auto& sharing = devices.at(facts[odd].uuid);
  size_t usual = 0;
  while (devices.at(facts[usual].uuid).size() > fewest) ++usual;
  return Error{
      Code::kConfig,
      text(place(facts, odd), " (", seen(facts[odd]), ") computes on device ", facts[odd].uuid,
           " as ", place(facts, sharing.front()), " does: ", sharing.size(), " ranks, and ",
           counted(std::ssize(devices.at(facts[usual].uuid)), "rank"), " on the device of ",
           place(facts, usual), " (", seen(facts[usual]),
           "). Is a device missing there (nvidia-smi, CUDA_VISIBLE_DEVICES, --gpus-per-task)? "
           "Start one rank for each device of a machine")};
}

}  // namespace

const char* transport_name(Transport transport) {
  switch (transport) {
    case Transport::kMemory: return "memory";
    case Transport::kGloo: return "gloo";
    case Transport::kStaged: return "staged";
    case Transport::kNccl: return "nccl";
  }
  LOCKSTEP_CHECK(false, static_cast<int>(transport));
  return "";
}

std::string transport_text(Transport transport, const std::vector<RankFacts>& facts) {
  const std::string ranks = text(counted(std::ssize(facts), "rank"), " exchange tensors ");
  switch (transport) {
    case Transport::kMemory: return ranks + "through shared memory";
    case Transport::kGloo: return ranks + "over Gloo, from host to host";
    case Transport::kNccl:
      return text(ranks, "over NCCL ", facts.front().collectives, ", from device to device");
    case Transport::kStaged: break;
  }
  return text(
      ranks, "through host memory, because ", ranks_of_devices(facts).begin()->second.size(),
      " of them share a device, which NCCL does not support; this is slow and meant for tests");
}

Result<Transport> choose_transport(const std::vector<RankFacts>& facts) {
  LOCKSTEP_RETURN_IF_ERROR(
      all_alike(facts, &RankFacts::kind, "computes on",
                "Look at the driver there (nvidia-smi) and at CUDA_VISIBLE_DEVICES; all ranks "
                "must run the same build"));
  if (facts.front().kind == kCpuKind)
    return ranks_of_node(facts) >= std::ssize(facts) ? Transport::kMemory : Transport::kGloo;
  LOCKSTEP_RETURN_IF_ERROR(all_alike(facts, &RankFacts::capability, "has compute capability",
                                     "All ranks must compute on the same kind of device; otherwise "
                                     "the losses depend on which rank computes what"));
  LOCKSTEP_RETURN_IF_ERROR(
      all_alike(facts, &RankFacts::collectives, "has NCCL", "All ranks must load the same NCCL"));
  return by_devices(facts);
}

}  // namespace lockstep::core
