#include "core/comm/rank_agreement.h"

#include "base/json.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

using nlohmann::ordered_json;

Error of_another_version(const char* what) {
  return {Code::kPeerLost,
          text("cannot parse rank 0's message on ", what, "; run the same build on all nodes")};
}

// Nodes that follow each other and have equally many ranks.
struct Run {
  int first_node, nodes, ranks_of_each;
};

std::vector<Run> runs_of(const std::vector<int>& node_of_rank) {
  std::vector<Run> runs;
  for (size_t first = 0; first < node_of_rank.size();) {
    size_t end = first;
    while (end < node_of_rank.size() && node_of_rank[end] == node_of_rank[first]) ++end;
    const int node = node_of_rank[first], ranks = static_cast<int>(end - first);
    if (!runs.empty() && runs.back().ranks_of_each == ranks &&
        runs.back().first_node + runs.back().nodes == node)
      ++runs.back().nodes;
    else
      runs.push_back({node, 1, ranks});
    first = end;
  }
  return runs;
}

ordered_json json_of(const RankAgreement& agreed) {
  ordered_json runs = ordered_json::array();
  for (const Run& run : runs_of(agreed.nodes.of_rank))
    runs.push_back({run.first_node, run.nodes, run.ranks_of_each});
  return {{"transport", static_cast<int>(agreed.transport)},
          {"most", agreed.nodes.sizes.most},
          {"together", agreed.nodes.sizes.together},
          {"nodes", runs}};
}

// Throws nlohmann's exceptions. "": they are not of so many ranks.
std::vector<int> node_of_rank(const nlohmann::json& runs, int world_size) {
  std::vector<int> nodes;
  for (const auto& run : runs) {
    const int first = run.at(0), count = run.at(1), ranks = run.at(2);
    const auto left = world_size - std::ssize(nodes);
    if (count < 1 || ranks < 1 || int64_t{count} * ranks > left) return {};
    for (int node = first; node < first + count; ++node)
      nodes.insert(nodes.end(), static_cast<size_t>(ranks), node);
  }
  return nodes;
}

}  // namespace

Result<std::vector<RankFacts>> parse_all_facts(const std::vector<std::string>& words) {
  std::vector<RankFacts> facts;
  for (const std::string& each : words) {
    LOCKSTEP_TRY(RankFacts one, parse_rank_facts(each));
    facts.push_back(std::move(one));
  }
  return facts;
}

Result<RankAgreement> agree(const std::vector<RankFacts>& facts) {
  LOCKSTEP_TRY(const Transport transport, choose_transport(facts));
  return RankAgreement{transport, nodes_of(facts)};
}

std::string encode(const Result<RankAgreement>& agreed) {
  if (agreed.ok()) return dump_json(json_of(agreed.value()));
  return dump_json(ordered_json{{"config", agreed.error().code == Code::kConfig},
                                {"message", agreed.error().message}});
}

Result<RankAgreement> parse_rank_agreement(const std::string& words, int world_size) {
  try {
    const auto json = parse_json(words);
    if (json.contains("message"))
      return Error{json.at("config") ? Code::kConfig : Code::kPeerLost, json.at("message")};
    RankAgreement agreed;
    agreed.transport = static_cast<Transport>(json.at("transport").get<int>());
    agreed.nodes.sizes.most = json.at("most");
    agreed.nodes.sizes.together = json.at("together");
    agreed.nodes.of_rank = node_of_rank(json.at("nodes"), world_size);
    if (std::ssize(agreed.nodes.of_rank) == world_size) return agreed;
  } catch (const nlohmann::json::exception&) {
  }
  return of_another_version("how to exchange tensors");
}

std::string encode_hosts(const std::vector<RankFacts>& facts) {
  std::vector<std::pair<std::string, int>> runs;
  for (const RankFacts& each : facts)
    if (!runs.empty() && runs.back().first == each.host)
      ++runs.back().second;
    else
      runs.emplace_back(each.host, 1);
  return dump_json(ordered_json(runs));
}

Result<std::vector<std::string>> parse_hosts(const std::string& words) {
  std::vector<std::string> hosts;
  try {
    for (const auto& run : parse_json(words))
      hosts.insert(hosts.end(), run.at(1).get<size_t>(), run.at(0).get<std::string>());
    return hosts;
  } catch (const nlohmann::json::exception&) {
    return of_another_version("the hosts");
  }
}

}  // namespace lockstep::core
