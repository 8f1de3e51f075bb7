// Runs one function on a thread for each rank, and returns what each returned.
#pragma once

#include <optional>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::test_support {

template <typename Function>
auto ranks_at_once(int world_size, const Function& function) {
  using Returned = std::invoke_result_t<Function, int>;
  std::vector<std::optional<Returned>> slots(static_cast<size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank)
    threads.emplace_back([&, rank] { slots[static_cast<size_t>(rank)].emplace(function(rank)); });
  for (std::thread& thread : threads) thread.join();
  std::vector<Returned> returned;
  for (auto& slot : slots) returned.push_back(std::move(*slot));
  return returned;
}

}  // namespace lockstep::test_support
