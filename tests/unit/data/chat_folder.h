// A tokenizer's folder with a chat template, for tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/shared/jinja_python.h"
#include "data/prepare/chat_probe.h"
#include "data/prepare/chat_template.h"
#include "data/tokenizer/open_tokenizer.h"
#include "tests/unit/data/data_test_support.h"
#include "tests/unit/data/tokenizer_definitions.h"

namespace lockstep::data {

class ChatFolder {
 public:
  // `config` goes into tokenizer_config.json, besides the template, "<s>" and "</s>".
  explicit ChatFolder(const std::string& jinja) {
    nlohmann::json definition = small_definition();
    int64_t id = 261;
    for (const char* const name :
         {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|start_header_id|>",
          "<|end_header_id|>", "<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"})
      definition["added_tokens"].push_back(
          {{"id", id++}, {"content", name}, {"special", true}, {"normalized", false}});
    write_text(path() / "tokenizer.json", definition.dump());
    const nlohmann::json config = {
        {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"chat_template", jinja}};
    write_text(path() / "tokenizer_config.json", config.dump());
    auto opened = open_tokenizer(posix_file_system(), path().string());
    EXPECT_TRUE(opened.ok()) << message_of(opened);
    tokenizer_ = std::move(opened.value().tokenizer);
  }
  const std::filesystem::path& path() const { return folder_.path(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  Result<FoundTemplate> found(const std::string& date = "") const {
    return find_chat_template(posix_file_system(), path(), *tokenizer_, date, cli::jinja_python());
  }
  Result<ChatTemplate> chat(const std::string& date = "") const {
    LOCKSTEP_TRY(const FoundTemplate template_found, found(date));
    return ChatTemplate::create(template_found.name, *tokenizer_, template_found.jinja);
  }
  // The ids as text; what is learnt in [ ]. Or the error.
  std::string shown(const std::vector<Message>& messages, const std::string& date = "") const {
    const auto made = chat(date);
    if (!made.ok()) return "error: " + made.error().message;
    const auto passages = made.value().passages({messages});
    if (!passages.ok()) return "error: " + passages.error().message;
    std::vector<uint32_t> ids;
    std::vector<uint8_t> in_loss;
    const auto done = encode_document(*tokenizer_, passages.value(), false, ids, in_loss);
    if (!done.ok()) return "error: " + done.error().message;
    std::string all;
    for (size_t i = 0; i < ids.size(); ++i) {
      if (i == 0 ? in_loss[i] != 0 : in_loss[i] > in_loss[i - 1]) all += "[";
      all += tokenizer_->decode({&ids[i], 1}, /*show_special=*/true).value();
      if (in_loss[i] != 0 && (i + 1 == ids.size() || in_loss[i + 1] == 0)) all += "]";
    }
    return all;
  }

 private:
  const test_support::TempDir folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace lockstep::data
