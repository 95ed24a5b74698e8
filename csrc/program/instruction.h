// One op of a native program: splits itself into tiles that any thread may run in any order.
#pragma once

#include <cstdint>

#include "core/aligned_buffer.h"
#include "program/step.h"

namespace farthing {

// A value's memory: rows are contiguous. `data` of an output buffer is set before each run.
struct FloatBuffer {
  RowKind rows;
  int32_t width;
  float* data = nullptr;
  AlignedBuffer memory;

  float* row(int32_t i) const { return data + static_cast<size_t>(i) * width; }
};

// Activations rounded to int8 for integer linear ops (linear.h, quantize_row).
struct Int8Buffer {
  RowKind rows;
  int32_t cols;
  int32_t group;
  AlignedBuffer codes_memory, scales_memory, sums_memory;

  size_t code_stride() const { return (static_cast<size_t>(padded_cols(cols, group)) + 63) / 64 * 64; }
  int32_t groups() const { return padded_cols(cols, group) / group; }
  int32_t sums_per_row() const { return padded_cols(cols, group) / kSumRun; }
  int8_t* codes(int32_t row) { return codes_memory.as<int8_t>() + row * code_stride(); }
  float* scales(int32_t row) { return scales_memory.as<float>() + static_cast<size_t>(row) * groups(); }
  int32_t* sums(int32_t row) {
    return sums_memory.as<int32_t>() + static_cast<size_t>(row) * sums_per_row();
  }
};

// A slice of rows or blocks, the ordinary shape of a tile.
struct Range {
  int32_t begin, end;
};

// Cuts 0..count into equal tiles of `size`.
struct Tiling {
  int32_t count = 0, size = 1;
  int32_t tiles() const { return (count + size - 1) / size; }
  Range at(int32_t tile) const {
    const int32_t begin = tile * size;
    return {begin, begin + size < count ? begin + size : count};
  }
  // About four tiles a thread, so that a slow core does not hold the others up.
  static Tiling balanced(int32_t count, int threads) {
    const int32_t wanted = 4 * threads;
    return {count, count > wanted ? (count + wanted - 1) / wanted : 1};
  }
};

class Instruction {
 public:
  virtual ~Instruction() = default;
  virtual const char* name() const = 0;  // its kind, for those who measure
  virtual size_t weight_bytes() const { return 0; }  // packed weights that a pass reads
  // Where a planned tile begins to read them; null if that is not known beforehand.
  virtual const uint8_t* tile_weights(int32_t) const { return nullptr; }
  // Called once before each pass by one thread; returns the number of tiles.
  virtual int32_t plan(const Step& step, int threads) = 0;
  // Asked once when the instruction begins: the planned number, unless earlier instructions of the
  // pass decide it.
  virtual int32_t tiles(int32_t planned) const { return planned; }
  // Called for each tile once. scratch: scratch_bytes() bytes of the calling thread's own.
  virtual void run(int32_t tile, const Step& step, uint8_t* scratch) const = 0;
  virtual size_t scratch_bytes() const { return 0; }
};

}  // namespace farthing
