// encode_paragraphs TOKENIZER IN OUT [THREADS]: encodes each text of IN as a document of its own.
// IN: for each text its length (u32) and its bytes. OUT: for each text the number of ids (u32) and
// the ids (u32). Prints {"bytes": …, "ids": …, "seconds": …, "vocab_size": …, …} as JSON; the
// seconds are those of encoding alone.
#include <cstring>
#include <iostream>
#include <thread>

#include "base/clock.h"
#include "base/file_system.h"
#include "data/tokenizer/open_tokenizer.h"

namespace lockstep {
namespace {

Result<std::vector<std::string_view>> texts_of(const std::string& in) {
  std::vector<std::string_view> texts;
  for (size_t at = 0; at < in.size();) {
    uint32_t size = 0;
    if (in.size() - at < sizeof(size)) return Error{Code::kConfig, "IN ends inside a length"};
    std::memcpy(&size, in.data() + at, sizeof(size));
    at += sizeof(size);
    if (in.size() - at < size) return Error{Code::kConfig, "IN ends inside a text"};
    texts.emplace_back(in.data() + at, size);
    at += size;
  }
  return texts;
}

Result<void> run(const std::string& name, const std::string& in, const std::string& out,
                 size_t threads) {
  LOCKSTEP_TRY(const data::OpenedTokenizer opened, data::open_tokenizer(posix_file_system(), name));
  const data::Tokenizer& tokenizer = *opened.tokenizer;
  LOCKSTEP_TRY(const std::string contents, read_file(posix_file_system(), in));
  LOCKSTEP_TRY(const std::vector<std::string_view> texts, texts_of(contents));
  std::vector<std::vector<uint32_t>> ids(texts.size());
  std::vector<Result<void>> done(threads);
  const double start_s = system_clock().monotonic_s();
  std::vector<std::thread> workers;
  for (size_t t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      for (size_t i = t; i < texts.size() && done[t].ok(); i += threads)
        done[t] = tokenizer.encode(texts[i], ids[i]);
    });
  for (std::thread& worker : workers) worker.join();
  const double seconds = system_clock().monotonic_s() - start_s;
  for (const Result<void>& each : done) LOCKSTEP_RETURN_IF_ERROR(each);

  std::vector<uint32_t> flat;
  for (const auto& each : ids) {
    flat.push_back(static_cast<uint32_t>(each.size()));
    flat.insert(flat.end(), each.begin(), each.end());
  }
  LOCKSTEP_TRY(const auto file, posix_file_system().create(out));
  LOCKSTEP_RETURN_IF_ERROR(file->write_at(std::as_bytes(std::span(flat)), 0));
  std::cout << "{\"bytes\": " << contents.size() - 4 * texts.size()
            << ", \"ids\": " << flat.size() - texts.size() << ", \"seconds\": " << seconds
            << ", \"vocab_size\": " << tokenizer.vocab_size()
            << ", \"end_of_document\": " << tokenizer.end_of_document() << ", \"hash\": \""
            << tokenizer.hash() << "\"}\n";
  return {};
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::cerr << "encode_paragraphs TOKENIZER IN OUT [THREADS]\n";
    return 64;
  }
  const auto done =
      lockstep::run(argv[1], argv[2], argv[3], argc == 5 ? std::stoul(argv[4]) : size_t{1});
  if (done.ok()) return 0;
  std::cerr << done.error().message << "\n";
  return exit_status(done.error().code);
}
