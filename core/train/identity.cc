#include "core/train/identity.h"

#include <ATen/Version.h>
#include <torch/headeronly/version.h>
#include <algorithm>

#include "base/cpu_identity.h"
#include "base/hash.h"
#include "base/text.h"
#include "core/device/devices.h"
#include "layout/lora.h"

namespace lockstep::core {

std::string device_identity() {
  const std::string device = local_device().name();
  return text(cpu_identity(), device.empty() ? "" : " + ", device);
}

std::string Identity::hash() const {
  std::string all;
  for (const std::string& line : lines) all.append(line).append("\n");
  return hex64(xxh3_64(all));
}

Identity make_identity(const Config& config, const layout::ModelSpec& spec,
                       const std::string& data_hash, const std::string& initial_weights) {
  Identity identity{identity_lines(config)};
  identity.lines.push_back(text("build.torch=", TORCH_VERSION));
  identity.lines.push_back(text("build.cpu_capability=", at::get_cpu_capability()));
  identity.lines.push_back(text("device=", device_identity()));
  if (const std::string libraries = local_device().libraries(); !libraries.empty())
    identity.lines.push_back(text("device.libraries=", libraries));
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
    identity.lines.push_back(text("model.architecture=", architecture_text(spec.shape)));
    identity.lines.push_back(text("model.initial_weights=", initial_weights));
  }
  std::sort(identity.lines.begin(), identity.lines.end());
  return identity;
}

}  // namespace lockstep::core
