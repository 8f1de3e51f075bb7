// A model for `lockstep generate` and `lockstep eval`: a run's newest checkpoint, a checkpoint, or
// a Hugging Face folder; and how words become ids for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::cli {

struct SampledModel {
  std::vector<std::string> flags;  // the worker's
  std::unique_ptr<data::Tokenizer> tokenizer;
  bool of_folder = false;
  int64_t context = 0;           // as many tokens as the model may see; 0: unknown
  int64_t trained_length = 0;    // training.seq_len of a run
  std::vector<uint32_t> ends;    // end a text: the tokenizer's, and those that the folder names
  std::filesystem::path run;     // of a run or a checkpoint
  std::string checkpoint;        // "": the run's newest
  std::string chat_template;     // its name; "": that of a folder
  std::string chat_folder;       // that holds the template; "": no folder does
  std::string chat_date;         // --chat-date of the data; "": none was given
  std::string no_chat_template;  // why the model has no template
};

// `tokenizer`: of a folder that has none, as of `lockstep prepare`; "": the folder's own.
// Errors: kConfig, what `path` is cannot be sampled from; those of run_args.h and open_tokenizer.h.
Result<SampledModel> open_sampled_model(FileSystem& file_system, const std::string& path,
                                        const std::string& tokenizer);

}  // namespace lockstep::cli
