#include <algorithm>
#include <unordered_map>

#include "base/json.h"
#include "base/text.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/definitions.h"
#include "data/tokenizer/scanner.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/unicode.h"

namespace lockstep::data {

namespace {

using nlohmann::json;
using Ids = std::unordered_map<std::string, uint32_t>;

Error unsupported(const std::string& component, const std::string& what) {
  return Error{Code::kConfig, text(component, " ", what, " is not supported")};
}

// The value of `key`, or null when it is missing.
const json& member(const json& object, const char* key) {
  static const json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}
bool flag(const json& object, const char* key, bool otherwise) {
  const json& value = member(object, key);
  return value.is_null() ? otherwise : value.get<bool>();
}
std::string type_of(const json& object) { return object.at("type").get<std::string>(); }

uint32_t id_of(const json& value) {
  const auto id = value.get<int64_t>();
  if (!value.is_number_integer() || id < 0 || id >= kMaxVocab)
    throw json::other_error::create(
        501, text("id ", value.dump(), " is not in [0, ", kMaxVocab, ")"), nullptr);
  return static_cast<uint32_t>(id);
}

Result<void> read_normalizer(const json& normalizer, BpeParts& parts) {
  if (normalizer.is_null()) return {};
  const std::string type = type_of(normalizer);
  if (type == "NFC") {
    parts.composes = true;
    return {};
  }
  if (type != "Sequence") return unsupported("normalizer", type);
  for (const json& one : normalizer.at("normalizers"))
    LOCKSTEP_RETURN_IF_ERROR(read_normalizer(one, parts));
  return {};
}

Result<SplitBehavior> behavior_of(const std::string& name) {
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return unsupported("pre_tokenizer Split with behavior", name);
}

std::string literal_pattern(const std::string& words) {
  std::string pattern;
  for (const char c : words) {
    const bool plain = static_cast<uint8_t>(c) >= 0x80 || isalnum(static_cast<uint8_t>(c)) != 0;
    if (!plain) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

using Stages = std::vector<std::unique_ptr<PreTokenizer>>;

Result<void> read_pre_tokenizer(const json& stage, BpeParts& parts, Stages& stages,
                                bool& maps_bytes) {
  const std::string type = type_of(stage);
  if (maps_bytes) return unsupported("pre_tokenizer", type + " after ByteLevel");
  if (type == "Sequence") {
    for (const json& one : stage.at("pretokenizers"))
      LOCKSTEP_RETURN_IF_ERROR(read_pre_tokenizer(one, parts, stages, maps_bytes));
  } else if (type == "Split") {
    const json& pattern = stage.at("pattern");
    LOCKSTEP_TRY(const SplitBehavior behavior,
                 behavior_of(stage.at("behavior").get<std::string>()));
    const std::string regex = pattern.contains("Regex")
                                  ? pattern["Regex"].get<std::string>()
                                  : literal_pattern(pattern.at("String").get<std::string>());
    LOCKSTEP_TRY(auto splitter, make_regex_splitter(regex, behavior, flag(stage, "invert", false)));
    stages.push_back(std::move(splitter));
  } else if (type == "Digits") {
    stages.push_back(make_digit_splitter(flag(stage, "individual_digits", false)));
  } else if (type == "ByteLevel") {
    maps_bytes = true;
    if (flag(stage, "add_prefix_space", true)) {
      if (!stages.empty())
        return unsupported("pre_tokenizer", "ByteLevel with add_prefix_space after another stage");
      parts.adds_prefix_space = true;
    }
    if (flag(stage, "use_regex", true)) stages.push_back(make_gpt2_splitter());
  } else {
    return unsupported("pre_tokenizer", type);
  }
  return {};
}

Result<void> check_model(const json& model) {
  const json& type = member(model, "type");
  if (!type.is_null() && type != "BPE") return unsupported("model", type.dump());
  const json& dropout = member(model, "dropout");
  if (!dropout.is_null() && dropout.get<double>() != 0)
    return unsupported("model BPE with dropout", dropout.dump());
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json& affix = member(model, key);
    if (!affix.is_null() && affix != "")
      return unsupported(text("model BPE with ", key), affix.dump());
  }
  if (flag(model, "byte_fallback", false))
    return unsupported("model BPE with", "byte_fallback (use the family's tokenizer.model)");
  return {};
}

Result<Merge> read_merge(const std::string& left, const std::string& right, const Ids& ids) {
  Merge merge{};
  const std::string joined = left + right;
  const std::pair<const std::string&, uint32_t&> wanted[] = {
      {left, merge.left}, {right, merge.right}, {joined, merge.joined}};
  for (const auto& [token, id] : wanted) {
    const auto found = ids.find(token);
    if (found == ids.end())
      return Error{Code::kConfig, text("the merge \"", left, " ", right, "\" needs \"", token,
                                       "\", which is not in the vocabulary")};
    id = found->second;
  }
  return merge;
}

Result<void> read_merges(const json& merges, const Ids& ids, BpeModel::Definition& definition) {
  for (const json& merge : merges) {
    std::string left, right;
    if (merge.is_array()) {
      if (merge.size() != 2) return Error{Code::kConfig, "a merge does not have two tokens"};
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else {
      const auto both = split(merge.get<std::string>(), ' ');
      if (both.size() != 2)
        return Error{Code::kConfig, text("the merge ", merge.dump(), " does not have two tokens")};
      left = both[0];
      right = both[1];
    }
    LOCKSTEP_TRY(const Merge read, read_merge(left, right, ids));
    definition.merges.push_back(read);
  }
  return {};
}

// Tokens in GPT-2's characters to their bytes. Others than byte characters occur in tokens that no
// merge can make: names of special tokens.
void read_vocabulary(const json& vocab, Ids& ids, std::vector<std::string>& token_bytes) {
  for (const auto& [token, value] : vocab.items()) {
    const uint32_t id = id_of(value);
    ids.emplace(token, id);
    if (id >= token_bytes.size()) token_bytes.resize(id + 1);
    std::string bytes;
    if (bytes_of_characters(token, bytes)) token_bytes[id] = bytes;
  }
}

std::vector<AddedToken> read_added_tokens(const json& list) {
  std::vector<AddedToken> tokens;
  for (const json& one : list) {
    AddedToken token;
    token.id = id_of(one.at("id"));
    token.content = one.at("content").get<std::string>();
    token.special = flag(one, "special", false);
    token.normalized = flag(one, "normalized", !token.special);
    token.single_word = flag(one, "single_word", false);
    token.strips_left = flag(one, "lstrip", false);
    token.strips_right = flag(one, "rstrip", false);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// The ids before the text into `parts`, the one after it, if any, into `after`.
Result<void> read_template(const json& processor, BpeParts& parts, std::optional<uint32_t>& after) {
  if (processor.is_null()) return {};
  const std::string type = type_of(processor);
  if (type == "ByteLevel") return {};  // corrects offsets only
  if (type == "Sequence") {
    for (const json& one : processor.at("processors"))
      LOCKSTEP_RETURN_IF_ERROR(read_template(one, parts, after));
    return {};
  }
  if (type != "TemplateProcessing") return unsupported("post_processor", type);
  bool text_seen = false;
  for (const json& item : processor.at("single")) {
    if (item.contains("Sequence")) {
      text_seen = true;
      continue;
    }
    const auto name = item.at("SpecialToken").at("id").get<std::string>();
    for (const json& id : processor.at("special_tokens").at(name).at("ids")) {
      if (!text_seen) {
        parts.begin_of_document.push_back(id_of(id));
      } else if (after) {
        return unsupported("post_processor TemplateProcessing", "with two tokens after the text");
      } else {
        after = id_of(id);
      }
    }
  }
  return {};
}

Result<uint32_t> end_of_document(const BpeParts& parts, const Ids& ids, std::string_view config,
                                 std::optional<uint32_t> after) {
  const auto find = [&](const std::string& name) -> std::optional<uint32_t> {
    for (const AddedToken& token : parts.added_tokens)
      if (token.content == name) return token.id;
    const auto found = ids.find(name);
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  };
  if (!config.empty()) {
    const json parsed = parse_json(config);
    const json& end = member(parsed, "eos_token");
    if (!end.is_null()) {
      const auto name = (end.is_object() ? end.at("content") : end).get<std::string>();
      if (const auto id = find(name)) return *id;
      return Error{Code::kConfig, text("eos_token \"", name,
                                       "\" of tokenizer_config.json is "
                                       "not in the vocabulary")};
    }
  }
  if (after) return *after;
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<eos>"})
    if (const auto id = find(name)) return *id;
  return Error{Code::kConfig,
               "cannot tell which token ends a document; put a tokenizer_config.json with "
               "\"eos_token\" in the same folder"};
}

Result<std::unique_ptr<Tokenizer>> read_definition(const json& root, std::string_view config) {
  BpeParts parts;
  parts.name = "tokenizer.json";
  const json& model = root.at("model");
  LOCKSTEP_RETURN_IF_ERROR(check_model(model));
  LOCKSTEP_RETURN_IF_ERROR(read_normalizer(member(root, "normalizer"), parts));
  Stages stages;
  bool maps_bytes = false;
  const json& pre_tokenizer = member(root, "pre_tokenizer");
  if (!pre_tokenizer.is_null())
    LOCKSTEP_RETURN_IF_ERROR(read_pre_tokenizer(pre_tokenizer, parts, stages, maps_bytes));
  if (!maps_bytes)
    return unsupported("pre_tokenizer", "without ByteLevel (only byte-level BPE is read)");
  parts.pre_tokenizer = make_sequence(std::move(stages));
  const json& decoder = member(root, "decoder");
  if (!decoder.is_null() && type_of(decoder) != "ByteLevel")
    return unsupported("decoder", type_of(decoder));

  Ids ids;
  read_vocabulary(model.at("vocab"), ids, parts.model.token_bytes);
  LOCKSTEP_RETURN_IF_ERROR(read_merges(model.at("merges"), ids, parts.model));
  parts.model.whole_pieces_first = flag(model, "ignore_merges", false);
  if (root.contains("added_tokens")) parts.added_tokens = read_added_tokens(root["added_tokens"]);
  std::optional<uint32_t> after;
  LOCKSTEP_RETURN_IF_ERROR(read_template(member(root, "post_processor"), parts, after));
  LOCKSTEP_TRY(parts.end_of_document, end_of_document(parts, ids, config, after));
  return make_bpe_tokenizer(std::move(parts));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(std::string_view contents,
                                                        std::string_view config) {
  try {
    return read_definition(parse_json(contents), config);
  } catch (const json::exception& e) {
    return Error{Code::kConfig, text("cannot parse this tokenizer.json: ", e.what())};
  }
}

Result<std::unique_ptr<Tokenizer>> parse_gpt2_files(std::string_view encoder_json,
                                                    std::string_view vocab_bpe) {
  try {
    BpeParts parts;
    parts.name = "gpt2";
    Ids ids;
    read_vocabulary(parse_json(encoder_json), ids, parts.model.token_bytes);
    for (const std::string& line : split(vocab_bpe, '\n')) {
      if (line.empty() || line.starts_with("#version")) continue;
      const auto both = split(line, ' ');
      if (both.size() != 2)
        return Error{Code::kConfig, text("the merge \"", line, "\" does not have two tokens")};
      LOCKSTEP_TRY(const Merge merge, read_merge(both[0], both[1], ids));
      parts.model.merges.push_back(merge);
    }
    const auto end = ids.find("<|endoftext|>");
    if (end == ids.end())
      return Error{Code::kConfig, "the vocabulary lacks \"<|endoftext|>\", the end of a document"};
    parts.end_of_document = end->second;
    parts.model.token_bytes[end->second].clear();
    parts.added_tokens = {{.id = end->second, .content = end->first, .special = true}};
    parts.pre_tokenizer = make_gpt2_splitter();
    return make_bpe_tokenizer(std::move(parts));
  } catch (const json::exception& e) {
    return Error{Code::kConfig, text("cannot parse this encoder.json: ", e.what())};
  }
}

}  // namespace lockstep::data
