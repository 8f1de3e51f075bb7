#include "tests/crash/unsynced_file_system.h"

#include <algorithm>
#include <cstring>

#include "base/hash.h"
#include "base/text.h"

namespace lockstep::test_support {
namespace {

using Path = FileSystem::Path;

Error not_found(const Path& path) {
  return {Code::kNotFound, text(path.string(), ": No such file or directory")};
}

}  // namespace

struct UnsyncedFileSystem::Node {
  bool directory = false;
  std::vector<std::byte> bytes, kept_bytes;  // now; after a loss of power
  Names names, kept_names;
};

// Whether something that was not synced survives.
class UnsyncedFileSystem::Coin {
 public:
  explicit Coin(std::optional<uint64_t> seed) : seed_(seed) {}
  bool toss() { return seed_ && mix64(*seed_ + 0x9e3779b97f4a7c15ULL * ++tosses_) >> 63 != 0; }

 private:
  const std::optional<uint64_t> seed_;
  uint64_t tosses_ = 0;
};

struct UnsyncedFileSystem::MemoryFile final : File {
  MemoryFile(std::mutex& of_disk, NodePtr of) : mutex(of_disk), node(std::move(of)) {}
  Result<void> write_at(std::span<const std::byte> from, int64_t offset) override {
    const std::lock_guard lock(mutex);
    const size_t end = static_cast<size_t>(offset) + from.size();
    if (node->bytes.size() < end) node->bytes.resize(end);
    std::copy(from.begin(), from.end(), node->bytes.begin() + offset);
    return {};
  }
  Result<void> read_at(std::span<std::byte> into, int64_t offset) override {
    const std::lock_guard lock(mutex);
    if (static_cast<size_t>(offset) + into.size() > node->bytes.size())
      return Error{Code::kCorrupt, "the file ends before that"};
    std::copy_n(node->bytes.begin() + offset, into.size(), into.begin());
    return {};
  }
  Result<int64_t> size_bytes() override {
    const std::lock_guard lock(mutex);
    return static_cast<int64_t>(node->bytes.size());
  }
  Result<void> truncate(int64_t size_bytes) override {
    const std::lock_guard lock(mutex);
    node->bytes.resize(static_cast<size_t>(size_bytes));
    return {};
  }
  Result<void> sync() override {
    const std::lock_guard lock(mutex);
    node->kept_bytes = node->bytes;
    return {};
  }
  void start_writeback(int64_t, int64_t) override {}

  std::mutex& mutex;
  const NodePtr node;
};

UnsyncedFileSystem::UnsyncedFileSystem() : root_(std::make_shared<Node>()) {
  root_->directory = true;
}

UnsyncedFileSystem::NodePtr UnsyncedFileSystem::clone(const Node& node,
                                                      std::map<const Node*, NodePtr>& done) {
  NodePtr& twin = done[&node];
  if (twin) return twin;
  twin = std::make_shared<Node>(node);
  const NodePtr result = twin;  // the map may move
  for (Names* const names : {&result->names, &result->kept_names})
    for (auto& [name, child] : *names) child = clone(*child, done);
  return result;
}

std::unique_ptr<UnsyncedFileSystem> UnsyncedFileSystem::copy() const {
  const std::lock_guard lock(mutex_);
  auto twin = std::make_unique<UnsyncedFileSystem>();
  std::map<const Node*, NodePtr> done;
  twin->root_ = clone(*root_, done);
  return twin;
}

void UnsyncedFileSystem::settle(Node& node, Coin& coin, std::set<const Node*>& done) {
  constexpr size_t kBlock = 4096;
  if (!done.insert(&node).second) return;
  Names both = node.names;
  both.insert(node.kept_names.begin(), node.kept_names.end());
  for (const auto& [name, ignored] : both) {
    const auto now = node.names.find(name), kept = node.kept_names.find(name);
    const NodePtr a = now != node.names.end() ? now->second : nullptr;
    const NodePtr b = kept != node.kept_names.end() ? kept->second : nullptr;
    const NodePtr left = a == b || coin.toss() ? a : b;
    if (left)
      node.kept_names[name] = left;
    else
      node.kept_names.erase(name);
  }
  node.names = node.kept_names;
  for (auto& [name, child] : node.names) settle(*child, coin, done);
  if (node.bytes == node.kept_bytes) return;
  if (coin.toss()) node.kept_bytes.resize(node.bytes.size());
  for (size_t at = 0; at < std::min(node.bytes.size(), node.kept_bytes.size()); at += kBlock) {
    const size_t end = std::min({at + kBlock, node.bytes.size(), node.kept_bytes.size()});
    if (coin.toss()) std::memcpy(&node.kept_bytes[at], &node.bytes[at], end - at);
  }
  node.bytes = node.kept_bytes;
}

void UnsyncedFileSystem::lose_power(std::optional<uint64_t> seed) {
  const std::lock_guard lock(mutex_);
  Coin coin(seed);
  std::set<const Node*> done;
  settle(*root_, coin, done);
}

UnsyncedFileSystem::Node* UnsyncedFileSystem::find(const Path& path) const {
  Node* at = root_.get();
  for (const Path& part : path.relative_path()) {
    if (part.empty()) continue;
    const auto child = at->names.find(part.string());
    if (child == at->names.end()) return nullptr;
    at = child->second.get();
  }
  return at;
}

Result<std::unique_ptr<File>> UnsyncedFileSystem::create(const Path& path) {
  const std::lock_guard lock(mutex_);
  Node* const parent = find(path.parent_path());
  if (parent == nullptr || !parent->directory) return not_found(path);
  NodePtr& node = parent->names[path.filename().string()];
  if (!node) node = std::make_shared<Node>();
  if (node->directory) return Error{Code::kIo, text(path.string(), ": Is a directory")};
  node->bytes.clear();
  return std::unique_ptr<File>(std::make_unique<MemoryFile>(mutex_, node));
}

Result<std::unique_ptr<File>> UnsyncedFileSystem::open(const Path& path) {
  const std::lock_guard lock(mutex_);
  Node* const parent = find(path.parent_path());
  if (parent == nullptr || !parent->names.contains(path.filename().string()))
    return not_found(path);
  return std::unique_ptr<File>(
      std::make_unique<MemoryFile>(mutex_, parent->names[path.filename().string()]));
}

Result<void> UnsyncedFileSystem::make_directories(const Path& path) {
  const std::lock_guard lock(mutex_);
  Node* at = root_.get();
  for (const Path& part : path.relative_path()) {
    NodePtr& child = at->names[part.string()];
    if (!child) {
      child = std::make_shared<Node>();
      child->directory = true;
    }
    at = child.get();
  }
  return {};
}

Result<void> UnsyncedFileSystem::rename(const Path& from, const Path& to) {
  const std::lock_guard lock(mutex_);
  Node* const old_parent = find(from.parent_path());
  Node* const new_parent = find(to.parent_path());
  if (find(from) == nullptr || new_parent == nullptr) return not_found(from);
  new_parent->names[to.filename().string()] = old_parent->names[from.filename().string()];
  old_parent->names.erase(from.filename().string());
  return {};
}

Result<void> UnsyncedFileSystem::remove(const Path& path) {
  const std::lock_guard lock(mutex_);
  const Node* const node = find(path);
  if (node == nullptr) return not_found(path);
  if (!node->names.empty()) return Error{Code::kIo, text(path.string(), ": Directory not empty")};
  find(path.parent_path())->names.erase(path.filename().string());
  return {};
}

Result<std::vector<std::string>> UnsyncedFileSystem::list(const Path& directory) {
  const std::lock_guard lock(mutex_);
  const Node* const node = find(directory);
  if (node == nullptr) return not_found(directory);
  std::vector<std::string> names;
  for (const auto& [name, ignored] : node->names) names.push_back(name);
  return names;
}

Result<void> UnsyncedFileSystem::sync_directory(const Path& directory) {
  const std::lock_guard lock(mutex_);
  Node* const node = find(directory);
  if (node == nullptr) return not_found(directory);
  node->kept_names = node->names;
  return {};
}

bool UnsyncedFileSystem::exists(const Path& path) {
  const std::lock_guard lock(mutex_);
  return find(path) != nullptr;
}

}  // namespace lockstep::test_support
