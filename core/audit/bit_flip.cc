#include "core/audit/bit_flip.h"

#include "base/check.h"
#include "base/log.h"

namespace lockstep::core {
namespace {

BitFlip& asked() {
  static BitFlip flip;
  return flip;
}

thread_local bool armed = false;

}  // namespace

void set_bit_flip(const BitFlip& flip) { asked() = flip; }

void flips_in_step(int64_t step, int rank) {
  const BitFlip& flip = asked();
  const bool due = flip.step > 0 && (flip.for_good ? step >= flip.step : step == flip.step);
  armed = due && (flip.rank < 0 || flip.rank == rank);
}

void flip_site(FlipIn where, size_t site, size_t sites, const at::Tensor& tensor) {
  const BitFlip& flip = asked();
  if (!armed || flip.where != where || flip.place % sites != site) return;
  LOCKSTEP_CHECK(tensor.is_cpu() && tensor.is_contiguous(), "site ", site);
  const uint64_t element = flip.place / sites % static_cast<uint64_t>(tensor.numel());
  const uint64_t bits = 8 * static_cast<uint64_t>(tensor.element_size());
  const uint64_t bit = element * bits + flip.bit % bits;
  static_cast<uint8_t*>(tensor.data_ptr())[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  armed = flip.for_good;
  log_warning("a bit is flipped: element ", element, " of site ", site, " of ", sites);
}

}  // namespace lockstep::core
