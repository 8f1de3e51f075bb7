// The tokenizer that a run's data were made with, beside the one in its model's folder.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "base/file_system.h"
#include "config/config.h"
#include "data/tokenizer/tokenizer.h"
#include "hf/tokenizer_files.h"

namespace lockstep::cli {

enum class TokenizerMatch {
  kUnknown,  // the data do not say what made them, or the folder has none that is known here
  kSame,     // by their hashes, or by the ids that they give a text of many kinds of signs
  kOther,
};

// The chat template that all sources which hold conversations were made with; nothing: none does,
// or there are several, or it cannot be read.
struct ChatOfData {
  std::string name;              // of a family
  std::filesystem::path folder;  // else: that holds a template which Jinja renders
  std::string date;              // and --chat-date, if it was given
};
ChatOfData chat_of(FileSystem& file_system, const Config::Data& data);

struct DataTokenizer {
  std::unique_ptr<data::Tokenizer> tokenizer;  // null: the data do not say
  hf::NamedFiles files;                        // that define it; none for bytes
  TokenizerMatch match = TokenizerMatch::kUnknown;
  std::string difference;  // of kOther: both, for people
  ChatOfData chat = {};
};

// What cannot be read is unknown.
DataTokenizer data_tokenizer(FileSystem& file_system, const Config& config);

}  // namespace lockstep::cli
