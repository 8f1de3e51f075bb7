#include "core/train/run_inputs.h"

#include "core/comm/gather_strings.h"
#include "core/comm/gather_words.h"
#include "hf/configured_model.h"

namespace lockstep::core {

Result<std::unique_ptr<RunInputs>> RunInputs::open(FileSystem& file_system, const Config& config,
                                                   Communicator& all) {
  auto in = std::make_unique<RunInputs>();
  in->config = config;
  Config& c = in->config;
  LOCKSTEP_TRY(in->summary, data::summary_of(file_system, c.data));
  LOCKSTEP_TRY(in->spec, hf::configured_model(c, in->summary.vocab_size));
  // Resolved: part of the identity and of run_args.json.
  layout::write_keys(in->spec.shape, c.model);
  LOCKSTEP_TRY(in->weights, shared_initial_weights(file_system, c, in->spec, all));
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
  std::string weights = "random";
  if (in->weights) {
    LOCKSTEP_TRY(weights, in->weights->hash());
  }
  in->identity = make_identity(c, in->spec, in->summary.hash, weights);
  return in;
}

Result<std::unique_ptr<hf::HfWeights>> shared_initial_weights(FileSystem& file_system,
                                                              const Config& config,
                                                              const layout::ModelSpec& spec,
                                                              Communicator& all) {
  std::unique_ptr<hf::HfWeights> own;
  const auto look = [&]() -> Result<hf::WeightPlaces> {
    LOCKSTEP_TRY(own, hf::initial_weights(file_system, config, spec));
    if (!own) return hf::WeightPlaces();
    if (const auto hash = own->hash(); !hash.ok()) return hash.error();
    return own->places();
  };
  const std::string words = all.rank() == 0 ? hf::encode(look()) : "";
  LOCKSTEP_TRY(const std::string told, string_of_first(all, words));
  Result<hf::WeightPlaces> places = hf::parse_weight_places(told);
  if (!places.ok()) {
    (void)gather_words(all, {0}).ok();  // rank 0 leaves when all have its error
    return places.error();
  }
  if (all.rank() != 0 && hf::starts_from_folder(config) && !places.value().files.empty())
    own = std::make_unique<hf::HfWeights>(file_system, config.model.hf_assets_path,
                                          std::move(places).value());
  return own;
}

}  // namespace lockstep::core
