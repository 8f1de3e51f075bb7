#include "data/prepare/text_source.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::data {

namespace {

constexpr size_t kHeadBytes = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kGitLfs = "version https://git-lfs";
constexpr size_t kTarMagicAt = 257;

// Gives the head first, then the rest.
class SourceAfterHead final : public ByteSource {
 public:
  SourceAfterHead(std::string head, std::unique_ptr<ByteSource> rest)
      : head_(std::move(head)), rest_(std::move(rest)) {}
  Result<void> append_to(std::string& out) override {
    if (head_.empty()) return rest_->append_to(out);
    out += head_;
    head_.clear();
    return {};
  }

 private:
  std::string head_;
  std::unique_ptr<ByteSource> rest_;
};

// Whether every other byte of the first ones is zero, as it is where UTF-16 holds ASCII. `zero` is
// the place of the first of them.
bool has_zeros_between(std::string_view head, size_t zero) {
  const std::string_view first = head.substr(0, 16);
  if (first.size() < 4) return false;
  for (size_t i = 0; i < first.size(); ++i)
    if ((first[i] == '\0') != (i % 2 == zero)) return false;
  return true;
}

// "UTF-16LE", …; "": the text is not of that kind.
std::string wide_encoding(std::string_view head) {
  using std::literals::operator""sv;
  if (head.starts_with("\xff\xfe\0\0"sv) || head.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
  if (head.starts_with("\xff\xfe"sv) || head.starts_with("\xfe\xff"sv)) return "UTF-16";
  if (has_zeros_between(head, 1)) return "UTF-16LE";
  if (has_zeros_between(head, 0)) return "UTF-16BE";
  return "";
}

Result<void> check_is_text(const std::filesystem::path& path, std::string_view head) {
  const auto error = [&](const std::string& what) {
    return Error{Code::kConfig, path.string() + ": " + what};
  };
  if (const std::string encoding = wide_encoding(head); !encoding.empty())
    return error(text("the file is in ", encoding, "; convert it to UTF-8 first: iconv -f ",
                      encoding, " -t UTF-8 ", shell_quoted(path.string())));
  if (head.starts_with(kGitLfs))
    return error(
        "the file is a pointer of Git LFS, not the data: run `git lfs pull` in its "
        "repository");
  if (head.starts_with("PAR1"))
    return error("the file is a parquet file; its name has to end in .parquet");
  if (head.starts_with("ARROW1"))
    return error("the file is an Arrow file; its name has to end in .arrow");
  if (head.substr(std::min(head.size(), kTarMagicAt)).starts_with("ustar"))
    return error("the file is a tar archive; unpack it with `tar -xf` first");
  return {};
}

}  // namespace

Result<OpenedText> open_text(FileSystem& file_system, const Document& document,
                             ByteSource::Observer observer) {
  LOCKSTEP_TRY(auto source, ByteSource::open(file_system, document, std::move(observer)));
  OpenedText opened;
  std::string& head = opened.head;
  for (size_t before = 1; before != head.size() && head.size() < kHeadBytes;) {
    before = head.size();
    LOCKSTEP_RETURN_IF_ERROR(source->append_to(head));
  }
  if (head.starts_with(kByteOrderMark)) {
    opened.skipped_bytes = kByteOrderMark.size();
    head.erase(0, kByteOrderMark.size());
  }
  LOCKSTEP_RETURN_IF_ERROR(check_is_text(document.path, head));
  opened.source = std::make_unique<SourceAfterHead>(head, std::move(source));
  return opened;
}

}  // namespace lockstep::data
