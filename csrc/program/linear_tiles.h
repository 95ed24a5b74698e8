// Parts of a linear op: which tiles it is cut into, and a tile's product in memory of its own.
#pragma once

#include <memory>
#include <vector>

#include "core/matrix.h"
#include "kernels/linear/linear.h"
#include "program/instruction.h"

namespace farthing {

// One matrix of a linear op. `rounded` is the input in the form its scheme needs, or null for the
// float schemes.
struct LinearSegment {
  std::shared_ptr<const Matrix> matrix;
  std::vector<float> bias;  // (rows) or empty
  Int8Buffer* rounded;
};

struct LinearTile {
  Range blocks;  // row blocks of the matrix
  Range rows;    // of the activations
};

// How many rows of activations a tile takes, whole kernel tiles of 8: their codes should stay in a
// core's second-level cache while the row blocks pass by. At most `most`, a multiple of 8.
int32_t rows_per_tile(int32_t rows, int32_t cols, int32_t most);

// Cuts (blocks, rows) into tiles, those of the same rows together, their blocks ascending. Every
// tile but the last of its rows has a multiple of `unit` blocks.
std::vector<LinearTile> cut_linear(int32_t blocks, int32_t rows, int32_t rows_per_tile, int threads,
                                   int32_t unit);

// Blocks of a tile that are multiplied together when their product of `rows` rows, `width` columns
// a block, waits in `bytes` of memory: a multiple of `unit`, at least one.
int32_t blocks_together(size_t bytes, int32_t rows, int32_t width, int32_t unit);

// Where the packed weights of `tile` begin.
const uint8_t* tile_weights(const LinearSegment& segment, const LinearTile& tile);

// What `segment` reads of rows `first_row` and on.
Activations activations(const LinearSegment& segment, const FloatBuffer* x, int32_t first_row);

// The product of `tile` and its bias, then `+ add` if not null, into out: row i of the tile and
// column c of its blocks at out[i * stride + c]. `add` has out's shape and may be out.
void multiply(const LinearKernels& kernels, const LinearSegment& segment, const FloatBuffer* x,
              const LinearTile& tile, const float* add, float* out, size_t stride);

}  // namespace farthing
