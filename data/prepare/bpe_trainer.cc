#include "data/prepare/bpe_trainer.h"

#include <algorithm>
#include <optional>
#include <queue>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "data/prepare/text_reader.h"
#include "data/tokenizer/definitions.h"
#include "data/tokenizer/scanner.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/unicode.h"

namespace lockstep::data {
namespace {

using nlohmann::ordered_json;

constexpr const char* kEndName = "<|endoftext|>";

// A different piece of the text, as tokens, and how often it occurs.
struct Word {
  std::vector<uint32_t> tokens;
  int64_t count = 0;
};

struct Pair {
  uint32_t left = 0, right = 0;
  auto operator<=>(const Pair&) const = default;
};
struct PairHash {
  size_t operator()(const Pair& pair) const {
    return mix64(uint64_t{pair.left} << 32 | pair.right);
  }
};

// A pair to merge, as frequent as it was when it came into the queue.
struct Candidate {
  int64_t count = 0;
  Pair pair;
  bool operator<(const Candidate& other) const {  // the greatest is next
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

// The merges, learnt from words of single-byte tokens.
class Learning {
 public:
  Learning(std::vector<Word> words, std::vector<std::string>& tokens)
      : words_(std::move(words)), tokens_(tokens) {
    for (size_t id = 0; id < tokens_.size(); ++id) ids_[tokens_[id]] = static_cast<uint32_t>(id);
    for (size_t w = 0; w < words_.size(); ++w)
      for (size_t i = 0; i + 1 < words_[w].tokens.size(); ++i)
        add({words_[w].tokens[i], words_[w].tokens[i + 1]}, static_cast<uint32_t>(w));
    push_changed();
  }

  // Until there are `vocab_size` tokens. The merges, as pairs of tokens.
  std::vector<Pair> learn(size_t vocab_size) {
    std::vector<Pair> merges;
    while (tokens_.size() < vocab_size && !queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      Occurrences& there = pairs_[best.pair];
      if (there.count != best.count) {  // other merges took some of them
        if (there.count > 0) queue_.push({there.count, best.pair});
        continue;
      }
      const std::string joined = tokens_[best.pair.left] + tokens_[best.pair.right];
      const auto [found, is_new] = ids_.emplace(joined, static_cast<uint32_t>(tokens_.size()));
      if (is_new) tokens_.push_back(joined);
      merges.push_back(best.pair);
      const std::vector<uint32_t> where = std::move(there.words);
      pairs_.erase(best.pair);
      for (const uint32_t word : where) merge(word, best.pair, found->second);
      pairs_.erase(best.pair);  // of itself, as in "aaa", nothing may be left
      push_changed();
    }
    return merges;
  }

 private:
  struct Occurrences {
    int64_t count = 0;
    std::vector<uint32_t> words;  // that have it, or had it once
  };

  void add(Pair pair, uint32_t word) {
    Occurrences& there = pairs_[pair];
    there.count += words_[word].count;
    if (there.words.empty() || there.words.back() != word) there.words.push_back(word);
    if (changed_.empty() || changed_.back() != pair) changed_.push_back(pair);
  }
  void take(Pair pair, uint32_t word) { pairs_[pair].count -= words_[word].count; }

  void push_changed() {
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (const Pair& pair : changed_) {
      const auto found = pairs_.find(pair);
      if (found != pairs_.end() && found->second.count > 0)
        queue_.push({found->second.count, pair});
    }
    changed_.clear();
  }

  // Every `pair` in the word, leftmost first, becomes `joined`.
  void merge(uint32_t word, Pair pair, uint32_t joined) {
    std::vector<uint32_t>& tokens = words_[word].tokens;
    size_t out = 0;
    for (size_t in = 0; in < tokens.size(); ++in, ++out) {
      const bool here =
          in + 1 < tokens.size() && tokens[in] == pair.left && tokens[in + 1] == pair.right;
      if (!here) {
        tokens[out] = tokens[in];
        continue;
      }
      if (out > 0) {
        take({tokens[out - 1], pair.left}, word);
        add({tokens[out - 1], joined}, word);
      }
      ++in;
      tokens[out] = joined;
      if (in + 1 < tokens.size()) {
        take({pair.right, tokens[in + 1]}, word);
        add({joined, tokens[in + 1]}, word);
      }
    }
    tokens.resize(out);
  }

  std::vector<Word> words_;
  std::vector<std::string>& tokens_;
  std::unordered_map<std::string, uint32_t> ids_;
  std::unordered_map<Pair, Occurrences, PairHash> pairs_;
  std::priority_queue<Candidate> queue_;
  std::vector<Pair> changed_;  // pairs that became more frequent
};

// The bytes' characters in the order of their code points.
std::vector<std::pair<uint32_t, uint8_t>> alphabet() {
  std::vector<std::pair<uint32_t, uint8_t>> characters;
  for (unsigned byte = 0; byte < 256; ++byte)
    characters.emplace_back(byte_character(static_cast<uint8_t>(byte)), static_cast<uint8_t>(byte));
  std::sort(characters.begin(), characters.end());
  return characters;
}

ordered_json definition_of(const std::vector<std::string>& tokens, size_t specials,
                           const std::vector<Pair>& merges) {
  ordered_json added = ordered_json::array();
  for (size_t id = 0; id < specials; ++id)
    added.push_back({{"id", id},
                     {"content", tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  ordered_json vocab = ordered_json::object(), pairs = ordered_json::array();
  // All names differ: vocab.emplace() would look for each among all before it.
  auto& entries = vocab.get_ref<ordered_json::object_t&>();
  entries.reserve(tokens.size());
  for (size_t id = 0; id < tokens.size(); ++id) entries.emplace_back(tokens[id], id);
  for (const Pair& merge : merges) pairs.push_back(tokens[merge.left] + " " + tokens[merge.right]);
  const ordered_json byte_level = {{"type", "ByteLevel"},
                                   {"add_prefix_space", false},
                                   {"trim_offsets", true},
                                   {"use_regex", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", pairs}}}};
}

// Carries the words of the input to the trainer.
class Lesson {
 public:
  Lesson(FileSystem& file_system, const PrepareOptions& options, BpeTrainer& trainer)
      : file_system_(file_system), options_(options), trainer_(trainer) {}

  Result<void> run() {
    LOCKSTEP_TRY(const std::vector<Document> documents,
                 list_documents(file_system_, options_.inputs));
    for (const Document& document : documents) total_bytes_ += document.size_bytes;
    if (options_.records && !options_.records->chat_template.empty()) {
      LOCKSTEP_TRY(const auto bytes,
                   parse_tokenizer_json(trainer_.tokenizer_json(trainer_.minimum()), ""));
      LOCKSTEP_TRY(chat_, ChatTemplate::create(options_.records->chat_template, *bytes));
    }
    for (const Document& document : documents)
      LOCKSTEP_RETURN_IF_ERROR(options_.records ? read_records(document) : read_text(document));
    return {};
  }

 private:
  ByteSource::Observer observer() {
    return [this](std::span<const std::byte> bytes) {
      done_bytes_ += static_cast<int64_t>(bytes.size());
      if (options_.on_progress) options_.on_progress(done_bytes_, total_bytes_);
    };
  }
  bool is_wanted(std::string_view words) const {
    if (in_validation_split(words, options_.val_millionths)) return false;
    if (total_bytes_ <= kTrainedTextBytes) return true;
    const auto total = static_cast<uint64_t>(total_bytes_);
    return xxh3_64(as_bytes(words)) % total < static_cast<uint64_t>(kTrainedTextBytes);
  }

  Result<void> read_text(const Document& document) {
    LOCKSTEP_TRY(SegmentReader reader, SegmentReader::open(file_system_, document, observer()));
    while (true) {
      LOCKSTEP_TRY(const std::string_view segment, reader.next());
      if (segment.empty()) return {};
      if (is_wanted(segment)) LOCKSTEP_RETURN_IF_ERROR(trainer_.add(segment));
    }
  }
  Result<void> read_records(const Document& document) {
    LOCKSTEP_TRY(const auto reader, RecordReader::open(file_system_, document, observer()));
    while (true) {
      LOCKSTEP_TRY(const std::string_view line, reader->next());
      if (line.empty()) return {};
      const auto record = parse_record(line, *options_.records, chat_);
      if (!record.ok())
        return record.error().in(
            record_place(options_, document.path, reader->kind(), reader->number()));
      if (!is_wanted(record.value().text)) continue;
      for (const Passage& passage : record.value().passages)
        LOCKSTEP_RETURN_IF_ERROR(trainer_.add(passage.words));
    }
  }

  FileSystem& file_system_;
  const PrepareOptions& options_;
  BpeTrainer& trainer_;
  std::optional<ChatTemplate> chat_;
  int64_t total_bytes_ = 0, done_bytes_ = 0;  // of the files
};

}  // namespace

BpeTrainer::BpeTrainer(std::vector<std::string> special_tokens)
    : special_tokens_(std::move(special_tokens)), pre_tokenizer_(make_gpt2_splitter()) {}

Result<void> BpeTrainer::add(std::string_view text) {
  pieces_.clear();
  SplitBudget budget(text.size());
  LOCKSTEP_RETURN_IF_ERROR(
      pre_tokenizer_->split(text, {0, static_cast<uint32_t>(text.size())}, budget, pieces_));
  for (const Piece& piece : pieces_) {
    const std::string_view words = text.substr(piece.begin, piece.end - piece.begin);
    const auto found = counts_.find(words);
    if (found == counts_.end()) {
      counts_.emplace(words, 1);
    } else {
      ++found->second;
    }
  }
  for (int64_t rare = 1; counts_.size() > kMaxPieces; ++rare)
    std::erase_if(counts_, [&](const auto& entry) { return entry.second <= rare; });
  return {};
}

std::string BpeTrainer::tokenizer_json(int64_t vocab_size) const {
  std::vector<std::string> tokens = special_tokens_;
  std::array<uint32_t, 256> ids{};
  for (const auto& [character, byte] : alphabet()) {
    ids[byte] = static_cast<uint32_t>(tokens.size());
    append_utf8(character, tokens.emplace_back());
  }
  std::vector<Word> words;
  words.reserve(counts_.size());
  for (const auto& [piece, count] : counts_) {
    Word& word = words.emplace_back(Word{{}, count});
    for (const char c : piece) word.tokens.push_back(ids[static_cast<uint8_t>(c)]);
  }
  const std::vector<Pair> merges =
      Learning(std::move(words), tokens).learn(static_cast<size_t>(vocab_size));
  return definition_of(tokens, special_tokens_.size(), merges).dump(1) + "\n";
}

Result<std::string> train_tokenizer(FileSystem& file_system, const PrepareOptions& options,
                                    int64_t vocab_size) {
  std::vector<std::string> specials = {kEndName};
  if (options.records && !options.records->chat_template.empty()) {
    LOCKSTEP_TRY(const auto names, ChatTemplate::token_names(options.records->chat_template));
    specials.insert(specials.end(), names.begin(), names.end());
  }
  BpeTrainer trainer(std::move(specials));
  if (vocab_size < trainer.minimum() || vocab_size > kMaxTrainedVocab)
    return Error{Code::kConfig, text("a vocabulary of ", vocab_size, " tokens; from ",
                                     trainer.minimum(), " (the bytes and the special tokens) to ",
                                     kMaxTrainedVocab, " are possible")};
  LOCKSTEP_RETURN_IF_ERROR(Lesson(file_system, options, trainer).run());
  return trainer.tokenizer_json(vocab_size);
}

}  // namespace lockstep::data
