// Opens a tokenizer by what the file is, not by what it is called.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

inline constexpr int64_t kMaxDefinitionBytes = int64_t{256} << 20;

struct OpenedTokenizer {
  std::unique_ptr<Tokenizer> tokenizer;
  // The files that define it, name and contents; a folder that holds them opens as the same one.
  std::vector<std::pair<std::string, std::string>> files;
};

// `name`: "byte"; a file: tokenizer.json, a tiktoken rank file, tekken.json, a SentencePiece model,
// or one of GPT-2's two (the other one beside it); or a folder that holds one of these under its
// usual name.
// Errors: kConfig, naming the file and what in it is unknown, or that it is not there; kIo.
Result<OpenedTokenizer> open_tokenizer(FileSystem& file_system, const std::string& name);

// The tokenizer that made a prepared folder, which holds its files.
// Errors: kNotFound, kCorrupt (its hash is not the manifest's), and as above.
Result<std::unique_ptr<Tokenizer>> tokenizer_of_dataset(FileSystem& file_system,
                                                        const std::filesystem::path& folder);

}  // namespace lockstep::data
