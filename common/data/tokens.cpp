#include "common/data/tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "common/core/error.h"

namespace aisc {
namespace {

static_assert(std::endian::native == std::endian::little);  // files are read as they lie

constexpr std::int64_t kPiece = 1 << 15;  // tokens widened at a time: they stay in the cache

std::int32_t header_value(std::span<const std::uint8_t> bytes, std::size_t index) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data() + 4 * index, sizeof value);
  return value;
}

// Calls f(pointer, count) for the tokens as 16-bit values, piece by piece.
template <class F>
void for_each_piece(const TokenView& tokens, F f) {
  std::vector<std::int32_t> wide(kPiece);
  std::vector<std::uint16_t> pairs(kPiece);
  for (std::int64_t begin = 0; begin < tokens.size(); begin += kPiece) {
    const std::int64_t count = std::min(kPiece, tokens.size() - begin);
    tokens.copy(begin, count, wide.data());
    std::transform(wide.begin(), wide.begin() + count, pairs.begin(),
                   [](std::int32_t id) { return static_cast<std::uint16_t>(id); });
    f(pairs.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

TokenView TokenView::part(std::int64_t begin, std::int64_t end) const {
  if (begin < 0 || begin > end || end > size_)
    fail(fmt::format("tokens [{}, {}) of {}: outside", begin, end, size_));
  TokenView view = *this;
  if (bytes_) view.bytes_ += begin;
  if (pairs_) view.pairs_ += begin;
  if (file_) view.first_ += 2 * begin;
  view.size_ = end - begin;
  return view;
}

void TokenView::copy(std::int64_t begin, std::int64_t count, std::int32_t* to) const {
  if (bytes_) std::copy(bytes_ + begin, bytes_ + begin + count, to);
  if (pairs_) std::copy(pairs_ + begin, pairs_ + begin + count, to);
  if (!file_) return;
  std::array<std::uint16_t, 4096> piece;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t some = std::min(count - done, std::ssize(piece));
    file_->read(first_ + 2 * (begin + done), piece.data(), 2 * static_cast<std::size_t>(some));
    std::copy_n(piece.begin(), some, to + done);
    done += some;
  }
}

TokenView::Summary TokenView::summary() const {
  Summary summary;
  Checksum sum;
  for_each_piece(*this, [&](const std::uint16_t* tokens, std::size_t count) {
    sum.add(tokens, 2 * count);
    summary.largest =
        std::max<std::int32_t>(summary.largest, *std::max_element(tokens, tokens + count));
  });
  sum.add(&size_, sizeof size_);
  summary.hash = sum.value();
  return summary;
}

namespace {

constexpr auto kHeader = static_cast<std::size_t>(TokenFile::kHeaderBytes);

// How many tokens a file of `size` bytes has that begins with `header`.
std::int64_t tokens_after(std::span<const std::uint8_t> header, std::size_t size,
                          const std::string& name) {
  if (size < kHeader)
    fail(fmt::format("{}: not a token file: found {} bytes, expected a header of {} bytes", name,
                     size, kHeader));
  const auto expect = [&](std::size_t index, const char* what, std::int32_t expected) {
    const std::int32_t found = header_value(header, index);
    if (found != expected)
      fail(fmt::format("{}: byte {}: the {} is {}, expected {} (llm.c's token files of uint16)",
                       name, 4 * index, what, found, expected));
  };
  expect(0, "magic number", TokenFile::kMagic);
  expect(1, "version", TokenFile::kVersion);
  const std::int64_t count = header_value(header, 2);
  const std::size_t payload = size - kHeader;
  if (count < 0 || static_cast<std::uint64_t>(count) * 2 != payload)
    fail(fmt::format("{}: byte 8: the header promises {} tokens, {} bytes; found {} bytes after it",
                     name, count, 2 * count, payload));
  return count;
}

}  // namespace

TokenFile::TokenFile(const std::string& path) : file_(std::make_unique<ReadableFile>(path)) {
  std::array<std::uint8_t, kHeader> header{};
  const auto size = static_cast<std::size_t>(file_->size());
  file_->read(0, header.data(), std::min(size, header.size()));
  tokens_ = {*file_, kHeaderBytes, tokens_after(header, size, path)};
}

TokenView parse_token_file(std::span<const std::uint8_t> bytes, const std::string& name) {
  const std::int64_t count = tokens_after(bytes, bytes.size(), name);
  const std::uint8_t* first = bytes.data() + kHeader;
  if (reinterpret_cast<std::uintptr_t>(first) % alignof(std::uint16_t) != 0)
    fail(name + ": the bytes of a token file must begin at an even address");
  return std::span(reinterpret_cast<const std::uint16_t*>(first), static_cast<std::size_t>(count));
}

void write_token_file(const std::string& path, TokenView tokens) {
  if (tokens.size() > std::numeric_limits<std::int32_t>::max())
    fail(fmt::format("{}: {} tokens, expected at most {}: the header counts in int32", path,
                     tokens.size(), std::numeric_limits<std::int32_t>::max()));
  std::array<std::int32_t, 256> header{};
  header[0] = TokenFile::kMagic;
  header[1] = TokenFile::kVersion;
  header[2] = static_cast<std::int32_t>(tokens.size());
  AtomicFile file(path);
  file.write(header.data(), sizeof header);
  for_each_piece(
      tokens, [&](const std::uint16_t* pairs, std::size_t count) { file.write(pairs, 2 * count); });
  file.commit();
}

}  // namespace aisc
