#include "data/loader/slot_loader.h"

#include <atomic>
#include <thread>

#include "base/check.h"
#include "base/queue.h"

namespace lockstep::data {

namespace {

class PrefetchingLoader final : public SlotLoader {
 public:
  PrefetchingLoader(const TokenDataset& dataset, std::vector<int64_t> slots_of_rank,
                    int64_t first_step, size_t prefetch, Clock& clock)
      : dataset_(dataset),
        slots_(std::move(slots_of_rank)),
        clock_(clock),
        step_(first_step),
        ready_(prefetch) {
    if (!slots_.empty()) thread_ = std::thread([this, first_step] { prefetch_from(first_step); });
  }
  ~PrefetchingLoader() override {
    ready_.close();
    if (thread_.joinable()) thread_.join();
  }

  Result<SlotBatch> next() override {
    if (slots_.empty()) return Error{Code::kBug, "SlotLoader::next on a rank that has no slot"};
    if (failure_) return *failure_;
    const int64_t start_ns = clock_.monotonic_ns();
    auto item = ready_.pop();
    wait_ns_ += clock_.monotonic_ns() - start_ns;
    LOCKSTEP_CHECK(item.has_value(), "the queue is closed by the destructor alone");
    if (!item->ok()) {
      failure_ = item->error();
      return *std::move(item);
    }
    const SlotBatch& batch = item->value();
    LOCKSTEP_CHECK(batch.step == step_ && batch.slot == slots_[next_slot_], "slot ", batch.slot,
                   " of step ", batch.step, " comes for slot ", slots_[next_slot_], " of step ",
                   step_);
    if (++next_slot_ == slots_.size()) {
      next_slot_ = 0;
      ++step_;
    }
    return *std::move(item);
  }
  double wait_s() const override { return static_cast<double>(wait_ns_.load()) * 1e-9; }

 private:
  // Ends when the queue is closed, or after the first error: later slots would be read past it.
  void prefetch_from(int64_t first_step) {
    for (int64_t step = first_step;; ++step) {
      for (int64_t slot : slots_) {
        auto batch = dataset_.batch(step, slot);
        const bool failed = !batch.ok();
        if (!ready_.push(std::move(batch)) || failed) return;
      }
    }
  }

  const TokenDataset& dataset_;
  const std::vector<int64_t> slots_;
  Clock& clock_;
  int64_t step_;          // of what next() gives next
  size_t next_slot_ = 0;  // its place in slots_
  BoundedQueue<Result<SlotBatch>> ready_;
  std::optional<Error> failure_;  // of an earlier next(); sticky
  std::atomic<int64_t> wait_ns_ = 0;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<SlotLoader> SlotLoader::create(const TokenDataset& dataset,
                                               std::vector<int64_t> slots_of_rank,
                                               int64_t first_step, int64_t prefetch, Clock& clock) {
  LOCKSTEP_CHECK(first_step >= 0, "first_step ", first_step);
  LOCKSTEP_CHECK(prefetch >= 1 && prefetch <= kMaxPrefetch, "prefetch ", prefetch);
  return std::make_unique<PrefetchingLoader>(dataset, std::move(slots_of_rank), first_step,
                                             static_cast<size_t>(prefetch), clock);
}

}  // namespace lockstep::data
