#include "data/tokenizer/metaspace_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/text.h"

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

// "▁" before the text, then "▁" for spaces: what most files say, and the hash of those has it so.
bool is_plain(const std::vector<json>& normalizers, MetaspaceParts& parts) {
  MetaspaceParts found;
  for (const json& one : normalizers) {
    const std::string type = type_of(one);
    if (type == "Prepend" && member(one, "prepend") == kMetaspace && !found.replaces_first)
      found.prepends = Prepends::kEachPart;
    else if (type == "Replace" && is_space_pattern(one) && member(one, "content") == kMetaspace)
      found.replaces_first = true;
    else
      return false;
  }
  parts.prepends = found.prepends;
  parts.replaces_first = found.replaces_first;
  return true;
}

Result<void> read_normalizers(const json& root, MetaspaceParts& parts) {
  const json& normalizer = member(root, "normalizer");
  if (is_plain(flat(normalizer, "normalizers"), parts)) return {};
  LOCKSTEP_TRY(parts.normalizer, make_normalizer(normalizer));
  parts.normalizer_definition = dump_json(normalizer);
  return {};
}

Result<void> read_prepend_first(MetaspaceParts& parts) {
  // `tokenizers` asks where in the text before normalizing a word began.
  if (parts.normalizer && (parts.splits_words || parts.normalizer->may_cut_beginning()))
    return unsupported("pre_tokenizer Metaspace with prepend_scheme first",
                       "after this normalizer");
  parts.prepends = Prepends::kBeginning;
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
  if (word == "first") {
    LOCKSTEP_RETURN_IF_ERROR(read_prepend_first(parts));
  } else if (word == "always") {
    parts.prepends = Prepends::kWhereNone;
  } else if (word != "never") {
    return unsupported("pre_tokenizer Metaspace with prepend_scheme", word);
  }
  parts.splits = flag(stage, "split", true);
  return {};
}

Result<void> read_pre_tokenizers(const json& root, MetaspaceParts& parts) {
  std::vector<json> stages = flat(member(root, "pre_tokenizer"), "pretokenizers");
  if (!stages.empty() && type_of(stages[0]) == "WhitespaceSplit") {
    parts.splits_words = true;
    stages.erase(stages.begin());
  }
  if (stages.size() > 1) return unsupported("pre_tokenizer", "Sequence with Metaspace");
  if (stages.empty()) {
    parts.leaves_spaces = true;
    // Nothing replaces spaces: a space is a character like any other.
    if (!parts.replaces_first && !parts.normalizer && !parts.splits_words && !parts.unigram)
      return unsupported("byte_fallback", "without a \"▁\" for spaces");
    return {};
  }
  const std::string type = type_of(stages[0]);
  if (type == "Metaspace") return read_metaspace_stage(stages[0], parts);
  // Gemma's: no space is left for it to find.
  const bool finds_nothing = type == "Split" && is_space_pattern(stages[0]) &&
                             parts.replaces_first && !flag(stages[0], "invert", false);
  if (!finds_nothing) return unsupported("pre_tokenizer of a SentencePiece model", type);
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

// The number as `tokenizers` reads it: its JSON library multiplies or divides the digits by a power
// of ten, which is not always the nearest float64. Sums that are equal decide between cuts.
double as_tokenizers_reads(double value) {
  std::array<char, 32> digits{};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), std::abs(value),
                                 std::chars_format::scientific);
  const std::string_view written(digits.data(), static_cast<size_t>(end.ptr - digits.data()));
  const size_t e = written.find('e');
  uint64_t significand = 0;
  int exponent = std::atoi(written.data() + e + 1);
  for (size_t i = 0; i < e; ++i) {
    if (written[i] == '.') {
      exponent -= static_cast<int>(e - i - 1);
      continue;
    }
    significand = 10 * significand + static_cast<uint64_t>(written[i] - '0');
  }
  if (std::abs(exponent) > std::numeric_limits<double>::max_exponent10) return value;
  const double power = std::strtod(text("1e", std::abs(exponent)).c_str(), nullptr);
  const auto whole = static_cast<double>(significand);
  return std::copysign(exponent < 0 ? whole / power : whole * power, value);
}

Result<void> read_unigram(const json& model, Ids& ids, MetaspaceParts& parts) {
  const json& unknown = member(model, "unk_id");
  if (unknown.is_null()) return unsupported("model Unigram", "without unk_id");
  UnigramModel::Definition definition;
  definition.unknown = id_of(unknown);
  definition.byte_fallback = parts.byte_fallback = flag(model, "byte_fallback", false);
  for (const json& entry : model.at("vocab")) {
    definition.tokens.push_back(entry.at(0).get<std::string>());
    definition.scores.push_back(as_tokenizers_reads(entry.at(1).get<double>()));
    ids[definition.tokens.back()] = static_cast<uint32_t>(definition.tokens.size() - 1);
  }
  parts.bpe.model.token_bytes = definition.tokens;
  parts.unigram = std::move(definition);
  return {};
}

}  // namespace

bool is_unigram(const json& root) { return member(root.at("model"), "type") == "Unigram"; }

bool is_metaspace(const json& root) {
  if (is_unigram(root) || flag(root.at("model"), "byte_fallback", false)) return true;
  for (const json& stage : flat(member(root, "pre_tokenizer"), "pretokenizers"))
    if (type_of(stage) == "Metaspace") return true;
  return false;
}

Result<MetaspaceParts> read_metaspace(const json& root, Ids& ids) {
  MetaspaceParts parts;
  const json& model = root.at("model");
  if (is_unigram(root)) {
    LOCKSTEP_RETURN_IF_ERROR(read_unigram(model, ids, parts));
  }
  LOCKSTEP_RETURN_IF_ERROR(read_normalizers(root, parts));
  LOCKSTEP_RETURN_IF_ERROR(read_pre_tokenizers(root, parts));
  LOCKSTEP_RETURN_IF_ERROR(read_decoders(root, parts));
  if (parts.unigram) return parts;
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
