#include "hf/weight_places.h"

#include "base/check.h"
#include "base/json.h"

namespace lockstep::hf {

using nlohmann::ordered_json;

std::string encode(const Result<WeightPlaces>& places) {
  if (!places.ok())
    return dump_json(ordered_json{{"code", static_cast<int>(places.error().code)},
                                  {"message", places.error().message}});
  const WeightPlaces& all = places.value();
  LOCKSTEP_CHECK(all.files.empty() || !all.hash.empty(), all.files.size());
  ordered_json files = ordered_json::array(), tensors = ordered_json::array();
  for (const auto& [name, bytes] : all.files) files.push_back({name, bytes});
  for (const auto& [name, tensor] : all.tensors) {
    const SafetensorsEntry& e = tensor.entry;
    tensors.push_back({name, tensor.file, e.dtype, e.shape, e.begin, e.end, tensor.beginning});
  }
  return dump_json(ordered_json{{"files", files}, {"tensors", tensors}, {"hash", all.hash}});
}

Result<WeightPlaces> parse_weight_places(const std::string& words) {
  const Error another{
      Code::kPeerLost,
      "cannot parse rank 0's message on the initial weights; run the same build on all nodes"};
  try {
    const auto json = parse_json(words);
    if (json.contains("message"))
      return Error{static_cast<Code>(json.at("code").get<int>()), json.at("message")};
    WeightPlaces places;
    for (const auto& file : json.at("files")) places.files.push_back({file.at(0), file.at(1)});
    for (const auto& row : json.at("tensors")) {
      WeightPlaces::Tensor& tensor = places.tensors[row.at(0)];
      tensor = {row.at(1), {row.at(0), row.at(2), row.at(3), row.at(4), row.at(5)}, row.at(6)};
      if (tensor.file >= places.files.size()) return another;
    }
    places.hash = json.at("hash");
    return places;
  } catch (const nlohmann::json::exception&) {
    return another;
  }
}

}  // namespace lockstep::hf
