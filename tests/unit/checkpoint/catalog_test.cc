#include "checkpoint/record/catalog.h"

#include <condition_variable>
#include <mutex>

#include "checkpoint/record/suspects.h"
#include "checkpoint/save/retention.h"
#include "tests/unit/checkpoint/checkpoint_test.h"

namespace lockstep::checkpoint {
namespace {

// Four checkpoints of one rank, and what calls to their disk there were since.
class CatalogOfFour : public testing::Test {
 protected:
  void SetUp() override {
    World world(disk(), keep_all(), odd_model(), 1);
    for (int64_t step = 1; step <= 4; ++step) ASSERT_TRUE(world.save(step)[0].committed);
  }
  EngineOptions keep_all() const {
    EngineOptions options = options_in(folder_);
    options.retention.keep_latest_k = 0;
    return options;
  }
  std::filesystem::path of(int64_t step) const {
    return folder_ / text("step_0000000", step, ".g1-7f2a91");
  }
  int64_t calls(Op op) {
    const int64_t n = counted_.calls(op);
    counted_.set_plan({});
    return n;
  }
  static std::vector<int64_t> committed(const Result<std::vector<CatalogEntry>>& entries) {
    std::vector<int64_t> steps;
    for (const CatalogEntry& entry : entries.value())
      if (entry.committed) steps.push_back(entry.step);
    return steps;
  }

  const TempDir dir_;
  const std::filesystem::path folder_ = dir_ / "c";
  FaultyFileSystem counted_{disk()};
};

using testing::ElementsAre;

TEST_F(CatalogOfFour, WhatIsKnownIsNotReadAgainAndIsForgottenByName) {
  Catalog catalog(counted_, folder_);
  EXPECT_THAT(committed(catalog.look()), ElementsAre(4, 3, 2, 1));
  EXPECT_EQ(calls(Op::kOpen), 4) << "the manifests, and no other file";
  EXPECT_THAT(committed(catalog.look()), ElementsAre(4, 3, 2, 1));
  EXPECT_EQ(calls(Op::kAny), 1) << "a listing";

  ASSERT_TRUE(remove_checkpoint(disk(), of(2)).ok());
  EXPECT_THAT(committed(catalog.look()), ElementsAre(4, 3, 1));
  std::filesystem::copy(of(1), of(2));  // no save makes a name twice; a hand may
  const auto entries = catalog.look();
  EXPECT_THAT(committed(entries), ElementsAre(4, 3, 1));
  EXPECT_EQ(
      entries.value()[2].problem,
      "the name of this checkpoint does not match its manifest, which is of step 1, generation 1");
}

// Opens files when as many as are read at once are asked for, and so at once.
class OpensTogether final : public FileSystem {
 public:
  explicit OpensTogether(FileSystem& behind) : behind_(behind) {}
  Result<std::unique_ptr<File>> open(const Path& path) override {
    std::unique_lock lock(mutex_);
    const int64_t needed = (asked_++ / kManifestReaders + 1) * kManifestReaders;
    changed_.notify_all();
    together_ &= changed_.wait_for(lock, std::chrono::minutes(1), [&] { return asked_ >= needed; });
    lock.unlock();
    return behind_.open(path);
  }
  Result<std::unique_ptr<File>> create(const Path& path) override { return behind_.create(path); }
  Result<void> make_directories(const Path& p) override { return behind_.make_directories(p); }
  Result<void> rename(const Path& a, const Path& b) override { return behind_.rename(a, b); }
  Result<void> remove(const Path& path) override { return behind_.remove(path); }
  Result<std::vector<std::string>> list(const Path& path) override { return behind_.list(path); }
  Result<void> sync_directory(const Path& path) override { return behind_.sync_directory(path); }
  bool exists(const Path& path) override { return behind_.exists(path); }
  bool is_link(const Path& path) override { return behind_.is_link(path); }
  Result<int64_t> free_bytes(const Path& path) override { return behind_.free_bytes(path); }
  bool together() const { return together_; }

 private:
  FileSystem& behind_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t asked_ = 0;
  bool together_ = true;
};

// A hundred manifests on a file system that takes a millisecond a call are not a hundred waits.
TEST_F(CatalogOfFour, AListingReadsManifestsAtOnce) {
  for (int64_t step = 5; step <= 2 * kManifestReaders; ++step)
    std::filesystem::create_directories(folder_ / text("step_", step, ".g1-7f2a91"));
  OpensTogether files(disk());
  const auto entries = list_checkpoints(files, folder_).value();
  EXPECT_EQ(entries.size(), size_t{2 * kManifestReaders});
  EXPECT_TRUE(files.together());
}

TEST_F(CatalogOfFour, WhatWasNotCommittedIsReadEachTime) {
  const auto manifest = read_file(disk(), of(3) / kManifestName).value();
  ASSERT_TRUE(disk().remove(of(3) / kManifestName).ok());
  Catalog catalog(disk(), folder_);
  EXPECT_THAT(committed(catalog.look()), ElementsAre(4, 2, 1));
  ASSERT_TRUE(publish_file(disk(), of(3) / kManifestName, manifest).ok());
  EXPECT_THAT(committed(catalog.look()), ElementsAre(4, 3, 2, 1));
}

TEST_F(CatalogOfFour, WhoPublishesAManifestNeedNotReadIt) {
  Catalog catalog(counted_, folder_);
  for (int64_t step = 1; step <= 4; ++step)
    catalog.add(of(step), read_manifest(disk(), of(step)).value());
  const auto added = catalog.look().value();
  EXPECT_EQ(calls(Op::kAny), 1);
  const auto read = list_checkpoints(disk(), folder_).value();
  ASSERT_EQ(added.size(), read.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(added[i].directory, read[i].directory);
    EXPECT_TRUE(added[i].committed && added[i].has_manifest);
    EXPECT_EQ(added[i].size_bytes, read[i].size_bytes);
    EXPECT_EQ(added[i].created_s, read[i].created_s);
  }
}

TEST_F(CatalogOfFour, PruningLooksByOneListing) {
  Catalog catalog(counted_, folder_);
  EXPECT_EQ(prune(disk(), catalog, {.keep_latest_k = 2}, 1).value().size(), 2u);
  EXPECT_THAT(committed(catalog.look()), ElementsAre(4, 3));
  calls(Op::kAny);
  EXPECT_TRUE(prune(disk(), catalog, {.keep_latest_k = 2}, 1).value().empty());
  EXPECT_EQ(calls(Op::kAny), 1) << "nothing to remove: a listing";
}

TEST_F(CatalogOfFour, FromTheNewestOnOnlyOneManifestIsReadWhenItIsValid) {
  EXPECT_THAT(committed(list_from_newest(counted_, folder_)), ElementsAre(4, 3, 2, 1));
  EXPECT_EQ(calls(Op::kOpen), 1);
  std::filesystem::resize_file(of(4) / kManifestName, 7);
  const auto entries = list_from_newest(counted_, folder_);
  EXPECT_EQ(calls(Op::kOpen), 2);
  EXPECT_THAT(committed(entries), ElementsAre(3, 2, 1));
  EXPECT_TRUE(entries.value()[0].has_manifest);
  EXPECT_THAT(entries.value()[0].problem, HasSubstr("manifest.json"));
}

TEST_F(CatalogOfFour, SuspectOnesStayAndAreNobodysNewest) {
  Catalog catalog(disk(), folder_);
  ASSERT_EQ(catalog.look().value().size(), 4u);
  ASSERT_TRUE(add_suspects(disk(), folder_, {2, 1, 6, {3}, {"gpu003"}}).ok());
  const auto by_names = list_from_newest(disk(), folder_).value();
  const auto whole = list_checkpoints(disk(), folder_).value(), known = catalog.look().value();
  for (const auto& entries : {by_names, whole, known}) {
    ASSERT_EQ(entries.size(), 4u);
    for (const CatalogEntry& entry : entries) {
      EXPECT_TRUE(entry.committed);
      EXPECT_EQ(entry.suspect, entry.step > 2) << entry.step;
      EXPECT_EQ(entry.usable(), entry.step <= 2) << entry.step;
    }
  }
  EXPECT_EQ(find_checkpoint(disk(), folder_).value(), of(2));
  EXPECT_EQ(find_newest_saved(disk(), folder_).value(), of(4)) << "to look at";
}

TEST_F(CatalogOfFour, WhatALaterGenerationSavesIsNotSuspect) {
  ASSERT_TRUE(add_suspects(disk(), folder_, {1, 0, 6, {3}, {"gpu003"}}).ok());
  EXPECT_EQ(find_checkpoint(disk(), folder_).value(), of(4)) << "they are of generation 1";
  ASSERT_TRUE(add_suspects(disk(), folder_, {3, 1, 9, {0, 2}, {"gpu001", "gpu002"}}).ok());
  EXPECT_EQ(find_checkpoint(disk(), folder_).value(), of(3));
  const auto all = read_suspects(disk(), folder_).value();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[1].hosts, (std::vector<std::string>{"gpu001", "gpu002"}));
  EXPECT_EQ(all[1].ranks, (std::vector<int>{0, 2}));
  EXPECT_TRUE(is_suspect(all, 4, 1) && !is_suspect(all, 4, 2) && !is_suspect(all, 3, 1));
}

TEST_F(CatalogOfFour, AListOfSuspectsThatNobodyCanReadIsNamed) {
  for (const char* contents : {"", "{]", "[]", R"({"suspect": 3})", R"({"suspect": [{"a": 1}]})"}) {
    ASSERT_TRUE(publish_file(disk(), folder_ / kSuspectsName, contents).ok());
    for (const Error& error :
         {list_checkpoints(disk(), folder_).error(), find_checkpoint(disk(), folder_).error(),
          add_suspects(disk(), folder_, {}).error()}) {
      EXPECT_EQ(error.code, Code::kConfig) << contents;
      EXPECT_THAT(error.message, HasSubstr("suspect.json: cannot parse this file"));
    }
  }
}

TEST_F(CatalogOfFour, FromTheNewestOnAnAttemptIsNoCheckpoint) {
  ASSERT_TRUE(disk().remove(of(2) / kManifestName).ok());
  const auto entries = list_from_newest(disk(), folder_).value();
  EXPECT_THAT(committed(entries), ElementsAre(4, 3, 1));
  EXPECT_FALSE(entries[2].has_manifest);
}

// A look that the operating system refuses makes no attempt of a checkpoint: an attempt is removed.
TEST_F(CatalogOfFour, ARefusedLookAtAnOlderOneIsNoMissingManifest) {
  class Blind final : public FileSystem {  // every look is refused, and so is every open but one
   public:
    Result<std::unique_ptr<File>> create(const Path& p) override { return disk().create(p); }
    Result<std::unique_ptr<File>> open(const Path& p) override {
      if (++opens_ > 1) return Error{Code::kIo, text("open ", p.string(), ": refused")};
      return disk().open(p);
    }
    Result<void> make_directories(const Path& p) override { return disk().make_directories(p); }
    Result<void> rename(const Path& a, const Path& b) override { return disk().rename(a, b); }
    Result<void> remove(const Path& p) override { return disk().remove(p); }
    Result<std::vector<std::string>> list(const Path& p) override { return disk().list(p); }
    Result<void> sync_directory(const Path& p) override { return disk().sync_directory(p); }
    bool exists(const Path&) override { return false; }
    bool is_link(const Path& p) override { return disk().is_link(p); }
    Result<int64_t> free_bytes(const Path& p) override { return disk().free_bytes(p); }

   private:
    int opens_ = 0;
  } blind;
  const auto entries = list_from_newest(blind, folder_).value();
  EXPECT_TRUE(entries[0].committed);
  for (size_t i = 1; i < entries.size(); ++i) {
    EXPECT_TRUE(entries[i].has_manifest && entries[i].unread) << i;
    EXPECT_FALSE(entries[i].committed) << i;
  }
  EXPECT_TRUE(orphans(entries, 9).empty());
}

}  // namespace
}  // namespace lockstep::checkpoint
