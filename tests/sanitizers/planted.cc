// Faults that the sanitizers must find, or their silence about ours means nothing.
#include <cstdint>
#include <limits>
#include <thread>

extern "C" {

int32_t beyond_the_end(int32_t index) {
  int32_t* values = new int32_t[4]();
  __asm__("" : "+r"(values));  // else the other sanitizer knows the size and speaks first
  const int32_t value = values[index];
  delete[] values;
  return value;
}

int32_t overflow(int32_t by) { return std::numeric_limits<int32_t>::max() + by; }

int32_t race(int32_t rounds) {
  int32_t shared = 0;
  const auto count = [&] {
    for (int32_t i = 0; i < rounds; ++i) ++shared;
  };
  std::thread other(count);
  count();
  other.join();
  return shared;
}
}
