// The files of data/prepare/chat_templates, which are in the program.
#pragma once

#include <span>

namespace lockstep::data {

struct ChatTemplateText {
  const char* name;   // of the file, without .jinja: a family's of data/prepare/chat_families.h
  const char* jinja;  // its contents
};

std::span<const ChatTemplateText> chat_template_texts();

}  // namespace lockstep::data
