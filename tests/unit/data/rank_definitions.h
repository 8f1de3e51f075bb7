// Small files of tokens in base64, for tests: tiktoken's rank lines and Mistral's tekken.json.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/text.h"

namespace lockstep::data {

inline std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k)
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out += i + k > bytes.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
  }
  return out;
}

// 256 bytes, "ab", "abc", and "\x01\x01" + a number for the rest.
inline std::vector<std::string> ranks(size_t count) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  tokens.insert(tokens.end(), {"ab", "abc"});
  while (tokens.size() < count) tokens.push_back("\x01\x01" + std::to_string(tokens.size()));
  return tokens;
}

inline std::string rank_lines(size_t count) {
  std::string lines;
  size_t rank = 0;
  for (const std::string& token : ranks(count)) lines += text(base64(token), " ", rank++, "\n");
  return lines;
}

inline nlohmann::json tekken(size_t count) {
  nlohmann::json vocab = nlohmann::json::array();
  size_t rank = 0;
  for (const std::string& token : ranks(count))
    vocab.push_back({{"rank", rank++}, {"token_bytes", base64(token)}, {"token_str", nullptr}});
  return {{"config",
           {{"pattern", "[a-z]+|[^a-z]+"},
            {"default_vocab_size", 300},
            {"default_num_special_tokens", 10}}},
          {"vocab", vocab}};
}

}  // namespace lockstep::data
