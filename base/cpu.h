// Which vector instructions this CPU has. Functions with a form for each take an Isa, so that tests
// can run every form that the machine has; all forms give the same values.
#pragma once

#include <vector>

namespace lockstep {
inline namespace base {

// kAvx512: F, DQ, BW and VL. Anything else, aarch64 too, is kPortable.
enum class Isa { kPortable, kAvx2, kAvx512 };
Isa best_isa();
std::vector<Isa> isas_here();   // up to best_isa()
const char* isa_name(Isa isa);  // "portable" | "avx2" | "avx512"

}  // namespace base
}  // namespace lockstep
