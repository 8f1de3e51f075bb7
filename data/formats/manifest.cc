#include "data/formats/manifest.h"

#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"
#include "data/formats/shard_size.h"

namespace lockstep::data {

namespace {

using nlohmann::json;
constexpr const char* kFormat = "lockstep-tokens";

void add_checksums(json& file, const Checksums& checksums) {
  if (checksums.block_xxh3.empty()) {
    file["table_xxh3"] = checksums.table_xxh3;
  } else {
    file["block_xxh3"] = checksums.block_xxh3;
  }
}
Checksums checksums_from(const json& file) {
  if (file.contains("table_xxh3")) return {file["table_xxh3"].get<std::string>(), {}};
  return {"", file.at("block_xxh3").get<std::vector<std::string>>()};
}

json bits_json(const BitsInfo& bits) {
  json file = {{"file", bits.file}};
  add_checksums(file, bits.checksums);
  return file;
}
std::optional<BitsInfo> bits_from(const json& shard, const char* key) {
  if (!shard.contains(key)) return std::nullopt;
  return BitsInfo{shard[key].at("file").get<std::string>(), checksums_from(shard[key])};
}

json to_json(const DatasetManifest& manifest) {
  const Recipe& recipe = manifest.recipe;
  json shards = json::array();
  for (const ShardInfo& shard : manifest.shards) {
    shards.push_back({{"file", shard.file}, {"tokens", shard.tokens}, {"split", shard.split}});
    add_checksums(shards.back(), shard.checksums);
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
    info.checksums = checksums_from(shard);
    info.mask = bits_from(shard, "mask");
    info.starts = bits_from(shard, "starts");
    manifest.shards.push_back(std::move(info));
  }
  manifest.tokenizer = recipe.tokenizer;
  manifest.tokenizer_hash = recipe.tokenizer_hash;
  return manifest;
}

// Of a file of `count` integers.
std::string file_fault(int64_t version, const std::string& file, const Checksums& checksums,
                       int64_t count, int64_t width) {
  if (file.empty() || file.find('/') != std::string::npos)
    return text("bad shard file name \"", file, "\"");
  if ((version < kManifestVersion) != checksums.table_xxh3.empty())
    return text(file, ": since format version ", kManifestVersion, " each file has a table_xxh3");
  if (version == kManifestVersion) return "";
  const auto there = static_cast<int64_t>(checksums.block_xxh3.size());
  const int64_t blocks = block_count(token_offset(count, width), kOldBlockBytes);
  return there == blocks ? "" : text(file, ": ", there, " block checksums, not ", blocks);
}

std::string shard_fault(const DatasetManifest& manifest, const ShardInfo& shard, bool has_masks) {
  const int64_t version = manifest.format_version;
  if (shard.tokens < 1 || shard.tokens > kMaxShardTokens)
    return text(shard.file, ": impossible number of tokens: ", shard.tokens);
  std::string fault =
      file_fault(version, shard.file, shard.checksums, shard.tokens, token_bytes(manifest.dtype));
  if (!fault.empty()) return fault;
  if (shard.split != "train" && shard.split != "val")
    return text(shard.file, ": split \"", shard.split, "\" is not train or val");
  if (shard.mask.has_value() != has_masks ||
      shard.starts.has_value() != (manifest.recipe.packed_seq_len > 0))
    return text(shard.file,
                ": either all shards or none must have a mask, and each packed shard must ",
                "have a file of document starts");
  for (const auto& bits : {shard.mask, shard.starts})
    if (bits && fault.empty())
      fault = file_fault(version, bits->file, bits->checksums, mask_words(shard.tokens), 2);
  return fault;
}

// What a reader relies on. Empty when all is well.
std::string fault_of(const DatasetManifest& manifest) {
  if (token_bytes(manifest.dtype) == 0)
    return text("dtype \"", manifest.dtype, "\" is not u16 or u32");
  if (manifest.vocab_size < 1 || manifest.end_of_document < 0 ||
      manifest.end_of_document >= manifest.vocab_size)
    return text("impossible vocabulary: vocab_size ", manifest.vocab_size, ", end_of_document ",
                manifest.end_of_document);
  const int64_t version = manifest.format_version, packed = manifest.recipe.packed_seq_len;
  if (packed < 0 || (version < kManifestVersion && (version == 3) != (packed > 0)))
    return text("format version ", version, " cannot be packed for ", packed, " tokens");
  bool has_masks = version == 2 || packed > 0;
  if (version == kManifestVersion && packed == 0 && !manifest.shards.empty())
    has_masks = manifest.shards[0].mask.has_value();
  for (const ShardInfo& shard : manifest.shards)
    if (std::string fault = shard_fault(manifest, shard, has_masks); !fault.empty()) return fault;
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
                 text(folder.string(), " has no ", kManifestName,
                      "; it was not made by `lockstep prepare`, or prepare did not finish")};
  LOCKSTEP_TRY(const std::string contents, read_file(file_system, path));
  const auto corrupt = [&](const auto&... parts) {
    return Error{Code::kCorrupt, text(path.string(), ": ", parts...)};
  };
  json j = parse_json(contents, /*allow_exceptions=*/false);
  if (!j.is_object() || !j.contains("format") || j["format"] != kFormat)
    return corrupt("it is not a token manifest (", contents.size(),
                   " bytes; expected JSON with format \"", kFormat, "\")");
  const json version = j.value("format_version", json(1));
  if (!version.is_number_integer() || version < 1 || version > kManifestVersion)
    return corrupt("its format version is ", version.dump(), "; this program reads 1 to ",
                   kManifestVersion);
  try {
    DatasetManifest manifest = from_json(j);
    manifest.hash = j.at("hash").get<std::string>();
    j.erase("hash");
    const std::string actual = hex64(xxh3_64(j.dump()));
    if (actual != manifest.hash)
      return corrupt("it says that its hash is ", manifest.hash, ", but it is ", actual,
                     "; it was changed after prepare");
    if (const std::string fault = fault_of(manifest); !fault.empty()) return corrupt(fault);
    return manifest;
  } catch (const json::exception& e) {
    return corrupt(e.what());
  }
}

}  // namespace lockstep::data
