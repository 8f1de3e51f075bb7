#include "base/abandonable_calls.h"

#include <utility>

namespace lockstep {
inline namespace base {

AbandonableCalls::~AbandonableCalls() {
  for (Server& server : idle_) {
    {
      const std::lock_guard lock(server.desk->mutex);
      server.desk->closed = true;
      server.desk->changed.notify_all();
    }
    server.thread.join();
  }
}

void AbandonableCalls::serve(Desk& desk) {
  std::unique_lock lock(desk.mutex);
  for (;;) {
    desk.changed.wait(lock, [&] { return desk.call || desk.closed; });
    if (!desk.call) return;
    Call call = std::exchange(desk.call, nullptr);
    lock.unlock();
    auto outcome = call();
    call = nullptr;  // what it holds goes before anybody hears of it
    lock.lock();
    desk.outcome.emplace(std::move(outcome));
    desk.changed.notify_all();
  }
}

AbandonableCalls::Server AbandonableCalls::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      Server server = std::move(idle_.back());
      idle_.pop_back();
      return server;
    }
  }
  Server server{std::make_shared<Desk>(), {}};
  server.thread = std::thread([desk = server.desk] { serve(*desk); });
  return server;
}

std::optional<Result<void>> AbandonableCalls::run(Call call, std::chrono::nanoseconds patience,
                                                  const std::function<bool()>& give_up) {
  Server server = take();
  std::optional<Result<void>> outcome;
  {
    std::unique_lock lock(server.desk->mutex);
    server.desk->call = std::move(call);
    server.desk->changed.notify_all();
    const auto ended = [&] { return server.desk->outcome.has_value(); };
    while (!server.desk->changed.wait_for(lock, patience, ended)) {
      lock.unlock();  // the call may begin and end while its caller makes up its mind
      const bool leave = give_up();
      lock.lock();
      if (!leave || ended()) continue;
      server.desk->closed = true;
      server.thread.detach();
      return std::nullopt;
    }
    outcome = std::exchange(server.desk->outcome, std::nullopt);
  }
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(server));
  return outcome;
}

}  // namespace base
}  // namespace lockstep
