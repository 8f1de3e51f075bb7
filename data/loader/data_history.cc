#include "data/loader/data_history.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/text.h"
#include "data/order/sample_plan.h"

namespace lockstep::data {
namespace {

struct Weighted {
  std::string hash;
  int64_t weight = 1;
};

// "HASH", or "WEIGHT*HASH,WEIGHT*HASH,…".
std::vector<Weighted> sources_of(const DataStretch& stretch) {
  std::vector<Weighted> sources;
  for (const std::string& word : split(stretch.sources, ',')) {
    const size_t star = word.find('*');
    Weighted source{star == std::string::npos ? word : word.substr(star + 1)};
    if (star != std::string::npos) std::from_chars(word.data(), word.data() + star, source.weight);
    source.weight = std::max<int64_t>(1, source.weight);
    sources.push_back(std::move(source));
  }
  return sources;
}

// How far the order of each source is after `step` steps of the run.
std::vector<int64_t> numbers_at(const DataStretch& stretch, int64_t step) {
  std::vector<int64_t> weights;
  for (const Weighted& source : sources_of(stretch)) weights.push_back(source.weight);
  const int64_t steps = step - origin_of(stretch).first_step;
  std::vector<int64_t> numbers =
      Mixture(std::move(weights)).counts(steps * stretch.samples_per_step);
  LOCKSTEP_CHECK(stretch.before.empty() || stretch.before.size() == numbers.size(),
                 stretch.before.size(), " starts of ", numbers.size(), " sources");
  for (size_t k = 0; k < stretch.before.size(); ++k) numbers[k] += stretch.before[k];
  return numbers;
}

std::vector<SourceStart> starts_at(const DataStretch& stretch, int64_t step) {
  const std::vector<Weighted> sources = sources_of(stretch);
  const std::vector<int64_t> numbers = numbers_at(stretch, step);
  std::vector<SourceStart> starts;
  for (size_t k = 0; k < sources.size(); ++k) starts.push_back({sources[k].hash, numbers[k]});
  return starts;
}

int64_t end_of(const std::vector<DataStretch>& stretches, size_t i, int64_t end_step) {
  return i + 1 < stretches.size() ? stretches[i + 1].first_step : end_step;
}

// Tokens of the source's order up to the furthest sample that was drawn of it.
int64_t reached_tokens(const std::vector<DataStretch>& stretches, const std::string& hash,
                       int64_t end_step) {
  int64_t reached = 0;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const std::vector<SourceStart> from = starts_of(stretches[i]);
    const auto to = starts_at(stretches[i], end_of(stretches, i, end_step));
    for (size_t k = 0; k < from.size(); ++k)
      if (from[k].source == hash && to[k].sample > from[k].sample)
        reached = std::max(reached, to[k].sample * stretches[i].seq_len);
  }
  return reached;
}

// By source of `now`: the samples that come before its first one when it continues.
std::vector<int64_t> continued(const std::vector<DataStretch>& stretches, const DataStretch& now) {
  std::vector<int64_t> before;
  for (const Weighted& source : sources_of(now)) {
    const int64_t tokens = reached_tokens(stretches, source.hash, now.first_step);
    before.push_back((tokens + now.seq_len - 1) / now.seq_len);
  }
  return before;
}

bool same(const DataStretch& a, const DataStretch& b) {
  return a.samples_per_step == b.samples_per_step && a.seq_len == b.seq_len &&
         a.sources == b.sources;
}

std::string words_of(const DataStretch& s) {
  return text(s.samples_per_step, " samples of ", s.seq_len, " tokens a step from ", s.sources);
}

std::string name_of(const std::string& hash, const std::vector<DataSource>& sources) {
  for (const DataSource& source : sources)
    if (source.hash == hash) return text(source.path.string(), " (", hash, ")");
  return hash;
}

std::string start_text(const SourceStart& start, const DataStretch& now,
                       const std::vector<DataSource>& sources) {
  std::string line = text("  from now on ", name_of(start.source, sources),
                          ": the next sample is number ", grouped(start.sample));
  for (const DataSource& source : sources) {
    const int64_t samples = (source.train_tokens - 1) / std::max<int64_t>(1, now.seq_len);
    if (source.hash == start.source && samples > 0)
      return text(line, ", place ", grouped(start.sample % samples), " of ", grouped(samples),
                  " in epoch ", start.sample / samples);
  }
  return line;
}

std::string tokens_of(int64_t samples, const DataStretch& stretch) {
  return text(grouped(samples), " samples, ", grouped(samples * stretch.seq_len), " tokens");
}

// What lies between the sample that `was` would have drawn next of this source and the one that
// `now` draws. "": nothing does. Samples of another length come in another order.
std::string jump_text(const SourceStart& start, const DataStretch& was, const DataStretch& now) {
  for (const SourceStart& next : starts_at(was, now.first_step)) {
    if (next.source != start.source || was.seq_len != now.seq_len) continue;
    const int64_t jump = start.sample - next.sample;
    if (jump == 0) return "";
    return jump > 0 ? text("; skipped: ", tokens_of(jump, now))
                    : text("; drawn again: ", tokens_of(-jump, now));
  }
  if (start.sample == 0) return "";
  if (!now.before.empty())
    return was.seq_len == now.seq_len
               ? ""
               : "; skipped of its order: as many tokens as were drawn, but not the same ones";
  return text("; skipped of its order: ", tokens_of(start.sample, now),
              was.seq_len == now.seq_len
                  ? ""
                  : "; samples that were drawn in the old order may come again");
}

}  // namespace

std::vector<Drawn> drawn(const std::vector<DataStretch>& stretches, int64_t end_step) {
  std::vector<Drawn> all;
  for (size_t i = 0; i < stretches.size(); ++i) {
    const DataStretch& s = stretches[i];
    const std::vector<Weighted> sources = sources_of(s);
    const auto before = numbers_at(s, s.first_step);
    const auto after = numbers_at(s, std::max(end_of(stretches, i, end_step), s.first_step));
    for (size_t k = 0; k < sources.size(); ++k) {
      auto found = std::find_if(all.begin(), all.end(),
                                [&](const Drawn& d) { return d.source == sources[k].hash; });
      if (found == all.end()) found = all.insert(all.end(), Drawn{sources[k].hash});
      found->samples += after[k] - before[k];
      found->tokens += (after[k] - before[k]) * s.seq_len;
    }
  }
  return all;
}

std::vector<SourceStart> starts_of(const DataStretch& stretch) {
  return starts_at(stretch, stretch.first_step);
}

SampleOrigin origin_of(const DataStretch& stretch) {
  if (stretch.before.empty()) return {};
  return {stretch.first_step, stretch.before};
}

std::vector<std::string> go_on_with(std::vector<DataStretch>& stretches, DataStretch now,
                                    const std::vector<DataSource>& sources,
                                    OnDataChange on_change) {
  if (!stretches.empty() && same(stretches.back(), now)) return {};
  LOCKSTEP_CHECK(stretches.empty() || stretches.back().first_step <= now.first_step, "step ",
                 now.first_step, " comes after step ", stretches.back().first_step);
  if (stretches.empty()) {
    stretches.push_back(now);
    return {};
  }
  std::vector<std::string> lines{text("the data change after step ", now.first_step, ": before, ",
                                      words_of(stretches.back()), "; from now on, ",
                                      words_of(now))};
  for (const Drawn& d : drawn(stretches, now.first_step))
    lines.push_back(text("  drawn so far from ", name_of(d.source, sources), ": ",
                         grouped(d.samples), " samples, ", grouped(d.tokens), " tokens"));
  const bool drew = stretches.size() == 1 || stretches.back().first_step < now.first_step;
  const DataStretch was = drew ? stretches.back() : stretches[stretches.size() - 2];
  if (on_change == OnDataChange::kContinue && sources.empty())
    lines.emplace_back(
        "  data.on_change = \"continue\" does not apply to an array of batches: step N takes its "
        "own batches");
  if (on_change == OnDataChange::kContinue && !sources.empty())
    now.before = continued(stretches, now);
  for (const SourceStart& start : starts_of(now))
    lines.push_back(start_text(start, now, sources) + jump_text(start, was, now));
  if (stretches.back().first_step == now.first_step) stretches.pop_back();  // it drew nothing
  stretches.push_back(std::move(now));
  return lines;
}

}  // namespace lockstep::data
