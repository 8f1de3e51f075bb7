#include "checkpoint/save/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.h"
#include "tests/support/temp_dir.h"

namespace lockstep::checkpoint {
namespace {

// One line an entry, newest first: "step.generation", then E ephemeral, D damaged, A an attempt
// without a manifest, L one that lost it, S suspect, @minute created, =loss of a validation.
CatalogEntry entry_of(const std::string& line) {
  const auto words = split(line, ' ');
  const auto dot = words[0].find('.');
  CatalogEntry entry{words[0],
                     std::stoll(words[0].substr(0, dot)),
                     std::stoll(words[0].substr(dot + 1)),
                     true,
                     true,
                     "",
                     0,
                     false,
                     {}};
  for (const std::string& word : words) {
    if (word == "E") entry.ephemeral = true;
    if (word == "D" || word == "A" || word == "L") entry.committed = false;
    if (word == "A" || word == "L") entry.has_manifest = false;
    if (word == "L") entry.lost_manifest = true;
    if (word == "S") entry.suspect = true;
    if (word[0] == '@') entry.created_s = 1'700'000'000 + 60 * std::stoll(word.substr(1));
    if (word[0] == '=') entry.validation_loss = std::stod(word.substr(1));
  }
  return entry;
}

struct Case {
  const char* what;
  RetentionPolicy policy;
  int64_t generation;
  std::vector<std::string> entries;
  std::vector<std::filesystem::path> go;
};

std::vector<CatalogEntry> catalog_of(const std::vector<std::string>& lines) {
  std::vector<CatalogEntry> entries;
  for (const std::string& line : lines) entries.push_back(entry_of(line));
  return entries;
}

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    auto entries = catalog_of(c.entries);
    const auto go = superfluous(entries, c.policy, c.generation);
    EXPECT_EQ(go, c.go) << c.what;
    std::erase_if(entries, [&](const CatalogEntry& e) {
      return std::find(go.begin(), go.end(), e.directory) != go.end();
    });
    EXPECT_TRUE(superfluous(entries, c.policy, c.generation).empty()) << c.what << ": once more";
    const auto committed = [](const CatalogEntry& e) { return e.committed; };
    const auto all = catalog_of(c.entries);
    EXPECT_GE(std::count_if(entries.begin(), entries.end(), committed),
              std::min<int64_t>(2, std::count_if(all.begin(), all.end(), committed)))
        << c.what << ": less than two are left";
  }
}

TEST(Retention, KeepsTheLastKOfTheNewestLine) {
  check({
      {"two", {2}, 1, {"50.1 A", "40.1", "30.1 D", "20.1", "15.1 A", "10.1"}, {"15.1", "10.1"}},
      {"all", {0}, 1, {"40.1", "30.1", "20.1", "10.1"}, {}},
      {"enough", {3}, 1, {"40.1", "30.1", "20.1"}, {}},
      {"a fall back", {2}, 4, {"300.3", "260.4", "250.4", "200.3"}, {"300.3", "200.3"}},
      {"later", {2}, 3, {"300.3", "250.4 A", "240.4", "200.3", "100.3"}, {"200.3", "100.3"}},
      {"of another", {2}, 3, {"300.4", "290.4", "280.4", "200.3"}, {"200.3"}},
      {"nothing", {2}, 1, {}, {}},
  });
}

TEST(Retention, MultiplesOfKeepEveryStayForEver) {
  check({
      {"every 20", {2, 20}, 1, {"60.1", "50.1", "40.1", "30.1", "20.1", "10.1"}, {"30.1", "10.1"}},
      {"damage is evidence", {2, 20}, 1, {"60.1", "50.1", "40.1 D", "30.1 D"}, {"30.1"}},
      {"an attempt is not", {2, 20}, 1, {"60.1", "50.1", "40.1 A"}, {"40.1"}},
      {"passed again", {2, 20}, 2, {"60.1", "40.2", "30.2", "20.2", "20.1"}, {"60.1", "20.1"}},
      {"ephemeral", {2, 20}, 1, {"60.1", "50.1", "40.1 E"}, {"40.1"}},
  });
}

TEST(Retention, TheNewestOneThatIsAuditedWholeStays) {
  const auto audited = [](int64_t step) {
    RetentionPolicy policy{2};
    policy.audited_step = step;
    return policy;
  };
  check({
      {"behind the last two",
       audited(20),
       1,
       {"50.1", "40.1", "30.1", "20.1", "10.1"},
       {"30.1", "10.1"}},
      {"between two", audited(34), 1, {"50.1", "40.1", "30.1", "20.1"}, {"20.1"}},
      {"among the last two", audited(45), 1, {"50.1", "40.1", "30.1"}, {"30.1"}},
      {"no suspect one", audited(45), 2, {"60.2", "50.2", "40.1 S", "30.1"}, {"40.1"}},
      {"no damaged one", audited(35), 1, {"50.1", "40.1", "30.1 D", "20.1"}, {"30.1"}},
      {"ephemeral", audited(30), 1, {"50.1", "40.1", "30.1 E", "20.1"}, {"20.1"}},
  });
}

TEST(Retention, TheBestOneStaysWhereThatIsAsked) {
  RetentionPolicy best{2};
  best.keep_best = true;
  check({
      {"an old one",
       best,
       1,
       {"50.1 =3", "40.1 =2", "30.1", "20.1 =1", "10.1 =4"},
       {"30.1", "10.1"}},
      {"not asked", {2}, 1, {"50.1 =3", "40.1 =2", "30.1", "20.1 =1"}, {"30.1", "20.1"}},
      {"the first of two", best, 1, {"50.1", "40.1", "30.1 =2", "20.1 =2"}, {"30.1"}},
      {"never validated", best, 1, {"50.1", "40.1", "30.1"}, {"30.1"}},
      {"among the last two", best, 1, {"50.1 =1", "40.1", "30.1 =2"}, {"30.1"}},
      {"no suspect one", best, 1, {"50.1 =3", "40.1", "30.1 S =1", "20.1 =2"}, {"30.1"}},
      {"no damaged one", best, 1, {"50.1 =3", "40.1", "30.1 D =1", "20.1 =2"}, {"30.1"}},
      {"passed again", best, 2, {"60.1 =1", "50.2", "40.2", "30.2 =3"}, {"60.1"}},
  });
}

TEST(Retention, TheBestOneIsFound) {
  const auto best = [](const std::vector<std::string>& lines) {
    const auto entries = catalog_of(lines);
    const CatalogEntry* const found = best_of(entries);
    return found == nullptr ? "" : found->directory.string();
  };
  EXPECT_EQ(best({"50.1 =3", "40.1 =2", "30.1", "20.1 =2.5"}), "40.1");
  EXPECT_EQ(best({"60.1 =1", "50.2 =3", "40.2 =4"}), "50.2") << "step 60 is to be done again";
  EXPECT_EQ(best({"50.1", "40.1 D =1", "30.1 S =1"}), "");
  EXPECT_EQ(best({}), "");
}

// Nobody resumes from a suspect one: it must not take the place of one that can be used.
TEST(Retention, SuspectOnesTakeNoPlace) {
  check({
      {"newest", {2}, 1, {"50.1 S", "40.1 S", "30.1", "20.1", "10.1"}, {"10.1"}},
      {"by hand", {1}, 1, {"50.1 S", "40.1 S", "30.1"}, {}},
      {"of the line before", {2}, 2, {"45.2", "60.1 S", "50.1 S", "40.1", "30.1"}, {"30.1"}},
      {"ephemeral", {2}, 1, {"50.1 S", "45.1 E", "40.1", "30.1"}, {}},
  });
}

TEST(Retention, OneForEachSoManyMinutesStays) {
  const RetentionPolicy hourly{2, 0, 60};
  check({
      {"an hour",
       hourly,
       1,
       {"60.1 @150", "50.1 @120", "40.1 @90", "30.1 @60", "20.1 @30", "10.1 @0"},
       {"40.1", "20.1"}},
      {"of the one kept before",
       hourly,
       1,
       {"60.1 @170", "50.1 @160", "40.1 @130", "30.1 @70", "20.1 @50", "10.1 @0"},
       {"20.1"}},
      {"the oldest there is", hourly, 1, {"60.1 @170", "50.1 @160", "40.1 @59"}, {}},
      {"a clock set back",
       hourly,
       1,
       {"60.1 @22", "50.1 @21", "40.1 @20", "30.1 @10", "20.1 @500"},
       {"40.1"}},
      {"unknown time",
       hourly,
       1,
       {"60.1 @22", "50.1 @21", "40.1 D", "30.1 @20", "20.1 @10"},
       {"30.1"}},
      {"and every 40",
       {2, 40, 60},
       1,
       {"60.1 @70", "50.1 @65", "40.1 @62", "30.1 @61", "20.1 @1"},
       {}},
      {"and every 40, in the hour",
       {2, 40, 60},
       1,
       {"60.1 @40", "50.1 @35", "40.1 @32", "30.1 @31", "20.1 @1"},
       {"30.1"}},
  });
}

TEST(Retention, OnlyTheNewestEphemeralStaysUntilTheNextCommit) {
  check({
      {"newest", {2}, 1, {"26.1 E", "24.1 E", "22.1 E", "20.1", "10.1"}, {"24.1", "22.1"}},
      {"a permanent one", {2}, 1, {"30.1", "26.1 E", "20.1", "10.1"}, {"26.1", "10.1"}},
      {"the others stay", {2}, 1, {"31.1 E", "30.1", "20.1"}, {}},
      {"all", {0}, 1, {"31.1 E", "30.1", "26.1 E", "20.1", "10.1"}, {"26.1"}},
      {"alone", {2}, 1, {"4.1 E"}, {}},
      {"never less than two", {2}, 1, {"6.1 E", "4.1 E", "2.1 E"}, {"2.1"}},
      {"not even", {2}, 1, {"10.1", "8.1 E", "6.1 E"}, {"6.1"}},
      {"of a later generation", {2}, 1, {"26.2 E", "24.2 E", "20.1", "10.1"}, {}},
      {"after a fall back", {2}, 2, {"26.1 E", "22.2 E", "20.1", "10.1"}, {"26.1"}},
  });
}

TEST(Retention, OrphansAreAttemptsOfEarlierGenerations) {
  const auto entries = catalog_of({"60.3 A", "50.2", "40.2 A", "30.1 D", "25.1 L", "20.1 A"});
  using testing::ElementsAre;
  EXPECT_THAT(orphans(entries, 3), ElementsAre("40.2", "20.1"));
  EXPECT_THAT(orphans(entries, 2), ElementsAre("20.1"));
  EXPECT_THAT(orphans(entries, 1), ElementsAre());
}

// A checkpoint of another run, linked into this one's folder to start from it, once got its commit
// record removed.
TEST(Retention, NothingIsRemovedThroughALink) {
  const lockstep::test_support::TempDir dir;
  FileSystem& files = posix_file_system();
  const auto theirs = dir / "theirs/step_00000010.g1-abc", ours = dir / "ours";
  std::filesystem::create_directories(theirs);
  std::filesystem::create_directories(ours / "step_00000020.g1-abc");
  for (const char* name : {"manifest.json", "rank_00000.h5"})
    ASSERT_TRUE(publish_file(files, theirs / name, "theirs").ok());
  const auto linked = ours / theirs.filename(), partly = ours / "step_00000020.g1-abc";
  std::filesystem::create_directory_symlink(theirs, linked);
  std::filesystem::create_symlink(theirs / "manifest.json", partly / "manifest.json");
  std::filesystem::create_directory_symlink(theirs, partly / "folder");

  ASSERT_TRUE(remove_checkpoint(files, linked).ok());
  ASSERT_TRUE(remove_checkpoint(files, partly).ok());
  EXPECT_TRUE(std::filesystem::is_empty(ours));
  for (const char* name : {"manifest.json", "rank_00000.h5"})
    EXPECT_EQ(read_file(files, theirs / name).value(), "theirs") << name;
  EXPECT_TRUE(remove_checkpoint(files, linked).ok()) << "missing is fine";
}

}  // namespace
}  // namespace lockstep::checkpoint
