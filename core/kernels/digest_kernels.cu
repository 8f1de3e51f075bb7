// XXH3 with a seed (Collet's xxHash, 64 bits; doc/xxhash_spec.md), a tile by four threads: each has
// two of its eight sums. It is the hash of base/hash.h to the bit.
#include "core/kernels/digest_kernels.h"

#include <algorithm>

#include "core/device/launch.cuh"
#include "layout/model_spec.h"

namespace lockstep::core {

using namespace cuda;

namespace {

constexpr int kLanes = 4, kDigestThreads = 128, kSumThreads = 256, kMostRuns = 64;
constexpr int kStripe = 64, kStripesOfBlock = 16, kBlock = kStripe * kStripesOfBlock;
constexpr int kShort = 240, kSecretWords = 24;

constexpr uint64_t kPrime32_1 = 0x9e3779b1, kPrime32_2 = 0x85ebca77, kPrime32_3 = 0xc2b2ae3d;
constexpr uint64_t kPrime64_1 = 0x9e3779b185ebca87, kPrime64_2 = 0xc2b2ae3d27d4eb4f,
                   kPrime64_3 = 0x165667b19e3779f9, kPrime64_4 = 0x85ebca77c2b2ae63,
                   kPrime64_5 = 0x27d4eb2f165667c5;

// The bytes that XXH3 mixes in.
struct Secret {
  uint64_t word[kSecretWords];
};
constexpr Secret kSecret = {
    {0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
     0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
     0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
     0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
     0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
     0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af}};

__device__ uint64_t shifted(uint64_t x, int by) { return x ^ (x >> by); }
__device__ uint64_t rotated(uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }
// Both halves of the product of 128 bits.
__device__ uint64_t folded(uint64_t a, uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}
__device__ uint64_t avalanche(uint64_t x) {
  return shifted(shifted(x, 37) * 0x165667919e3779f9, 32);
}
__device__ uint64_t swapped32(uint64_t x) {
  return (x >> 24 & 0xff) | (x >> 8 & 0xff00) | (x << 8 & 0xff0000) | (x << 24 & 0xff000000);
}
__device__ uint64_t swapped64(uint64_t x) { return swapped32(x) << 32 | swapped32(x >> 32); }

// The hash of one input of an even number of bytes, aligned to two.
class TileHash {
 public:
  __device__ TileHash(const uint64_t* secret, const std::byte* input, int size, uint64_t seed)
      : secret_(secret), input_(input), size_(size), seed_(seed) {}

  // Of more than kShort bytes: this lane's part of the sum that `whole` takes. `input` is aligned
  // to 16.
  __device__ uint64_t lanes_part(int lane) const {
    uint64_t sums[2];
    for (int k = 0; k < 2; ++k) sums[k] = initial(2 * lane + k);
    const int blocks = (size_ - 1) / kBlock;
    for (int b = 0; b < blocks; ++b) {
      add_stripes(b * kBlock, kStripesOfBlock, lane, sums);
      for (int k = 0; k < 2; ++k)
        sums[k] = (shifted(sums[k], 47) ^ seeded(kStripesOfBlock + 2 * lane + k)) * kPrime32_1;
    }
    add_stripes(blocks * kBlock, (size_ - 1 - blocks * kBlock) / kStripe, lane, sums);
    const int last = size_ - kStripe + 16 * lane;  // may overlap the stripe before it
    const int in_secret = 8 * kSecretWords - kStripe - 7 + 16 * lane;
    add(read(last), read(last + 8), seeded_at(in_secret), seeded_at(in_secret + 8), sums);
    const int to_merge = 11 + 16 * lane;
    return folded(sums[0] ^ seeded_at(to_merge), sums[1] ^ seeded_at(to_merge + 8));
  }
  __device__ uint64_t whole(uint64_t sum) const { return avalanche(times_prime() + sum); }

  // Of kShort bytes at most.
  __device__ uint64_t of_short() const {
    if (size_ > 128) return of_129_to_240();
    if (size_ > 16) return of_17_to_128();
    if (size_ > 8) {
      const uint64_t low = read(0) ^ ((secret_[3] ^ secret_[4]) + seed_);
      const uint64_t high = read(size_ - 8) ^ ((secret_[5] ^ secret_[6]) - seed_);
      return avalanche(static_cast<uint64_t>(size_) + swapped64(low) + high + folded(low, high));
    }
    if (size_ >= 4) {
      const uint64_t seed = seed_ ^ swapped32(seed_ & 0xffffffff) << 32;
      const uint64_t both = read32(size_ - 4) + (read32(0) << 32);
      uint64_t x = both ^ ((secret_[1] ^ secret_[2]) - seed);
      x = (x ^ rotated(x, 49) ^ rotated(x, 24)) * 0x9fb21c651e98df25;
      x = (x ^ ((x >> 35) + static_cast<uint64_t>(size_))) * 0x9fb21c651e98df25;
      return shifted(x, 28);
    }
    const auto both = *reinterpret_cast<const uint16_t*>(input_);
    const uint64_t first = both & 0xff, second = both >> 8;
    const uint64_t mixed = first << 16 | second << 24 | second | 2 << 8;
    const uint64_t x = mixed ^ (((secret_[0] ^ secret_[0] >> 32) & 0xffffffff) + seed_);
    return shifted(shifted(shifted(x, 33) * kPrime64_2, 29) * kPrime64_3, 32);
  }

 private:
  __device__ static uint64_t initial(int sum) {
    switch (sum) {
      case 0: return kPrime32_3;
      case 1: return kPrime64_1;
      case 2: return kPrime64_2;
      case 3: return kPrime64_3;
      case 4: return kPrime64_4;
      case 5: return kPrime32_2;
      case 6: return kPrime64_5;
      default: return kPrime32_1;
    }
  }
  __device__ uint64_t times_prime() const { return static_cast<uint64_t>(size_) * kPrime64_1; }

  __device__ uint64_t read32(int at) const {
    const auto* halves = reinterpret_cast<const uint16_t*>(input_ + at);
    return halves[0] | static_cast<uint64_t>(halves[1]) << 16;
  }
  __device__ uint64_t read(int at) const { return read32(at) | read32(at + 4) << 32; }

  // Of the secret of this seed, a word, and eight bytes from any place on.
  __device__ uint64_t seeded(int word) const {
    return word % 2 == 0 ? secret_[word] + seed_ : secret_[word] - seed_;
  }
  __device__ uint64_t seeded_at(int byte) const {
    return joined(seeded(byte / 8), seeded(byte / 8 + 1), byte % 8);
  }
  __device__ uint64_t secret_at(int byte) const {
    return joined(secret_[byte / 8], secret_[byte / 8 + 1], byte % 8);
  }
  __device__ static uint64_t joined(uint64_t low, uint64_t high, int byte) {  // byte is not 0
    return low >> (8 * byte) | high << (64 - 8 * byte);
  }

  __device__ static void add(uint64_t first, uint64_t second, uint64_t key0, uint64_t key1,
                             uint64_t (&sums)[2]) {
    key0 ^= first;
    key1 ^= second;
    sums[0] += second + (key0 & 0xffffffff) * (key0 >> 32);
    sums[1] += first + (key1 & 0xffffffff) * (key1 >> 32);
  }
  // The first `count` stripes of the block at `at`, four of them under way at once.
  __device__ void add_stripes(int at, int count, int lane, uint64_t (&sums)[2]) const {
    constexpr int kAhead = 4;
    for (int n = 0; n < count; n += kAhead) {
      struct alignas(16) Pair {
        uint64_t first, second;
      } pairs[kAhead];
      for (int k = 0; k < kAhead; ++k)
        if (n + k < count)
          pairs[k] = *reinterpret_cast<const Pair*>(input_ + at + (n + k) * kStripe + 16 * lane);
      for (int k = 0; k < kAhead; ++k)
        if (n + k < count)
          add(pairs[k].first, pairs[k].second, seeded(n + k + 2 * lane),
              seeded(n + k + 2 * lane + 1), sums);
    }
  }

  // Sixteen bytes of the input, with those of the secret from `byte` on.
  __device__ uint64_t mixed(int at, int byte) const {
    const bool whole = byte % 8 == 0;
    const uint64_t low = whole ? secret_[byte / 8] : secret_at(byte),
                   high = whole ? secret_[byte / 8 + 1] : secret_at(byte + 8);
    return folded(read(at) ^ (low + seed_), read(at + 8) ^ (high - seed_));
  }
  __device__ uint64_t of_17_to_128() const {
    uint64_t sum = times_prime();
    for (int pair = (size_ - 1) / 32; pair >= 0; --pair)
      sum += mixed(16 * pair, 32 * pair) + mixed(size_ - 16 * (pair + 1), 32 * pair + 16);
    return avalanche(sum);
  }
  __device__ uint64_t of_129_to_240() const {
    uint64_t sum = times_prime();
    for (int i = 0; i < 8; ++i) sum += mixed(16 * i, 16 * i);
    sum = avalanche(sum) + mixed(size_ - 16, 119);
    for (int i = 8; i < size_ / 16; ++i) sum += mixed(16 * i, 16 * (i - 8) + 3);
    return avalanche(sum);
  }

  const uint64_t* secret_;
  const std::byte* input_;
  int size_;
  uint64_t seed_;
};

// Runs of a launch, as an argument of its kernels.
struct Runs {
  DigestRun run[kMostRuns];
  int64_t first_tile[kMostRuns + 1];  // of all tiles of the launch
  int count = 0;

  int64_t tiles() const { return first_tile[count]; }
};

__global__ void __launch_bounds__(kDigestThreads, blocks_to_fill(kDigestThreads) / 2)
    hash_tiles_kernel(const std::byte* elements, int element_bytes, Runs runs, Secret words,
                      uint64_t* hashes_out) {
  __shared__ uint64_t secret[kSecretWords];
  if (threadIdx.x < kSecretWords) secret[threadIdx.x] = words.word[threadIdx.x];
  __syncthreads();
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t tile = thread / kLanes;
  const int lane = static_cast<int>(thread % kLanes);
  int r = 0;
  while (r + 1 < runs.count && tile >= runs.first_tile[r + 1]) ++r;
  const DigestRun run = runs.run[r];
  const int64_t at = (tile - runs.first_tile[r]) * layout::kTileElements;
  const int64_t left = run.length - at;  // below 0 behind the last tile
  const int64_t count = left < layout::kTileElements ? left : layout::kTileElements;
  const TileHash hash(secret, elements + (run.first + at) * element_bytes,
                      static_cast<int>(count * element_bytes),
                      run.seed + static_cast<uint64_t>(at));
  const bool is_short = count * element_bytes <= kShort;
  uint64_t sum = is_short ? 0 : hash.lanes_part(lane);
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    sum += __shfl_xor_sync(kAllLanes, sum, distance);
  if (count > 0 && lane == 0) hashes_out[tile] = is_short ? hash.of_short() : hash.whole(sum);
}

struct AddWords {
  __device__ uint64_t operator()(uint64_t a, uint64_t b) const { return a + b; }
};

// A block a run.
__global__ void __launch_bounds__(kSumThreads, blocks_to_fill(kSumThreads))
    sum_hashes_kernel(const uint64_t* hashes, Runs runs, uint64_t* sums_out) {
  const int r = static_cast<int>(blockIdx.x);
  const int64_t first = runs.first_tile[r];
  const uint64_t sum =
      over_block<kSumThreads>(runs.first_tile[r + 1] - first, uint64_t{0}, AddWords(),
                              [=](int64_t i) { return hashes[first + i]; });
  if (threadIdx.x == 0) sums_out[r] = sum;
}

}  // namespace

void digest_runs_on_cuda(const std::byte* elements, size_t element_bytes,
                         std::span<const DigestRun> all, uint64_t* sums_out) {
  for (size_t begin = 0; begin < all.size(); begin += kMostRuns) {
    Runs runs;
    runs.first_tile[0] = 0;
    for (const DigestRun& run :
         all.subspan(begin, std::min<size_t>(kMostRuns, all.size() - begin))) {
      runs.run[runs.count] = run;
      const int64_t tiles = (run.length + layout::kTileElements - 1) / layout::kTileElements;
      runs.first_tile[runs.count + 1] = runs.tiles() + tiles;
      ++runs.count;
    }
    const Scratch scratch(static_cast<size_t>(std::max<int64_t>(1, runs.tiles())) *
                          sizeof(uint64_t));
    auto* const hashes = scratch.as<uint64_t>();
    if (runs.tiles() > 0)
      launch<hash_tiles_kernel>(blocks_for(runs.tiles() * kLanes, kDigestThreads), kDigestThreads,
                                elements, static_cast<int>(element_bytes), runs, kSecret, hashes);
    launch<sum_hashes_kernel>(static_cast<unsigned>(runs.count), kSumThreads, hashes, runs,
                              sums_out + begin);
  }
}

}  // namespace lockstep::core
