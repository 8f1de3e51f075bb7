#include "cli/shared/model_tokenizer.h"

#include <map>
#include <vector>

#include "base/text.h"
#include "data/formats/manifest.h"
#include "data/prepare/record.h"
#include "data/tokenizer/open_tokenizer.h"

namespace lockstep::cli {
namespace {

// Two definitions of one tokenizer have different hashes.
constexpr const char* kProbe =
    "Hello world, it's 12345.67 o'clock!\n\tdef f(x):\n        return x**2  # naïve café\n"
    "Größe Ελλάδα Привет 東京 한국 مرحبا \U0001F600 «x» — …   end\n";

bool same_ids(const data::Tokenizer& a, const data::Tokenizer& b) {
  std::vector<uint32_t> of_a, of_b;
  return a.encode(kProbe, of_a).ok() && b.encode(kProbe, of_b).ok() && of_a == of_b;
}

std::string words_of(const data::Tokenizer& tokenizer) {
  return text(tokenizer.name(), ", ", grouped(tokenizer.vocab_size()), " tokens");
}

std::vector<std::string> sources_of(const Config::Data& data) {
  return data.sources.empty() ? std::vector{data.path} : data.sources;
}

}  // namespace

ChatOfData chat_of(FileSystem& file_system, const Config::Data& data) {
  std::map<std::string, std::string> sources;  // by the template's name
  for (const std::string& source : sources_of(data))
    if (const auto manifest = data::read_manifest(file_system, source); manifest)
      sources[data::RecordFormat::chat_template_in(manifest.value().recipe.records)] = source;
  sources.erase("");
  if (sources.size() != 1) return {};
  const auto& [name, source] = *sources.begin();
  const auto date = data::JinjaTemplate::date_in(name);
  if (!date) return {name, {}, {}};
  return {
      .name = "", .folder = std::filesystem::path(source) / data::kTokenizerFolder, .date = *date};
}

DataTokenizer data_tokenizer(FileSystem& file_system, const Config& config) {
  DataTokenizer found;
  if (config.data.kind != DataKind::kTokens) return found;
  const std::filesystem::path folder = sources_of(config.data).front();
  auto made = data::tokenizer_of_dataset(file_system, folder);
  if (!made) return found;
  found.tokenizer = std::move(made).value();
  found.chat = chat_of(file_system, config.data);
  const auto kept = folder / data::kTokenizerFolder;
  if (const auto names = file_system.list(kept); names)
    for (const std::string& name : names.value()) {
      if (name == data::kTemplateFile) continue;
      if (auto contents = read_file(file_system, kept / name); contents)
        found.files.emplace_back(name, std::move(contents).value());
    }
  const std::string& assets = config.model.hf_assets_path;
  if (assets.empty()) return found;
  const auto models = data::open_tokenizer(file_system, assets);
  if (!models) return found;
  const data::Tokenizer &mine = *found.tokenizer, &its = *models.value().tokenizer;
  const bool same = mine.hash() == its.hash() || same_ids(mine, its);
  found.match = same ? TokenizerMatch::kSame : TokenizerMatch::kOther;
  if (!same)
    found.difference =
        text("the data in ", folder.string(), " were prepared with another tokenizer (",
             words_of(mine), ") than that of ", assets, " (", words_of(its), ")");
  return found;
}

}  // namespace lockstep::cli
