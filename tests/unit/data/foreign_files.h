// Writers of the token files of other programs, by their formats' descriptions.
#pragma once

#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {

template <typename T>
void append_bytes(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename T>
std::string bytes_of(const std::vector<int64_t>& tokens) {
  std::string out;
  for (const int64_t token : tokens) append_bytes(out, static_cast<T>(token));
  return out;
}

// 0, 1, 2, … modulo `vocab_size`.
inline std::vector<int64_t> counting_tokens(int64_t count, int64_t vocab_size) {
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int64_t>(i) % vocab_size;
  return tokens;
}

// llm.c: GPT-2's version, or Llama 3's.
inline std::string llmc_file(const std::vector<int64_t>& tokens, bool gpt2 = true) {
  std::vector<int32_t> header(256, 0);
  header[0] = gpt2 ? 20240520 : 20240801;
  header[1] = gpt2 ? 1 : 7;
  header[2] = static_cast<int32_t>(tokens.size());
  std::string out(reinterpret_cast<const char*>(header.data()), 1024);
  return out + (gpt2 ? bytes_of<uint16_t>(tokens) : bytes_of<uint32_t>(tokens));
}

// Megatron's index: sequences of these lengths; each document has `per_document` of them.
inline std::string megatron_index(const std::vector<int32_t>& lengths, int64_t token_bytes,
                                  char type_code, size_t per_document = 2) {
  std::string out("MMIDIDX\0\0", 9);
  append_bytes(out, uint64_t{1});
  out += type_code;
  std::vector<int64_t> documents;
  for (size_t i = 0; i < lengths.size(); i += per_document)
    documents.push_back(static_cast<int64_t>(i));
  documents.push_back(static_cast<int64_t>(lengths.size()));
  append_bytes(out, static_cast<uint64_t>(lengths.size()));
  append_bytes(out, static_cast<uint64_t>(documents.size()));
  for (const int32_t length : lengths) append_bytes(out, length);
  int64_t at = 0;
  for (const int32_t length : lengths) {
    append_bytes(out, at);
    at += length * token_bytes;
  }
  for (const int64_t document : documents) append_bytes(out, document);
  return out;
}

}  // namespace lockstep::data
