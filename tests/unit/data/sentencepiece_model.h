// A small SentencePiece model, made byte by byte: sentencepiece_model.proto.
#pragma once

#include <string>

#include "base/text.h"

namespace lockstep::data {

// A field of a protocol buffer.
inline std::string field(int number, const std::string& bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  for (size_t left = bytes.size();; left >>= 7) {
    out += static_cast<char>((left & 127) | (left > 127 ? 128 : 0));
    if (left <= 127) break;
  }
  return out + bytes;
}
inline std::string field(int number, int small) {
  return {static_cast<char>(number << 3), static_cast<char>(small)};
}
inline std::string field(int number, float value) {
  std::string out(1, static_cast<char>(number << 3 | 5));
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
  return out;
}

// sentencepiece_model.proto: pieces (text, score, type), trainer_spec (model_type),
// normalizer_spec (add_dummy_prefix).
inline std::string sentencepiece_model(int model_type) {
  constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6;
  std::string model;
  const auto piece = [&](const std::string& words, float score, int type) {
    model += field(1, field(1, words) + field(2, score) + field(3, type));
  };
  piece("<unk>", 0, kUnknown);
  piece("<s>", 0, kControl);
  piece("</s>", 0, kControl);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    piece(text("<0x", kDigits[byte / 16], kDigits[byte % 16], ">"), 0, kByte);
  }
  float score = -1;
  for (const char* words : {"\u2581", "h", "e", "l", "o", "w", "r", "d", "he", "ll", "llo", "hello",
                            "\u2581hello", "\u2581w", "or", "\u2581wor", "ld", "1", "2"})
    piece(words, score -= 0.5f, kNormal);
  constexpr int kByteFallback = 35;
  std::string trainer = field(3, model_type);
  trainer += static_cast<char>((kByteFallback << 3 & 127) | 128);  // a number of two bytes
  trainer += static_cast<char>(kByteFallback >> 4);
  trainer += static_cast<char>(1);
  return model + field(2, trainer) + field(3, field(1, "identity") + field(3, 1));
}

}  // namespace lockstep::data
