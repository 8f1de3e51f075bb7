#include "hf/tokenizer_files.h"

#include <algorithm>

#include "base/json.h"

namespace lockstep::hf {
namespace {

constexpr const char* kConfigName = "tokenizer_config.json";

bool has(const NamedFiles& files, const std::string& name) {
  return std::any_of(files.begin(), files.end(),
                     [&](const auto& file) { return file.first == name; });
}

// The class that reads them without a word of the model's; "": transformers goes by the model.
std::string class_of(const NamedFiles& files) {
  if (has(files, "tokenizer.json")) return "PreTrainedTokenizerFast";
  return has(files, "vocab.json") && has(files, "merges.txt") ? "GPT2Tokenizer" : "";
}

}  // namespace

NamedFiles for_transformers(NamedFiles files, const std::string& end_of_document) {
  for (auto& [name, contents] : files) {  // GPT-2's two, as transformers calls them
    if (name == "encoder.json") name = "vocab.json";
    if (name == "vocab.bpe") name = "merges.txt";
  }
  const std::string reads = class_of(files);
  if (reads.empty() || has(files, kConfigName)) return files;
  nlohmann::ordered_json config{{"tokenizer_class", reads},
                                {"clean_up_tokenization_spaces", false}};
  if (!end_of_document.empty()) config["eos_token"] = end_of_document;
  files.emplace_back(kConfigName, config.dump(2) + "\n");
  return files;
}

}  // namespace lockstep::hf
