#include "sampling/repetition.h"

#include <algorithm>

namespace farthing {

SequenceBreakers::SequenceBreakers(int32_t vocab_size, std::vector<std::vector<int32_t>> sequences)
    : kinds_(static_cast<size_t>(vocab_size)) {
  for (std::vector<int32_t>& sequence : sequences) {
    uint8_t& kind = kinds_[static_cast<size_t>(sequence.front())];
    kind = static_cast<uint8_t>(kind | (sequence.size() == 1 ? 1 : 2));
    if (sequence.size() > 1) longer_.push_back(std::move(sequence));
  }
  std::sort(longer_.begin(), longer_.end());
}

int32_t SequenceBreakers::tokens_since(const int32_t* tokens, int32_t count) const {
  for (int32_t begin = count - 1; begin >= 0; --begin) {
    const uint8_t kind = kinds_[static_cast<size_t>(tokens[begin])];
    if (kind == 0) continue;
    int32_t length = kind & 1;
    if ((kind & 2) != 0) {
      auto it = std::lower_bound(longer_.begin(), longer_.end(),
                                 std::vector<int32_t>{tokens[begin]});
      for (; it != longer_.end() && it->front() == tokens[begin]; ++it) {
        const int32_t size = static_cast<int32_t>(it->size());
        if (size > length && size <= count - begin && std::equal(it->begin(), it->end(), tokens + begin))
          length = size;
      }
    }
    if (length > 0) return count - begin - length;
  }
  return count;
}

std::vector<std::pair<int32_t, int32_t>> continued_repetitions(const int32_t* tokens, int32_t count,
                                                               int32_t limit, int32_t least) {
  std::vector<std::pair<int32_t, int32_t>> found;
  if (limit < least || count <= least) return found;
  // The Z function (Gusfield, "Algorithms on strings, trees and sequences", 1.3) of the tokens read
  // backwards: z[k] tokens before position count - k equal as many at the end.
  const auto back = [&](int32_t i) { return tokens[count - 1 - i]; };
  std::vector<int32_t> z(static_cast<size_t>(count));
  int32_t begin = 0, end = 0;  // the copy that reaches furthest
  for (int32_t k = 1; k < count; ++k) {
    int32_t length = k < end ? std::min(end - k, z[static_cast<size_t>(k - begin)]) : 0;
    while (k + length < count && back(length) == back(k + length)) ++length;
    z[static_cast<size_t>(k)] = length;
    if (k + length > end) {
      begin = k;
      end = k + length;
    }
    if (std::min(length, limit) >= least) found.emplace_back(back(k - 1), std::min(length, limit));
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return a.first < b.first || (a.first == b.first && a.second > b.second);
  });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const auto& a, const auto& b) { return a.first == b.first; }),
              found.end());
  return found;
}

}  // namespace farthing
