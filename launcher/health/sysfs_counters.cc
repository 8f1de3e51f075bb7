#include "launcher/health/sysfs_counters.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>

#include "base/text.h"

namespace lockstep::launcher::health {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 64;       // of a file with a number
constexpr size_t kMostEntries = 16384;  // of a folder: more than a machine has processors

std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string words(kMostBytes, '\0');
  file.read(words.data(), static_cast<std::streamsize>(words.size()));
  const char* const end = words.data() + file.gcount();
  int64_t number = 0;
  const auto [stop, wrong] = std::from_chars(words.data(), end, number);
  if (words[0] == '-') return std::nullopt;  // it counts nothing
  if (wrong == std::errc::result_out_of_range) return INT64_MAX;
  const bool whole = stop == end || *stop == '\n';
  return wrong == std::errc{} && whole ? std::optional(number) : std::nullopt;
}

// The entries of a folder whose names begin so, by name.
std::vector<fs::path> entries(const fs::path& folder, const std::string& prefix = "") {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().starts_with(prefix)) found.push_back(at->path());
    if (found.size() == kMostEntries) break;
  }
  std::sort(found.begin(), found.end());
  return found;
}

struct Named {
  const char* file;
  const char* what;  // "… of DEVICE"
  Meaning meaning = Meaning::kWarning;
};

constexpr Named kMemory[] = {{"ue_count", "uncorrected memory errors", Meaning::kFailed},
                             {"ce_count", "corrected memory errors"}};
constexpr Named kCpu[] = {{"core_throttle_count", "times that heat slowed down a core"},
                          {"package_throttle_count", "times that heat slowed down a processor"}};
constexpr Named kNetwork[] = {{"carrier_changes", "times that the link went down or up"},
                              {"statistics/rx_errors", "receive errors"},
                              {"statistics/rx_crc_errors", "checksum errors"},
                              {"statistics/tx_errors", "send errors"}};
constexpr Named kInfiniband[] = {{"link_downed", "times that the link went down"},
                                 {"link_error_recovery", "times that the link was trained again"},
                                 {"symbol_error", "symbol errors"},
                                 {"port_rcv_errors", "receive errors"},
                                 {"local_link_integrity_errors", "times that too many errors came"},
                                 {"excessive_buffer_overrun_errors", "buffer overruns"}};

template <size_t kCount>
void add(const fs::path& folder, const Named (&files)[kCount], const std::string& device,
         std::vector<Counter>& counters) {
  for (const Named& each : files)
    if (const auto value = number_in(folder / each.file))
      counters.push_back({text(each.what, " of ", device), each.meaning, Kind::kCount, *value});
}

// One line for all processors of a machine, which may have hundreds: they get hot together.
void add_cpus(const fs::path& folder, std::vector<Counter>& counters) {
  const auto cpus = entries(folder, "cpu");
  for (const Named& each : kCpu) {
    std::optional<int64_t> sum;
    for (const fs::path& cpu : cpus)
      if (const auto value = number_in(cpu / "thermal_throttle" / each.file))
        sum = std::min(sum.value_or(0), INT64_MAX - *value) + *value;
    if (sum) counters.push_back({each.what, each.meaning, Kind::kCount, *sum});
  }
}

}  // namespace

std::vector<Counter> read_sysfs(const fs::path& sys) {
  std::vector<Counter> counters;
  for (const fs::path& mc : entries(sys / "devices/system/edac/mc", "mc"))
    add(mc, kMemory, "memory controller " + mc.filename().string(), counters);
  add_cpus(sys / "devices/system/cpu", counters);
  for (const fs::path& card : entries(sys / "class/net")) {
    std::error_code error;
    const bool physical = fs::exists(card / "device", error);
    if (physical) add(card, kNetwork, card.filename().string(), counters);
  }
  for (const fs::path& card : entries(sys / "class/infiniband"))
    for (const fs::path& port : entries(card / "ports"))
      add(port / "counters", kInfiniband,
          text(card.filename().string(), " port ", port.filename().string()), counters);
  return counters;
}

}  // namespace lockstep::launcher::health
