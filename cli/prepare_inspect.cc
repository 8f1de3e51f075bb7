#include "cli/prepare_inspect.h"

#include "base/file_system.h"
#include "base/text.h"
#include "data/open_dataset.h"
#include "data/tokenizer/open_tokenizer.h"

namespace lockstep::cli {

namespace {

// Each line of `words` after `margin`.
void print_run(const std::string& words, bool in_loss, std::ostream& out) {
  for (const std::string& line : split(words, '\n'))
    out << (in_loss ? "loss | " : "     | ") << line << "\n";
}

}  // namespace

Result<void> inspect_sample(const InspectOptions& options, std::ostream& out) {
  FileSystem& disk = posix_file_system();
  LOCKSTEP_TRY(const auto tokenizer, data::tokenizer_of_dataset(disk, options.folder));
  LOCKSTEP_TRY(const auto manifest, data::read_manifest(disk, options.folder));
  const int64_t packed = manifest.recipe.packed_seq_len;
  const int64_t seq_len = packed > 0 ? packed : options.seq_len;
  LOCKSTEP_TRY(const auto dataset,
               data::open_dataset(disk, {.path = options.folder},
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
  // The first token is nobody's label. Every other one is the label before it.
  std::vector<uint32_t> run = {static_cast<uint32_t>(sample.tokens[0])};
  bool in_loss = false;
  for (size_t i = 0; i <= sample.labels.size(); ++i) {
    const bool last = i == sample.labels.size();
    const bool counts = !last && sample.labels[i] != data::kNotCounted;
    if (last || counts != in_loss) {
      LOCKSTEP_TRY(const std::string words, tokenizer->decode(run, /*show_special=*/true));
      if (!run.empty()) print_run(words, in_loss, out);
      run.clear();
      in_loss = counts;
    }
    // A label that does not count is the next input all the same, but for the last one.
    if (counts) run.push_back(static_cast<uint32_t>(sample.labels[i]));
    else if (i + 1 < sample.tokens.size())
      run.push_back(static_cast<uint32_t>(sample.tokens[i + 1]));
  }
  return {};
}

}  // namespace lockstep::cli
