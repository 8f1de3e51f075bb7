#include "core/comm/word_merge.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace lockstep::core {
namespace {

const uint64_t* words_in(const at::Tensor& t) {
  return reinterpret_cast<const uint64_t*>(t.const_data_ptr<int64_t>());
}

}  // namespace

void WordSum::merge(int, int, int, Words before, Words others, Place out) const {
  for (size_t i = 0; i < out.size(); ++i) out[i] = before[i] + others[i];
}

void WordSum::answer(Words all, Place out) const { std::copy(all.begin(), all.end(), out.begin()); }

MergedWords::MergedWords(Communicator& comm, const WordMerge& merge,
                         const std::vector<uint64_t>& mine)
    : merge_(merge), world_size_(comm.world_size()) {
  const int rank = comm.rank();
  LOCKSTEP_CHECK(std::ssize(mine) == merge.words(rank, rank + 1), mine.size());
  const bool gathers = !comm.merges();
  mine_ = at::zeros({gathers ? merge.most_words() : std::ssize(mine)}, at::kLong);
  std::copy(mine.begin(), mine.end(), mine_.data_ptr<int64_t>());
  if (gathers) {
    all_ = at::zeros({world_size_ * mine_.numel()}, at::kLong);
    pending_ = comm.all_gather(all_, mine_);
  } else {
    answer_ = at::zeros({merge.answer_words()}, at::kLong);
    pending_ = comm.merge(merge, mine_, answer_);
  }
}

// From a row of each rank.
std::vector<uint64_t> MergedWords::merged() const {
  const auto row = [&](int rank) {
    return std::span(words_in(all_) + rank * mine_.numel(),
                     static_cast<size_t>(merge_.words(rank, rank + 1)));
  };
  std::vector<uint64_t> so_far(row(0).begin(), row(0).end());
  for (int rank = 1; rank < world_size_; ++rank) {
    std::vector<uint64_t> next(static_cast<size_t>(merge_.words(0, rank + 1)));
    merge_.merge(0, rank, rank + 1, so_far, row(rank), next);
    so_far = std::move(next);
  }
  return so_far;
}

Result<std::vector<uint64_t>> MergedWords::wait() {
  LOCKSTEP_CHECK(!std::exchange(waited_, true), "words are waited for twice");
  LOCKSTEP_RETURN_IF_ERROR(pending_->wait());
  std::vector<uint64_t> answer(static_cast<size_t>(merge_.answer_words()));
  if (all_.defined())
    merge_.answer(merged(), answer);
  else
    std::copy_n(words_in(answer_), answer.size(), answer.begin());
  return answer;
}

Result<bool> any_says(Communicator& comm, bool mine) {
  if (comm.world_size() == 1) return mine;
  const WordSum how_many(1);
  LOCKSTEP_TRY(const auto all, MergedWords(comm, how_many, {uint64_t{mine}}).wait());
  return all.front() > 0;
}

}  // namespace lockstep::core
