// How the ranks of a generation exchange the tensors of a step: one way for all of them, chosen by
// rank 0 from the facts of all (rank_agreement.h). Pure, no Torch.
//
// 1. All ranks compute on one kind of device, with one capability, and their devices' collectives
//    are of one version.
// 2. Ranks on CPUs use memory where all are on one machine, else Gloo. (Groups inside a machine use
//    memory in any case.)
// 3. Where no two ranks share a device, as UUIDs say, they use NCCL. Neither local ranks nor counts
//    of visible devices matter: a task that Slurm gave one device sees one.
// 4. Where every device has equally many ranks, and more than one, everything goes through the
//    host: NCCL wants a device a rank.
// 5. Where some devices have more ranks than others, a device is missing somewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/comm/rank_facts.h"

namespace lockstep::core {

enum class Transport : uint8_t {
  kMemory,  // that the ranks share
  kGloo,    // TCP, host to host
  kStaged,  // from the device to the host, and on as above
  kNccl,    // device to device
};
// "memory", "gloo", "staged", "nccl".
const char* transport_name(Transport transport);
// For people: what it means, and what it costs.
std::string transport_text(Transport transport, const std::vector<RankFacts>& facts);

// `facts`: by rank. Errors: kConfig, which names the first rank that is not like most others (not
// like rank 0, where there are as many of both), its host and what differs.
// Requires: not empty.
Result<Transport> choose_transport(const std::vector<RankFacts>& facts);

}  // namespace lockstep::core
