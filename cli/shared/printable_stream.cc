#include "cli/shared/printable_stream.h"

#include "base/printable.h"

namespace lockstep::cli {

PrintableStream::PrintableStream(std::ostream& stream)
    : stream_(stream), target_(stream.rdbuf(this)) {}

PrintableStream::~PrintableStream() {
  stream_.flush();
  target_->sputn(held_.data(), static_cast<std::streamsize>(held_.size()));
  stream_.rdbuf(target_);
}

std::streambuf::int_type PrintableStream::overflow(int_type c) {
  if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
  const char byte = traits_type::to_char_type(c);
  return forward({&byte, 1}) ? c : traits_type::eof();
}

std::streamsize PrintableStream::xsputn(const char* bytes, std::streamsize count) {
  return forward({bytes, static_cast<size_t>(count)}) ? count : 0;
}

int PrintableStream::sync() { return target_->pubsync(); }

bool PrintableStream::forward(std::string_view bytes) {
  held_ += bytes;
  std::string whole = std::move(held_);
  held_ = whole.substr(whole.size() - unfinished_control(whole));
  whole.resize(whole.size() - held_.size());
  const std::string out = printable(whole, "\n\t\r");  // progress is shown again and again
  const auto size = static_cast<std::streamsize>(out.size());
  return target_->sputn(out.data(), size) == size;
}

std::streambuf* PrintableStream::terminal_of(std::ostream& stream) {
  const auto* const ours = dynamic_cast<PrintableStream*>(stream.rdbuf());
  return ours == nullptr ? stream.rdbuf() : ours->target_;
}

}  // namespace lockstep::cli
