// Levels of schemes with one number a group, and the scales that are tried for them.
#pragma once

#include "quantization/weights.h"

#include <cstddef>

namespace farthing::FARTHING_ISA {

inline constexpr size_t kLongGroup = 128;

// The stretch of scales that are tried: max|w| / scale from `first` to `last`.
struct Stretch {
  float first, last;
};

// Levels -2^(bits - 1) .. 2^(bits - 1) - 1.
class Uniform {
 public:
  explicit Uniform(int bits)
      : bits_(bits), low_(-static_cast<float>(1 << (bits - 1))), high_(-low_ - 1.0f) {}

  float range() const { return high_; }
  float reach() const { return -low_; }
  Stretch stretch(size_t n) const {
    // Measured: where the best scale lies for normal, Laplace and t-distributed weights. Long groups
    // have outliers that are better clipped.
    const bool longer = n > kLongGroup;
    const float first = bits_ <= 4 ? 0.66f : bits_ == 5 ? 0.72f : bits_ == 6 ? 0.8f : 0.88f;
    const float last = bits_ <= 3   ? (longer ? 4.0f : 2.0f)
                       : bits_ == 4 ? (longer ? 4.0f : 1.4f)
                       : bits_ == 5 ? (longer ? 3.0f : 1.2f)
                       : bits_ == 6 ? (longer ? 2.0f : 1.1f)
                                    : (longer ? 1.5f : 1.05f);
    return {first * -low_, last * -low_};
  }
  FARTHING_INLINE Lanes level(Lanes t) const { return nearest_whole(t, low_, high_); }
  FARTHING_INLINE uint8_t code(int8_t level) const {
    return static_cast<uint8_t>(level + (1 << (bits_ - 1)));
  }

 private:
  int bits_;
  float low_, high_;
};

// Levels of a table that reaches to about +-127; halfway between two is the lower one.
class Table {
 public:
  Table(const int8_t* levels, float range) : range_(range), codes_{} {
    for (int i = 0; i < 16; ++i) {
      levels_[i] = levels[i];
      codes_[levels[i] + 128] = static_cast<uint8_t>(i);
    }
    for (int depth = 0, node = 1; depth < 4; ++depth)
      for (int i = 0; i < 1 << depth; ++i, ++node) {
        const int below = ((2 * i + 1) << (3 - depth)) - 1;
        float* const tree = node < 8 ? branches_ : leaves_;
        tree[node % 8] = static_cast<float>(levels[below] + levels[below + 1]) * 0.5f;
      }
    for (int i = 0; i < 8; ++i) {
      branches_[i + 8] = branches_[i];
      leaves_[i + 8] = leaves_[i];
    }
  }

  float range() const { return range_; }
  float reach() const { return kReach; }
  Stretch stretch(size_t n) const {
    return {0.66f * kReach, (n > kLongGroup ? 4.0f : 1.4f) * kReach};
  }
  FARTHING_INLINE Lanes level(Lanes t) const {
    const Lanes branches = load(branches_);
    IntLanes node = increment(less(broadcast(branches_[1]), t), broadcast_int(2));
    for (int depth = 1; depth < 3; ++depth)
      node = increment(less(look_up_eight(branches, node), t), node + node);
    node = increment(less(look_up_eight(load(leaves_), node), t), node + node);
    return look_up(load(levels_), node);  // 16 + the middles that are less
  }
  FARTHING_INLINE uint8_t code(int8_t level) const { return codes_[level + 128]; }

 private:
  static constexpr float kReach = 127.0f;
  float range_;
  float levels_[16];
  // The middles between neighbouring levels as a search tree: below node n are 2n and 2n + 1. Nodes
  // 1 to 7 and 8 to 15, each twice.
  float branches_[16] = {}, leaves_[16] = {};
  uint8_t codes_[256];  // by level + 128
};

}  // namespace farthing::FARTHING_ISA
