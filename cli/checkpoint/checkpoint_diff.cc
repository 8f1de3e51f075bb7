// lockstep checkpoint diff.
#include "checkpoint/tools/diff.h"

#include <cmath>
#include <iomanip>
#include <iostream>
#include <memory>

#include "base/text.h"
#include "cli/checkpoint/checkpoint_tool.h"
#include "cli/shared/progress_line.h"

namespace lockstep::cli {
namespace {

using checkpoint::CheckpointDiff;
using nlohmann::ordered_json;
using Path = std::filesystem::path;

constexpr size_t kShown = 20;  // lines of each sort
constexpr const char* kDiffExamples = R"(Examples:
  lockstep checkpoint diff results/training/a results/training/b   # the newest of each
  lockstep checkpoint diff step_00000100.g1-7f2a91 step_00000200.g1-7f2a91
  lockstep checkpoint diff a b --json | jq '.tensors[:3]'

Two checkpoints are equal when step, trainer state and every tensor are the same, bit for bit,
whatever number of ranks wrote them. Tensors with equal fingerprints are not read.
Exit status 0: equal; 1: they differ.)";

struct DiffOptions {
  std::string a, b;
  bool json = false;
  int threads = 2;
};

ordered_json fields_json(const std::vector<checkpoint::FieldDifference>& fields) {
  ordered_json json = ordered_json::array();
  for (const auto& f : fields) json.push_back({{"name", f.name}, {"a", f.a}, {"b", f.b}});
  return json;
}

ordered_json json_of(const CheckpointDiff& diff, const Path& a, const Path& b) {
  ordered_json json{{"a", a.string()},
                    {"b", b.string()},
                    {"equal", diff.equal()},
                    {"state", fields_json(diff.state)},
                    {"layout", fields_json(diff.layout)},
                    {"only_a", diff.only_a},
                    {"only_b", diff.only_b},
                    {"shapes", ordered_json::array()},
                    {"dtypes", ordered_json::array()},
                    {"equal_tensors", diff.equal_tensors},
                    {"tensors", ordered_json::array()}};
  for (const auto& s : diff.shapes)
    json["shapes"].push_back({{"tensor", s.key}, {"a", s.a}, {"b", s.b}});
  for (const auto& d : diff.dtypes)
    json["dtypes"].push_back({{"tensor", d.key},
                              {"a", checkpoint::dtype_word(d.a)},
                              {"b", checkpoint::dtype_word(d.b)}});
  for (const auto& t : diff.tensors)  // what is not finite becomes null
    json["tensors"].push_back({{"tensor", t.key},
                               {"shape", t.shape},
                               {"max_abs", t.max_abs},
                               {"differing", t.differing},
                               {"elements", t.elements}});
  return json;
}

// At most kShown of `items`, each by `print`.
template <typename Items, typename Print>
void print_some(const char* title, const Items& items, Print print) {
  if (items.empty()) return;
  std::cout << title << " (" << items.size() << ")\n";
  for (size_t i = 0; i < std::min(kShown, items.size()); ++i) {
    std::cout << "  ";
    print(items[i]);
    std::cout << "\n";
  }
  if (items.size() > kShown) std::cout << "  … and " << items.size() - kShown << " more\n";
}

void print_text(const CheckpointDiff& diff, const Path& a, const Path& b) {
  std::cout << "a  " << a.string() << "\nb  " << b.string() << "\n";
  const auto field = [](const checkpoint::FieldDifference& f) {
    std::cout << f.name << ": " << f.a << " -> " << f.b;
  };
  const auto name = [](const std::string& key) { std::cout << key; };
  print_some("layout (not part of the state)", diff.layout, field);
  print_some("state", diff.state, field);
  print_some("only in a", diff.only_a, name);
  print_some("only in b", diff.only_b, name);
  print_some("shapes", diff.shapes, [](const checkpoint::ShapeDifference& s) {
    std::cout << s.key << ": " << checkpoint::shape_text(s.a) << " -> "
              << checkpoint::shape_text(s.b);
  });
  print_some("number types", diff.dtypes, [](const checkpoint::DtypeDifference& d) {
    std::cout << d.key << ": " << checkpoint::dtype_word(d.a) << " -> "
              << checkpoint::dtype_word(d.b);
  });
  print_some("tensors that differ, largest |a - b| first", diff.tensors,
             [](const checkpoint::TensorDifference& t) {
               std::cout << std::setw(12) << t.max_abs << "  " << t.key << " "
                         << checkpoint::shape_text(t.shape) << "  " << grouped(t.differing)
                         << " of " << grouped(t.elements) << " elements";
             });
  std::cout << grouped(diff.equal_tensors) << " tensors (by kind) equal, "
            << grouped(static_cast<int64_t>(diff.tensors.size())) << " differ; the checkpoints are "
            << (diff.equal() ? "equal" : "not equal") << "\n";
}

int diff(const DiffOptions& options) {
  FileSystem& file_system = posix_file_system();
  const auto a = checkpoint::find_checkpoint(file_system, options.a);
  if (!a.ok()) return fail_tool("diff", a.error());
  const auto b = checkpoint::find_checkpoint(file_system, options.b);
  if (!b.ok()) return fail_tool("diff", b.error());
  ProgressLine progress("diff");
  const auto compared = checkpoint::diff_checkpoints(
      file_system, a.value(), b.value(), options.threads,
      [&](int64_t done, int64_t total) { progress.show(done, total); });
  progress.end();
  if (!compared.ok()) return fail_tool("diff", compared.error());
  if (options.json)
    print_json(json_of(compared.value(), a.value(), b.value()));
  else
    print_text(compared.value(), a.value(), b.value());
  return compared.value().equal() ? 0 : 1;
}

}  // namespace

void add_diff_tool(CLI::App& app, CheckpointTools& tools) {
  CLI::App* const command = add_tool(app, "diff", "Show how two checkpoints differ", kDiffExamples);
  auto options = std::make_shared<DiffOptions>();
  command->add_option("A", options->a, "Checkpoint, checkpoint folder or run folder")->required();
  command->add_option("B", options->b, "Second checkpoint; a diff needs two checkpoints")
      ->required();
  command->add_flag("--json", options->json, "Machine-readable output");
  add_threads_option(command, options->threads);
  tools.push_back({command, [options] { return diff(*options); }});
}

}  // namespace lockstep::cli
