// What the section [data] of a config names: one source (data.path) or several (data.sources with
// data.weights and data.temperature), all of data.kind.
//
// Weights: data.weights, or each source's number of training tokens; then tempered (SamplePlan).
// The order within a source is keyed by the seed; in a mixture by the seed and the source's hash,
// so that a source keeps its order when weights or other sources change.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "config/config.h"
#include "data/loader/token_dataset.h"

namespace lockstep::data {

struct DataSource {
  std::filesystem::path path;
  std::string hash;
  int64_t train_tokens = 0;
};

struct DataSummary {
  // Part of the identity: the source's hash; of a mixture "WEIGHT*HASH,WEIGHT*HASH,…".
  std::string hash;
  int64_t vocab_size = 0;                // the largest of the sources'; 0: the files do not say
  std::vector<DataSource> sources = {};  // none for an array that holds batches
};

// Errors: kConfig (no data named, a file that is not of data.kind or is cut short, sources of
// different tokenizers), kNotFound, kCorrupt (a prepared folder), kIo.
Result<DataSummary> summary_of(FileSystem& file_system, const Config::Data& data);

// What a run wants to know before it starts: whether each file of a split is there, as long as it
// has to be. One process of a node asks, not each rank. Errors: those of summary_of; kCorrupt, with
// the shard's name.
Result<void> check_files(FileSystem& file_system, const Config::Data& data,
                         const std::string& split);

// Files are read with patience (data/loader/patient_file_system.h) of data.read_timeout_seconds,
// and shards are opened when they are first read. Borrows `file_system` for as long as the result
// lives. Errors: those of summary_of; kConfig (seq_len longer than a split, vocabulary too small).
Result<std::unique_ptr<TokenDataset>> open_dataset(FileSystem& file_system,
                                                   const Config::Data& data,
                                                   TokenDataset::Options options);

// The samples of `split` as a run of `config` reads them. Of "val": validation.slots of them.
TokenDataset::Options dataset_options(const Config& config, std::string split, int64_t vocab_size);

// training.epochs, where it is given, as training.steps: as many as draw each sample of `train` so
// often, the last step filled up from the next epoch. training.epochs becomes 0.
// Errors: kConfig: several sources, or too many.
Result<void> resolve_epochs(Config& config, const TokenDataset& train);

}  // namespace lockstep::data
