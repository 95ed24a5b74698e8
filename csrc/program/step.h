// The arrays of one pass over a batch of sequences. Nothing here owns memory.
#pragma once

#include <cstdint>

#include "core/kv_layout.h"
#include "core/types.h"

namespace farthing {

// Which symbolic row count of the program a value has (src/farthing/program/ops.py).
// `logits`: rows whose logits are wanted, then rows of which only the greedy token is; `kept`: the
// former alone. `routed`: each row of T once for each of its experts, grouped by expert.
enum class RowKind : int32_t { tokens, logits, hidden, routed, kept };

struct Step {
  int32_t num_tokens;
  const int32_t* tokens;     // (T)
  const int32_t* positions;  // (T), consecutive within a sequence
  int32_t num_sequences;
  const int32_t* row_offsets;   // (S + 1): sequence s has rows row_offsets[s] .. row_offsets[s+1]
  const int32_t* block_tables;  // (S, table_stride): KV block of each 16 tokens
  int32_t table_stride;
  int32_t num_logit_rows;
  const int32_t* logit_rows;  // (K), rows of T
  int32_t num_argmax_rows;
  const int32_t* argmax_rows;  // (R - K), rows of T
  int32_t* argmax_tokens;      // (R - K): filled, in their order
  int32_t num_hidden_rows;
  const int32_t* hidden_rows;  // (H), rows of T
  int32_t experts_per_token;  // 0 in a program without experts
  KvLayout kv_layout;
  uint8_t* kv;

  int32_t rows(RowKind kind) const {
    switch (kind) {
      case RowKind::tokens: return num_tokens;
      case RowKind::logits: return num_logit_rows + num_argmax_rows;
      case RowKind::hidden: return num_hidden_rows;
      case RowKind::routed: return num_tokens * experts_per_token;
      case RowKind::kept: return num_logit_rows;
    }
    return 0;
  }
  // The row of T that row `row` of R is.
  int32_t head_row(int32_t row) const {
    return row < num_logit_rows ? logit_rows[row] : argmax_rows[row - num_logit_rows];
  }
};

}  // namespace farthing
