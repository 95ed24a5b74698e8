// The memory that sampling one row needs.
#pragma once

#include "core/aligned_buffer.h"
#include "kernels/sampling/selection.h"

namespace farthing {

// For rows of at most `width` logits. Pages are touched only where candidates are many.
class OwnedScratch {
 public:
  explicit OwnedScratch(int32_t width)  // throws std::bad_alloc
      : memory_(blocks(width) * (2 * sizeof(float) + sizeof(int32_t)) +
                static_cast<size_t>(width) * sizeof(Candidate)),
        width_(width) {
    view_.maxima = memory_.as<float>();
    view_.ranked = view_.maxima + blocks(width);
    view_.first_edit = reinterpret_cast<int32_t*>(view_.ranked + blocks(width));
    view_.candidates = reinterpret_cast<Candidate*>(view_.first_edit + blocks(width));
  }

  const SamplingScratch& view() const { return view_; }
  int32_t width() const { return width_; }

 private:
  static size_t blocks(int32_t width) {  // one more than there are, and room for whole sixteens
    return (static_cast<size_t>(num_blocks(width)) + 16) / 16 * 16;
  }

  AlignedBuffer memory_;
  int32_t width_;
  SamplingScratch view_;
};

}  // namespace farthing
