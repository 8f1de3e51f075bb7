// A table of words for a terminal: the first column on the left, the others beside it, each as wide
// as it must be.
#pragma once

#include <string>
#include <vector>

namespace lockstep::cli {

class TextTable {
 public:
  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  void rule() { rows_.push_back({}); }  // a line across
  std::string str() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::cli
