// Where the agents of a job meet before any of them knows another one.
//
//   HOST:PORT   the agent whose machine has HOST (an address or name) and gets the port leads first
//   file:DIR    whoever comes first. DIR is a folder that all nodes see
// Either way DIR/<job>.coordinator.<n> says where the n-th coordinator listens; whoever makes the
// file with the next n is it. A first coordinator makes one more when it begins to train:
//
//   n: "10.0.0.1:4000 0 0 7"  n+1: "10.0.0.1:4000 ID ID 9"  n+2: "10.0.0.2:5000 0 ID 0"
//      is the first one            has begun                     succeeds it
//
// so of one that begins and one that takes over at the same time one finds the number taken. The
// third word is the run: who began it, said by all that come after. The last one is the beat: while
// it grows the coordinator is alive.
// A file appears whole and for one agent only (link), so two agents cannot both have made it.
// Locks are files beside them: DIR/<job>.succeeds.<run>.<generation> names the one node that may.
// They go with their run; what a run that was killed has left binds no other run.
// Thread: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "base/text.h"
#include "launcher/net/endpoint.h"

namespace lockstep::launcher::control {

class Rendezvous {
 public:
  // `words`: HOST:PORT or file:DIR; empty: file:<folder>. Without a DIR locks lie in `folder`.
  // Errors: kConfig, kIo, kNotFound (unknown host name).
  static Result<Rendezvous> create(FileSystem& file_system, const std::string& words,
                                   const std::string& job, const std::filesystem::path& folder);

  // Empty: whoever comes first.
  const std::optional<net::Endpoint>& fixed() const { return fixed_; }
  struct Found {
    int64_t number = -1;  // of the file; -1: none is there
    net::Endpoint at;     // port 0: not known, or the file went while it was read
    uint64_t began = 0;   // the node that began to train as this one
    uint64_t run = 0;     // ... and the one that began the run, whoever leads it now
    std::string words;    // all that is said; changes with each beat
  };
  // Where the newest coordinator listens, as far as is known. Errors: kIo.
  Result<Found> newest() const;
  // Be coordinator `number`, at `at`: false when another one is. Errors: kIo.
  Result<bool> claim(int64_t number, const net::Endpoint& at);
  // Says that this coordinator is alive; false when its claim is not the newest. One that leads a
  // training claims again instead, unless another training has begun. Errors: kIo.
  Result<bool> beat();
  // The first coordinator may begin to train: nobody has claimed since. Errors: kIo.
  Result<bool> begin(uint64_t node, const net::Endpoint& at);
  // A standby may go on in place of `lost`: no other training has begun. Errors: kIo.
  Result<bool> succeed(uint64_t lost, const net::Endpoint& at);
  // The job is over: nobody shall look for us, and its locks go.
  void withdraw();
  // Whether `node` is the one that may succeed `generation`. Errors: kIo.
  Result<bool> lock(int64_t generation, uint64_t node);

 private:
  Rendezvous(FileSystem& file_system, std::string job, std::filesystem::path folder)
      : file_system_(&file_system), job_(std::move(job)), folder_(std::move(folder)) {}
  struct Leads {
    uint64_t in_place_of;  // who began the training, or was succeeded
    net::Endpoint at;
  };
  std::filesystem::path file(int64_t number) const;
  std::string locks_of(uint64_t run) const;  // what their names begin with
  Result<bool> is_newest() const;
  Result<uint64_t> run_of_newest() const;
  Result<bool> make(int64_t number, const net::Endpoint& at, uint64_t began, uint64_t run);
  std::string contents() const { return text(said_, " ", beats_); }

  FileSystem* file_system_;
  std::string job_;
  std::filesystem::path folder_;
  std::optional<net::Endpoint> fixed_;
  int64_t claimed_ = -1, beats_ = 0;
  uint64_t run_ = 0;
  std::string said_;  // in our claim, before its beat
  std::optional<Leads> leads_;
};

}  // namespace lockstep::launcher::control
