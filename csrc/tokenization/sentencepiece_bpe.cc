#include "tokenization/sentencepiece_bpe.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <stdexcept>
#include <utility>

namespace farthing {

namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581
constexpr int32_t kNone = -1;

size_t character_bytes(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  const size_t size = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  return std::min(size, text.size());
}

struct Symbol {
  int32_t before, after;  // neighbours, kNone at the ends
  std::string_view text;  // empty once it is part of its left neighbour
  bool frozen;
};

struct Pair {
  float score;
  int32_t left, right;
  size_t bytes;  // of both when the pair was found; a pair that has grown since is stale

  // A priority queue gives its largest element first.
  bool operator<(const Pair& other) const {
    return score < other.score || (score == other.score && left > other.left);
  }
};

}  // namespace

// The state of one text.
class SentencePieceBpe::Merging {
 public:
  Merging(const SentencePieceBpe& model, std::string_view text) : model_(model) {
    while (!text.empty()) {
      const size_t whole = model.user_defined_prefix(text);
      const size_t size = whole != 0 ? whole : character_bytes(text);
      const auto index = static_cast<int32_t>(symbols_.size());
      symbols_.push_back({index - 1, index + 1, text.substr(0, size), whole != 0});
      text.remove_prefix(size);
    }
    if (!symbols_.empty()) symbols_.back().after = kNone;
  }

  std::vector<int32_t> ids() {
    for (int32_t i = 1; i < static_cast<int32_t>(symbols_.size()); ++i) consider(i - 1, i);
    while (!pairs_.empty()) {
      const Pair pair = pairs_.top();
      pairs_.pop();
      Symbol& left = symbols_[static_cast<size_t>(pair.left)];
      Symbol& right = symbols_[static_cast<size_t>(pair.right)];
      if (left.text.empty() || right.text.empty() ||
          left.text.size() + right.text.size() != pair.bytes)
        continue;
      left.text = joined(left, right);
      right.text = {};
      left.after = right.after;
      if (right.after != kNone) symbols_[static_cast<size_t>(right.after)].before = pair.left;
      consider(left.before, pair.left);
      consider(pair.left, left.after);
    }
    for (int32_t i = symbols_.empty() ? kNone : 0; i != kNone;
         i = symbols_[static_cast<size_t>(i)].after)
      append(symbols_[static_cast<size_t>(i)].text);
    return std::move(ids_);
  }

 private:
  static std::string_view joined(const Symbol& left, const Symbol& right) {
    return {left.text.data(), left.text.size() + right.text.size()};
  }

  void consider(int32_t left_index, int32_t right_index) {
    if (left_index == kNone || right_index == kNone) return;
    const Symbol& left = symbols_[static_cast<size_t>(left_index)];
    const Symbol& right = symbols_[static_cast<size_t>(right_index)];
    if (left.frozen || right.frozen) return;
    const std::string_view both = joined(left, right);
    const Entry* entry = model_.find(both);
    if (entry == nullptr) return;
    pairs_.push({entry->score, left_index, right_index, both.size()});
    if (entry->kind == PieceKind::kUnused) halves_[both] = {left.text, right.text};
  }

  void append(std::string_view text) {
    // Not recursion: a hostile vocabulary could nest unused pieces deeply.
    std::vector<std::string_view> rest{text};
    while (!rest.empty()) {
      const std::string_view piece = rest.back();
      rest.pop_back();
      const Entry* entry = model_.find(piece);
      if (entry != nullptr && entry->kind == PieceKind::kUnused) {
        if (auto halves = halves_.find(piece); halves != halves_.end()) {
          rest.push_back(halves->second.second);
          rest.push_back(halves->second.first);
          continue;
        }
        entry = nullptr;
      }
      if (entry != nullptr) {
        ids_.push_back(entry->id);
      } else {
        model_.append_bytes(piece, after_unknown_, ids_);
      }
      after_unknown_ = entry == nullptr;
    }
  }

  const SentencePieceBpe& model_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Pair> pairs_;
  std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> halves_;
  std::vector<int32_t> ids_;
  bool after_unknown_ = false;
};

SentencePieceBpe::SentencePieceBpe(std::vector<std::string> pieces, const float* scores,
                                   const uint8_t* kinds, std::vector<int32_t> bytes,
                                   int32_t unknown, bool remove_extra_whitespaces)
    : pieces_(std::move(pieces)),
      bytes_(std::move(bytes)),
      unknown_(unknown),
      remove_extra_whitespaces_(remove_extra_whitespaces) {
  if (!bytes_.empty() && bytes_.size() != 256)
    throw std::invalid_argument("there must be 256 byte tokens or none");
  entries_.reserve(pieces_.size());
  for (size_t id = 0; id < pieces_.size(); ++id) {
    const auto kind = static_cast<PieceKind>(kinds[id]);
    const std::string_view piece = pieces_[id];
    if (kind == PieceKind::kAbsent || piece.empty()) continue;
    if (!entries_.emplace(piece, Entry{static_cast<int32_t>(id), scores[id], kind}).second)
      throw std::invalid_argument("piece " + std::to_string(id) + " repeats another");
    longest_ = std::max(longest_, piece.size());
    if (kind == PieceKind::kUserDefined) user_defined_.push_back(piece);
  }
  std::sort(user_defined_.begin(), user_defined_.end());
}

std::vector<int32_t> SentencePieceBpe::encode(std::string_view text, bool prefix) const {
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 4)
    throw std::invalid_argument("text is too long");
  const std::string escaped = escape_spaces(text, prefix);
  return Merging(*this, escaped).ids();
}

std::string SentencePieceBpe::escape_spaces(std::string_view text, bool prefix) const {
  std::string out;
  out.reserve(text.size() + text.size() / 2 + kSpace.size());
  bool after_space = remove_extra_whitespaces_;
  if (after_space) text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  if (text.empty()) return out;
  if (prefix) out += kSpace;
  while (!text.empty()) {
    // A user-defined token is normalized as one: spaces within it stay.
    const size_t whole = remove_extra_whitespaces_ ? user_defined_prefix(text) : 0;
    const size_t size = whole != 0 ? whole : 1;
    std::string_view unit = text.substr(0, size);
    if (after_space) unit.remove_prefix(std::min(unit.find_first_not_of(' '), unit.size()));
    for (char c : unit) {
      if (c == ' ') {
        out += kSpace;
      } else {
        out += c;
      }
    }
    if (remove_extra_whitespaces_ && !unit.empty()) after_space = unit.back() == ' ';
    text.remove_prefix(size);
  }
  if (remove_extra_whitespaces_) {
    while (out.ends_with(kSpace)) out.resize(out.size() - kSpace.size());
  }
  return out;
}

// Bytes of the longest user-defined piece that `text` begins with, 0 if there is none.
size_t SentencePieceBpe::user_defined_prefix(std::string_view text) const {
  size_t longest = 0;
  auto first = user_defined_.begin(), last = user_defined_.end();
  for (size_t depth = 0; first != last && depth < text.size(); ++depth) {
    // All of first..last begin with text[..depth]; the one of that size comes first.
    const auto byte = static_cast<uint8_t>(text[depth]);
    if (first->size() == depth) ++first;
    first = std::partition_point(first, last, [&](std::string_view piece) {
      return static_cast<uint8_t>(piece[depth]) < byte;
    });
    last = std::partition_point(first, last, [&](std::string_view piece) {
      return static_cast<uint8_t>(piece[depth]) == byte;
    });
    if (first != last && first->size() == depth + 1) longest = depth + 1;
  }
  return longest;
}

const SentencePieceBpe::Entry* SentencePieceBpe::find(std::string_view piece) const {
  if (piece.size() > longest_) return nullptr;
  const auto found = entries_.find(piece);
  return found == entries_.end() ? nullptr : &found->second;
}

void SentencePieceBpe::append_bytes(std::string_view piece, bool after_unknown,
                                    std::vector<int32_t>& ids) const {
  if (bytes_.empty()) {
    if (!after_unknown && unknown_ != kNone) ids.push_back(unknown_);
    return;
  }
  for (char c : piece) ids.push_back(bytes_[static_cast<uint8_t>(c)]);
}

}  // namespace farthing
