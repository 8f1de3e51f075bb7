#include "core/train/turns.h"

#include <utility>

#include "core/comm/interruption.h"

namespace lockstep::core {
namespace {

constexpr int64_t kLookNs = 50'000'000;  // a halt wakes the watch; this is for the others

}  // namespace

Result<std::unique_ptr<Turns>> Turns::open(FileSystem& file_system,
                                           const std::filesystem::path& page) {
  LOCKSTEP_TRY(auto opened, ProgressPage::open(page));
  return std::unique_ptr<Turns>(new Turns(file_system, page, std::move(opened)));
}

Turns::Turns(FileSystem& file_system, std::filesystem::path path,
             std::unique_ptr<ProgressPage> page)
    : file_system_(file_system),
      path_(std::move(path)),
      page_(std::move(page)),
      watch_([this](const std::stop_token& stop) { watch(stop); }) {}

void Turns::watch(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    const Turn seen = page_->turn();
    if (seen == Turn::kHalt) {
      const std::lock_guard lock(mutex_);
      if (page_->turn() == Turn::kHalt) interrupt();
    }
    page_->wait_while(seen, kLookNs);
  }
}

Result<WorkerOrders> Turns::next() {
  page_->park();
  {
    const std::lock_guard lock(mutex_);
    clear_interruption();
  }
  LOCKSTEP_TRY(WorkerOrders orders, read_orders(file_system_, path_));
  LOCKSTEP_RETURN_IF_ERROR(redirect_output(orders));
  return orders;
}

void destroy_in_background(Membership membership) {
  std::thread([m = std::move(membership)] {}).detach();
}

}  // namespace lockstep::core
