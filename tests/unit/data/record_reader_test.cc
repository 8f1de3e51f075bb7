#include "data/prepare/record_reader.h"

#include "tests/unit/data/compressed.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class RecordReaderTest : public testing::Test {
 protected:
  Document file(const std::string& name, const std::string& contents) {
    write_text(dir_ / name, contents);
    return {dir_ / name, static_cast<int64_t>(contents.size())};
  }
  // All records, or the ones before an error and its message.
  std::vector<std::string> records(const std::string& name, const std::string& contents) {
    const auto reader = RecordReader::open(posix_file_system(), file(name, contents));
    if (!reader.ok()) return {reader.error().message};
    std::vector<std::string> all;
    while (true) {
      const auto record = reader.value()->next();
      if (!record.ok()) all.push_back(record.error().message);
      if (!record.ok() || record.value().empty()) return all;
      all.emplace_back(record.value());
    }
  }
  std::optional<FoundRecords> found(const std::string& name, const std::string& contents) {
    auto result = find_records(posix_file_system(), file(name, contents));
    EXPECT_TRUE(result.ok()) << message_of(result);
    return result.ok() ? result.value() : std::nullopt;
  }
  test_support::TempDir dir_;
};

TEST_F(RecordReaderTest, LinesAreCountedAndBlankOnesPassedOver) {
  EXPECT_THAT(records("a.jsonl", "{\"a\": 1}\n\n \r\n{\"a\": 2}"),
              ElementsAre("{\"a\": 1}", "{\"a\": 2}"));
  const auto reader =
      RecordReader::open(posix_file_system(), file("a.jsonl", "\n{\"a\": 1}\n\n{\"a\": 2}\n"));
  ASSERT_TRUE(reader.ok()) << message_of(reader);
  ASSERT_TRUE(reader.value()->next().ok());
  EXPECT_EQ(reader.value()->number(), 2);
  ASSERT_TRUE(reader.value()->next().ok());
  EXPECT_EQ(reader.value()->number(), 4);
}

TEST_F(RecordReaderTest, AByteOrderMarkIsNoPartOfTheFirstRecord) {
  EXPECT_THAT(records("a.jsonl", "\xef\xbb\xbf{\"a\": 1}\n"), ElementsAre("{\"a\": 1}"));
  EXPECT_THAT(records("a.csv", "\xef\xbb\xbftext\nx\n"), ElementsAre(R"({"text":"x"})"));
  EXPECT_THAT(records("a.json", "\xef\xbb\xbf[{\"a\": 1}]"), ElementsAre("{\"a\": 1}"));
  EXPECT_THAT(records("a.jsonl", "\xef\xbb\xbf{\"a\": \"\xff\"}\n"),
              ElementsAre(HasSubstr("not UTF-8 at byte offset 10")));
}

TEST_F(RecordReaderTest, AnArrayGivesItsObjects) {
  const std::string tricky = R"({"a": "]}{[\"\\", "b": [{"c": {}}]})";
  for (const std::string& whole : {"[" + tricky + ",{}]", "\n [ \n" + tricky + " ,\n{}\n]\n\n"}) {
    EXPECT_THAT(records("a.json", whole), ElementsAre(tricky, "{}"));
    EXPECT_THAT(records("a.json.gz", gzip(whole)), ElementsAre(tricky, "{}"));
  }
}

TEST_F(RecordReaderTest, AnArrayOfMegabytesIsReadByParts) {
  std::string whole = "[";
  std::vector<std::string> wanted;
  for (int i = 0; i < 4; ++i) {
    wanted.push_back(
        text("{\"text\": \"", std::string(700'000, static_cast<char>('a' + i)), "\"}"));
    whole += (i > 0 ? ",\n" : "") + wanted.back();
  }
  EXPECT_EQ(records("a.json", whole + "]"), wanted);
}

TEST_F(RecordReaderTest, ADamagedArrayIsNamed) {
  const auto last = [&](const std::string& whole) { return records("a.json", whole).back(); };
  EXPECT_THAT(last("[{}, {\"a\": "), HasSubstr("a.json: record 2 of the array is cut short"));
  EXPECT_THAT(last("[{}, 1]"), HasSubstr("record 2 of the array is no JSON object"));
  EXPECT_THAT(last("[{} {}]"), HasSubstr("after record 1 of the array comes neither"));
  EXPECT_THAT(last("[{}"), HasSubstr("after record 1 of the array comes neither"));
  EXPECT_THAT(last("[{}, ]"), HasSubstr("record 2 of the array is no JSON object"));
  EXPECT_THAT(last("[{}] {}"), HasSubstr("text follows the array"));
}

TEST_F(RecordReaderTest, ATableIsReadAsRfc4180Says) {
  EXPECT_THAT(
      records("a.csv",
              "id,text\r\n"
              "1,plain\r\n"
              "\r\n"
              "2,\"a, b\r\nand \"\"c\"\"\"\r\n"
              "3,\r\n"
              "4,\"\"\n"
              "5,a\"\"b\n"
              "6,\"\"\"\""),
      ElementsAre(R"({"id":"1","text":"plain"})", R"({"id":"2","text":"a, b\r\nand \"c\""})",
                  R"({"id":"3","text":""})", R"({"id":"4","text":""})",
                  R"({"id":"5","text":"a\"\"b"})", R"({"id":"6","text":"\""})"));
  EXPECT_THAT(records("a.TSV", "p\tr\nx, y\t\"z\tw\"\n"),
              ElementsAre(R"({"p":"x, y","r":"z\tw"})"));
}

TEST_F(RecordReaderTest, ADamagedTableIsNamed) {
  const auto last = [&](const std::string& whole) { return records("a.csv", whole).back(); };
  EXPECT_THAT(last("a,b\n1,2\n3\n"),
              HasSubstr("a.csv: row 2 has 1 value, and the table has 2 col"));
  EXPECT_THAT(last("a,b\n1,\"2\n3,4\n"), HasSubstr("row 1: a quote is not closed"));
  EXPECT_THAT(last("a,b\n1,\"2\"3\n"), HasSubstr("row 1: text follows a closing quote"));
  EXPECT_THAT(last("a,a\n1,2\n"), HasSubstr("does not name its columns"));
  EXPECT_THAT(last("\n\n"), HasSubstr("the table is empty"));
}

TEST_F(RecordReaderTest, RecordsAreFoundByContentUnderAnyName) {
  for (const char* const name : {"a.ndjson", "a.json", "a.JSONL", "a.jsonl.txt", "a.txt", "a"}) {
    const auto lines = found(name, "\n{\"text\": \"a\"}\n{\"text\": \"b\"}\n");
    ASSERT_TRUE(lines) << name;
    EXPECT_EQ(lines->kind, RecordKind::kLines) << name;
    EXPECT_EQ(lines->first, "{\"text\": \"a\"}") << name;
  }
  EXPECT_EQ(found("a.json", "[\n {\"text\": \"a\"}]")->kind, RecordKind::kArray);
  EXPECT_EQ(found("a.csv", "text\na\n")->first, R"({"text":"a"})");
  EXPECT_EQ(found("a.tsv.gz", gzip("text\na\n"))->kind, RecordKind::kTabs);
  EXPECT_TRUE(found("a.jsonl", "damaged"));
  for (const char* const text :
       {"plain", "{ not JSON }\n", "[Chorus]\nla\n", "{\n  \"a\": 1\n}\n", "1\n", "[1, 2]\n"})
    EXPECT_FALSE(found("a.txt", text)) << text;
}

TEST_F(RecordReaderTest, WhatIsNoTextIsSaid) {
  using std::literals::operator""s;
  const auto said = [&](const std::string& contents) {
    return records("a.jsonl", contents).front();
  };
  EXPECT_THAT(said("\xff\xfe{\0"s), AllOf(HasSubstr("a.jsonl: the file is in UTF-16"),
                                          HasSubstr("iconv -f UTF-16 -t UTF-8")));
  EXPECT_THAT(said("\xfe\xff\0{"s), HasSubstr("iconv -f UTF-16 -t UTF-8"));
  EXPECT_THAT(said("{\0\"\0a\0\"\0:\0"s), HasSubstr("iconv -f UTF-16LE -t UTF-8"));
  EXPECT_THAT(said("\0{\0\"\0a\0\""s), HasSubstr("iconv -f UTF-16BE -t UTF-8"));
  EXPECT_THAT(
      said("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"),
      AllOf(HasSubstr("a.jsonl: the file is a pointer of Git LFS"), HasSubstr("git lfs pull")));
  EXPECT_THAT(said("PAR1...."), HasSubstr("has to end in .parquet"));
  EXPECT_THAT(said(std::string(257, 'n') + "ustar"), HasSubstr("tar archive"));
}

}  // namespace
}  // namespace lockstep::data
