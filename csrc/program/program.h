// A native program: a flat list of instructions over buffers, played in one call by a thread team.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/isa.h"
#include "core/matrix.h"
#include "core/threads.h"
#include "kernels/attention/attention.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/experts/experts.h"
#include "kernels/linear/linear.h"
#include "program/attention_instructions.h"
#include "program/expert_instructions.h"
#include "program/head_instruction.h"
#include "program/instruction.h"
#include "program/linear_instruction.h"
#include "program/step.h"

namespace farthing {

// Built once by the lowering (src/farthing/program/lowering.py): buffers first, then instructions
// in execution order. Buffers and ropes are named by the index the add_* call returned. Every call
// throws std::invalid_argument when its operands do not fit together.
class Program {
 public:
  // max_rows: most rows of any kind in one pass, except routed ones; buffers have that many.
  Program(Isa isa, int32_t max_rows);

  // How rows go to experts, the same in every layer. Once, before buffers of routed rows, of which
  // there are max_rows * experts_per_token.
  void set_routing(int32_t num_experts, int32_t experts_per_token);

  int32_t add_float_buffer(RowKind rows, int32_t width);
  int32_t add_int8_buffer(RowKind rows, int32_t cols, int32_t group);
  // A float buffer whose memory the caller of run() gives, in the order of these calls.
  int32_t add_output(RowKind rows, int32_t width);
  int32_t add_rope(std::vector<double> inverse_frequencies, double magnitude);

  // A row's destination: `values` is a float buffer or -1; `rounded` are int8 buffers.
  struct Sink {
    int32_t values;
    std::vector<int32_t> rounded;
  };
  struct Segment {
    std::shared_ptr<const Matrix> matrix;
    std::vector<float> bias;
    int32_t rounded;  // int8 buffer or -1
  };

  struct ExpertStack {
    std::vector<std::shared_ptr<const Matrix>> matrices;  // one for each expert
    int32_t rounded;                                      // int8 buffer or -1
  };

  void embed(std::shared_ptr<const Matrix> table, int32_t out);
  void rms_norm(int32_t x, std::vector<float> weight, float eps, const Sink& out);
  void quantize(int32_t x, const Sink& out);
  void linear(int32_t x, std::vector<Segment> segments, int32_t add, int32_t out);
  // rope: what add_rope returned, or -1 for none.
  void store_kv(const AttentionShape& shape, int32_t layer, HeadNorm q_norm, HeadNorm k_norm,
                int32_t rope, int32_t qkv);
  // out: `values`, and int8 buffers in which the columns of a kv head's query heads are not padded.
  void attend(const AttentionShape& shape, int32_t layer, int32_t qkv, const Sink& out);
  void gated(int32_t x, Activation activation, const Sink& out);
  // The logits from `start`, or -1 where the first op makes them. Every linear op adds its product
  // to the logits so far. The rows of `out`, an output, are those whose logits are wanted.
  struct HeadLinear {
    int32_t x;
    Segment segment;
  };
  struct HeadNumber {
    HeadStage::Kind kind;
    float number;
  };
  using HeadOp = std::variant<HeadLinear, HeadNumber>;
  void head(int32_t start, std::vector<HeadOp> ops, int32_t out);
  void route(int32_t logits, bool normalize, int32_t weights);
  void expert_linear(int32_t x, std::vector<ExpertStack> stacks, int32_t out);
  void combine(int32_t x, int32_t weights, int32_t add, int32_t out);
  void add(int32_t a, int32_t b, int32_t out);
  void scale(int32_t x, float factor, int32_t out);
  void softcap(int32_t x, float cap, int32_t out);
  void copy_rows(int32_t x, int32_t out);

  // Plays every instruction. outputs: one pointer for each add_output, of (rows, width) floats.
  // One caller at a time; a second waits.
  void run(ThreadPool& pool, const Step& step, const std::vector<float*>& outputs);

  // Whether passes from now on note how long each instruction takes.
  void set_profiling(bool on);
  struct Timing {
    const char* name;
    size_t weight_bytes;  // 0 where a pass chooses which weights it reads
    double seconds;  // from the end of the one before it to its own; of the last pass
    int32_t tiles;   // pieces that threads took it in
  };
  std::vector<Timing> profile() const;

  int32_t max_rows() const { return max_rows_; }
  size_t workspace_bytes() const { return workspace_bytes_; }
  const std::vector<int32_t>& outputs() const { return outputs_; }
  const FloatBuffer& float_buffer(int32_t index) const;
  int32_t vocab_size() const { return vocab_size_; }
  bool has_head() const { return has_head_; }
  int32_t experts_per_token() const { return routing_ ? routing_->experts_per_token : 0; }

  // What the attention instructions need of the KV cache; zeros without any.
  struct KvNeeds {
    int64_t num_layers = 0;
    int32_t num_kv_heads = 0, head_dim = 0;
  };
  const KvNeeds& kv_needs() const { return kv_needs_; }

 private:
  class Pass;

  FloatBuffer& values(const std::string& what, int32_t index);
  Int8Buffer& rounded(const std::string& what, int32_t index);
  // Which rows a sink's buffers have; none where it names none that exist.
  std::optional<RowKind> sink_rows(const Sink& sink) const;
  RowSink sink(const std::string& what, const Sink& sink, RowKind rows, int32_t width);
  LinearSegment checked_segment(const std::string& what, Segment segment, int32_t x, RowKind rows);
  FloatBuffer& checked_qkv(const AttentionShape& shape, int32_t layer, int32_t qkv);
  Routing& routing(const std::string& what);
  // input_rows and cols: of the stacks before it; cols 0 if this is the first.
  ExpertSegment checked_stack(ExpertStack stack, const FloatBuffer* x, RowKind& input_rows,
                              int32_t& cols);
  // For each row there can be of that kind.
  AlignedBuffer allocate(RowKind rows, size_t count, size_t element_bytes);
  void prepare_scratch(int threads);

  const LinearKernels& linear_;
  const AttentionKernels& attention_;
  const ElementwiseKernels& elementwise_;
  const ExpertKernels& experts_;
  const SamplingKernels& sampling_;
  int32_t max_rows_;
  int32_t vocab_size_ = 0;
  bool has_head_ = false;
  KvNeeds kv_needs_;
  size_t workspace_bytes_ = 0;
  std::vector<std::unique_ptr<FloatBuffer>> floats_;
  std::vector<std::unique_ptr<Int8Buffer>> int8s_;
  std::vector<std::unique_ptr<RopeTable>> ropes_;
  std::unique_ptr<Routing> routing_;
  std::unique_ptr<AttentionParts> attention_parts_;
  std::vector<int32_t> outputs_;
  std::vector<std::unique_ptr<Instruction>> instructions_;

  mutable std::mutex running_;
  bool profiling_ = false;
  std::vector<double> seconds_;  // of each instruction, if profiling
  std::vector<int32_t> tile_counts_;
  AlignedBuffer scratch_;
  size_t scratch_stride_ = 0;
  int scratch_threads_ = 0;
};

}  // namespace farthing
