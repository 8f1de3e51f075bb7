#include "layout/stage_work.h"

#include <algorithm>

#include "layout/stage_sizes.h"

namespace lockstep::layout {
namespace {

constexpr double kFloatBytes = 4;
// One block of threads adds the rows of one token (add_kernels.cu): as one token of twenty is the
// commonest (", " or " the" in English), that one's chain of loads of kLoad_s takes longest.
constexpr double kCommonest = 0.05, kLoad_s = 0.4e-6;
constexpr int64_t kThreadsOfToken = 256;

// Rows and columns of matrices [first, first + count) of a unit, stacked: out x in.
struct Matrix {
  int64_t out = 0, in = 0;
};
Matrix stacked(const UnitSpec& unit, Role first, int count, bool in_out) {
  Matrix m;
  const int begin = unit.find(first);
  for (int i = begin; i < begin + count; ++i) {
    const std::vector<int64_t>& shape = unit.params[static_cast<size_t>(i)].shape;
    m.out += shape[in_out ? 1 : 0];
    m.in = shape[in_out ? 0 : 1];
  }
  return m;
}

Role bias_of(Role matrix) {
  switch (matrix) {
    case Role::kQ: return Role::kQBias;
    case Role::kO: return Role::kOBias;
    case Role::kGate: return Role::kGateBias;
    case Role::kUp: return Role::kUpBias;
    default: return Role::kDownBias;
  }
}

}  // namespace

StageWork::StageWork(const Config& config, const ModelSpec& spec, const DeviceRates& rates)
    : shape_(spec.shape),
      spec_(spec),
      rates_(rates),
      batch_(config.training.local_batch_size),
      seq_len_(config.training.seq_len),
      rows_(batch_ * seq_len_),
      width_(config.training.mixed_precision_param == FloatType::kBfloat16 ? 2 : 4),
      recompute_every_(recompute_every(config.activation_checkpoint)),
      flash_(rates.gpu() && config.model.fused_attention && width_ == 2 &&
             spec.shape.score_cap == 0),
      fused_(config.model.fused_attention && !rates.gpu()),
      dropout_(config.model.dropout > 0) {
  const DecoderShape& s = shape_;
  const double row = as_double(rows_ * width_);
  x_ = row * as_double(s.dim);
  qkv_ = row * as_double((s.n_heads + 2 * s.n_kv_heads) * s.head_dim);
  attention_ = row * as_double(s.n_heads * s.head_dim);
  keys_ = row * as_double(s.n_kv_heads * s.head_dim);
  s_ = row * as_double(s.ffn_dim * std::max<int64_t>(1, s.experts_per_token));
  inner_ = s.gpt2 ? s_ : 2 * s_;
}

const UnitSpec& StageWork::block(int64_t layer) const {
  return spec_.units[static_cast<size_t>(layer) + 1];
}

// [m, k] x [k, n].
Operation StageWork::product(const char* what, int64_t m, int64_t n, int64_t k) const {
  const double a = as_double(m) * as_double(k), b = as_double(k) * as_double(n),
               c = as_double(m) * as_double(n);
  return {.what = what,
          .engine = Engine::kProduct,
          .width = width_,
          .flops = 2 * c * as_double(k),
          .bytes = (a + b + c) * as_double(width_)};
}

Operation StageWork::kernel(const char* what, double bytes, double exps) const {
  return {.what = what, .width = width_, .bytes = bytes, .exps = exps};
}

// Linear::forward
void StageWork::linear(const char* what, Role first, int count, int64_t layer,
                       Operations& ops) const {
  const Matrix m = stacked(block(layer), first, count, shape_.gpt2);
  ops.push_back(product(what, rows_, m.out, m.in));
  low_rank(first, count, layer, /*backward=*/false, ops);
  if (block(layer).find(bias_of(first)) >= 0)
    ops.push_back({.what = "bias",
                   .engine = Engine::kCopy,
                   .width = width_,
                   .bytes = 2 * as_double(rows_ * m.out * width_)});
}

// Linear::backward: the weight's gradient, then dx.
void StageWork::linear_back(const char* what, Role first, int count, int64_t layer,
                            Operations& ops) const {
  const UnitSpec& unit = block(layer);
  const Matrix m = stacked(unit, first, count, shape_.gpt2);
  low_rank(first, count, layer, /*backward=*/true, ops);
  if (!unit.frozen) {
    ops.push_back(product(what, m.out, m.in, rows_));
    if (unit.find(bias_of(first)) >= 0)
      ops.push_back(kernel("bias, backward", as_double(rows_ * m.out * width_)));
  }
  ops.push_back(product(what, rows_, m.in, m.out));
}

// LowRank
void StageWork::low_rank(Role first, int count, int64_t layer, bool backward,
                         Operations& ops) const {
  if (!spec_.adapted()) return;
  const UnitSpec& adapters = spec_.units[static_cast<size_t>(spec_.adapter_unit(layer))];
  for (int i = 0; i < count; ++i) {
    const int a = adapters.find(static_cast<Role>(static_cast<int>(first) + i));
    if (a < 0) continue;
    const int64_t rank = adapters.params[static_cast<size_t>(a)].shape[0],
                  in = adapters.params[static_cast<size_t>(a)].shape[1],
                  out = adapters.params[static_cast<size_t>(a) + 1].shape[0];
    const Operation down = product("adapter", rows_, rank, in),
                    up = product("adapter", rows_, out, rank);
    const double added = 3.0 * as_double(rows_ * (backward ? in : out) * width_);
    for (int again = backward ? 2 : 1; again > 0; --again) {
      ops.push_back(down);
      ops.push_back(up);
    }
    ops.push_back(
        {.what = "adapter, added", .engine = Engine::kCopy, .width = width_, .bytes = added});
  }
}

Operations StageWork::embedding_forward() const {
  Operations ops{
      {.what = "embedding rows", .engine = Engine::kCopy, .width = width_, .bytes = 2 * x_}};
  if (shape_.learned_positions > 0)
    ops.push_back({.what = "positions", .engine = Engine::kCopy, .width = width_, .bytes = 5 * x_});
  if (shape_.embedding_scale != 1)
    ops.push_back({.what = "scaled", .engine = Engine::kCopy, .width = width_, .bytes = 2 * x_});
  return ops;
}

Operations StageWork::layer_forward(int64_t layer) const {
  if (shape_.family == ModelFamily::kLinear)
    return {product("linear", rows_, shape_.dim, shape_.dim)};
  Operations ops;
  block_run(layer, ops);
  if (shape_.experts > 0)
    experts_end(ops);
  else
    linear("down", Role::kDown, 1, layer, ops);
  if (shape_.post_norms) ops.push_back(kernel("norm of the branch", 2 * x_));
  if (dropout_) ops.push_back(kernel("dropout", 2 * x_, x_ / as_double(width_)));
  ops.push_back({.what = "residual", .engine = Engine::kCopy, .width = width_, .bytes = 3 * x_});
  return ops;
}

Operations StageWork::layer_again(int64_t layer) const {
  Operations ops;
  if (shape_.family != ModelFamily::kLinear && recomputed(recompute_every_, layer))
    block_run(layer, ops);
  if (!ops.empty() && shape_.post_norms) {
    linear("down", Role::kDown, 1, layer, ops);
    ops.push_back(kernel("norm of the branch", 2 * x_));
  }
  return ops;
}

// BlockStage::run
void StageWork::block_run(int64_t layer, Operations& ops) const {
  const DecoderShape& s = shape_;
  ops.push_back(kernel("norm", 2 * x_));
  linear("q, k, v", Role::kQ, s.gpt2 ? 1 : 3, layer, ops);
  const double turned = qkv_ - keys_;  // queries and keys
  if (s.qk_norm) {
    ops.push_back({.what = "heads", .engine = Engine::kCopy, .width = width_, .bytes = 2 * qkv_});
    Operation norm = kernel("norm of heads", turned);
    norm.times = 2;
    ops.push_back(norm);
  }
  if (s.learned_positions == 0) ops.push_back(kernel("rotary", 2 * turned));
  attention(layer, ops);
  linear("o", Role::kO, 1, layer, ops);
  if (s.post_norms) ops.push_back(kernel("norm of the branch", 2 * x_));
  if (dropout_) ops.push_back(kernel("dropout", 2 * x_, x_ / as_double(width_)));
  ops.push_back(kernel("residual, norm", 4 * x_));
  if (s.experts > 0)
    experts(ops);
  else
    linear("gate, up", s.gpt2 ? Role::kUp : Role::kGate, s.gpt2 ? 1 : 2, layer, ops);
  ops.push_back(kernel("activation", inner_ + s_, s_ / as_double(width_)));
}

// A product of every expert, as if rows were spread evenly over them.
Operation StageWork::of_experts(const char* what, int64_t out, int64_t in, bool of_weight) const {
  const int64_t rows = std::max<int64_t>(1, rows_ * shape_.experts_per_token / shape_.experts);
  Operation op = of_weight ? product(what, out, in, rows) : product(what, rows, out, in);
  op.times = shape_.experts;
  return op;
}

// Experts::route and inner.
void StageWork::experts(Operations& ops) const {
  const DecoderShape& s = shape_;
  const double places = x_ * as_double(s.experts_per_token);
  ops.push_back(product("router", rows_, s.experts, s.dim));
  ops.push_back(kernel("choice of experts",
                       as_double(rows_ * s.experts) * (kFloatBytes + as_double(width_)),
                       as_double(rows_ * s.experts)));
  ops.push_back(
      {.what = "rows by expert", .engine = Engine::kCopy, .width = width_, .bytes = 2 * places});
  ops.push_back(of_experts("gate, up of experts", 2 * s.ffn_dim, s.dim, false));
}

// Experts::outer
void StageWork::experts_end(Operations& ops) const {
  const double places = x_ * as_double(shape_.experts_per_token);
  ops.push_back(kernel("weights of experts", 2 * s_));
  ops.push_back(of_experts("down of experts", shape_.dim, shape_.ffn_dim, false));
  ops.push_back(kernel("sums of experts", places + x_));
}

// Experts::backward
void StageWork::experts_back(bool frozen, Operations& ops) const {
  const DecoderShape& s = shape_;
  const double places = x_ * as_double(s.experts_per_token);
  for (int i = 0; i < 2; ++i)
    ops.push_back(
        {.what = "rows by expert", .engine = Engine::kCopy, .width = width_, .bytes = 2 * places});
  ops.push_back(kernel("weights of experts", 2 * s_));
  ops.push_back(of_experts("down of experts, backward", s.ffn_dim, s.dim, false));
  ops.push_back(kernel("weights of experts, backward", 3 * s_));
  ops.push_back(kernel("activation, backward", s_ + 2 * inner_, s_ / as_double(width_)));
  ops.push_back(of_experts("gate, up of experts, backward", s.dim, 2 * s.ffn_dim, false));
  ops.push_back(kernel("sums of experts", places + x_));
  ops.push_back(product("router, backward", rows_, s.dim, s.experts));
  if (frozen) return;
  ops.push_back(of_experts("down of experts, backward", s.dim, s.ffn_dim, true));
  ops.push_back(of_experts("gate, up of experts, backward", 2 * s.ffn_dim, s.dim, true));
  ops.push_back(product("router, backward", s.experts, s.dim, rows_));
}

double StageWork::scores(int64_t layer) const {
  const int64_t window = shape_.window(layer), t = seq_len_;
  double pairs = 0;  // of a query and a key, of one head and sequence
  if (flash_) {
    const int64_t w = window > 0 ? std::min(window, t) : t;
    pairs = as_double(w) * as_double(w + 1) / 2 + as_double(t - w) * as_double(w);
  } else {
    const int64_t queries = fused_ ? attention_queries(batch_, shape_.n_heads, t) : t;
    for (int64_t q = 0; q < t; q += queries) {  // Attention::blocks
      const int64_t end = std::min(t, q + queries);
      const int64_t first = fused_ && window > 0 ? std::max<int64_t>(0, q - window + 1) : 0;
      pairs += as_double(end - q) * as_double(end - first);
    }
  }
  return as_double(batch_ * shape_.n_heads) * pairs;
}

bool StageWork::cudnn(int64_t layer) const {
  return flash_ && rates_.compute_capability >= 9 && rates_.compute_capability < 10 &&
         shape_.window(layer) == 0 && cudnn_takes(shape_.head_dim) &&
         key_heads_at_once(batch_, seq_len_, shape_.n_heads, shape_.n_kv_heads) > 0;
}

int64_t StageWork::flash_splits() const {
  const int64_t heads = batch_ * shape_.n_heads;
  return (static_cast<int64_t>(rates_.multiprocessors) + heads - 1) / heads;
}

void StageWork::attention(int64_t layer, Operations& ops) const {
  if (!flash_) return blocks_of_attention(layer, /*backward=*/false, ops);
  ops.push_back({.what = "attention",
                 .engine = Engine::kAttention,
                 .width = width_,
                 .flops = 4 * scores(layer) * as_double(shape_.head_dim),
                 .bytes = qkv_ + attention_,
                 .share = attention_share(layer)});
}

// Of the rates of attention, which are those of the device's best kernel with heads of 128.
// Measured on an H100, forward and backward: cuDNN with heads of 64 has 0.55 and 0.54 of them,
// LibTorch's flash kernel with heads of 128 has 0.54 and 0.38.
double StageWork::attention_share(int64_t layer) const {
  constexpr double kBestHead = 128, kCudnnRow = 0.1, kFlash = 0.45;
  if (cudnn(layer)) return kCudnnRow + (1 - kCudnnRow) * as_double(shape_.head_dim) / kBestHead;
  return rates_.compute_capability >= 9 ? kFlash : 1;
}

// cudnn_attention_back, or flash_attention_back. Beside the flash kernel: sums of dq, zeroed and
// added up; dk and dv of every query head, added up to key heads; three copies into one tensor.
void StageWork::attention_back(int64_t layer, Operations& ops) const {
  if (!flash_) return blocks_of_attention(layer, /*backward=*/true, ops);
  const Operation kernel{.what = "attention, backward",
                         .engine = Engine::kAttentionBackward,
                         .width = width_,
                         .flops = 10 * scores(layer) * as_double(shape_.head_dim),
                         .bytes = qkv_ + 3 * attention_,
                         .share = attention_share(layer)};
  if (cudnn(layer)) return ops.push_back(kernel);
  const double sums = as_double(flash_splits()) * attention_ / as_double(width_) * kFloatBytes;
  ops.push_back({.what = "sums of dq", .engine = Engine::kCopy, .bytes = sums});
  ops.push_back(kernel);
  ops.push_back({.what = "dq", .engine = Engine::kCopy, .bytes = sums + attention_, .times = 1});
  if (shape_.n_heads != shape_.n_kv_heads)
    ops.push_back({.what = "dk, dv of key heads",
                   .engine = Engine::kCopy,
                   .width = width_,
                   .bytes = 2 * attention_ + keys_,
                   .times = 2});
  ops.push_back({.what = "d(q, k, v) copied",
                 .engine = Engine::kCopy,
                 .width = width_,
                 .bytes = 2 * qkv_ / 3,
                 .times = 3});
}

// Attention::forward and run_back: products with scores. In a fused block they stay in the cache.
void StageWork::blocks_of_attention(int64_t layer, bool backward, Operations& ops) const {
  const int64_t queries = fused_ ? attention_queries(batch_, shape_.n_heads, seq_len_) : seq_len_;
  const int64_t blocks = (seq_len_ + queries - 1) / queries;
  const double all = scores(layer), share = 1.0 / as_double(blocks);
  const double in_memory = fused_ ? 0 : all * as_double(width_);
  const auto products = [&](const char* what, int64_t count) {
    ops.push_back({.what = what,
                   .engine = backward ? Engine::kAttentionBackward : Engine::kAttention,
                   .width = width_,
                   .flops = 2 * all * as_double(shape_.head_dim) * share,
                   .bytes = (in_memory + attention_ + keys_) * share,
                   .times = blocks * count});
  };
  const auto softmax = [&](const char* what, double tensors) {
    Operation op = kernel(what, tensors * in_memory * share, all * share);
    op.times = blocks;
    ops.push_back(op);
  };
  ops.push_back({.what = "heads copied",
                 .engine = Engine::kCopy,
                 .width = width_,
                 .bytes = 4 * keys_ + (backward ? 6 : 4) * attention_,
                 .times = 4});
  const bool capped = shape_.score_cap > 0;
  if (!backward || fused_ || capped) {
    products("scores", 1);
    if (capped) softmax("cap of scores", backward ? 4 : 2);
    if (!backward || fused_) softmax("softmax", 2);
  }
  products(backward ? "attention, backward" : "attention", backward ? 4 : 1);
  if (!backward) return;
  softmax("softmax, backward", 3);
  if (capped) softmax("cap of scores, backward", 3);
  ops.push_back({.what = "sums of dk, dv",
                 .engine = Engine::kCopy,
                 .bytes = 3 * keys_ / as_double(width_) * kFloatBytes,
                 .times = 2 * blocks});
}

// One pass. On a GPU a block of eight rows writes its part of each parameter's gradient; for each
// parameter one kernel adds runs of these parts, and one the runs.
void StageWork::norm_back(const char* what, bool residual, Operations& ops) const {
  constexpr double kRowsOfBlock = 8;
  const double params = shape_.gpt2 ? 2 : 1;
  const double part = rates_.gpu() ? x_ / as_double(width_) * kFloatBytes / kRowsOfBlock : 0;
  ops.push_back(kernel(what, (residual ? 4 : 3) * x_ + params * part));
  if (part == 0) return;
  Operation sums = kernel("sums of norms' gradients", part / 2);
  sums.times = 2 * static_cast<int64_t>(params);
  ops.push_back(sums);
}

Operations StageWork::layer_backward(int64_t layer) const {
  if (shape_.family == ModelFamily::kLinear) {
    const Operation dx = product("linear, backward", rows_, shape_.dim, shape_.dim),
                    dw = product("linear, backward", shape_.dim, shape_.dim, rows_);
    return {dw, dx};
  }
  Operations ops;
  const DecoderShape& s = shape_;
  const auto branch_back = [&] {
    if (dropout_ || s.post_norms)
      ops.push_back({.what = "branch", .engine = Engine::kCopy, .width = width_, .bytes = 2 * x_});
    if (dropout_) ops.push_back(kernel("dropout", 2 * x_, x_ / as_double(width_)));
    if (s.post_norms) norm_back("norm of the branch, backward", /*residual=*/false, ops);
  };
  branch_back();
  if (s.experts > 0) {
    experts_back(block(layer).frozen, ops);
  } else {
    linear_back("down, backward", Role::kDown, 1, layer, ops);
    ops.push_back(kernel("activation, backward", s_ + 2 * inner_, s_ / as_double(width_)));
    linear_back("gate, up, backward", s.gpt2 ? Role::kUp : Role::kGate, s.gpt2 ? 1 : 2, layer, ops);
  }
  norm_back("norm, backward", /*residual=*/true, ops);
  branch_back();
  linear_back("o, backward", Role::kO, 1, layer, ops);
  attention_back(layer, ops);
  const double turned = qkv_ - keys_;
  if (s.learned_positions == 0) ops.push_back(kernel("rotary, backward", 2 * turned));
  if (s.qk_norm) {
    Operation norm = kernel("norm of heads, backward", 1.5 * turned);
    norm.times = 2;
    ops.push_back(norm);
  }
  linear_back("q, k, v, backward", Role::kQ, s.gpt2 ? 1 : 3, layer, ops);
  norm_back("norm, backward", /*residual=*/true, ops);
  return ops;
}

// HeadStage::run
Operations StageWork::head() const {
  Operations ops{kernel("norm", 2 * x_)};
  head_chunks(ops);
  norm_back("norm, backward", /*residual=*/false, ops);
  return ops;
}

// Full chunks and a rest. Where a slot is several, their gradients of the weight are summed.
void StageWork::head_chunks(Operations& ops) const {
  const int64_t full = head_chunk_rows(rates_.sizes(), shape_.vocab_size, width_);
  const bool alone = rows_ <= full && !shape_.tied;
  const bool sums = !alone && !head_weight_unit().frozen;
  const double sum = as_double(shape_.vocab_size * shape_.dim) * kFloatBytes;
  if (sums)
    ops.push_back(
        {.what = "sum of the weight's gradient, zeroed", .engine = Engine::kCopy, .bytes = sum});
  if (rows_ >= full) head_chunk(full, rows_ / full, alone, ops);
  if (rows_ % full > 0) head_chunk(rows_ % full, 1, alone, ops);
  if (sums && !shape_.tied && width_ == 2)
    ops.push_back({.what = "sum as bf16", .bytes = 1.5 * sum});
}

// One that is not alone reads the weight's fp32 gradient, and writes it. A row of logits is read
// for the sum of its exponentials, and again for its gradient; a CPU has it in its cache by then.
void StageWork::head_chunk(int64_t n, int64_t times, bool alone, Operations& ops) const {
  const int64_t v = shape_.vocab_size, d = shape_.dim;
  const double logits = as_double(n) * as_double(v),
               sum = as_double(v) * as_double(d) * kFloatBytes;
  const auto each = [&](Operation op) {
    op.times = times;
    ops.push_back(op);
  };
  each(product("logits", n, v, d));
  each(kernel("cross-entropy", (rates_.gpu() ? 3 : 2) * logits * as_double(width_), 2 * logits));
  if (shape_.logit_cap > 0) each(kernel("cap of logits", 7 * logits * as_double(width_), logits));
  each(product("logits, dx", n, d, v));
  if (head_weight_unit().frozen) return;
  Operation grad = product("logits, weight's gradient", v, d, n);
  if (alone) return each(grad);
  const double factors = as_double(n * (v + d));
  grad.bytes = factors * as_double(width_) + 2 * sum;
  if (!rates_.gpu() && width_ == 2) {  // both as fp32
    each({.what = "factors as fp32", .engine = Engine::kCopy, .bytes = 6 * factors});
    grad.width = 4;
    grad.bytes = factors * kFloatBytes + 2 * sum;
  }
  each(grad);
}

const UnitSpec& StageWork::head_weight_unit() const {
  return spec_.units[shape_.tied ? 0 : static_cast<size_t>(spec_.head_unit())];
}

// A tied weight's sum was begun by the head.
Operations StageWork::embedding_backward() const {
  Operations ops;
  if (spec_.units[0].frozen) return ops;
  if (dropout_) ops.push_back(kernel("dropout", 4 * x_, x_ / as_double(width_)));
  if (shape_.embedding_scale != 1)
    ops.push_back({.what = "scaled", .engine = Engine::kCopy, .width = width_, .bytes = 4 * x_});
  const double wide = x_ / as_double(width_) * kFloatBytes;
  const std::vector<ParamSpec>& params = spec_.units[0].params;
  for (size_t i = 0; i < params.size(); ++i) {
    const double sum = as_double(params[i].elements()) * kFloatBytes;
    if (i > 0 || !shape_.tied)
      ops.push_back({.what = "sum of rows, zeroed", .engine = Engine::kCopy, .bytes = sum});
    Operation add = kernel("embedding, backward", x_ + 2 * wide);
    if (rates_.gpu()) {
      // at::sort of the tokens: about twenty kernels
      ops.push_back({.what = "tokens sorted",
                     .engine = Engine::kCopy,
                     .bytes = 32.0 * as_double(rows_),
                     .times = 20});
      const double columns = as_double((shape_.dim + kThreadsOfToken - 1) / kThreadsOfToken);
      if (i == 0) add.serial_s = kCommonest * as_double(rows_) * columns * kLoad_s;
    }
    ops.push_back(add);
    if (width_ == 2) ops.push_back({.what = "sum as bf16", .bytes = 1.5 * sum});
  }
  return ops;
}

}  // namespace lockstep::layout
