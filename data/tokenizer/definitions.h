// The files that define tokenizers, one function a format. Each takes the whole file, so that a
// test needs no disk. Errors: kConfig, naming the component that is unknown or wrong; the caller
// adds the file's name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

// Hugging Face `tokenizer.json` with a byte-level BPE model. `config` is the text of the
// tokenizer_config.json beside it, or empty; its eos_token is the end of a document. Else the token
// that the template puts after a text, else the one with a usual name.
Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(std::string_view contents,
                                                        std::string_view config);

// GPT-2's two files: token -> id, and the merges.
Result<std::unique_ptr<Tokenizer>> parse_gpt2_files(std::string_view encoder_json,
                                                    std::string_view vocab_bpe);

// Lines "base64 rank". Pattern and special tokens are not in the file; they follow from the number
// of ranks: r50k, p50k, cl100k and o200k of OpenAI, Llama 3.
Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view contents);

// Mistral's tekken.json. Special names in a text are always text, as in mistral-common.
Result<std::unique_ptr<Tokenizer>> parse_tekken(std::string_view contents);

// A SentencePiece model (protobuf), read by libsentencepiece. Bytes that are no UTF-8 become
// U+FFFD.
Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view contents);

// Base64 with padding, or false.
bool decode_base64(std::string_view encoded, std::string& bytes);

}  // namespace lockstep::data
