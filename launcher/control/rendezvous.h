// Where the agents of a job meet before any of them knows another one.
//
//   HOST:PORT   the agent whose machine has the address HOST and gets the port coordinates
//   file:DIR    DIR/<job>.coordinator.<n> says where the n-th coordinator listens; whoever makes
//               the file with the next n is it. DIR is a folder that all nodes see
// A file appears whole and for one agent only (link), so two agents cannot both have made it.
// Locks are files beside them: DIR/<job>.succeeds.<generation> names the one node that may.
// Thread: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/file_system.h"
#include "launcher/net/endpoint.h"

namespace lockstep::launcher::control {

class Rendezvous {
 public:
  // `words`: HOST:PORT or file:DIR; empty: file:<folder>. Without a DIR locks lie in `folder`.
  // Errors: kConfig, kIo.
  static Result<Rendezvous> create(FileSystem& file_system, const std::string& words,
                                   const std::string& job, const std::filesystem::path& folder);

  // Empty: the address is in a file.
  const std::optional<net::Endpoint>& fixed() const { return fixed_; }
  struct Found {
    int64_t number = -1;  // of the file; -1: none is there
    net::Endpoint at;
  };
  // Where the newest coordinator listens, as far as is known. Errors: kIo.
  Result<Found> newest() const;
  // Be coordinator `number`, at `at`: false when another one is. Errors: kIo.
  Result<bool> claim(int64_t number, const net::Endpoint& at);
  // The job is over: nobody shall look for us.
  void withdraw();
  // Whether `node` is the one that may succeed `generation`. Errors: kIo.
  Result<bool> lock(int64_t generation, uint64_t node);

 private:
  Rendezvous(FileSystem& file_system, std::string job, std::filesystem::path folder)
      : file_system_(&file_system), job_(std::move(job)), folder_(std::move(folder)) {}
  std::filesystem::path file(const std::string& kind, int64_t number) const;

  FileSystem* file_system_;
  std::string job_;
  std::filesystem::path folder_;
  std::optional<net::Endpoint> fixed_;
  int64_t claimed_ = -1;
};

}  // namespace lockstep::launcher::control
