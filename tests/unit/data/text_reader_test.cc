#include "data/prepare/text_reader.h"

#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(FindInvalidUtf8, AcceptsWhatUnicodeAccepts) {
  for (std::string_view good : {"", "plain ascii, more than eight bytes", "\xc2\x80", "\xdf\xbf",
                                "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80", "\xef\xbf\xbf",
                                "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "12345678\xc3\xa9"})
    EXPECT_FALSE(find_invalid_utf8(good).has_value()) << good;
  EXPECT_FALSE(find_invalid_utf8(std::string(3, '\0')).has_value());
}

TEST(FindInvalidUtf8, GivesTheOffsetOfTheFirstBadByte) {
  struct Case {
    std::string_view bytes;
    size_t offset;
  };
  for (const Case& c :
       {Case{"\x80", 0}, Case{"caf\xe9", 3}, Case{"12345678ab\xff", 10}, Case{"\xc0\xaf", 0},
        Case{"\xc1\xbf", 0}, Case{"\xe0\x9f\xbf", 0}, Case{"\xed\xa0\x80", 0},
        Case{"\xf0\x8f\xbf\xbf", 0}, Case{"\xf4\x90\x80\x80", 0}, Case{"\xf5\x80\x80\x80", 0},
        Case{"ab\xe2\x82", 2}, Case{"\xc3\xa9\xc3", 2}, Case{"\xe2\x82zz", 0}})
    EXPECT_EQ(find_invalid_utf8(c.bytes), std::optional(c.offset)) << c.bytes;
}

class SegmentReaderTest : public testing::Test {
 protected:
  std::vector<std::string> segments_of(const std::string& contents) {
    write_text(dir_ / "a.txt", contents);
    auto reader = SegmentReader::open(posix_file_system(),
                                      {dir_ / "a.txt", static_cast<int64_t>(contents.size())});
    EXPECT_TRUE(reader.ok()) << message_of(reader);
    std::vector<std::string> segments;
    while (true) {
      auto segment = reader->next();
      EXPECT_TRUE(segment.ok()) << message_of(segment);
      if (!segment.ok() || segment->empty()) return segments;
      segments.emplace_back(segment.value());
    }
  }
  test_support::TempDir dir_;
};

TEST_F(SegmentReaderTest, CutsAtTheLastLineEndThatFits) {
  const std::string contents = some_text(1, 20000);  // larger than the read buffer
  ASSERT_GT(contents.size(), size_t{2} << 20);
  const auto segments = segments_of(contents);
  std::string joined;
  for (size_t i = 0; i < segments.size(); ++i) {
    EXPECT_LE(segments[i].size(), static_cast<size_t>(kSegmentBytes));
    EXPECT_EQ(segments[i].back(), '\n');
    if (i + 1 < segments.size()) {  // the next line would not have fitted
      EXPECT_GT(segments[i].size() + segments[i + 1].find('\n') + 1,
                static_cast<size_t>(kSegmentBytes));
    }
    joined += segments[i];
  }
  EXPECT_EQ(joined, contents);
}

TEST_F(SegmentReaderTest, WhiteSpaceStaysWithWhatIsBeforeIt) {
  const std::string line(1000, 'x');
  std::string contents;
  while (contents.size() < 3u * kSegmentBytes)
    contents += line + (contents.size() % 3 == 0 ? "\n" : "\n\n    \t");
  for (const std::string& segment : segments_of(contents)) EXPECT_EQ(segment.front(), 'x');
  contents.clear();
  while (contents.size() < 3u * kSegmentBytes) contents += line + " ";
  contents += line;
  for (const std::string& segment : segments_of(contents)) EXPECT_EQ(segment.back(), 'x');
}

TEST_F(SegmentReaderTest, TheEndOfASegmentIsItsLastLine) {
  EXPECT_EQ(end_of_segment("a\nbc\n"), "bc\n");
  EXPECT_EQ(end_of_segment("a\nbc"), "bc");
  EXPECT_EQ(end_of_segment("bc\n\n"), "bc\n\n");
  EXPECT_EQ(end_of_segment("\n"), "\n");
  EXPECT_EQ(end_of_segment(""), "");
  EXPECT_EQ(end_of_segment(std::string(300, 'x')).size(), 256u);
}

TEST_F(SegmentReaderTest, AFileThatFitsIsOneSegment) {
  EXPECT_EQ(segments_of("no line end").size(), 1u);
  EXPECT_EQ(segments_of(std::string(kSegmentBytes, 'x')).size(), 1u);
  EXPECT_EQ(segments_of(std::string(kSegmentBytes + 1, 'x')).size(), 2u);
}

TEST_F(SegmentReaderTest, ALineLongerThanASegmentIsCutBetweenCharacters) {
  std::string contents = "x";
  while (contents.size() < 3u * kSegmentBytes) contents += "\xe2\x82\xac";  // the euro sign
  std::string joined;
  for (const std::string& segment : segments_of(contents)) joined += segment;
  EXPECT_EQ(joined, contents);
}

TEST_F(SegmentReaderTest, MoreTextAtTheEndMovesNoEarlierCut) {
  const std::string contents = some_text(2, 5000);
  const auto before = segments_of(contents);
  const auto after = segments_of(contents + some_text(3, 5000));
  ASSERT_GT(before.size(), 3u);
  for (size_t i = 0; i + 1 < before.size(); ++i) EXPECT_EQ(before[i], after[i]);
}

TEST_F(SegmentReaderTest, NamesFileAndOffsetOfABadByteInALaterSegment) {
  std::string contents = some_text(4, 3000);
  contents[200000] = '\xe9';
  write_text(dir_ / "a.txt", contents);
  auto reader = SegmentReader::open(posix_file_system(),
                                    {dir_ / "a.txt", static_cast<int64_t>(contents.size())});
  ASSERT_TRUE(reader.ok());
  auto segment = reader->next();
  while (segment.ok() && !segment->empty()) segment = reader->next();
  ASSERT_FALSE(segment.ok());
  EXPECT_EQ(segment.error().code, Code::kConfig);
  EXPECT_THAT(segment.error().message, StartsWith((dir_ / "a.txt").string()));
  EXPECT_THAT(segment.error().message, HasSubstr("not UTF-8 at byte offset 200000 (byte 0xe9)"));
}

TEST_F(SegmentReaderTest, AByteOrderMarkAtTheStartIsNoText) {
  const std::string mark = "\xef\xbb\xbf";
  EXPECT_EQ(segments_of(mark + "ab"), std::vector<std::string>{"ab"});
  EXPECT_EQ(segments_of("a" + mark), std::vector<std::string>{"a" + mark});
  const auto with = segments_of(mark + some_text(1, 3000));
  EXPECT_EQ(with, segments_of(some_text(1, 3000)));
  write_text(dir_ / "a.txt", mark + "ab\xe9");
  auto reader = SegmentReader::open(posix_file_system(), {dir_ / "a.txt", 6});
  ASSERT_TRUE(reader.ok()) << message_of(reader);
  EXPECT_THAT(message_of(reader->next()), HasSubstr("byte offset 5"));
}

TEST_F(SegmentReaderTest, NoticesAFileThatGrew) {
  write_text(dir_ / "a.txt", "abc");
  const auto reader = SegmentReader::open(posix_file_system(), {dir_ / "a.txt", 2});
  ASSERT_FALSE(reader.ok());
  EXPECT_THAT(reader.error().message, HasSubstr("3 bytes now, 2 a moment ago"));
}

TEST(ListDocuments, SortsFoldersAndSkipsHiddenNames) {
  const test_support::TempDir dir;
  write_text(dir / "in/b.txt", "b");
  write_text(dir / "in/a/z.txt", "zz");
  write_text(dir / "in/.hidden", "h");
  write_text(dir / "single", "s");
  auto documents = list_documents(posix_file_system(), {dir / "single", dir / "in"});
  ASSERT_TRUE(documents.ok()) << message_of(documents);
  ASSERT_EQ(documents->size(), 3u);
  EXPECT_EQ((*documents)[0].path, dir / "single");
  EXPECT_EQ((*documents)[1].path, dir / "in/a/z.txt");
  EXPECT_EQ((*documents)[1].size_bytes, 2);
  EXPECT_EQ((*documents)[2].path, dir / "in/b.txt");
}

TEST(ListDocuments, PassesOverWhatSaysWhatAFolderIs) {
  const test_support::TempDir dir;
  for (const char* const name : {"README.md", "dataset_info.json", "a.txt", "b/README.md"})
    write_text(dir / "in" / name, "x");
  auto list = list_inputs(posix_file_system(), {dir / "in"});
  ASSERT_TRUE(list.ok()) << message_of(list);
  ASSERT_EQ(list->documents.size(), 1u);
  EXPECT_EQ(list->documents[0].path, dir / "in/a.txt");
  EXPECT_EQ(list->passed_over,
            (std::vector<std::filesystem::path>{dir / "in/README.md", dir / "in/b/README.md",
                                                dir / "in/dataset_info.json"}));
  auto named = list_documents(posix_file_system(), {dir / "in/README.md"});
  ASSERT_TRUE(named.ok()) << message_of(named);
  EXPECT_EQ(named->size(), 1u);
}

TEST(ListDocuments, NamesWhatIsMissingOrEmpty) {
  const test_support::TempDir dir;
  const auto list = [&](const char* name) {
    return list_documents(posix_file_system(), {dir / name});
  };
  const auto missing = list("nowhere");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Code::kNotFound);
  EXPECT_EQ(missing.error().message, (dir / "nowhere").string() + ": no such file or folder");
  write_text(dir / "in/empty.txt", "");
  const auto empty = list("in");
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().code, Code::kConfig);
  EXPECT_EQ(empty.error().message, (dir / "in/empty.txt").string() + ": the file is empty");
  write_text(dir / "hidden/.only", "x");
  EXPECT_EQ(message_of(list("hidden")), (dir / "hidden").string() + ": no file in this folder");
}

TEST(ListDocuments, ATokenShardIsNotText) {
  const test_support::TempDir dir;
  write_text(dir / "in/tokens/train_00000.tokens", "LSTOKENS");
  const auto documents = list_documents(posix_file_system(), {dir / "in"});
  ASSERT_FALSE(documents.ok());
  EXPECT_EQ(documents.error().code, Code::kConfig);
  EXPECT_THAT(documents.error().message, HasSubstr("train_00000.tokens: a token shard, not text"));
}

TEST(ListDocuments, ALoopOfLinksEnds) {
  const test_support::TempDir dir;
  write_text(dir / "in/a.txt", "a");
  std::filesystem::create_directory_symlink(dir / "in", dir / "in/loop");
  auto documents = list_documents(posix_file_system(), {dir / "in"});
  ASSERT_FALSE(documents.ok());  // by the limit here, or by the system's own on links
}

}  // namespace
}  // namespace lockstep::data
