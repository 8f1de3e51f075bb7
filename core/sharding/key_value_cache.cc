#include "core/sharding/key_value_cache.h"

#include <ATen/ops/empty.h>
#include <algorithm>

#include "base/check.h"
#include "core/kernels/element_type.h"
#include "core/kernels/elementwise_kernels.h"
#include "core/kernels/kernel_table.h"
#include "core/kernels/matmul.h"
#include "core/kernels/parallel.h"
#include "core/kernels/row_kernels.h"

namespace lockstep::core {
namespace {

// What one query row and one key head's queries need: all of a task of attention.
struct HeadTask {
  int64_t group, head_dim, first, keys;  // the keys that it sees
  float scale, soft_cap;
};

// out [group, E] of queries [group, E], from a key head's keys and values, token by token.
template <typename T>
void attend_head(const HeadTask& task, const T* queries, const T* keys, const T* values, T* out) {
  const int64_t e = task.head_dim, n = task.keys, scores_count = task.group * n;
  std::vector<float> memory(static_cast<size_t>(task.group * e + scores_count));
  float *const wide = memory.data(), *const scores = wide + task.group * e;
  for (int64_t i = 0; i < task.group * e; ++i) {
    if constexpr (std::is_same_v<T, float>)
      wide[i] = queries[i];
    else
      wide[i] = bf16_to_float(queries[i].bits);
  }
  rows_by_rows({wide, task.group, e}, keys + task.first * e, {0, n, n}, scores);
  const bool capped = task.soft_cap > 0;
  if (capped) soft_cap_forward<OnCpu>(scores, scores_count, task.scale, task.soft_cap);
  const ScoreBlock all{.first_query = n - 1,
                       .rows = task.group,
                       .group = task.group,
                       .first_key = 0,
                       .keys = n,
                       .window = 0};
  masked_softmax<OnCpu>(scores, 1, all, capped ? 1.0f : task.scale);
  rows_by_columns({scores, task.group, n}, values + task.first * e, {0, e, e}, out);
}

}  // namespace

int64_t KeyValueCache::add(int64_t most) {
  sequences_[next_] = {.most = most,
                       .layers = std::vector<at::Tensor>(static_cast<size_t>(layers_))};
  return next_++;
}

void KeyValueCache::drop(int64_t sequence) { sequences_.erase(sequence); }

std::vector<int64_t> KeyValueCache::begin(std::span<const NewTokens> rows) {
  rows_.clear();
  std::vector<int64_t> positions;
  for (const NewTokens& added : rows) {
    Sequence& s = sequences_.at(added.sequence);
    LOCKSTEP_CHECK(added.count > 0 && s.length + added.count <= s.most, s.length, " tokens and ",
                   added.count, " more in a sequence of at most ", s.most);
    rows_.push_back({added.sequence, std::ssize(positions), added.count, s.length});
    for (int64_t i = 0; i < added.count; ++i) positions.push_back(s.length + i);
    s.length += added.count;
  }
  return positions;
}

at::Tensor& KeyValueCache::memory(Sequence& s, int64_t layer, const AttentionShape& shape,
                                  const at::Tensor& like) const {
  at::Tensor& now = s.layers[static_cast<size_t>(layer)];
  const int64_t before = now.defined() ? now.size(2) : 0;
  if (before >= s.length) return now;
  const int64_t wanted = std::max(s.length, before + before / 2);
  const int64_t capacity = std::min(s.most, (wanted + kStep - 1) / kStep * kStep);
  const at::Tensor larger =
      at::empty({2, shape.key_heads, capacity, shape.head_dim}, like.options());
  if (before > 0) larger.narrow(2, 0, before).copy_(now);
  return now = larger;
}

void KeyValueCache::keep(int64_t layer, const AttentionShape& shape, const at::Tensor& qkv) {
  for (const Rows& rows : rows_) {
    const at::Tensor& kept = memory(sequences_.at(rows.sequence), layer, shape, qkv);
    const at::Tensor added =  // [2, K, count, E]
        qkv.narrow(0, rows.first_row, rows.count)
            .narrow(1, shape.heads * shape.head_dim, 2 * shape.key_heads * shape.head_dim)
            .view({rows.count, 2, shape.key_heads, shape.head_dim})
            .permute({1, 2, 0, 3});
    kept.narrow(2, rows.first_position, rows.count).copy_(added);
  }
}

// A task is a row and a key head; the heads are shared out among threads, for a later row has more
// keys than an earlier one.
void KeyValueCache::attend_rows(int64_t layer, const AttentionShape& shape, const at::Tensor& qkv,
                                const at::Tensor& out) const {
  const int64_t e = shape.head_dim, group = shape.heads / shape.key_heads;
  struct Row {
    at::Tensor kept;
    int64_t first_key, end_key;
  };
  std::vector<Row> all;
  int64_t most_keys = 1;
  for (const Rows& rows : rows_) {
    const at::Tensor& kept = sequences_.at(rows.sequence).layers[static_cast<size_t>(layer)];
    for (int64_t i = 0; i < rows.count; ++i) {
      const int64_t end = rows.first_position + i + 1;
      all.push_back({kept, shape.window > 0 ? std::max<int64_t>(0, end - shape.window) : 0, end});
      most_keys = std::max(most_keys, all.back().end_key - all.back().first_key);
    }
  }
  const int64_t rows = std::ssize(all);
  by_type(qkv, [&](auto* t) {
    parallel_rows(shape.key_heads * rows, 2 * most_keys * e, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t head = task / rows, r = task % rows;
        const Row& row = all[static_cast<size_t>(r)];
        const int64_t head_elements = row.kept.size(2) * e;
        const auto* const keys = ptr(t, row.kept) + head * head_elements;
        attend_head({.group = group,
                     .head_dim = e,
                     .first = row.first_key,
                     .keys = row.end_key - row.first_key,
                     .scale = shape.scale(),
                     .soft_cap = shape.soft_cap},
                    ptr(t, qkv) + r * qkv.size(1) + head * group * e, keys,
                    keys + shape.key_heads * head_elements,
                    ptr(t, out) + r * out.size(1) + head * group * e);
      }
    });
  });
}

// As core/kernels/attention.cc does it, of one sequence after the other.
void KeyValueCache::attend_by_products(int64_t layer, const AttentionShape& shape,
                                       const at::Tensor& qkv, const at::Tensor& out) const {
  const int64_t e = shape.head_dim, group = shape.heads / shape.key_heads;
  const Kernels& kernels = kernels_on(qkv);
  for (const Rows& rows : rows_) {
    const at::Tensor& kept = sequences_.at(rows.sequence).layers[static_cast<size_t>(layer)];
    const int64_t end = rows.first_position + rows.count;
    const int64_t first =
        shape.window > 0 ? std::max<int64_t>(0, rows.first_position - shape.window + 1) : 0;
    const at::Tensor seen = kept.narrow(2, first, end - first);
    const ScoreBlock block{.first_query = rows.first_position,
                           .rows = rows.count * group,
                           .group = group,
                           .first_key = first,
                           .keys = end - first,
                           .window = shape.window};
    const auto heads_of = [&](const at::Tensor& x) {  // [count, K, group, E]
      return x.narrow(0, rows.first_row, rows.count)
          .narrow(1, 0, shape.heads * e)
          .view({rows.count, shape.key_heads, group, e});
    };
    const at::Tensor queries =
        heads_of(qkv).transpose(0, 1).reshape({shape.key_heads, rows.count * group, e});
    at::Tensor scores = product(queries, seen.select(0, 0).contiguous().transpose(1, 2));
    if (shape.soft_cap > 0) kernels.soft_cap(scores, shape.scale(), shape.soft_cap);
    kernels.softmax_of_seen(scores, block, shape.soft_cap > 0 ? 1.0f : shape.scale());
    const at::Tensor result = product(scores, seen.select(0, 1).contiguous());
    heads_of(out).copy_(result.view({shape.key_heads, rows.count, group, e}).transpose(0, 1));
  }
}

at::Tensor KeyValueCache::attention(int64_t layer, const AttentionShape& shape,
                                    const at::Tensor& qkv) {
  LOCKSTEP_CHECK(layer < layers_ && !rows_.empty() &&
                     qkv.size(0) == rows_.back().first_row + rows_.back().count,
                 qkv.size(0), " rows in layer ", layer);
  keep(layer, shape, qkv);
  const at::Tensor out = at::empty({qkv.size(0), shape.heads * shape.head_dim}, qkv.options());
  if (qkv.is_cpu())
    attend_rows(layer, shape, qkv, out);
  else
    attend_by_products(layer, shape, qkv, out);
  return out;
}

int64_t KeyValueCache::bytes() const {
  int64_t sum = 0;
  for (const auto& [number, sequence] : sequences_)
    for (const at::Tensor& layer : sequence.layers)
      if (layer.defined()) sum += static_cast<int64_t>(layer.nbytes());
  return sum;
}

}  // namespace lockstep::core
