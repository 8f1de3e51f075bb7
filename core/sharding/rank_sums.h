// What the ranks tell each other once a step, or once a validation, in one small exchange
// (layout/slot_map.h): the losses and valid tokens of their own slots, and their flags.
#pragma once

#include <memory>
#include <vector>

#include "core/comm/word_merge.h"
#include "core/sharding/rank_flags.h"

namespace lockstep::core {

struct SlotLoss {
  double sum = 0;  // of the valid tokens' losses, fp64, added in slot order
  int64_t valid_tokens = 0;
};

class RankSums : public WordMerge {
 public:
  RankSums(const layout::StepSums& places, int rank);

  // Of a slot that this rank computed.
  void set_loss(int64_t slot, double loss);
  void set_valid_tokens(int64_t slot, int64_t tokens);
  void set_flags(const RankFlags& mine);

  // Begins the exchange. The rest is there once it has ended, on every rank the same. Collective.
  void share(Communicator& comm);
  Result<void> wait();
  const SlotLoss& total() const { return total_; }
  const RankFlags& flags() const { return flags_; }  // of all ranks together

  int64_t words(int first, int end) const override { return places_.words(end - first); }
  int64_t most_words() const override { return places_.words(1); }
  void merge(int first, int middle, int end, Words before, Words others, Place out) const override;
  int64_t answer_words() const override { return 2 + places_.flags; }
  void answer(Words all, Place out) const override;

 private:
  const layout::StepSums places_;
  const int rank_;
  std::vector<uint64_t> own_;
  SlotLoss total_;
  RankFlags flags_;
  std::unique_ptr<MergedWords> shared_;
};

}  // namespace lockstep::core
