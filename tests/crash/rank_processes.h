// Saves on a real disk that meet their end: shared by the tests of signals that run often and the
// slow ones.
#pragma once

#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint::processes {

using Model = std::vector<test_support::TensorSpec>;

inline constexpr int64_t kPrevious = 2, kNext = 3;  // saved before; saved at the fault

EngineOptions options_of(const std::filesystem::path& folder, int64_t generation);
// In generation 1.
void save_first_two(const std::filesystem::path& folder, const Model& model);
// What is loaded at another world size; then it trains on in generation 3.
int64_t recovered_step(const std::filesystem::path& folder, const Model& model, int world_size);

// Ranks that are processes of their own, four of the five with one file. The one that writes it
// dies of each of `faults` at each call of its save, and at each word; another one, which makes no
// call, at each word. The others of the file vote at once, and the save before loads.
void kill_ranks_of_a_file(const Model& model, std::span<const Fault> faults);

}  // namespace lockstep::checkpoint::processes
