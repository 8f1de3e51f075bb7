// Where the agents of a job meet before any of them knows another one, and agree on which
// generation follows which (succession.h).
//
//   HOST:PORT   the agent whose machine has HOST (an address or name) and gets the port leads first
//   file:DIR    whoever comes first. DIR is a folder that all nodes see
// Either way the newest DIR/<job>.coordinator.<n> is what they know: where the coordinator listens,
// the last Succession (leader, generation, lost, base, tie, over), a beat, which grows while it
// lives:
//
//   "10.0.0.1:4000 0 -1 0 -1 0 0 7"   is the first one
//   "10.0.0.1:4000 ID 0 0 -1 0 0 9"   has begun, with generation 0
//   "10.0.0.2:5000 ID2 1 ID 0 0 0 0"  follows it, with generation 1
//   "0.0.0.0:0 ID2 1 ID 0 0 1 0"      has ended the job; whoever has missed that is told here
//
// Whoever has something to say makes the file with the next n: it appears whole and for one agent
// only (link), so what was decided on what the last one says is decided once.
// Thread: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "launcher/control/succession.h"
#include "launcher/net/endpoint.h"

namespace lockstep::launcher::control {

class Rendezvous {
 public:
  // `words`: HOST:PORT or file:DIR; empty: file:<folder>. Without a DIR files lie in `folder`.
  // Errors: kConfig, kIo, kNotFound (unknown host name).
  static Result<Rendezvous> create(FileSystem& file_system, const std::string& words,
                                   const std::string& job, const std::filesystem::path& folder);

  // Empty: whoever comes first.
  const std::optional<net::Endpoint>& fixed() const { return fixed_; }
  struct Found {
    int64_t number = -1;  // of the file; -1: none is there
    net::Endpoint at;     // port 0: not known, or the job is over
    Succession last;
    std::string words;  // all that is said; changes with each beat. Empty: it went meanwhile
  };
  // Where the newest coordinator listens, as far as is known. Errors: kIo.
  Result<Found> newest() const;
  // Be the one after `found`, at `at`, for others to find: false when another one is. Errors: kIo.
  Result<bool> claim(const Found& found, const net::Endpoint& at);
  // Says that this coordinator is alive; false when its claim is not the newest. One that leads a
  // training claims again instead, unless another one has followed. Errors: kIo.
  Result<bool> beat();
  // Whether `next` follows, led from `at`. To begin to train: nobody has claimed since.
  // Errors: kIo.
  Result<bool> follow(const Succession& next, const net::Endpoint& at);
  // Nobody shall look for us, nor follow when the job is `over`.
  void withdraw(bool over);
  // Whether ours is the newest line, as far as can be seen.
  bool named() const;

 private:
  Rendezvous(FileSystem& file_system, std::string job, std::filesystem::path folder)
      : file_system_(&file_system), job_(std::move(job)), folder_(std::move(folder)) {}
  std::filesystem::path file(int64_t number) const;
  Result<std::vector<int64_t>> numbers() const;  // of the files that are there
  Result<Found> readable() const;
  // What our next line would say last; none: the newest one is another's to go on from.
  std::optional<Succession> ours(const Found& found) const;
  Result<bool> make(int64_t next, const net::Endpoint& at, const Succession& last);

  FileSystem* file_system_;
  std::string job_;
  std::filesystem::path folder_;
  std::optional<net::Endpoint> fixed_;
  int64_t claimed_ = -1, beats_ = 0;
  net::Endpoint at_;                 // of our claim
  Succession last_;                  // ... and what it says
  std::optional<Succession> leads_;  // what we were let follow last
};

}  // namespace lockstep::launcher::control
