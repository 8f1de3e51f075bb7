// The gradient norm's sum has the same bits for any number of ranks and any cut into units.
#include "layout/norm_tree.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <random>

namespace lockstep::layout {
namespace {

std::vector<double> some_squares(int64_t tiles) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> draw(0, 4);  // so that the order of additions shows
  std::vector<double> squares(static_cast<size_t>(tiles));
  for (double& s : squares) s = draw(random);
  return squares;
}

std::vector<ShardLayout> units(const std::vector<int64_t>& tiles, int world_size, int group) {
  std::vector<ShardLayout> list;
  for (const int64_t n : tiles) list.push_back(ShardLayout::create(n, world_size, {group, group}));
  return list;
}

// By its definition: halves of the next power of two.
double sum_by_halves(const std::vector<double>& all, size_t first, size_t count) {
  if (first >= all.size()) return 0;
  if (count == 1) return all[first];
  return sum_by_halves(all, first, count / 2) + sum_by_halves(all, first + count / 2, count / 2);
}

// What the ranks that own parts tell of their own tiles of `all`, by part.
std::vector<std::vector<double>> rows_of(const NormTree& tree,
                                         const std::vector<ShardLayout>& units,
                                         const std::vector<double>& all) {
  std::vector<std::vector<double>> rows;
  for (int part = 0; part < units.front().world_size; ++part) {
    const int rank = units.front().owner_of(part);
    std::vector<double> mine, row;
    int64_t first = 0;
    for (const ShardLayout& unit : units) {
      const auto begin = all.begin() + first + unit.first_tile(rank);
      mine.insert(mine.end(), begin, begin + unit.tile_count(rank));
      mine.resize(mine.size() + static_cast<size_t>(unit.tiles_per_rank - unit.tile_count(rank)));
      first += unit.tiles;
    }
    for (const SlotRun& node : tree.own_nodes(rank)) {
      EXPECT_TRUE(std::has_single_bit(static_cast<size_t>(node.count)));
      EXPECT_LE(node.end(), tree.tiles());
      row.push_back(
          sum_by_halves(mine, static_cast<size_t>(node.first), static_cast<size_t>(node.count)));
    }
    EXPECT_LE(std::ssize(row), tree.width());
    EXPECT_EQ(std::ssize(row), tree.nodes(part, part + 1));
    rows.push_back(std::move(row));
  }
  return rows;
}

// The nodes of parts [first, end), merged by runs that are cut anywhere.
std::vector<double> merged(const NormTree& tree, const std::vector<std::vector<double>>& rows,
                           int first, int end, std::mt19937_64& random) {
  if (end - first == 1) return rows[static_cast<size_t>(first)];
  const int middle = first + 1 + static_cast<int>(random() % static_cast<size_t>(end - first - 1));
  std::vector<double> out(static_cast<size_t>(tree.nodes(first, end)));
  tree.merge(first, middle, end, merged(tree, rows, first, middle, random),
             merged(tree, rows, middle, end, random), out);
  return out;
}

double sum_by_ranks(const std::vector<ShardLayout>& units, const std::vector<double>& all) {
  static std::mt19937_64 random(11);
  const NormTree tree(units);
  return tree.total(merged(tree, rows_of(tree, units, all), 0, units.front().world_size, random));
}

TEST(NormTree, HasTheSameBitsForAnyRanksAndUnits) {
  const std::vector<std::vector<int64_t>> cuts{
      {93}, {1, 92}, {5, 3, 64, 20, 1}, {31, 31, 31}, {8, 8, 77}};
  const std::vector<double> all = some_squares(93);
  const double expected = sum_by_halves(all, 0, 128);
  EXPECT_NE(expected, std::accumulate(all.begin(), all.end(), 0.0)) << "the order does not show";
  for (const auto& cut : cuts)
    for (int w = 1; w <= 9; ++w)
      for (int s = 1; s <= w; ++s)
        if (w % s == 0) {
          EXPECT_EQ(sum_by_ranks(units(cut, w, s), all), expected) << "W = " << w << ", S = " << s;
        }
}

// Llama 3 70B on 1,024 ranks: a rank tells a few kilobytes, where a double a tile is 134 kB, and
// what comes to it does not grow with the ranks.
TEST(NormTree, TellsFewNumbers) {
  std::vector<int64_t> tiles(80, 208'966);
  tiles.push_back(256'512);
  tiles.push_back(256'514);
  const NormTree tree(units(tiles, 1024, 1024));
  EXPECT_EQ(tree.tiles(), 80 * 205 + 2 * 251);
  EXPECT_LE(tree.width(), 82 * 2 * 8);
  const NormTree alone(units(tiles, 1, 1));
  EXPECT_LE(alone.width(), 82 * 2 * 18);
  const NormTree in_nodes(units(tiles, 1024, 8)), in_more(units(tiles, 4096, 8));
  EXPECT_LE(in_nodes.heard(8), 16 * 82 * 2 * 15);
  EXPECT_LE(in_more.heard(8), 16 * 82 * 2 * 15);
}

TEST(NormTree, NothingIsTrained) {
  const NormTree tree(std::vector<ShardLayout>{});
  EXPECT_EQ(tree.tiles(), 0);
  EXPECT_EQ(tree.total({}), 0);
}

}  // namespace
}  // namespace lockstep::layout
