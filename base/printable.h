// Text of files, names and other programs, made safe for a terminal: an escape sequence in a run's
// name must not move the cursor, recolour the screen or answer a question.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {
inline namespace base {

// Control characters, also those of two UTF-8 bytes (U+0080 to U+009F), as \x1b, \x9b and so on.
// Those of `kept` stay, and so does what is no UTF-8.
std::string printable(std::string_view text, std::string_view kept = "\n\t");
// How much of the end of `text` is the beginning of a character that printable would escape: bytes
// of a stream that must be looked at together with those that follow.
size_t unfinished_control(std::string_view text);

}  // namespace base
}  // namespace lockstep
