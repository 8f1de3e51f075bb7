#include "core/kernels/initial_kernels.h"
#include "core/kernels/kernel_table.h"
#include "core/model/decoder.h"

namespace lockstep::core {

void initialize_parameter(const layout::ParamSpec& param, uint64_t seed, int64_t first,
                          const at::Tensor& out) {
  const bool uniform = param.init_bound > 0;
  if (param.init_std == 0 && !uniform) {
    out.fill_(param.init_value);
  } else {
    kernels_on(out).draw_initial(out, {.key = purpose_key(seed, "init/" + param.name),
                                       .first = first,
                                       .scale = uniform ? param.init_bound : param.init_std,
                                       .uniform = uniform});
  }
}

}  // namespace lockstep::core
