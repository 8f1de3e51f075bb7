// Collectives whose result every rank can compute for itself.
#pragma once

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <random>
#include <vector>

#include "core/comm/communicator.h"

namespace lockstep::core {

// What rank `from` sends to rank `to` as its collective `number`, `n` elements: int32 [n].
inline at::Tensor message(int64_t n, int from, int to, int number) {
  return at::arange(n, at::kInt).mul_(7).add_(from * 10'007 + to * 101 + number);
}

struct Issued {
  PendingPtr pending;
  at::Tensor out, expected;
};

// What becomes of the input once the collective is issued. A communicator that copies at once
// allows it to be overwritten.
enum class Input { kStays, kOverwritten };

// The all-gather `number` of `n` elements a rank.
inline Issued gather(Communicator& comm, int64_t n, int number, Input input = Input::kStays) {
  std::vector<at::Tensor> all;
  for (int r = 0; r < comm.world_size(); ++r) all.push_back(message(n, r, 0, number));
  at::Tensor in = message(n, comm.rank(), 0, number);
  at::Tensor out = at::zeros({n * comm.world_size()}, at::kInt);
  PendingPtr pending = comm.all_gather(out, in);
  if (input == Input::kOverwritten) in.zero_();
  return {std::move(pending), out, at::cat(all)};
}

// The elements that rank `from` sends to rank `to` in collective `number`.
using Count = int64_t (*)(int from, int to, int number);

inline Issued exchange(Communicator& comm, Count count, int number, Input input = Input::kStays) {
  const int me = comm.rank();
  std::vector<at::Tensor> sent, expected;
  std::vector<int64_t> in_counts, out_counts;
  for (int r = 0; r < comm.world_size(); ++r) {
    in_counts.push_back(count(me, r, number));
    out_counts.push_back(count(r, me, number));
    sent.push_back(message(in_counts.back(), me, r, number));
    expected.push_back(message(out_counts.back(), r, me, number));
  }
  at::Tensor in = at::cat(sent), wanted = at::cat(expected);
  at::Tensor out = at::zeros_like(wanted);
  PendingPtr pending = comm.all_to_all(out, out_counts, in, in_counts);
  if (input == Input::kOverwritten) in.zero_();
  return {std::move(pending), out, wanted};
}

// Issues `numbers` collectives, fewer than `most` under way at a time, and waits for them in an
// order of this rank's own.
inline void expect_all_arrive(int rank, int numbers, unsigned most,
                              const std::function<Issued(int number)>& issue) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::deque<Issued> under_way;
  const auto end = [&](size_t k) {
    ASSERT_TRUE(under_way[k].pending->wait().ok());
    ASSERT_TRUE(at::equal(under_way[k].out, under_way[k].expected)) << "rank " << rank;
    under_way.erase(under_way.begin() + static_cast<std::ptrdiff_t>(k));
  };
  for (int number = 0; number < numbers; ++number) {
    under_way.push_back(issue(number));
    while (under_way.size() > random() % most)
      ASSERT_NO_FATAL_FAILURE(end(random() % under_way.size())) << "after number " << number;
  }
  while (!under_way.empty()) ASSERT_NO_FATAL_FAILURE(end(0));
}

}  // namespace lockstep::core
