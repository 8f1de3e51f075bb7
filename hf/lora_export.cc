#include "hf/lora_export.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/json.h"
#include "layout/lora.h"

namespace lockstep::hf {
namespace {

// Both factors of what is added to a matrix [rows, columns]: left [rows, rank], scaled, and right
// [rank, columns].
struct Factors {
  std::string of;  // the matrix
  std::vector<float> left, right;
};

std::vector<float> transposed(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> out(matrix.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c)
      out[static_cast<size_t>(c * rows + r)] = matrix[static_cast<size_t>(r * columns + c)];
  return out;
}

class Merger {
 public:
  Merger(TensorReader base, TensorReader adapters, const layout::ModelSpec& spec,
         const Config::Lora& lora)
      : base_(std::move(base)),
        adapters_(std::move(adapters)),
        in_out_(spec.shape.gpt2),
        rank_(lora.rank),
        scale_(static_cast<float>(lora.alpha / static_cast<double>(lora.rank))) {
    for (const auto& unit : spec.adapters())
      for (const auto& param : unit.params) params_[param.name] = &param;
  }

  Result<void> read(const std::string& name, const std::vector<int64_t>& shape, int64_t first,
                    std::span<float> out) {
    LOCKSTEP_RETURN_IF_ERROR(base_(name, shape, first, out));
    const std::string path = layout::path_of(name);
    const bool matrix = name == path + ".weight";  // its bias has the same path
    if (!matrix || !params_.contains(path + ".lora_A.weight")) return {};
    if (factors_.of != name) LOCKSTEP_RETURN_IF_ERROR(read_factors(name));
    const int64_t columns = shape[1];
    for (size_t done = 0; done < out.size();) {
      const int64_t row = (first + static_cast<int64_t>(done)) / columns;
      const int64_t column = (first + static_cast<int64_t>(done)) % columns;
      const size_t count = std::min(out.size() - done, static_cast<size_t>(columns - column));
      add_row(row, column, columns, out.subspan(done, count));
      done += count;
    }
    return {};
  }

 private:
  Result<std::vector<float>> whole(const std::string& name) {
    const layout::ParamSpec& param = *params_.at(name);
    std::vector<float> values(static_cast<size_t>(param.elements()));
    LOCKSTEP_RETURN_IF_ERROR(adapters_(name, param.shape, 0, values));
    return values;
  }

  Result<void> read_factors(const std::string& name) {
    const std::string path = layout::path_of(name);
    LOCKSTEP_TRY(std::vector<float> a, whole(path + ".lora_A.weight"));  // [rank, in]
    LOCKSTEP_TRY(std::vector<float> b, whole(path + ".lora_B.weight"));  // [out, rank]
    if (in_out_) {
      const int64_t in = static_cast<int64_t>(a.size()) / rank_;
      const int64_t out = static_cast<int64_t>(b.size()) / rank_;
      factors_ = {name, transposed(a, rank_, in), transposed(b, out, rank_)};
    } else {
      factors_ = {name, std::move(b), std::move(a)};
    }
    for (float& value : factors_.left) value *= scale_;
    return {};
  }

  void add_row(int64_t row, int64_t column, int64_t columns, std::span<float> out) const {
    for (int64_t k = 0; k < rank_; ++k) {
      const float factor = factors_.left[static_cast<size_t>(row * rank_ + k)];
      const float* right = factors_.right.data() + k * columns + column;
      for (size_t i = 0; i < out.size(); ++i) out[i] += factor * right[i];
    }
  }

  TensorReader base_, adapters_;
  bool in_out_;  // gpt2's matrices
  int64_t rank_;
  float scale_;
  std::map<std::string, const layout::ParamSpec*> params_;
  Factors factors_;
};

}  // namespace

std::string adapter_config_json(const Config::Lora& lora, const layout::DecoderShape& shape,
                                const std::string& base) {
  nlohmann::ordered_json folder;  // null
  if (!base.empty()) folder = base;
  const nlohmann::ordered_json object{{"peft_type", "LORA"},
                                      {"task_type", "CAUSAL_LM"},
                                      {"base_model_name_or_path", folder},
                                      {"r", lora.rank},
                                      {"lora_alpha", lora.alpha},
                                      {"lora_dropout", lora.dropout},
                                      {"target_modules", layout::target_modules(lora, shape)},
                                      {"fan_in_fan_out", shape.gpt2},
                                      {"bias", "none"},
                                      {"inference_mode", true}};
  return object.dump(2) + "\n";
}

TensorReader merged(TensorReader base, TensorReader adapters, const layout::ModelSpec& spec,
                    const Config::Lora& lora) {
  auto merger = std::make_shared<Merger>(std::move(base), std::move(adapters), spec, lora);
  return [merger](const std::string& name, const std::vector<int64_t>& shape, int64_t first,
                  std::span<float> out) { return merger->read(name, shape, first, out); };
}

}  // namespace lockstep::hf
