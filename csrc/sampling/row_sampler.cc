#include "sampling/row_sampler.h"

#include <exception>
#include <mutex>
#include <utility>

#include "core/float_mode.h"

namespace farthing {
RowSampler::RowSampler(std::shared_ptr<ThreadPool> pool, Isa isa)
    : pool_(std::move(pool)), kernels_(sampling_kernels(isa)) {
}

// One stage, a row a tile.
class RowSampler::Rows final : public StagedWork {
 public:
  Rows(int32_t count, const Task& task, const std::vector<OwnedScratch>& scratch)
      : count_(count), task_(task), scratch_(scratch) {}

  int32_t begin(int32_t) override { return count_; }

  void run(int32_t, int32_t tile, int thread) override {
    try {
      task_(tile, scratch_[static_cast<size_t>(thread)].view());
    } catch (...) {
      const std::lock_guard<std::mutex> lock(failing_);
      failure_ = std::current_exception();
    }
  }

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  const int32_t count_;
  const Task& task_;
  const std::vector<OwnedScratch>& scratch_;
  std::mutex failing_;
  std::exception_ptr failure_;
};

void RowSampler::each(int32_t count, int32_t width, const Task& task) {
  const size_t threads = static_cast<size_t>(pool_ ? pool_->num_threads() : 1);
  if (scratch_.empty() || scratch_.front().width() < width) {
    scratch_.clear();
    while (scratch_.size() < threads) scratch_.emplace_back(width);
  }
  Rows rows(count, task, scratch_);
  if (pool_ && count > 1) {
    pool_->run(rows, 1);
  } else {
    const FloatMode mode;
    for (int32_t i = 0; i < count; ++i) rows.run(0, i, 0);
  }
  rows.rethrow();
}

void RowSampler::draw(const float* logits, int32_t width, const std::vector<RowToDraw>& rows,
                      int32_t* tokens) {
  each(static_cast<int32_t>(rows.size()), width, [&](int32_t i, const SamplingScratch& scratch) {
    const RowToDraw& r = rows[static_cast<size_t>(i)];
    LogitRow row = {logits + static_cast<size_t>(r.row) * static_cast<size_t>(width), width,
                    r.allowed};
    Filters filters;
    std::vector<TokenValue> edits;
    if (r.controls != nullptr) {
      filters = r.controls->settings().filters;
      r.controls->edits(row.logits, edits);
      row.edits = edits.data();
      row.num_edits = static_cast<int32_t>(edits.size());
    }
    filters.temperature = r.temperature;
    tokens[i] = kernels_.choose(row, filters, r.key, scratch);
  });
}

void RowSampler::logprobs(const float* logits, int32_t width, const std::vector<RowToReport>& rows,
                          TokenValue* best, size_t stride, ChosenLogprob* of_chosen) {
  each(static_cast<int32_t>(rows.size()), width, [&](int32_t i, const SamplingScratch& scratch) {
    const size_t at = static_cast<size_t>(i);
    const RowToReport& r = rows[at];
    const float* row = logits + static_cast<size_t>(r.row) * static_cast<size_t>(width);
    if (!kernels_.logprobs(row, width, r.chosen, r.n, best + at * stride, of_chosen + at, scratch))
      of_chosen[at] = {0.0f, 0};
  });
}

}  // namespace farthing
