// write_tensorboard_events FOLDER: the event files of two processes, for tensorboard_test.py.
#include <cstdio>

#include "base/clock.h"
#include "base/file_system.h"
#include "core/train/tensorboard_writer.h"

namespace {

using lockstep::core::TensorboardWriter;

int write_run(const char* folder, int64_t pid, int64_t first, int64_t last) {
  auto writer = TensorboardWriter::create(lockstep::posix_file_system(), lockstep::system_clock(),
                                          {folder, "localhost", pid});
  if (!writer.ok()) return 1;
  for (int64_t step = first; step <= last; ++step) {
    const double x = static_cast<double>(step);
    if (!(*writer)
             ->add_scalars(step, {{"loss_metrics/global_avg_loss", 4.0 / x}, {"lr", x * 1e-4}})
             .ok()) {
      return 1;
    }
  }
  std::printf("%s\n", (*writer)->path().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  return write_run(argv[1], 1, 1, 100) + write_run(argv[1], 2, 91, 120);
}
