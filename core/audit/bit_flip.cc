#include "core/audit/bit_flip.h"

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
thread_local BitFlip flip;  // of this step

}  // namespace

void set_bit_flip(const BitFlip& flip) { asked() = flip; }

void flips_in_step(int64_t step, int rank) {
  flip = asked();
  const bool due = flip.when == FlipWhen::kOnce ? step == flip.step : step >= flip.step;
  armed = flip.step > 0 && due && (flip.rank < 0 || flip.rank == rank);
  if (flip.when != FlipWhen::kEachStep) return;
  const std::string words = text(flip.place, " ", step);
  flip.place = xxh3_64(words);
  flip.bit = xxh3_64(words, /*seed=*/1);
}

void flip_site(FlipIn where, size_t site, size_t sites, const at::Tensor& tensor) {
  if (!armed || flip.where != where || flip.place % sites != site) return;
  LOCKSTEP_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "site ", site);
  const uint64_t element = flip.place / sites % static_cast<uint64_t>(tensor.numel());
  const uint64_t bits = 8 * static_cast<uint64_t>(tensor.element_size());
  const uint64_t bit = element * bits + flip.bit % bits;
  static_cast<uint8_t*>(tensor.data_ptr())[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  armed = flip.when == FlipWhen::kForGood;
  log_warning("a bit is flipped: element ", element, " of site ", site, " of ", sites);
}

}  // namespace lockstep::core
