// The fields of a JSON object of config.json, as the readers of families take them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "base/text.h"

namespace lockstep::hf {

// An object's fields, each read once; the first thing that is wrong is kept. What nobody asked for
// is found by finish(), or by unread().
class Fields {
 public:
  static constexpr int64_t kMaxSize = int64_t{1} << 24;

  // Borrows the object.
  Fields(const nlohmann::json& object, std::string where)
      : object_(object), where_(std::move(where)) {}

  bool has(const char* name) {
    asked_.insert(name);
    return object_.contains(name) && !object_[name].is_null();
  }
  bool is_null(const char* name) {
    asked_.insert(name);
    return object_.contains(name) && object_[name].is_null();
  }
  int64_t size(const char* name, std::optional<int64_t> otherwise = {}, int64_t least = 1,
               int64_t most = kMaxSize) {
    if (!has(name)) return absent(name, otherwise);
    const nlohmann::json& v = object_[name];
    if (v.is_number_integer() && v.get<int64_t>() >= least && v.get<int64_t>() <= most)
      return v.get<int64_t>();
    fail(name, text("must be a whole number from ", least, " to ", most));
    return 1;
  }
  double positive(const char* name, std::optional<double> otherwise = {}) {
    if (!has(name)) return absent(name, otherwise);
    const nlohmann::json& v = object_[name];
    if (v.is_number() && v.get<double>() > 0 && v.get<double>() < 1e15) return v.get<double>();
    fail(name, "must be a positive number");
    return 1;
  }
  bool flag(const char* name, bool otherwise) {
    if (!has(name)) return otherwise;
    if (object_[name].is_boolean()) return object_[name].get<bool>();
    fail(name, "must be true or false");
    return otherwise;
  }
  std::string word(const char* name, const char* otherwise) {
    if (!has(name)) return otherwise;
    if (object_[name].is_string()) return object_[name].get<std::string>();
    fail(name, "must be a word");
    return otherwise;
  }
  const nlohmann::json& at(const char* name) const { return object_[name]; }
  // Absent, null, or one of `values`: what is implemented.
  void only(const char* name, const std::vector<nlohmann::json>& values) {
    if (has(name) && std::find(values.begin(), values.end(), object_[name]) == values.end())
      fail(name, "is not supported");
  }
  void fail(const char* name, const std::string& why) {
    if (!error_)
      error_ = Error{Code::kConfig, text(where_, ": ", name, " = ", shown(name), " ", why)};
  }
  std::string shown(const char* name) const {
    return object_.contains(name) ? object_[name].dump().substr(0, 200) : "(absent)";
  }
  const std::string& where() const { return where_; }
  // What is read in another way than its author may have thought.
  void warn(std::string words) { warnings_.push_back(text(where_, ": ", words)); }
  const std::vector<std::string>& warnings() const { return warnings_; }
  bool was_read(const std::string& name) const { return asked_.contains(name); }
  // The first field that was wrong.
  Result<void> status() const {
    if (error_) return *error_;
    return {};
  }
  // Names of the fields with a value that nobody asked for.
  std::vector<std::string> unread() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : object_.items())
      if (!value.is_null() && !asked_.contains(name)) names.push_back(name);
    return names;
  }
  // Errors: kConfig, of what was wrong; else naming the fields that nobody asked for.
  Result<void> finish() const {
    LOCKSTEP_RETURN_IF_ERROR(status());
    return unread().empty() ? Result<void>() : unsupported(unread());
  }
  Error unsupported(const std::vector<std::string>& names) const {
    std::string all;
    for (const std::string& name : names)
      all += text(all.empty() ? "" : ", ", name, " = ", shown(name.c_str()));
    return {Code::kConfig,
            text(where_, ": unsupported field", names.size() == 1 ? " " : "s ", all)};
  }

 private:
  template <typename T>
  T absent(const char* name, std::optional<T> otherwise) {
    if (!otherwise && !error_)
      error_ = Error{Code::kConfig, text(where_, ": the field ", name, " is missing")};
    return otherwise.value_or(T{1});
  }

  const nlohmann::json& object_;
  std::string where_;
  std::set<std::string> asked_;
  std::vector<std::string> warnings_;
  std::optional<Error> error_;
};

}  // namespace lockstep::hf
