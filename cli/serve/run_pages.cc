#include "cli/serve/run_pages.h"

#include <memory>

#include "cli/serve/dashboard.h"
#include "cli/status/status_pages.h"

namespace lockstep::cli {
namespace {

constexpr std::string_view kPlace = "/runs";  // the links of the dashboard's page are relative

}  // namespace

using launcher::net::PageRequest;

launcher::net::StatusPages run_pages(FileSystem& file_system, Clock& clock,
                                     const std::filesystem::path& folder) {
  const auto dashboard = std::make_shared<Dashboard>(file_system, clock, folder);
  return [status = status_pages(file_system, clock, folder), dashboard](PageRequest request) {
    if (!request.path.starts_with(kPlace) || !request.path.substr(kPlace.size()).starts_with('/'))
      return status(request);
    request.path.remove_prefix(kPlace.size());
    return dashboard->page(request);
  };
}

}  // namespace lockstep::cli
