// Byte-pair encoding as SentencePiece does it (Kudo and Richardson 2018, the BPE model): of all
// neighbours whose union is a piece, the union of the highest score is made first; of equal scores
// the leftmost. There is no list of merges, so no vocabulary of the `tokenizers` library can say
// this: it must rank the two ways to make "aaa" apart, where here the place in the text decides.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace farthing {

enum class PieceKind : uint8_t {
  kAbsent = 0,  // text never becomes it (control, unknown and byte tokens)
  kNormal = 1,
  kUserDefined = 2,  // taken out of the text whole before anything is merged, and merged no further
  kUnused = 3,  // merged through, but split again, or unknown, where it would be the result
};

class SentencePieceBpe {
 public:
  // pieces, scores and kinds have one entry an id. `bytes` is empty, or the ids of the 256 byte
  // tokens; without them what is no piece becomes `unknown`, one for each stretch of the text.
  // Pieces that are not absent must differ. Throws std::invalid_argument if they do not.
  SentencePieceBpe(std::vector<std::string> pieces, const float* scores, const uint8_t* kinds,
                   std::vector<int32_t> bytes, int32_t unknown, bool remove_extra_whitespaces);
  // Views into the pieces are kept.
  SentencePieceBpe(const SentencePieceBpe&) = delete;
  SentencePieceBpe& operator=(const SentencePieceBpe&) = delete;

  // Ids of a text in UTF-8, with one space before it if `prefix` (and it is not empty).
  std::vector<int32_t> encode(std::string_view text, bool prefix) const;

 private:
  struct Entry {
    int32_t id;
    float score;
    PieceKind kind;
  };
  class Merging;

  std::string escape_spaces(std::string_view text, bool prefix) const;
  size_t user_defined_prefix(std::string_view text) const;
  const Entry* find(std::string_view piece) const;
  void append_bytes(std::string_view piece, bool after_unknown, std::vector<int32_t>& ids) const;

  std::vector<std::string> pieces_;
  std::unordered_map<std::string_view, Entry> entries_;
  std::vector<std::string_view> user_defined_;  // ascending
  std::vector<int32_t> bytes_;
  int32_t unknown_;
  bool remove_extra_whitespaces_;
  size_t longest_ = 0;  // bytes of the longest piece
};

}  // namespace farthing
