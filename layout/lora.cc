#include "layout/lora.h"

#include <algorithm>
#include <cmath>

#include "base/text.h"

namespace lockstep::layout {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

// As PEFT: every matrix of a block, not the embedding nor the head; of experts' blocks attention's.
std::vector<std::string> all_linear(const DecoderShape& shape) {
  if (shape.gpt2) return {"c_attn", "c_proj", "c_fc"};
  if (shape.experts > 0) return {"q_proj", "k_proj", "v_proj", "o_proj"};
  return {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
}

// Whether a matrix of a block can have an adapter; a router and experts have none.
bool adaptable(const DecoderShape& shape, const ParamSpec& matrix) {
  const Role r = matrix.role;
  const bool routed = r == Role::kRouter || r == Role::kGate || r == Role::kUp || r == Role::kDown;
  return matrix.decays() && !(shape.experts > 0 && routed);
}

}  // namespace

std::string path_of(const std::string& parameter) {
  return parameter.substr(0, parameter.rfind('.'));
}

std::string module_of(const std::string& parameter) {
  const std::string path = path_of(parameter);
  return path.substr(path.rfind('.') + 1);
}

std::vector<std::string> target_modules(const Config::Lora& lora, const DecoderShape& shape) {
  if (lora.target_modules == std::vector<std::string>{"all-linear"}) return all_linear(shape);
  if (!lora.target_modules.empty()) return lora.target_modules;
  if (shape.gpt2) return {"c_attn"};
  return {"q_proj", "v_proj"};
}

Result<void> check_modules(const Config::Lora& lora, const ModelSpec& base) {
  if (lora.rank == 0) return {};
  if (base.shape.family == ModelFamily::kLinear)
    return Error{Code::kConfig,
                 "lora.rank: the family linear has no adapters; adapters need the matrices of "
                 "transformer blocks"};
  std::vector<std::string> there;
  for (const ParamSpec& param : base.units[1].params)
    if (const std::string name = module_of(param.name);
        adaptable(base.shape, param) && !contains(there, name))
      there.push_back(name);
  for (const std::string& name : target_modules(lora, base.shape)) {
    if (contains(there, name)) continue;
    const std::string meant = nearest(name, there);
    std::string all;
    for (const std::string& one : there) all += (all.empty() ? "" : ", ") + one;
    return Error{Code::kConfig,
                 text("lora.target_modules: ", base.shape.family, " has no matrix ", name,
                      "; it has ", all, meant.empty() ? "" : text("; did you mean ", meant, "?"))};
  }
  return {};
}

void add_adapters(const Config::Lora& lora, ModelSpec& spec) {
  const std::vector<std::string> targets = target_modules(lora, spec.shape);
  std::vector<UnitSpec> adapters;
  for (UnitSpec& unit : spec.units) {
    unit.frozen = true;
    if (&unit == &spec.units.front() || &unit == &spec.units.back()) continue;
    UnitSpec mine{unit.name + ".adapters", {}, false};
    for (const ParamSpec& matrix : unit.params) {
      if (!adaptable(spec.shape, matrix) || !contains(targets, module_of(matrix.name))) continue;
      // gpt2's are [in, out].
      const int64_t in = matrix.shape[spec.shape.gpt2 ? 0 : 1];
      const int64_t out = matrix.shape[spec.shape.gpt2 ? 1 : 0];
      const double bound = 1.0 / std::sqrt(static_cast<double>(in));
      const std::string path = path_of(matrix.name);
      mine.params.push_back({path + ".lora_A.weight", {lora.rank, in}, 0, matrix.role, 0, bound});
      mine.params.push_back({path + ".lora_B.weight", {out, lora.rank}, 0, matrix.role, 0});
    }
    adapters.push_back(std::move(mine));
  }
  for (UnitSpec& unit : adapters) spec.units.push_back(std::move(unit));
}

}  // namespace lockstep::layout
