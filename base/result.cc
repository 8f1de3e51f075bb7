#include "base/result.h"

namespace lockstep {
inline namespace base {

const char* code_name(Code code) {
  switch (code) {
    case Code::kConfig: return "config";
    case Code::kIo: return "io";
    case Code::kDenied: return "denied";
    case Code::kNoSpace: return "no space";
    case Code::kCorrupt: return "corrupt";
    case Code::kNotFound: return "not found";
    case Code::kPeerLost: return "peer lost";
    case Code::kTimeout: return "timeout";
    case Code::kAborted: return "aborted";
    case Code::kNotFinite: return "not finite";
    case Code::kWrongBits: return "wrong bits";
    case Code::kChanged: return "changed";
    case Code::kBug: return "bug";
  }
  return "unknown";
}

int exit_status(Code code) {
  switch (code) {
    case Code::kConfig:
    case Code::kDenied:
    case Code::kNotFinite: return 64;
    case Code::kNoSpace: return 74;
    case Code::kAborted: return 75;
    case Code::kPeerLost: return 76;
    case Code::kWrongBits: return 77;
    case Code::kChanged: return 78;
    case Code::kIo:
    case Code::kCorrupt:
    case Code::kNotFound:
    case Code::kTimeout:
    case Code::kBug: return 70;
  }
  return 70;
}

}  // namespace base
}  // namespace lockstep
