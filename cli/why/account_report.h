// An Account as text and as JSON.
#pragma once

#include <string>

#include "base/json.h"
#include "cli/why/account.h"

namespace lockstep::cli {

// One line where nothing went wrong. Ends with a newline.
std::string account_text(const Account& account);
// The same as fields; what is not known is null.
nlohmann::ordered_json account_json(const Account& account);

}  // namespace lockstep::cli
