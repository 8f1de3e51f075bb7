// Streams in memory: each has a queue of work, done in order when somebody looks (an event, or a
// library that is asked for its state). Work says whether it is done; until then the stream stands.
// So a test decides when something happens, and no time passes by itself. Thread-safe.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "core/device/devices.h"

namespace lockstep::core {

class FakeStreams {
 public:
  using Work = std::function<bool()>;  // tries once; whether it is done
  struct Queue {
    std::deque<Work> left;
    int64_t given = 0;
    int64_t done() const { return given - static_cast<int64_t>(left.size()); }
  };
  using QueuePtr = std::shared_ptr<Queue>;

  std::recursive_mutex& mutex() { return mutex_; }
  QueuePtr new_queue() {
    const std::lock_guard lock(mutex_);
    return queues_.emplace_back(std::make_shared<Queue>());
  }
  void give(Queue& queue, Work work) {
    const std::lock_guard lock(mutex_);
    queue.left.push_back(std::move(work));
    ++queue.given;
  }
  // Does all that can be done now.
  void look() {
    const std::lock_guard lock(mutex_);
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t q = 0; q < queues_.size(); ++q)
        while (!queues_[q]->left.empty() && queues_[q]->left.front()()) {
          queues_[q]->left.pop_front();
          moved = true;
        }
    }
  }

 private:
  std::recursive_mutex mutex_;
  std::vector<QueuePtr> queues_;
};

class FakeEvent : public Event {
 public:
  FakeEvent(FakeStreams& all, FakeStreams::QueuePtr queue)
      : all_(all), queue_(std::move(queue)), place_(queue_->given) {}
  bool reached() const override {
    const std::lock_guard lock(all_.mutex());
    all_.look();
    return passed();
  }
  void wait() const override {
    while (!reached()) {
    }
  }
  bool passed() const { return queue_->done() >= place_; }

 private:
  FakeStreams& all_;
  FakeStreams::QueuePtr queue_;
  int64_t place_;
};

class FakeStream : public Stream {
 public:
  FakeStream(FakeStreams& all, FakeStreams::QueuePtr queue) : all_(all), queue_(std::move(queue)) {}
  std::unique_ptr<Event> record() override {
    const std::lock_guard lock(all_.mutex());
    return std::make_unique<FakeEvent>(all_, queue_);
  }
  void wait_for(const Event& event) override {
    all_.give(*queue_, [fake = static_cast<const FakeEvent&>(event)] { return fake.passed(); });
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    give([=] {
      std::memcpy(to, from, bytes);
      return true;
    });
  }
  void synchronize() override { record()->wait(); }
  void* handle() const override { return queue_.get(); }
  void give(FakeStreams::Work work) { all_.give(*queue_, std::move(work)); }

 private:
  FakeStreams& all_;
  FakeStreams::QueuePtr queue_;
};

// The CPU's memory with such streams; one for each rank, which is a thread.
class FakeStreamDevice : public Device {
 public:
  explicit FakeStreamDevice(FakeStreams& all) : all_(all), current_(all.new_queue()) {}
  at::DeviceType type() const override { return at::kCPU; }
  int count() const override { return 1; }
  at::Device of_rank(int) const override { return at::kCPU; }
  void set_up(at::Device) const override {}
  std::string name() const override { return "fake"; }
  std::string uuid() const override { return "FAKE"; }
  std::string capability() const override { return ""; }
  std::optional<DeviceMemory> memory() const override { return std::nullopt; }
  std::string libraries() const override { return ""; }
  std::string collectives() const override { return ""; }
  c10::DataPtr allocate(size_t bytes) const override { return cpu().allocate(bytes); }
  at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType dtype) const override {
    return cpu().host_tensor(shape, dtype);
  }
  at::Tensor copy_of(const at::Tensor& host, at::Device) const override { return host; }
  std::unique_ptr<Stream> current_stream() const override {
    return std::make_unique<FakeStream>(all_, current_);
  }
  std::unique_ptr<Stream> new_stream() const override {
    return std::make_unique<FakeStream>(all_, all_.new_queue());
  }

 private:
  static const Device& cpu() { return device_of(at::kCPU); }
  FakeStreams& all_;
  FakeStreams::QueuePtr current_;
};

}  // namespace lockstep::core
