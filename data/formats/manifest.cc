#include "data/formats/manifest.h"

#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "data/formats/shard_size.h"

namespace lockstep::data {

namespace {

using nlohmann::json;
constexpr const char* kFormat = "lockstep-tokens";

json bits_json(const BitsInfo& bits) {
  return {{"file", bits.file}, {"block_xxh3", bits.block_xxh3}};
}
std::optional<BitsInfo> bits_from(const json& shard, const char* key) {
  if (!shard.contains(key)) return std::nullopt;
  return BitsInfo{shard[key].at("file").get<std::string>(),
                  shard[key].at("block_xxh3").get<std::vector<std::string>>()};
}

json to_json(const DatasetManifest& manifest) {
  const Recipe& recipe = manifest.recipe;
  json shards = json::array();
  for (const ShardInfo& shard : manifest.shards) {
    shards.push_back({{"file", shard.file},
                      {"tokens", shard.tokens},
                      {"split", shard.split},
                      {"block_xxh3", shard.block_xxh3}});
    if (shard.mask) shards.back()["mask"] = bits_json(*shard.mask);
    if (shard.starts) shards.back()["starts"] = bits_json(*shard.starts);
  }
  json j = {{"format", kFormat},
            {"format_version", manifest.format_version},
            {"dtype", manifest.dtype},
            {"tokenizer",
             {{"name", recipe.tokenizer},
              {"hash", recipe.tokenizer_hash},
              {"vocab_size", manifest.vocab_size},
              {"end_of_document", manifest.end_of_document}}},
            {"input",
             {{"documents", recipe.documents},
              {"bytes", recipe.input_bytes},
              {"xxh3", recipe.input_xxh3}}},
            {"split",
             {{"val_millionths", recipe.val_millionths}, {"segment_bytes", recipe.segment_bytes}}},
            {"shard_tokens", recipe.shard_tokens},
            {"tokens", {{"train", manifest.tokens("train")}, {"val", manifest.tokens("val")}}},
            {"shards", shards}};
  if (!recipe.records.empty()) j["input"]["records"] = recipe.records;
  if (recipe.packed_seq_len > 0)
    j["packing"] = {{"seq_len", recipe.packed_seq_len}, {"filling", manifest.filling_tokens}};
  return j;
}

// Throws json::exception when a key is missing or of another type.
DatasetManifest from_json(const json& j) {
  DatasetManifest manifest;
  manifest.format_version = j.at("format_version").get<int64_t>();
  manifest.dtype = j.at("dtype").get<std::string>();
  const json& tokenizer = j.at("tokenizer");
  manifest.vocab_size = tokenizer.at("vocab_size").get<int64_t>();
  manifest.end_of_document = tokenizer.at("end_of_document").get<int64_t>();
  Recipe& recipe = manifest.recipe;
  recipe.tokenizer = tokenizer.at("name").get<std::string>();
  recipe.tokenizer_hash = tokenizer.at("hash").get<std::string>();
  recipe.documents = j.at("input").at("documents").get<int64_t>();
  recipe.input_bytes = j.at("input").at("bytes").get<int64_t>();
  recipe.input_xxh3 = j.at("input").at("xxh3").get<std::string>();
  recipe.val_millionths = j.at("split").at("val_millionths").get<int64_t>();
  recipe.segment_bytes = j.at("split").at("segment_bytes").get<int64_t>();
  recipe.shard_tokens = j.at("shard_tokens").get<int64_t>();
  recipe.records = j.at("input").value("records", "");
  if (j.contains("packing")) {
    recipe.packed_seq_len = j["packing"].at("seq_len").get<int64_t>();
    manifest.filling_tokens = j["packing"].at("filling").get<int64_t>();
  }
  for (const json& shard : j.at("shards")) {
    ShardInfo info;
    info.file = shard.at("file").get<std::string>();
    info.tokens = shard.at("tokens").get<int64_t>();
    info.split = shard.at("split").get<std::string>();
    info.block_xxh3 = shard.at("block_xxh3").get<std::vector<std::string>>();
    info.mask = bits_from(shard, "mask");
    info.starts = bits_from(shard, "starts");
    manifest.shards.push_back(std::move(info));
  }
  manifest.tokenizer = recipe.tokenizer;
  manifest.tokenizer_hash = recipe.tokenizer_hash;
  return manifest;
}

std::string bits_fault(const ShardInfo& shard, const BitsInfo& bits) {
  const int64_t blocks = block_count(shard_size_bytes(mask_words(shard.tokens), 2));
  if (!bits.file.empty() && bits.file.find('/') == std::string::npos &&
      static_cast<int64_t>(bits.block_xxh3.size()) == blocks)
    return "";
  return text(shard.file, ": file of bits \"", bits.file, "\" with ", bits.block_xxh3.size(),
              " block checksums, not ", blocks);
}

// What a reader relies on. Empty when all is well.
std::string fault_of(const DatasetManifest& manifest) {
  const int64_t width = token_bytes(manifest.dtype);
  if (width == 0) return text("dtype \"", manifest.dtype, "\" is not u16 or u32");
  if (manifest.vocab_size < 1 || manifest.end_of_document < 0 ||
      manifest.end_of_document >= manifest.vocab_size)
    return text("vocab_size ", manifest.vocab_size, ", end_of_document ", manifest.end_of_document);
  const int64_t version = manifest.format_version;
  if ((version == 3) != (manifest.recipe.packed_seq_len > 0) || manifest.recipe.packed_seq_len < 0)
    return text("version ", version, ", packed for ", manifest.recipe.packed_seq_len, " tokens");
  for (const ShardInfo& shard : manifest.shards) {
    if (shard.file.empty() || shard.file.find('/') != std::string::npos)
      return text("shard file name \"", shard.file, "\"");
    if (shard.split != "train" && shard.split != "val")
      return text(shard.file, ": split \"", shard.split, "\" is not train or val");
    if (shard.tokens < 1 || shard.tokens > kMaxShardTokens)
      return text(shard.file, ": ", shard.tokens, " tokens");
    const int64_t blocks = block_count(shard_size_bytes(shard.tokens, width));
    if (static_cast<int64_t>(shard.block_xxh3.size()) != blocks)
      return text(shard.file, ": ", shard.block_xxh3.size(), " block checksums, not ", blocks);
    if (shard.mask.has_value() != (version >= 2) || shard.starts.has_value() != (version == 3))
      return text(shard.file,
                  ": from version 2 on there is a mask beside each shard, in version 3 "
                  "also where documents start");
    for (const auto& bits : {shard.mask, shard.starts})
      if (bits && !bits_fault(shard, *bits).empty()) return bits_fault(shard, *bits);
  }
  return "";
}

}  // namespace

int64_t DatasetManifest::tokens(const std::string& split) const {
  int64_t sum = 0;
  for (const ShardInfo& shard : shards)
    if (shard.split == split) sum += shard.tokens;
  return sum;
}

std::string seal_manifest(DatasetManifest& manifest) {
  LOCKSTEP_CHECK(fault_of(manifest).empty(), fault_of(manifest));
  json j = to_json(manifest);
  manifest.hash = hex64(xxh3_64(j.dump()));  // keys sorted, no white space
  j["hash"] = manifest.hash;
  return j.dump(1) + "\n";
}

Result<DatasetManifest> read_manifest(FileSystem& file_system,
                                      const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifestName;
  if (!file_system.exists(folder))
    return Error{Code::kNotFound,
                 text(folder.string(), ": no such folder; `lockstep prepare INPUT... --out ",
                      folder.string(), "` makes one from text")};
  if (!file_system.exists(path))
    return Error{Code::kNotFound,
                 text(folder.string(), ": has no ", kManifestName,
                      ": not made by `lockstep prepare`, or prepare did not finish")};
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, path));
  const auto corrupt = [&](const auto&... parts) {
    return Error{Code::kCorrupt, text(path.string(), ": ", parts...)};
  };
  json j = parse_json(contents, /*allow_exceptions=*/false);
  if (!j.is_object() || !j.contains("format") || j["format"] != kFormat)
    return corrupt("not a token manifest (", contents.size(),
                   " bytes; expected JSON with format \"", kFormat, "\")");
  if (j.contains("format_version") && j["format_version"] != 1 && j["format_version"] != 2 &&
      j["format_version"] != kManifestVersion)
    return corrupt("format version ", j["format_version"].dump(), "; this program reads 1 to ",
                   kManifestVersion);
  try {
    DatasetManifest manifest = from_json(j);
    manifest.hash = j.at("hash").get<std::string>();
    j.erase("hash");
    const std::string actual = hex64(xxh3_64(j.dump()));
    if (actual != manifest.hash)
      return corrupt("says its hash is ", manifest.hash, ", but it is ", actual,
                     ": changed after prepare");
    if (const std::string fault = fault_of(manifest); !fault.empty()) return corrupt(fault);
    return manifest;
  } catch (const json::exception& e) {
    return corrupt(e.what());
  }
}

}  // namespace lockstep::data
