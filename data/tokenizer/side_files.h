// What the files next to a tokenizer's definition say, as transformers 4 and 5 read them.
//
// special_tokens_map.json comes before tokenizer_config.json, and added_tokens.json is read; but
// where tokenizer_config.json has added_tokens_decoder, it comes first, and its list is that of the
// added tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/tokenizer/added_tokens.h"

namespace lockstep::data {

// Texts of files; "": it is not there.
struct SideFiles {
  std::string tokenizer_config, special_tokens_map, added_tokens;
};

struct SideWords {
  struct Name {
    std::string token, file;  // file: that says so
  };
  std::optional<Name> eos, bos;
  std::optional<bool> add_bos, add_prefix_space;
  std::string tokenizer_class;           // "": not said; without "Fast" at its end
  std::vector<AddedToken> added_tokens;  // by their ids
};

// Errors: kConfig, naming the file and the field: it is no JSON object, a field has another type.
Result<SideWords> read_side_files(const SideFiles& files);

}  // namespace lockstep::data
