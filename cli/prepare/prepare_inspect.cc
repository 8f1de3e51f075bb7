#include "cli/prepare/prepare_inspect.h"

#include <algorithm>

#include "base/file_system.h"
#include "base/text.h"
#include "data/loader/open_dataset.h"
#include "data/tokenizer/open_tokenizer.h"

namespace lockstep::cli {

namespace {

void print_run(const std::string& words, bool in_loss, std::ostream& out) {
  for (const std::string& line : run_lines(words, in_loss)) out << line << "\n";
}

// "document 2, tokens 38 to 95", or filling, which is the one token that ends documents.
void print_document(const data::SlotBatch& sample, size_t which, uint32_t end_of_document,
                    std::ostream& out) {
  const auto& starts = sample.document_starts;
  const auto first = sample.tokens.begin() + starts[which];
  const auto end =
      which + 1 < starts.size() ? sample.tokens.begin() + starts[which + 1] : sample.tokens.end();
  if (std::count(first, end, end_of_document) == end - first)
    out << "filling";
  else
    out << "document " << which + 1;
  out << ", tokens " << starts[which] << " to " << end - sample.tokens.begin() - 1 << "\n";
}

// The first token is nobody's label. Every other one is the label before it, where that counts.
Result<void> print_tokens(const data::Tokenizer& tokenizer, const data::SlotBatch& sample,
                          bool packed, std::ostream& out) {
  std::vector<uint32_t> run;
  bool in_loss = false;
  size_t document = 0;
  for (size_t i = 0; i <= sample.tokens.size(); ++i) {
    const bool last = i == sample.tokens.size();
    const bool counts = i > 0 && sample.labels[i - 1] != data::kNotCounted;
    const bool starts = packed && document < sample.document_starts.size() &&
                        static_cast<size_t>(sample.document_starts[document]) == i;
    if (!run.empty() && (counts != in_loss || starts)) {
      LOCKSTEP_TRY(const std::string words, tokenizer.decode(run, /*show_special=*/true));
      print_run(words, in_loss, out);
      run.clear();
    }
    if (starts) print_document(sample, document++, tokenizer.end_of_document(), out);
    in_loss = counts;
    // After the last token comes its label.
    if (!last || counts)
      run.push_back(static_cast<uint32_t>(counts ? sample.labels[i - 1] : sample.tokens[i]));
  }
  if (run.empty()) return {};
  LOCKSTEP_TRY(const std::string words, tokenizer.decode(run, /*show_special=*/true));
  print_run(words, in_loss, out);
  return {};
}

}  // namespace

std::vector<std::string> run_lines(const std::string& words, bool in_loss) {
  std::vector<std::string> lines;
  for (const std::string& line : split(words, '\n'))
    lines.push_back((in_loss ? "loss | " : "     | ") + line);
  return lines;
}

Result<void> inspect_sample(const InspectOptions& options, std::ostream& out) {
  FileSystem& disk = posix_file_system();
  LOCKSTEP_TRY(const auto tokenizer, data::tokenizer_of_dataset(disk, options.folder));
  LOCKSTEP_TRY(const auto manifest, data::read_manifest(disk, options.folder));
  const int64_t packed = manifest.recipe.packed_seq_len;
  const int64_t seq_len = packed > 0 ? packed : options.seq_len;
  LOCKSTEP_TRY(const auto dataset, data::open_dataset(disk, {.path = options.folder},
                                                      {.split = options.split,
                                                       .seq_len = seq_len,
                                                       .batch_size = 1,
                                                       .slots = 1,
                                                       .seed = 0,
                                                       .vocab_size = tokenizer->vocab_size()}));
  if (options.sample >= dataset->sample_count())
    return Error{Code::kConfig, text("sample ", options.sample, " of ", dataset->sample_count())};
  LOCKSTEP_TRY(const data::SlotBatch sample, dataset->sample(options.sample));
  out << options.folder << ", split " << options.split << ", sample " << options.sample << " of "
      << dataset->sample_count() << ": " << seq_len << " tokens, " << sample.valid_tokens
      << " count in the loss; tokenizer " << tokenizer->name() << "\n";
  return print_tokens(*tokenizer, sample, packed > 0, out);
}

}  // namespace lockstep::cli
