// write_golden FOLDER: FOLDER/<codec>/step_… for each codec, from two ranks. With `parts` behind it
// FOLDER/zstd alone, from ten ranks whose manifest is in two parts; with `shared` from four ranks
// that share a file. Ran once for each set in
// tests/golden (README.md there): a set is never written again.
#include <iostream>

#include "tests/golden/golden_model.h"

namespace lockstep::checkpoint {
namespace {

enum class Form { kPlain, kInParts, kShared };

int ranks_of(Form form) {
  if (form == Form::kInParts) return golden::kRanksInParts;
  return form == Form::kShared ? golden::kRanksOfAFile : golden::kRanks;
}

int write_all(const std::filesystem::path& folder, Form form) {
  for (const char* codec : golden::kCodecs) {
    if (form != Form::kPlain && codec != golden::kCodecs[0]) break;
    EngineOptions options = test_support::options_in(folder / codec);
    options.nonce = "901de2";
    options.codec = *choice_of<Codec>(codec);
    if (form == Form::kInParts) options.most_ranks_in_one_manifest = 0;
    if (form == Form::kShared) options.ranks_per_file = golden::kRanksOfAFile;
    test_support::World world(posix_file_system(), options, golden::model(codec), ranks_of(form));
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
  using lockstep::checkpoint::Form;
  const std::string_view word = argc == 3 ? argv[2] : "";
  const Form form = word == "parts"    ? Form::kInParts
                    : word == "shared" ? Form::kShared
                                       : Form::kPlain;
  if (argc != 2 && form == Form::kPlain) return 64;
  return lockstep::checkpoint::write_all(argv[1], form);
}
