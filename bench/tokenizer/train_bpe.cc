// train_bpe TEXT VOCABULARY OUT: learns a vocabulary from one file, writes tokenizer.json, and
// prints the seconds of counting pieces and of learning merges as JSON. For bpe_bench.py.
#include <algorithm>
#include <iostream>
#include <string>

#include "base/clock.h"
#include "data/prepare/bpe_trainer.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  if (argc != 4) return 64;
  const auto text = read_file(posix_file_system(), argv[1]);
  if (!text.ok()) return 64;
  constexpr size_t kSegment = size_t{64} << 10;  // as prepare cuts texts
  data::BpeTrainer trainer({"<|endoftext|>"});
  const double start = system_clock().monotonic_s();
  for (size_t at = 0; at < text.value().size();) {
    size_t end = std::min(text.value().size(), at + kSegment);
    const size_t line = text.value().rfind('\n', end - 1);
    if (end < text.value().size() && line != std::string::npos && line >= at) end = line + 1;
    if (!trainer.add(std::string_view(text.value()).substr(at, end - at)).ok()) return 70;
    at = end;
  }
  const double counted = system_clock().monotonic_s();
  const std::string json = trainer.tokenizer_json(std::stoll(argv[2]));
  const double learnt = system_clock().monotonic_s();
  if (!publish_file(posix_file_system(), argv[3], json).ok()) return 70;
  std::cout << "{\"count_s\": " << counted - start << ", \"learn_s\": " << learnt - counted
            << "}\n";
}
