// Damaged input: every reader gets files with bytes changed, moved, lost and added. It may refuse
// them; it may not crash, and what it gives out must be what the file says.
// A failure prints which damage it was (damage.h).

#include "base/json.h"
#include "data/formats/foreign_tokens.h"
#include "data/formats/npy_file.h"
#include "data/loader/open_dataset.h"
#include "data/prepare/byte_source.h"
#include "data/prepare/record.h"
#include "data/prepare/text_reader.h"
#include "tests/unit/data/damage.h"
#include "tests/unit/data/foreign_files.h"
#include "tests/unit/data/memory_files.h"
#include "tests/unit/data/tokenizer_fuzz.h"

namespace lockstep::data {
namespace {

// Tokens of a stream read in pieces; empty when a piece is refused.
std::vector<int64_t> all_tokens(const TokenStream& stream) {
  std::vector<int64_t> tokens;
  for (int64_t at = 0; at < stream.tokens();) {
    std::vector<int64_t> piece(static_cast<size_t>(std::min<int64_t>(97, stream.tokens() - at)));
    if (!stream.read(at, piece).ok()) return {};
    tokens.insert(tokens.end(), piece.begin(), piece.end());
    at += static_cast<int64_t>(piece.size());
  }
  return tokens;
}

class ForeignFuzz : public testing::TestWithParam<DataKind> {};

TEST_P(ForeignFuzz, IsRefusedOrReadAsItIs) {
  constexpr int64_t kVocab = 260;
  const DataKind kind = GetParam();
  const auto tokens = counting_tokens(600, kVocab);
  const std::string bin = kind == DataKind::kLlmc ? llmc_file(tokens)
                          : kind == DataKind::kNpy
                              ? npy_preamble("<i4", {600}) + bytes_of<int32_t>(tokens)
                              : bytes_of<uint16_t>(tokens);
  const std::string index = megatron_index({100, 0, 250, 250}, 2, 8);
  int read = 0, refused = 0;
  for (uint64_t number = 0; number < 20'000; ++number) {
    Damage damage(number);
    const bool in_index = kind == DataKind::kMegatron && damage.draw(2) == 0;
    const std::string damaged = in_index ? bin : damage.of(bin);
    MemoryFiles files;
    files.put("a.bin", damaged);
    files.put("a.idx", in_index ? damage.of(index) : index);
    const auto stream = ForeignTokens::open(files, kind, "a.bin", "train", kVocab);
    if (!stream.ok()) {
      ++refused;
      EXPECT_THAT(message_of(stream), testing::HasSubstr("a.")) << damage_name(number);
      continue;
    }
    EXPECT_TRUE(stream.value()->hash().ok());
    const auto found = all_tokens(*stream.value());
    if (found.empty()) {
      ++refused;
      continue;
    }
    ++read;
    // The tokens end where the file ends; each is one integer of it, and in the vocabulary.
    const size_t width = found.size() <= damaged.size() ? damaged.size() / found.size() : 0;
    ASSERT_GE(width, 1u) << damage_name(number);
    for (const int64_t token : found) ASSERT_TRUE(token >= 0 && token < kVocab);
    if (kind == DataKind::kNpy || width > 2) continue;  // its header may say another type
    const char* last = damaged.data() + damaged.size() - 2;
    ASSERT_EQ(found.back(), static_cast<uint8_t>(last[0]) + 256 * static_cast<uint8_t>(last[1]));
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(read, 100);
}
INSTANTIATE_TEST_SUITE_P(Kinds, ForeignFuzz,
                         testing::Values(DataKind::kMegatron, DataKind::kLlmc, DataKind::kNanogpt,
                                         DataKind::kNpy),
                         [](const auto& kind) { return text(kind.param); });

// Own folders have checksums: what is read is what prepare wrote, or it is refused.
TEST(PreparedFuzz, IsRefusedOrReadAsItWasWritten) {
  const test_support::TempDir dir;
  std::string lines;
  for (int i = 0; i < 40; ++i)
    lines += text(R"({"p": "question )", i, R"(", "r": "answer )", i * i, "\"}\n");
  write_text(dir / "a.jsonl", lines);
  PrepareOptions options = options_for(dir / "a.jsonl", dir / "out");
  options.records = RecordFormat{.prompt_field = "p", .response_field = "r"};
  options.shard_tokens = 500;
  options.pack_seq_len = 16;
  ASSERT_TRUE(prepare_bytes(options).ok());
  std::map<std::string, std::string> contents;
  const auto names = posix_file_system().list(dir / "out");
  ASSERT_TRUE(names.ok());
  for (const std::string& name : names.value()) contents[name] = contents_of(dir / "out" / name);
  ASSERT_GE(contents.size(), 5u);
  const auto read = [&](FileSystem& files) -> std::vector<SlotBatch> {
    std::vector<SlotBatch> samples;
    const auto dataset = open_dataset(files, {.path = "out"}, {"train", 16, 1, 1, 0, 257});
    for (int64_t i = 0; dataset.ok() && i < dataset.value()->sample_count(); ++i) {
      auto sample = dataset.value()->sample(i);
      samples.push_back(sample.ok() ? std::move(sample).value() : SlotBatch{});
    }
    return samples;
  };
  const auto files_with = [&](const std::string& name, const std::string& damaged) {
    MemoryFiles files;
    for (const auto& [each, bytes] : contents)
      files.put("out/" + each, each == name ? damaged : bytes);
    return files;
  };
  MemoryFiles whole = files_with("", "");
  const auto wanted = read(whole);
  ASSERT_GT(wanted.size(), 30u);
  for (uint64_t number = 0; number < 250; ++number) {
    Damage damage(number);
    auto chosen = contents.begin();
    std::advance(chosen, static_cast<int64_t>(damage.draw(contents.size())));
    MemoryFiles files = files_with(chosen->first, damage.of(chosen->second));
    const auto found = read(files);
    ASSERT_TRUE(found.empty() || found.size() == wanted.size()) << damage_name(number);
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].tokens.empty()) continue;  // refused
      ASSERT_EQ(found[i].tokens, wanted[i].tokens) << chosen->first << " " << damage_name(number);
      ASSERT_EQ(found[i].labels, wanted[i].labels) << chosen->first << " " << damage_name(number);
    }
  }
}

// Text and records that come out are UTF-8 whatever went in.
TEST(InputFuzz, TextAndRecordsAreUtf8OrRefused) {
  const std::string line =
      R"({"text": "Grüße 世界 \u00e9\ud83d\ude00", "messages": [{"role": "user", "content": "a"}]})";
  const RecordFormat format{.text_field = "text", .ignored_keys = {"messages"}};
  int given = 0;
  for (uint64_t number = 0; number < 20'000; ++number) {
    const std::string damaged = Damage(number).of(line + "\n" + line + "\n");
    MemoryFiles files;
    files.put("a", damaged);
    const Document document{"a", static_cast<int64_t>(damaged.size())};
    auto segments = SegmentReader::open(files, document);
    const auto records = RecordReader::open(files, document);
    if (!segments.ok() || !records.ok()) continue;
    for (auto next = segments.value().next(); next.ok() && !next.value().empty();
         next = segments.value().next())
      ASSERT_FALSE(find_invalid_utf8(next.value()));
    for (auto next = records.value()->next(); next.ok() && !next.value().empty();
         next = records.value()->next()) {
      const auto record = parse_record(next.value(), format, std::nullopt);
      const auto object = parse_json<nlohmann::ordered_json>(next.value(), false);
      if (object.is_object()) static_cast<void>(parse_conversation(object));
      if (!record.ok()) continue;
      ++given;
      ASSERT_FALSE(find_invalid_utf8(record.value().text)) << damage_name(number);
    }
  }
  EXPECT_GT(given, 1000);
}

TEST(TokenizerFuzz, TokenizerJson) {
  nlohmann::json definition = small_definition();
  definition["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"},
         {"pattern", {{"Regex", R"(\p{N}{1,3}|\s+(?!\S))"}}},
         {"behavior", "Isolated"},
         {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}};
  // Without most of the vocabulary's text, so that damage falls on the rest as often.
  const std::string whole = definition.dump();
  fuzz_tokenizer(whole, 3000,
                 [](const std::string& bytes) { return parse_tokenizer_json(bytes, ""); });
  const size_t vocab = whole.find("\"vocab\""), end = whole.find('}', vocab);
  ASSERT_NE(end, std::string::npos);
  fuzz_tokenizer(whole.substr(0, vocab) + "@" + whole.substr(end), 6000,
                 [&](const std::string& bytes) {
                   std::string filled = bytes;
                   const size_t at = filled.find('@');
                   if (at != std::string::npos)
                     filled.replace(at, 1, whole.substr(vocab, end - vocab));
                   return parse_tokenizer_json(filled, "");
                 });
}

TEST(TokenizerFuzz, Gpt2Files) {
  nlohmann::json encoder = small_definition()["model"]["vocab"];
  encoder["<|endoftext|>"] = 260;
  fuzz_tokenizer("#version: 0.2\nh e\nl l\nhe ll\n\u0120 w\n", 3000,
                 [words = encoder.dump()](const std::string& merges) {
                   return parse_gpt2_files(words, merges);
                 });
  fuzz_tokenizer(encoder.dump(), 3000,
                 [](const std::string& bytes) { return parse_gpt2_files(bytes, "h e\nl l\n"); });
}

}  // namespace
}  // namespace lockstep::data
