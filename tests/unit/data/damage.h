// Bytes changed, moved, lost and added, the same for the same number and seed (support/seed.h). A
// failure prints what it was, a crash too.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>

#include "base/hash.h"
#include "base/text.h"
#include "tests/support/seed.h"
#include "tests/unit/data/foreign_files.h"

namespace lockstep::data {

inline constexpr uint64_t kUsualSeed = 1;
inline uint64_t base_seed() { return test_support::seed_or(kUsualSeed); }

// For messages: enough to have the same damage again.
inline std::string damage_name(uint64_t number, uint64_t seed = base_seed()) {
  return text("damage ", number, " with LOCKSTEP_SEED=", seed);
}

// The damage that is being tried, for when the program does not survive it.
inline std::atomic<uint64_t> tried_damage{0}, tried_seed{0};

// Says which damage it was before a signal ends the program.
inline void report_crashes() {
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS, SIGILL})
    std::signal(signal, [](int number) {
      char line[96];
      const int size =
          std::snprintf(line, sizeof line, "signal %d at damage %llu with LOCKSTEP_SEED=%llu\n",
                        number, static_cast<unsigned long long>(tried_damage.load()),
                        static_cast<unsigned long long>(tried_seed.load()));
      if (::write(STDERR_FILENO, line, static_cast<size_t>(size)) < 0) _exit(1);
      std::signal(number, SIG_DFL);
      std::raise(number);
    });
}

// The same damage for the same number and seed.
class Damage {
 public:
  explicit Damage(uint64_t number, uint64_t seed = base_seed())
      : state_(mix64(seed * 1'000'003 + number)) {
    static const bool kReports = (report_crashes(), true);
    static_cast<void>(kReports);
    tried_damage = number;
    tried_seed = seed;
  }

  std::string of(std::string bytes) {
    for (uint64_t edits = 1 + draw(3); edits > 0; --edits) edit(bytes);
    return bytes;
  }
  uint64_t draw(uint64_t below) { return mix64(state_ += 0x9e3779b97f4a7c15ULL) % below; }

 private:
  void edit(std::string& bytes) {
    const size_t at = draw(bytes.size() + 1), room = bytes.size() - at;
    const size_t length = std::min<size_t>(room, 1 + draw(draw(4) == 0 ? 400 : 8));
    switch (draw(8)) {
      case 0: bytes.resize(at); break;
      case 1: bytes.erase(at, length); break;
      case 2: bytes.insert(draw(bytes.size() + 1), bytes.substr(at, length)); break;
      case 3: overwrite(bytes, at, number()); break;
      case 4: bytes.insert(at, 1, kCharacters[draw(kCharacters.size())]); break;
      case 5:
        if (room > 0) bytes[at] = kCharacters[draw(kCharacters.size())];
        break;
      case 6:
        if (room > 0) bytes[at] = static_cast<char>(draw(256));
        break;
      default:
        if (room > 0) bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw(8)));
    }
  }
  // Of 4 or 8 bytes, and near where things go wrong.
  std::string number() {
    constexpr uint64_t kNear[] = {0,          1,          255,        1 << 16,   1ULL << 31,
                                  1ULL << 32, 1ULL << 40, 1ULL << 62, 1ULL << 63};
    std::string out;
    append_bytes(out, kNear[draw(std::size(kNear))] + draw(5) - 2);
    return out.substr(0, draw(2) == 0 ? 4 : 8);
  }
  static void overwrite(std::string& bytes, size_t at, const std::string& with) {
    bytes.replace(at, std::min(with.size(), bytes.size() - at), with);
  }
  static constexpr std::string_view kCharacters = "\"{}[]:,\\0123456789-eE.tfn \n\0\xff\xc3";
  uint64_t state_;
};

}  // namespace lockstep::data
