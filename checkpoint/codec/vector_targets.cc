// Highway's choice among the instruction sets that it compiles. Its own definitions lie in a shared
// library that measures a timer for 4 ms whenever a program starts, more than all else that
// `lockstep --help` does; these take their place, and that library is not linked.
#include <hwy/targets.h>

namespace hwy {
namespace {

int64_t for_test = 0;  // 0: what the CPU has

int64_t of_cpu() {
  int64_t targets = HWY_STATIC_TARGET;
#if HWY_ARCH_X86
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2) targets |= HWY_AVX2;
  if (avx512) targets |= HWY_AVX3;
#endif
  return targets;
}

}  // namespace

int64_t SupportedTargets() { return for_test != 0 ? for_test : of_cpu(); }

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

void SetSupportedTargetsForTest(int64_t targets) {
  for_test = targets;
  GetChosenTarget().DeInit();
}

}  // namespace hwy
