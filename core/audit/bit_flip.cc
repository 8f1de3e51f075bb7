#include "core/audit/bit_flip.h"

#include <cmath>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

namespace lockstep::core {
namespace {

BitFlip& asked() {
  static BitFlip flip;
  return flip;
}

thread_local bool armed = false;
thread_local int64_t step_now = 0;
thread_local BitFlip flip;      // of this step
thread_local uint64_t met = 0;  // how often, where a share of them is due

bool is_in_share() {
  if (flip.when != FlipWhen::kInAShare) return true;
  const std::string words = text(flip.place, " ", met++);
  return std::ldexp(static_cast<double>(xxh3_64(words)), -64) < flip.share;
}

bool is_due(FlipIn where, size_t site, size_t sites) {
  return armed && flip.where == where && flip.place % sites == site && is_in_share();
}

void turn_over(std::span<std::byte> bytes, size_t element_bytes, size_t site, size_t sites,
               std::string_view unit) {
  const uint64_t element = flip.place / sites % (bytes.size() / element_bytes);
  const uint64_t bits = 8 * element_bytes;
  const uint64_t bit = element * bits + flip.bit % bits;
  bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  armed = flip.when == FlipWhen::kForGood || flip.when == FlipWhen::kInAShare;
  log_warning("debug: flipped a bit of element ", element, " of site ", site, " of ", sites,
              ", step ", step_now, unit.empty() ? "" : ", of ", unit);
}

}  // namespace

void set_bit_flip(const BitFlip& flip) { asked() = flip; }

void flips_in_step(int64_t step, int rank) {
  flip = asked();
  step_now = step;
  const bool due = flip.when == FlipWhen::kOnce ? step == flip.step : step >= flip.step;
  armed = flip.step > 0 && due && (flip.rank < 0 || flip.rank == rank);
  if (flip.when != FlipWhen::kEachStep) return;
  const std::string words = text(flip.place, " ", step);
  flip.place = xxh3_64(words);
  const uint64_t drawn = xxh3_64(words, /*seed=*/1);
  flip.bit = flip.bit == 0 ? drawn : drawn % flip.bit;
}

void flip_site(FlipIn where, size_t site, size_t sites, const at::Tensor& tensor,
               std::string_view unit) {
  if (!is_due(where, site, sites)) return;
  LOCKSTEP_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "site ", site);
  turn_over({static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()},
            static_cast<size_t>(tensor.element_size()), site, sites, unit);
}

void flip_site(FlipIn where, size_t site, size_t sites, std::span<std::byte> bytes) {
  if (is_due(where, site, sites)) turn_over(bytes, /*element_bytes=*/1, site, sites, "");
}

}  // namespace lockstep::core
