#include <sentencepiece_processor.h>

#include <mutex>

#include "base/hash.h"
#include "base/text.h"
#include "data/tokenizer/definitions.h"

namespace lockstep::data {

namespace {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor,
                         std::string hash)
      : processor_(std::move(processor)), hash_(std::move(hash)) {
    if (processor_->bos_id() >= 0) begin_ = {static_cast<uint32_t>(processor_->bos_id())};
  }
  std::string name() const override { return "sentencepiece"; }
  std::string hash() const override { return hash_; }
  int64_t vocab_size() const override { return processor_->GetPieceSize(); }
  uint32_t end_of_document() const override { return static_cast<uint32_t>(processor_->eos_id()); }
  std::span<const uint32_t> begin_of_document() const override { return begin_; }
  std::optional<uint32_t> special_id(std::string_view name) const override {
    const int id = processor_->PieceToId({name.data(), name.size()});
    if (processor_->IsUnknown(id) && processor_->IdToPiece(id) != name) return std::nullopt;
    return static_cast<uint32_t>(id);
  }

  // Control symbols are never found in a text, whatever `names` says: the library's own rule.
  Result<void> encode(std::string_view text, std::vector<uint32_t>& ids,
                      SpecialNames) const override {
    std::vector<int> made;
    const auto status = processor_->Encode({text.data(), text.size()}, &made);
    if (!status.ok()) return Error{Code::kConfig, "sentencepiece: " + status.ToString()};
    ids.insert(ids.end(), made.begin(), made.end());
    return {};
  }

  Result<std::string> decode(std::span<const uint32_t> ids, bool show_special) const override {
    std::string words;
    std::vector<int> run;
    const auto flush = [&]() -> Result<void> {
      std::string part;
      const auto status = processor_->Decode(run, &part);
      if (!status.ok()) return Error{Code::kConfig, "sentencepiece: " + status.ToString()};
      words += part;
      run.clear();
      return {};
    };
    for (const uint32_t id : ids) {
      const int piece = static_cast<int>(id);
      if (id >= static_cast<uint32_t>(processor_->GetPieceSize()))
        return Error{Code::kConfig, text("token ", id, " is not below the vocabulary size ",
                                         processor_->GetPieceSize(), " of this tokenizer")};
      if (processor_->IsControl(piece)) {
        LOCKSTEP_RETURN_IF_ERROR(flush());
        if (show_special) words += processor_->IdToPiece(piece);
      } else {
        run.push_back(piece);
      }
    }
    LOCKSTEP_RETURN_IF_ERROR(flush());
    return words;
  }

 private:
  const std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  const std::string hash_;
  std::vector<uint32_t> begin_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_sentencepiece(std::string_view contents) {
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  std::string problem;
  try {  // its dictionary throws at a model that is damaged
    const auto status = processor->LoadFromSerializedProto({contents.data(), contents.size()});
    if (!status.ok()) problem = status.ToString();
  } catch (const std::exception& e) {
    problem = e.what();
  }
  if (!problem.empty())
    return Error{Code::kConfig, "cannot parse this SentencePiece model: " + problem};
  if (processor->eos_id() < 0)
    return Error{Code::kConfig, "the SentencePiece model has no end-of-sentence token"};
  return std::unique_ptr<Tokenizer>(
      std::make_unique<SentencePieceTokenizer>(std::move(processor), hex64(xxh3_64(contents))));
}

}  // namespace lockstep::data
