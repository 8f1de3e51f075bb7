// What a rank is and what it computes on, as it tells rank 0 before the ranks agree on how they
// exchange bytes (rank_agreement.h). No Torch.
#pragma once

#include <cstddef>
#include <string>

#include "base/result.h"

namespace lockstep::core {

inline constexpr const char* kCpuKind = "cpu";

struct RankFacts {
  std::string host;              // its name, for people
  int ranks_of_node = 0;         // that share a machine's memory, as far as it knows; 0: all
  int local_rank = 0;            // its place among them, from 0
  std::string build = kCpuKind;  // the kind of device that its program is built for: "cuda"
  std::string kind = kCpuKind;   // of the device that it computes on
  int devices = 0;               // of the build's kind that it sees
  std::string uuid;              // of its device, the same for whoever sees it; "" for the CPU
  std::string capability;        // of its device ("9.0"); "" for the CPU
  std::string collectives;       // version of the library that its device's collectives go over; ""
  bool operator==(const RankFacts&) const = default;
};

// At most kFactsBytes; a longer name of a host is cut.
inline constexpr size_t kFactsBytes = 1024;
std::string encode(const RankFacts& facts);
// Errors: kPeerLost: this is not what encode() writes (a rank of another version).
Result<RankFacts> parse_rank_facts(const std::string& words);

}  // namespace lockstep::core
