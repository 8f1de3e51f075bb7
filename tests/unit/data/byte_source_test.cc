#include "data/prepare/byte_source.h"

#include "tests/unit/data/compressed.h"
#include "tests/unit/data/data_test_support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

class ByteSourceTest : public testing::Test {
 protected:
  // All bytes of a file with `contents`, or its error.
  Result<std::string> read(const std::string& contents) {
    write_text(dir_ / "f", contents);
    seen_.clear();
    LOCKSTEP_TRY(
        const auto source,
        ByteSource::open(posix_file_system(), {dir_ / "f", static_cast<int64_t>(contents.size())},
                         [&](std::span<const std::byte> bytes) {
                           seen_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
                         }));
    std::string all;
    for (size_t before = 1; before != all.size();) {
      before = all.size();
      LOCKSTEP_RETURN_IF_ERROR(source->append_to(all));
    }
    return all;
  }
  test_support::TempDir dir_;
  std::string seen_;
};

TEST_F(ByteSourceTest, PlainGzipAndZstdGiveTheSameBytes) {
  std::string words = some_text(1, 40000);
  for (const std::string& stored : {words, gzip(words), zstd(words)}) {
    const auto all = read(stored);
    ASSERT_TRUE(all.ok()) << message_of(all);
    EXPECT_TRUE(all.value() == words);
    EXPECT_TRUE(seen_ == stored);
  }
}

TEST_F(ByteSourceTest, AFewBytesOfACompressedFileAreNoText) {
  for (const size_t bytes : {2, 3, 9}) {
    EXPECT_FALSE(read(gzip("one").substr(0, bytes)).ok()) << bytes;
  }
  EXPECT_EQ(read("").value(), "");
  EXPECT_EQ(read("\x1f").value(), "\x1f");
}

TEST_F(ByteSourceTest, SeveralMembersAreOneText) {
  EXPECT_EQ(read(gzip("one ") + gzip("two")).value(), "one two");
  EXPECT_EQ(read(zstd("one ") + zstd("") + zstd("two")).value(), "one two");
}

TEST_F(ByteSourceTest, ZerosBehindTheLastMemberArePadding) {
  for (const size_t zeros : {size_t{1}, size_t{512}, size_t{3} << 20}) {
    const std::string padding(zeros, '\0');
    EXPECT_EQ(read(gzip("one ") + gzip("two") + padding).value(), "one two");
    EXPECT_EQ(read(zstd("one ") + zstd("two") + padding).value(), "one two");
  }
  EXPECT_FALSE(read(gzip("one") + std::string(5, '\0') + "x").ok());
}

TEST_F(ByteSourceTest, AWindowOf2GiBIsRead) {
  // A frame without its text's length, whose window is 2^31 bytes, with one block as it is.
  const std::string frame = std::string("\x28\xb5\x2f\xfd", 4) + std::string("\0\xa8", 2);
  EXPECT_EQ(read(frame + std::string("\x29\0\0hello", 8)).value(), "hello");
}

TEST_F(ByteSourceTest, AFrameThatReadersSkipMayComeFirst) {
  const std::string skipped = std::string("\x50\x2a\x4d\x18\4\0\0\0abcd", 12);
  EXPECT_EQ(read(skipped + zstd("one")).value(), "one");
}

TEST_F(ByteSourceTest, OtherPackingsAreNamedWithWhatUnpacksThem) {
  const auto said = [&](std::string_view bytes) { return message_of(read(std::string(bytes))); };
  EXPECT_THAT(said(std::string_view("\xfd"
                                    "7zXZ\0..",
                                    8)),
              testing::AllOf(HasSubstr("f: the file is xz data"), HasSubstr("`xz -d`")));
  EXPECT_THAT(said("BZh91AY&SY...."), HasSubstr("`bzip2 -d`"));
  EXPECT_THAT(said("PK\3\4...."), HasSubstr("`unzip`"));
  EXPECT_EQ(said("BZh9 is a word"), "");
}

TEST_F(ByteSourceTest, DamageIsNamed) {
  const std::string words = some_text(2, 3000);
  for (const std::string& whole : {gzip(words), zstd(words)}) {
    EXPECT_THAT(message_of(read(whole.substr(0, whole.size() - 3))), HasSubstr("ends too early"));
    std::string damaged = whole;
    damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x55);
    damaged[damaged.size() / 2 + 1] = static_cast<char>(damaged[damaged.size() / 2 + 1] ^ 0x55);
    const auto all = read(damaged);
    // A frame without a checksum may decode to other text; it never crashes.
    if (!all.ok()) {
      EXPECT_THAT(all.error().message, HasSubstr("compressed"));
    }
    EXPECT_FALSE(all.ok() && all.value() == words);
  }
}

}  // namespace
}  // namespace lockstep::data
