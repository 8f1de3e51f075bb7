#include "data/prepare/packer.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace lockstep::data {

Result<void> Packer::append(std::span<const uint32_t> tokens, std::span<const uint8_t> in_loss) {
  LOCKSTEP_CHECK(tokens.size() == in_loss.size(), tokens.size(), " ", in_loss.size());
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  in_loss_.insert(in_loss_.end(), in_loss.begin(), in_loss.end());
  size_t at = open_begin_;
  for (; tokens_.size() - at > seq_len_; at += seq_len_) {
    const Part whole{at, seq_len_};
    LOCKSTEP_RETURN_IF_ERROR(emit(std::span(&whole, 1)));
  }
  const auto from = static_cast<std::ptrdiff_t>(open_begin_), to = static_cast<std::ptrdiff_t>(at);
  tokens_.erase(tokens_.begin() + from, tokens_.begin() + to);
  in_loss_.erase(in_loss_.begin() + from, in_loss_.begin() + to);
  return {};
}

Result<void> Packer::end_document() {
  if (tokens_.size() > open_begin_)
    documents_.push_back({open_begin_, tokens_.size() - open_begin_});
  open_begin_ = tokens_.size();
  return tokens_.size() < static_cast<size_t>(kWindowTokens) ? Result<void>() : pack();
}

Result<void> Packer::pack() {
  std::stable_sort(documents_.begin(), documents_.end(),
                   [](const Part& a, const Part& b) { return a.length > b.length; });
  std::vector<std::vector<Part>> bins;
  std::set<std::pair<size_t, size_t>> rooms;  // of bins that are not full: room, which bin
  for (const Part& document : documents_) {
    auto best = rooms.lower_bound({document.length, 0});
    if (best == rooms.end()) {
      best = rooms.emplace(seq_len_, bins.size()).first;
      bins.emplace_back();
    }
    const auto [room, bin] = *best;
    rooms.erase(best);
    bins[bin].push_back(document);
    if (room > document.length) rooms.emplace(room - document.length, bin);
  }
  for (const auto& bin : bins) LOCKSTEP_RETURN_IF_ERROR(emit(bin));
  documents_.clear();
  tokens_.clear();
  in_loss_.clear();
  open_begin_ = 0;
  return {};
}

Result<void> Packer::emit(std::span<const Part> parts) {
  std::vector<uint32_t> tokens;
  std::vector<uint8_t> in_loss, starts(seq_len_, 0);
  for (const Part& part : parts) {
    starts[tokens.size()] = 1;
    const auto words = std::span(tokens_).subspan(part.begin, part.length);
    const auto counts = std::span(in_loss_).subspan(part.begin, part.length);
    tokens.insert(tokens.end(), words.begin(), words.end());
    in_loss.push_back(0);
    in_loss.insert(in_loss.end(), counts.begin() + 1, counts.end());
  }
  if (tokens.size() < seq_len_) starts[tokens.size()] = 1;  // the filling is alone as well
  filling_tokens_ += static_cast<int64_t>(seq_len_ - tokens.size());
  tokens.resize(seq_len_, end_);
  in_loss.resize(seq_len_, 0);
  any_ = true;
  return sink_(tokens, in_loss, starts);
}

Result<void> Packer::seal() {
  LOCKSTEP_CHECK(open_begin_ == tokens_.size(), "a document is open");
  LOCKSTEP_RETURN_IF_ERROR(pack());
  const uint8_t no = 0, yes = 1;
  return any_ ? sink_(std::span(&end_, 1), std::span(&no, 1), std::span(&yes, 1)) : Result<void>();
}

}  // namespace lockstep::data
