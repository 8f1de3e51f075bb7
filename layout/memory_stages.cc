#include "layout/memory_stages.h"

#include <algorithm>

namespace lockstep::layout {
namespace {

// core/model/layers.cc, stacked_weight: elements of the copy of matrices that do not lie back to
// back.
int64_t stacked_copy(const UnitSpec& unit, Role first, int count) {
  const int begin = unit.find(first);
  if (back_to_back(unit, begin, count)) return 0;
  int64_t elements = 0;
  for (int i = begin; i < begin + count; ++i)
    elements += unit.params[static_cast<size_t>(i)].elements();
  return elements;
}

}  // namespace

StageMemory::StageMemory(const Config& config, const ModelSpec& spec, int64_t compute_bytes,
                         WorkSizes sizes, MemoryLedger& ledger)
    : shape_(spec.shape),
      spec_(spec),
      ledger_(ledger),
      sizes_(sizes),
      batch_(config.training.local_batch_size),
      seq_len_(config.training.seq_len),
      rows_(batch_ * seq_len_),
      width_(compute_bytes),
      recompute_every_(recompute_every(config.activation_checkpoint)),
      // A GPU's fused kernel has no cap: scores are whole there.
      fused_(config.model.fused_attention &&
             !(sizes == WorkSizes::kGpu && spec.shape.score_cap > 0)),
      dropout_(config.model.dropout > 0),
      adapter_dropout_(config.lora.dropout > 0),
      post_norms_(spec.shape.post_norms),
      capped_(spec.shape.score_cap > 0) {
  const DecoderShape& s = shape_;
  const int64_t h = s.n_heads, k = s.n_kv_heads, e = s.head_dim;
  x_ = rows_ * s.dim * width_;
  norm_ = rows_ * (s.gpt2 ? 2 : 1) * kFloat;  // Norm::forward's `kept`
  qkv_ = rows_ * (h + 2 * k) * e * width_;
  head_scales_ = s.qk_norm ? rows_ * (h + k) * kFloat : 0;
  attention_ = rows_ * h * e * width_;
  keys_ = rows_ * k * e * width_;
  const int64_t chosen = std::max<int64_t>(1, s.experts_per_token);
  s_ = rows_ * chosen * s.ffn_dim * width_;
  places_ = rows_ * chosen * s.dim * width_;
  if (s.experts > 0) routing_ = rows_ * ((s.experts + chosen) * kFloat + chosen * 4 * 8);
  inner_ = s.gpt2 ? s_ : 2 * s_;
  hold_tables();
}

// make_decoder: rotary_tables
void StageMemory::hold_tables() {
  if (shape_.learned_positions > 0) return;
  const int64_t tables = shape_.local_rope_theta > 0 ? 2 : 1;
  ledger_.hold(MemoryUse::kTables, tables * 2 * seq_len_ * (shape_.head_dim / 2) * kFloat);
}

// core/kernels/attention.cc: Attention::blocks. Bytes of the scores of the largest block of all
// stacks, of its queries, and of a copy of its keys; the last block is the one with most keys.
StageMemory::ScoreBlock StageMemory::score_block(int64_t layer) const {
  const int64_t h = shape_.n_heads, e = shape_.head_dim, window = shape_.window(layer);
  int64_t queries = seq_len_, keys = seq_len_;
  if (fused_) {
    queries = std::min(seq_len_, attention_queries(batch_, h, seq_len_));
    if (window > 0) keys = std::min(seq_len_, queries + window - 1);
  }
  const int64_t key_copy = keys < seq_len_ ? batch_ * shape_.n_kv_heads * keys * e * width_ : 0;
  return {batch_ * h * queries * keys * width_, batch_ * h * queries * e * width_, key_copy};
}

// AttentionKept::probabilities
int64_t StageMemory::probabilities(int64_t layer) const {
  return fused_ ? 0 : score_block(layer).scores;
}

void StageMemory::embedding_forward() {
  ledger_.at("forward of the embedding");
  ledger_.hold(MemoryUse::kActivations, x_);  // index_select
  const Held positions(ledger_, MemoryUse::kWork, shape_.learned_positions > 0 ? x_ : 0);
}

// LinearStage::forward keeps x and makes y.
void StageMemory::layer_forward(const PartMemory& part, const PartMemory* adapters, int64_t layer) {
  ledger_.at("forward of block", layer);
  if (shape_.family == ModelFamily::kLinear) return ledger_.hold(MemoryUse::kActivations, x_);
  block_forward(part, adapters, layer);
}

void StageMemory::block_forward(const PartMemory& part, const PartMemory* adapters, int64_t layer) {
  const bool all = !recomputed(recompute_every_, layer);
  block_run(part, adapters, layer, all);
  block_end(adapters, all);
  if (!all)  // x2_RD, and what norms and routers kept
    ledger_.drop(MemoryUse::kActivations, x_ + norms() + routing_);
}

// What all norms of a block keep for backward, beside their inputs.
int64_t StageMemory::norms() const { return (post_norms_ ? 4 : 2) * norm_ + head_scales_; }

// BlockStage::feed_forward_end; holds y.
void StageMemory::block_end(const PartMemory* adapters, bool all) {
  {
    Held weighed(ledger_, MemoryUse::kWork, shape_.experts > 0 ? s_ + places_ : 0);
    ledger_.hold(MemoryUse::kActivations, x_);
  }
  low_rank(adapters, Role::kDown, 1, /*backward=*/false);
  if (!all) ledger_.drop(MemoryUse::kActivations, s_);
  if (!post_norms_) return;
  ledger_.hold(MemoryUse::kActivations, x_ + norm_);
  if (!all) ledger_.drop(MemoryUse::kActivations, x_);  // before the norm
}

// BlockStage::run: what later lines do not read is dropped unless backward wants all.
void StageMemory::block_run(const PartMemory& part, const PartMemory* adapters, int64_t layer,
                            bool all) {
  const auto keep = [this](int64_t bytes) { ledger_.hold(MemoryUse::kActivations, bytes); };
  const auto done = [this, all](int64_t bytes) {
    if (!all) ledger_.drop(MemoryUse::kActivations, bytes);
  };
  const auto linear = [&](Role first, int count, int64_t bytes) {  // Linear::forward
    {
      Held copy(ledger_, MemoryUse::kWork, stacked_copy(*part.spec, first, count) * width_);
      keep(bytes);
    }
    low_rank(adapters, first, count, /*backward=*/false);
  };
  keep(x_ + norm_);                             // h1_RD, norm1
  linear(Role::kQ, shape_.gpt2 ? 1 : 3, qkv_);  // project_heads
  done(x_);
  if (shape_.qk_norm) {
    keep(qkv_ + head_scales_);  // raw_qkv and scales
    done(qkv_);
  }
  keep(attention_);  // Attention::forward: out_RD
  {
    const ScoreBlock b = score_block(layer);
    Held keys(ledger_, MemoryUse::kWork, 2 * keys_);
    Held block(ledger_, MemoryUse::kWork, b.scores + b.queries + b.key_copy);
  }
  keep(probabilities(layer));
  done(qkv_ + probabilities(layer));
  keep(x_);  // the branch, which becomes x2_RD
  low_rank(adapters, Role::kO, 1, /*backward=*/false);
  done(attention_);
  if (post_norms_) {
    keep(x_ + norm_);  // the branch behind its norm, in its place
    done(x_);
  }
  keep(x_ + norm_);  // h2_RD, norm2
  if (shape_.experts > 0)
    experts_run(part);
  else
    linear(shape_.gpt2 ? Role::kUp : Role::kGate, shape_.gpt2 ? 1 : 2, inner_);
  done(x_);
  keep(s_);  // s_RF
  done(inner_);
}

// Experts::route and inner.
void StageMemory::experts_run(const PartMemory& part) {
  {
    Held logits(ledger_, MemoryUse::kWork, rows_ * shape_.experts * width_);
    ledger_.hold(MemoryUse::kActivations, routing_);
  }
  Held rows(ledger_, MemoryUse::kWork, places_);
  ledger_.hold(MemoryUse::kActivations, inner_);
  rows.add(stacked_copy(*part.spec, Role::kGate, 2) * width_);
}

// LowRank: forward adds a product; backward keeps the gradients between the factors until dx is
// there.
void StageMemory::low_rank(const PartMemory* adapters, Role first, int count, bool backward) {
  if (adapters == nullptr) return;
  int64_t kept = 0, most = 0;  // elements of a row
  for (int i = 0; i < count; ++i) {
    const int a = adapters->spec->find(static_cast<Role>(static_cast<int>(first) + i));
    if (a < 0) continue;
    const auto& params = adapters->spec->params;
    const int64_t rank = params[static_cast<size_t>(a)].shape[0],
                  in = params[static_cast<size_t>(a)].shape[1],
                  out = params[static_cast<size_t>(a) + 1].shape[0];
    const int64_t masked = adapter_dropout_ ? in : 0;
    if (backward) kept += rank;
    most = std::max(
        most, backward ? std::max(rank + masked + (count > 1 ? out : 0), in) : rank + out + masked);
  }
  if (kept > 0) adapters->grad();
  Held work(ledger_, MemoryUse::kWork, rows_ * (kept + most) * width_);
}

// HeadStage::run
void StageMemory::head(const PartMemory& own, const PartMemory& weight) {
  ledger_.at("head and loss");
  const int64_t vocab = shape_.vocab_size;
  const int64_t chunk = std::min(rows_, head_chunk_rows(sizes_, vocab, width_));
  const bool alone = chunk == rows_ && !shape_.tied;
  Held work(ledger_, MemoryUse::kWork, norm_ + x_);  // kept, h_RD
  ledger_.hold(MemoryUse::kWork, x_);                // dh_RD, in whose memory dx is returned
  {
    Held logits(ledger_, MemoryUse::kHeadChunk, chunk * vocab * width_);
    if (shape_.logit_cap > 0) {
      logits.add(chunk * vocab * width_);  // capped
      logits.release(chunk * vocab * width_);
    }
    const int param = shape_.tied ? 0 : own.spec->find(Role::kHead);
    if (alone) {
      weight.grad();
    } else {
      weight.grad_sum(param);
      // add_product: a CPU's makes both fp32
      if (sizes_ == WorkSizes::kCpu && width_ != kFloat && !weight.spec->frozen)
        logits.add(chunk * (vocab + shape_.dim) * kFloat);
    }
  }
  own.grad_sum(Role::kNorm1);
  own.grad_sum(Role::kNorm1Bias);
}

void StageMemory::layer_backward(const PartMemory& part, const PartMemory* adapters,
                                 int64_t layer) {
  ledger_.at("backward of block", layer);
  if (shape_.family != ModelFamily::kLinear) return block_backward(part, adapters, layer);
  part.grad();                                // LinearStage::backward
  ledger_.drop(MemoryUse::kActivations, x_);  // x_RD_.reset()
  ledger_.hold(MemoryUse::kWork, x_);         // dx
}

// BlockStage::dense_back; holds dh2, which becomes dx2.
void StageMemory::dense_backward(const PartMemory& part, const PartMemory* adapters, Held& branch) {
  part.grad();  // down_.parameters_back
  low_rank(adapters, Role::kDown, 1, /*backward=*/true);
  part.grad_sum(Role::kDownBias);
  ledger_.drop(MemoryUse::kActivations, s_);
  branch.add(s_);                  // ds
  branch.release(branch.bytes());  // d_inner lies in inner's memory
  const Role first = shape_.gpt2 ? Role::kUp : Role::kGate;
  const int count = shape_.gpt2 ? 1 : 2;
  { Held copy(ledger_, MemoryUse::kWork, stacked_copy(*part.spec, first, count) * width_); }
  low_rank(adapters, first, count, /*backward=*/true);
  for (const Role role : {Role::kGateBias, Role::kUpBias}) part.grad_sum(role);
  ledger_.drop(MemoryUse::kActivations, x_);  // h2_RD
  ledger_.hold(MemoryUse::kWork, x_);
}

// Experts::backward; the same.
void StageMemory::experts_backward(const PartMemory& part, Held& branch) {
  const int64_t rows_of_weights = rows_ * shape_.experts_per_token * kFloat;
  Held weights(ledger_, MemoryUse::kWork, rows_of_weights);
  {
    Held work(ledger_, MemoryUse::kWork, places_ + 2 * s_);  // dy, w and d by place
    part.grad();
  }
  ledger_.drop(MemoryUse::kActivations, s_);
  branch.release(branch.bytes());
  {
    Held work(ledger_, MemoryUse::kWork, 2 * places_);  // x and dx by place
    const int64_t stacked = stacked_copy(*part.spec, Role::kGate, 2) * width_;
    work.add(stacked);
    work.release(stacked + places_);
    ledger_.hold(MemoryUse::kWork, x_);  // dh2
  }
  Held logits(ledger_, MemoryUse::kWork, rows_ * shape_.experts * width_);
  logits.add(x_);
  ledger_.drop(MemoryUse::kActivations, x_ + routing_);  // h2_RD
}

void StageMemory::block_backward(const PartMemory& part, const PartMemory* adapters,
                                 int64_t layer) {
  if (recomputed(recompute_every_, layer)) {
    block_run(part, adapters, layer, /*all=*/true);
    if (post_norms_) {
      block_end(adapters, /*all=*/true);
      ledger_.drop(MemoryUse::kActivations, x_);  // y
    }
  }
  const auto stacked = [&](Role first, int count) {  // parameters_back, then input_back
    { Held copy(ledger_, MemoryUse::kWork, stacked_copy(*part.spec, first, count) * width_); }
    low_rank(adapters, first, count, /*backward=*/true);
  };
  const auto sum = [&](std::initializer_list<Role> roles) {
    for (Role role : roles) part.grad_sum(role);
  };
  const auto read = [this](int64_t bytes) { ledger_.drop(MemoryUse::kActivations, bytes); };
  const int64_t masked =
      dropout_ || post_norms_ ? x_ : 0;  // the branch's gradient beside the block's
  // feed_forward_back
  Held work(ledger_, MemoryUse::kWork, masked);
  sum({Role::kPostNorm2});
  if (post_norms_) read(x_);  // down_RD
  if (shape_.experts > 0)
    experts_backward(part, work);
  else
    dense_backward(part, adapters, work);
  read(inner_);
  sum({Role::kNorm2, Role::kNorm2Bias});
  read(x_);  // x2_RD
  // attention_back
  work.add(masked);
  sum({Role::kPostNorm1});
  if (post_norms_) read(x_);  // o_RD
  low_rank(adapters, Role::kO, 1, /*backward=*/true);
  sum({Role::kOBias});
  work.add(attention_);  // d_out
  work.release(masked);
  attention_backward(layer);
  read(qkv_ + attention_ + probabilities(layer));
  sum({Role::kQNorm, Role::kKNorm});
  if (shape_.qk_norm) read(qkv_);  // raw_qkv
  work.release(attention_);
  stacked(Role::kQ, shape_.gpt2 ? 1 : 3);
  sum({Role::kQBias, Role::kKBias, Role::kVBias});
  read(x_);                              // h1_RD
  ledger_.hold(MemoryUse::kWork, x_);    // dh1, which becomes dx
  ledger_.drop(MemoryUse::kWork, qkv_);  // d_qkv
  sum({Role::kNorm1, Role::kNorm1Bias});
  read(x_ + norms());                  // x and what the norms kept
  ledger_.drop(MemoryUse::kWork, x_);  // dx2
}

// Attention::backward; holds d(qkv).
void StageMemory::attention_backward(int64_t layer) {
  const ScoreBlock b = score_block(layer);
  Held keys(ledger_, MemoryUse::kWork, 2 * keys_);
  ledger_.hold(MemoryUse::kWork, qkv_);   // d_qkv
  keys.add(2 * keys_ / width_ * kFloat);  // dk, dv
  const int64_t capped = capped_ ? b.scores : 0;
  Held block(ledger_, MemoryUse::kWork, 2 * b.queries + b.key_copy + b.scores + capped);
  block.add(b.scores + std::max(b.queries, b.key_copy));  // d_scores and a product
}

// The rows' sums in fp32.
void StageMemory::embedding_backward(const PartMemory& part) {
  if (part.spec->frozen) return;
  ledger_.at("backward of the embedding");
  Held masked(ledger_, MemoryUse::kWork, dropout_ || shape_.embedding_scale != 1 ? x_ : 0);
  for (size_t i = 0; i < part.spec->params.size(); ++i) part.grad_sum(static_cast<int>(i));
}

}  // namespace lockstep::layout
