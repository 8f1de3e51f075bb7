#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "data/tokenizer/bpe_tokenizer.h"
#include "data/tokenizer/definitions.h"
#include "data/tokenizer/metaspace_json.h"
#include "data/tokenizer/scanner.h"
#include "data/tokenizer/splitter.h"
#include "data/tokenizer/unicode.h"
#include "data/tokenizer/vocabulary.h"

namespace lockstep::data {

namespace {

using nlohmann::json;

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
  if (type == "Unigram") return {};
  if (!type.is_null() && type != "BPE") return unsupported("model", type.dump());
  const json& dropout = member(model, "dropout");
  if (!dropout.is_null() && dropout.get<double>() != 0)
    return unsupported("model BPE with dropout", dropout.dump());
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const json& affix = member(model, key);
    if (!affix.is_null() && affix != "")
      return unsupported(text("model BPE with ", key), affix.dump());
  }
  return {};
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

Result<uint32_t> end_of_document(const BpeParts& parts, const Ids& ids, const SideWords& side,
                                 std::optional<uint32_t> after) {
  const auto find = [&](const std::string& name) -> std::optional<uint32_t> {
    for (const AddedToken& token : parts.added_tokens)
      if (token.content == name) return token.id;
    const auto found = ids.find(name);
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  };
  if (side.eos) {
    if (const auto id = find(side.eos->token)) return *id;
    return Error{Code::kConfig, text("eos_token \"", side.eos->token, "\" of ", side.eos->file,
                                     " is not in the vocabulary")};
  }
  if (after) return *after;
  for (const char* name : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>", "<eos>"})
    if (const auto id = find(name)) return *id;
  return Error{Code::kConfig,
               "nothing says which token ends a document: put a "
               "tokenizer_config.json with \"eos_token\" next to it"};
}

// Merges and special tokens, once the vocabulary was read.
Result<void> read_rest(const json& root, const SideWords& side, const Ids& ids, BpeParts& parts) {
  const json& model = root.at("model");
  parts.name = "tokenizer.json";
  if (!is_unigram(root))
    LOCKSTEP_RETURN_IF_ERROR(read_merges(model.at("merges"), ids, parts.model));
  parts.model.whole_pieces_first = flag(model, "ignore_merges", false);
  if (root.contains("added_tokens")) parts.added_tokens = read_added_tokens(root["added_tokens"]);
  std::optional<uint32_t> after;
  LOCKSTEP_RETURN_IF_ERROR(read_template(member(root, "post_processor"), parts, after));
  LOCKSTEP_TRY(parts.end_of_document, end_of_document(parts, ids, side, after));
  return {};
}

Result<std::unique_ptr<Tokenizer>> read_definition(const json& root, const SideWords& side) {
  BpeParts parts;
  const json& model = root.at("model");
  LOCKSTEP_RETURN_IF_ERROR(check_model(model));
  if (is_metaspace(root)) {
    Ids ids;
    LOCKSTEP_TRY(MetaspaceParts metaspace, read_metaspace(root, ids));
    LOCKSTEP_RETURN_IF_ERROR(read_rest(root, side, ids, metaspace.bpe));
    return make_metaspace_tokenizer(std::move(metaspace));
  }
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
  LOCKSTEP_RETURN_IF_ERROR(read_rest(root, side, ids, parts));
  return make_bpe_tokenizer(std::move(parts));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> parse_tokenizer_json(std::string_view contents,
                                                        std::string_view config,
                                                        std::string_view special_tokens_map) {
  LOCKSTEP_TRY(const SideWords side,
               read_side_files({std::string(config), std::string(special_tokens_map), ""}));
  try {
    return read_definition(parse_json(contents), side);
  } catch (const json::exception& e) {
    return Error{Code::kConfig, text("cannot parse this tokenizer.json: ", e.what())};
  }
}

}  // namespace lockstep::data
