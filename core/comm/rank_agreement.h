// What the ranks of a generation agree on when they meet. Rank 0 concludes it from the facts of all
// and tells it to all, so that no other rank hears what each of them is, that no rank enters
// collectives that the others do not know, and that a failure is the same words everywhere. Pure,
// no Torch.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "core/comm/nodes.h"
#include "core/comm/rank_facts.h"
#include "core/comm/transport.h"

namespace lockstep::core {

struct RankAgreement {
  Transport transport = Transport::kGloo;
  Nodes nodes;  // without its advice, where it was told
};

// `words`: of each rank, by rank; zeros may follow what encode(RankFacts) wrote. Errors: kConfig
// (choose_transport), kPeerLost (parse_rank_facts).
Result<std::vector<RankFacts>> parse_all_facts(const std::vector<std::string>& words);
Result<RankAgreement> agree(const std::vector<RankFacts>& facts);

// As long for many nodes as for few, where they have equally many ranks each.
std::string encode(const Result<RankAgreement>& agreed);
// What rank 0 had: an agreement or its error. Errors: kPeerLost too: these are not its words (a
// rank of another version).
Result<RankAgreement> parse_rank_agreement(const std::string& words, int world_size);

// The names of the hosts, by rank, for who asks.
std::string encode_hosts(const std::vector<RankFacts>& facts);
Result<std::vector<std::string>> parse_hosts(const std::string& words);

}  // namespace lockstep::core
