#include "data/loader/open_dataset.h"

#include <optional>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "data/formats/foreign_tokens.h"
#include "data/formats/npy_file.h"
#include "data/loader/npy_dataset.h"
#include "data/loader/patient_file_system.h"
#include "data/order/sample_plan.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSteps = int64_t{1} << 50;  // as far as a key's number is exact

struct Source {
  fs::path path;
  std::optional<DatasetManifest> manifest;  // of a prepared folder
  std::string hash;                         // empty: not asked for
  int64_t vocab_size = 0, train_tokens = 0;
};

Result<Source> read_source(FileSystem& file_system, DataKind kind, const fs::path& path,
                           bool with_hash) {
  Source source{.path = path, .manifest = {}, .hash = {}};
  if (kind == DataKind::kTokens) {
    LOCKSTEP_TRY(source.manifest, read_manifest(file_system, path));
    source.hash = source.manifest->hash;
    source.vocab_size = source.manifest->vocab_size;
    source.train_tokens = source.manifest->tokens("train");
    return source;
  }
  LOCKSTEP_TRY(const auto stream,
               ForeignTokens::open(file_system, kind, path, "train", /*vocab_size=*/0));
  if (with_hash) {
    LOCKSTEP_TRY(source.hash, stream->hash());
  }
  source.train_tokens = stream->tokens();
  return source;
}

Result<std::vector<Source>> read_sources(FileSystem& file_system, const Config::Data& data,
                                         bool with_hash) {
  if (data.path.empty() && data.sources.empty())
    return Error{Code::kConfig,
                 "no data: give --data.path DIR, a folder made by `lockstep prepare`"};
  std::vector<Source> sources;
  const std::vector<std::string> one = {data.path};
  for (const std::string& path : data.sources.empty() ? one : data.sources) {
    LOCKSTEP_TRY(Source source, read_source(file_system, data.kind, path, with_hash));
    sources.push_back(std::move(source));
  }
  for (const Source& source : sources)
    if (source.manifest && source.manifest->tokenizer_hash != sources[0].manifest->tokenizer_hash)
      return Error{Code::kConfig,
                   text("data.sources: ", source.path.string(), " was made by tokenizer ",
                        source.manifest->tokenizer, " ", source.manifest->tokenizer_hash, ", and ",
                        sources[0].path.string(), " by ", sources[0].manifest->tokenizer, " ",
                        sources[0].manifest->tokenizer_hash, "; prepare them with one tokenizer")};
  return sources;
}

std::vector<int64_t> weights_of(const std::vector<Source>& sources, const Config::Data& data) {
  std::vector<int64_t> weights = data.weights;
  if (weights.empty())
    for (const Source& source : sources) weights.push_back(source.train_tokens);
  return tempered(weights, data.temperature);
}

// Whether data.path is a file of the batches themselves, an array that has not one dimension.
Result<bool> holds_batches(FileSystem& file_system, const Config::Data& data) {
  if (data.kind != DataKind::kNpy || data.path.empty() || file_system.list(data.path).ok())
    return false;
  auto file = file_system.open(data.path);
  if (!file.ok()) return Error{Code::kConfig, file.error().message};
  LOCKSTEP_TRY(const NpyHeader header, read_npy_header(*file.value(), data.path));
  return header.shape.size() != 1;
}

Result<std::unique_ptr<TokenStream>> open_stream(const std::shared_ptr<FileSystem>& file_system,
                                                 DataKind kind, const Source& source,
                                                 const TokenDataset::Options& options) {
  if (options.vocab_size < source.vocab_size)
    return Error{Code::kConfig,
                 text("the model's vocabulary size ", options.vocab_size, " is below the ",
                      source.vocab_size, " of ", source.path.string(), " (tokenizer ",
                      source.manifest->tokenizer, ")")};
  const int64_t packed = source.manifest ? source.manifest->recipe.packed_seq_len : 0;
  if (packed != 0 && packed != options.seq_len)
    return Error{Code::kConfig, text(source.path.string(), " is packed for sequences of ", packed,
                                     " tokens, but training.seq_len is ", options.seq_len)};
  std::unique_ptr<TokenStream> stream;
  if (source.manifest) {
    stream = open_shards(file_system, source.path, *source.manifest, options.split);
  } else {
    LOCKSTEP_TRY(stream, ForeignTokens::open(*file_system, kind, source.path, options.split,
                                             options.vocab_size));
  }
  if (stream->tokens() < options.seq_len + 1)
    return Error{Code::kConfig, text("training.seq_len ", options.seq_len, " needs ",
                                     options.seq_len + 1, " tokens, but split \"", options.split,
                                     "\" of ", source.path.string(), " has ", stream->tokens())};
  return stream;
}

}  // namespace

Result<DataSummary> summary_of(FileSystem& file_system, const Config::Data& data) {
  LOCKSTEP_TRY(const bool batches, holds_batches(file_system, data));
  if (batches) {
    LOCKSTEP_TRY(std::string hash, hash_npy(file_system, data.path));
    return DataSummary{std::move(hash)};
  }
  LOCKSTEP_TRY(const std::vector<Source> sources, read_sources(file_system, data, true));
  const std::vector<int64_t> weights = weights_of(sources, data);
  DataSummary summary;
  for (size_t i = 0; i < sources.size(); ++i) {
    const std::string weight = sources.size() == 1 ? "" : text(weights[i], "*");
    summary.hash += text(i == 0 ? "" : ",", weight, sources[i].hash);
    summary.sources.push_back({sources[i].path, sources[i].hash, sources[i].train_tokens});
    summary.vocab_size = std::max(summary.vocab_size, sources[i].vocab_size);
  }
  return summary;
}

Result<std::unique_ptr<TokenDataset>> open_dataset(FileSystem& file_system,
                                                   const Config::Data& data,
                                                   TokenDataset::Options options) {
  const auto patient = std::make_shared<PatientFileSystem>(file_system, data.read_timeout_seconds);
  LOCKSTEP_TRY(const bool batches, holds_batches(file_system, data));
  if (batches) return open_npy(*patient, data.path, std::move(options));
  const bool is_mixture = data.sources.size() > 1;
  LOCKSTEP_TRY(const std::vector<Source> sources, read_sources(file_system, data, is_mixture));
  const std::vector<int64_t> weights = weights_of(sources, data);
  std::vector<StreamSource> streams;
  for (size_t i = 0; i < sources.size(); ++i) {
    LOCKSTEP_TRY(auto stream, open_stream(patient, data.kind, sources[i], options));
    const uint64_t seed =
        is_mixture ? purpose_key(options.seed, "source " + sources[i].hash) : options.seed;
    streams.push_back({std::move(stream), weights[i], seed});
  }
  return TokenDataset::over(std::move(options), std::move(streams));
}

Result<void> check_files(FileSystem& file_system, const Config::Data& data,
                         const std::string& split) {
  LOCKSTEP_TRY(const bool batches, holds_batches(file_system, data));
  if (batches) return {};
  LOCKSTEP_TRY(const std::vector<Source> sources, read_sources(file_system, data, false));
  for (const Source& source : sources) {
    if (source.manifest) {
      LOCKSTEP_RETURN_IF_ERROR(check_shards(file_system, source.path, *source.manifest, split));
    } else {
      LOCKSTEP_RETURN_IF_ERROR(
          ForeignTokens::open(file_system, data.kind, source.path, split, /*vocab_size=*/0));
    }
  }
  return {};
}

TokenDataset::Options dataset_options(const Config& config, std::string split, int64_t vocab_size) {
  const int64_t slots = split == "val" ? config.validation.slots : config.slots();
  return {.split = std::move(split),
          .seq_len = config.training.seq_len,
          .batch_size = config.training.local_batch_size,
          .slots = slots,
          .seed = static_cast<uint64_t>(config.training.seed),
          .vocab_size = vocab_size};
}

Result<void> resolve_epochs(Config& config, const TokenDataset& train) {
  Config::Training& t = config.training;
  if (t.epochs == 0) return {};
  if (config.data.sources.size() > 1)
    return Error{Code::kConfig, text("training.epochs = ", t.epochs,
                                     " counts passes over one source, and ", "data.sources has ",
                                     config.data.sources.size(), "; give training.steps instead")};
  const int64_t a_step = config.slots() * t.local_batch_size, samples = train.sample_count();
  if (samples > kMaxSteps / t.epochs)
    return Error{Code::kConfig, text("training.epochs = ", t.epochs, " of ", samples,
                                     " samples is too many to count; lower training.epochs")};
  t.steps = (t.epochs * samples + a_step - 1) / a_step;
  t.epochs = 0;
  return {};
}

}  // namespace lockstep::data
