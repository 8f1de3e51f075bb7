// vocab.json and merges.txt: GPT-2's, and Qwen2's, which cuts texts in another way.
#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/definitions.h"
#include "data/tokenizer/scanner.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/vocabulary.h"

namespace lockstep::data {
namespace {

using nlohmann::json;

constexpr const char* kEndOfText = "<|endoftext|>";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
    R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Result<void> read_merge_lines(std::string_view contents, const Ids& ids,
                              std::vector<Merge>& merges) {
  for (std::string line : split(contents, '\n')) {
    if (line.ends_with('\r')) line.pop_back();  // written on Windows
    if (line.empty() || line.starts_with("#version")) continue;
    const auto both = split(line, ' ');
    if (both.size() != 2)
      return Error{Code::kConfig, text("the merge \"", line, "\" does not have two tokens")};
    LOCKSTEP_TRY(const Merge merge, read_merge(both[0], both[1], ids));
    merges.push_back(merge);
  }
  return {};
}

// How the class cuts a text. transformers goes by the class, for the files do not say it.
Result<void> cut_as(const std::string& tokenizer_class, BpeParts& parts) {
  for (const char* name : {"", "GPT2Tokenizer", "PreTrainedTokenizer", "TokenizersBackend"})
    if (tokenizer_class == name) {
      parts.pre_tokenizer = make_gpt2_splitter();
      return {};
    }
  if (tokenizer_class != "Qwen2Tokenizer")
    return Error{Code::kConfig,
                 text("tokenizer_class ", tokenizer_class,
                      " of tokenizer_config.json is not known for vocab.json with merges.txt; "
                      "save the tokenizer as tokenizer.json (transformers: AutoTokenizer."
                      "from_pretrained(…).save_pretrained(…))")};
  parts.composes = true;
  LOCKSTEP_TRY(parts.pre_tokenizer, make_regex_splitter(kQwen2Pattern, SplitBehavior::kIsolated,
                                                        /*invert=*/false));
  return {};
}

// A token that is not in the vocabulary yet gets the next id, as in transformers 5; the id of the
// file must be that one.
Result<void> add_token(AddedToken token, const Ids& ids, BpeParts& parts) {
  const auto known = ids.find(token.content);
  const size_t next = parts.model.token_bytes.size() +
                      (parts.added_tokens.size() -
                       static_cast<size_t>(std::count_if(
                           parts.added_tokens.begin(), parts.added_tokens.end(),
                           [&](const AddedToken& t) { return ids.contains(t.content); })));
  const uint32_t right = known == ids.end() ? static_cast<uint32_t>(next) : known->second;
  if (token.id != right)
    return Error{
        Code::kConfig,
        text("the added token \"", token.content, "\" has the id ", token.id, ", and ",
             known == ids.end() ? "the next free one is " : "the vocabulary gives it ", right)};
  const auto there = std::find_if(parts.added_tokens.begin(), parts.added_tokens.end(),
                                  [&](const AddedToken& t) { return t.content == token.content; });
  if (there != parts.added_tokens.end())
    *there = std::move(token);
  else
    parts.added_tokens.push_back(std::move(token));
  return {};
}

// The id of a special token that a file names; it is cut out of texts.
Result<uint32_t> special(const SideWords::Name& name, const Ids& ids, BpeParts& parts) {
  for (const AddedToken& token : parts.added_tokens)
    if (token.content == name.token) return token.id;
  const auto found = ids.find(name.token);
  if (found == ids.end())
    return Error{Code::kConfig,
                 text("\"", name.token, "\" of ", name.file, " is not in the vocabulary")};
  parts.added_tokens.push_back({.id = found->second, .content = name.token, .special = true});
  return found->second;
}

Result<std::unique_ptr<Tokenizer>> read_files(const json& vocab, std::string_view merges,
                                              const SideWords& side) {
  BpeParts parts;
  parts.name = "gpt2";
  Ids ids;
  read_vocabulary(vocab, ids, parts.model.token_bytes);
  LOCKSTEP_RETURN_IF_ERROR(read_merge_lines(merges, ids, parts.model.merges));
  if (const auto end = ids.find(kEndOfText); end != ids.end()) {
    parts.model.token_bytes[end->second].clear();
    parts.added_tokens = {{.id = end->second, .content = end->first, .special = true}};
  }
  for (const AddedToken& token : side.added_tokens)
    LOCKSTEP_RETURN_IF_ERROR(add_token(token, ids, parts));
  const SideWords::Name usual{kEndOfText, "GPT-2"};
  if (!side.eos && !ids.contains(kEndOfText))
    return Error{Code::kConfig, "the vocabulary lacks \"<|endoftext|>\", the end of a document"};
  LOCKSTEP_TRY(parts.end_of_document, special(side.eos.value_or(usual), ids, parts));
  if (side.add_bos.value_or(false)) {
    LOCKSTEP_TRY(const uint32_t begin, special(side.bos.value_or(usual), ids, parts));
    parts.begin_of_document = {begin};
  }
  parts.adds_prefix_space = side.add_prefix_space.value_or(false);
  LOCKSTEP_RETURN_IF_ERROR(cut_as(side.tokenizer_class, parts));
  return make_bpe_tokenizer(std::move(parts));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_gpt2_files(std::string_view encoder_json,
                                                    std::string_view vocab_bpe,
                                                    const SideWords& side) {
  try {
    return read_files(parse_json(encoder_json), vocab_bpe, side);
  } catch (const json::exception& e) {
    return Error{Code::kConfig, text("cannot parse this encoder.json: ", e.what())};
  }
}

}  // namespace lockstep::data
