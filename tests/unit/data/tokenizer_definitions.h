// A small byte-level tokenizer.json for tests, and what encodes with it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "data/tokenizer/definitions.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode.h"

namespace lockstep::data {

// The 256 bytes as ids 0..255; then "he" 256, "ll" 257, "hell" 258, "o " never, "Ġw" 259, and
// "<|endoftext|>" 260. GPT-2's pre-tokenizer.
inline nlohmann::json small_definition() {
  nlohmann::json vocab = nlohmann::json::object();
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string character;
    append_utf8(byte_character(static_cast<uint8_t>(byte)), character);
    vocab[character] = byte;
  }
  vocab["he"] = 256;
  vocab["ll"] = 257;
  vocab["hell"] = 258;
  vocab["\u0120w"] = 259;
  return {{"version", "1.0"},
          {"normalizer", nullptr},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}}},
          {"added_tokens",
           {{{"id", 260}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}}}},
          {"model",
           {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"h e", "l l", "he ll", "\u0120 w"}}}}};
}

inline std::vector<uint32_t> ids_of(const Tokenizer& tokenizer, std::string_view text,
                                    SpecialNames names = SpecialNames::kAreTokens) {
  std::vector<uint32_t> ids;
  const auto done = tokenizer.encode(text, ids, names);
  EXPECT_TRUE(done.ok()) << (done.ok() ? "" : done.error().message);
  return ids;
}

inline std::string error_of(const nlohmann::json& definition) {
  const auto parsed = parse_tokenizer_json(definition.dump(), "");
  return parsed.ok() ? "" : parsed.error().message;
}

}  // namespace lockstep::data
