// How long a repetition each token would continue: the measure of the DRY penalty.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace farthing {

// Token sequences that end a repetition: what stands before one is not counted as repeated.
class SequenceBreakers {
 public:
  // Sequences of one token or more, every token below vocab_size.
  SequenceBreakers(int32_t vocab_size, std::vector<std::vector<int32_t>> sequences);

  bool is_single(int32_t token) const { return (kinds_[static_cast<size_t>(token)] & 1) != 0; }
  int32_t vocab_size() const { return static_cast<int32_t>(kinds_.size()); }
  // Tokens after the last breaker in tokens[0..count), count if there is none. Of breakers that
  // begin together the longest counts.
  int32_t tokens_since(const int32_t* tokens, int32_t count) const;

 private:
  std::vector<uint8_t> kinds_;  // 1: a breaker by itself, 2: begins a longer one
  std::vector<std::vector<int32_t>> longer_;  // sorted
};

// (token, length), tokens ascending: for each token that somewhere in tokens[0..count) follows a
// copy of the last `length` tokens, the greatest such length, not counted beyond `limit`, if it is
// at least `least` >= 1.
std::vector<std::pair<int32_t, int32_t>> continued_repetitions(const int32_t* tokens, int32_t count,
                                                               int32_t limit, int32_t least);

}  // namespace farthing
