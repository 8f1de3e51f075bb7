#include "core/comm/tree_communicator.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "base/text.h"
#include "core/comm/shared_store.h"
#include "core/comm/word_merge.h"

namespace lockstep::core {
namespace {

constexpr int kLevel = 3;            // zstd's own default
constexpr size_t kPackedAtMost = 2;  // times what is packed, of any text
constexpr size_t kSizeBytes = 4;

// A group that a rank is in. Its k-th member speaks for the ranks from first + k * span on, `span`
// of them as long as there are so many.
struct Level {
  int first, span, size;

  int member(int rank) const { return (rank - first) / span; }
  int rank_of(int member) const { return first + member * span; }
  // Of the bytes of all ranks, `n` of each: of those that a member speaks for.
  at::Tensor part(const at::Tensor& all, int64_t n, int64_t world_size, int member) const {
    const int64_t begin = rank_of(member), end = std::min<int64_t>(begin + span, world_size);
    return all.narrow(0, begin * n, (end - begin) * n);
  }
};

// Those of `rank`, from its neighbours up. In all but the last it leads.
std::vector<Level> levels_of(int rank, int world_size) {
  std::vector<Level> levels;
  for (int span = 1; span < world_size && rank % span == 0; span *= TreeCommunicator::kFanIn) {
    const int first = rank - rank % (span * TreeCommunicator::kFanIn);
    const int size = std::min(TreeCommunicator::kFanIn, (world_size - first + span - 1) / span);
    if (size > 1) levels.push_back({first, span, size});
  }
  return levels;
}

std::vector<int> nodes_of(const Level& level, const std::vector<int>& node_of_rank) {
  std::vector<int> nodes;
  for (int k = 0; k < level.size; ++k)
    nodes.push_back(node_of_rank[static_cast<size_t>(level.rank_of(k))]);
  return nodes;
}

// Texts of ranks one behind the other, each behind its size. What ranks say is much alike: packed,
// many take little more than one.
std::string with_size(const std::string& one) {
  const auto size = static_cast<uint32_t>(one.size());
  static_assert(sizeof size == kSizeBytes);
  return std::string(reinterpret_cast<const char*>(&size), kSizeBytes) + one;
}

Error unreadable() {
  return {Code::kPeerLost, "cannot parse the message of a rank; run the same build on all nodes"};
}

Result<std::vector<std::string>> without_sizes(std::string_view all) {
  std::vector<std::string> texts;
  while (!all.empty()) {
    uint32_t size = 0;
    if (all.size() < kSizeBytes) return unreadable();
    std::memcpy(&size, all.data(), kSizeBytes);
    all.remove_prefix(kSizeBytes);
    if (all.size() < size) return unreadable();
    texts.emplace_back(all.substr(0, size));
    all.remove_prefix(size);
  }
  return texts;
}

std::string packed(const std::string& told) {
  std::string out(ZSTD_compressBound(told.size()), '\0');
  const size_t size = ZSTD_compress(out.data(), out.size(), told.data(), told.size(), kLevel);
  LOCKSTEP_CHECK(!ZSTD_isError(size), ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

Result<std::string> unpacked(const at::Tensor& bytes, size_t most) {
  const void* const from = bytes.const_data_ptr();
  const auto packed_size = static_cast<size_t>(bytes.numel());
  const unsigned long long size = ZSTD_getFrameContentSize(from, packed_size);
  if (size > most) return unreadable();  // the codes of errors are, too
  std::string told(size, '\0');
  if (ZSTD_decompress(told.data(), size, from, packed_size) != size) return unreadable();
  return told;
}

class GlooTree : public TreeCommunicator {
 public:
  // Connects the groups, those of neighbours first: no two wait for each other.
  GlooTree(const GlooOptions& options, c10::intrusive_ptr<c10d::Store> store)
      : options_(options),
        store_(std::move(store)),
        levels_(levels_of(options.rank, options.size)) {
    for (const Level& level : levels_) {
      GlooOptions own = options_;
      own.rank = level.member(options_.rank);
      own.size = level.size;
      own.node_of_rank = nodes_of(level, options_.node_of_rank);
      if (!is_one_group()) own.threads = 1;  // messages need none
      groups_.push_back(connect_gloo(own, with_prefix(text(level.first, "/", level.span), store_)));
    }
  }
  int rank() const override { return options_.rank; }
  int world_size() const override { return options_.size; }

  PendingPtr all_gather(at::Tensor out, at::Tensor in, Traffic traffic) override;
  PendingPtr spread(at::Tensor tensor) override;
  bool merges() const override { return !is_one_group(); }
  PendingPtr merge(const WordMerge& how, at::Tensor mine, at::Tensor answer) override;
  PendingPtr all_to_all(at::Tensor out, std::vector<int64_t> out_counts, at::Tensor in,
                        std::vector<int64_t> in_counts) override {
    return over_mesh([&](Communicator& mesh) {
      return mesh.all_to_all(out, std::move(out_counts), in, std::move(in_counts));
    });
  }
  PendingPtr all_reduce_sum(at::Tensor tensor) override {
    return over_mesh([&](Communicator& mesh) { return mesh.all_reduce_sum(tensor); });
  }
  Result<std::string> ask_first(const std::string& mine, size_t bytes,
                                const Answer& answer) override;
  WireBytes wire_bytes() const override {
    WireBytes sum;
    for (const auto& group : groups_) sum.add(group->wire_bytes());
    if (mesh_) sum.add(mesh_->wire_bytes());
    return sum;
  }
  void set_nodes(std::vector<int> node_of_rank) override {
    for (size_t l = 0; l < levels_.size(); ++l)
      groups_[l]->set_nodes(nodes_of(levels_[l], node_of_rank));
    if (mesh_) mesh_->set_nodes(node_of_rank);
    options_.node_of_rank = std::move(node_of_rank);
  }

 private:
  class Cargo;
  class Rows;
  class Merged;
  class Travel;

  bool is_one_group() const { return options_.size <= kFanIn; }

  template <typename Issue>
  PendingPtr over_mesh(Issue&& issue) {
    if (is_one_group()) return issue(*groups_.front());
    try {
      if (!mesh_) mesh_ = connect_gloo(options_, with_prefix("mesh", store_));
    } catch (const std::exception& e) {
      const std::string reason = e.what();
      return std::make_unique<Failed>(Error{
          Code::kPeerLost, text("connecting ", options_.size,
                                " ranks with each other: ", reason.substr(0, reason.find('\n')))});
    }
    return issue(*mesh_);
  }

  // Of a level: to its leader goes what of(me) is, and of(k) from each other member to its place.
  template <typename Of>
  PendingPtr to_leader(size_t l, Of&& of) {
    const Level& level = levels_[l];
    const int me = level.member(rank());
    std::vector<GlooGroup::Message> received, sent;
    if (me > 0) sent.push_back({0, of(me)});
    for (int k = 1; me == 0 && k < level.size; ++k) received.push_back({k, of(k)});
    return groups_[l]->messages("gather", received, sent, Traffic::kOther);
  }
  // One level of a rise. Rule 1. A rank without neighbours begins its first level where the others
  // of that group begin it, in their wait(): all messages of a group have one order.
  PendingPtr rise_in(size_t l, Cargo& cargo);
  // From the first level on, which has `begun`.
  Result<void> rise(PendingPtr begun, Cargo& cargo);
  // One level of texts that are `told`, packed, of no more than `most` bytes.
  Result<void> pass_up(size_t l, std::string& told, size_t most);
  // Rule 2.
  Result<void> descend(const at::Tensor& from_rank_0) {
    for (size_t l = levels_.size(); l-- > 0;) {
      const Level& level = levels_[l];
      const bool leads = level.member(rank()) == 0;
      std::vector<GlooGroup::Message> received, sent;
      if (!leads) received.push_back({0, from_rank_0});
      for (int k = 1; leads && k < level.size; ++k) sent.push_back({k, from_rank_0});
      LOCKSTEP_RETURN_IF_ERROR(
          groups_[l]->messages("spread", received, sent, Traffic::kOther)->wait());
    }
    return {};
  }

  GlooOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<Level> levels_;
  std::vector<std::unique_ptr<GlooGroup>> groups_;  // by level
  std::unique_ptr<GlooGroup> mesh_;                 // null: not used yet
  int64_t begun_ = 0, waited_for_ = 0;              // along the tree
};

// What rises.
class GlooTree::Cargo {
 public:
  virtual ~Cargo() = default;
  // What a member of the level tells of those that it speaks for, or where it goes.
  virtual at::Tensor of(const Level& level, int member) = 0;
  // To who leads: all members have told.
  virtual void came(const Level& /*level*/) {}
  // To rank 0: all ranks have.
  virtual void end() {}
};

// Of `n` bytes of each rank, each in its place.
class GlooTree::Rows : public Cargo {
 public:
  Rows(at::Tensor all, int64_t n, int world_size)
      : all_(std::move(all)), n_(n), world_size_(world_size) {}
  at::Tensor of(const Level& level, int member) override {
    return level.part(all_, n_, world_size_, member);
  }

 private:
  at::Tensor all_;
  int64_t n_, world_size_;
};

// Of words that are merged.
class GlooTree::Merged : public Cargo {
 public:
  Merged(const WordMerge& how, at::Tensor mine, at::Tensor answer, int rank, int world_size)
      : how_(how),
        so_far_(std::move(mine)),
        answer_(std::move(answer)),
        rank_(rank),
        world_size_(world_size) {}

  at::Tensor of(const Level& level, int member) override {
    if (level.rank_of(member) == rank_) return so_far_;
    const int first = level.rank_of(member);
    told_.push_back(at::empty({how_.words(first, end_of(level, member))}, at::kLong));
    return told_.back();
  }
  void came(const Level& level) override {
    for (int k = 1; k < level.size; ++k) {
      const int middle = level.rank_of(k), end = end_of(level, k);
      const at::Tensor joint = at::empty({how_.words(rank_, end)}, at::kLong);
      how_.merge(rank_, middle, end, words(so_far_), words(told_[static_cast<size_t>(k) - 1]),
                 words(joint));
      so_far_ = joint;
    }
    told_.clear();
  }
  void end() override { how_.answer(words(so_far_), words(answer_)); }

 private:
  int end_of(const Level& level, int member) const {
    return std::min(level.rank_of(member) + level.span, world_size_);
  }
  static WordMerge::Place words(const at::Tensor& t) {
    return {static_cast<uint64_t*>(t.data_ptr()), static_cast<size_t>(t.numel())};
  }

  const WordMerge& how_;
  at::Tensor so_far_, answer_;
  std::vector<at::Tensor> told_;  // by members 1 and on of a level
  int rank_, world_size_;
};

class GlooTree::Travel : public Pending {
 public:
  // `cargo` rises, if there is any, and then `told` goes from rank 0 to all. Neighbours hear of
  // each other at once; what follows, in groups of leaders, waits for wait().
  Travel(GlooTree& tree, std::unique_ptr<Cargo> cargo, at::Tensor told)
      : tree_(tree),
        cargo_(std::move(cargo)),
        told_(std::move(told)),
        number_(++tree_.begun_),
        first_(cargo_ && tree_.levels_.front().span == 1 ? tree_.rise_in(0, *cargo_) : nullptr) {}
  Result<void> wait() override {
    LOCKSTEP_CHECK(++tree_.waited_for_ == number_, number_, ": it was waited for out of order");
    if (cargo_) {
      if (!first_) first_ = tree_.rise_in(0, *cargo_);
      LOCKSTEP_RETURN_IF_ERROR(tree_.rise(std::move(first_), *cargo_));
      if (tree_.rank() == 0) cargo_->end();
    }
    return tree_.descend(told_);
  }

 private:
  GlooTree& tree_;
  std::unique_ptr<Cargo> cargo_;
  at::Tensor told_;
  int64_t number_;
  PendingPtr first_;
};

PendingPtr GlooTree::rise_in(size_t l, Cargo& cargo) {
  return to_leader(l, [&](int member) { return cargo.of(levels_[l], member); });
}

Result<void> GlooTree::rise(PendingPtr begun, Cargo& cargo) {
  for (size_t l = 0; l < levels_.size(); ++l) {
    if (l > 0) begun = rise_in(l, cargo);
    LOCKSTEP_RETURN_IF_ERROR(begun->wait());
    if (levels_[l].member(rank()) == 0) cargo.came(levels_[l]);
  }
  return {};
}

PendingPtr GlooTree::spread(at::Tensor tensor) {
  return std::make_unique<Travel>(*this, nullptr, std::move(tensor));
}

PendingPtr GlooTree::merge(const WordMerge& how, at::Tensor mine, at::Tensor answer) {
  LOCKSTEP_CHECK(merges(), world_size());
  auto cargo = std::make_unique<Merged>(how, std::move(mine), answer, rank(), world_size());
  return std::make_unique<Travel>(*this, std::move(cargo), std::move(answer));
}

PendingPtr GlooTree::all_gather(at::Tensor out, at::Tensor in, Traffic traffic) {
  if (is_one_group() || traffic != Traffic::kOther)
    return over_mesh([&](Communicator& mesh) { return mesh.all_gather(out, in, traffic); });
  const int64_t n = static_cast<int64_t>(in.nbytes());
  LOCKSTEP_CHECK(static_cast<int64_t>(out.nbytes()) == n * world_size(), out.nbytes(), " ", n);
  if (n == 0) return std::make_unique<Done>();
  LOCKSTEP_CHECK(out.is_contiguous() && in.is_contiguous(), "a gather of scattered memory");
  const at::Tensor all = out.view(-1).view(at::kByte);
  std::byte* const own = static_cast<std::byte*>(all.data_ptr()) + rank() * n;
  if (own != in.data_ptr()) std::memcpy(own, in.data_ptr(), static_cast<size_t>(n));
  return std::make_unique<Travel>(*this, std::make_unique<Rows>(all, n, world_size()), all);
}

Result<void> GlooTree::pass_up(size_t l, std::string& told, size_t most) {
  const Level& level = levels_[l];
  const int me = level.member(rank());
  const std::string sent = me > 0 ? packed(told) : "";
  const at::Tensor sizes = at::full({level.size}, std::ssize(sent), at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(
      to_leader(l, [&](int member) { return sizes.narrow(0, member, 1); })->wait());
  std::vector<at::Tensor> bodies;
  for (int k = 0; k < level.size; ++k) {
    const int64_t size = sizes.const_data_ptr<int64_t>()[k];
    if (size < 0 || size > static_cast<int64_t>(most)) return unreadable();
    bodies.push_back(at::empty({k == me || me == 0 ? size : 0}, at::kByte));
  }
  std::ranges::copy(sent, static_cast<char*>(bodies[static_cast<size_t>(me)].data_ptr()));
  LOCKSTEP_RETURN_IF_ERROR(
      to_leader(l, [&](int member) { return bodies[static_cast<size_t>(member)]; })->wait());
  for (size_t k = 1; me == 0 && k < bodies.size(); ++k) {
    LOCKSTEP_TRY(const std::string more, unpacked(bodies[k], most));
    told += more;
  }
  return {};
}

Result<std::string> GlooTree::ask_first(const std::string& mine, size_t bytes,
                                        const Answer& answer) {
  LOCKSTEP_CHECK(mine.size() <= bytes, mine.size(), " > ", bytes);
  std::string told = with_size(mine);
  for (size_t l = 0; l < levels_.size(); ++l)
    LOCKSTEP_RETURN_IF_ERROR(
        pass_up(l, told, kPackedAtMost * (kSizeBytes + bytes) * static_cast<size_t>(world_size())));
  std::string answered;
  if (rank() == 0) {
    LOCKSTEP_TRY(const auto words, without_sizes(told));
    if (std::ssize(words) != world_size()) return unreadable();
    answered = answer(words);
  }
  const at::Tensor size = at::full({1}, std::ssize(answered), at::kLong);
  LOCKSTEP_RETURN_IF_ERROR(descend(size));
  const int64_t answer_bytes = *size.const_data_ptr<int64_t>();
  const at::Tensor spread = at::empty({answer_bytes}, at::kByte);
  if (rank() == 0) std::memcpy(spread.data_ptr(), answered.data(), answered.size());
  LOCKSTEP_RETURN_IF_ERROR(descend(spread));
  return std::string(static_cast<const char*>(spread.data_ptr()),
                     static_cast<size_t>(answer_bytes));
}

}  // namespace

std::unique_ptr<TreeCommunicator> connect_tree(const GlooOptions& options,
                                               c10::intrusive_ptr<c10d::Store> store) {
  LOCKSTEP_CHECK(options.size > 1, options.size);
  return std::make_unique<GlooTree>(options, std::move(store));
}

}  // namespace lockstep::core
