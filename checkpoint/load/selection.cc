#include "checkpoint/load/selection.h"

#include <algorithm>

#include "base/text.h"

namespace lockstep::checkpoint {
namespace {

bool excludes(const LoadSelection& selection, const std::string& name) {
  return std::any_of(selection.exclude.begin(), selection.exclude.end(),
                     [&](const std::string& pattern) { return matches(pattern, name); });
}

// "3 missing from the checkpoint: a, b, c", the first kNamedMismatches of them.
std::string list_text(const std::set<std::string>& items, const char* what) {
  if (items.empty()) return "";
  std::string out = text("\n  ", items.size(), " ", what, ":");
  size_t count = 0;
  for (const std::string& item : items) {
    if (count++ == kNamedMismatches) return out + ", …";
    out += text(count > 1 ? ", " : " ", item);
  }
  return out;
}

}  // namespace

// Greedy: on a mismatch the last * takes one more character.
bool matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Result<void> check_selection(const LoadSelection& selection, const std::set<std::string>& names) {
  for (const std::string& pattern : selection.exclude) {
    const bool used = std::any_of(names.begin(), names.end(),
                                  [&](const std::string& name) { return matches(pattern, name); });
    if (used) continue;
    const std::string meant = nearest(pattern, {names.begin(), names.end()});
    return Error{Code::kConfig, text("the pattern \"", pattern, "\" matches no tensor of the model",
                                     meant.empty() ? "" : text("; did you mean ", meant, "?"))};
  }
  if (std::all_of(names.begin(), names.end(),
                  [&](const std::string& name) { return excludes(selection, name); }))
    return Error{Code::kConfig, "every tensor of the model is excluded: nothing is left to load"};
  return {};
}

bool selects(const LoadSelection& selection, const TensorPiece& piece) {
  return !excludes(selection, piece.name) && (!selection.model_only || piece.kind == Kind::kParam);
}

Result<void> check_match(const Manifest& manifest, const std::vector<TensorPiece>& wanted,
                         const std::set<std::string>& model_names, Surplus surplus) {
  std::set<std::string> missing, shapes, dtypes, unexpected;
  for (const TensorPiece& piece : wanted) {
    const ManifestTensor* const tensor = manifest.find_tensor(piece.name);
    if (tensor == nullptr || !tensor->fingerprint.contains(kind_name(piece.kind)))
      missing.insert(piece.tensor_key());
    else if (tensor->global_shape != piece.global_shape)
      shapes.insert(text(piece.tensor_key(), ": the model has ", shape_text(piece.global_shape),
                         ", the checkpoint ", shape_text(tensor->global_shape)));
    else if (const Dtype there = tensor->dtype_of(piece.kind); there != piece.dtype)
      dtypes.insert(text(piece.tensor_key(), ": the run keeps ", dtype_word(piece.dtype),
                         ", the checkpoint ", dtype_word(there)));
  }
  for (const ManifestTensor& tensor : manifest.tensors)
    if (!model_names.empty() && !model_names.contains(tensor.name)) unexpected.insert(tensor.name);
  const bool too_much = surplus == Surplus::kRefused && !unexpected.empty();
  if (missing.empty() && shapes.empty() && dtypes.empty() && !too_much) return {};
  return Error{
      Code::kConfig,
      text("model and checkpoint do not match", list_text(missing, "missing from the checkpoint"),
           list_text(unexpected, "only in the checkpoint"), list_text(shapes, "with another shape"),
           list_text(dtypes, "with another number type (optimizer.state_dtype)"))};
}

}  // namespace lockstep::checkpoint
