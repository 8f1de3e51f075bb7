#include "core/train/run_inputs.h"

#include <chrono>
#include <future>

#include "core/comm/gather_strings.h"
#include "core/comm/gather_words.h"
#include "hf/configured_model.h"

namespace lockstep::core {
namespace {

constexpr std::chrono::seconds kSays(1);  // how often rank 0 says that it still looks

}  // namespace

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
          "held-out samples for validation (set validation.freq = 0 to train without)");
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
  // A wait of the others is bounded by rank 0's silence, and not by how long it reads.
  std::future<std::string> looking;
  if (all.rank() == 0) looking = std::async(std::launch::async, [&] { return hf::encode(look()); });
  std::string told;  // "": it still looks
  while (told.empty()) {
    std::string words;
    if (looking.valid() && looking.wait_for(kSays) == std::future_status::ready)
      words = looking.get();
    LOCKSTEP_TRY(told, string_of_first(all, words));
  }
  Result<hf::WeightPlaces> places = hf::parse_weight_places(told);
  if (!places.ok()) {
    // Rank 0 leaves when all have its error, but goes on where it has none.
    if (places.error().code != Code::kPeerLost) (void)gather_words(all, {0}).ok();
    return places.error();
  }
  if (all.rank() != 0 && hf::starts_from_folder(config) && !places.value().files.empty())
    own = std::make_unique<hf::HfWeights>(file_system, config.model.hf_assets_path,
                                          std::move(places).value());
  return own;
}

}  // namespace lockstep::core
