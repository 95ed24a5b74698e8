// A word before the end of a process whose mapped file was cut.
#pragma once

#include <string_view>

namespace farthing {

// From now on SIGBUS writes `message` to stderr before it ends the process. Does nothing where
// something else handles the signal already. A later call replaces the message.
void explain_bus_errors(std::string_view message);

}  // namespace farthing
