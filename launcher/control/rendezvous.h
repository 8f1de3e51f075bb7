// The place where the agents of a job meet before they know each other, and where they agree on
// which generation follows which (succession.h).
//
//   HOST:PORT   the agent leads first whose machine has HOST (an address or name) and gets the port
//   file:DIR    the agent leads first that comes first. DIR is a folder that all nodes see
// In both cases the newest file DIR/<job>.coordinator.<n> says where the coordinator listens, the
// last Succession (leader, generation, lost, base, tie, over), and a beat, which grows while the
// coordinator lives:
//
//   "10.0.0.1:4000 0 -1 0 -1 0 0 7"   is the first one
//   "10.0.0.1:4000 ID 0 0 -1 0 0 9"   has begun, with generation 0
//   "10.0.0.2:5000 ID2 1 ID 0 0 0 0"  follows it, with generation 1
//   "0.0.0.0:0 ID2 1 ID 0 0 1 0"      has ended the job; an agent that missed it reads it here
//
// An agent that has something to say makes the file with the next n. The file appears whole, and
// one agent alone can make it (link): a decision that rests on the newest file is taken once.
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

  // Empty: the first agent to come coordinates.
  const std::optional<net::Endpoint>& fixed() const { return fixed_; }
  struct Found {
    int64_t number = -1;  // of the newest file of any job; -1: there is no file
    int64_t said = -1;    // of the newest file of this job, which says the rest; -1: none
    net::Endpoint at;     // port 0: not known, or the job is over
    Succession last;
    std::string words;  // all that is said; changes with each beat. Empty: it went meanwhile
  };
  // Where the newest coordinator listens, as far as is known. Errors: kIo.
  Result<Found> newest() const;
  // Makes the file after `found`, for others to find this agent at `at`. False: another one made
  // it. Errors: kIo.
  Result<bool> claim(const Found& found, const net::Endpoint& at);
  // Says that this coordinator is alive. False: its file is not the newest. A coordinator that
  // leads a training makes a new file instead, unless another one has followed it. Errors: kIo.
  Result<bool> beat();
  // Writes that `next` follows, led from `at`. False: it may not. A first generation may when no
  // file was made since this agent's own. Errors: kIo.
  Result<bool> follow(const Succession& next, const net::Endpoint& at);
  // From now on nobody looks for this agent; nobody follows it when the job is `over`.
  void withdraw(bool over);
  // Whether this agent made the newest file, as far as can be seen.
  bool named() const;

 private:
  Rendezvous(FileSystem& file_system, std::string job, std::filesystem::path folder)
      : file_system_(&file_system), job_(std::move(job)), folder_(std::move(folder)) {}
  std::filesystem::path file(int64_t number) const;
  Result<std::vector<int64_t>> numbers() const;  // of the files that are there
  Result<Found> readable() const;
  // What our next line would say last; none: another agent goes on from the newest one.
  std::optional<Succession> ours(const Found& found) const;
  Result<bool> make(int64_t next, const net::Endpoint& at, const Succession& last);

  FileSystem* file_system_;
  std::string job_;
  std::filesystem::path folder_;
  std::optional<net::Endpoint> fixed_;
  int64_t claimed_ = -1, beats_ = 0;
  net::Endpoint at_;                 // of our claim
  Succession last_;                  // ... and what it says
  std::optional<Succession> leads_;  // what `follow` has written last
};

}  // namespace lockstep::launcher::control
