#include "tests/support/error_says.h"

#include "common/core/error.h"

namespace aisc {

::testing::AssertionResult error_says(const std::function<void()>& call,
                                      const std::vector<std::string>& fragments) {
  std::string message;
  try {
    call();
    return ::testing::AssertionFailure() << "no error was thrown";
  } catch (const Error& error) {
    message = error.what();
  } catch (const std::exception& other) {
    return ::testing::AssertionFailure() << "not an Error but another exception: " << other.what();
  }
  for (const std::string& fragment : fragments)
    if (message.find(fragment) == std::string::npos)
      return ::testing::AssertionFailure()
             << "the message does not say '" << fragment << "': " << message;
  return ::testing::AssertionSuccess();
}

}  // namespace aisc
