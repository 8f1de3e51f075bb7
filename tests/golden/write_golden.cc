// write_golden FOLDER: FOLDER/<codec>/step_… for each codec, from two ranks. With `parts` behind it
// FOLDER/zstd alone, from ten ranks whose manifest is in two parts. Ran once for each set in
// tests/golden (README.md there): a set is never written again.
#include <iostream>

#include "tests/golden/golden_model.h"

namespace lockstep::checkpoint {
namespace {

int write_all(const std::filesystem::path& folder, bool in_parts) {
  for (const char* codec : golden::kCodecs) {
    if (in_parts && codec != golden::kCodecs[0]) break;
    EngineOptions options = test_support::options_in(folder / codec);
    options.nonce = "901de2";
    options.codec = *choice_of<Codec>(codec);
    if (in_parts) options.most_ranks_in_one_manifest = 0;
    test_support::World world(posix_file_system(), options, golden::model(codec),
                              in_parts ? golden::kRanksInParts : golden::kRanks);
    for (auto& state : world.states)
      golden::for_each_element(*state, [](float& element, float value) { element = value; });
    const auto reports =
        world.save(SaveRequest{.step = golden::kStep, .trainer_state = "{\"step\":12}"});
    if (!world.error.empty() || reports.empty() || !reports[0].committed) {
      std::cerr << codec << ": no checkpoint: " << world.error << "\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::checkpoint

int main(int argc, char** argv) {
  const bool in_parts = argc == 3 && std::string_view(argv[2]) == "parts";
  if (argc != 2 && !in_parts) return 64;
  return lockstep::checkpoint::write_all(argv[1], in_parts);
}
