#include "core/kernels/cudnn_attention.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/cudnn/Handle.h>

#include <map>
#include <memory>
#include <unordered_map>

#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include "base/check.h"
#include "base/log.h"
#include "layout/stage_sizes.h"

namespace lockstep::core {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Tensor_attributes;
using TensorPtr = std::shared_ptr<Tensor_attributes>;
using Dims = std::vector<int64_t>;

enum Name : int64_t { kQ = 1, kK, kV, kOut, kLogSum, kDOut, kDQ, kDK, kDV };

// What one call computes: some of the heads, of all sequences.
struct Form {
  int64_t sequences, length, heads, key_heads, head_dim;
  int64_t qkv_width, out_width;  // of a row of all heads
  float scale;

  auto operator<=>(const Form&) const = default;
  Dims queries() const { return {sequences, heads, length, head_dim}; }
  Dims keys() const { return {sequences, key_heads, length, head_dim}; }
  Dims sums() const { return {sequences, heads, length, 1}; }
  // Where [sequence, head, row, column] lies.
  Dims in_qkv() const { return {length * qkv_width, head_dim, qkv_width, 1}; }
  Dims in_out() const { return {length * out_width, head_dim, out_width, 1}; }
  Dims in_sums() const { return {heads * length, length, 1, 1}; }
};

struct Graph {
  fe::graph::Graph graph;
  int64_t workspace_bytes = 0;
};

struct Graphs {
  Graph forward, backward;
};

fe::graph::Graph& with_types(fe::graph::Graph& graph) {
  graph.set_io_data_type(fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  return graph;
}

Tensor_attributes attributes(Name name, const Dims& dims, const Dims& strides) {
  return Tensor_attributes().set_uid(name).set_dim(dims).set_stride(strides);
}

void set_output(const TensorPtr& tensor, Name name, const Dims& dims, const Dims& strides) {
  tensor->set_output(true).set_uid(name).set_dim(dims).set_stride(strides);
}

void describe_forward(fe::graph::Graph& graph, const Form& f) {
  with_types(graph);
  const auto [out, sums] = graph.sdpa(graph.tensor(attributes(kQ, f.queries(), f.in_qkv())),
                                      graph.tensor(attributes(kK, f.keys(), f.in_qkv())),
                                      graph.tensor(attributes(kV, f.keys(), f.in_qkv())),
                                      fe::graph::SDPA_attributes()
                                          .set_name("attention")
                                          .set_generate_stats(true)
                                          .set_attn_scale(f.scale)
                                          .set_causal_mask(true));
  set_output(out, kOut, f.queries(), f.in_out());
  set_output(sums, kLogSum, f.sums(), f.in_sums());
  sums->set_data_type(fe::DataType_t::FLOAT);
}

void describe_backward(fe::graph::Graph& graph, const Form& f) {
  with_types(graph);
  const auto [dq, dk, dv] = graph.sdpa_backward(
      graph.tensor(attributes(kQ, f.queries(), f.in_qkv())),
      graph.tensor(attributes(kK, f.keys(), f.in_qkv())),
      graph.tensor(attributes(kV, f.keys(), f.in_qkv())),
      graph.tensor(attributes(kOut, f.queries(), f.in_out())),
      graph.tensor(attributes(kDOut, f.queries(), f.in_out())),
      graph.tensor(attributes(kLogSum, f.sums(), f.in_sums()).set_data_type(fe::DataType_t::FLOAT)),
      fe::graph::SDPA_backward_attributes()
          .set_name("attention, backward")
          .set_attn_scale(f.scale)
          .set_causal_mask(true)
          .set_deterministic_algorithm(true));
  set_output(dq, kDQ, f.queries(), f.in_qkv());
  set_output(dk, kDK, f.keys(), f.in_qkv());
  set_output(dv, kDV, f.keys(), f.in_qkv());
}

// Empty where it is built, else why it is not.
std::string build(Graph& g) {
  const cudnnHandle_t handle = at::native::getCudnnHandle();
  fe::error_t error = g.graph.validate();
  if (error.is_good()) error = g.graph.build_operation_graph(handle);
  if (error.is_good()) error = g.graph.create_execution_plans({fe::HeurMode_t::A});
  if (error.is_good()) error = g.graph.check_support(handle);
  if (error.is_good()) error = g.graph.build_plans(handle);
  if (error.is_good()) error = g.graph.get_workspace_size(g.workspace_bytes);
  return error.is_good() ? "" : error.get_message();
}

// Null where this cuDNN has none for the form. Handles and graphs belong to a thread.
Graphs* graphs_of(const Form& form) {
  thread_local std::map<Form, std::unique_ptr<Graphs>> made;
  const auto [at, is_new] = made.try_emplace(form);
  if (is_new) {
    auto graphs = std::make_unique<Graphs>();
    describe_forward(graphs->forward.graph, form);
    describe_backward(graphs->backward.graph, form);
    std::string why = build(graphs->forward);
    if (why.empty()) why = build(graphs->backward);
    if (why.empty()) {
      at->second = std::move(graphs);
    } else {
      log_info("attention uses LibTorch's flash kernel, because cuDNN cannot run it: ", why);
    }
  }
  return at->second.get();
}

// `tensors` by value: the graph adds addresses to it that live as long as this call.
void run(Graph& g, const at::Tensor& like, std::unordered_map<int64_t, void*> tensors) {
  const at::Tensor workspace = at::empty({g.workspace_bytes}, like.options().dtype(at::kByte));
  fe::error_t error = g.graph.execute(at::native::getCudnnHandle(), tensors, workspace.data_ptr());
  LOCKSTEP_CHECK(error.is_good(), "cuDNN's attention: ", error.get_message());
}

// The form of a call; no heads where even those of one key head are too many.
Form form_of(const AttentionShape& s, const Documents& documents) {
  const DocumentRun& run = documents.runs[0];
  const int64_t key_heads = layout::key_heads_at_once(run.count, run.length, s.heads, s.key_heads);
  return {run.count,
          run.length,
          s.heads / s.key_heads * key_heads,
          key_heads,
          s.head_dim,
          (s.heads + 2 * s.key_heads) * s.head_dim,
          s.heads * s.head_dim,
          s.scale()};
}

// The addresses of a call that begins with a key head.
class Addresses {
 public:
  Addresses(const AttentionShape& s, const Form& form, int64_t first_key_head)
      : shape_(s),
        key_head_(first_key_head),
        head_(first_key_head * (s.heads / s.key_heads)),
        sums_(head_ * form.sequences * form.length) {}
  void* query(const at::Tensor& t) const { return at_head(t, head_); }
  void* key(const at::Tensor& t) const { return at_head(t, shape_.heads + key_head_); }
  void* value(const at::Tensor& t) const {
    return at_head(t, shape_.heads + shape_.key_heads + key_head_);
  }
  // Log sums of a call lie together.
  void* sums(const at::Tensor& t) const { return t.data_ptr<float>() + sums_; }

 private:
  void* at_head(const at::Tensor& t, int64_t head) const {
    return t.data_ptr<at::BFloat16>() + head * shape_.head_dim;
  }
  const AttentionShape& shape_;
  int64_t key_head_, head_, sums_;
};

}  // namespace

bool cudnn_applies(const AttentionShape& s, const at::Tensor& qkv, const Documents& documents) {
  if (!s.fused || s.soft_cap != 0 || s.window != 0 || documents.runs.size() != 1) return false;
  if (qkv.scalar_type() != at::kBFloat16 || !layout::cudnn_takes(s.head_dim)) return false;
  if (at::cuda::getCurrentDeviceProperties()->major != 9) return false;
  const Form form = form_of(s, documents);
  return form.heads > 0 && graphs_of(form) != nullptr;
}

at::Tensor cudnn_attention(const AttentionShape& s, const at::Tensor& qkv,
                           const Documents& documents, AttentionKept& kept) {
  const Form form = form_of(s, documents);
  Graph& graph = graphs_of(form)->forward;
  kept.out_RD = at::empty({qkv.size(0), s.heads * s.head_dim}, qkv.options());
  kept.log_sum = at::empty({qkv.size(0) * s.heads}, qkv.options().dtype(at::kFloat));
  for (int64_t k = 0; k < s.key_heads; k += form.key_heads) {
    const Addresses at(s, form, k);
    run(graph, qkv,
        {{kQ, at.query(qkv)},
         {kK, at.key(qkv)},
         {kV, at.value(qkv)},
         {kOut, at.query(kept.out_RD)},
         {kLogSum, at.sums(kept.log_sum)}});
  }
  return kept.out_RD;
}

at::Tensor cudnn_attention_back(const AttentionShape& s, const at::Tensor& d_out,
                                const at::Tensor& qkv, const Documents& documents,
                                const AttentionKept& kept) {
  const Form form = form_of(s, documents);
  Graph& graph = graphs_of(form)->backward;
  const at::Tensor d_qkv = at::empty_like(qkv), dense = d_out.contiguous();
  for (int64_t k = 0; k < s.key_heads; k += form.key_heads) {
    const Addresses at(s, form, k);
    run(graph, qkv,
        {{kQ, at.query(qkv)},
         {kK, at.key(qkv)},
         {kV, at.value(qkv)},
         {kOut, at.query(kept.out_RD)},
         {kDOut, at.query(dense)},
         {kLogSum, at.sums(kept.log_sum)},
         {kDQ, at.query(d_qkv)},
         {kDK, at.key(d_qkv)},
         {kDV, at.value(d_qkv)}});
  }
  return d_qkv;
}

}  // namespace lockstep::core
