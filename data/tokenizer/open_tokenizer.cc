#include "data/tokenizer/open_tokenizer.h"

#include <algorithm>

#include "base/json.h"
#include "base/text.h"
#include "data/formats/manifest.h"
#include "data/tokenizer/definitions.h"

namespace lockstep::data {

namespace {

namespace fs = std::filesystem;
using Parsed = Result<std::unique_ptr<Tokenizer>>;

constexpr const char* kConfigName = "tokenizer_config.json";
constexpr const char* kMapName = "special_tokens_map.json";
constexpr const char* kAddedName = "added_tokens.json";
// In the order in which a folder is looked through; GPT-2's files have two names.
constexpr const char* kNames[] = {"tokenizer.json", "tekken.json", "tokenizer.model",
                                  "encoder.json", "vocab.json"};

enum class Kind { kTokenizerJson, kTekken, kEncoderJson, kVocabBpe, kTiktoken, kSentencePiece };

// By the first bytes and, of JSON, the first keys.
Result<Kind> kind_of(const std::string& contents) {
  const size_t first = contents.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) return Error{Code::kConfig, "the file is empty"};
  if (contents[first] == '{') {
    const auto root = parse_json(contents, /*allow_exceptions=*/false);
    if (root.is_discarded())
      return Error{Code::kConfig, "it starts like JSON, but cannot be parsed"};
    // encoder.json may have tokens of these names: its values are ids.
    const auto has = [&](const char* key) {
      return root.contains(key) && root[key].is_structured();
    };
    if (has("model")) return Kind::kTokenizerJson;
    if (has("config") && has("vocab")) return Kind::kTekken;
    const auto is_id = [](const auto& value) { return value.is_number_integer(); };
    if (!root.empty() && std::all_of(root.begin(), root.end(), is_id)) return Kind::kEncoderJson;
    return Error{Code::kConfig,
                 "it is JSON, but not a tokenizer.json, tekken.json or encoder.json"};
  }
  if (contents.starts_with("#version")) return Kind::kVocabBpe;
  std::string token;
  const std::string line = contents.substr(0, contents.find('\n'));
  const size_t space = line.find(' ');
  if (space != std::string::npos && decode_base64(std::string_view(line).substr(0, space), token))
    return Kind::kTiktoken;
  if (contents[0] == '\x0a') return Kind::kSentencePiece;  // field 1 of its protobuf: a piece
  return Error{Code::kConfig,
               "it is not a tokenizer.json, a tekken.json, an encoder.json with vocab.bpe, a "
               "tiktoken rank file or a SentencePiece model"};
}

class Opening {
 public:
  Opening(FileSystem& file_system, fs::path path) : file_system_(file_system), path_(path) {}

  Result<OpenedTokenizer> open() {
    LOCKSTEP_TRY(const std::string contents, read(path_));
    const auto kind = kind_of(contents);
    if (!kind.ok()) return kind.error().in(path_.string());
    Parsed parsed = parse(kind.value(), contents);
    if (!parsed.ok()) return parsed.error().in(path_.string());
    opened_.tokenizer = std::move(parsed).value();
    return std::move(opened_);
  }

 private:
  Result<std::string> read(const fs::path& path) {
    LOCKSTEP_TRY(const auto file, file_system_.open(path));
    LOCKSTEP_TRY(const int64_t size, file->size_bytes());
    if (size > kMaxDefinitionBytes)
      return Error{Code::kConfig, text(path.string(), ": ", size,
                                       " bytes are too many for a tokenizer's definition")};
    LOCKSTEP_TRY(std::string contents, read_file(file_system_, path));
    if (is_lfs_pointer(contents)) return lfs_pointer_error(path);
    return contents;
  }
  // "": there is none.
  Result<std::string> read_and_keep(const char* name) {
    const fs::path path = path_.parent_path() / name;
    if (!file_system_.exists(path)) return std::string();
    LOCKSTEP_TRY(std::string contents, read(path));
    keep(name, contents);
    return contents;
  }
  Result<SideWords> side_words() {
    SideFiles files;
    LOCKSTEP_TRY(files.tokenizer_config, read_and_keep(kConfigName));
    LOCKSTEP_TRY(files.special_tokens_map, read_and_keep(kMapName));
    LOCKSTEP_TRY(files.added_tokens, read_and_keep(kAddedName));
    return read_side_files(files);
  }
  void keep(const std::string& name, const std::string& contents) {
    opened_.files.emplace_back(name, contents);
  }

  Parsed parse(Kind kind, const std::string& contents) {
    switch (kind) {
      case Kind::kTokenizerJson: {
        LOCKSTEP_TRY(const std::string config, read_and_keep(kConfigName));
        LOCKSTEP_TRY(const std::string map, read_and_keep(kMapName));
        keep("tokenizer.json", contents);
        return parse_tokenizer_json(contents, config, map);
      }
      case Kind::kTekken: keep("tekken.json", contents); return parse_tekken(contents);
      case Kind::kTiktoken: keep("tokenizer.model", contents); return parse_tiktoken(contents);
      case Kind::kSentencePiece: {
        keep("tokenizer.model", contents);
        LOCKSTEP_TRY(const SideWords side, side_words());
        return parse_sentencepiece(contents, side);
      }
      case Kind::kEncoderJson: {
        LOCKSTEP_TRY(const std::string merges, read_beside({"vocab.bpe", "merges.txt"}));
        return gpt2(contents, merges);
      }
      case Kind::kVocabBpe: {
        LOCKSTEP_TRY(const std::string encoder, read_beside({"encoder.json", "vocab.json"}));
        return gpt2(encoder, contents);
      }
    }
    return Error{Code::kBug, "a kind without a parser"};
  }
  Parsed gpt2(const std::string& encoder, const std::string& merges) {
    keep("encoder.json", encoder);
    keep("vocab.bpe", merges);
    LOCKSTEP_TRY(const SideWords side, side_words());
    return parse_gpt2_files(encoder, merges, side);
  }
  Result<std::string> read_beside(const std::vector<std::string>& names) {
    for (const std::string& name : names)
      if (file_system_.exists(path_.parent_path() / name)) return read(path_.parent_path() / name);
    return Error{Code::kConfig, text("it is one of GPT-2's two files; ", names[0], " or ", names[1],
                                     " must be in the same folder")};
  }

  FileSystem& file_system_;
  const fs::path path_;
  OpenedTokenizer opened_;
};

}  // namespace

Result<OpenedTokenizer> open_tokenizer(FileSystem& file_system, const std::string& name) {
  if (name == "byte") return OpenedTokenizer{std::make_unique<ByteTokenizer>(), {}};
  const fs::path path = name;
  if (!file_system.exists(path))
    return Error{Code::kConfig, text("tokenizer \"", name,
                                     "\": no such file or folder. Lockstep never downloads: give a "
                                     "local path, or \"byte\"")};
  if (!file_system.list(path).ok()) return Opening(file_system, path).open();
  for (const char* each : kNames)
    if (file_system.exists(path / each)) return Opening(file_system, path / each).open();
  std::string known;
  for (const char* each : kNames) known += text(known.empty() ? "" : ", ", each);
  return Error{Code::kConfig, text(name, ": this folder has no tokenizer (", known, ")")};
}

Result<std::unique_ptr<Tokenizer>> tokenizer_of_dataset(FileSystem& file_system,
                                                        const fs::path& folder) {
  LOCKSTEP_TRY(const DatasetManifest manifest, read_manifest(file_system, folder));
  const std::string name =
      manifest.tokenizer == "byte" ? "byte" : (folder / kTokenizerFolder).string();
  LOCKSTEP_TRY(OpenedTokenizer opened, open_tokenizer(file_system, name));
  if (opened.tokenizer->hash() != manifest.tokenizer_hash)
    return Error{Code::kCorrupt,
                 text(folder.string(), ": its tokenizer has hash ", opened.tokenizer->hash(),
                      ", but the manifest says ", manifest.tokenizer_hash)};
  return std::move(opened.tokenizer);
}

}  // namespace lockstep::data
