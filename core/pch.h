// The precompiled header of core's sources: Torch costs 20 s a file without it.
#pragma once

#include <torch/torch.h>
