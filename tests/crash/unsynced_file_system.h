// A disk in memory that can lose its power. A process sees what was written at once; what survives
// is what was synced: a file's bytes by its sync(), a name by sync_directory() of its directory.
//
//   lose_power()      nothing survives that was not synced
//   lose_power(seed)  each name and each block that was not synced survives or not, by a coin: a
//                     kernel writes back what it likes, in any order
//
// Thread-safe. Requires: no file is open when the power is lost.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/file_system.h"

namespace lockstep::test_support {

class UnsyncedFileSystem final : public FileSystem {
 public:
  UnsyncedFileSystem();
  // A disk with the same contents, of its own from then on.
  std::unique_ptr<UnsyncedFileSystem> copy() const;
  void lose_power(std::optional<uint64_t> seed = {});

  Result<std::unique_ptr<File>> create(const Path& path) override;
  Result<std::unique_ptr<File>> open(const Path& path) override;
  Result<void> make_directories(const Path& path) override;
  Result<void> rename(const Path& from, const Path& to) override;
  Result<void> remove(const Path& path) override;
  Result<std::vector<std::string>> list(const Path& directory) override;
  Result<void> sync_directory(const Path& directory) override;
  bool exists(const Path& path) override;
  bool is_link(const Path&) override { return false; }  // it makes none
  Result<int64_t> free_bytes(const Path&) override { return int64_t{1} << 40; }

 private:
  struct Node;
  struct MemoryFile;
  class Coin;
  using NodePtr = std::shared_ptr<Node>;
  using Names = std::map<std::string, NodePtr>;

  Node* find(const Path& path) const;  // nullptr: none
  static NodePtr clone(const Node& node, std::map<const Node*, NodePtr>& done);
  static void settle(Node& node, Coin& coin, std::set<const Node*>& done);

  mutable std::mutex mutex_;
  NodePtr root_;
};

}  // namespace lockstep::test_support
