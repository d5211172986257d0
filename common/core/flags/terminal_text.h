// What a model writes, made fit for a terminal: tokens end in the middle of characters, and nothing
// that a model says may move the cursor, set a title or paste a command.
#pragma once

#include <string>
#include <string_view>

namespace aisc {

// Bytes go in as they come, text comes out as soon as it is complete. Text is UTF-8: of a character
// whose last bytes are missing nothing is given until they come. Each longest beginning of a
// character that cannot go on becomes one U+FFFD, as the Unicode standard recommends (section 3.9).
// Control characters are left out (C0 but \n and \t, DEL, and C1, U+0080 to U+009F).
class TerminalText {
 public:
  std::string add(std::string_view bytes);
  // At the end of the text: U+FFFD if a character is still incomplete, else "". Then starts anew.
  std::string finish();

 private:
  void add_byte(unsigned char byte, std::string& out);

  std::string pending_;     // the bytes of an incomplete character
  std::size_t length_ = 0;  // that it will have
};

// A whole text made fit: an error, which may quote a file that is damaged or was made to deceive.
// Its control characters are spelt out (common/core/printable.h).
std::string for_terminal(std::string_view bytes);

}  // namespace aisc
