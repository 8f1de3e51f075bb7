#include "model_spec/memory_stages.h"

#include <algorithm>
#include <set>

namespace lockstep::model_spec {
namespace {

constexpr int64_t kFloat = 4;

// core/model/head_stage.cc: chunk_rows
int64_t chunk_rows(int64_t vocab) {
  constexpr int64_t kChunkLogitBytes = int64_t{32} << 20;
  return std::max<int64_t>(64, kChunkLogitBytes / (vocab * kFloat) / 64 * 64);
}

// core/model/layers.cc, stacked_weight: matrices that do not lie back to back, since one does not
// end with a tile, are copied. Elements of the copy.
int64_t stacked_copy(const UnitSpec& unit, Role first, int64_t count) {
  const auto begin = static_cast<size_t>(unit.find(first));
  int64_t elements = 0;
  bool copied = false;
  for (size_t i = begin; i < begin + static_cast<size_t>(count); ++i) {
    elements += unit.params[i].elements();
    copied |= i + 1 < begin + static_cast<size_t>(count) &&
              unit.params[i].elements() % kTileElements != 0;
  }
  return copied ? elements : 0;
}

// ATen/native/cpu/FlashAttentionKernel.cpp: rows of queries, and columns of keys, of one thread.
struct FlashTile {
  int64_t queries, keys;
};
FlashTile flash_tile(int64_t seq_len) {
  const int64_t queries = seq_len >= 768 ? 256 : seq_len >= 192 ? 64 : 32;
  return {std::min(queries, seq_len), std::min<int64_t>(512, seq_len)};
}

}  // namespace

StageMemory::StageMemory(const Config& config, const ModelSpec& spec, MemoryLedger& ledger)
    : shape_(spec.shape),
      spec_(spec),
      ledger_(ledger),
      batch_(config.training.local_batch_size),
      seq_len_(config.training.seq_len),
      rows_(batch_ * seq_len_),
      width_(config.training.mixed_precision_param == "bfloat16" ? 2 : 4),
      threads_(config.training.threads) {
  const DecoderShape& s = shape_;
  const int64_t h = s.n_heads, k = s.n_kv_heads, e = s.head_dim;
  x_ = rows_ * s.dim * width_;
  norm_ = rows_ * (s.gpt2 ? 2 : 1) * kFloat;  // Norm::forward's `kept`
  qkv_ = rows_ * (h + 2 * k) * e * width_;
  head_scales_ = s.qk_norm ? rows_ * (h + k) * kFloat : 0;
  repeated_ = h == k ? 0 : 2 * rows_ * h * e * width_;  // BlockStage::heads_of: k and v
  attention_ = rows_ * h * e * width_;
  log_sum_ = rows_ * h * kFloat;
  s_ = rows_ * s.ffn_dim * width_;
  inner_ = s.gpt2 ? s_ : 2 * s_;
  hold_tables();
}

// make_decoder: RotaryTable::create, window_mask
void StageMemory::hold_tables() {
  if (shape_.learned_positions == 0)
    ledger_.hold(MemoryUse::kTables, 2 * seq_len_ * (shape_.head_dim / 2) * kFloat);
  std::set<int64_t> windows;
  for (int64_t window : shape_.windows)
    if (window > 0 && window < seq_len_) windows.insert(window);
  ledger_.hold(MemoryUse::kTables,
               static_cast<int64_t>(windows.size()) * seq_len_ * seq_len_ * width_);
}

// cpu_flash_attention: buf and, for bf16, buf_reduced
int64_t StageMemory::flash_forward_bytes() const {
  const auto [q, k] = flash_tile(seq_len_);
  const int64_t reduced = width_ == kFloat ? 0 : q * k * width_;
  return threads_ * ((q * k + 2 * q + q * shape_.head_dim) * kFloat + reduced);
}

// cpu_flash_attention_backward: the same, two tiles of each
int64_t StageMemory::flash_backward_bytes() const {
  const auto [q, k] = flash_tile(seq_len_);
  const int64_t reduced = width_ == kFloat ? 0 : 2 * q * k * width_;
  return threads_ * ((2 * q * k + q) * kFloat + reduced);
}

// BlockStage::Saved, and the input x, which the stage before made.
int64_t StageMemory::saved_bytes() const {
  return x_ + (x_ + norm_) + qkv_ + (shape_.qk_norm ? qkv_ + head_scales_ : 0) + attention_ +
         log_sum_ + x_ + (x_ + norm_) + inner_ + s_;
}

void StageMemory::embedding_forward() {
  ledger_.at("forward of the embedding");
  ledger_.hold(MemoryUse::kActivations, x_);  // index_select
}

// LinearStage::forward keeps x and makes y.
void StageMemory::layer_forward(const PartMemory& part, int64_t layer) {
  ledger_.at("forward of block", layer);
  if (shape_.family == "linear") return ledger_.hold(MemoryUse::kActivations, x_);
  block_forward(part);
}

void StageMemory::block_forward(const PartMemory& part) {
  const auto keep = [this](int64_t bytes) { ledger_.hold(MemoryUse::kActivations, bytes); };
  const auto linear = [&](Role first, int64_t count, int64_t bytes) {  // Linear::forward
    Held copy(ledger_, MemoryUse::kWork, stacked_copy(*part.spec, first, count) * width_);
    keep(bytes);
  };
  keep(x_ + norm_);                                               // s.h1_RD, s.norm1
  linear(Role::kQ, shape_.gpt2 ? 1 : 3, qkv_);                    // project_heads
  if (shape_.qk_norm) keep(qkv_ + head_scales_);                  // s.raw_qkv and scales
  Held heads(ledger_, MemoryUse::kWork, repeated_);               // heads_of
  keep(attention_ + log_sum_);                                    // s.attention_RHE, s.log_sum
  { Held flash(ledger_, MemoryUse::kWork, flash_forward_bytes()); }
  keep(x_);                                                       // s.x2_RD
  keep(x_ + norm_);                                               // s.h2_RD, s.norm2
  const Role inner = shape_.gpt2 ? Role::kUp : Role::kGate;
  linear(inner, shape_.gpt2 ? 1 : 2, inner_);                     // s.inner
  keep(s_);                                                       // s.s_RF
  keep(x_);                                                       // y
}

// HeadStage::run
void StageMemory::head(const PartMemory& own, const PartMemory& weight) {
  ledger_.at("head and loss");
  const int64_t vocab = shape_.vocab_size, chunk = std::min(rows_, chunk_rows(vocab));
  const bool alone = chunk == rows_ && !shape_.tied;
  Held work(ledger_, MemoryUse::kWork);
  work.add(norm_ + x_);  // kept, h_RD
  work.add(x_);          // dh_RD
  {
    Held logits(ledger_, MemoryUse::kHeadChunk);
    if (width_ != kFloat) {
      logits.add(chunk * vocab * width_);   // at::mm(h, w^T)
      logits.add(chunk * vocab * kFloat);   // .to(at::kFloat)
      logits.release(chunk * vocab * width_);
    }
    logits.add(chunk * vocab * width_);     // d_logits; in fp32 the logits themselves
    const int param = shape_.tied ? 0 : own.spec->find(Role::kHead);
    if (alone) {
      weight.grad();
    } else {
      weight.grad_sum(param);
      if (width_ != kFloat)                 // add_weight_grad: both as fp32
        logits.add(chunk * (vocab + shape_.dim) * kFloat);
    }
  }
  own.grad_sum(Role::kNorm1);
  own.grad_sum(Role::kNorm1Bias);
  ledger_.hold(MemoryUse::kWork, x_);       // out.dx
}

void StageMemory::layer_backward(const PartMemory& part, int64_t layer) {
  ledger_.at("backward of block", layer);
  if (shape_.family != "linear") return block_backward(part);
  part.grad();                                       // LinearStage::backward
  ledger_.drop(MemoryUse::kActivations, x_);         // x_RD_.reset()
  ledger_.hold(MemoryUse::kWork, x_);                // dx
}

void StageMemory::block_backward(const PartMemory& part) {
  const auto stacked = [&](Role first, int64_t count) {  // parameters_back, then input_back
    Held copy(ledger_, MemoryUse::kWork, stacked_copy(*part.spec, first, count) * width_);
  };
  const auto sum = [&](std::initializer_list<Role> roles) {
    for (Role role : roles) part.grad_sum(role);
  };
  part.grad();                               // down_.parameters_back
  sum({Role::kDownBias});
  Held work(ledger_, MemoryUse::kWork);
  work.add(s_);                              // ds
  work.add(inner_);                          // d_inner
  stacked(shape_.gpt2 ? Role::kUp : Role::kGate, shape_.gpt2 ? 1 : 2);
  sum({Role::kGateBias, Role::kUpBias});
  work.add(x_);                              // dh2
  sum({Role::kNorm2, Role::kNorm2Bias, Role::kOBias});
  work.add(x_);                              // dx2
  attention_backward(work);
  stacked(Role::kQ, shape_.gpt2 ? 1 : 3);
  sum({Role::kQBias, Role::kKBias, Role::kVBias, Role::kQNorm, Role::kKNorm, Role::kNorm1,
       Role::kNorm1Bias});
  work.add(x_);                              // dh1
  ledger_.hold(MemoryUse::kWork, x_);        // dx
  ledger_.drop(MemoryUse::kActivations, saved_bytes());  // saved_ = Saved{}
}

void StageMemory::attention_backward(Held& work) {
  {
    Held heads(ledger_, MemoryUse::kWork);
    heads.add(attention_);                   // d_out
    heads.add(repeated_);                    // heads_of
    heads.add(3 * attention_);               // dq, dk, dv
    { Held flash(ledger_, MemoryUse::kWork, flash_backward_bytes()); }
    heads.add(qkv_);                         // d_qkv
    if (repeated_ > 0) {                     // sum_heads: fp32 copy in bf16, sum, sum rounded
      Held groups(ledger_, MemoryUse::kWork);
      const int64_t kv = rows_ * shape_.n_kv_heads * shape_.head_dim;
      if (width_ != kFloat) groups.add(attention_ / width_ * kFloat);
      groups.add(kv * kFloat);
      if (width_ != kFloat) groups.add(kv * width_);
    }
    if (shape_.qk_norm) heads.add(qkv_);     // project_heads_back: d_raw
  }
  work.add(qkv_);                            // what it returns
}

// The rows' sums in fp32.
void StageMemory::embedding_backward(const PartMemory& part) {
  ledger_.at("backward of the embedding");
  for (size_t i = 0; i < part.spec->params.size(); ++i) part.grad_sum(static_cast<int>(i));
}

}  // namespace lockstep::model_spec
