// The files that define tokenizers, one function a format. Each takes the whole file, so that a
// test needs no disk. Errors: kConfig, naming the component that is unknown or wrong; the caller
// adds the file's name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "data/tokenizer/side_files.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

// Hugging Face `tokenizer.json` with a BPE model, over bytes or with byte_fallback, or a unigram
// model. `config` is the
// text of the tokenizer_config.json beside it, or empty, and `special_tokens_map` that of the file
// of this name; their eos_token is the end of a document. Else the token that the template puts
// after a text, else the one with a usual name.
Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(std::string_view contents,
                                                        std::string_view config,
                                                        std::string_view special_tokens_map = "");

// GPT-2's two files: token -> id, and the merges. Qwen2's as well, where `side` says so.
Result<std::unique_ptr<Tokenizer>> parse_gpt2_files(std::string_view encoder_json,
                                                    std::string_view vocab_bpe,
                                                    const SideWords& side = {});

// Lines "base64 rank". Pattern and special tokens are not in the file; they follow from the number
// of ranks: r50k, p50k, cl100k and o200k of OpenAI, Llama 3.
Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view contents);

// Mistral's tekken.json. Special names in a text are always text, as in mistral-common.
Result<std::unique_ptr<Tokenizer>> parse_tekken(std::string_view contents);

// A SentencePiece model (protobuf), read by libsentencepiece. Bytes that are no UTF-8 become
// U+FFFD. `side`: add_bos false leaves the beginning out; eos is another end. Added tokens that are
// no pieces have ids; a text in which the name of one stands is an error, for the library cannot
// cut there.
Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view contents,
                                                       const SideWords& side = {});

// Base64 with padding, or false.
bool decode_base64(std::string_view encoded, std::string& bytes);

}  // namespace lockstep::data
