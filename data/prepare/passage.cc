#include "data/prepare/passage.h"

#include <algorithm>
#include <span>

#include "base/check.h"

namespace lockstep::data {

namespace {

using Ids = std::vector<uint32_t>;

// Where the passages of `run` end among the ids of their text, if it makes no difference that they
// are tokenized apart; else nothing.
Result<std::vector<size_t>> ends_apart(const Tokenizer& tokenizer, std::span<const Passage> run,
                                       std::span<const uint32_t> whole) {
  Ids apart;
  std::vector<size_t> ends;
  for (const Passage& passage : run) {
    LOCKSTEP_RETURN_IF_ERROR(tokenizer.encode(passage.words, apart, passage.names));
    ends.push_back(apart.size());
  }
  if (!std::equal(apart.begin(), apart.end(), whole.begin(), whole.end())) ends.clear();
  return ends;
}

// The same by the ids of the text up to the end of each. A token across two passages is the
// second's, or the first's if that one alone is learnt.
Result<std::vector<size_t>> ends_by_beginnings(const Tokenizer& tokenizer,
                                               std::span<const Passage> run,
                                               std::span<const uint32_t> whole) {
  std::vector<size_t> ends;
  std::string before;
  for (size_t i = 0; i + 1 < run.size(); ++i) {
    before += run[i].words;
    Ids ids;
    LOCKSTEP_RETURN_IF_ERROR(tokenizer.encode(before, ids, run[i].names));
    const auto differs = std::mismatch(ids.begin(), ids.end(), whole.begin(), whole.end());
    auto end = static_cast<size_t>(differs.first - ids.begin());
    const bool is_cut = differs.first != ids.end() && end < whole.size();
    end += is_cut && run[i].in_loss && !run[i + 1].in_loss;
    ends.push_back(std::max(end, ends.empty() ? 0 : ends.back()));
  }
  ends.push_back(whole.size());
  return ends;
}

// Passages that join.
Result<void> encode_run(const Tokenizer& tokenizer, std::span<const Passage> run, Ids& ids,
                        std::vector<uint8_t>& in_loss) {
  std::string all;
  for (const Passage& passage : run) {
    LOCKSTEP_CHECK(!passage.token && passage.names == run[0].names, "unlike passages join");
    all += passage.words;
  }
  const size_t first = ids.size();
  LOCKSTEP_RETURN_IF_ERROR(tokenizer.encode(all, ids, run[0].names));
  const auto whole = std::span<const uint32_t>(ids).subspan(first);
  std::vector<size_t> ends = {whole.size()};
  if (run.size() > 1) {
    ends.clear();
    if (run.size() > 2) {  // few beginnings cost less
      LOCKSTEP_TRY(ends, ends_apart(tokenizer, run, whole));
    }
    if (ends.empty()) {
      LOCKSTEP_TRY(ends, ends_by_beginnings(tokenizer, run, whole));
    }
  }
  for (size_t i = 0; i < run.size(); ++i) in_loss.resize(first + ends[i], run[i].in_loss);
  return {};
}

}  // namespace

Result<void> encode_document(const Tokenizer& tokenizer, const std::vector<Passage>& passages,
                             bool begin_in_loss, std::vector<uint32_t>& ids,
                             std::vector<uint8_t>& in_loss) {
  if (passages.empty() || !passages[0].begins_document) {
    const auto begin = tokenizer.begin_of_document();
    ids.insert(ids.end(), begin.begin(), begin.end());
    in_loss.resize(ids.size(), begin_in_loss);
  }
  for (size_t i = 0; i < passages.size();) {
    if (passages[i].token) {
      ids.push_back(*passages[i].token);
      in_loss.push_back(passages[i++].in_loss);
      continue;
    }
    size_t end = i + 1;
    while (end < passages.size() && passages[end].joins) ++end;
    LOCKSTEP_RETURN_IF_ERROR(
        encode_run(tokenizer, std::span(passages).subspan(i, end - i), ids, in_loss));
    i = end;
  }
  LOCKSTEP_CHECK(ids.size() == in_loss.size(), ids.size(), " ids, ", in_loss.size(), " marks");
  return {};
}

}  // namespace lockstep::data
