// token_read_bench FILE [SAMPLES]: what a sample costs to read, from a file of u16 tokens (the
// format of nanoGPT), in the order of training. Side by side, in turn, the best of three rounds:
//
//   pread     one call a sample into the caller's memory, as data/ reads
//   mmap      the file mapped once, a copy a sample; also with MADV_RANDOM
//   batch     TokenDataset::batch, all of it: order, a patient read, widening, the range check
//
// warm: the file is in the page cache. cold: its pages were dropped before the round.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iomanip>
#include <iostream>
#include <vector>

#include "base/clock.h"
#include "base/file_system.h"
#include "data/loader/open_dataset.h"
#include "data/order/sample_order.h"

namespace {

using namespace lockstep;

constexpr int64_t kSeqLen = 2048, kBytes = 2 * (kSeqLen + 1), kVocabulary = 65536;
constexpr uint64_t kSeed = 42;

template <typename T>
T value_or_exit(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::cerr << "token_read_bench: " << result.error().message << "\n";
  std::exit(1);
}

struct Input {
  std::string path;
  int64_t size_bytes = 0, samples = 0;  // of the file; that are read
  int64_t offset(int64_t i) const {
    const int64_t count = (size_bytes / 2 - 1) / kSeqLen;
    return data::SampleOrder(count, kSeed, 0)(i) * kSeqLen * 2;
  }
};

// Seconds; `sum` keeps the compiler from dropping the reads.
double with_pread(const Input& input, uint64_t& sum) {
  const auto file = value_or_exit(posix_file_system().open(input.path));
  std::vector<std::byte> bytes(kBytes);
  const double start = system_clock().monotonic_s();
  for (int64_t i = 0; i < input.samples; ++i) {
    if (!file->read_at(bytes, input.offset(i)).ok()) std::exit(1);
    sum += static_cast<uint64_t>(bytes[static_cast<size_t>(i % kBytes)]);
  }
  return system_clock().monotonic_s() - start;
}

double with_mmap(const Input& input, int advice, uint64_t& sum) {
  const int fd = ::open(input.path.c_str(), O_RDONLY);
  const auto length = static_cast<size_t>(input.size_bytes);
  void* const map = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, 0);
  if (fd < 0 || map == MAP_FAILED || ::madvise(map, length, advice) != 0) std::exit(1);
  std::vector<std::byte> bytes(kBytes);
  const double start = system_clock().monotonic_s();
  for (int64_t i = 0; i < input.samples; ++i) {
    std::memcpy(bytes.data(), static_cast<const std::byte*>(map) + input.offset(i), kBytes);
    sum += static_cast<uint64_t>(bytes[static_cast<size_t>(i % kBytes)]);
  }
  const double seconds = system_clock().monotonic_s() - start;
  ::munmap(map, length);
  ::close(fd);
  return seconds;
}

double with_batch(const Input& input, uint64_t& sum) {
  Config::Data source;
  source.path = input.path;
  source.kind = DataKind::kNanogpt;
  const auto dataset = value_or_exit(data::open_dataset(
      posix_file_system(), source, {"train", kSeqLen, 1, 1, kSeed, kVocabulary}));
  const double start = system_clock().monotonic_s();
  for (int64_t i = 0; i < input.samples; ++i)
    sum += static_cast<uint64_t>(value_or_exit(dataset->batch(i, 0)).tokens[0]);
  return system_clock().monotonic_s() - start;
}

void drop_pages(const Input& input) {
  const int fd = ::open(input.path.c_str(), O_RDONLY);
  if (fd < 0 || ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) std::exit(1);
  ::close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) return 64;
  Input input{argv[1]};
  const auto file = value_or_exit(posix_file_system().open(input.path));
  input.size_bytes = value_or_exit(file->size_bytes());
  const int64_t count = (input.size_bytes / 2 - 1) / kSeqLen;
  input.samples = argc == 3 ? std::min<int64_t>(count, std::atoll(argv[2])) : count;
  uint64_t sum = 0;
  const std::vector<std::pair<const char*, std::function<double()>>> ways{
      {"pread", [&] { return with_pread(input, sum); }},
      {"mmap", [&] { return with_mmap(input, MADV_NORMAL, sum); }},
      {"mmap, MADV_RANDOM", [&] { return with_mmap(input, MADV_RANDOM, sum); }},
      {"batch", [&] { return with_batch(input, sum); }}};
  std::cout << input.samples << " of " << count << " samples of " << kSeqLen
            << " tokens; us a sample\n"
            << std::fixed << std::setprecision(2) << "way                    warm     cold\n";
  std::vector<double> warm(ways.size(), 1e9), cold(ways.size(), 1e9);
  for (int round = 0; round < 3; ++round)
    for (size_t w = 0; w < ways.size(); ++w) {
      drop_pages(input);
      cold[w] = std::min(cold[w], ways[w].second());
      ways[w].second();  // all pages in
      warm[w] = std::min(warm[w], ways[w].second());
    }
  const double us = 1e6 / static_cast<double>(input.samples);
  for (size_t w = 0; w < ways.size(); ++w)
    std::cout << std::left << std::setw(18) << ways[w].first << std::right << std::setw(9)
              << warm[w] * us << std::setw(9) << cold[w] * us << "\n";
  return sum == 0 ? 70 : 0;
}
