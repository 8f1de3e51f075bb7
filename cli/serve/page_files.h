// The files of the dashboard's page, inside the program: our own of cli/serve/page, and Chart.js.
#pragma once

#include <span>
#include <string_view>

namespace lockstep::cli {

struct PageFile {
  std::string_view path;  // "/charts.js"
  const char* content_type;
  std::string_view contents;
  bool has_links = false;  // @QUERY@ in it stands for the query that its links need
};
std::span<const PageFile> page_files();

}  // namespace lockstep::cli
