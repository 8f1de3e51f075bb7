#include "cli/doctor_meeting.h"

#include <algorithm>

#include "base/text.h"
#include "cli/doctor_facts_json.h"

namespace lockstep::cli {
namespace {

using std::filesystem::path;

constexpr int64_t kPause_ns = 5'000'000;  // between two looks into the folder
constexpr int kPings = 3;                 // the one that was answered soonest counts
constexpr double kPing_s = 5, kRemove_s = 2;

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

std::optional<NodeFacts> parse_facts(const std::string& words) {
  try {
    return nlohmann::json::parse(words).get<NodeFacts>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
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

}  // namespace

Result<std::vector<MetNode>> lead_meeting(FileSystem& file_system, Clock& clock,
                                          const MeetingOptions& options, const NodeFacts& own) {
  Table table(file_system, clock, options);
  table.session = options.session;
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(options.folder));
  LOCKSTEP_RETURN_IF_ERROR(table.write(table.session_file(), options.session));
  std::vector<MetNode> nodes(1);
  nodes[0].facts = own;
  std::vector<bool> came(static_cast<size_t>(options.nodes), false);
  came[0] = true;
  table.wait(options.limit_s, [&] {
    for (int64_t rank = 1; rank < options.nodes; ++rank) {
      if (came[static_cast<size_t>(rank)]) continue;
      const auto words = table.read(table.node(rank));
      auto facts = words ? parse_facts(*words) : std::nullopt;
      if (!facts) continue;
      came[static_cast<size_t>(rank)] = true;
      nodes.push_back({rank, std::move(*facts), {}});
    }
    return nodes.size() == came.size();
  });
  for (int k = 0; k < kPings && nodes.size() > 1; ++k)
    LOCKSTEP_RETURN_IF_ERROR(ask_time(clock, table, k, nodes));
  // A late answer may come in between.
  table.wait(kRemove_s, [&] { return remove_tree(file_system, options.folder).ok(); });
  std::sort(nodes.begin(), nodes.end(),
            [](const MetNode& a, const MetNode& b) { return a.rank < b.rank; });
  return nodes;
}

Result<void> attend_meeting(FileSystem& file_system, Clock& clock, const MeetingOptions& options,
                            const NodeFacts& own) {
  Table table(file_system, clock, options);
  const std::string facts = nlohmann::json(own).dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  int answered = 0;
  // A write that fails is no matter: node 0 misses us, or has just removed the folder.
  const auto write = [&](const path& file, const std::string& words) {
    if (const auto done = table.write(file, words); !done.ok()) return;
  };
  // Node 0 waits for all to come, then for their answers.
  const double limit_s = 2 * options.limit_s;
  const bool over = table.wait(limit_s, [&] {
    const auto session = table.read(table.session_file());
    if (!session) return !table.session.empty();  // node 0 has removed it: the end
    if (*session != table.session) {
      table.session = *session;
      answered = 0;
      write(table.node(options.rank), facts);
    }
    if (answered < kPings && table.read(table.ping(answered))) {
      write(table.pong(answered, options.rank), hex_float(unix_s(clock)));
      ++answered;
    }
    return false;
  });
  if (!over)
    return Error{Code::kTimeout, text("node 0 was not met in ", options.folder.string(), " within ",
                                      fixed(limit_s, 0),
                                      " s: is this folder shared by all nodes?")};
  return {};
}

}  // namespace lockstep::cli
