// A key of another tool, and what becomes of it here: a row of the table of config/foreign_keys.h.
#pragma once

#include <span>

namespace lockstep {
inline namespace base {

enum class Becomes {
  kValueOf,    // the value is that of `key`
  kOtherwise,  // `key` says it in another way: `words`
  kNowhere,    // it has no counterpart, or a command is it: `words`
};

struct ForeignKey {
  const char* name;  // "training.dataset", "micro_batch_size"; with ".*" all that begin so
  Becomes becomes;
  const char* key;    // of ours; "" where there is none
  const char* words;  // a sentence's rest, or ""
  // A value with which nothing is lost: what happens here anyway. "": there is none.
  const char* needless = "";
};

struct ForeignTool {
  const char* name;
  std::span<const ForeignKey> keys;
};

}  // namespace base
}  // namespace lockstep
