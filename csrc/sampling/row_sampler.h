// Draws the tokens of a batch of rows, and reports their log probabilities, each row by one thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/threads.h"
#include "kernels/sampling/sampling.h"
#include "sampling/controls.h"
#include "sampling/scratch.h"

namespace farthing {

struct RowToDraw {
  int32_t row;
  float temperature;
  NoiseKey key;
  const uint32_t* allowed;   // or null
  const Controls* controls;  // or null: no filter and no edit
};

struct RowToReport {
  int32_t row;
  int32_t chosen;
  int32_t n;  // likeliest tokens wanted
};

class RowSampler {
 public:
  // Without a pool the caller computes alone.
  RowSampler(std::shared_ptr<ThreadPool> pool, Isa isa);
  RowSampler(const RowSampler&) = delete;
  RowSampler& operator=(const RowSampler&) = delete;

  // logits (any, width); tokens[i] belongs to rows[i]. One caller at a time.
  void draw(const float* logits, int32_t width, const std::vector<RowToDraw>& rows,
            int32_t* tokens);

  // Of rows[i] the n likeliest tokens into best + i * stride and the chosen one's place; rank 0, and
  // nothing else, for a row with a NaN or without a finite maximum.
  void logprobs(const float* logits, int32_t width, const std::vector<RowToReport>& rows,
                TokenValue* best, size_t stride, ChosenLogprob* of_chosen);

 private:
  using Task = std::function<void(int32_t, const SamplingScratch&)>;
  class Rows;
  // Calls task(i, scratch) for i < count, on all threads; rethrows what a task throws.
  void each(int32_t count, int32_t width, const Task& task);

  std::shared_ptr<ThreadPool> pool_;
  const SamplingKernels& kernels_;
  std::vector<OwnedScratch> scratch_;  // one for each thread
};

}  // namespace farthing
