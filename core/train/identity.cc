#include "core/train/identity.h"

#include <algorithm>
#include <map>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/device/devices.h"
#include "layout/lora.h"

namespace lockstep::core {
namespace {

// The value after "name :" of the first matching line of /proc/cpuinfo.
std::string cpu_info(const std::string& name) {
  auto info = read_stream("/proc/cpuinfo");
  if (!info.ok()) return "unknown";
  for (const std::string& line : split(*info, '\n')) {
    const size_t colon = line.find(':');
    if (line.starts_with(name) && colon != std::string::npos && colon + 2 <= line.size())
      return line.substr(colon + 2);
  }
  return "unknown";
}

std::map<std::string, std::string> by_name(const std::vector<std::string>& lines) {
  std::map<std::string, std::string> map;
  for (const std::string& line : lines) {
    const size_t equals = line.find('=');
    map[line.substr(0, equals)] = equals == std::string::npos ? "" : line.substr(equals + 1);
  }
  return map;
}

}  // namespace

std::string device_identity() {
  const std::string flags = text(" ", cpu_info("flags"), " ");
  std::string isa;
  for (const char* name : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"})
    if (flags.find(text(" ", name, " ")) != std::string::npos) isa.append(" ").append(name);
  const std::string device = local_device().name();
  return text(cpu_info("vendor_id"), isa, device.empty() ? "" : " + ", device);
}

std::string Identity::hash() const {
  std::string all;
  for (const std::string& line : lines) all.append(line).append("\n");
  return hex64(xxh3_64(all));
}

Result<Identity> make_identity(const Config& config, const layout::ModelSpec& spec,
                               const std::string& data_hash, const hf::HfWeights* initial_weights) {
  Identity identity{identity_lines(config)};
  identity.lines.push_back(text("build.torch=", TORCH_VERSION));
  identity.lines.push_back(text("build.cpu_capability=", at::get_cpu_capability()));
  identity.lines.push_back(text("device=", device_identity()));
  identity.lines.push_back(text("data.manifest=", data_hash));
  identity.lines.push_back(text("model.parameters=", spec.parameter_count()));
  if (spec.adapted()) {
    std::string targets;
    for (const std::string& name : layout::target_modules(config.lora, spec.shape))
      targets += " " + name;
    identity.lines.push_back(text("lora=rank ", config.lora.rank, " alpha ", config.lora.alpha,
                                  " dropout ", config.lora.dropout, " of", targets));
  }
  if (!config.model.hf_assets_path.empty()) {
    std::string weights = "random";
    if (initial_weights != nullptr) {
      LOCKSTEP_TRY(weights, initial_weights->hash());
    }
    identity.lines.push_back(text("model.architecture=", architecture_text(spec.shape)));
    identity.lines.push_back(text("model.initial_weights=", weights));
  }
  std::sort(identity.lines.begin(), identity.lines.end());
  return identity;
}

std::vector<LineDifference> differing_lines(const std::vector<std::string>& was,
                                            const std::vector<std::string>& is) {
  const auto before = by_name(was), now = by_name(is);
  std::vector<LineDifference> differing;
  auto value = [](const std::map<std::string, std::string>& map, const std::string& name) {
    const auto found = map.find(name);
    return found == map.end() ? std::string("(absent)") : found->second;
  };
  std::map<std::string, bool> names;
  for (const auto& [name, v] : before) names[name] = true;
  for (const auto& [name, v] : now) names[name] = true;
  for (const auto& [name, unused] : names)
    if (value(before, name) != value(now, name))
      differing.push_back({name, value(before, name), value(now, name)});
  return differing;
}

std::vector<std::string> identity_difference(const std::vector<std::string>& was,
                                             const std::vector<std::string>& is) {
  std::vector<std::string> differing;
  for (const LineDifference& d : differing_lines(was, is))
    differing.push_back(text(d.name, ": was ", d.was, ", is ", d.is));
  return differing;
}

}  // namespace lockstep::core
