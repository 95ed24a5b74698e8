// What a program's instructions must be given. Kernels trust their operands, so a program that does
// not fit together is refused while it is built, by name and numbers.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace farthing {

inline void expect(bool good, const std::string& what, int64_t value, const std::string& right) {
  if (!good)
    throw std::invalid_argument(what + " is " + std::to_string(value) + ", must be " + right);
}

inline void expect_equal(const std::string& what, int64_t value, int64_t right) {
  expect(value == right, what, value, std::to_string(right));
}

inline void expect_positive(const std::string& what, int64_t value) {
  expect(value > 0, what, value, "positive");
}

}  // namespace farthing
