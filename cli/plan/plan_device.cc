#include "cli/plan/plan_device.h"

#include <ostream>

#include "base/text.h"
#include "cli/plan/plan_table.h"

namespace lockstep::cli {
namespace {

using layout::DeviceMemory;
using layout::PhaseTime;
using layout::StepPhase;
using layout::StepTime;
using nlohmann::ordered_json;

std::string milliseconds(double seconds) { return fixed(1e3 * seconds, 1); }

void print_phase(std::ostream& out, const std::string& name, const PhaseTime& p, double total_s) {
  out << "  " << left(name, 20) << right(milliseconds(p.seconds), 11)
      << right(percent(p.seconds / total_s), 9) << right(fixed(1e-12 * p.flops, 2), 11)
      << right(fixed(1e-9 * p.bytes, 2), 11) << right(grouped(p.launches), 10) << "\n";
}

void print_time(std::ostream& out, const StepTime& t) {
  out << "  " << left("", 20) << right("ms", 11) << right("share", 9) << right("TFLOP", 11)
      << right("GB moved", 11) << right("kernels", 10) << "\n";
  PhaseTime sum;
  for (size_t i = 0; i < layout::kStepPhases; ++i) {
    const PhaseTime& p = t.phases[i];
    sum.flops += p.flops;
    sum.bytes += p.bytes;
    sum.launches += p.launches;
    if (p.seconds > 0) print_phase(out, name_of(static_cast<StepPhase>(i)), p, t.total_s);
  }
  sum.seconds = t.total_s;
  print_phase(out, "a step", sum, t.total_s);
  out << "  " << grouped(static_cast<int64_t>(t.tokens_per_s)) << " tokens/s, "
      << grouped(static_cast<int64_t>(t.tokens_per_s_rank)) << " a rank, MFU " << percent(t.mfu)
      << "\n";
  if (t.received.seconds > 0)
    out << "  the rank receives " << fixed(1e-9 * t.received.near_bytes, 2)
        << " GB from its node and " << fixed(1e-9 * t.received.far_bytes, 2)
        << " GB from others; its links are busy for " << milliseconds(t.received.seconds)
        << " ms\n";
}

void print_memory(std::ostream& out, const DeviceMemory& m) {
  out << "\nMemory of the device\n";
  print_rows(out, m.device);
  out << "  " << left("sum", 40) << right(size_of(m.device_bytes), 12) << "   "
      << percent(static_cast<double>(m.device_bytes) / static_cast<double>(m.capacity_bytes))
      << " of " << size_of(m.capacity_bytes) << (m.fits() ? "" : ": DOES NOT FIT") << "\n"
      << "Memory of the host, for this rank\n";
  print_rows(out, m.host);
  out << "  " << left("sum", 40) << right(size_of(m.host_bytes), 12) << "\n";
}

std::optional<NodeReshard> node_reshard(Config config, const layout::ModelSpec& spec,
                                        const layout::Ranks& ranks, const layout::MemoryPlan& plan,
                                        const DevicePlan& device) {
  Config::Parallelism& p = config.parallelism;
  if (p.strategy != ShardingStrategy::kFullShard ||
      p.reshard_after_forward == ReshardAfterForward::kNode)
    return std::nullopt;
  p.reshard_after_forward = ReshardAfterForward::kNode;
  const NodeReshard reshard{layout::plan_step_time(config, spec, ranks, device.rates), 0};
  if (reshard.time.received.far_bytes >= device.time.received.far_bytes) return std::nullopt;
  const layout::MemoryPlan with = layout::plan_memory(config, spec, ranks);
  if (device.memory && !layout::device_memory(with, config, spec, ranks, device.rates).fits())
    return std::nullopt;
  return NodeReshard{reshard.time, with.device_bytes() - plan.device_bytes()};
}

void print_node_reshard(std::ostream& out, const NodeReshard& n) {
  out << "  with --parallelism.reshard_after_forward node "
      << fixed(1e-9 * n.time.received.far_bytes, 2) << " GB from others and a step of "
      << milliseconds(n.time.total_s) << " ms, for " << size_of(n.more_bytes)
      << " more memory of the device\n";
}

}  // namespace

Result<layout::DeviceRates> device_of(const std::string& words) {
  if (const layout::DeviceRates* device = layout::built_in_device(words)) return *device;
  const auto numbers = read_toml_numbers(words);
  if (!numbers.ok() && numbers.error().code == Code::kNotFound)
    return Error{Code::kConfig, text("--device ", words, " is not a known device (",
                                     layout::built_in_devices(), ") and not a file")};
  if (!numbers.ok()) return Error{Code::kConfig, numbers.error().message};
  return layout::rates_of(words, numbers.value());
}

DevicePlan plan_device(const Config& config, const layout::ModelSpec& spec,
                       const layout::Ranks& ranks, const layout::MemoryPlan& plan,
                       const layout::DeviceRates& rates) {
  DevicePlan device{rates, layout::plan_step_time(config, spec, ranks, rates), {}, {}};
  if (rates.gpu()) device.memory = layout::device_memory(plan, config, spec, ranks, rates);
  device.node_reshard = node_reshard(config, spec, ranks, plan, device);
  return device;
}

void print_device(std::ostream& out, const DevicePlan& d) {
  out << "\nA step on " << d.rates.name << ", predicted (docs/PLAN.md; rates that were not "
      << "measured on this device are estimates)\n";
  print_time(out, d.time);
  if (d.node_reshard) print_node_reshard(out, *d.node_reshard);
  if (d.memory) print_memory(out, *d.memory);
}

ordered_json device_json(const DevicePlan& d) {
  ordered_json rates{{"name", d.rates.name}}, phases = ordered_json::array();
  for (const layout::RateField& field : layout::rate_fields())
    rates[field.key] = d.rates.*field.member;
  for (size_t i = 0; i < layout::kStepPhases; ++i) {
    const PhaseTime& p = d.time.phases[i];
    phases.push_back({{"phase", name_of(static_cast<StepPhase>(i))},
                      {"seconds", p.seconds},
                      {"flops", p.flops},
                      {"bytes", p.bytes},
                      {"kernels", p.launches}});
  }
  ordered_json json{{"rates", rates},
                    {"phases", phases},
                    {"step_s", d.time.total_s},
                    {"tokens_per_s", d.time.tokens_per_s},
                    {"tokens_per_s_rank", d.time.tokens_per_s_rank},
                    {"mfu", d.time.mfu},
                    {"received_from_node_bytes", d.time.received.near_bytes},
                    {"received_from_others_bytes", d.time.received.far_bytes},
                    {"links_s", d.time.received.seconds}};
  if (const auto& n = d.node_reshard)
    json["reshard_after_forward_node"] = {
        {"received_from_others_bytes", n->time.received.far_bytes},
        {"step_s", n->time.total_s},
        {"more_device_bytes", n->more_bytes}};
  if (d.memory)
    json["memory"] = {
        {"device", json_of(d.memory->device)},        {"host", json_of(d.memory->host)},
        {"device_bytes", d.memory->device_bytes},     {"host_bytes", d.memory->host_bytes},
        {"capacity_bytes", d.memory->capacity_bytes}, {"fits", d.memory->fits()}};
  return json;
}

}  // namespace lockstep::cli
