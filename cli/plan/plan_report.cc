#include "cli/plan/plan_report.h"

#include <ostream>
#include <set>

#include "base/json.h"
#include "base/text.h"
#include "cli/plan/plan_table.h"

namespace lockstep::cli {
namespace {

using layout::LargestModel;
using layout::MemoryRow;
using layout::Occupancy;
using nlohmann::ordered_json;

double ratio(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

bool fits(const PlanReport& r) { return r.plan.device_bytes() <= r.device_bytes; }

// predicted / measured - 1
double deviation(const PlanReport& r) {
  return ratio(r.probe->predicted_bytes, r.probe->peak_bytes) - 1;
}

void print_head(std::ostream& out, const PlanReport& r) {
  const Config::Training& t = r.config.training;
  out << r.spec.shape.family << ", " << grouped(r.spec.parameter_count()) << " parameters";
  if (r.spec.shape.experts > 0)
    out << ", " << grouped(r.spec.active_count()) << " of them used for a token ("
        << r.spec.shape.experts_per_token << " of " << r.spec.shape.experts << " experts)";
  if (r.spec.adapted()) out << ", " << grouped(r.spec.trained_count()) << " of them trained";
  out << "; " << r.config.parallelism.strategy << " on " << r.ranks.world_size << " rank"
      << (r.ranks.world_size == 1 ? "" : "s") << "; " << t.mixed_precision_param << "; "
      << r.config.slots() << " slots of " << t.local_batch_size << " x " << t.seq_len
      << " tokens a step; activation checkpointing " << r.config.activation_checkpoint.mode << "\n";
  const std::string idle = r.ranks.idle_reshard(r.config);
  out << idle << (idle.empty() ? "\n" : "\n\n");
}

void print_memory(std::ostream& out, const PlanReport& r) {
  out << "Peak memory of a rank's tensors (" << r.plan.peak_at << ")\n";
  print_rows(out, r.plan.tensors);
  out << "  " << left("sum", 40) << right(size_of(r.plan.peak_bytes), 12);
  if (r.plan.offloaded_bytes > 0)
    out << "\n  " << left("of these on a GPU (offload)", 40)
        << right(size_of(r.plan.device_bytes()), 12);
  if (r.device_bytes > 0)
    out << "   " << percent(ratio(r.plan.device_bytes(), r.device_bytes)) << " of "
        << size_of(r.device_bytes) << (fits(r) ? "" : ": DOES NOT FIT");
  out << "\n\nIn addition, in host memory\n";
  print_rows(out, r.plan.host);
  out << "\nIn addition, on a GPU (estimates, without the driver's context)\n";
  print_rows(out, r.plan.gpu);
}

void print_occupancy(std::ostream& out, const PlanReport& r) {
  out << "\n" << r.config.slots() << " slots on W ranks\n  W     ";
  for (const Occupancy& o : r.occupancy) out << right(text(o.world_size), 9);
  out << "\n  rounds";
  for (const Occupancy& o : r.occupancy) out << right(text(o.rounds), 9);
  out << "\n  idle  ";
  for (const Occupancy& o : r.occupancy) out << right(percent(1.0 - o.busy), 9);
  out << "\n";
}

// A run of several nodes: what a node that is lost costs, by the number of slots.
struct NodeLosses {
  static constexpr int64_t kMost = 2;  // nodes
  struct Row {
    int64_t slots = 0;
    std::vector<double> left;  // of the speed: with one node lost, with two
  };
  std::vector<double> ranks_left;  // the most that can be left
  std::vector<Row> rows;           // V = W, 2 W, 4 W and the config's, ascending
  int64_t best = 0;                // of them: the most is left of it with one node lost
};

NodeLosses node_losses(const PlanReport& r) {
  const int64_t w = r.ranks.world_size, node = r.ranks.per_node;
  NodeLosses losses;
  if (node == 0 || w <= node) return losses;
  std::set<int64_t> tried{w, 2 * w, 4 * w, r.config.slots()};
  for (int64_t lost = 1; lost <= NodeLosses::kMost && lost * node < w; ++lost)
    losses.ranks_left.push_back(ratio(w - lost * node, w));
  double most = 0;
  for (const int64_t slots : tried) {
    losses.rows.push_back({slots, {}});
    NodeLosses::Row& row = losses.rows.back();
    for (size_t i = 0; i < losses.ranks_left.size(); ++i)
      row.left.push_back(layout::speed_left(slots, w, w - (static_cast<int64_t>(i) + 1) * node));
    // Idle ranks lose nothing: no advice to have some.
    if (slots % w == 0 && row.left[0] > most) most = row.left[0], losses.best = slots;
  }
  return losses;
}

void print_node_losses(std::ostream& out, const PlanReport& r) {
  const NodeLosses losses = node_losses(r);
  if (losses.rows.empty()) return;
  out << "\nShare of the tokens/s that is left when nodes of " << r.ranks.per_node
      << " ranks are lost\n"
      << "  " << left("slots", 14) << right("one node", 10)
      << (losses.ranks_left.size() > 1 ? right("two nodes", 11) : "") << "\n";
  const auto print = [&](const std::string& what, const std::vector<double>& shares) {
    out << "  " << left(what, 14);
    for (size_t i = 0; i < shares.size(); ++i) out << right(percent(shares[i]), 10 + i);
    out << "\n";
  };
  for (const NodeLosses::Row& row : losses.rows) print(text(row.slots), row.left);
  print("ranks left", losses.ranks_left);
  out << "  --training.slots " << losses.best
      << " loses least. The batch of a step is slots x local_batch_size, and each round of "
      << r.ranks.world_size << " slots has one exchange.\n";
}

void print_largest(std::ostream& out, const PlanReport& r) {
  if (r.device_bytes == 0) {
    out << "\nGive --device-memory (for example 80GiB) to see the largest batch and model that "
           "fit.\n";
    return;
  }
  out << "\nLargest training.local_batch_size in " << size_of(r.device_bytes) << ": ";
  if (r.largest_batch)
    out << r.largest_batch->batch_size << " (" << size_of(r.largest_batch->device_bytes) << ")\n";
  else
    out << "none, not even 1\n";
  out << "Largest model, scaling "
      << (r.scaling == layout::ScalingStrategy::kAll ? "all (layers, heads, width)"
                                                     : "layers alone")
      << "\n  " << left("", 15) << right("parameters", 20) << right("factor", 9)
      << right("layers", 8) << right("width", 8) << right("a rank", 12) << "\n";
  for (const PlanReport::Candidate& c : r.largest_models) {
    out << "  " << left(std::string(word_of(c.strategy)), 15);
    if (!c.model) {
      out << right("none", 20) << "\n";
      continue;
    }
    const LargestModel& m = *c.model;
    out << right(grouped(m.parameters), 20) << right(fixed(m.factor, 2), 9)
        << right(text(m.shape.n_layers), 8) << right(text(m.shape.dim), 8)
        << right(size_of(m.device_bytes), 12) << "\n";
  }
}

void print_probe(std::ostream& out, const PlanReport& r) {
  if (!r.probe) return;
  out << "\nProbe: two steps without checkpoints, all ranks on one node, "
      << fixed(r.probe->seconds, 1) << " s, rank 0\n";
  print_rows(out, {{"tensors, predicted", r.probe->predicted_bytes},
                   {"tensors, measured", r.probe->peak_bytes},
                   {"the whole process (RSS)", r.probe->rss_bytes}});
  out << "  predicted / measured " << fixed(1.0 + deviation(r), 4) << "\n";
}

ordered_json json_of(const PlanReport::Candidate& c) {
  ordered_json json{{"strategy", c.strategy}};
  if (!c.model) return json;
  const LargestModel& m = *c.model;
  json.update({{"parameters", m.parameters},
               {"factor", m.factor},
               {"n_layers", m.shape.n_layers},
               {"dim", m.shape.dim},
               {"n_heads", m.shape.n_heads},
               {"n_kv_heads", m.shape.n_kv_heads},
               {"ffn_dim", m.shape.ffn_dim},
               {"device_bytes", m.device_bytes}});
  return json;
}

}  // namespace

void print_plan(std::ostream& out, const PlanReport& r) {
  print_head(out, r);
  print_memory(out, r);
  print_occupancy(out, r);
  print_node_losses(out, r);
  print_largest(out, r);
  if (r.device) print_device(out, *r.device);
  print_probe(out, r);
}

std::string plan_json(const PlanReport& r) {
  ordered_json json{{"model", r.spec.shape.family},
                    {"parameters", r.spec.parameter_count()},
                    {"active_parameters", r.spec.active_count()},
                    {"trained_parameters", r.spec.trained_count()},
                    {"strategy", r.config.parallelism.strategy},
                    {"world_size", r.ranks.world_size},
                    {"slots", r.config.slots()},
                    {"local_batch_size", r.config.training.local_batch_size},
                    {"seq_len", r.config.training.seq_len},
                    {"peak_bytes", r.plan.peak_bytes},
                    {"offloaded_bytes", r.plan.offloaded_bytes},
                    {"peak_at", r.plan.peak_at},
                    {"tensors", json_of(r.plan.tensors)},
                    {"host", json_of(r.plan.host)},
                    {"gpu", json_of(r.plan.gpu)},
                    {"occupancy", ordered_json::array()}};
  for (const Occupancy& o : r.occupancy)
    json["occupancy"].push_back(
        {{"world_size", o.world_size}, {"rounds", o.rounds}, {"idle", 1.0 - o.busy}});
  if (const NodeLosses losses = node_losses(r); !losses.rows.empty()) {
    ordered_json rows = ordered_json::array();
    for (const NodeLosses::Row& row : losses.rows)
      rows.push_back({{"slots", row.slots}, {"speed_left", row.left}});
    json["nodes_lost"] = {{"ranks_per_node", r.ranks.per_node},
                          {"ranks_left", losses.ranks_left},
                          {"slots", std::move(rows)},
                          {"recommended_slots", losses.best}};
  }
  if (r.device_bytes > 0) {
    json["device_bytes"] = r.device_bytes;
    json["fits"] = fits(r);
    json["largest_local_batch_size"] = r.largest_batch ? r.largest_batch->batch_size : 0;
    json["scaling_strategy"] = r.scaling == layout::ScalingStrategy::kAll ? "all" : "layers";
    json["largest_models"] = ordered_json::array();
    for (const PlanReport::Candidate& c : r.largest_models)
      json["largest_models"].push_back(json_of(c));
  }
  if (r.probe)
    json["probe"] = {{"predicted_bytes", r.probe->predicted_bytes},
                     {"measured_bytes", r.probe->peak_bytes},
                     {"deviation", deviation(r)},
                     {"rss_bytes", r.probe->rss_bytes},
                     {"seconds", r.probe->seconds}};
  if (r.device) json["device"] = device_json(*r.device);
  return json.dump(2);
}

}  // namespace lockstep::cli
