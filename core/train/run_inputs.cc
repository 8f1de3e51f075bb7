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
  data::TokenDataset::Options options{"train",
                                      c.training.seq_len,
                                      c.training.local_batch_size,
                                      c.slots(),
                                      static_cast<uint64_t>(c.training.seed),
                                      in->spec.shape.vocab_size};
  LOCKSTEP_TRY(in->train_data, data::open_dataset(file_system, c.data, options));
  LOCKSTEP_RETURN_IF_ERROR(data::resolve_epochs(c, *in->train_data));
  if (c.validation.freq > 0) {
    options.split = "val";
    options.slots = c.validation.slots;
    auto opened = data::open_dataset(file_system, c.data, options);
    if (!opened.ok())
      return opened.error().in(
          "held-out samples for validation (validation.freq = 0 does without)");
    in->validation_data = std::move(opened).value();
  }
  LOCKSTEP_TRY(in->identity, make_identity(c, in->spec, in->summary.hash, in->weights.get()));
  return in;
}

}  // namespace lockstep::core
