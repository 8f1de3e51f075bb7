// What of a CPU may change a bit of floating-point results: libraries choose their kernels by it.
// The words go into the identity of a run, and into the names of recorded losses.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {
inline namespace base {

// Of the text of Linux's /proc/cpuinfo; "unknown" where it says nothing of this kind of CPU.
// Vendor and vector instructions: "AuthenticAMD avx2 avx512f avx512_bf16".
std::string x86_identity(std::string_view cpuinfo);
// Implementer, by name where that is known, part and vector instructions:
// "Arm 0xd4f asimdhp asimddp asimdfhm i8mm bf16 sve sve2 svei8mm svebf16" (Grace). Where a machine
// has several kinds of cores, each is named: "Arm 0xd05 + Arm 0xd0a asimdhp asimddp".
std::string arm_identity(std::string_view cpuinfo);

// Of the CPU that this program is for, on this machine.
std::string cpu_identity();

}  // namespace base
}  // namespace lockstep
