#include "config/same_training.h"

#include "base/text.h"
#include "config/identity_difference.h"

namespace lockstep {
inline namespace base {
namespace {

// What moments are kept in is not in the identity of a run that keeps them in fp32.
Result<void> same_moments(const std::vector<std::string>& identity, const Config& config,
                          const std::string& where) {
  const std::string_view key = "optimizer.state_dtype";
  FloatType was = FloatType::kFloat32;
  for (const std::string& line : identity)
    if (line.starts_with(text(key, "=")))
      was = choice_of<FloatType>(line.substr(key.size() + 1)).value_or(was);
  const FloatType is = config.optimizer.state_dtype;
  if (was == is) return {};
  return Error{Code::kConfig,
               text("the run in ", where, " keeps AdamW's moments in ", was,
                    " but the config says ", key, " = ", is, ": give --", key, " ", was,
                    ", or start a new run from these weights with another --job.dump_folder and "
                    "--checkpoint.initial_load_path")};
}

}  // namespace

Result<void> can_go_on(const std::vector<std::string>& identity, int64_t slots,
                       const Config& config, const std::string& where) {
  if (slots != config.slots())
    return Error{
        Code::kConfig,
        text("the run in ", where, " has ", slots, " slots a step but the config says ",
             config.slots(), "; the number of slots is part of the run: give --training.slots ",
             slots, ", or start a new run with another --job.dump_folder")};
  for (const LineDifference& d : differing_lines(identity, identity_lines(config)))
    if (d.name == "optimizer.name" && d.was != "(absent)")
      return Error{Code::kConfig, text("the run in ", where, " is trained by optimizer.name = ",
                                       d.was, " but the config says ", d.is,
                                       ", whose state is different: give --optimizer.name ", d.was,
                                       ", or start a new run from these weights with another "
                                       "--job.dump_folder and --checkpoint.initial_load_path")};
  return same_moments(identity, config, where);
}

std::string other_model(const std::vector<std::string>& identity, const Config& config) {
  std::string all;
  for (const LineDifference& d : differing_lines(identity, identity_lines(config))) {
    if (!d.name.starts_with("model.") || d.was == "(absent)" || d.is == "(absent)") continue;
    if (d.name == "model.vocab_size" && config.model.vocab_size == 0) continue;  // the data say it
    all += text(all.empty() ? "" : "; ", d.name, ": checkpoint ", d.was, ", config ", d.is);
  }
  if (all.empty()) return "";
  return text("the config describes another model than the checkpoint: ", all,
              "; undo this change, or start a new run with another --job.dump_folder");
}

}  // namespace base
}  // namespace lockstep
