// Which token comes next: drawn from the logits of the last one. No Torch.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::core {

// As transformers has them, in this order: softmax(logits / temperature), among the top_k
// likeliest, among the fewest of these whose probabilities reach top_p of all.
struct Sampling {
  double temperature = 0.8;  // 0: always the likeliest
  int64_t top_k = 0;         // 0: all
  double top_p = 1;          // 1: all
};

// The index that `uniform`, in [0, 1), draws. Of equal logits the first is the likelier one. The
// same bits on every host. Requires: there is a logit.
int64_t draw_token(std::span<const float> logits, const Sampling& sampling, double uniform);

// The n-th uniform number in [0, 1) of a sequence: of its prompt, of how many equal prompts came
// before it, and of the seed. It depends on no other prompt.
class TokenStream {
 public:
  TokenStream(uint64_t seed, std::span<const int64_t> prompt, uint64_t equal_before);
  double uniform(int64_t n) const;

 private:
  uint64_t key_, stream_;
};

}  // namespace lockstep::core
