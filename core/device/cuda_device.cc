#include "core/device/cuda_device.h"

#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cudnn.h>
#include <nccl.h>
#include <nvtx3/nvToolsExt.h>

#include "base/text.h"

namespace lockstep::core {
namespace {

class CudaEvent : public Event {
 public:
  explicit CudaEvent(const c10::cuda::CUDAStream& stream) { event_.record(stream); }
  bool reached() const override { return event_.query(); }
  void wait() const override { event_.synchronize(); }
  void block(const c10::cuda::CUDAStream& stream) const { event_.block(stream); }

 private:
  mutable at::cuda::CUDAEvent event_{cudaEventDisableTiming | cudaEventBlockingSync};
};

class CudaTimeMark : public TimeMark {
 public:
  explicit CudaTimeMark(const c10::cuda::CUDAStream& stream) { event_.record(stream); }
  bool reached() const override { return event_.query(); }
  double seconds_since(const TimeMark& earlier) const override {
    return 1e-3 * static_cast<const CudaTimeMark&>(earlier).event_.elapsed_time(event_);
  }

 private:
  at::cuda::CUDAEvent event_{cudaEventDefault};
};

class CudaStream : public Stream {
 public:
  explicit CudaStream(c10::cuda::CUDAStream stream) : stream_(stream) {}
  std::unique_ptr<Event> record() override { return std::make_unique<CudaEvent>(stream_); }
  std::unique_ptr<TimeMark> mark_time() override { return std::make_unique<CudaTimeMark>(stream_); }
  void wait_for(const Event& event) override {
    static_cast<const CudaEvent&>(event).block(stream_);
  }
  void copy_to_host(void* to, const void* from, size_t bytes) override {
    const c10::cuda::CUDAGuard guard(stream_.device_index());  // of this thread, too
    C10_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.stream()));
  }
  void synchronize() override { stream_.synchronize(); }
  void* handle() const override { return stream_.stream(); }

 private:
  c10::cuda::CUDAStream stream_;
};

class CudaDevice : public Device {
 public:
  at::DeviceType type() const override { return at::kCUDA; }
  int count() const override { return c10::cuda::device_count(); }
  at::Device of_rank(int local_rank) const override {
    return {at::kCUDA, static_cast<c10::DeviceIndex>(local_rank % count())};
  }

  void set_up(at::Device device) const override {
    c10::cuda::set_device(device.index());
    at::Context& context = at::globalContext();
    context.lazyInitDevice(at::kCUDA);
    context.setDeterministicAlgorithms(true, /*warn_only=*/false);
    context.setDeterministicFillUninitializedMemory(false);
    context.setDeterministicCuDNN(true);
    context.setBenchmarkCuDNN(false);
    context.setAllowTF32CuBLAS(false);
    context.setAllowTF32CuDNN(false);
    context.setAllowBF16ReductionCuBLAS(false);
  }

  std::string name() const override { return at::cuda::getCurrentDeviceProperties()->name; }

  std::string uuid() const override {
    const char* const digits = "0123456789abcdef";
    std::string words = "GPU";
    const auto& bytes = at::cuda::getCurrentDeviceProperties()->uuid.bytes;
    for (size_t i = 0; i < sizeof bytes; ++i) {
      if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) words += '-';
      const auto byte = static_cast<unsigned char>(bytes[i]);
      words += {digits[byte >> 4], digits[byte & 15]};
    }
    return words;
  }

  std::string capability() const override {
    const cudaDeviceProp& about = *at::cuda::getCurrentDeviceProperties();
    return text(about.major, ".", about.minor);
  }

  std::optional<DeviceMemory> memory() const override {
    using c10::CachingAllocator::StatType;
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
    const auto& allocated = stats.allocated_bytes[static_cast<size_t>(StatType::AGGREGATE)];
    const auto& reserved = stats.reserved_bytes[static_cast<size_t>(StatType::AGGREGATE)];
    const auto total = at::cuda::getCurrentDeviceProperties()->totalGlobalMem;
    return DeviceMemory{allocated.current, allocated.peak, reserved.current, reserved.peak,
                        static_cast<int64_t>(total)};
  }

  std::string libraries() const override {
    constexpr size_t kMajor = 10000, kMinor = 100;  // 9.19.0 is 91900
    const size_t version = cudnnGetVersion();
    return text("cuDNN ", version / kMajor, ".", version % kMajor / kMinor, ".", version % kMinor);
  }
  std::string collectives() const override {
    constexpr int kMajor = 10000, kMinor = 100;  // 2.27.5 is 22705
    int version = 0;
    if (ncclGetVersion(&version) != ncclSuccess) return "unknown";
    return text(version / kMajor, ".", version % kMajor / kMinor, ".", version % kMinor);
  }

  c10::DataPtr allocate(size_t bytes) const override {
    return c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
  }
  at::Tensor host_tensor(at::IntArrayRef shape, at::ScalarType dtype) const override {
    return at::empty(shape, at::TensorOptions(dtype).pinned_memory(true));
  }
  at::Tensor copy_of(const at::Tensor& host, at::Device device) const override {
    return host.to(device, /*non_blocking=*/true);
  }

  std::unique_ptr<Stream> current_stream() const override {
    return std::make_unique<CudaStream>(c10::cuda::getCurrentCUDAStream());
  }
  std::unique_ptr<Stream> new_stream() const override {
    return std::make_unique<CudaStream>(c10::cuda::getStreamFromPool(/*isHighPriority=*/true));
  }

  void enter_range(std::string_view name, std::string_view part) const override {
    nvtxRangePushA(part.empty() ? std::string(name).c_str() : text(name, " ", part).c_str());
  }
  void leave_range() const override { nvtxRangePop(); }
};

}  // namespace

const Device& cuda_device() {
  static const CudaDevice device;
  return device;
}

}  // namespace lockstep::core
