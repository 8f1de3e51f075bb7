// tiktoken's rank files and Mistral's tekken.json: tokens as base64, their ids are their ranks.
#include <sodium.h>

#include <algorithm>

#include "base/json.h"
#include "base/number.h"
#include "base/text.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/definitions.h"
#include "data/tokenizer/scanner.h"
#include "data/tokenizer/splitter.h"

namespace lockstep::data {

namespace {

using nlohmann::json;

struct Special {
  const char* name;
  uint32_t id;
};

// A family whose rank files have `ranks` lines.
struct Family {
  const char* name;
  size_t ranks;
  std::string_view pattern;
  std::vector<Special> specials;
  uint32_t end_of_document;
};

// tiktoken_ext/openai_public.py; llama_models/llama3/tokenizer.py.
const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"r50k_base", 50256, kR50kPattern, {{"<|endoftext|>", 50256}}, 50256},
      {"p50k_base", 50280, kR50kPattern, {{"<|endoftext|>", 50256}}, 50256},
      {"cl100k_base",
       100256,
       kCl100kPattern,
       {{"<|endoftext|>", 100257},
        {"<|fim_prefix|>", 100258},
        {"<|fim_middle|>", 100259},
        {"<|fim_suffix|>", 100260},
        {"<|endofprompt|>", 100276}},
       100257},
      {"o200k_base",
       199998,
       kO200kPattern,
       {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}},
       199999},
      {"llama3",
       128000,
       kLlama3Pattern,
       {{"<|begin_of_text|>", 128000},
        {"<|end_of_text|>", 128001},
        {"<|finetune_right_pad_id|>", 128004},
        {"<|step_id|>", 128005},
        {"<|start_header_id|>", 128006},
        {"<|end_header_id|>", 128007},
        {"<|eom_id|>", 128008},
        {"<|eot_id|>", 128009},
        {"<|python_tag|>", 128010},
        {"<|image|>", 128011}},
       128001},
  };
  return kFamilies;
}

// What a token is made of is found by trying each place to cut it; the longest that is known, of
// o200k_base, has 128 bytes.
constexpr size_t kMostTokenBytes = 512;

constexpr uint32_t kLlama3Begin = 128000, kLlama3Specials = 256;

// Llama 3 names all of its 256 special ids.
void add_llama3_reserved(std::vector<AddedToken>& tokens) {
  for (uint32_t id = kLlama3Begin, reserved = 0; id < kLlama3Begin + kLlama3Specials; ++id) {
    const bool named = std::any_of(tokens.begin(), tokens.end(),
                                   [&](const AddedToken& token) { return token.id == id; });
    if (named) continue;
    tokens.push_back({.id = id,
                      .content = text("<|reserved_special_token_", reserved++, "|>"),
                      .special = true});
  }
}

// Puts `token` at `id`. Errors: kConfig, no base64, a rank out of range or given twice.
Result<void> place_token(std::string_view encoded, int64_t id, std::vector<std::string>& tokens) {
  std::string bytes;
  if (!decode_base64(encoded, bytes) || bytes.empty())
    return Error{Code::kConfig, text("\"", encoded, "\" is not a token in base64")};
  if (bytes.size() > kMostTokenBytes)
    return Error{Code::kConfig, text("the token of rank ", id, " has ", bytes.size(),
                                     " bytes; at most ", kMostTokenBytes, " are read")};
  if (id < 0 || id >= kMaxVocab) return Error{Code::kConfig, text("rank ", id, " is out of range")};
  const auto index = static_cast<size_t>(id);
  if (index >= tokens.size()) tokens.resize(index + 1);
  if (!tokens[index].empty()) return Error{Code::kConfig, text("rank ", id, " appears twice")};
  tokens[index] = std::move(bytes);
  return {};
}

Result<size_t> read_rank_lines(std::string_view contents, std::vector<std::string>& tokens) {
  size_t lines = 0;
  for (const std::string& line : split(contents, '\n')) {
    if (line.empty()) continue;
    const size_t space = line.find(' ');
    const auto rank =
        space == std::string::npos ? std::nullopt : parse_number(line.substr(space + 1));
    if (!rank || *rank < 0)
      return Error{Code::kConfig, text("line ", lines + 1, ": \"", line.substr(0, 60),
                                       "\" is not \"base64 rank\"")};
    LOCKSTEP_RETURN_IF_ERROR(place_token(std::string_view(line).substr(0, space), *rank, tokens));
    ++lines;
  }
  return lines;
}

Result<std::unique_ptr<Tokenizer>> read_tekken(const json& root) {
  const json& config = root.at("config");
  const auto vocab_size = config.at("default_vocab_size").get<int64_t>();
  const auto specials = config.at("default_num_special_tokens").get<int64_t>();
  if (specials < 3 || vocab_size <= specials || vocab_size > kMaxVocab)
    return Error{Code::kConfig, text("config: default_vocab_size ", vocab_size,
                                     ", default_num_special_tokens ", specials)};
  BpeParts parts;
  parts.name = "tekken";
  parts.finds_added_tokens = false;
  // Ids: the special tokens, then the ranks; ranks beyond the vocabulary are not used.
  std::vector<std::string> ranked;
  for (const json& one : root.at("vocab")) {
    const auto rank = one.at("rank").get<int64_t>();
    if (rank >= vocab_size - specials) continue;
    LOCKSTEP_RETURN_IF_ERROR(
        place_token(one.at("token_bytes").get_ref<const std::string&>(), rank, ranked));
  }
  parts.model.token_bytes.resize(static_cast<size_t>(specials));
  std::move(ranked.begin(), ranked.end(), std::back_inserter(parts.model.token_bytes));
  parts.model.merges = BpeModel::merges_of_ranks(parts.model.token_bytes);
  parts.model.whole_pieces_first = true;
  // The names of version 3, which files without a list of their own have.
  static constexpr const char* kVersion3[] = {"<unk>",
                                              "<s>",
                                              "</s>",
                                              "[INST]",
                                              "[/INST]",
                                              "[AVAILABLE_TOOLS]",
                                              "[/AVAILABLE_TOOLS]",
                                              "[TOOL_RESULTS]",
                                              "[/TOOL_RESULTS]",
                                              "[TOOL_CALLS]",
                                              "[IMG]",
                                              "<pad>",
                                              "[IMG_BREAK]",
                                              "[IMG_END]",
                                              "[PREFIX]",
                                              "[MIDDLE]",
                                              "[SUFFIX]",
                                              "[SYSTEM_PROMPT]",
                                              "[/SYSTEM_PROMPT]",
                                              "[TOOL_CONTENT]"};
  std::vector<std::string> names(std::begin(kVersion3), std::end(kVersion3));
  if (root.contains("special_tokens") && root["special_tokens"].is_array()) {
    names.clear();
    for (const json& one : root["special_tokens"]) {
      const auto rank = one.at("rank").get<int64_t>();
      if (rank < 0 || rank >= specials)
        return Error{Code::kConfig, text("special token ", one.dump(), " is out of range")};
      if (static_cast<size_t>(rank) >= names.size()) names.resize(static_cast<size_t>(rank) + 1);
      names[static_cast<size_t>(rank)] = one.at("token_str").get<std::string>();
    }
  }
  names.resize(static_cast<size_t>(specials));
  for (uint32_t id = 0; id < names.size(); ++id)
    parts.added_tokens.push_back(
        {.id = id,
         .content = names[id].empty() ? text("<SPECIAL_", id, ">") : names[id],
         .special = true});
  parts.begin_of_document = {1};
  parts.end_of_document = 2;
  LOCKSTEP_TRY(parts.pre_tokenizer, make_regex_splitter(config.at("pattern").get<std::string>(),
                                                        SplitBehavior::kRemoved, true));
  return make_bpe_tokenizer(std::move(parts));
}

}  // namespace

bool decode_base64(std::string_view encoded, std::string& bytes) {
  bytes.resize(encoded.size() / 4 * 3);
  size_t size = 0;
  const int refused =
      sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(),
                        encoded.data(), encoded.size(), /*ignore=*/nullptr, &size,
                        /*b64_end=*/nullptr, sodium_base64_VARIANT_ORIGINAL);
  bytes.resize(size);
  return refused == 0;
}

Result<std::unique_ptr<Tokenizer>> parse_tiktoken(std::string_view contents) {
  BpeParts parts;
  LOCKSTEP_TRY(const size_t ranks, read_rank_lines(contents, parts.model.token_bytes));
  const auto family = std::find_if(families().begin(), families().end(),
                                   [&](const Family& each) { return each.ranks == ranks; });
  if (family == families().end()) {
    std::string known;
    for (const Family& each : families()) known += text(" ", each.name, " (", each.ranks, ")");
    return Error{Code::kConfig, text("cannot tell the pattern of a tiktoken file with ", ranks,
                                     " ranks; known are:", known)};
  }
  parts.name = text("tiktoken ", family->name);
  for (const Special& special : family->specials)
    parts.added_tokens.push_back({.id = special.id, .content = special.name, .special = true});
  if (family->ranks == kLlama3Begin) {
    add_llama3_reserved(parts.added_tokens);
    parts.begin_of_document = {kLlama3Begin};
  }
  parts.end_of_document = family->end_of_document;
  parts.model.merges = BpeModel::merges_of_ranks(parts.model.token_bytes);
  parts.model.whole_pieces_first = true;
  LOCKSTEP_TRY(parts.pre_tokenizer,
               make_regex_splitter(std::string(family->pattern), SplitBehavior::kRemoved, true));
  return make_bpe_tokenizer(std::move(parts));
}

Result<std::unique_ptr<Tokenizer>> parse_tekken(std::string_view contents) {
  try {
    return read_tekken(parse_json(contents));
  } catch (const json::exception& e) {
    return Error{Code::kConfig, text("cannot parse this tekken.json: ", e.what())};
  }
}

}  // namespace lockstep::data
