// Tokens in a row: in memory, or in llm.c's token files (.bin), which may be larger than memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/core/system/files.h"

namespace aisc {

// Looks at tokens of one byte or two, in memory or in a file. Does not own them.
class TokenView {
 public:
  TokenView() = default;
  TokenView(std::span<const std::uint8_t> tokens) : bytes_(tokens.data()), size_(ssize(tokens)) {}
  TokenView(std::span<const std::uint16_t> tokens) : pairs_(tokens.data()), size_(ssize(tokens)) {}
  // Tokens of two bytes that begin at byte `first` of a file, little-endian.
  TokenView(const ReadableFile& file, std::int64_t first, std::int64_t size)
      : file_(&file), first_(first), size_(size) {}
  TokenView(const std::vector<std::uint8_t>& tokens) : TokenView(std::span(tokens)) {}
  TokenView(const std::vector<std::uint16_t>& tokens) : TokenView(std::span(tokens)) {}

  std::int64_t size() const { return size_; }
  std::int32_t operator[](std::int64_t i) const {
    std::int32_t token = 0;
    copy(i, 1, &token);
    return token;
  }
  // Tokens [begin, end). Throws Error outside [0, size].
  TokenView part(std::int64_t begin, std::int64_t end) const;
  // Writes tokens begin .. begin + count - 1 to `to`; the caller keeps to the size. Throws Error
  // where a file has been cut meanwhile.
  void copy(std::int64_t begin, std::int64_t count, std::int32_t* to) const;

  struct Summary {
    std::int32_t largest = -1;  // -1: there are no tokens
    std::uint64_t hash = 0;     // of the tokens as 16-bit values and their number
  };
  Summary summary() const;  // reads every token, once

 private:
  const std::uint8_t* bytes_ = nullptr;
  const std::uint16_t* pairs_ = nullptr;
  const ReadableFile* file_ = nullptr;
  std::int64_t first_ = 0;
  std::int64_t size_ = 0;
};

// llm.c's format for data: 256 int32 in little-endian order (magic 20240520, version 1, the number
// of tokens, zeros), then the tokens as uint16.
class TokenFile {
 public:
  static constexpr std::int32_t kMagic = 20240520, kVersion = 1;
  static constexpr std::int64_t kHeaderBytes = 256 * 4;

  // Opens the file, and reads its header. Throws Error (path, offset, found, expected): too short
  // for a header, another magic or version, a count that is not the file's length.
  explicit TokenFile(const std::string& path);

  TokenView tokens() const { return tokens_; }

 private:
  std::unique_ptr<const ReadableFile> file_;  // stays where it is
  TokenView tokens_;
};

// The tokens of a file's bytes, which the view looks at; `name` is for errors, as above.
TokenView parse_token_file(std::span<const std::uint8_t> bytes, const std::string& name);

// Written whole or not at all. Throws Error: more than 2^31 - 1 tokens
// (the header counts in int32); the disk.
void write_token_file(const std::string& path, TokenView tokens);

}  // namespace aisc
