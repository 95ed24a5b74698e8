// What the buffers of a program's instructions must be like (checks.h).
#pragma once

#include <stdexcept>
#include <string>

#include "program/checks.h"
#include "program/instruction.h"

namespace farthing {

inline std::string name_of(RowKind rows) {
  switch (rows) {
    case RowKind::tokens: return "T";
    case RowKind::logits: return "R";
    case RowKind::hidden: return "H";
    case RowKind::routed: return "E";
    case RowKind::kept: return "K";
  }
  return "?";
}

inline void expect_rows(const std::string& what, RowKind rows, RowKind right) {
  if (rows != right)
    throw std::invalid_argument(what + " has rows " + name_of(rows) + ", must have rows " +
                                name_of(right));
}

inline void expect_like(const std::string& what, const FloatBuffer& buffer, RowKind rows, int64_t width) {
  expect_rows(what, buffer.rows, rows);
  expect_equal(what + " width", buffer.width, width);
}

}  // namespace farthing
