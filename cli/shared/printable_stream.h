// std::cout and std::cerr that show control characters instead of obeying them (base/printable.h),
// for commands that print names and words from files.
#pragma once

#include <ostream>
#include <streambuf>
#include <string>
#include <string_view>

namespace lockstep::cli {

// While it lives, what is written to the stream comes out printable. Keeps nothing back but the
// first byte of a character that is not whole yet. Borrows the stream.
class PrintableStream final : public std::streambuf {
 public:
  explicit PrintableStream(std::ostream& stream);
  ~PrintableStream() override;
  PrintableStream(const PrintableStream&) = delete;
  PrintableStream& operator=(const PrintableStream&) = delete;

  // Where the bytes of `stream` go in the end: for what draws on the terminal itself.
  static std::streambuf* terminal_of(std::ostream& stream);

 protected:
  int_type overflow(int_type c) override;
  std::streamsize xsputn(const char* bytes, std::streamsize count) override;
  int sync() override;

 private:
  bool forward(std::string_view bytes);

  std::ostream& stream_;
  std::streambuf* const target_;
  std::string held_;
};

}  // namespace lockstep::cli
