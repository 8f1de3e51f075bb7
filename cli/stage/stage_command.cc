#include "cli/stage/stage_command.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/shared/command_words.h"
#include "cli/shared/exit_status.h"
#include "cli/shared/programs.h"
#include "launcher/control/incident.h"
#include "launcher/host/pipe.h"
#include "launcher/host/process.h"
#include "launcher/host/scratch_folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kTimeoutMs = 1'800'000;  // gigabytes on a slow folder

constexpr const char* kStageAbout =
    R"(Packs lockstep, its worker and the libraries that these load into one file of FOLDER, and
prints its SHA-256 and its path. Libraries in /lib and /usr/lib are left out, because each node has
them. If a pack of the same programs and libraries exists, it is used again.

The pack holds bin/ and lib/; bin/lockstep runs wherever it is unpacked. A job that was submitted
with `lockstep submit --stage` calls this and makes each node unpack the file on its own disk, so no
rank loads its libraries from a shared file system (docs/SLURM.md).

Examples:
  lockstep stage packs
  lockstep stage packs | (read -r digest pack; tar -xf "$pack" -C elsewhere)
)";

// By its path in the pack.
using Contents = std::map<std::string, fs::path>;

// Of the node's own system, as glibc is, whose loader starts the programs, and NVIDIA's driver.
bool is_of_system(const fs::path& library) {
  const std::string name = library.filename(), path = library.lexically_normal().string();
  if (name.starts_with("libcuda.so") || name.starts_with("libnvidia-")) return true;
  const auto is_below = [&](const char* folder) { return path.starts_with(folder); };
  return is_below("/lib/") || is_below("/lib64/") || is_below("/usr/lib/") ||
         is_below("/usr/lib64/");
}

// CUDA's libraries open others of their folder by name, which no table of theirs says: of folders
// of NVIDIA's packages all go in, of a toolkit's those whose names begin alike.
Result<void> add_siblings(FileSystem& file_system, const fs::path& library, Contents& contents) {
  const fs::path folder = library.parent_path();
  std::vector<std::string> begin_with;
  if (folder.string().find("/nvidia/") != std::string::npos) begin_with.push_back("lib");
  for (const char* const family : {"libcudnn", "libnvrtc"})
    if (library.filename().string().starts_with(family)) begin_with.push_back(family);
  if (begin_with.empty()) return {};
  LOCKSTEP_TRY(const auto names, file_system.list(folder));
  for (const std::string& name : names)
    if (name.find(".so") != std::string::npos &&
        std::any_of(begin_with.begin(), begin_with.end(),
                    [&](const std::string& begin) { return name.starts_with(begin); }))
      contents.emplace("lib/" + name, folder / name);
  return {};
}

// What the loader would load, as it says itself: "\tlibz.so.1 => /lib/libz.so.1 (0x7f…)", or
// "\tlibz.so.1 => not found".
Result<void> add_libraries(FileSystem& file_system, const fs::path& program, Contents& contents) {
  LOCKSTEP_TRY(const auto said,
               launcher::run_program("env", {"LD_TRACE_LOADED_OBJECTS=1", program.string()}, "",
                                     kTimeoutMs));
  for (const std::string& line : split(said.standard_output, '\n')) {
    const size_t arrow = line.find(" => "), end = line.rfind(" (0x");
    if (arrow == std::string::npos) continue;
    const size_t begin = line.find_first_not_of("\t ");
    const std::string name = line.substr(begin, arrow - begin), found = line.substr(arrow + 4);
    if (found == "not found")
      return Error{
          Code::kConfig,
          text(program.string(), " does not start on this machine: the loader cannot find ", name)};
    if (found.front() != '/' || end == std::string::npos) continue;
    const fs::path library = line.substr(arrow + 4, end - arrow - 4);
    if (is_of_system(library)) continue;
    contents.emplace("lib/" + name, library);
    LOCKSTEP_RETURN_IF_ERROR(add_siblings(file_system, library, contents));
  }
  return {};
}

Result<Contents> contents_of_pack(FileSystem& file_system) {
  LOCKSTEP_TRY(const fs::path worker, worker_program());
  Contents contents{{"bin/lockstep", launcher::running_executable()},
                    {"bin/lockstep-worker", worker}};
  for (const char* const program : {"bin/lockstep", "bin/lockstep-worker"})
    LOCKSTEP_RETURN_IF_ERROR(add_libraries(file_system, contents.at(program), contents));
  return contents;
}

Result<std::string> run(const char* program, const std::vector<std::string>& arguments) {
  LOCKSTEP_TRY(auto done, launcher::run_program(program, arguments, "", kTimeoutMs));
  if (done.exit_status == 0) return std::move(done.standard_output);
  return Error{Code::kIo, text(program, " ended with status ", done.exit_status)};
}

// Another one for other files: whoever builds or installs a program writes it anew. (FileSystem
// would open programs for writing too, and nobody could start them meanwhile.)
Result<std::string> name_of_pack(const Contents& contents) {
  std::vector<std::string> words{"--dereference", "--format=%n %s %y"};
  std::string facts;
  for (const auto& [name, source] : contents) {
    words.push_back(source.string());
    facts += name + "\n";
  }
  LOCKSTEP_TRY(const std::string found, run("stat", words));
  return "lockstep-" + hex64(xxh3_64(facts + found));
}

// A copy whose DT_RPATH ends behind its first folder, lib/ beside bin/: in the others, where it was
// built, the loader would also look for each library of the system.
Result<void> copy_program(const fs::path& from, const fs::path& to) {
  LOCKSTEP_RETURN_IF_ERROR(run("cp", {"--dereference", "--preserve=mode", from, to}));
  const std::string script = R"(s|\$ORIGIN/\.\./lib:|$ORIGIN/../lib\x00|)";
  LOCKSTEP_RETURN_IF_ERROR(run("env", {"LC_ALL=C", "sed", "--in-place", script, to}));
  return {};
}

Result<void> fill(FileSystem& file_system, const Contents& contents, const fs::path& folder) {
  for (const char* const part : {"bin", "lib"})
    LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(folder / part));
  std::error_code error;
  for (const auto& [name, source] : contents) {
    if (name.starts_with("bin/")) {
      LOCKSTEP_RETURN_IF_ERROR(copy_program(source, folder / name));
      continue;
    }
    fs::create_symlink(fs::absolute(source), folder / name, error);
    if (error) return Error{Code::kIo, text(name, " in ", folder.string(), ": ", error.message())};
  }
  return {};
}

// The same files make the same bytes, so that two who pack at a time do not harm each other.
Result<std::string> write_pack(FileSystem& file_system, const Contents& contents,
                               const fs::path& to) {
  LOCKSTEP_TRY(const auto scratch, launcher::ScratchFolder::create());
  LOCKSTEP_RETURN_IF_ERROR(fill(file_system, contents, scratch.path()));
  LOCKSTEP_RETURN_IF_ERROR(run(
      "tar", {"--create", "--dereference", "--sort=name", "--owner=0", "--group=0", "--mtime=@0",
              "--file=" + to.string(), "--directory=" + scratch.path().string(), "bin", "lib"}));
  LOCKSTEP_TRY(const auto written, file_system.open(to));
  LOCKSTEP_RETURN_IF_ERROR(written->sync());
  LOCKSTEP_TRY(const std::string sum, run("sha256sum", {"--binary", to.string()}));
  return sum.substr(0, sum.find(' '));
}

// The pack's digest lies beside it, and is written last.
Result<std::string> stage(FileSystem& file_system, const fs::path& folder) {
  LOCKSTEP_TRY(const Contents contents, contents_of_pack(file_system));
  LOCKSTEP_TRY(const std::string name, name_of_pack(contents));
  const fs::path pack = folder / (name + ".tar"), digest = folder / (name + ".sha256");
  if (file_system.exists(pack) && file_system.exists(digest)) {
    LOCKSTEP_TRY(const std::string known, read_file(file_system, digest));
    return text(known, " ", pack.string());
  }
  LOCKSTEP_RETURN_IF_ERROR(file_system.make_directories(folder));
  const fs::path partial = folder / text(name, ".", host_name(), ".", ::getpid(), ".partial");
  const auto sum = write_pack(file_system, contents, partial);
  if (!sum) {
    if (file_system.exists(partial)) static_cast<void>(file_system.remove(partial));
    return sum.error();
  }
  LOCKSTEP_RETURN_IF_ERROR(file_system.rename(partial, pack));
  LOCKSTEP_RETURN_IF_ERROR(publish_file(file_system, digest, sum.value()));
  log_info(pack.string(), ": packed, ", contents.size(), " files");
  return text(sum.value(), " ", pack.string());
}

}  // namespace

int stage_command(int argc, char** argv) {
  std::string folder;
  CLI::App app{kStageAbout, "lockstep stage"};
  app.add_option("FOLDER", folder, "Folder for packs, on a file system that all nodes see")
      ->required();
  if (const auto end = parse_words(app, argc, argv)) return *end;
  const auto packed = stage(posix_file_system(), fs::absolute(folder).lexically_normal());
  if (packed) {
    std::cout << packed.value() << "\n";
    return launcher::kExitDone;
  }
  log_error(packed.error().message);
  return status_of_input(packed.error().code);
}

}  // namespace lockstep::cli
