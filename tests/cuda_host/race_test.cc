// What the program that watches every access finds, beside the cases that it runs: races, and each
// barrier of each kernel, taken out.
#include <gmock/gmock.h>

#include <memory>
#include <set>

#include "core/kernels/adamw_kernels.h"
#include "core/kernels/add_kernels.h"
#include "core/kernels/digest_kernels.h"
#include "core/kernels/dropout_kernels.h"
#include "core/kernels/elementwise_kernels.h"
#include "core/kernels/initial_kernels.h"
#include "core/kernels/muon_kernels.h"
#include "core/kernels/norm_kernels.h"
#include "core/kernels/softmax_kernels.h"
#include "tests/cuda_host/broken_kernels.h"
#include "tests/cuda_host/case_values.h"
#include "tests/cuda_host/emulator.h"
#include "tests/cuda_host/launch_bounds.h"

namespace lockstep::cuda_host {
namespace {

using core::Array;
using core::Bf16;
using core::OnCuda;
using Launches = std::function<void()>;

// What the watch says; "" where nothing is wrong.
std::string said_of(const Launches& launches) {
  try {
    launches();
  } catch (const KernelFault& fault) {
    return fault.what();
  }
  return "";
}

TEST(RaceWatch, FindsRacesAndMemoryOfNobody) {
  Array<OnCuda, float> in(std::vector<float>(64)), out(std::vector<float>(64));
  const auto said = [&](Reverse how) {
    return said_of([&] { reverse(how, in.get(), out.get()); });
  };
  EXPECT_EQ(said(Reverse::kRight), "");
  EXPECT_THAT(said(Reverse::kNoBarrier), testing::HasSubstr("__shared__ memory that nobody wrote"));
  EXPECT_THAT(said(Reverse::kNothingShared), testing::HasSubstr("memory that nobody wrote"));
  EXPECT_EQ(said_of([&] { write_places(false, 4, out.get()); }), "");
  EXPECT_THAT(said_of([&] { write_places(true, 4, out.get()); }), testing::HasSubstr("a race"));
  EXPECT_THAT(said_of([&] { read_past_the_end(in.get(), 64, out.get()); }),
              testing::HasSubstr("no memory of the device"));
  std::vector<float> on_host(64);
  EXPECT_THAT(said_of([&] { reverse(Reverse::kRight, on_host.data(), out.get()); }),
              testing::HasSubstr("no memory of the device"));
  hide_memory(in.get());  // as if freed, right after it was read
  EXPECT_THAT(said(Reverse::kRight), testing::HasSubstr("no memory of the device"));
}

// Small arrays of one column, as many as a kernel can want.
template <typename T>
struct Memory {
  explicit Memory(int64_t n)
      : a(core::random_values<T>(n, 1)),
        b(core::random_values<T>(n, 2)),
        c(core::random_values<T>(n, 3)),
        d(core::random_values<T>(n, 4)),
        sums(std::vector<float>(static_cast<size_t>(n))),
        more_sums(std::vector<float>(static_cast<size_t>(n))),
        doubles(std::vector<double>(8)),
        places(std::vector<int64_t>{0, 1}) {}
  Array<OnCuda, T> a, b, c, d;
  Array<OnCuda, float> sums, more_sums;
  Array<OnCuda, double> doubles;
  Array<OnCuda, int64_t> places;
};

// Norms that have their rows in registers, and those that read them again; as many rows as a block
// of the backward has.
template <typename T>
std::vector<Launches> launches_of_norms(int64_t dim) {
  constexpr int64_t kRows = 8;
  const auto memory = std::make_shared<Memory<T>>(kRows * dim);
  Memory<T>& m = *memory;
  return {
      [memory, &m, dim] {
        core::rms_norm_forward<OnCuda>(m.a.get(), m.d.get(), m.b.get(), m.c.get(), m.sums.get(),
                                       kRows, 1, dim, dim, 1e-5f);
      },
      [memory, &m, dim] {
        core::rms_norm_backward<OnCuda, T>(m.a.get(), m.c.get(), m.b.get(), m.sums.get(), nullptr,
                                           m.a.get(), m.more_sums.get(), kRows, 1, dim, dim);
      },
      [memory, &m, dim] {
        core::layer_norm_forward<OnCuda>(m.a.get(), m.d.get(), m.b.get(), m.b.get(), m.c.get(),
                                         m.sums.get(), kRows, dim, 1e-5f);
      },
      [memory, &m, dim] {
        core::layer_norm_backward<OnCuda, T>(m.a.get(), m.c.get(), m.b.get(), m.sums.get(), nullptr,
                                             m.a.get(), m.more_sums.get(), m.more_sums.get() + dim,
                                             kRows, dim);
      },
  };
}

// Every other kernel on two rows of `dim` elements.
template <typename T>
std::vector<Launches> launches_of_rows(int64_t dim) {
  const auto memory = std::make_shared<Memory<T>>(2 * dim);
  Memory<T>& m = *memory;
  const core::ScoreBlock block{dim - 2, 2, 1, 0, dim, dim / 2};
  return {
      [memory, &m, block] { core::masked_softmax<OnCuda>(m.a.get(), 1, block, 0.5f); },
      [memory, &m, block] {
        core::masked_softmax_backward<OnCuda>(m.b.get(), m.a.get(), 1, block, 0.5f);
      },
      // Not the words that thread 0 writes: it would read its own.
      [memory, &m, dim] {
        Array<OnCuda, int64_t> labels({dim - 1, dim / 2 + 1});
        core::cross_entropy<OnCuda>(m.c.get(), labels.get(), 2, dim, {1e-4, 0.1}, 1.0f, true,
                                    m.doubles.get());
      },
  };
}

template <typename T>
void add_rows_of_one_token(Memory<T>& m, int64_t dim) {
  constexpr int64_t kRows = 300;
  std::vector<int64_t> order(kRows);
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i % 7);
  Array<OnCuda, int64_t> tokens(std::vector<int64_t>(kRows, 2)), rows(order);
  core::add_rows_by_token(m.sums.get(), m.a.get(), tokens.get(), rows.get(), kRows, dim);
}

// Every kernel whose threads have elements of their own, or that has its own width.
template <typename T>
std::vector<Launches> launches_of_elements() {
  constexpr int64_t kCount = 256;
  const auto memory = std::make_shared<Memory<T>>(kCount);
  Memory<T>& m = *memory;
  return {
      [memory, &m] { core::swiglu_forward<OnCuda>(m.a.get(), m.b.get(), 2, kCount / 4); },
      [memory, &m] { core::swiglu_backward<OnCuda>(m.b.get(), m.a.get(), 2, kCount / 4); },
      [memory, &m] { core::geglu_forward<OnCuda>(m.a.get(), m.b.get(), 2, kCount / 4); },
      [memory, &m] { core::geglu_backward<OnCuda>(m.b.get(), m.a.get(), 2, kCount / 4); },
      [memory, &m] { core::soft_cap_forward<OnCuda>(m.a.get(), kCount, 0.5f, 2.0f); },
      [memory, &m] { core::soft_cap_backward<OnCuda>(m.b.get(), m.a.get(), kCount, 0.5f, 2.0f); },
      [memory, &m] { core::gelu_forward<OnCuda>(m.a.get(), m.b.get(), kCount); },
      [memory, &m] { core::gelu_backward<OnCuda>(m.b.get(), m.a.get(), kCount); },
      [memory, &m] {
        for (const int64_t head_dim : {8, 6})
          core::rotate_heads<OnCuda>(m.a.get(), m.sums.get(), m.sums.get(), m.places.get(), 2, 3,
                                     head_dim, kCount / 2, 1.0f);
      },
      [memory, &m] {
        core::dropout<OnCuda>(m.a.get(), 0, kCount, {1, 2, 3, 2.0f});
      },
      [memory, &m] {
        for (const int parts : {1, 2, 4, 8}) {
          core::FoldTerms<T> terms;
          for (int k = 0; k < parts; ++k) terms.add_part(k % 2 == 0 ? m.a.get() : m.b.get());
          terms.add_sum(m.sums.get());
          terms.add_sum(m.more_sums.get());
          core::fold<OnCuda>(m.sums.get(), terms, kCount);
        }
      },
      [memory, &m] {
        core::add_columns<OnCuda>(m.sums.get(), m.a.get(), 2, kCount / 2, kCount / 2);
      },
      // A token of more rows than a block reads the places of at once; rows by one access and not.
      [memory, &m] { add_rows_of_one_token(m, 4); },
      [memory, &m] { add_rows_of_one_token(m, 5); },
  };
}

std::vector<Launches> launches_of_fp32() {
  constexpr int64_t kCount = 4096;
  const auto memory = std::make_shared<Memory<float>>(kCount);
  const auto narrow = std::make_shared<Memory<Bf16>>(kCount);
  return {
      [=] {
        Memory<float>& m = *memory;
        const core::AdamWStep step = core::AdamWStep::create(1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 1);
        const core::AdamWRun<float> run{m.a.get(),       m.b.get(), m.sums.get(), m.more_sums.get(),
                                        narrow->c.get(), kCount,    {},           true};
        core::adamw_update<OnCuda>(step, std::span(&run, 1));
        const core::AdamWRun<Bf16> rounded{
            m.a.get(),       m.b.get(), narrow->a.get(), narrow->b.get(),
            narrow->c.get(), kCount,    {1, 0},          true};
        core::adamw_update<OnCuda>(step, std::span(&rounded, 1));
      },
      [=] {
        const core::MuonStep step = core::MuonStep::create(1e-3, 0.95, 0.1, 1, 64, 64);
        core::muon_momentum<OnCuda>(step, memory->a.get(), memory->b.get(), narrow->a.get(),
                                    kCount);
        core::muon_update<OnCuda>(step, narrow->a.get(), memory->sums.get(), narrow->b.get(),
                                  kCount);
      },
      [=] {
        core::scale_and_square_tiles<OnCuda>(memory->a.get(), 0.5f, 1, memory->doubles.get());
      },
      [=] {
        const layout::SlotRun run{1, 4};
        core::sum_subtrees<OnCuda>(memory->doubles.get(), {&run, 1}, memory->doubles.get() + 5);
      },
      [=] { core::narrow<OnCuda>(narrow->a.get(), memory->a.get(), kCount); },
      [=] {
        for (const bool uniform : {false, true})
          core::draw_initial<OnCuda>({1, 0, 0.02, uniform}, memory->a.get(), kCount);
      },
      [=] {
        const core::DigestRun run{0, kCount, 1};
        Array<OnCuda, uint64_t> sum(std::vector<uint64_t>(1));
        core::digest_runs_on_cuda(reinterpret_cast<const std::byte*>(memory->a.get()),
                                  sizeof(float), {&run, 1}, sum.get());
      },
  };
}

// Widths of one warp, of 256 and of 1,024 threads a row.
std::vector<Launches> all_launches() {
  std::vector<Launches> all = launches_of_fp32();
  const auto add = [&](const std::vector<Launches>& more) {
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const int64_t dim : {40, 300, 16386}) {
    add(launches_of_rows<float>(dim));
    add(launches_of_rows<Bf16>(dim));
  }
  for (const int64_t dim : {40, 300, 2000, 4000, 8000, 16386}) {
    add(launches_of_norms<float>(dim));
    add(launches_of_norms<Bf16>(dim));
  }
  add(launches_of_elements<float>());
  add(launches_of_elements<Bf16>());
  return all;
}

std::vector<std::string> kernels_of(const Launches& launches) {
  const auto before = records();
  launches();
  std::vector<std::string> kernels;
  for (const auto& [kernel, record] : records()) {
    const auto known = before.find(kernel);
    if (known == before.end() || known->second.launches < record.launches)
      kernels.push_back(kernel);
  }
  return kernels;
}

TEST(Barriers, EachOfEachKernelTakenOutIsFound) {
  std::set<std::pair<std::string, int>> tried;
  std::set<std::string> kernels;
  for (const Launches& launches : all_launches())
    for (const std::string& kernel : kernels_of(launches)) {
      kernels.insert(kernel);
      for (int index = 0; index < records().at(kernel).barriers; ++index) {
        settings().taken_out = Barrier{kernel, index};
        EXPECT_NE(said_of(launches), "") << kernel << " does not need its barrier " << index;
        settings().taken_out.reset();
        tried.emplace(kernel, index);
      }
      EXPECT_EQ(said_of(launches), "") << kernel;
    }
  size_t barriers = 0;
  for (const std::string& kernel : kernels)
    barriers += static_cast<size_t>(records().at(kernel).barriers);
  EXPECT_EQ(tried.size(), barriers);
  for (const auto& [kernel, threads] : bounds_of_kernels())
    EXPECT_TRUE(kernels.contains(kernel)) << kernel << " is launched by no line of this test";
  std::printf("%zu barriers of %zu kernels, each taken out\n", tried.size(), kernels.size());
}

}  // namespace
}  // namespace lockstep::cuda_host
