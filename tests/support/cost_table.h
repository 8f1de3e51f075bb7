// What an operation costs for several numbers of ranks W, and how it grows: cost = a * W^exponent,
// by least squares on logarithms. One row for the mean of all ranks, one for the busiest of them.
#pragma once

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/counting_file_system.h"

namespace lockstep::test_support {

class CostTable {
 public:
  // Of one operation at one W: a tally of each rank.
  void add(const std::string& operation, int64_t ranks, const std::vector<const Tally*>& tallies) {
    for (size_t c = 0; c < kCosts; ++c) {
      int64_t sum = 0, most = 0;
      for (const Tally* tally : tallies) {
        sum += tally->of(static_cast<Cost>(c));
        most = std::max(most, tally->of(static_cast<Cost>(c)));
      }
      Row& row = rows_[{operation, c}];
      row.mean[ranks] = static_cast<double>(sum) / static_cast<double>(ranks);
      row.busiest[ranks] = static_cast<double>(most);
    }
  }

  // The largest exponent of the operation's costs, and of which.
  struct Growth {
    double exponent = 0;
    std::string what;
  };
  using Excused = std::vector<Cost>;
  Growth mean_growth(const std::string& operation, const Excused& excused = {}) const {
    return growth(operation, &Row::mean, excused);
  }
  Growth busiest_growth(const std::string& operation, const Excused& excused = {}) const {
    return growth(operation, &Row::busiest, excused);
  }

  // As docs/SCALING.md has it.
  void print(std::ostream& out) const {
    std::string head = "| operation | cost | place |", line = "| --- | --- | --- |";
    for (const auto& [ranks, ignored] : rows_.begin()->second.mean) {
      head += text(" W = ", ranks, " |");
      line += " --- |";
    }
    out << head << " exponent |\n" << line << " --- |\n";
    for (const auto& [key, row] : rows_)
      for (const auto& [place, counts] :
           {std::pair{"mean of the ranks", &row.mean}, std::pair{"busiest rank", &row.busiest}}) {
        if (row.busiest.rbegin()->second == 0) continue;
        out << "| " << key.first << " | " << kCostNames[key.second] << " | " << place << " |";
        for (const auto& [ranks, n] : *counts) out << " " << number(n) << " |";
        out << " " << fixed(exponent(*counts), 2) << " |\n";
      }
  }

 private:
  using Counts = std::map<int64_t, double>;  // by W
  struct Row {
    Counts mean, busiest;
  };

  static std::string number(double n) { return fixed(n, n < 10 && n != std::floor(n) ? 1 : 0); }
  static double exponent(const Counts& counts) {
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;
    for (const auto& [ranks, count] : counts) {
      if (count <= 0) continue;
      const double lx = std::log(static_cast<double>(ranks)), ly = std::log(count);
      n += 1, x += lx, y += ly, xx += lx * lx, xy += lx * ly;
    }
    return n < 2 ? 0 : (n * xy - x * y) / (n * xx - x * x);
  }
  Growth growth(const std::string& operation, Counts Row::*place, const Excused& excused) const {
    Growth worst{-1e9, "nothing"};
    for (const auto& [key, row] : rows_) {
      const bool counts =
          std::find(excused.begin(), excused.end(), static_cast<Cost>(key.second)) == excused.end();
      if (key.first != operation || !counts) continue;
      if (const double e = exponent(row.*place); e > worst.exponent)
        worst = {e, kCostNames[key.second]};
    }
    return worst;
  }

  std::map<std::pair<std::string, size_t>, Row> rows_;
};

}  // namespace lockstep::test_support
