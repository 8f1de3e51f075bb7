#include "data/prepare/record.h"

#include "base/json.h"
#include "base/text.h"
#include "data/prepare/text_reader.h"

namespace lockstep::data {

namespace {

using nlohmann::ordered_json;

constexpr const char* kChat = "chat ";

Passage passage(std::string words, bool in_loss, SpecialNames names) {
  return {std::nullopt, std::move(words), in_loss, names};
}

// Its messages' own words.
std::string words_of(const Conversation& chat) {
  std::string words;
  for (const Message& each : chat.messages) {
    words += each.role + "\n" + each.content + "\n";
    for (const ToolCall& call : each.calls) words += call.name + call.arguments + "\n";
  }
  return words;
}

}  // namespace

std::string RecordFormat::description() const {
  if (!text_field.empty()) return "text_field " + text_field;
  if (!chat_template.empty()) return kChat + chat_template;
  return text("prompt_field ", prompt_field, " response_field ", response_field);
}

std::string RecordFormat::chat_template_in(const std::string& description) {
  const std::string kind = kChat;
  return description.starts_with(kind) ? description.substr(kind.size()) : "";
}

Result<Record> parse_record(std::string_view line, const RecordFormat& format,
                            const std::optional<ChatTemplate>& chat) {
  const auto object = parse_json<ordered_json>(line, /*allow_exceptions=*/false);
  if (!object.is_object()) return Error{Code::kConfig, "the line is not a JSON object"};
  Record record;
  if (!format.text_field.empty()) {
    LOCKSTEP_TRY(record.text, field_of(object, format.text_field));
    record.passages.push_back(passage(record.text, true, SpecialNames::kAreTokens));
  } else if (chat) {
    LOCKSTEP_TRY(const Conversation conversation, parse_conversation(object));
    record.text = words_of(conversation);
    LOCKSTEP_TRY(record.passages, chat->passages(conversation));
  } else {
    LOCKSTEP_TRY(std::string prompt, field_of(object, format.prompt_field));
    LOCKSTEP_TRY(std::string response, field_of(object, format.response_field));
    record.text = prompt + "\n" + response;
    record.passages.push_back(passage(std::move(prompt), false, SpecialNames::kAreText));
    record.passages.push_back(passage(std::move(response), true, SpecialNames::kAreText));
  }
  return record;
}

Result<void> encode_passage(const Tokenizer& tokenizer, const Passage& passage,
                            std::vector<uint32_t>& ids) {
  if (!passage.token) return tokenizer.encode(passage.words, ids, passage.names);
  ids.push_back(*passage.token);
  return {};
}

Result<LineReader> LineReader::open(FileSystem& file_system, const Document& document,
                                    ByteSource::Observer observer) {
  LOCKSTEP_TRY(auto source, ByteSource::open(file_system, document, std::move(observer)));
  return LineReader(std::move(source), document.path);
}

Result<std::string_view> LineReader::next() {
  size_t searched = 0;
  while (true) {
    const std::string_view left = std::string_view(buffer_).substr(begin_);
    const size_t end = left.find('\n', searched);
    if (end == std::string_view::npos && !ended_) {
      searched = left.size();
      if (static_cast<int64_t>(left.size()) > kMaxRecordBytes)
        return Error{Code::kConfig, text(path_.string(), ": line ", line_ + 1, " has more than ",
                                         kMaxRecordBytes, " bytes: is this JSON lines?")};
      buffer_.erase(0, begin_);
      begin_ = 0;
      const size_t before = buffer_.size();
      LOCKSTEP_RETURN_IF_ERROR(source_->append_to(buffer_));
      ended_ = buffer_.size() == before;
      continue;
    }
    const std::string_view line = left.substr(0, end);
    if (left.empty()) return line;
    if (const auto bad = find_invalid_utf8(line))
      return not_utf8(path_, given_bytes_ + static_cast<int64_t>(*bad), line[*bad]);
    const size_t taken = end == std::string_view::npos ? line.size() : end + 1;
    begin_ += taken;
    given_bytes_ += static_cast<int64_t>(taken);
    ++line_;
    searched = 0;
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) return line;
  }
}

}  // namespace lockstep::data
