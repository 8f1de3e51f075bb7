// What the counters of a node's hardware say about it: whether it has failed, and what is worth a
// line. Sources of counters are sysfs_counters.h and nvml_counters.h.
//
//   [H1] A counter says something only by what it grows by after the first look: what it had then
//        may be years old. A state that lasted at the first look is said, and has failed nobody.
//   [H2] Hardware has failed when a counter or a state grows that means so. It stays failed.
//   [H3] Anything else is a warning. It lasts until nothing was seen of it for kLastsNs.
//   [H4] What lasts is one line, the same for kLastsNs at least, then a new one if it has grown.
//
// Pure. Thread: one. Time: monotonic nanoseconds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::launcher::health {

enum class Meaning : uint8_t { kWarning, kFailed };
enum class Kind : uint8_t {
  kCount,  // of events; it grows
  kState,  // 1 while it lasts, else 0
};
struct Counter {
  std::string what;  // "uncorrected memory errors of GPU 0": the same at each look, and no other's
  Meaning meaning = Meaning::kWarning;
  Kind kind = Kind::kCount;
  int64_t value = 0;  // not negative
};

struct Health {
  std::string failed;              // why no worker should run here; empty: nothing has failed
  std::vector<std::string> lines;  // of all that lasts, kMostLines at most
  bool operator==(const Health&) const = default;
};

class HealthRules {
 public:
  static constexpr int64_t kLastsNs = 600'000'000'000;
  static constexpr size_t kMostLines = 8;

  // After one look. A counter that is missing in it, as its file has gone, has not changed.
  Health note(const std::vector<Counter>& counters, int64_t now_ns);

 private:
  struct Known {
    int64_t value = 0, grown = 0;  // as last seen; since the first look
    int64_t seen_ns = 0;           // when it grew last, or lasted
    int64_t said_ns = 0, said_grown = 0;
    std::string line;  // empty: it says nothing
    bool failed = false;
  };
  void note_one(const Counter& counter, int64_t now_ns);

  std::map<std::string, Known> known_;
  std::string failed_;
};

}  // namespace lockstep::launcher::health
