// The families of models; docs/MODELS.md says what each has. Their words are in choices.h.
#pragma once

namespace lockstep {
inline namespace base {

enum class ModelFamily {
  kLlama,
  kMistral,
  kQwen2,
  kQwen3,
  kGpt2,
  kGemma2,
  kGemma3,
  kMixtral,
  kQwen3Moe,
  kLinear
};

}  // namespace base
}  // namespace lockstep
