// `lockstep doctor`: each verdict from injected facts; what the probes read and leave behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/json.h"
#include "base/text.h"
#include "cli/doctor/doctor_probe.h"
#include "cli/doctor/doctor_report.h"
#include "hf/configured_model.h"
#include "tests/support/eventually.h"
#include "tests/support/faulty_file_system.h"
#include "tests/support/temp_dir.h"
#include "tests/unit/cli/healthy_node.h"

namespace lockstep::cli {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

NodeNeeds two_ranks() {
  return {.ranks = 2,
          .checkpoint_bytes = 100 * kGiB,
          .checkpoint_how = "4 x 25.00 GiB at most",
          .snapshot_bytes = 50 * kGiB,
          .host_bytes = 30 * kGiB,
          .device_bytes = 60 * kGiB};
}

Verdict verdict(const NodeFacts& facts, const NodeNeeds& needs, const std::string& what) {
  for (Verdict& v : judge(facts, needs))
    if (v.what == what) return v;
  ADD_FAILURE() << "no verdict on " << what;
  return {};
}

TEST(Doctor, AHealthyNodeIsOkAndNeedsNoAdvice) {
  for (const NodeNeeds& needs : {NodeNeeds{}, two_ranks()})
    for (const Verdict& v : judge(healthy(), needs)) {
      EXPECT_EQ(v.level, Level::kOk) << v.what << ": " << v.found;
      EXPECT_EQ(v.advice, "") << v.what;
      EXPECT_NE(v.found, "") << v.what;
    }
  EXPECT_THAT(verdict(healthy(), two_ranks(), "versions").found,
              HasSubstr("LibTorch 2.11.0, NCCL 2.27.5"));
}

// One thing is changed on the healthy node; that verdict, and no other, becomes `level`.
struct Trouble {
  const char* name;
  const char* what;
  Level level;
  const char* words;  // in what was found
  std::function<void(NodeFacts&, NodeNeeds&)> make;
};

std::vector<Trouble> troubles_of_devices() {
  using F = NodeFacts;
  using N = NodeNeeds;
  return {
      {"NoNvidiaSmi", "devices", Level::kWarn, "2 GPUs in /proc",
       [](F& f, N&) {
         f.devices.has_nvidia_smi = false;
         f.devices.gpus.clear();
       }},
      {"DriverIsSilent", "devices", Level::kBad, "timed out",
       [](F& f, N&) {
         f.devices.nvidia_smi_error = "timed out";
         f.devices.gpus.clear();
       }},
      {"GpuFellOffTheBus", "devices", Level::kBad, "1 of 2",
       [](F& f, N&) { f.devices.gpus.pop_back(); }},
      {"EccErrors", "devices", Level::kBad, "3 uncorrected",
       [](F& f, N&) { f.devices.gpus[1].ecc_errors = 3; }},
      {"TwoModels", "devices", Level::kWarn, "A100",
       [](F& f, N&) { f.devices.gpus[1].name = "NVIDIA A100"; }},
      {"ModelTooLargeForTheGpu", "devices", Level::kBad, "a GPU has 80.00 GiB",
       [](F&, N& n) { n.device_bytes = 81 * kGiB; }},
      {"MoreRanksThanGpus", "devices", Level::kWarn, "for 4 ranks", [](F&, N& n) { n.ranks = 4; }},
      {"BuiltForTheCpu", "devices", Level::kWarn, "computes on the CPU",
       [](F& f, N&) { f.compute.cuda_build = false; }},
      {"BuiltForTheCpuWithoutNvidiaSmi", "devices", Level::kWarn, "computes on the CPU",
       [](F& f, N& n) {
         f.devices.has_nvidia_smi = f.compute.cuda_build = false;
         f.devices.gpus.clear();
         n.ranks = 4;
       }},
      {"DriverIsTooOld", "devices", Level::kWarn, "older than 580: LibTorch sees 0 GPUs",
       [](F& f, N&) {
         f.devices.gpus[0].driver = f.devices.gpus[1].driver = "550.54.15";
         f.compute.cuda_devices = 0;
       }},
      {"BoundToOneCore", "cpus", Level::kWarn, "2 of the node's 64 CPUs, on 1 core",
       [](F& f, N&) {
         f.devices.cpus = 2;
         f.devices.cores = 1;
       }},
      {"LibTorchSeesOne", "devices", Level::kWarn, "LibTorch sees 1",
       [](F& f, N&) { f.compute.cuda_devices = 1; }},
  };
}

std::vector<Trouble> troubles_of_the_rest() {
  using F = NodeFacts;
  using N = NodeNeeds;
  return {
      {"NoWorker", "gemm", Level::kBad, "no lockstep-worker",
       [](F& f, N&) { f.compute.error = "no lockstep-worker"; }},
      {"TooLittleMemory", "memory", Level::kBad, "take 500.00 GiB",
       [](F&, N& n) { n.host_bytes = 450 * kGiB; }},
      {"TightMemory", "memory", Level::kWarn, "take 350.00 GiB",
       [](F&, N& n) { n.host_bytes = 300 * kGiB; }},
      {"SlowMemory", "memory", Level::kWarn, "900.0 MB/s",
       [](F& f, N&) { f.memory.copy_bytes_per_s = 0.9e9; }},
      {"NoRoomForSnapshots", "shm", Level::kBad, "snapshots take 50.00 GiB",
       [](F& f, N&) { f.memory.snapshot_free_bytes = 49 * kGiB; }},
      {"DockersShm", "shm", Level::kWarn, "64.00 MiB free",
       [](F& f, N&) { f.memory.shm_free_bytes = 64 << 20; }},
      {"DiskCannotBeWritten", "disk", Level::kBad, "Permission denied",
       [](F& f, N&) { f.disk.error = "create /scratch/x: Permission denied"; }},
      {"SlowDisk", "disk", Level::kWarn, "26.7 MB/s",
       [](F& f, N&) {
         f.disk.write_s = 10;
         f.disk.sync_s = 0.05;
       }},
      {"SlowSync", "disk", Level::kWarn, "fsync 2.100 s", [](F& f, N&) { f.disk.sync_s = 2.1; }},
      {"NoSpace", "space", Level::kBad, "up to 100.00 GiB (4 x 25.00 GiB at most)",
       [](F& f, N&) { f.disk.free_bytes = 99 * kGiB; }},
      {"TightSpace", "space", Level::kWarn, "up to 100.00 GiB",
       [](F& f, N&) { f.disk.free_bytes = 120 * kGiB; }},
      {"FewOpenFiles", "limits", Level::kWarn, "1024 open files",
       [](F& f, N&) { f.limits.open_files = 1024; }},
      {"TooFewOpenFiles", "limits", Level::kBad, "256 open files",
       [](F& f, N&) { f.limits.open_files = 256; }},
      {"InfiniBandWithoutLockedMemory", "limits", Level::kWarn, "8.00 MiB",
       [](F& f, N&) {
         f.limits.infiniband = true;
         f.limits.locked_bytes = 8 << 20;
       }},
      {"NoAddress", "network", Level::kBad, "no interface is called",
       [](F& f, N&) { f.network.error = "no interface is called \"ib9\""; }},
      {"ClockRunsFree", "clock", Level::kWarn, "time service",
       [](F& f, N&) { f.clock_synchronized = false; }},
  };
}

class DoctorTrouble : public testing::TestWithParam<Trouble> {};

TEST_P(DoctorTrouble, IsSaidOnItsLineWithAdvice) {
  const Trouble& trouble = GetParam();
  NodeFacts facts = healthy();
  NodeNeeds needs = two_ranks();
  trouble.make(facts, needs);
  DoctorReport report;
  report.nodes.push_back({facts, judge(facts, needs)});
  for (const Verdict& v : report.nodes[0].verdicts) {
    if (v.what != trouble.what) {
      EXPECT_EQ(v.level, Level::kOk) << v.what << ": " << v.found;
      continue;
    }
    EXPECT_EQ(v.level, trouble.level) << v.found;
    EXPECT_THAT(v.found, HasSubstr(trouble.words));
    EXPECT_NE(v.advice, "");
    EXPECT_THAT(doctor_text(report), HasSubstr("-> " + v.advice));
  }
  EXPECT_EQ(report.worst(), trouble.level);
  const auto json = nlohmann::json::parse(doctor_json(report));
  EXPECT_EQ(json["verdict"], level_name(trouble.level));
}
std::string name_of(const testing::TestParamInfo<Trouble>& trouble) { return trouble.param.name; }
INSTANTIATE_TEST_SUITE_P(Devices, DoctorTrouble, testing::ValuesIn(troubles_of_devices()), name_of);
INSTANTIATE_TEST_SUITE_P(Rest, DoctorTrouble, testing::ValuesIn(troubles_of_the_rest()), name_of);

TEST(Doctor, ANodeWithoutGpusIsFine) {
  NodeFacts f = healthy();
  f.devices = DeviceFacts();
  f.devices.cpus = f.devices.cores = f.devices.cpus_of_node = 2;
  f.compute.cuda_devices = 0;
  f.compute.cuda_build = false;
  f.compute.nccl = "";
  f.memory.shm_free_bytes = 0;
  NodeNeeds needs;
  needs.ranks = 4;
  for (const Verdict& v : judge(f, needs)) EXPECT_EQ(v.level, Level::kOk) << v.found;
  EXPECT_EQ(verdict(f, {}, "devices").found, "2 CPUs, no GPU");
}

TEST(Doctor, AnOldDriverUnderWhichLibTorchSeesItsGpusIsFine) {
  NodeFacts f = healthy();
  f.devices.gpus[0].driver = "535.1";
  EXPECT_EQ(verdict(f, two_ranks(), "devices").level, Level::kOk);
}

TEST(Doctor, NeedsFollowFromTheConfig) {
  Config config;
  config.training.steps = 1000;
  config.checkpoint.interval = 50;
  const layout::ModelSpec spec = hf::configured_model(config, 300).value();
  const int64_t state = 12 * spec.parameter_count();
  const auto needs = [&] { return needs_of(config, spec, {4, 2}, 2); };
  EXPECT_EQ(needs().checkpoint_bytes, 4 * state);  // three that stay, one in the making
  config.checkpoint.keep_every = 250;
  EXPECT_EQ(needs().checkpoint_bytes, (3 + 4 + 1) * state);
  config.checkpoint.keep_best = true;
  EXPECT_EQ(needs().checkpoint_bytes, (3 + 4 + 1 + 1) * state);
  config.checkpoint.keep_latest_k = 0;
  EXPECT_EQ(needs().checkpoint_bytes, (21 + 1) * state);
  EXPECT_EQ(needs().snapshot_bytes, 0);
  EXPECT_EQ(needs().device_bytes, 0);
  const int64_t host = needs().host_bytes;
  config.checkpoint.memory_interval = 1;
  EXPECT_EQ(needs().host_bytes, host);
  // Two slots of the state that two of four ranks own, tiles rounded up.
  EXPECT_NEAR(static_cast<double>(needs().snapshot_bytes), static_cast<double>(state),
              0.05 * static_cast<double>(state));
  const NodeNeeds on_gpus = needs_of(config, spec, {4, 2, layout::WorkSizes::kGpu}, 2);
  EXPECT_GT(on_gpus.device_bytes, 0);
  EXPECT_LT(on_gpus.host_bytes, host);
  config.checkpoint.enable = false;
  EXPECT_EQ(needs().checkpoint_bytes, 0);
}

ProbeOptions small(const std::filesystem::path& checkpoint_folder) {
  ProbeOptions options;
  options.checkpoint_folder = checkpoint_folder;
  options.disk_bytes = 16 << 20;
  return options;
}

TEST(DoctorProbe, TheDiskIsMeasuredInTheNearestFolderAndNothingIsLeft) {
  const test_support::TempDir dir;
  const DiskFacts facts =
      probe_disk(posix_file_system(), system_clock(), small(dir / "run/checkpoints"));
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(facts.folder, dir.path().string());
  EXPECT_EQ(facts.written_bytes, 16 << 20);
  EXPECT_GT(facts.bytes_per_s(), 0);
  EXPECT_GT(facts.free_bytes, 0);
  EXPECT_THAT(posix_file_system().list(dir.path()).value(), IsEmpty());
}

TEST(DoctorProbe, AFullDiskIsSaidAndNothingIsLeft) {
  const test_support::TempDir dir;
  test_support::FaultyFileSystem full(
      posix_file_system(),
      {.op = test_support::Op::kWrite, .at_call = 2, .fault = test_support::Fault::kNoSpace});
  const DiskFacts facts = probe_disk(full, system_clock(), small(dir.path()));
  EXPECT_NE(facts.error, "");
  EXPECT_THAT(posix_file_system().list(dir.path()).value(), IsEmpty());
}

TEST(DoctorProbe, NvidiaSmi) {
  const auto gpus = parse_nvidia_smi(
      "NVIDIA H100 80GB HBM3, 81559, 550.54.15, 0\nNVIDIA RTX 4090, 24564, 550.54.15, [N/A]\n");
  ASSERT_TRUE(gpus.ok());
  ASSERT_EQ(gpus.value().size(), 2u);
  EXPECT_EQ(gpus.value()[0].name, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(gpus.value()[0].memory_bytes, int64_t{81559} << 20);
  EXPECT_EQ(gpus.value()[0].driver, "550.54.15");
  EXPECT_EQ(gpus.value()[0].ecc_errors, 0);
  EXPECT_EQ(gpus.value()[1].ecc_errors, -1);
  EXPECT_FALSE(parse_nvidia_smi("Unable to determine the device handle for GPU").ok());
  EXPECT_THAT(parse_nvidia_smi("").value(), IsEmpty());
}

TEST(DoctorProbe, WhatTheWorkerSays) {
  const auto facts = parse_worker_probe(
      R"({"device": "AuthenticAMD avx2", "torch": "2.11.0", "nccl": "", "cuda_build": false,)"
      R"("cuda_devices": 0, "threads": 2, "fp32_tflops": 0.1, "bf16_tflops": 0.2})");
  ASSERT_TRUE(facts.ok()) << facts.error().message;
  EXPECT_EQ(facts.value().threads, 2);
  EXPECT_EQ(facts.value().bf16_tflops, 0.2);
  for (const char* words : {"", "{}", "[1]", R"({"device": 3})"})
    EXPECT_EQ(parse_worker_probe(words).error().code, Code::kCorrupt) << words;
}

TEST(DoctorProbe, TheAddressIsTheOneThatWasNamed) {
  ProbeOptions options;
  options.local_address = "lo";
  EXPECT_EQ(probe_network(options).interface, "lo");
  EXPECT_EQ(probe_network(options).address, "127.0.0.1");
  options.local_address = "nosuchinterface0";
  EXPECT_THAT(probe_network(options).error, HasSubstr("nosuchinterface0"));
  options.local_address = "";
  options.rendezvous = "127.0.0.1:29400";  // the way to who coordinates
  EXPECT_EQ(probe_network(options).address, "127.0.0.1");
}

TEST(DoctorProbe, ThisNode) {
  const test_support::TempDir dir;
  ProbeOptions options = small(dir.path());
  options.worker_program = Error{Code::kConfig, "none fits"};
  const NodeFacts facts = probe_node(posix_file_system(), system_clock(), options);
  EXPECT_GT(facts.devices.cpus, 0);
  EXPECT_GT(facts.devices.cores, 0);
  EXPECT_LE(facts.devices.cores, facts.devices.cpus);
  EXPECT_LE(facts.devices.cpus, facts.devices.cpus_of_node);
  EXPECT_EQ(facts.compute.error, "none fits");
  EXPECT_GT(facts.memory.available_bytes, 0);
  EXPECT_GT(facts.memory.copy_bytes_per_s, 0);
  EXPECT_GT(facts.limits.open_files, 0);
  EXPECT_EQ(facts.network.error, "");
  EXPECT_NE(facts.network.address, "");
  EXPECT_THAT(facts.versions.hdf5, HasSubstr("1."));
  EXPECT_THAT((std::vector{facts.node, facts.versions.kernel, facts.versions.glibc}),
              Each(testing::Not(testing::AnyOf("", "unknown"))));
}

TEST(Doctor, OneIsNotSeveral) {
  DoctorReport report;
  NodeFacts facts = healthy();
  facts.limits.open_files = 1024;
  report.nodes.push_back({facts, judge(facts, {})});
  EXPECT_THAT(doctor_text(report), testing::EndsWith("warn: 0 bad, 1 warning\n"));
  facts.devices = DeviceFacts();
  facts.compute.cuda_devices = 0;
  NodeNeeds needs;
  needs.ranks = 1;
  needs.host_bytes = kGiB;
  EXPECT_EQ(verdict(facts, needs, "devices").found, "1 CPU, no GPU");
  EXPECT_THAT(verdict(facts, needs, "gemm").found, testing::EndsWith(", 1 thread"));
  EXPECT_THAT(verdict(facts, needs, "memory").found, HasSubstr("; 1 rank takes 1.00 GiB"));
  EXPECT_THAT(judge_together({{0, facts, {}, {}}}, 1)[0].found, HasSubstr("1 of 1 node came"));
}

// A clock that is wrong by so much.
class WrongClock final : public Clock {
 public:
  explicit WrongClock(double ahead_s) : ahead_ns_(static_cast<int64_t>(ahead_s * 1e9)) {}
  int64_t monotonic_ns() override { return system_clock().monotonic_ns(); }
  int64_t unix_ns() override { return system_clock().unix_ns() + ahead_ns_; }
  void sleep_ns(int64_t duration_ns) override { system_clock().sleep_ns(duration_ns); }

 private:
  const int64_t ahead_ns_;
};

TEST(DoctorMeeting, BringsFactsAndClocksTogetherAndLeavesNothing) {
  constexpr double kMeetingS = test_support::kPatienceMs / 1e3;
  const test_support::TempDir dir;
  // What a meeting that was cut off left behind misleads nobody.
  ASSERT_TRUE(make_durable_directories(posix_file_system(), dir / "run/doctor"));
  ASSERT_TRUE(publish_file(posix_file_system(), dir / "run/doctor/session", "old"));
  ASSERT_TRUE(publish_file(posix_file_system(), dir / "run/doctor/ping_0_old", "?"));
  const auto options = [&](int64_t rank) {
    return MeetingOptions{dir / "run/doctor", rank == 0 ? "new" : "", rank, 3, kMeetingS,
                          kMeetingS};
  };
  NodeFacts here = healthy();
  here.network.address = "127.0.0.1";
  std::vector<Result<void>> attended(3);
  std::vector<std::jthread> others;
  for (int64_t rank = 1; rank < 3; ++rank)
    others.emplace_back([&, rank] {
      WrongClock clock(rank == 1 ? 100 : -3);
      NodeFacts facts = here;
      facts.node = text("node", rank);
      if (rank == 2) facts.network.address = "192.0.2.7";  // not one of this machine's
      attended[static_cast<size_t>(rank)] =
          attend_meeting(posix_file_system(), clock, options(rank), facts);
    });
  const auto met = lead_meeting(posix_file_system(), system_clock(), options(0), here);
  others.clear();
  ASSERT_TRUE(met.ok());
  ASSERT_EQ(met.value().size(), 3u);
  for (size_t rank = 1; rank < 3; ++rank) {
    EXPECT_TRUE(attended[rank].ok()) << attended[rank].error().message;
    const MetNode& node = met.value()[rank];
    EXPECT_EQ(node.facts.node, text("node", rank));
    EXPECT_EQ(node.facts.devices.gpus.size(), 2u);
    ASSERT_TRUE(node.skew.has_value());
    EXPECT_NEAR(node.skew->ahead_s, rank == 1 ? 100 : -3, node.skew->error_s + 1e-6);
    EXPECT_LE(node.skew->error_s, kMeetingS);
  }
  // Two of them reach each other; the third can only say why it does not listen.
  for (size_t rank = 0; rank < 2; ++rank) {
    ASSERT_EQ(met.value()[rank].pairs.size(), 1u);
    const PairFacts& pair = met.value()[rank].pairs[0];
    EXPECT_EQ(pair.to, static_cast<int64_t>(1 - rank));
    EXPECT_EQ(pair.error, "");
    EXPECT_GT(pair.bytes_per_s, 0);
    EXPECT_GT(pair.round_trip_s, 0);
  }
  EXPECT_THAT(met.value()[2].facts.network.error, HasSubstr("192.0.2.7"));
  EXPECT_THAT(met.value()[2].pairs, IsEmpty());
  EXPECT_THAT(posix_file_system().list(dir / "run").value(), IsEmpty());
}

TEST(DoctorMeeting, WhoDoesNotComeIsMissingAndWhoFindsNobodySaysSo) {
  const test_support::TempDir dir;
  const auto met = lead_meeting(posix_file_system(), system_clock(),
                                {dir / "a", "word", 0, 2, 0.05, 0.05}, healthy());
  ASSERT_TRUE(met.ok());
  EXPECT_EQ(met.value().size(), 1u);
  const auto attended = attend_meeting(posix_file_system(), system_clock(),
                                       {dir / "b", "", 1, 2, 0.05, 0.05}, healthy());
  ASSERT_FALSE(attended.ok());
  EXPECT_EQ(attended.error().code, Code::kTimeout);
  EXPECT_THAT(attended.error().message, HasSubstr("shared"));
}

}  // namespace
}  // namespace lockstep::cli
