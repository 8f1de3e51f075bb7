#include "core/comm/tree_communicator.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/text.h"
#include "core/comm/gather_strings.h"
#include "core/comm/word_merge.h"
#include "tests/support/known_messages.h"

namespace lockstep::core {
namespace {

constexpr double kTreePatience_s = 120;

GlooOptions place(int rank, int size) {
  GlooOptions o;
  o.rank = rank;
  o.size = size;
  for (int r = 0; r < size; ++r) o.node_of_rank.push_back(r / 2);
  o.interface = "lo";
  o.threads = 1;
  o.init_timeout_s = o.timeout_s = kTreePatience_s;
  return o;
}

// Runs f(tree) on each of `size` ranks, threads of this process. Returns the keys of their store.
template <typename F>
int64_t on_tree_ranks(int size, F f) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> ranks;
  for (int r = 0; r < size; ++r)
    ranks.emplace_back([&, r] { f(connect_tree(place(r, size), store)); });
  for (std::thread& rank : ranks) rank.join();
  return store->getNumKeys();
}

void expect_arrives(Issued issued) {
  ASSERT_TRUE(issued.pending->wait().ok());
  EXPECT_TRUE(at::equal(issued.out, issued.expected));
}

// A rank's own group, two levels, a rank without neighbours, a last group that is not full, three
// levels.
const std::vector<int> kSizes = {2, 8, 9, 12, 16, 64, 74};

TEST(Tree, AGatherBringsAllToAll) {
  for (const int size : kSizes)
    on_tree_ranks(size, [](std::unique_ptr<TreeCommunicator> tree) {
      for (int number = 0; number < 4; ++number) expect_arrives(gather(*tree, number, number));
      // Its own place as its input, and of more dimensions than one.
      at::Tensor all = at::zeros({tree->world_size(), 3}, at::kDouble);
      const at::Tensor own = all.narrow(0, tree->rank(), 1).fill_(tree->rank() + 0.5);
      ASSERT_TRUE(tree->all_gather(all, own)->wait().ok());
      for (int r = 0; r < tree->world_size(); ++r) EXPECT_EQ(all[r][2].item<double>(), r + 0.5);
    });
}

TEST(Tree, GathersOverlap) {
  for (const int size : {9, 10, 65})  // the last of 9 and of 65 has no neighbours
    on_tree_ranks(size, [](std::unique_ptr<TreeCommunicator> tree) {
      Issued first = gather(*tree, 5, 1), second = gather(*tree, 7, 2);
      expect_arrives(std::move(first));
      Issued third = gather(*tree, 3, 3);
      expect_arrives(std::move(second));
      expect_arrives(std::move(third));
    });
}

TEST(Tree, RankZeroAloneHearsAllAndAllGetItsAnswer) {
  for (const int size : kSizes) {
    std::atomic<int> asked = 0;
    on_tree_ranks(size, [&](std::unique_ptr<TreeCommunicator> tree) {
      const auto answer = [&](const std::vector<std::string>& words) {
        ++asked;
        EXPECT_EQ(tree->rank(), 0);
        std::string all;
        for (const std::string& one : words) all += text(one.c_str(), " ");
        return all;
      };
      std::string expected;
      for (int r = 0; r < tree->world_size(); ++r) expected += text("rank", r, " ");
      for (int times = 0; times < 2; ++times) {
        auto said = tree->ask_first(text("rank", tree->rank()), 10, answer);
        ASSERT_TRUE(said.ok()) << said.error().message;
        EXPECT_EQ(*said, expected);
      }
    });
    EXPECT_EQ(asked, 2);
  }
}

// Of an answer of 1000 bytes, and of 500 from each rank, alike but for ten: rank 0 hears of those
// of all, a leader of those of its neighbours, and everybody else the answer alone.
TEST(Tree, WhatARankHearsDoesNotDependOnTheNumberOfRanks) {
  for (const int size : {16, 74})
    on_tree_ranks(size, [](std::unique_ptr<TreeCommunicator> tree) {
      const int rank = tree->rank(), ranks = tree->world_size();
      const std::string alike(490, 'a');
      const auto mine = [&](int of) { return alike + text(1000000000 + of * 7919); };
      const auto answer = [&](const auto& words) {
        for (int r = 0; r < ranks; ++r) EXPECT_EQ(words[static_cast<size_t>(r)], mine(r));
        return std::string(1000, 'a');
      };
      ASSERT_TRUE(tree->ask_first(mine(rank), 500, answer).ok());
      const int64_t heard = tree->wire_bytes().total().all, said = 1000 + sizeof(int64_t);
      const int64_t own = rank == 0 ? 0 : said;
      const int64_t others = rank == 0 ? 80 * ranks : rank == 8 ? 80 * 7 : 0;
      if (rank < 16) {
        EXPECT_GE(heard, own);
        EXPECT_LE(heard, own + others);
      }
    });
}

TEST(Tree, BytesAreOfTheRankThatTheyCameFrom) {
  on_tree_ranks(12, [](std::unique_ptr<TreeCommunicator> tree) {
    tree->set_nodes({0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1});
    const at::Tensor all = at::zeros({12}, at::kLong), own = at::zeros({1}, at::kLong);
    ASSERT_TRUE(tree->all_gather(all, own)->wait().ok());
    const WireBytes::Count other = tree->wire_bytes().other;
    const int rank = tree->rank();
    EXPECT_EQ(other.all, rank == 0 ? 11 * 8 : rank == 8 ? 3 * 8 + 12 * 8 : 12 * 8);
    EXPECT_EQ(other.other_nodes, rank == 0 ? 4 * 8 : rank == 8 ? 12 * 8 : 0);
  });
}

// Ranks and what each tells, in order; of a rank that is a multiple of three nothing. Nothing but
// ranks that follow each other is merged.
class Listing : public WordMerge {
 public:
  explicit Listing(int world_size) : world_size_(world_size) {}
  static std::vector<uint64_t> of(int rank, uint64_t word) {
    if (rank % 3 == 0) return {};
    return {static_cast<uint64_t>(rank), word};
  }
  int64_t words(int first, int end) const override {
    int64_t words = 0;
    for (int r = first; r < end; ++r) words += r % 3 == 0 ? 0 : 2;
    return words;
  }
  int64_t most_words() const override { return 2; }
  void merge(int first, int middle, int end, Words before, Words others, Place out) const override {
    EXPECT_LT(first, middle);
    EXPECT_LT(middle, end);
    EXPECT_EQ(std::ssize(before), words(first, middle));
    EXPECT_EQ(std::ssize(others), words(middle, end));
    EXPECT_EQ(std::ssize(out), words(first, end));
    std::ranges::copy(others, std::ranges::copy(before, out.begin()).out);
  }
  int64_t answer_words() const override { return words(0, world_size_) + 1; }
  void answer(Words all, Place out) const override {
    *std::ranges::copy(all, out.begin()).out = 77;
  }

 private:
  int world_size_;
};

TEST(Tree, WordsMergeInTheOrderOfRanksAndAllGetTheAnswer) {
  for (const int size : kSizes)
    on_tree_ranks(size, [size](std::unique_ptr<TreeCommunicator> tree) {
      const Listing list(size);
      const WordSum sum(3);
      const uint64_t me = static_cast<uint64_t>(tree->rank());
      for (uint64_t times = 0; times < 2; ++times) {  // two and a gather under way at once
        MergedWords listed(*tree, list, Listing::of(tree->rank(), me * me + times));
        Issued between = gather(*tree, 3, 1);
        MergedWords summed(*tree, sum, {me, ~uint64_t{0}, times});
        std::vector<uint64_t> expected;
        for (int r = 0; r < size; ++r)
          std::ranges::copy(Listing::of(r, static_cast<uint64_t>(r * r) + times),
                            std::back_inserter(expected));
        expected.push_back(77);
        const auto ranks = static_cast<uint64_t>(size);
        EXPECT_EQ(listed.wait().value(), expected);
        expect_arrives(std::move(between));
        EXPECT_EQ(summed.wait().value(),
                  (std::vector<uint64_t>{ranks * (ranks - 1) / 2, 0 - ranks, times * ranks}));
      }
    });
}

// A leader hears its seven neighbours, the first of them the other leaders as well, and everybody
// else the answer alone.
TEST(Tree, WhatARankHearsOfWordsThatMergeDoesNotDependOnTheNumberOfRanks) {
  for (const int size : {16, 74})
    on_tree_ranks(size, [size](std::unique_ptr<TreeCommunicator> tree) {
      const WordSum sum(100);
      ASSERT_TRUE(MergedWords(*tree, sum, std::vector<uint64_t>(100)).wait().ok());
      const int64_t heard = tree->wire_bytes().total().all / 800;
      const int rank = tree->rank();
      EXPECT_EQ(heard, rank == 0       ? (size == 16 ? 7 + 1 : 7 + 7 + 1)
                       : rank == 64    ? 1 + 1 + 7
                       : rank == 72    ? 1 + 1
                       : rank % 8 == 0 ? 7 + 1
                                       : 1);
    });
}

// Rank 0 says nothing as long as it has nothing to say (core/train/run_inputs.cc).
TEST(Tree, AStringOfTheFirstComesToAllOfAnySize) {
  for (const int size : kSizes)
    on_tree_ranks(size, [](std::unique_ptr<TreeCommunicator> tree) {
      for (const std::string& said : {std::string(), std::string(5000, 's'), std::string()})
        EXPECT_EQ(string_of_first(*tree, tree->rank() == 0 ? said : "mine").value(), said);
    });
}

int64_t two_or_none(int from, int to, int number) { return (from + to + number) % 2 * 2; }

// The mesh of all is made for what is not small, and not before.
TEST(Tree, WhatAnyRankHasForAnyOtherOneGoesOverAMeshThatIsMadeThen) {
  constexpr int kRanks = 10, kGroups = 2;
  EXPECT_EQ(on_tree_ranks(kRanks,
                          [](std::unique_ptr<TreeCommunicator> tree) {
                            expect_arrives(gather(*tree, 100, 1));
                          }),
            8 + 2 + kGroups);
  EXPECT_EQ(on_tree_ranks(kRanks,
                          [](std::unique_ptr<TreeCommunicator> tree) {
                            expect_arrives(exchange(*tree, two_or_none, 1));
                            expect_arrives(exchange(*tree, two_or_none, 2));
                            const at::Tensor sum = at::full({3}, tree->rank(), at::kFloat);
                            ASSERT_TRUE(tree->all_reduce_sum(sum)->wait().ok());
                            EXPECT_EQ(sum[2].item<float>(), 45);
                            const at::Tensor all = at::zeros({kRanks}), own = at::full({1}, 2.0);
                            ASSERT_TRUE(tree->all_gather(all, own, Traffic::kGather)->wait().ok());
                            EXPECT_EQ(all[kRanks - 1].item<float>(), 2);
                            EXPECT_EQ(tree->wire_bytes().gather.all, 4 * (kRanks - 1));
                          }),
            8 + 2 + kGroups + kRanks);
}

// Rule 3: a rank that leaves ends the waits of all, each of whom leaves in its turn.
TEST(Tree, ARankThatLeavesEndsTheWaitsOfAll) {
  for (const bool merges : {false, true})
    for (const int lost : {0, 5, 8, 9}) {
      std::atomic<int> ended = 0;
      on_tree_ranks(20, [&](std::unique_ptr<TreeCommunicator> tree) {
        expect_arrives(gather(*tree, 10, 1));
        if (tree->rank() == lost) return;
        const WordSum sum(1);
        const auto ends = [&](const auto& done) {
          if (done.ok()) return;
          EXPECT_EQ(done.error().code, Code::kPeerLost);
          ++ended;
        };
        if (merges)
          ends(MergedWords(*tree, sum, {1}).wait());
        else
          ends(gather(*tree, 10, 2).pending->wait());
      });
      EXPECT_EQ(ended, 19) << lost << merges;
    }
}

}  // namespace
}  // namespace lockstep::core
