#include "cli/doctor/doctor_meeting.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/json.h"
#include "base/text.h"
#include "cli/doctor/doctor_facts_json.h"
#include "launcher/host/pair_probe.h"

namespace lockstep::cli {
namespace {

using launcher::net::ProbeListener;
using std::filesystem::path;

constexpr int64_t kPause_ns = 5'000'000;  // between two looks into the folder
constexpr int kPings = 3;                 // the one that was answered soonest counts
constexpr double kPing_s = 5, kRemove_s = 2;
constexpr double kPair_s = 15;  // the longest that the last pair takes

double unix_s(Clock& clock) { return static_cast<double>(clock.unix_ns()) * 1e-9; }

class Table {
 public:
  Table(FileSystem& file_system, Clock& clock, const MeetingOptions& options)
      : file_system_(file_system), clock_(clock), folder_(options.folder) {}

  path node(int64_t rank) const { return folder_ / text("node_", rank, "_", session); }
  path ping(int k) const { return folder_ / text("ping_", k, "_", session); }
  path pong(int k, int64_t rank) const {
    return folder_ / text("pong_", k, "_", rank, "_", session);
  }
  path peers() const { return folder_ / text("peers_", session); }
  path pairs(int64_t rank) const { return folder_ / text("pairs_", rank, "_", session); }
  path session_file() const { return folder_ / "session"; }

  Result<void> write(const path& file, const std::string& words) {
    return publish_file(file_system_, file, words);
  }
  // Nothing: it is not there (yet).
  std::optional<std::string> read(const path& file) {
    if (!file_system_.exists(file)) return std::nullopt;
    auto words = read_file(file_system_, file);
    if (!words.ok()) return std::nullopt;
    return std::move(words).value();
  }
  // Looks until `done` says so, or for `limit_s`.
  template <typename Done>
  bool wait(double limit_s, Done done) {
    const double end = clock_.monotonic_s() + limit_s;
    while (!done()) {
      if (clock_.monotonic_s() >= end) return false;
      clock_.sleep_ns(kPause_ns);
    }
    return true;
  }

  std::string session;

 private:
  FileSystem& file_system_;
  Clock& clock_;
  const path folder_;
};

template <typename Facts>
std::optional<Facts> parse(const std::string& words) {
  try {
    return parse_json(words).get<Facts>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}
template <typename Facts>
std::string words_of(const Facts& facts) {
  return dump_json(nlohmann::json(facts));
}

// From now on the others can measure their way to this node, and its facts say where. A node that
// cannot listen will be missed by them.
std::unique_ptr<ProbeListener> listen_for(const std::string& word, NodeFacts& facts) {
  if (!facts.network.error.empty()) return nullptr;
  auto opened = ProbeListener::open(facts.network.address, word);
  if (!opened) {
    facts.network.error = opened.error().message;
    return nullptr;
  }
  facts.network.port = opened.value()->at().port;
  return std::move(opened).value();
}

using Peers = std::map<int64_t, std::pair<std::string, int64_t>>;  // rank -> address, port

// The way to each of the others. All begin with the next one after them, so that each has one to
// answer at a time.
std::vector<PairFacts> measure_pairs(Clock& clock, const MeetingOptions& options,
                                     const std::string& from, const std::string& word,
                                     const Peers& peers) {
  std::vector<PairFacts> pairs;
  const double end = clock.monotonic_s() + options.pairs_s;
  const auto own = peers.find(options.rank);
  if (own == peers.end()) return pairs;
  for (auto peer = std::next(own); clock.monotonic_s() < end; ++peer) {
    if (peer == peers.end()) peer = peers.begin();
    if (peer == own) break;
    const auto& [address, port] = peer->second;
    const auto figures =
        launcher::net::probe_pair(clock, from, {address, static_cast<uint16_t>(port)}, word);
    PairFacts pair{.to = peer->first, .error = ""};
    if (figures) {
      pair.round_trip_s = figures.value().round_trip_s;
      pair.bytes_per_s = figures.value().bytes_per_s;
    } else {
      pair.error = figures.error().message;
    }
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

// One question to all that came. A node's answer lies between asking and reading.
Result<void> ask_time(Clock& clock, Table& table, int k, std::vector<MetNode>& nodes) {
  const double asked = unix_s(clock);
  LOCKSTEP_RETURN_IF_ERROR(table.write(table.ping(k), "?"));
  std::vector<bool> answered(nodes.size(), false);
  answered[0] = true;
  table.wait(kPing_s, [&] {
    for (size_t i = 1; i < nodes.size(); ++i) {
      if (answered[i]) continue;
      const auto words = table.read(table.pong(k, nodes[i].rank));
      if (!words) continue;
      answered[i] = true;
      const double now = unix_s(clock), theirs = parse_hex_float(*words).value_or(0);
      const ClockSkew skew{theirs - (asked + now) / 2, (now - asked) / 2};
      if (!nodes[i].skew || skew.error_s < nodes[i].skew->error_s) nodes[i].skew = skew;
    }
    return std::all_of(answered.begin(), answered.end(), [](bool each) { return each; });
  });
  return {};
}

// All measure at once; node 0 waits for what they found.
Result<void> measure_all(Clock& clock, Table& table, const MeetingOptions& options,
                         std::vector<MetNode>& nodes) {
  Peers peers;
  for (const MetNode& node : nodes)
    if (node.facts.network.error.empty())
      peers[node.rank] = {node.facts.network.address, node.facts.network.port};
  LOCKSTEP_RETURN_IF_ERROR(table.write(table.peers(), words_of(peers)));
  nodes[0].pairs =
      measure_pairs(clock, options, nodes[0].facts.network.address, table.session, peers);
  peers.erase(nodes[0].rank);
  table.wait(options.pairs_s + kPair_s, [&] {
    for (MetNode& node : nodes) {
      if (!peers.contains(node.rank)) continue;
      const auto words = table.read(table.pairs(node.rank));
      auto pairs = words ? parse<std::vector<PairFacts>>(*words) : std::nullopt;
      if (!pairs) continue;
      node.pairs = std::move(*pairs);
      peers.erase(node.rank);
    }
    return peers.empty();
  });
  return {};
}

}  // namespace

Result<std::vector<MetNode>> lead_meeting(FileSystem& file_system, Clock& clock,
                                          const MeetingOptions& options, const NodeFacts& own) {
  Table table(file_system, clock, options);
  table.session = options.session;
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(options.folder));
  LOCKSTEP_RETURN_IF_ERROR(table.write(table.session_file(), options.session));
  std::vector<MetNode> nodes(1);
  nodes[0].facts = own;
  const auto listener = listen_for(table.session, nodes[0].facts);
  std::vector<bool> came(static_cast<size_t>(options.nodes), false);
  came[0] = true;
  table.wait(options.limit_s, [&] {
    for (int64_t rank = 1; rank < options.nodes; ++rank) {
      if (came[static_cast<size_t>(rank)]) continue;
      const auto words = table.read(table.node(rank));
      auto facts = words ? parse<NodeFacts>(*words) : std::nullopt;
      if (!facts) continue;
      came[static_cast<size_t>(rank)] = true;
      nodes.push_back({rank, std::move(*facts), {}, {}});
    }
    return nodes.size() == came.size();
  });
  for (int k = 0; k < kPings && nodes.size() > 1; ++k)
    LOCKSTEP_RETURN_IF_ERROR(ask_time(clock, table, k, nodes));
  std::sort(nodes.begin(), nodes.end(),
            [](const MetNode& a, const MetNode& b) { return a.rank < b.rank; });
  if (nodes.size() > 1) LOCKSTEP_RETURN_IF_ERROR(measure_all(clock, table, options, nodes));
  // A late answer may come in between.
  table.wait(kRemove_s, [&] { return remove_tree(file_system, options.folder).ok(); });
  return nodes;
}

Result<void> attend_meeting(FileSystem& file_system, Clock& clock, const MeetingOptions& options,
                            const NodeFacts& own) {
  Table table(file_system, clock, options);
  std::unique_ptr<ProbeListener> listener;
  bool measured = false;
  int answered = 0;
  // A write that fails is no matter: node 0 misses us, or has just removed the folder.
  const auto write = [&](const path& file, const std::string& words) {
    if (const auto done = table.write(file, words); !done.ok()) return;
  };
  // Node 0 waits for all to come, then for their answers, then for what they measure.
  const double limit_s = 2 * options.limit_s;
  const bool met =
      table.wait(limit_s, [&] { return table.read(table.session_file()).has_value(); });
  const bool over = met && table.wait(limit_s + options.pairs_s + kPair_s, [&] {
    const auto session = table.read(table.session_file());
    if (!session) return !table.session.empty();  // node 0 has removed it: the end
    if (*session != table.session) {
      table.session = *session;
      answered = 0;
      measured = false;
      NodeFacts facts = own;
      listener = listen_for(table.session, facts);
      write(table.node(options.rank), words_of(facts));
    }
    if (answered < kPings && table.read(table.ping(answered))) {
      write(table.pong(answered, options.rank), hex_float(unix_s(clock)));
      ++answered;
    }
    const auto peers = measured ? std::nullopt : table.read(table.peers());
    if (const auto all = peers ? parse<Peers>(*peers) : std::nullopt) {
      measured = true;
      write(table.pairs(options.rank),
            words_of(measure_pairs(clock, options, own.network.address, table.session, *all)));
    }
    return false;
  });
  if (!over)
    return Error{Code::kTimeout,
                 text("node 0 did not appear in ", options.folder.string(), " within ",
                      fixed(limit_s, 0), " s: is this folder shared by all nodes?")};
  return {};
}

}  // namespace lockstep::cli
