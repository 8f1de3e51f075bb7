// The chat templates as programs in Jinja that transformers' apply_chat_template runs: those of
// data/prepare/chat_templates, which give a conversation the words that ChatTemplate gives it, and
// refuse what it refuses. tests/reference/chat_jinja_test.py holds them against the families' own.
#pragma once

#include <string>

#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

// The template `name` for `tokenizer`: it gives a conversation the ids of its training, with
// what the tokenizer puts before every text, whatever its tokenizer_config.json says of special
// tokens. A line before the text sees to that. Requires: ChatTemplate::create() takes both.
std::string chat_template_in_jinja(const std::string& name, const Tokenizer& tokenizer);

}  // namespace lockstep::data
