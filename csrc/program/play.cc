// Playing a program: scratch memory, the stages of a pass, and how long they took.
#include <algorithm>
#include <chrono>

#include "core/checked_size.h"
#include "program/program.h"

namespace farthing {
namespace {

size_t round_up(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

void Program::prepare_scratch(int threads) {
  if (threads <= scratch_threads_ && tile_counts_.size() == instructions_.size()) return;
  size_t stride = 64;
  for (const auto& instruction : instructions_)
    stride = std::max(stride, round_up(instruction->scratch_bytes()));
  AlignedBuffer scratch(checked_product({stride, static_cast<size_t>(threads)}));
  workspace_bytes_ += scratch.bytes() - scratch_.bytes();
  scratch_ = std::move(scratch);
  scratch_stride_ = stride;
  scratch_threads_ = threads;
  tile_counts_.resize(instructions_.size());
}

// Each instruction is a stage.
class Program::Pass final : public StagedWork {
 public:
  Pass(Program& program, const Step& step, ThreadPool& pool)
      : program_(program), step_(step), pool_(pool) {}

  int32_t begin(int32_t stage) override {
    if (program_.profiling_) note_end_of(stage - 1);
    const size_t i = static_cast<size_t>(stage);
    if (i == 0 || first_weights(i, 0) != nullptr) announce_weights_after(i);
    return program_.instructions_[i]->tiles(program_.tile_counts_[i]);
  }

  void run(int32_t stage, int32_t tile, int thread) override {
    uint8_t* scratch =
        program_.scratch_.data() + program_.scratch_stride_ * static_cast<size_t>(thread);
    program_.instructions_[static_cast<size_t>(stage)]->run(tile, step_, scratch);
  }

  void note_end_of(int32_t stage) {
    const Clock::time_point now = Clock::now();
    if (stage >= 0)
      program_.seconds_[static_cast<size_t>(stage)] =
          std::chrono::duration<double>(now - begin_).count();
    begin_ = now;
  }

 private:
  // What a share of instruction i reads first; null without weights, or if that is not known yet.
  const uint8_t* first_weights(size_t i, int share) const {
    const int32_t tiles = program_.tile_counts_[i];
    return tiles == 0 ? nullptr
                      : program_.instructions_[i]->tile_weights(pool_.share_begin(tiles, share));
  }
  // Threads that wait from now on fetch the beginning of the next weights: memory would be idle
  // while one thread does what only one can.
  void announce_weights_after(size_t i) {
    do ++i;
    while (i < program_.instructions_.size() && first_weights(i, 0) == nullptr);
    const bool any = i < program_.instructions_.size();
    for (int share = 0; share < pool_.shares(); ++share)
      pool_.fetch_ahead(share, any ? first_weights(i, share) : nullptr);
  }

  using Clock = std::chrono::steady_clock;
  Program& program_;
  const Step& step_;
  ThreadPool& pool_;
  Clock::time_point begin_;  // of the stage
};

void Program::run(ThreadPool& pool, const Step& step, const std::vector<float*>& outputs) {
  const std::lock_guard<std::mutex> lock(running_);
  prepare_scratch(pool.num_threads());
  for (size_t i = 0; i < outputs_.size(); ++i)
    floats_[static_cast<size_t>(outputs_[i])]->data = outputs.at(i);
  for (size_t i = 0; i < instructions_.size(); ++i)
    tile_counts_[i] = instructions_[i]->plan(step, pool.concurrency());
  const int32_t stages = static_cast<int32_t>(instructions_.size());
  Pass pass(*this, step, pool);
  pool.run(pass, stages);
  if (profiling_) pass.note_end_of(stages - 1);
}

void Program::set_profiling(bool on) {
  const std::lock_guard<std::mutex> lock(running_);
  profiling_ = on;
  seconds_.assign(instructions_.size(), 0.0);
}

std::vector<Program::Timing> Program::profile() const {
  const std::lock_guard<std::mutex> lock(running_);
  std::vector<Timing> result;
  for (size_t i = 0; i < seconds_.size(); ++i)
    result.push_back({instructions_[i]->name(), instructions_[i]->weight_bytes(), seconds_[i],
                      i < tile_counts_.size() ? instructions_[i]->tiles(tile_counts_[i]) : 0});
  return result;
}

}  // namespace farthing
