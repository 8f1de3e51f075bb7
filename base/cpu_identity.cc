#include "base/cpu_identity.h"

#include <algorithm>
#include <set>
#include <span>
#include <vector>

#include "base/file_system.h"
#include "base/text.h"

namespace lockstep {
inline namespace base {
namespace {

constexpr const char* kUnknown = "unknown";
constexpr const char* kCpuInfo = "/proc/cpuinfo";

// Bits 31 to 24 of MIDR_EL1: Linux, arch/arm64/include/asm/cputype.h.
struct Implementer {
  std::string_view code, name;
};
constexpr Implementer kImplementers[] = {
    {"0x41", "Arm"},       {"0x42", "Broadcom"},  {"0x43", "Cavium"}, {"0x46", "Fujitsu"},
    {"0x48", "HiSilicon"}, {"0x4e", "NVIDIA"},    {"0x50", "APM"},    {"0x51", "Qualcomm"},
    {"0x61", "Apple"},     {"0x6d", "Microsoft"}, {"0xc0", "Ampere"},
};

// By them LibTorch's libraries choose kernels.
constexpr std::string_view kX86Features[] = {"avx2", "avx512f", "avx512_bf16", "amx_bf16"};
constexpr std::string_view kArmFeatures[] = {"asimdhp", "asimddp",  "asimdfhm", "i8mm",
                                             "bf16",    "sve",      "sve2",     "svei8mm",
                                             "svebf16", "svef32mm", "sme",      "sme2"};

// The values of each line "name<blanks>: value", in their order.
std::vector<std::string> values_of(std::string_view cpuinfo, std::string_view name) {
  std::vector<std::string> values;
  for (const std::string& line : split(cpuinfo, '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(name)) continue;
    if (line.find_first_not_of(" \t", name.size()) != colon) continue;
    const size_t begin = std::min(line.find_first_not_of(" \t", colon + 1), line.size());
    values.push_back(line.substr(begin));
  }
  return values;
}

std::string first_of(const std::vector<std::string>& values) {
  return values.empty() ? kUnknown : values.front();
}

// " name" for each of `wanted` that the line of words has.
std::string features_in(const std::string& line, std::span<const std::string_view> wanted) {
  const std::vector<std::string> has = split(line, ' ');
  std::string found;
  for (const std::string_view name : wanted)
    if (std::find(has.begin(), has.end(), name) != has.end()) found.append(" ").append(name);
  return found;
}

std::string implementer_name(const std::string& code) {
  for (const Implementer& known : kImplementers)
    if (known.code == code) return std::string(known.name);
  return code;
}

}  // namespace

std::string x86_identity(std::string_view cpuinfo) {
  return first_of(values_of(cpuinfo, "vendor_id")) +
         features_in(first_of(values_of(cpuinfo, "flags")), kX86Features);
}

std::string arm_identity(std::string_view cpuinfo) {
  const std::vector<std::string> implementers = values_of(cpuinfo, "CPU implementer");
  const std::vector<std::string> parts = values_of(cpuinfo, "CPU part");
  std::set<std::string> kinds;
  for (size_t i = 0; i < std::min(implementers.size(), parts.size()); ++i)
    kinds.insert(text(implementer_name(implementers[i]), " ", parts[i]));
  std::string all;
  for (const std::string& kind : kinds) all.append(all.empty() ? "" : " + ").append(kind);
  return (all.empty() ? kUnknown : all) +
         features_in(first_of(values_of(cpuinfo, "Features")), kArmFeatures);
}

std::string cpu_identity() {
  auto cpuinfo = read_stream(kCpuInfo);
  if (!cpuinfo.ok()) return kUnknown;
#if defined(__aarch64__)
  return arm_identity(*cpuinfo);
#else
  return x86_identity(*cpuinfo);
#endif
}

}  // namespace base
}  // namespace lockstep
