#include "base/json.h"

template class nlohmann::basic_json<>;
template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace lockstep {
inline namespace base {
namespace {

// Whether lists and objects of `contents` are nested at most kMaxJsonLevels deep. For text that is
// not JSON the answer has no meaning; it is read once.
bool is_shallow_json(std::string_view contents) {
  int level = 0;
  bool in_string = false;
  for (size_t i = 0; i < contents.size(); ++i) {
    const char c = contents[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++level > kMaxJsonLevels) return false;
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return true;
}

}  // namespace

template <typename Json>
Json parse_json(std::string_view contents, bool allow_exceptions) {
  if (is_shallow_json(contents)) return Json::parse(contents, nullptr, allow_exceptions);
  if (!allow_exceptions) return Json(Json::value_t::discarded);
  const std::string what = "nested more than " + std::to_string(kMaxJsonLevels) + " levels deep";
  throw Json::other_error::create(500, what, nullptr);
}

template <typename Json>
std::string dump_json(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

template nlohmann::json parse_json(std::string_view, bool);
template nlohmann::ordered_json parse_json(std::string_view, bool);
template std::string dump_json(const nlohmann::json&, int);
template std::string dump_json(const nlohmann::ordered_json&, int);

}  // namespace base
}  // namespace lockstep
