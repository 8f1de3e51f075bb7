#include "core/train/run_inputs.h"

#include "hf/configured_model.h"

namespace lockstep::core {

Result<std::unique_ptr<RunInputs>> RunInputs::open(FileSystem& file_system, const Config& config) {
  auto in = std::make_unique<RunInputs>();
  in->config = config;
  Config& c = in->config;
  LOCKSTEP_TRY(in->summary, data::summary_of(file_system, c.data));
  LOCKSTEP_TRY(in->spec, hf::configured_model(c, in->summary.vocab_size));
  // Resolved: part of the identity and of run_args.json.
  layout::write_keys(in->spec.shape, c.model);
  LOCKSTEP_TRY(in->weights, hf::initial_weights(file_system, c, in->spec));
  const auto open = [&](const char* split) {
    return data::open_dataset(file_system, c.data,
                              data::dataset_options(c, split, in->spec.shape.vocab_size));
  };
  LOCKSTEP_TRY(in->train_data, open("train"));
  LOCKSTEP_RETURN_IF_ERROR(data::resolve_epochs(c, *in->train_data));
  if (c.validation.freq > 0) {
    auto opened = open("val");
    if (!opened.ok())
      return opened.error().in(
          "held-out samples for validation (validation.freq = 0 does without)");
    in->validation_data = std::move(opened).value();
  }
  LOCKSTEP_TRY(in->identity, make_identity(c, in->spec, in->summary.hash, in->weights.get()));
  return in;
}

}  // namespace lockstep::core
