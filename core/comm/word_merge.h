// A few 64-bit words of every rank, of which all need only what comes of them together. On the way
// up a tree of ranks (tree_communicator.h) what two runs of ranks tell becomes what both tell, so
// that a rank hears a few rows and not those of all.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "core/comm/communicator.h"

namespace lockstep::core {

// How that is done: local, and the same on every rank and for any cut into runs.
class WordMerge {
 public:
  virtual ~WordMerge() = default;
  using Words = std::span<const uint64_t>;
  using Place = std::span<uint64_t>;

  // How many words ranks [first, end) tell together.
  virtual int64_t words(int first, int end) const = 0;
  // Of one rank, at most.
  virtual int64_t most_words() const = 0;
  // Into `out` what ranks [first, end) tell, from what those before `middle` tell and the others.
  virtual void merge(int first, int middle, int end, Words before, Words others,
                     Place out) const = 0;
  // Into `out` what every rank gets, from what all tell.
  virtual int64_t answer_words() const = 0;
  virtual void answer(Words all, Place out) const = 0;
};

// Each word is the sum of all ranks', modulo 2^64.
class WordSum : public WordMerge {
 public:
  explicit WordSum(int64_t words) : words_(words) {}
  int64_t words(int, int) const override { return words_; }
  int64_t most_words() const override { return words_; }
  void merge(int, int, int, Words before, Words others, Place out) const override;
  int64_t answer_words() const override { return words_; }
  void answer(Words all, Place out) const override;

 private:
  int64_t words_;
};

// One such exchange under way. What it borrows outlives it.
class MergedWords {
 public:
  // Begins it. Collective. Requires: `mine` has as many words as `merge` says for this rank.
  MergedWords(Communicator& comm, const WordMerge& merge, const std::vector<uint64_t>& mine);
  // The answer. Once. Errors: those of Pending::wait.
  Result<std::vector<uint64_t>> wait();

 private:
  std::vector<uint64_t> merged() const;

  const WordMerge& merge_;
  const int world_size_;
  at::Tensor mine_, answer_;
  at::Tensor all_;  // where the ranks gather their words: a row each
  PendingPtr pending_;
  bool waited_ = false;
};

// Whether any rank says so, the same on every rank. Collective. Errors: those of Pending::wait.
Result<bool> any_says(Communicator& comm, bool mine);

}  // namespace lockstep::core
