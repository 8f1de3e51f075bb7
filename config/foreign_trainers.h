// The part of the table of foreign keys that is about trainers on top of transformers, and nanoGPT.
#pragma once

#include "config/foreign_key.h"

namespace lockstep {
inline namespace base {

std::span<const ForeignKey> axolotl_keys();
std::span<const ForeignKey> trainer_keys();  // of transformers' TrainingArguments, and TRL's more
std::span<const ForeignKey> accelerate_keys();
std::span<const ForeignKey> deepspeed_keys();
std::span<const ForeignKey> nanogpt_keys();

}  // namespace base
}  // namespace lockstep
