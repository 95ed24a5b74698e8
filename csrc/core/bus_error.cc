#include "core/bus_error.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace farthing {
namespace {

char g_message[1024];
std::atomic<size_t> g_length{0};

// The signal's own action is back by now: returning ends the process at the same instruction.
void explain(int) {
  const size_t length = g_length.load();
  if (write(STDERR_FILENO, g_message, length) < 0) return;
}

}  // namespace

void explain_bus_errors(std::string_view message) {
  const size_t length = std::min(message.size(), sizeof(g_message));
  g_length = 0;
  std::memcpy(g_message, message.data(), length);
  g_length = length;
  struct sigaction now {};
  if (sigaction(SIGBUS, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  struct sigaction action {};
  action.sa_handler = explain;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace farthing
