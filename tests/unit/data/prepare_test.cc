#include "data/prepare/prepare.h"

#include <csignal>
#include <cstdlib>

#include "data/formats/token_shard.h"
#include "data/loader/token_dataset.h"
#include "tests/support/faulty_file_system.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using test_support::Fault;
using test_support::FaultyFileSystem;
using test_support::Op;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

// All tokens of one split, from its shards.
std::vector<int64_t> stream_of(const std::filesystem::path& folder, const DatasetManifest& manifest,
                               const std::string& split) {
  std::vector<int64_t> stream;
  for (const ShardInfo& info : manifest.shards) {
    if (info.split != split) continue;
    auto reader =
        ShardReader::open(posix_file_system(), folder, info, manifest.dtype, manifest.vocab_size);
    EXPECT_TRUE(reader.ok()) << message_of(reader);
    std::vector<int64_t> tokens(static_cast<size_t>(info.tokens));
    EXPECT_TRUE(reader.value()->read(0, tokens).ok());
    stream.insert(stream.end(), tokens.begin(), tokens.end());
  }
  return stream;
}

class PrepareTest : public testing::Test {
 protected:
  PrepareOptions options() { return options_for(dir_ / "in", dir_ / "out"); }
  bool published() { return std::filesystem::exists(dir_ / "out/manifest.json"); }
  test_support::TempDir dir_;
};

TEST_F(PrepareTest, ASmallFileBecomesItsBytesAndAnEnd) {
  write_text(dir_ / "in/b.txt", "second");
  write_text(dir_ / "in/a.txt", "h\xc3\xa9!");
  PrepareOptions none_held_out = options();
  none_held_out.val_millionths = 0;
  auto report = prepare_bytes(none_held_out);
  ASSERT_TRUE(report.ok()) << message_of(report);
  EXPECT_FALSE(report->up_to_date);
  EXPECT_EQ(stream_of(dir_ / "out", report->manifest, "train"),
            (std::vector<int64_t>{'h', 0xc3, 0xa9, '!', 256, 's', 'e', 'c', 'o', 'n', 'd', 256}));
  EXPECT_EQ(report->manifest.tokens("val"), 0);
  EXPECT_EQ(report->manifest.recipe.documents, 2);
  EXPECT_EQ(report->manifest.recipe.input_bytes, 10);
  auto read = read_manifest(posix_file_system(), dir_ / "out");
  ASSERT_TRUE(read.ok()) << message_of(read);
  EXPECT_EQ(read->hash, report->manifest.hash);
  EXPECT_EQ(read->recipe, report->manifest.recipe);
  EXPECT_EQ(read->vocab_size, 257);
  EXPECT_EQ(read->dtype, "u16");
}

// A changed hash means that every run on old data loses its identity: needs a new format version.
TEST_F(PrepareTest, ManifestHashIsGolden) {
  write_text(dir_ / "in/a.txt", some_text(1, 3000));
  write_text(dir_ / "in/b.txt", "To be, or not to be\n");
  auto report = prepare_bytes(options());
  ASSERT_TRUE(report.ok()) << message_of(report);
  EXPECT_EQ(report->manifest.hash, "b76f9338147fc7ab");
}

TEST_F(PrepareTest, TheSameTextElsewhereGivesTheSameFolder) {
  const std::string contents = some_text(1, 3000);
  write_text(dir_ / "in/a.txt", contents);
  write_text(dir_ / "elsewhere/x.txt", contents);
  auto one = prepare_bytes(options());
  auto two = prepare_bytes(options_for(dir_ / "elsewhere/x.txt", dir_ / "out2"));
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(contents_of(dir_ / "out/manifest.json"), contents_of(dir_ / "out2/manifest.json"));
  EXPECT_EQ(contents_of(dir_ / "out/train_00000.tokens"),
            contents_of(dir_ / "out2/train_00000.tokens"));
}

TEST_F(PrepareTest, SplitsAreDisjointCoverTheInputAndMarkEveryBreak) {
  const std::string contents = some_text(5, 30000);  // about 65 segments
  write_text(dir_ / "in/a.txt", contents);
  PrepareOptions fifth = options();
  fifth.val_millionths = 200'000;
  auto report = prepare_bytes(fifth);
  ASSERT_TRUE(report.ok());
  const auto train = stream_of(dir_ / "out", report->manifest, "train");
  const auto val = stream_of(dir_ / "out", report->manifest, "val");
  EXPECT_GT(val.size(), train.size() / 20);
  EXPECT_LT(val.size(), train.size());
  // Walk the text: each run must follow in one of the two streams, and end with the mark.
  size_t at = 0, next[2] = {0, 0};
  const std::vector<int64_t>* streams[2] = {&train, &val};
  int runs = 0;
  while (at < contents.size()) {
    size_t best = 0;
    int from = -1;
    for (int s = 0; s < 2; ++s) {
      size_t length = 0;
      while (next[s] + length < streams[s]->size() && at + length < contents.size() &&
             (*streams[s])[next[s] + length] == static_cast<unsigned char>(contents[at + length]))
        ++length;
      if (length > best) best = length, from = s;
    }
    ASSERT_GE(from, 0) << "byte " << at << " is in neither split";
    at += best;
    next[from] += best;
    ASSERT_EQ((*streams[from])[next[from]++], 256) << "before byte " << at;
    ++runs;
  }
  EXPECT_EQ(next[0], train.size());
  EXPECT_EQ(next[1], val.size());
  EXPECT_GT(runs, 5);
}

TEST_F(PrepareTest, MoreInputMovesNothingBetweenTheSplits) {
  write_text(dir_ / "in/m.txt", some_text(5, 30000));
  auto before = prepare_bytes(options());
  ASSERT_TRUE(before.ok());
  const auto val = stream_of(dir_ / "out", before->manifest, "val");
  ASSERT_GT(val.size(), 0u);
  write_text(dir_ / "in/a.txt", some_text(6, 9000));
  write_text(dir_ / "in/z.txt", some_text(7, 9000));
  PrepareOptions again = options();
  again.force = true;
  auto after = prepare_bytes(again);
  ASSERT_TRUE(after.ok());
  const auto more = stream_of(dir_ / "out", after->manifest, "val");
  EXPECT_NE(std::search(more.begin(), more.end(), val.begin(), val.end()), more.end());
}

TEST_F(PrepareTest, ShardsAreCutExactlyAndReadAsOneStream) {
  write_text(dir_ / "in/a.txt", some_text(1, 3000));
  auto whole = prepare_bytes(options());
  ASSERT_TRUE(whole.ok());
  PrepareOptions small = options_for(dir_ / "in", dir_ / "small");
  small.shard_tokens = 10007;
  auto cut = prepare_bytes(small);
  ASSERT_TRUE(cut.ok());
  for (const std::string split : {"train", "val"}) {
    EXPECT_EQ(stream_of(dir_ / "out", whole->manifest, split),
              stream_of(dir_ / "small", cut->manifest, split));
  }
  EXPECT_EQ(cut->manifest.shards[0].tokens, 10007);
  EXPECT_EQ(cut->manifest.shards[1].file, "train_00001.tokens");
  EXPECT_NE(cut->manifest.hash, whole->manifest.hash);
}

TEST_F(PrepareTest, KeepsWhatTheSameInputMade) {
  write_text(dir_ / "in/a.txt", some_text(1, 3000));
  auto first = prepare_bytes(options());
  ASSERT_TRUE(first.ok());
  FaultyFileSystem disk(posix_file_system());
  auto second = prepare(disk, ByteTokenizer(), options());
  ASSERT_TRUE(second.ok()) << message_of(second);
  EXPECT_TRUE(second->up_to_date);
  EXPECT_EQ(second->manifest.hash, first->manifest.hash);
  EXPECT_EQ(disk.calls(Op::kWrite) + disk.calls(Op::kCreate) + disk.calls(Op::kRemove), 0);
}

TEST_F(PrepareTest, RefusesWhatSomethingElseMadeUnlessForced) {
  const std::string contents = some_text(1, 3000);
  write_text(dir_ / "in/a.txt", contents);
  ASSERT_TRUE(prepare_bytes(options()).ok());
  const std::string manifest = contents_of(dir_ / "out/manifest.json");
  const auto refusal = [&](const PrepareOptions& changed) {
    const auto report = prepare_bytes(changed);
    EXPECT_FALSE(report.ok());
    EXPECT_TRUE(report.ok() || report.error().code == Code::kConfig);
    EXPECT_EQ(contents_of(dir_ / "out/manifest.json"), manifest);
    return message_of(report);
  };
  PrepareOptions changed = options();
  changed.val_millionths = 100'000;
  changed.shard_tokens = 1000;
  EXPECT_EQ(refusal(changed),
            (dir_ / "out").string() +
                " exists and was prepared differently: validation fraction 0.050000, not 0.100000; "
                "shard tokens 536870912, not 1000. Give another --out, or replace it with --force");
  std::string other = contents;
  other[100] = 'X';
  write_text(dir_ / "in/a.txt", other);
  EXPECT_THAT(refusal(options()), HasSubstr("input XXH3"));
  write_text(dir_ / "in/b.txt", "more");
  EXPECT_THAT(refusal(options()), HasSubstr("documents 1, not 2; input bytes"));
  PrepareOptions forced = options();
  forced.force = true;
  ASSERT_TRUE(prepare_bytes(forced).ok());
  EXPECT_TRUE(prepare_bytes(options())->up_to_date);
}

TEST_F(PrepareTest, ADamagedFolderIsNotUpToDate) {
  write_text(dir_ / "in/a.txt", some_text(1, 3000));
  ASSERT_TRUE(prepare_bytes(options()).ok());
  std::filesystem::resize_file(dir_ / "out/train_00000.tokens", 1000);
  auto report = prepare_bytes(options());
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Code::kCorrupt);
  EXPECT_THAT(report.error().message, AllOf(HasSubstr("train_00000.tokens: 1000 bytes long"),
                                            EndsWith("--force prepares this folder again")));
}

TEST_F(PrepareTest, SaysWhatIsWrongWithTheInput) {
  const auto failure = [&](Code code) {
    const auto report = prepare_bytes(options());
    EXPECT_FALSE(report.ok());
    EXPECT_TRUE(report.ok() || report.error().code == code);
    EXPECT_FALSE(published());
    return message_of(report);
  };
  EXPECT_EQ(failure(Code::kNotFound), (dir_ / "in").string() + ": no such file or folder");
  write_text(dir_ / "in/a.txt", "fine");
  write_text(dir_ / "in/b.txt", "caf\xe9 au lait");
  EXPECT_EQ(failure(Code::kConfig),
            (dir_ / "in/b.txt").string() +
                ": not UTF-8 at byte offset 3 (byte 0xe9); convert it first, "
                "for example: iconv -f latin1 -t utf-8");
  write_text(dir_ / "in/b.txt", "");
  EXPECT_EQ(failure(Code::kConfig), (dir_ / "in/b.txt").string() + ": the file is empty");
}

TEST_F(PrepareTest, RefusesOptionsThatCannotWork) {
  write_text(dir_ / "in/a.txt", "fine");
  const auto refusal = [&](auto change) {
    PrepareOptions changed = options();
    change(changed);
    const auto report = prepare_bytes(changed);
    EXPECT_TRUE(!report.ok() && report.error().code == Code::kConfig);
    return message_of(report);
  };
  EXPECT_THAT(refusal([](auto& o) { o.inputs.clear(); }), HasSubstr("no input"));
  EXPECT_THAT(refusal([](auto& o) { o.val_millionths = 500'001; }), HasSubstr("0.500001"));
  EXPECT_THAT(refusal([](auto& o) { o.shard_tokens = 0; }), HasSubstr("shard tokens 0"));
  EXPECT_THAT(refusal([&](auto& o) { o.out = dir_ / "in/out"; }),
              HasSubstr("lies inside the input"));
  EXPECT_THAT(refusal([&](auto& o) { o.out = dir_ / "in"; }), HasSubstr("lies inside the input"));
  EXPECT_THAT(refusal([&](auto& o) { o.out = dir_ / "x/../in/./out"; }),
              HasSubstr("lies inside the input"));
  EXPECT_THAT(refusal([](auto& o) {
                o.inputs = {"."};
                o.out = "never_made";
              }),
              HasSubstr("lies inside the input"));
}

TEST_F(PrepareTest, AllTextHeldOutIsAnError) {
  std::string contents;
  for (int i = 0; contents.empty() || !in_validation_split(contents, 50'000); ++i)
    contents = text("text ", i);
  write_text(dir_ / "in/a.txt", contents);
  const auto report = prepare_bytes(options());
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Code::kConfig);
  EXPECT_THAT(report.error().message, HasSubstr("fell into the validation split"));
  EXPECT_FALSE(published());
}

TEST_F(PrepareTest, AChangedManifestIsNoticed) {
  write_text(dir_ / "in/a.txt", some_text(1, 300));
  ASSERT_TRUE(prepare_bytes(options()).ok());
  const std::filesystem::path path = dir_ / "out/manifest.json";
  const std::string contents = contents_of(path);
  const auto failure = [&](const std::string& changed) {
    write_text(path, changed);
    const auto manifest = read_manifest(posix_file_system(), dir_ / "out");
    EXPECT_TRUE(!manifest.ok() && manifest.error().code == Code::kCorrupt);
    return message_of(manifest);
  };
  std::string changed = contents;
  changed.replace(changed.find("50000"), 5, "60000");
  EXPECT_THAT(failure(changed),
              AllOf(HasSubstr(path.string()), HasSubstr("changed after prepare")));
  changed = contents;
  changed.replace(changed.find("\"format_version\": 4"), 19, "\"format_version\": 5");
  EXPECT_THAT(failure(changed), HasSubstr("its format version is 5; this program reads 1 to 4"));
  EXPECT_THAT(failure(contents.substr(0, 200)), HasSubstr("not a token manifest (200 bytes"));
  EXPECT_THAT(failure("{\"format\": \"lockstep-tokens\"}"), HasSubstr("format_version"));
  EXPECT_THAT(failure("[]"), HasSubstr("not a token manifest"));
}

// The oracle: no manifest, or a whole folder; and the next call makes the same folder.
TEST_F(PrepareTest, KilledAtAnyDiskOperationItStartsOverToTheSameFolder) {
  write_text(dir_ / "in/a.txt", some_text(1, 1500));
  write_text(dir_ / "in/b.txt", some_text(2, 1500));
  PrepareOptions small = options();
  small.shard_tokens = 100'000;
  FaultyFileSystem disk(posix_file_system());
  auto undisturbed = prepare(disk, ByteTokenizer(), small);
  ASSERT_TRUE(undisturbed.ok());
  const int64_t calls = disk.calls(Op::kAny);
  const int64_t writes = disk.calls(Op::kWrite);
  ASSERT_GT(calls, 15);
  const auto check = [&](Op op, int64_t call, Fault fault) {
    std::filesystem::remove_all(small.out);
    EXPECT_EXIT(
        {
          FaultyFileSystem dying(posix_file_system(), {.op = op, .at_call = call, .fault = fault});
          (void)prepare(dying, ByteTokenizer(), small).ok();
          std::_Exit(0);
        },
        testing::KilledBySignal(SIGKILL), "");
    if (published()) {
      EXPECT_TRUE(prepare_bytes(small)->up_to_date) << "call " << call;
    }
    auto again = prepare_bytes(small);
    ASSERT_TRUE(again.ok()) << "call " << call << ": " << message_of(again);
    EXPECT_EQ(again->manifest.hash, undisturbed->manifest.hash) << "call " << call;
  };
  for (int64_t call = 1; call <= calls; ++call) check(Op::kAny, call, Fault::kKill);
  for (int64_t call = 1; call <= writes; ++call) check(Op::kWrite, call, Fault::kShortWriteKill);
}

TEST_F(PrepareTest, AForcedReplacementNeverLeavesAManifestOverMissingShards) {
  write_text(dir_ / "in/a.txt", some_text(1, 1500));
  PrepareOptions forced = options();
  forced.force = true;
  FaultyFileSystem disk(posix_file_system());
  ASSERT_TRUE(prepare_bytes(options()).ok());
  ASSERT_TRUE(prepare(disk, ByteTokenizer(), forced).ok());
  const int64_t calls = disk.calls(Op::kAny);
  for (int64_t call = 1; call <= calls; ++call) {
    disk.set_plan({.op = Op::kAny, .at_call = call, .fault = Fault::kIoError, .and_after = true});
    const auto failed = prepare(disk, ByteTokenizer(), forced);
    EXPECT_FALSE(failed.ok()) << "call " << call;
    if (published()) {
      EXPECT_TRUE(prepare_bytes(options())->up_to_date) << "call " << call;
    }
    ASSERT_TRUE(prepare_bytes(options()).ok()) << "call " << call;
  }
}

TEST_F(PrepareTest, AFullDiskIsReportedAndPublishesNothing) {
  write_text(dir_ / "in/a.txt", some_text(1, 3000));
  FaultyFileSystem disk(posix_file_system(), {.byte_limit = 100'000});
  const auto report = prepare(disk, ByteTokenizer(), options());
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().code, Code::kNoSpace);
  EXPECT_FALSE(published());
}

}  // namespace
}  // namespace lockstep::data
