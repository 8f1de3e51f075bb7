// Texts as Linux writes them, shortened.
#include "base/cpu_identity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kEpyc =
    "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel name\t: AMD EPYC 9654\n"
    "flags\t\t: fpu sse2 avx fma avx2 avx512f avx512dq avx512_bf16 avx512_vnni\n"
    "bugs\t\t: sysret_ss_attrs\n\nprocessor\t: 1\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu\n\n";
constexpr const char* kGrace =
    "processor\t: 0\nBogoMIPS\t: 2000.00\n"
    "Features\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm "
    "jscvt fcma lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs "
    "sb dcpodp sve2 sveaes svepmull svebitperm svesha3 svesm4 flagm2 frint svei8mm svebf16 i8mm "
    "bf16 dgh\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\n"
    "CPU part\t: 0xd4f\nCPU revision\t: 0\n\n";

std::string arm(const std::string& implementer, const std::string& part,
                const std::string& features) {
  return "processor\t: 0\nFeatures\t: " + features + "\nCPU implementer\t: " + implementer +
         "\nCPU architecture: 8\nCPU variant\t: 0x1\nCPU part\t: " + part +
         "\nCPU revision\t: 0\n\n";
}

TEST(CpuIdentity, NamesVendorAndVectorInstructionsOfX86) {
  EXPECT_EQ(x86_identity(kEpyc), "AuthenticAMD avx2 avx512f avx512_bf16");
  EXPECT_EQ(x86_identity("vendor_id\t: GenuineIntel\nflags\t\t: avx2 amx_bf16\n"),
            "GenuineIntel avx2 amx_bf16");
  EXPECT_EQ(x86_identity("vendor_id\t: GenuineIntel\nflags\t\t: avx2x xavx2\n"), "GenuineIntel");
}

TEST(CpuIdentity, NamesImplementerPartAndVectorInstructionsOfArm) {
  EXPECT_EQ(arm_identity(kGrace),
            "Arm 0xd4f asimdhp asimddp asimdfhm i8mm bf16 sve sve2 svei8mm svebf16");
  EXPECT_EQ(arm_identity(arm("0x41", "0xd0c", "fp asimd asimdhp asimddp")),
            "Arm 0xd0c asimdhp asimddp");
  EXPECT_EQ(arm_identity(arm("0x61", "0x022", "asimd bf16 i8mm")), "Apple 0x022 i8mm bf16");
  EXPECT_EQ(arm_identity(arm("0xc0", "0xac3", "asimd")), "Ampere 0xac3");
  EXPECT_EQ(arm_identity(arm("0x4e", "0x004", "asimd")), "NVIDIA 0x004");
}

TEST(CpuIdentity, AnImplementerThatNobodyKnowsIsItsNumber) {
  EXPECT_EQ(arm_identity(arm("0x99", "0x001", "asimd sve")), "0x99 0x001 sve");
}

TEST(CpuIdentity, NamesEachKindOfCoreOnce) {
  const std::string little = arm("0x41", "0xd05", "asimd asimdhp"),
                    big = arm("0x41", "0xd0a", "asimd asimdhp");
  const std::string both = "Arm 0xd05 + Arm 0xd0a asimdhp";
  EXPECT_EQ(arm_identity(little + little + big + big), both);
  EXPECT_EQ(arm_identity(big + little), both);  // whichever core is numbered first
}

TEST(CpuIdentity, TextOfAnotherKindOfCpuIsUnknown) {
  EXPECT_EQ(arm_identity(kEpyc), "unknown");
  EXPECT_EQ(x86_identity(kGrace), "unknown");
  EXPECT_EQ(arm_identity(""), "unknown");
  EXPECT_EQ(x86_identity(""), "unknown");
}

TEST(CpuIdentity, ThisMachineHasOne) {
  EXPECT_THAT(cpu_identity(), Not(HasSubstr("unknown")));
  EXPECT_FALSE(cpu_identity().empty());
}

}  // namespace
}  // namespace lockstep
