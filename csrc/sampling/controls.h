// What one request's parameters do to its logits, and the tokens it depends on.
#pragma once

#include <memory>
#include <vector>

#include "kernels/sampling/sampling.h"
#include "sampling/repetition.h"

namespace farthing {

struct Penalties {
  float repetition = 1.0f;  // logits of tokens seen: divided by it if above 0, else multiplied
  float presence = 0.0f;    // subtracted once from tokens generated before
  float frequency = 0.0f;   // subtracted as often as the token was generated
  bool any() const { return repetition != 1.0f || presence != 0.0f || frequency != 0.0f; }
};

// Subtracts multiplier * base^(length - allowed_length) from tokens that would continue a
// repetition of at least allowed_length tokens.
struct DryPenalty {
  double multiplier = 0.0;  // 0 is off
  double base = 1.75;
  int32_t allowed_length = 2;
  int32_t last_n = -1;  // tokens looked at, from the end; -1: all
  std::shared_ptr<const SequenceBreakers> breakers;
};

struct ControlSettings {
  int32_t vocab_size = 0;  // every token below it
  Filters filters;
  Penalties penalties;
  DryPenalty dry;
  std::vector<TokenValue> bias;                  // tokens ascending, each once
  std::vector<std::vector<int32_t>> bad_words;   // sequences that may not be completed
  std::vector<int32_t> end_tokens;               // forbidden before min_tokens are generated
  int32_t min_tokens = 0;
};

class Controls {
 public:
  Controls(ControlSettings settings, std::vector<int32_t> prompt);

  const ControlSettings& settings() const { return settings_; }
  int32_t num_generated() const { return static_cast<int32_t>(tokens_.size()) - num_prompt_; }
  void append(int32_t token);  // generated

  // The values that differ from the logits (vocab_size,), tokens ascending. In this order: the
  // repetition penalty, frequency, presence, DRY, bias, and -infinity for what is forbidden; one
  // rounding to float each.
  void edits(const float* logits, std::vector<TokenValue>& out) const;

 private:
  struct Count {
    int32_t token;
    int32_t generated;  // 0: in the prompt only
  };
  struct Change {
    int32_t token;
    float dry;
    float bias;
    bool forbidden;
  };

  std::vector<Change> changes() const;
  float changed(float logit, const Count* count, const Change* change) const;

  ControlSettings settings_;
  std::vector<int32_t> tokens_;  // prompt, then generated
  int32_t num_prompt_;
  std::vector<Count> counts_;  // tokens ascending; kept only for penalties
};

}  // namespace farthing
