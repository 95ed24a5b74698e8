#include "sampling/controls.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace farthing {
namespace {

double power(double base, int32_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent >>= 1, base *= base)
    if ((exponent & 1) != 0) result *= base;
  return result;
}

float dry_penalty(const DryPenalty& dry, int32_t length) {
  const double penalty = dry.multiplier * power(dry.base, length - dry.allowed_length);
  constexpr float kMost = std::numeric_limits<float>::max();
  return penalty < kMost ? static_cast<float>(penalty) : kMost;
}

}  // namespace

Controls::Controls(ControlSettings settings, std::vector<int32_t> prompt)
    : settings_(std::move(settings)),
      tokens_(std::move(prompt)),
      num_prompt_(static_cast<int32_t>(tokens_.size())) {
  if (!settings_.penalties.any()) return;
  std::vector<int32_t> seen = tokens_;
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  for (const int32_t token : seen) counts_.push_back({token, 0});
}

void Controls::append(int32_t token) {
  tokens_.push_back(token);
  if (!settings_.penalties.any()) return;
  const auto at = std::lower_bound(counts_.begin(), counts_.end(), token,
                                   [](const Count& c, int32_t t) { return c.token < t; });
  if (at != counts_.end() && at->token == token)
    ++at->generated;
  else
    counts_.insert(at, {token, 1});
}

std::vector<Controls::Change> Controls::changes() const {
  std::vector<Change> list;
  for (const TokenValue& b : settings_.bias) list.push_back({b.token, 0.0f, b.value, false});
  const DryPenalty& dry = settings_.dry;
  if (dry.multiplier != 0.0) {
    const int32_t all = static_cast<int32_t>(tokens_.size());
    const int32_t count = dry.last_n < 0 ? all : std::min(all, dry.last_n);
    const int32_t* window = tokens_.data() + (all - count);
    const int32_t limit = dry.breakers ? dry.breakers->tokens_since(window, count) : count;
    for (const auto& [token, length] :
         continued_repetitions(window, count, limit, dry.allowed_length))
      if (!dry.breakers || !dry.breakers->is_single(token))
        list.push_back({token, dry_penalty(dry, length), 0.0f, false});
  }
  if (num_generated() < settings_.min_tokens)
    for (const int32_t token : settings_.end_tokens) list.push_back({token, 0.0f, 0.0f, true});
  for (const std::vector<int32_t>& word : settings_.bad_words) {
    const size_t before = word.size() - 1;
    if (before <= static_cast<size_t>(num_generated()) &&
        std::equal(word.begin(), word.end() - 1, tokens_.end() - static_cast<ptrdiff_t>(before)))
      list.push_back({word.back(), 0.0f, 0.0f, true});
  }
  std::stable_sort(list.begin(), list.end(),
                   [](const Change& a, const Change& b) { return a.token < b.token; });
  size_t kept = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (kept > 0 && list[kept - 1].token == list[i].token) {
      Change& one = list[kept - 1];  // each token has one bias and one length at most
      one.dry += list[i].dry;
      one.bias += list[i].bias;
      one.forbidden |= list[i].forbidden;
    } else {
      list[kept++] = list[i];
    }
  }
  list.resize(kept);
  return list;
}

float Controls::changed(float x, const Count* count, const Change* change) const {
  if (change != nullptr && change->forbidden) return -std::numeric_limits<float>::infinity();
  if (count != nullptr) {
    const Penalties& p = settings_.penalties;
    if (p.repetition != 1.0f) x = x > 0.0f ? x / p.repetition : x * p.repetition;
    if (count->generated > 0) {
      x = x - p.frequency * static_cast<float>(count->generated);
      x = x - p.presence;
    }
  }
  if (change != nullptr) {
    x = x - change->dry;
    x = x + change->bias;
  }
  return x;
}

void Controls::edits(const float* logits, std::vector<TokenValue>& out) const {
  out.clear();
  const std::vector<Change> list = changes();
  out.reserve(counts_.size() + list.size());
  const Count* count = counts_.data();
  const Count* const counts_end = count + counts_.size();
  const Change* change = list.data();
  const Change* const changes_end = change + list.size();
  while (count != counts_end || change != changes_end) {
    const bool counted =
        count != counts_end && (change == changes_end || count->token <= change->token);
    const int32_t token = counted ? count->token : change->token;
    const bool listed = change != changes_end && change->token == token;
    out.push_back({token, changed(logits[token], counted ? count : nullptr,
                                  listed ? change : nullptr)});
    count += counted;
    change += listed;
  }
}

}  // namespace farthing
