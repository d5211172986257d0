#include "formats/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "common/core/error.h"
#include "common/ops/ops.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

static_assert(std::endian::native == std::endian::little);  // files are read as they lie

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;

bool is_one_of(const std::string& name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of the format's types. What DType has no name for can be skipped over, which needs its size.
std::size_t size_of_type(const std::string& name) {
  if (is_one_of(name, {"F64", "I64", "U64"})) return 8;
  if (is_one_of(name, {"F32", "I32", "U32"})) return 4;
  if (is_one_of(name, {"BF16", "F16", "I16", "U16"})) return 2;
  if (is_one_of(name, {"U8", "BOOL", "I8", "F8_E5M2", "F8_E4M3"})) return 1;
  return 0;
}

std::uint64_t read_length(std::span<const std::uint8_t> bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  return length;
}

// a * b, or nothing where that does not fit into what a file can hold.
std::optional<std::size_t> product(std::size_t a, std::size_t b) {
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  if (b != 0 && a > kMost / b) return std::nullopt;
  return a * b;
}

std::string in_words(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

// One entry of the header, believed only where it agrees with itself. `at` names it in errors.
SafetensorsEntry entry_of(const std::string& at, const std::string& name, const json& value,
                          std::size_t data_begin) {
  const auto member = [&](const char* key, json::value_t type) -> const json& {
    if (!value.is_object() || !value.contains(key) || value[key].type() != type)
      fail(fmt::format("{}: expected \"{}\" as {}", at, key, json(type).type_name()));
    return value[key];
  };
  SafetensorsEntry entry;
  entry.name = name;
  entry.dtype = member("dtype", json::value_t::string).get<std::string>();
  std::optional<std::size_t> expected = size_of_type(entry.dtype);
  if (*expected == 0) fail(fmt::format("{}: unknown dtype \"{}\"", at, entry.dtype));
  for (const json& dimension : member("shape", json::value_t::array)) {
    if (!dimension.is_number_unsigned())
      fail(fmt::format("{}: shape holds {}, expected whole numbers from 0 on", at,
                       shown(dimension)));
    const auto extent = dimension.get<std::uint64_t>();
    if (extent > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail(fmt::format("{}: a dimension of {}", at, extent));
    entry.shape.push_back(static_cast<std::int64_t>(extent));
    if (expected) expected = product(*expected, extent);
  }
  const json& offsets = member("data_offsets", json::value_t::array);
  if (offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned())
    fail(fmt::format("{}: data_offsets is {}, expected [begin, end]", at, shown(offsets)));
  const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
  if (begin > end || !expected || end - begin != *expected)
    fail(fmt::format("{}: data_offsets [{}, {}], expected a length of {} bytes for {} {}", at,
                     begin, end, expected ? fmt::to_string(*expected) : "more than 2^63",
                     entry.dtype, in_words(entry.shape)));
  entry.offset = data_begin + begin;  // no overflow: the caller bounds `begin` by the file's size
  entry.bytes = *expected;
  return entry;
}

// A tensor's bytes as elements of type T, from an address that need not be aligned, converted into
// `to` in pieces that stay in the cache.
template <class T>
void convert(View to, const std::uint8_t* from) {
  constexpr std::int64_t kPiece = 1 << 14;
  std::vector<T> piece(static_cast<std::size_t>(std::min(kPiece, to.count())));
  for (std::int64_t begin = 0; begin < to.count(); begin += kPiece) {
    const std::int64_t count = std::min(kPiece, to.count() - begin);
    std::memcpy(piece.data(), from + begin * static_cast<std::int64_t>(sizeof(T)),
                static_cast<std::size_t>(count) * sizeof(T));
    ops::cast(to.flat(begin, count),
              ConstView(piece.data(), {count}, DTypeOf<T>::value, to.device()));
  }
}

}  // namespace

Safetensors::Safetensors(const std::string& path) : path_(path), file_(MappedFile(path)) {
  bytes_ = file_->bytes();
  parse();
}

Safetensors::Safetensors(std::span<const std::uint8_t> bytes, std::string name)
    : path_(std::move(name)), bytes_(bytes) {
  parse();
}

void Safetensors::parse() {
  if (bytes_.size() < kLengthBytes)
    fail(fmt::format("{}: not a safetensors file: found {} bytes, expected at least {}", path_,
                     bytes_.size(), kLengthBytes));
  const std::uint64_t length = read_length(bytes_);
  if (length > kLargestHeader)
    fail(
        fmt::format("{}: byte 0: not a safetensors file: a header of {} bytes, expected at most {}",
                    path_, length, kLargestHeader));
  if (length > bytes_.size() - kLengthBytes)
    fail(fmt::format("{}: byte 0: a header of {} bytes, found {} after it", path_, length,
                     bytes_.size() - kLengthBytes));
  const std::size_t begin = kLengthBytes + length, size = bytes_.size() - begin;
  const std::string_view json_text(reinterpret_cast<const char*>(bytes_.data()) + kLengthBytes,
                                   length);
  const json header = parse_json(json_text, path_, kLengthBytes);
  if (!header.is_object())
    fail(fmt::format("{}: byte {}: the header is JSON of type {}, expected an object", path_,
                     kLengthBytes, header.type_name()));
  for (const auto& [name, value] : header.items()) {
    const std::string at = fmt::format("{}: header: \"{}\"", path_, name);
    if (name == "__metadata__") {
      if (!value.is_object()) fail(at + ": expected an object of texts");
      for (const auto& [key, text] : value.items()) {
        if (!text.is_string()) fail(at + ": \"" + key + "\" is not a text");
        metadata_[key] = text.get<std::string>();
      }
    } else {
      const SafetensorsEntry entry = entry_of(at, name, value, begin);
      if (entry.bytes > size || entry.offset - begin > size - entry.bytes)
        fail(fmt::format("{}: its bytes end at {} of the data, which has {} bytes", at,
                         entry.offset - begin + entry.bytes, size));
      entries_.push_back(entry);
    }
  }
  // Each entry is inside the file. In the order of their bytes they must also follow one another,
  // which the format demands: what nobody describes could hide in a hole.
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.bytes) < std::pair(b.offset, b.bytes);
  });
  std::size_t expected = begin;  // no holes, no overlap, nothing behind the last
  for (const SafetensorsEntry& e : entries_) {
    if (e.offset != expected)
      fail(
          fmt::format("{}: byte {}: \"{}\" begins here, expected at byte {}: tensors follow one "
                      "another without holes",
                      path_, e.offset, e.name, expected));
    expected += e.bytes;
    index_[e.name] = index_.size();
  }
  if (expected != bytes_.size())
    fail(fmt::format("{}: byte {}: the last tensor ends here, found {} more bytes", path_, expected,
                     bytes_.size() - expected));
}

const SafetensorsEntry* Safetensors::find(const std::string& name) const {
  const auto at = index_.find(name);
  return at == index_.end() ? nullptr : &entries_[at->second];
}

const SafetensorsEntry& Safetensors::at(const std::string& name) const {
  if (const SafetensorsEntry* entry = find(name)) return *entry;
  const std::string first = entries_.empty() ? "nothing" : "\"" + entries_.front().name + "\"";
  fail(fmt::format("{}: no tensor \"{}\" among its {} (the first is {})", path_, name,
                   entries_.size(), first));
}

void Safetensors::read(const std::string& name, View to) const {
  read_part(name, to.shape(), 0, to);
}

void Safetensors::read_part(const std::string& name, const Shape& shape, std::int64_t begin,
                            View to) const {
  const SafetensorsEntry& entry = at(name);
  std::vector<std::int64_t> expected;
  for (int d = 0; d < shape.rank(); ++d) expected.push_back(shape[d]);
  if (entry.shape != expected)
    fail(fmt::format("{}: byte {}: \"{}\" has shape {}, expected {}", path_, entry.offset, name,
                     in_words(entry.shape), in_words(expected)));
  if (begin < 0 || to.count() > shape.count() || begin > shape.count() - to.count())
    fail(fmt::format("{}: \"{}\": elements [{}, {}) of {}", path_, name, begin, begin + to.count(),
                     shape.count()));
  const std::uint8_t* from =
      bytes_.data() + entry.offset + static_cast<std::size_t>(begin) * size_of_type(entry.dtype);
  if (entry.dtype == name_of(to.dtype())) {
    if (to.count() > 0) std::memcpy(to.raw(), from, to.bytes());
    return;
  }
  if (!is_one_of(entry.dtype, {"F64", "F32", "BF16", "F16"}) || !is_floating(to.dtype()))
    fail(fmt::format("{}: byte {}: \"{}\" is {}, expected {}", path_, entry.offset, name,
                     entry.dtype, name_of(to.dtype())));
  dispatch(parse_dtype(entry.dtype), [&](auto value) { convert<decltype(value)>(to, from); });
}

bool Safetensors::equal(const std::string& a, const std::string& b) const {
  const SafetensorsEntry &x = at(a), &y = at(b);
  return x.dtype == y.dtype && x.shape == y.shape &&
         std::equal(bytes_.begin() + static_cast<std::ptrdiff_t>(x.offset),
                    bytes_.begin() + static_cast<std::ptrdiff_t>(x.offset + x.bytes),
                    bytes_.begin() + static_cast<std::ptrdiff_t>(y.offset));
}

std::string safetensors_header(const std::string& path, const std::vector<SafetensorsSpec>& specs,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::size_t begin = 0;
  for (const SafetensorsSpec& spec : specs) {
    if (header.contains(spec.name))
      fail(fmt::format("{}: two tensors of the name \"{}\"", path, spec.name));
    const auto count = static_cast<std::size_t>(spec.shape.count());
    const std::size_t end = begin + count * size_of(spec.dtype);
    nlohmann::ordered_json shape = nlohmann::ordered_json::array();
    for (int d = 0; d < spec.shape.rank(); ++d) shape.push_back(spec.shape[d]);
    header[spec.name] = {
        {"dtype", name_of(spec.dtype)}, {"shape", shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = header.empty() ? "{}" : header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data begins at a multiple of 8
  const std::uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsSpec> specs,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), specs_(std::move(specs)), file_(path) {
  const std::string header = safetensors_header(path_, specs_, metadata);
  file_.write(header.data(), header.size());
}

void SafetensorsWriter::append(ConstView value) {
  if (next_ == specs_.size()) fail(path_ + ": one tensor more than was announced");
  const SafetensorsSpec& spec = specs_[next_++];
  if (value.shape() != spec.shape || value.dtype() != spec.dtype)
    fail(fmt::format("{}: \"{}\" was announced as {} {}, found {} {}", path_, spec.name,
                     name_of(spec.dtype), spec.shape.to_string(), name_of(value.dtype()),
                     value.shape().to_string()));
  file_.write(value.raw(), value.bytes());
}

void SafetensorsWriter::commit() {
  if (next_ != specs_.size())
    fail(fmt::format("{}: {} tensors of {} were written", path_, next_, specs_.size()));
  file_.commit();
}

}  // namespace aisc
