#include "launcher/control/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"

namespace lockstep::launcher::control {
namespace {

constexpr const char kCoordinator[] = "coordinator";
constexpr int64_t kMostNumber = int64_t{1} << 48;  // of a file; a larger one is a stranger's
constexpr int kReadTries = 100;
constexpr int64_t kReadPauseNs = 10'000'000;
constexpr int kEndTries = 10;
constexpr int64_t kEndPauseNs = 250'000'000;

// Makes `path` with `contents`. False: it is there already, whoever made it.
Result<bool> make_once(FileSystem& file_system, const std::filesystem::path& path,
                       const std::string& contents) {
  const std::filesystem::path own =
      path.string() + "." + hex64(xxh3_64(contents)) + text(".", ::getpid());
  const auto written = [&]() -> Result<void> {
    LOCKSTEP_TRY(const auto file, file_system.create(own));
    LOCKSTEP_RETURN_IF_ERROR(file->write_at(as_bytes(contents), 0));
    return file->sync();  // an error must come now
  }();
  const bool linked = written && ::link(own.c_str(), path.c_str()) == 0;
  const int error = errno;
  (void)file_system.remove(own);
  LOCKSTEP_RETURN_IF_ERROR(written);
  if (linked) return true;
  if (error == EEXIST) {  // perhaps our own: a server's answer may be lost, and asked for again
    const auto there = read_file(file_system, path);
    return there && there.value() == contents;
  }
  return Error{Code::kIo, text(path.string(), ": link: ", std::strerror(error))};
}

// Only what is safe in a file's name.
std::string file_name(const std::string& job) {
  std::string name;
  for (const char c : job) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_';
    name += plain ? c : '_';
  }
  return name.empty() ? "job" : name;
}

uint64_t id_of(std::string_view hex) { return parse_number<uint64_t>(hex, 16).value_or(0); }
int64_t number(std::string_view word) { return parse_number(word).value_or(-1); }

std::string words_of(const net::Endpoint& at, const Succession& last, int64_t beats) {
  return text(at.str(), " ", hex64(last.leader), " ", last.generation, " ", hex64(last.lost), " ",
              last.base, " ", last.tie ? 1 : 0, " ", last.over ? 1 : 0, " ", beats);
}

// False: they are not what words_of writes.
bool parse_words(const std::string& contents, Rendezvous::Found& found) {
  constexpr size_t kWords = 8;
  const auto words = split(contents, ' ');
  const auto at = net::parse_endpoint(words.front());
  if (!at || words.size() != kWords) return false;
  found.words = contents;
  found.at = at.value();
  found.last = {id_of(words[1]),  number(words[2]), id_of(words[3]),
                number(words[4]), words[5] == "1",  words[6] == "1"};
  return true;
}

}  // namespace

Result<Rendezvous> Rendezvous::create(FileSystem& file_system, const std::string& words,
                                      const std::string& job, const std::filesystem::path& folder) {
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

Result<std::vector<int64_t>> Rendezvous::numbers() const {
  LOCKSTEP_TRY(const auto names, file_system_->list(folder_));
  const std::string start = text(job_, ".", kCoordinator, ".");
  std::vector<int64_t> found;
  for (const std::string& name : names) {
    if (!name.starts_with(start)) continue;
    const int64_t each = number(std::string_view(name).substr(start.size()));
    if (each >= 0 && each < kMostNumber) found.push_back(each);
  }
  std::sort(found.begin(), found.end());
  return found;
}

// Files of a job come into being with all their words. What is none of them (empty, of other words,
// a folder, a pipe, nobody's to read) is a stranger's: its number is taken, and the newest of ours
// below it counts.
Result<Rendezvous::Found> Rendezvous::newest() const {
  Found found;
  LOCKSTEP_TRY(const auto there, numbers());
  if (!there.empty()) found.number = there.back();
  for (size_t i = there.size(); i-- > 0;) {
    const auto path = file(there[i]);
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) continue;
    const auto contents = read_file(*file_system_, path);
    if (!contents && contents.error().code == Code::kDenied) continue;
    if (!contents && contents.error().code != Code::kNotFound) return contents.error();
    if (contents && !parse_words(contents.value(), found)) continue;
    found.said = there[i];
    return found;
  }
  if (fixed_) found.at = *fixed_;
  return found;
}

// A file that goes away while it is read has a successor.
Result<Rendezvous::Found> Rendezvous::readable() const {
  for (int i = 0; i < kReadTries; ++i) {
    LOCKSTEP_TRY(Found found, newest());
    if (found.said < 0 || !found.words.empty()) return found;
    system_clock().sleep_ns(kReadPauseNs);
  }
  return Error{Code::kIo,
               text(folder_.string(), ": cannot read any file that this rendezvous folder lists")};
}

std::optional<Succession> Rendezvous::ours(const Found& found) const {
  const Succession last = found.last.leader == 0 && leads_ ? *leads_ : found.last;
  const bool ours = found.said == claimed_ || (leads_ && keeps(last, *leads_));
  return ours ? std::optional(last) : std::nullopt;
}

Result<bool> Rendezvous::beat() {
  LOCKSTEP_TRY(const Found found, readable());
  if (found.said != claimed_) {
    const auto last = ours(found);
    return last ? make(found.number + 1, at_, *last) : false;
  }
  ++beats_;
  LOCKSTEP_RETURN_IF_ERROR(
      publish_file(*file_system_, file(claimed_), words_of(at_, last_, beats_)));
  return true;
}

Result<bool> Rendezvous::claim(const Found& found, const net::Endpoint& at) {
  LOCKSTEP_CHECK(at.port != 0, "nobody finds an agent at ", at.str());
  return make(found.number + 1, at, found.last);
}

// [P7] What `after` allows is written while it is the newest: `make` fails where another line came.
Result<bool> Rendezvous::follow(const Succession& next, const net::Endpoint& at) {
  LOCKSTEP_CHECK(next.leader != 0 && at.port != 0, next.leader, " at ", at.str());
  LOCKSTEP_CHECK(next.generation >= 0 && next.generation >= next.base, "generation ",
                 next.generation, " after ", next.base);
  LOCKSTEP_CHECK(!leads_ || leads_->leader == next.leader, "lines of ", next.leader, " and of ",
                 leads_ ? leads_->leader : 0);
  while (true) {
    LOCKSTEP_TRY(const Found found, readable());
    const auto newest = after(found.last, next);
    if (next.base < 0 ? found.said != claimed_ : !newest) return false;
    LOCKSTEP_TRY(const bool mine, make(found.number + 1, at, next.base < 0 ? next : *newest));
    if (!mine) continue;
    leads_ = next;
    return true;
  }
}

Result<bool> Rendezvous::make(int64_t next, const net::Endpoint& at, const Succession& last) {
  LOCKSTEP_TRY(const bool made, make_once(*file_system_, file(next), words_of(at, last, 0)));
  if (!made) return false;
  // A slow agent may make a file anew that was there, had a successor, and was removed.
  LOCKSTEP_TRY(const auto there, numbers());
  const bool newest = there.empty() || there.back() <= next;
  LOCKSTEP_CHECK(next >= 0, "line ", next);
  if (newest) claimed_ = next, beats_ = 0, at_ = at, last_ = last;
  for (const int64_t each : there)
    if (each < next || (each == next && !newest)) (void)file_system_->remove(file(each));
  return newest;
}

// The end is a line of its own: if another node follows meanwhile, one of the two lines is first.
void Rendezvous::withdraw(bool over) {
  Result<bool> made = false;
  for (int i = 0; i < kEndTries && (!made || !made.value()); ++i) {
    if (!made) system_clock().sleep_ns(kEndPauseNs);
    made = [&]() -> Result<bool> {
      LOCKSTEP_TRY(const Found found, readable());
      auto last = ours(found);
      if (!last) return true;  // nothing is left to say
      last->over = last->over || over;
      return make(found.number + 1, {"0.0.0.0", 0}, *last);
    }();
  }
  if (!made) log_warning(made.error().message);
  claimed_ = -1;
  leads_.reset();
}

bool Rendezvous::named() const {
  const auto found = newest();
  return found && claimed_ >= 0 && found.value().said == claimed_;
}

}  // namespace lockstep::launcher::control
