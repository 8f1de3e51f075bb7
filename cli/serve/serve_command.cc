#include "cli/serve/serve_command.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "base/environment.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/serve/dashboard.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "launcher/host/ignored_signals.h"
#include "launcher/net/secret.h"
#include "launcher/net/status_server.h"

namespace lockstep::cli {
namespace {

using launcher::net::Secret;
using launcher::net::StatusServer;

constexpr const char* kAbout =
    R"(Shows the runs below a folder in a browser: curves of loss, validation loss, gradient norm,
speed, memory and step phases; checkpoints and restarts; ranks, events, and configs side by side. It
follows active runs. It only reads (docs/DASHBOARD.md).

It listens at the loopback address, for users of this machine. From elsewhere, use SSH:
  ssh -L 9401:localhost:9401 HOST        and open http://localhost:9401/
With --host it listens at another address and asks for a token, which is part of the address that it
prints. If RESULTS is the folder of one run, it is the token of --status-endpoint, otherwise a new
one.

Examples:
  lockstep serve results
  lockstep serve results/training/demo --port 0
  lockstep serve results --host eth0
)";

constexpr uint16_t kPort = 9401;
constexpr int64_t kRequestMs = 60'000;  // a page may wait for another one, whose run is long
constexpr size_t kConnections = 64;     // browsers open several

struct Options {
  std::string results, host = "127.0.0.1";
  uint16_t port = kPort;
  bool token = false;
};

// None: no token is asked for.
Result<std::optional<Secret>> secret_of(const Options& options, const std::string& address) {
  if (!options.token && launcher::net::is_loopback(address)) return std::optional<Secret>();
  const Environment environment = own_environment();
  const std::filesystem::path folder = options.results;
  if (environment.contains(launcher::net::kSecretVariable) ||
      posix_file_system().exists(folder / "control.secret")) {
    LOCKSTEP_TRY(Secret secret, Secret::of_job(environment, folder));
    return std::optional(secret);
  }
  return std::optional(Secret::generate());
}

// Until somebody ends it.
Result<void> serve(const Options& options) {
  const sigset_t ends = launcher::not_ignored({SIGINT, SIGTERM, SIGHUP});
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  const std::filesystem::path root = std::filesystem::absolute(options.results);
  LOCKSTEP_TRY(const RunListing listing, list_runs(posix_file_system(), root));
  const bool v6 = options.host.find(':') != std::string::npos;
  const std::string at =
      v6 ? text("[", options.host, "]:", options.port) : text(options.host, ":", options.port);
  LOCKSTEP_TRY(const auto address, launcher::net::status_address(at));
  LOCKSTEP_TRY(const auto secret, secret_of(options, address.host));
  Dashboard dashboard(posix_file_system(), system_clock(), root);
  LOCKSTEP_TRY(
      const auto server,
      StatusServer::open({.secret = secret,
                          .at = at,
                          .pages = [&](const auto& wish) { return dashboard.page(wish); },
                          .limits = {.max_connections = kConnections, .request_ms = kRequestMs},
                          .name = "dashboard"}));
  std::cout << "dashboard of " << counted(std::ssize(listing.runs), "run") << ": " << server->url()
            << "\n(Ctrl-C ends it)" << std::endl;
  int signal = 0;
  ::sigwait(&ends, &signal);
  return {};
}

}  // namespace

int serve_command(int argc, char** argv) {
  Options options;
  CLI::App app{kAbout, "lockstep serve"};
  app.add_option("results", options.results, "A run's folder, or a folder with runs below it")
      ->required()
      ->type_name("RESULTS");
  app.add_option("--host", options.host, "Address or interface to listen at")
      ->type_name("HOST")
      ->capture_default_str();
  app.add_option("--port", options.port, "0: the system chooses")
      ->type_name("N")
      ->capture_default_str();
  app.add_flag("--token", options.token,
               "Ask for the token on the loopback too, on a machine with other users");
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const auto served = serve(options);
  if (served) return 0;
  log_error(served.error().message);
  return status_of_input(served.error().code);
}

}  // namespace lockstep::cli
