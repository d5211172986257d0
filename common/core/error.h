// Errors: what went wrong, where, what was found and what was expected, as an exception.
#pragma once

#include <stdexcept>
#include <string>

namespace aisc {

// Thrown for everything that a caller, a file, a flag or a peer did wrong.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Thrown by the stub of an exercise that nobody has solved yet. Not an `Error`, so that a stub
// never passes a test that expects one.
class NotImplemented : public std::logic_error {
 public:
  NotImplemented(const std::string& exercise, const char* file, int line);
  // As another process has thrown it.
  explicit NotImplemented(const std::string& what) : std::logic_error(what) {}
};

// Throws Error(message). A function rather than a throw expression: it keeps cold code out of line.
[[noreturn]] void fail(const std::string& message);

}  // namespace aisc
