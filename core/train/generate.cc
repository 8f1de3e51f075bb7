#include "core/train/generate.h"

#include <algorithm>
#include <numeric>

#include "base/elementary.h"
#include "base/hash.h"
#include "base/log.h"
#include "checkpoint/load/loader.h"
#include "checkpoint/record/catalog.h"
#include "core/model/decoder.h"
#include "core/train/process.h"
#include "core/train/state_pieces.h"
#include "core/train/training_step.h"
#include "hf/configured_model.h"

namespace lockstep::core {
namespace {

Result<void> load(FileSystem& file_system, const Config& config,
                  const std::filesystem::path& directory, TrainingStep& model) {
  LOCKSTEP_TRY(const auto manifest, checkpoint::read_manifest(file_system, directory));
  LOCKSTEP_RETURN_IF_ERROR(checkpoint::load_pieces(file_system, directory, manifest,
                                                   owned_targets(model.units(), true),
                                                   static_cast<int>(config.checkpoint.threads)));
  return model.take_loaded();
}

Result<void> load_newest(FileSystem& file_system, const Config& config, TrainingStep& model) {
  LOCKSTEP_TRY(const auto entries,
               checkpoint::list_checkpoints(file_system, config.checkpoint_folder()));
  for (const auto& entry : entries) {
    if (!entry.committed) continue;
    const auto loaded = load(file_system, config, entry.directory, model);
    if (loaded.ok() || loaded.error().code == Code::kConfig) return loaded;
    log_warning("cannot use ", entry.directory.string(), ": ", loaded.error().message,
                "; trying the checkpoint before it");
  }
  return Error{Code::kNotFound,
               text("no usable checkpoint in ", config.checkpoint_folder().string())};
}

Result<void> fill(FileSystem& file_system, const Config& config, const layout::ModelSpec& spec,
                  const GenerateOptions& o, TrainingStep& model) {
  if (o.of_folder || spec.adapted()) {  // a checkpoint of adapters has these alone
    LOCKSTEP_TRY(const auto weights, hf::initial_weights(file_system, config, spec));
    LOCKSTEP_RETURN_IF_ERROR(o.of_folder ? model.initialize(weights.get())
                                         : model.fill_frozen(weights.get()));
  }
  if (o.of_folder) return {};
  return o.checkpoint.empty() ? load_newest(file_system, config, model)
                              : load(file_system, config, o.checkpoint, model);
}

// The index drawn from softmax(logits / temperature) among the top_k likeliest, by one uniform
// number.
int64_t sample(const float* logits, int64_t vocab, const GenerateOptions& o, double uniform) {
  std::vector<int64_t> order(static_cast<size_t>(vocab));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return logits[a] > logits[b]; });
  if (o.temperature <= 0) return order[0];
  if (o.top_k > 0 && o.top_k < vocab) order.resize(static_cast<size_t>(o.top_k));
  std::vector<double> weight;
  double total = 0;
  for (int64_t i : order) {
    weight.push_back(elementary::exp(
        (static_cast<double>(logits[i]) - static_cast<double>(logits[order[0]])) / o.temperature));
    total += weight.back();
  }
  double left = uniform * total;
  for (size_t i = 0; i < order.size(); ++i)
    if ((left -= weight[i]) <= 0) return order[i];
  return order.back();
}

}  // namespace

Result<void> generate(FileSystem& file_system, const Config& config, const GenerateOptions& o,
                      const std::function<bool(int64_t)>& on_token) {
  LOCKSTEP_TRY(const layout::ModelSpec spec, hf::configured_model(config, 0));
  for (const std::string& note : spec.notes) log_warning(note);
  LOCKSTEP_TRY(Membership alone, join_alone());
  LOCKSTEP_RETURN_IF_ERROR(check_device(spec, alone.groups().device));
  TrainingStep model(config, spec, alone.groups(), /*forward_only=*/true);
  LOCKSTEP_RETURN_IF_ERROR(fill(file_system, config, spec, o, model));
  const size_t context = static_cast<size_t>(config.training.seq_len);
  for (int64_t id : o.prompt)
    if (id < 0 || id >= spec.shape.vocab_size)
      return Error{Code::kConfig, text("token ", id, " of the prompt is outside the vocabulary of ",
                                       spec.shape.vocab_size)};
  const int64_t vocab = spec.shape.vocab_size;
  const int64_t drawn_ids = o.vocab > 0 ? std::min(o.vocab, vocab) : vocab;
  std::vector<int64_t> window = o.prompt;
  const uint64_t key = purpose_key(o.seed, "generate");
  for (int64_t n = 0; n < o.count; ++n) {
    if (window.size() > context)
      window.erase(window.begin(), window.end() - static_cast<int64_t>(context));
    std::vector<int64_t> padded = window;  // what stands after a position does not reach it
    padded.resize(context, 0);
    LOCKSTEP_TRY(const at::Tensor x, model.last_hidden(padded));
    const at::Tensor logits = model.logits(x.narrow(0, static_cast<int64_t>(window.size()) - 1, 1));
    const double uniform = philox(key, 0, static_cast<uint64_t>(n)).word[0] / 4294967296.0;
    window.push_back(sample(logits.data_ptr<float>(), drawn_ids, o, uniform));
    if (std::find(o.ends.begin(), o.ends.end(), window.back()) != o.ends.end()) break;
    if (!on_token(window.back())) break;
  }
  return {};
}

}  // namespace lockstep::core
