#include "cli/prepare/prepare_report.h"

#include <algorithm>
#include <iostream>
#include <set>
#include <span>

#include "base/json.h"
#include "base/text.h"
#include "cli/prepare/prepare_inspect.h"

namespace lockstep::cli {

namespace {

std::string joined(const std::set<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ", ") + name;
  return all.empty() ? "none" : all;
}

std::string token_words(const data::Tokenizer& tokenizer, std::span<const uint32_t> ids) {
  if (ids.empty()) return "nothing";
  const auto words = tokenizer.decode(ids, /*show_special=*/true);
  return words.ok() && !words.value().empty() ? words.value() : text("token ", ids.front());
}

double learnt_share(const data::Understanding& all) {
  return static_cast<double>(all.learnt_tokens) /
         static_cast<double>(std::max<int64_t>(1, all.tokens));
}

constexpr size_t kShownLines = 12, kShownLineBytes = 96;

// The line, or its beginning, which ends where a character ends.
std::string cut_line(const std::string& line) {
  if (line.size() <= kShownLineBytes) return line;
  size_t end = kShownLineBytes;
  while (end > 0 && (static_cast<uint8_t>(line[end]) & 0xc0) == 0x80) --end;
  return line.substr(0, end) + "…";
}

// A record as --inspect shows one, cut to a few lines.
std::vector<std::string> shown_lines(const data::ShownRecord& record,
                                     const data::Tokenizer& tokenizer) {
  std::vector<std::string> lines;
  const std::span<const uint32_t> ids = record.ids;
  for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
    while (end < ids.size() && record.in_loss[end] == record.in_loss[begin]) ++end;
    const auto words = tokenizer.decode(ids.subspan(begin, end - begin), /*show_special=*/true);
    if (!words.ok()) continue;
    for (const std::string& line : run_lines(words.value(), record.in_loss[begin] != 0))
      lines.push_back(cut_line(line));
  }
  if (lines.size() <= kShownLines) return lines;
  const size_t gone = lines.size() - kShownLines + 1;
  const auto first_gone = lines.begin() + static_cast<ptrdiff_t>(kShownLines) - 2;
  lines.erase(first_gone, first_gone + static_cast<ptrdiff_t>(gone));
  lines.insert(lines.begin() + static_cast<ptrdiff_t>(kShownLines) - 2,
               text("     … ", counted(static_cast<int64_t>(gone), "line"), " left out"));
  return lines;
}

nlohmann::ordered_json shown_as_json(const data::Understanding& all,
                                     const data::Tokenizer& tokenizer) {
  auto samples = nlohmann::ordered_json::array();
  for (const data::ShownRecord& record : all.shown)
    samples.push_back({{"place", record.place}, {"lines", shown_lines(record, tokenizer)}});
  return samples;
}

}  // namespace

void print_records(const char* which, const data::Understanding& all) {
  std::cout << "  " << which << counted(all.records, "record") << ": "
            << fixed(100 * learnt_share(all), 1) << " % of the tokens are learnt, the longest has "
            << grouped(all.longest_tokens) << " tokens (" << all.longest_place << ")";
  if (all.unlearnt > 0)
    std::cout << "; left out, for no answer is to be learnt: " << grouped(all.unlearnt);
  if (all.empty > 0) std::cout << "; empty where they should be learnt: " << grouped(all.empty);
  std::cout << "\n";
}

void print_understood(const data::Understanding& first, const data::RecordFormat& records,
                      const data::Tokenizer& tokenizer) {
  const uint32_t end = tokenizer.end_of_document();
  std::cout << "understood: " << first.format << ", " << records.description()
            << "; keys used: " << joined(first.keys.used)
            << "; passed over: " << joined(first.keys.passed_over) << "\n"
            << "  before each document: "
            << (records.jinja ? "what the template writes"
                              : token_words(tokenizer, tokenizer.begin_of_document()))
            << "; at its end: " << token_words(tokenizer, std::span(&end, 1)) << "\n";
  print_records("the first ", first);
  for (const data::ShownRecord& record : first.shown) {
    std::cout << "  " << record.place << ":\n";
    for (const std::string& line : shown_lines(record, tokenizer))
      std::cout << "    " << line << "\n";
  }
  std::cout << std::flush;
}

std::string report_as_json(const data::PrepareReport& report, const data::PrepareOptions& options,
                           const data::Tokenizer& tokenizer) {
  const data::DatasetManifest& manifest = report.manifest;
  const uint32_t end = tokenizer.end_of_document();
  nlohmann::ordered_json json = {
      {"out", options.out.string()},
      {"up_to_date", report.up_to_date},
      {"manifest", manifest.hash},
      {"files", manifest.recipe.documents},
      {"tokenizer", manifest.tokenizer},
      {"vocab_size", manifest.vocab_size},
      {"records", manifest.recipe.records},
      {"before_each_document", token_words(tokenizer, tokenizer.begin_of_document())},
      {"end_of_document", token_words(tokenizer, std::span(&end, 1))},
      {"train_tokens", manifest.tokens("train")},
      {"val_tokens", manifest.tokens("val")},
      {"filling_tokens", manifest.filling_tokens}};
  const data::Understanding& all = report.understood;
  if (all.records > 0)
    json["understood"] = {
        {"format", all.format},
        {"chat_template", options.records->chat_template},
        {"keys_used", all.keys.used},
        {"keys_passed_over", all.keys.passed_over},
        {"records", all.records},
        {"tokens", all.tokens},
        {"learnt_tokens", all.learnt_tokens},
        {"learnt_share", learnt_share(all)},
        {"longest", {{"tokens", all.longest_tokens}, {"place", all.longest_place}}},
        {"left_out_without_a_learnt_answer", all.unlearnt},
        {"empty_where_learnt", all.empty},
        {"samples", shown_as_json(all, tokenizer)}};
  return dump_json(json);
}

}  // namespace lockstep::cli
