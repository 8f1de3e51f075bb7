#include "data/formats/foreign_tokens.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/hash.h"
#include "base/text.h"
#include "data/formats/npy_file.h"

namespace lockstep::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLlmcHeaderBytes = 1024;
constexpr int32_t kLlmcGpt2 = 20240520, kLlmcLlama3 = 20240801, kLlmcEvaluation = 20240522;
constexpr int64_t kSampleBytes = 4096, kSamples = 256;  // of the hash

template <typename... Parts>
Error wrong(const fs::path& path, const Parts&... parts) {
  return {Code::kConfig, text(path.string(), ": ", parts...)};
}

// The words of "fineweb_val_000000.bin": fineweb, val, 000000, bin.
bool has_word(const std::string& name, std::initializer_list<const char*> words) {
  std::string word;
  for (const char c : name + ".") {
    if (c != '_' && c != '-' && c != '.') {
      word += c;
      continue;
    }
    if (std::find(words.begin(), words.end(), word) != words.end()) return true;
    word.clear();
  }
  return false;
}

// "train", "val", or "" for what belongs to neither.
std::string split_of(const std::string& name) {
  if (has_word(name, {"val", "valid", "validation"})) return "val";
  return has_word(name, {"test"}) ? "" : "train";
}

Result<std::vector<fs::path>> files_of(FileSystem& file_system, DataKind kind, const fs::path& path,
                                       const std::string& split) {
  const char* suffix = kind == DataKind::kNpy ? ".npy" : ".bin";
  const auto names = file_system.list(path);
  if (!names.ok()) {
    if (names.error().code != Code::kNotFound) return names.error();
    fs::path file = path;
    if (kind == DataKind::kMegatron && path.extension() == ".idx")
      file.replace_extension(".bin");
    else if (kind == DataKind::kMegatron && !path.native().ends_with(".bin"))
      file += ".bin";
    if (!file_system.exists(file)) return wrong(file, "no such file or folder");
    if (split != "train")
      return wrong(file, "one file has no held-out samples; give a folder with a *train*", suffix,
                   " and a *val*", suffix,
                   ", or set validation.freq = 0 to train without validation");
    return std::vector{file};
  }
  std::vector<fs::path> files;
  for (const std::string& name : names.value())
    if (!name.starts_with('.') && name.ends_with(suffix) && split_of(name) == split)
      files.push_back(path / name);
  if (files.empty()) return wrong(path, "this folder has no ", suffix, " file of split ", split);
  return files;
}

Result<int32_t> first_integer(File& file) {
  int32_t value = 0;
  LOCKSTEP_RETURN_IF_ERROR(file.read_at(std::as_writable_bytes(std::span(&value, 1)), 0));
  return value;
}

Result<TokenRun> llmc_run(File& file, const fs::path& path, int64_t size) {
  if (size < kLlmcHeaderBytes)
    return wrong(path, size, " bytes are fewer than llm.c's header of ", kLlmcHeaderBytes);
  std::array<int32_t, 3> header{};
  LOCKSTEP_RETURN_IF_ERROR(file.read_at(std::as_writable_bytes(std::span(header)), 0));
  const auto [magic, version, tokens] = header;
  if (magic == kLlmcEvaluation)
    return wrong(
        path, "it is an llm.c file of multiple-choice questions, which has no tokens to train on");
  if (magic != kLlmcGpt2 && magic != kLlmcLlama3)
    return wrong(path, "it does not start with llm.c's magic number ", kLlmcGpt2, " or ",
                 kLlmcLlama3, ", but with ", magic);
  const bool gpt2 = magic == kLlmcGpt2;
  if (version != (gpt2 ? 1 : 7))
    return wrong(path, "it has version ", version, " at byte offset 4; with magic number ", magic,
                 " this program reads version ", gpt2 ? 1 : 7);
  TokenRun run{path, {gpt2 ? 2 : 4, false}, kLlmcHeaderBytes, tokens};
  const int64_t whole = kLlmcHeaderBytes + run.tokens * run.type.bytes;
  if (tokens < 1 || size != whole)
    return wrong(path, size, " bytes long, but it must have ", whole, " for the ", tokens,
                 " tokens of its header: ", size < whole ? "truncated" : "it is too long");
  return run;
}

Result<TokenRun> nanogpt_run(File& file, const fs::path& path, int64_t size) {
  if (size == 0 || size % 2 != 0)
    return wrong(path, size,
                 " bytes are not a whole number of 2-byte tokens; was the file truncated?");
  if (size >= kLlmcHeaderBytes) {
    LOCKSTEP_TRY(const int32_t first, first_integer(file));
    if (first == kLlmcGpt2 || first == kLlmcLlama3)
      return wrong(path, "it has llm.c's header; read it with data.kind = llmc");
  }
  return TokenRun{path, {2, false}, 0, size / 2};
}

Result<TokenRun> npy_run(File& file, const fs::path& path) {
  LOCKSTEP_TRY(const NpyHeader header, read_npy_header(file, path.string()));
  const auto type = integer_type(header.descr);
  if (!type) return wrong(path, "its dtype is ", header.descr, ", but tokens must be integers");
  if (header.shape.size() != 1 || header.shape[0] == 0)
    return wrong(path, "it has ", header.shape.size(), " dimensions and ", header.elements(),
                 " tokens, but a stream of tokens must have one dimension");
  return TokenRun{path, *type, header.first_byte, header.shape[0]};
}

Result<TokenRun> open_run(FileSystem& file_system, DataKind kind, const fs::path& path) {
  auto opened = file_system.open(path);
  if (!opened.ok() && opened.error().code == Code::kNotFound) return wrong(path, "no such file");
  LOCKSTEP_TRY(std::unique_ptr<File> file, std::move(opened));
  LOCKSTEP_TRY(const int64_t size, file->size_bytes());
  auto found = kind == DataKind::kMegatron  ? read_megatron_index(file_system, path)
               : kind == DataKind::kLlmc    ? llmc_run(*file, path, size)
               : kind == DataKind::kNanogpt ? nanogpt_run(*file, path, size)
                                            : npy_run(*file, path);
  LOCKSTEP_TRY(TokenRun run, std::move(found));
  const int64_t whole = run.first_byte + run.tokens * run.type.bytes;
  if (size != whole)  // the index knows the length; the other formats have checked theirs
    return wrong(path, size, " bytes long, but it must have ", whole, " for the ", run.tokens,
                 " tokens of its index: ", size < whole ? "truncated" : "it is too long");
  run.file = std::move(file);
  return run;
}

}  // namespace

ForeignTokens::ForeignTokens(std::vector<TokenRun> runs, int64_t vocab_size)
    : runs_(std::move(runs)), vocab_size_(vocab_size) {
  for (const TokenRun& run : runs_) parts_.add(run.tokens);
}

Result<std::unique_ptr<ForeignTokens>> ForeignTokens::open(FileSystem& file_system, DataKind kind,
                                                           const fs::path& path,
                                                           const std::string& split,
                                                           int64_t vocab_size) {
  LOCKSTEP_TRY(const std::vector<fs::path> files, files_of(file_system, kind, path, split));
  std::vector<TokenRun> runs;
  for (const fs::path& file : files) {
    LOCKSTEP_TRY(TokenRun run, open_run(file_system, kind, file));
    runs.push_back(std::move(run));
  }
  return std::unique_ptr<ForeignTokens>(new ForeignTokens(std::move(runs), vocab_size));
}

Result<void> ForeignTokens::read(int64_t first, std::span<int64_t> out) const {
  return parts_.for_each(
      first, out, [&](size_t part, int64_t begin, std::span<int64_t> piece) -> Result<void> {
        const TokenRun& run = runs_[part];
        const int64_t width = run.type.bytes, offset = run.first_byte + begin * width;
        std::vector<std::byte> bytes(piece.size() * static_cast<size_t>(width));
        LOCKSTEP_RETURN_IF_ERROR(run.file->read_at(bytes, offset));
        widen(bytes.data(), run.type, piece);
        for (size_t i = 0; i < piece.size(); ++i)
          if (piece[i] < 0 || piece[i] >= vocab_size_) [[unlikely]]
            return wrong(run.path, "token ", piece[i], " at byte offset ",
                         offset + static_cast<int64_t>(i) * width, " is outside the vocabulary of ",
                         vocab_size_);
        return {};
      });
}

Result<std::string> ForeignTokens::hash() const {
  // The bytes of all runs are one sequence here; only the few blocks that count are read.
  Xxh3Stream stream;
  PartTable bytes;
  for (const TokenRun& run : runs_) {
    stream.update(as_bytes(text(run.type.name(), " ", run.tokens, " ", run.index_xxh3, "\n")));
    bytes.add(run.tokens * run.type.bytes);
  }
  const int64_t total = bytes.tokens(), block = std::min(kSampleBytes, total);
  const int64_t blocks = std::min(kSamples, (total + block - 1) / block);
  std::vector<std::byte> sample(static_cast<size_t>(block));
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t at = blocks == 1 ? 0 : (total - block) * i / (blocks - 1);
    LOCKSTEP_RETURN_IF_ERROR(bytes.for_each(
        at, std::span(sample), [&](size_t part, int64_t begin, std::span<std::byte> piece) {
          return runs_[part].file->read_at(piece, runs_[part].first_byte + begin);
        }));
    stream.update(sample);
  }
  return hex64(stream.digest());
}

}  // namespace lockstep::data
