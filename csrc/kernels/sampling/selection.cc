#include "kernels/sampling/selection.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/sampling/row_best.h"

namespace farthing {
namespace {

bool before_by_value(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

bool before_by_deviation(const Candidate& a, const Candidate& b) {
  return a.deviation < b.deviation || (a.deviation == b.deviation && before_by_value(a, b));
}

// Quickselect by weight: halves the part that holds the boundary until it is one candidate.
template <class Before>
int32_t shortest_beginning(Candidate* candidates, int32_t n, uint64_t needed, Before before) {
  int32_t low = 0, high = n;  // the boundary's candidate is in [low, high), if any
  if (total_weight(candidates, n) < needed) return n;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    std::nth_element(candidates + low, candidates + middle, candidates + high, before);
    const uint64_t front = total_weight(candidates + low, middle - low);
    if (front >= needed) {
      high = middle;
    } else {
      needed -= front;
      low = middle;
    }
  }
  return high;
}

}  // namespace

float kth_largest(float* values, int32_t n, int32_t k) {
  std::nth_element(values, values + (k - 1), values + n, std::greater<float>());
  return values[k - 1];
}

void first_to_front(Candidate* candidates, int32_t n, int32_t k) {
  if (k < n) std::nth_element(candidates, candidates + k, candidates + n, before_by_value);
}

void sort_by_value(Candidate* candidates, int32_t n) {
  std::sort(candidates, candidates + n, before_by_value);
}

uint64_t total_weight(const Candidate* candidates, int32_t n) {
  uint64_t total = 0;
  for (int32_t i = 0; i < n; ++i) total += candidates[i].weight;
  return total;
}

uint64_t weight_needed(double share, uint64_t total) {
  const double needed = std::ceil(share * static_cast<double>(total));
  if (!(needed > 1.0)) return 1;
  // The double may have been rounded above the total.
  return std::min(static_cast<uint64_t>(needed), total);
}

int32_t lightest_by_value(Candidate* candidates, int32_t n, uint64_t needed) {
  return shortest_beginning(candidates, n, needed, before_by_value);
}

int32_t lightest_by_deviation(Candidate* candidates, int32_t n, uint64_t needed) {
  return shortest_beginning(candidates, n, needed, before_by_deviation);
}

void join(RowBest& best, const RowBest& next) {
  if (next.value > best.value) {
    best.value = next.value;
    best.token = next.token;
  }
  best.has_nan |= next.has_nan;
  best.has_finite |= next.has_finite;
}

int32_t greedy_token(const RowBest& best) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (best.has_nan || best.value == -kInfinity) return kNotFinite;
  return best.value == kInfinity && !best.has_finite ? kNotFinite : best.token;
}

}  // namespace farthing
