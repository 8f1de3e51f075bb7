#include "core/comm/rank_facts.h"

#include "base/check.h"
#include "base/json.h"

namespace lockstep::core {

namespace {

constexpr size_t kNameBytes = 64;  // of a host: what Linux allows

}  // namespace

std::string encode(const RankFacts& facts) {
  const nlohmann::ordered_json json{{"host", facts.host.substr(0, kNameBytes)},
                                    {"ranks_of_node", facts.ranks_of_node},
                                    {"local_rank", facts.local_rank},
                                    {"build", facts.build},
                                    {"kind", facts.kind},
                                    {"devices", facts.devices},
                                    {"uuid", facts.uuid},
                                    {"capability", facts.capability},
                                    {"collectives", facts.collectives}};
  std::string words = dump_json(json);
  LOCKSTEP_CHECK(words.size() <= kFactsBytes, words);
  return words;
}

Result<RankFacts> parse_rank_facts(const std::string& words) {
  try {
    const auto json = parse_json(words);
    return RankFacts{json.at("host"),  json.at("ranks_of_node"), json.at("local_rank"),
                     json.at("build"), json.at("kind"),          json.at("devices"),
                     json.at("uuid"),  json.at("capability"),    json.at("collectives")};
  } catch (const nlohmann::json::exception&) {
    return Error{Code::kPeerLost,
                 "cannot parse what a rank says of its device; run the same build on all nodes"};
  }
}

}  // namespace lockstep::core
