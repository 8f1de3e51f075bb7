// The keys of other tools, and what becomes of each here: one table, for the errors of unknown keys
// and for `lockstep convert-config`. docs/MIGRATING.md says more.
//   torchtitan 0.1 to 0.2.2; torchrun of PyTorch 2.11; accelerate 1.15; axolotl 0.18;
//   DeepSpeed 0.17; transformers' Trainer and TRL 0.24; nanoGPT.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "config/foreign_key.h"

namespace lockstep {
inline namespace base {

std::span<const ForeignTool> foreign_tools();
// Of `tool`, by the whole name, or by its part after the last dot. "-" is "_". null: there is none.
const ForeignKey* find_foreign_key(const ForeignTool& tool, std::string_view name);

// "torchtitan's key: …", for an error about the unknown key `name`; "": no tool has it.
std::string foreign_key_words(std::string_view name);
// The same for a flag that is no key, as torchrun's and sbatch's; "-" is "_" here.
std::string foreign_flag_words(const std::string& name);

}  // namespace base
}  // namespace lockstep
