#include "core/sharding/norm_sum.h"
#include "base/check.h"

#include <algorithm>
#include <bit>

namespace lockstep::core {
namespace {

using Doubles = std::vector<double>;

Doubles doubles_of(WordMerge::Words words) {
  Doubles out;
  for (const uint64_t word : words) out.push_back(std::bit_cast<double>(word));
  return out;
}

std::vector<uint64_t> words_of(const Doubles& numbers) {
  std::vector<uint64_t> out;
  for (const double number : numbers) out.push_back(std::bit_cast<uint64_t>(number));
  return out;
}

}  // namespace

// `ends`: what all get is the sum over all tiles, and not the nodes of all that they have.
class NormSum::Nodes : public WordMerge {
 public:
  Nodes(const layout::NormTree& tree, int first, int of_member, int members, bool ends)
      : tree_(tree), first_(first), of_member_(of_member), members_(members), ends_(ends) {
    for (int m = 0; m < members; ++m) most_ = std::max(most_, words(m, m + 1));
  }
  int64_t words(int first, int end) const override { return tree_.nodes(part(first), part(end)); }
  int64_t most_words() const override { return most_; }
  void merge(int first, int middle, int end, Words before, Words others, Place out) const override {
    Doubles sums(out.size());
    tree_.merge(part(first), part(middle), part(end), doubles_of(before), doubles_of(others), sums);
    std::ranges::copy(words_of(sums), out.begin());
  }
  int64_t answer_words() const override { return ends_ ? 1 : words(0, members_); }
  void answer(Words all, Place out) const override {
    if (ends_)
      out[0] = std::bit_cast<uint64_t>(tree_.total(doubles_of(all)));
    else
      std::ranges::copy(all, out.begin());
  }

 private:
  int part(int member) const { return first_ + member * of_member_; }
  const layout::NormTree& tree_;
  int first_, of_member_, members_;
  bool ends_;
  int64_t most_ = 0;
};

NormSum::NormSum(const std::vector<layout::ShardLayout>& units, const Groups& groups)
    : tree_(units), groups_(groups) {
  const int ranks = groups.world->world_size();
  if (units.empty() || !units.front().sizes.two_legs(ranks)) {
    last_ = std::make_unique<Nodes>(tree_, 0, 1, ranks, /*ends=*/true);
    return;
  }
  const int of_peers = groups.peers->world_size(), of_group = groups.group->world_size();
  first_ = std::make_unique<Nodes>(tree_, groups.group->rank() * of_peers, 1, of_peers,
                                   /*ends=*/false);
  last_ = std::make_unique<Nodes>(tree_, 0, of_peers, of_group, /*ends=*/true);
}

NormSum::~NormSum() = default;

Result<double> NormSum::total(Doubles row) const {
  const WordMerge& own = first_ ? *first_ : *last_;
  Communicator& last = first_ ? *groups_.group : *groups_.world;
  const int rank = first_ ? groups_.peers->rank() : last.rank();
  LOCKSTEP_CHECK(std::ssize(row) >= own.words(rank, rank + 1), row.size(), " nodes of ",
                 own.words(rank, rank + 1));
  row.resize(static_cast<size_t>(own.words(rank, rank + 1)));
  std::vector<uint64_t> words = words_of(row);
  if (first_) {
    LOCKSTEP_TRY(words, MergedWords(*groups_.peers, *first_, words).wait());
  }
  LOCKSTEP_TRY(const auto sum, MergedWords(last, *last_, words).wait());
  return std::bit_cast<double>(sum[0]);
}

}  // namespace lockstep::core
