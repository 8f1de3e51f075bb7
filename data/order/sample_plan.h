// Which sample of which source has a global index: arithmetic on a few integers, no state and no
// table. Row b of slot s of step k has the global index (k*V + s)*B + b; neither the world size nor
// the planned length of the run enters.
//
// Mixture of D sources with integer weights w_0, w_1, … (divided by their greatest common divisor;
// P is their sum): the first source takes the share w_0/P of all indices by Bresenham's rule, the
// second the share w_1/(P - w_0) of those that are left, and so on. So
//   - each P successive indices that begin at a multiple of P hold exactly w_d of source d, and so
//     does any window whose length is a multiple of P;
//   - source d's samples are numbered without gaps in the order of the indices;
//   - an index costs O(D).
// Within a source, number m, those that come before the first index counted, is epoch m / n, and
// SampleOrder says which sample that is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

// Weights without their common divisor, and where an index falls.
class Mixture {
 public:
  struct Place {
    size_t source = 0;
    int64_t number = 0;  // of the sample, among the source's
  };
  // Requires: at least one weight, each >= 1, their sum <= kMaxWeight.
  static constexpr int64_t kMaxWeight = int64_t{1} << 62;
  explicit Mixture(std::vector<int64_t> weights);
  // Requires: 0 <= index <= 2^62.
  Place at(int64_t index) const;
  // How many of the indices below `index` each source has. Requires: as at.
  std::vector<int64_t> counts(int64_t index) const;

 private:
  std::vector<int64_t> weights_;
  int64_t sum_ = 0;
};

// Integers in the ratio of weight^(1 / temperature). At temperature 1 the weights themselves; else
// the largest becomes 2^20, the others are rounded, to 1 at least.
// Requires: as Mixture; temperature > 0.
std::vector<int64_t> tempered(const std::vector<int64_t>& weights, double temperature);

class SamplePlan {
 public:
  struct Source {
    int64_t sample_count = 0, weight = 1;
    uint64_t seed = 0;   // of its order
    int64_t before = 0;  // samples of its order that come before the first index
  };
  struct Place {
    size_t source = 0;
    int64_t epoch = 0, sample = 0;
  };
  // Requires: as Mixture; every source has a sample.
  explicit SamplePlan(std::vector<Source> sources);
  Place at(int64_t global_index) const;

 private:
  std::vector<Source> sources_;
  Mixture mixture_;
};

}  // namespace lockstep::data
