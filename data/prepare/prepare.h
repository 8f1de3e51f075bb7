// Text or records to a folder of token shards. Format: docs/FORMAT_DATA.md.
//
// 1. list the files; 2. an existing complete folder: keep it, refuse, or (force) unpublish it;
// 3. write the shards of both splits, each synced; 4. write the tokenizer's files and
// sync the folder; 5. publish manifest.json.
// A crash before 5 leaves a folder without a manifest; the next call removes its shards and starts
// over. tests/unit/data/prepare_test.cc stops after every single disk operation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "data/formats/manifest.h"
#include "data/prepare/record.h"
#include "data/prepare/record_reader.h"
#include "data/tokenizer/tokenizer.h"

namespace lockstep::data {

inline constexpr int64_t kDefaultShardTokens = int64_t{1} << 29;  // 1 GiB of u16

inline constexpr int64_t kMaxValMillionths = 500'000;

inline constexpr size_t kShownRecords = 5;

// A record as it goes into the shards.
struct ShownRecord {
  std::string place;  // "a.jsonl: line 3"
  std::vector<uint32_t> ids;
  std::vector<uint8_t> in_loss;  // 1: the token is learnt
};

// What was read, for people.
struct Understanding {
  std::string format;  // "JSON lines", …; of records
  KeySurvey keys;      // of the first records
  int64_t records = 0, tokens = 0, learnt_tokens = 0;
  int64_t longest_tokens = 0;      // of a record
  std::string longest_place;       // "a.jsonl: line 3"
  int64_t unlearnt = 0;            // records that are left out: no answer of theirs is to be learnt
  int64_t empty = 0;               // records with nothing to learn but the end of the document
  std::vector<ShownRecord> shown;  // the first ones that are not left out
};

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;  // files, folders of files; also gzip, zstd
  std::optional<RecordFormat> records;        // the files hold records; else text
  bool as_text = false;                       // files that look like records are text all the same
  std::filesystem::path out;
  int64_t val_millionths = 50'000;  // share of segments held out; [0, kMaxValMillionths]
  int64_t shard_tokens = kDefaultShardTokens;
  int64_t pack_seq_len = 0;  // pack documents into samples of so many tokens; 0: do not
  bool force = false;        // replace what another input made
  int threads = 1;           // that tokenize; never changes a byte of the result
  // The files that define the tokenizer, kept in the folder.
  std::vector<std::pair<std::string, std::string>> tokenizer_files;
  // Where a line of a file comes from, if that is not the file itself, as it is for tables.
  std::function<std::optional<std::string>(const std::filesystem::path&, int64_t line)> origin;
  // Called once, before the first token is written, with what the first records gave.
  std::function<void(const Understanding&)> on_understood;
  // Called now and then with input bytes done and in all.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> on_progress;
};

struct PrepareReport {
  DatasetManifest manifest;
  bool up_to_date = false;  // the folder was there already, made from the same input
  // Above this many millionths some text is held out and some is not. Unknown where the folder was
  // up to date; none where the input is too short to be cut.
  std::optional<int64_t> least_place = {};
  Understanding understood = {};  // of all that was read; not where the folder was up to date
};

// Errors: kNotFound (an input), kConfig (not UTF-8, empty file, options, a folder made from
// something else, everything held out, parse_record's, records in which nothing is learnt),
// kCorrupt (the folder there is damaged), kIo, kNoSpace.
Result<PrepareReport> prepare(FileSystem& file_system, const Tokenizer& tokenizer,
                              const PrepareOptions& options);

// "a.jsonl: line 3", or the origin that the options know.
std::string record_place(const PrepareOptions& options, const std::filesystem::path& path,
                         RecordKind kind, int64_t number);

// In [0, 1'000'000): a segment or a record is held out when its place is below
// PrepareOptions::val_millionths. A function of its text alone, so it never moves between the
// splits.
int64_t place_in_split(std::string_view words);
bool in_validation_split(std::string_view words, int64_t val_millionths);

}  // namespace lockstep::data
