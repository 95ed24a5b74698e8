// Finding numbers that are no numbers in checkpoint bytes, before they are packed. Bits only, so
// every instruction set gives the same answer; the compiler vectorizes the runs.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/linear/layout.h"
#include "kernels/linear/linear.h"

namespace farthing {
namespace {

template <class T>
T load(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof(T));
  return v;
}

constexpr uint16_t kHalfExponent = 0x7c00;

// A float of type T is a NaN or an infinity if all bits of kExponent are set.
template <class T, T kExponent>
size_t first_element(const uint8_t* source, size_t bytes) {
  constexpr size_t kRun = 1024;
  const size_t count = bytes / sizeof(T);
  for (size_t run = 0; run < count; run += kRun) {
    const size_t end = std::min(run + kRun, count);
    T found = 0;
    for (size_t i = run; i < end; ++i) {
      const T exponent = static_cast<T>(load<T>(source + sizeof(T) * i) & kExponent);
      found = static_cast<T>(found | static_cast<T>(exponent == kExponent));
    }
    if (found == 0) continue;
    for (size_t i = run; i < end; ++i)
      if ((load<T>(source + sizeof(T) * i) & kExponent) == kExponent) return sizeof(T) * i;
  }
  return bytes;
}

// The first row, below `rows`, of 16 halves at `line` that is a NaN or an infinity; -1 if none is.
int first_half(const uint8_t* line, int rows) {
  uint16_t found = 0;
  for (int i = 0; i < kLanes; ++i)
    found = static_cast<uint16_t>(found | ((load<uint16_t>(line + 2 * i) & kHalfExponent) == kHalfExponent));
  if (found == 0) return -1;
  for (int i = 0; i < rows; ++i)
    if ((load<uint16_t>(line + 2 * i) & kHalfExponent) == kHalfExponent) return i;
  return -1;
}

// Column and row of a row block of which the first `rows` rows are the matrix's.
using Place = std::optional<std::pair<int32_t, int32_t>>;

Place first_scale_of_block(const SchemeTraits& t, const uint8_t* block, int32_t cols, int rows) {
  const int32_t padded = padded_cols(cols, t.activation_group);
  const int32_t groups = (padded - 1) / t.group + 1;  // of group 16, also one that is all padding
  for (int32_t g = 0; g < groups; ++g) {
    const uint8_t* line = block + scale_line_offset(t, g);
    const int slot = g % t.chunk_groups;
    int row = first_half(line + 2 * kLanes * slot, rows);
    if (row < 0 && t.minimum) row = first_half(line + 2 * kLanes, rows);
    if (row >= 0) return {{g * t.group < cols ? g * t.group : cols - 1, row}};
  }
  return std::nullopt;
}

template <class T, T kExponent>
Place first_element_of_block(const uint8_t* block, int32_t cols, int rows) {
  const size_t bytes = sizeof(T) * kLanes * static_cast<size_t>(cols);
  for (size_t at = 0; at < bytes; at += sizeof(T)) {
    at += first_element<T, kExponent>(block + at, bytes - at);
    const int row = static_cast<int>(at / sizeof(T) % kLanes);
    if (at < bytes && row < rows)
      return {{static_cast<int32_t>(at / sizeof(T) / kLanes), row}};
  }
  return std::nullopt;
}

// The `halves` fp16 numbers `offset` bytes into every block.
size_t first_scale(const uint8_t* source, size_t bytes, size_t block, size_t offset,
                   size_t halves) {
  for (size_t at = offset; at + 2 * halves <= bytes; at += block)
    for (size_t i = 0; i < halves; ++i)
      if ((load<uint16_t>(source + at + 2 * i) & kHalfExponent) == kHalfExponent)
        return at + 2 * i;
  return bytes;
}

}  // namespace

size_t first_nonfinite(Scheme scheme, const uint8_t* source, size_t bytes) {
  if (scheme == Scheme::f32) return first_element<uint32_t, 0x7f800000>(source, bytes);
  if (scheme == Scheme::f16) return first_element<uint16_t, kHalfExponent>(source, bytes);
  if (scheme == Scheme::bf16) return first_element<uint16_t, 0x7f80>(source, bytes);
  const size_t block = static_cast<size_t>(scheme_info(scheme).block_bytes);
  const bool minimum = scheme_traits(scheme).minimum;
  const size_t offset = scheme == Scheme::q6_k ? block - 2 : 0;  // q6_k has its scale last
  return first_scale(source, bytes, block, offset, minimum ? 2 : 1);
}

std::optional<std::pair<int32_t, int32_t>> first_nonfinite(const MatrixView& w) {
  const SchemeTraits& traits = scheme_traits(w.scheme);
  for (int32_t first = 0; first < w.rows; first += kLanes) {
    const uint8_t* block = w.data + static_cast<size_t>(first / kLanes) * w.row_block_bytes;
    const int rows = std::min(w.rows - first, kLanes);
    Place place;
    if (w.scheme == Scheme::f32)
      place = first_element_of_block<uint32_t, 0x7f800000>(block, w.cols, rows);
    else if (w.scheme == Scheme::f16)
      place = first_element_of_block<uint16_t, kHalfExponent>(block, w.cols, rows);
    else if (w.scheme == Scheme::bf16)
      place = first_element_of_block<uint16_t, 0x7f80>(block, w.cols, rows);
    else
      place = first_scale_of_block(traits, block, w.cols, rows);
    if (place) return {{first + place->second, place->first}};
  }
  return std::nullopt;
}

}  // namespace farthing
