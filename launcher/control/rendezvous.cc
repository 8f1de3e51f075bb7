#include "launcher/control/rendezvous.h"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

#include "base/hash.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr const char kCoordinator[] = "coordinator", kSucceeds[] = "succeeds";
constexpr int kReadTries = 100;

// Makes `path` with `contents`; false when it is there already, whoever made it.
Result<bool> make_once(FileSystem& file_system, const std::filesystem::path& path,
                       const std::string& contents) {
  const std::filesystem::path own =
      path.string() + "." + hex64(xxh3_64(contents)) + text(".", ::getpid());
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, own, contents));
  const int linked = ::link(own.c_str(), path.c_str());
  const int error = errno;
  LOCKSTEP_RETURN_IF_ERROR(file_system.remove(own));
  if (linked == 0) {
    LOCKSTEP_RETURN_IF_ERROR(file_system.sync_directory(path.parent_path()));
    return true;
  }
  if (error == EEXIST) return false;
  return Error{Code::kIo, text(path.string(), ": link: ", std::strerror(error))};
}

// Only what is safe in a file's name.
std::string file_name(const std::string& job) {
  std::string name;
  for (const char c : job) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                       (c >= '0' && c <= '9') || c == '-' || c == '_';
    name += plain ? c : '_';
  }
  return name.empty() ? "job" : name;
}

uint64_t number_of(const std::string& hex) {
  uint64_t number = 0;
  std::from_chars(hex.data(), hex.data() + hex.size(), number, 16);
  return number;
}

}  // namespace

Result<Rendezvous> Rendezvous::create(FileSystem& file_system, const std::string& words,
                                      const std::string& job,
                                      const std::filesystem::path& folder) {
  constexpr std::string_view kFile = "file:";
  const bool in_file = words.empty() || words.starts_with(kFile);
  const bool named = in_file && words.size() > kFile.size();
  Rendezvous rendezvous(file_system, file_name(job),
                        named ? std::filesystem::path(words.substr(kFile.size())) : folder);
  if (!in_file) {
    LOCKSTEP_TRY(const net::Endpoint at, net::parse_endpoint(words));
    auto resolved = net::resolved(at);
    if (!resolved)
      return Error{resolved.error().code,
                   text("--rdzv-endpoint ", words, ": ", resolved.error().message)};
    rendezvous.fixed_ = std::move(resolved).value();
  }
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(rendezvous.folder_));
  return rendezvous;
}

std::filesystem::path Rendezvous::file(int64_t number) const {
  return folder_ / text(job_, ".", kCoordinator, ".", number);
}

std::string Rendezvous::locks_of(uint64_t run) const {
  return text(job_, ".", kSucceeds, ".", hex64(run), ".");
}

Result<Rendezvous::Found> Rendezvous::newest() const {
  Found found;
  LOCKSTEP_TRY(const auto names, file_system_->list(folder_));
  const std::string start = text(job_, ".", kCoordinator, ".");
  for (const std::string& name : names) {
    if (!name.starts_with(start)) continue;
    int64_t number = -1;
    const char* end = name.data() + name.size();
    const auto [last, error] = std::from_chars(name.data() + start.size(), end, number);
    if (error == std::errc{} && last == end) found.number = std::max(found.number, number);
  }
  if (found.number < 0) {
    if (fixed_) found.at = *fixed_;
    return found;
  }
  const auto contents = read_file(*file_system_, file(found.number));
  if (!contents && contents.error().code != Code::kNotFound) return contents.error();
  if (!contents) return found;
  found.words = contents.value();
  const auto words = split(found.words, ' ');
  LOCKSTEP_TRY(found.at, net::parse_endpoint(words.front()));
  if (words.size() > 1) found.began = number_of(words[1]);
  if (words.size() > 2) found.run = number_of(words[2]);
  return found;
}

Result<bool> Rendezvous::is_newest() const {
  LOCKSTEP_TRY(const Found found, newest());
  return found.number == claimed_;
}

Result<bool> Rendezvous::beat() {
  LOCKSTEP_TRY(const bool newest, is_newest());
  // Of one that leads a training already: who came since has not begun another.
  if (!newest) return leads_ ? succeed(leads_->in_place_of, leads_->at) : false;
  ++beats_;
  LOCKSTEP_RETURN_IF_ERROR(publish_file(*file_system_, file(claimed_), contents()));
  return true;
}

Result<bool> Rendezvous::claim(int64_t number, const net::Endpoint& at) {
  LOCKSTEP_TRY(const uint64_t run, run_of_newest());
  return make(number, at, 0, run);
}

Result<bool> Rendezvous::begin(uint64_t node, const net::Endpoint& at) {
  LOCKSTEP_TRY(const bool newest, is_newest());
  if (!newest) return false;
  LOCKSTEP_TRY(const bool mine, make(claimed_ + 1, at, node, node));
  if (mine) leads_ = Leads{node, at};
  return mine;
}

Result<bool> Rendezvous::succeed(uint64_t lost, const net::Endpoint& at) {
  while (true) {
    LOCKSTEP_TRY(const Found found, newest());
    if (found.began != 0 && found.began != lost) return false;
    LOCKSTEP_TRY(const bool mine, make(found.number + 1, at, 0, found.run));
    if (!mine) continue;
    leads_ = Leads{lost, at};
    return true;
  }
}

Result<bool> Rendezvous::make(int64_t number, const net::Endpoint& at, uint64_t began,
                              uint64_t run) {
  const std::string said = text(at.str(), " ", hex64(began), " ", hex64(run));
  LOCKSTEP_TRY(const bool mine, make_once(*file_system_, file(number), text(said, " ", 0)));
  if (!mine) return false;
  said_ = said;
  beats_ = 0;
  run_ = run;
  claimed_ = number;
  if (number > 0) (void)file_system_->remove(file(number - 1));
  return true;
}

void Rendezvous::withdraw() {
  if (claimed_ < 0) return;
  // Who has been succeeded leaves the locks to its successor.
  const auto newest = is_newest();
  const auto names = file_system_->list(folder_);
  if (newest && newest.value() && names)
    for (const std::string& name : names.value())
      if (name.starts_with(locks_of(run_))) (void)file_system_->remove(folder_ / name);
  (void)file_system_->remove(file(claimed_));
  claimed_ = -1;
  leads_.reset();
}

// A file that goes while it is read was succeeded: the next one says the same run.
Result<uint64_t> Rendezvous::run_of_newest() const {
  for (int i = 0; i < kReadTries; ++i) {
    LOCKSTEP_TRY(const Found found, newest());
    if (found.number < 0 || found.at.port != 0) return found.run;
  }
  return Error{Code::kIo, text(folder_.string(), ": nothing that it lists can be read")};
}

Result<bool> Rendezvous::lock(int64_t generation, uint64_t node) {
  LOCKSTEP_TRY(const uint64_t run, run_of_newest());
  const auto path = folder_ / text(locks_of(run), generation);
  LOCKSTEP_TRY(const bool mine, make_once(*file_system_, path, hex64(node)));
  if (mine) return true;
  LOCKSTEP_TRY(const std::string owner, read_file(*file_system_, path));
  return owner == hex64(node);
}

}  // namespace lockstep::launcher::control
