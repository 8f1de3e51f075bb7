#include "core/train/evaluate.h"

#include <functional>
#include <memory>

#include "base/log.h"
#include "base/text.h"
#include "core/model/decoder.h"
#include "core/train/process.h"
#include "core/train/training_step.h"
#include "data/formats/npy_file.h"
#include "data/loader/npy_dataset.h"
#include "data/loader/whole_split.h"
#include "hf/configured_model.h"

namespace lockstep::core {
namespace {

constexpr int64_t kLogitRows = 256;  // computed and written at once

// What is evaluated, by numbered batches of config.training's shape.
struct Batches {
  int64_t count = 0;
  std::function<Result<data::SlotBatch>(int64_t)> at;
};

Result<Batches> batches_of(FileSystem& file_system, const Config& config, const EvaluateOptions& o,
                           const data::NpyTokens& npy, int64_t vocab_size) {
  const int64_t T = config.training.seq_len, B = config.training.local_batch_size;
  if (o.tokens.empty()) {
    LOCKSTEP_TRY(auto opened, data::WholeSplit::open(file_system, config.data.path, o.split,
                                                     {.seq_len = T, .rows = B}, vocab_size));
    const auto split = std::make_shared<data::WholeSplit>(std::move(opened));
    return Batches{split->batches(), [split](int64_t i) { return split->batch(i); }};
  }
  LOCKSTEP_TRY(auto opened, data::open_npy(file_system, o.tokens,
                                           {.split = "train",
                                            .seq_len = T,
                                            .batch_size = B,
                                            .slots = 1,
                                            .seed = 0,
                                            .vocab_size = vocab_size}));
  const std::shared_ptr<data::TokenDataset> dataset = std::move(opened);
  return Batches{npy.steps, [dataset](int64_t i) { return dataset->batch(i, 0); }};
}

// Runs every batch once more, and writes what the head gives.
Result<void> write_logits(FileSystem& file_system, const std::filesystem::path& path,
                          const Batches& batches, const data::NpyTokens& shape, int64_t vocab_size,
                          TrainingStep& model) {
  LOCKSTEP_TRY(const auto file, file_system.create(path));
  const std::string preamble =
      data::npy_preamble("<f4", {shape.steps, shape.sequences, shape.seq_len, vocab_size});
  LOCKSTEP_RETURN_IF_ERROR(file->write_at(as_bytes(preamble), 0));
  int64_t at = static_cast<int64_t>(preamble.size());
  for (int64_t step = 0; step < shape.steps; ++step) {
    LOCKSTEP_TRY(const data::SlotBatch batch, batches.at(step));
    LOCKSTEP_TRY(const at::Tensor x_RD, model.last_hidden(batch.tokens));
    for (int64_t row = 0; row < x_RD.size(0); row += kLogitRows) {
      const at::Tensor logits =
          model.logits(x_RD.narrow(0, row, std::min(kLogitRows, x_RD.size(0) - row)));
      const auto bytes =
          std::as_bytes(std::span(logits.data_ptr<float>(), static_cast<size_t>(logits.numel())));
      LOCKSTEP_RETURN_IF_ERROR(file->write_at(bytes, at));
      at += static_cast<int64_t>(bytes.size());
    }
  }
  return file->sync();
}

}  // namespace

Result<Evaluation> evaluate(FileSystem& file_system, Config config, const EvaluateOptions& o) {
  data::NpyTokens npy;
  if (!o.tokens.empty()) {
    LOCKSTEP_TRY(npy, data::read_npy_tokens(file_system, o.tokens));
    config.training.seq_len = npy.seq_len;
    config.training.local_batch_size = npy.sequences;
  }
  config.training.slots = 1;
  config.training.mixed_precision_param = FloatType::kFloat32;
  LOCKSTEP_TRY(const layout::ModelSpec spec, hf::configured_model(config, 0));
  for (const std::string& note : spec.notes) log_warning(note);
  LOCKSTEP_TRY(const Batches batches,
               batches_of(file_system, config, o, npy, spec.shape.vocab_size));
  LOCKSTEP_TRY(Membership alone, join_alone());
  LOCKSTEP_RETURN_IF_ERROR(check_device(spec, alone.groups().device));
  TrainingStep model(config, spec, alone.groups(), /*forward_only=*/true);
  LOCKSTEP_RETURN_IF_ERROR(fill_weights(file_system, config, spec, o.weights, model));
  LOCKSTEP_TRY(const std::optional<SlotLoss> whole,
               model.evaluate(batches.count, batches.at, [] { return false; }));
  const SlotLoss loss = whole.value();
  if (loss.valid_tokens == 0)
    return Error{Code::kConfig, text((o.tokens.empty() ? config.data.path : o.tokens.string()),
                                     ": it has no token that counts in the loss")};
  if (!o.logits.empty())
    LOCKSTEP_RETURN_IF_ERROR(
        write_logits(file_system, o.logits, batches, npy, spec.shape.vocab_size, model));
  return Evaluation{loss.sum / static_cast<double>(loss.valid_tokens), loss.valid_tokens,
                    spec.parameter_count()};
}

}  // namespace lockstep::core
