#include "data/tokenizer/metaspace_json.h"

namespace lockstep::data {
namespace {

using nlohmann::json;

// [{"type": "Sequence", "KEY": [a, b]}] -> a, b; one that is no sequence -> itself; null -> none.
std::vector<json> flat(const json& stage, const char* key) {
  if (stage.is_null()) return {};
  if (type_of(stage) != "Sequence") return {stage};
  std::vector<json> all;
  for (const json& one : stage.at(key))
    for (json& each : flat(one, key)) all.push_back(std::move(each));
  return all;
}

bool is_space_pattern(const json& stage) {
  const json& pattern = member(stage, "pattern");
  return pattern.is_object() && member(pattern, "String") == " ";
}

Result<void> read_normalizers(const json& root, MetaspaceParts& parts) {
  for (const json& one : flat(member(root, "normalizer"), "normalizers")) {
    const std::string type = type_of(one);
    if (type == "Prepend" && member(one, "prepend") == kMetaspace && !parts.replaces_first)
      parts.prepends = Prepends::kEachPart;
    else if (type == "Replace" && is_space_pattern(one) && member(one, "content") == kMetaspace)
      parts.replaces_first = true;
    else
      return unsupported("normalizer", text(type, " = ", one.dump()));
  }
  return {};
}

Result<void> read_metaspace_stage(const json& stage, MetaspaceParts& parts) {
  if (member(stage, "replacement") != kMetaspace)
    return unsupported("pre_tokenizer Metaspace with replacement",
                       member(stage, "replacement").dump());
  const bool old = flag(stage, "add_prefix_space", true);  // before there was prepend_scheme
  const json& scheme = member(stage, "prepend_scheme");
  const std::string word =
      scheme.is_null() ? (old ? "always" : "never") : scheme.get<std::string>();
  if (parts.prepends != Prepends::kNever && word != "never")
    return unsupported("pre_tokenizer Metaspace", "after the normalizer Prepend");
  if (word == "always")
    parts.prepends = Prepends::kWhereNone;
  else if (word == "first")
    parts.prepends = Prepends::kBeginning;
  else if (word != "never")
    return unsupported("pre_tokenizer Metaspace with prepend_scheme", word);
  parts.splits = flag(stage, "split", true);
  return {};
}

Result<void> read_pre_tokenizers(const json& root, MetaspaceParts& parts) {
  const std::vector<json> stages = flat(member(root, "pre_tokenizer"), "pretokenizers");
  if (stages.size() > 1) return unsupported("pre_tokenizer", "Sequence with Metaspace");
  if (stages.empty()) {
    // Nothing replaces spaces: a space is a character like any other.
    if (!parts.replaces_first) return unsupported("byte_fallback", "without a \"▁\" for spaces");
    return {};
  }
  const std::string type = type_of(stages[0]);
  if (type == "Metaspace") return read_metaspace_stage(stages[0], parts);
  // Gemma's: no space is left for it to find.
  const bool finds_nothing = type == "Split" && is_space_pattern(stages[0]) &&
                             parts.replaces_first && !flag(stages[0], "invert", false);
  if (!finds_nothing) return unsupported("pre_tokenizer with byte_fallback:", type);
  return {};
}

Result<void> read_decoders(const json& root, MetaspaceParts& parts) {
  parts.strips_begin = parts.prepends != Prepends::kNever;
  const std::vector<json> decoders = flat(member(root, "decoder"), "decoders");
  if (decoders.empty()) return {};
  parts.strips_begin = false;
  for (const json& one : decoders) {
    const std::string type = type_of(one);
    if (type == "Strip" && member(one, "content") == " " && member(one, "start") == 1)
      parts.strips_begin = true;
    else if (type == "Metaspace")
      parts.strips_begin = parts.prepends != Prepends::kNever;
    else if (type != "Replace" && type != "ByteFallback" && type != "Fuse")
      return unsupported("decoder", type);
  }
  return {};
}

}  // namespace

bool is_metaspace(const json& root) {
  if (flag(root.at("model"), "byte_fallback", false)) return true;
  for (const json& stage : flat(member(root, "pre_tokenizer"), "pretokenizers"))
    if (type_of(stage) == "Metaspace") return true;
  return false;
}

Result<MetaspaceParts> read_metaspace(const json& root, Ids& ids) {
  MetaspaceParts parts;
  LOCKSTEP_RETURN_IF_ERROR(read_normalizers(root, parts));
  LOCKSTEP_RETURN_IF_ERROR(read_pre_tokenizers(root, parts));
  LOCKSTEP_RETURN_IF_ERROR(read_decoders(root, parts));
  const json& model = root.at("model");
  auto& tokens = parts.bpe.model.token_bytes;
  for (const auto& [token, value] : model.at("vocab").items()) {
    const uint32_t id = id_of(value);
    ids.emplace(token, id);
    if (id >= tokens.size()) tokens.resize(id + 1);
    tokens[id] = token;
  }
  parts.byte_fallback = flag(model, "byte_fallback", false);
  parts.fuses_unknown = flag(model, "fuse_unk", false);
  const json& unknown = member(model, "unk_token");
  if (!unknown.is_null()) {
    const auto found = ids.find(unknown.get<std::string>());
    if (found == ids.end())
      return Error{Code::kConfig, text("unk_token ", unknown.dump(), " is not in the vocabulary")};
    parts.unknown = found->second;
  }
  return parts;
}

}  // namespace lockstep::data
