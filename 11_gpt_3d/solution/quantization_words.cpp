// A quantization in config.json, and for people.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "11_gpt_3d/coded_weights.h"
#include "common/core/error.h"
#include "formats/json_file.h"

namespace aisc {
namespace {

using nlohmann::json;

// The words of config.json, in the order of the enumerators.
constexpr const char* kSymmetries[] = {"symmetric", "asymmetric"};
constexpr const char* kPers[] = {"tensor", "channel", "group"};

const char* word_of(Symmetry symmetry) { return kSymmetries[static_cast<int>(symmetry)]; }
const char* word_of(Per per) { return kPers[static_cast<int>(per)]; }

class CompressionReader {
 public:
  explicit CompressionReader(const Safetensors& file)
      : path_(file.path()), json_(json::parse(compression_in(file), nullptr, false)) {
    if (json_.is_discarded()) fail(path_ + ": found floating numbers, expected codes");
  }
  template <class E, std::size_t N>
  void read(const char* key, const char* const (&words)[N], E& value) const {
    for (std::size_t i = 0; i < N; ++i)
      if (at(key) == words[i]) {
        value = static_cast<E>(i);
        return;
      }
    refuse(key, fmt::format("one of {}", fmt::join(words, ", ")));
  }
  template <class T>
  void read(const char* key, T& value) const {
    if (!at(key).is_number_integer()) refuse(key, "a whole number");
    value = at(key).get<T>();
  }

 private:
  json at(const char* key) const { return json_.is_object() ? json_.value(key, json()) : json(); }
  [[noreturn]] void refuse(const char* key, const std::string& expected) const {
    fail(fmt::format("{}: config.json: \"compression\": \"{}\": found {}, expected {}", path_, key,
                     at(key).is_null() ? "nothing" : shown(at(key)), expected));
  }

  std::string path_;
  json json_;
};

}  // namespace

std::string words_for(const Quantization& how) {
  const std::string whose = how.per == Per::Tensor ? "a matrix"
                            : how.per == Per::Channel
                                ? "a row"
                                : fmt::format("{} weights of a row", how.group);
  return fmt::format("int{}, {}, a scale for {}", how.bits, word_of(how.symmetry), whose);
}

std::string quantization_json(const Quantization& how) {
  nlohmann::ordered_json j{
      {"bits", how.bits}, {"range", word_of(how.symmetry)}, {"per", word_of(how.per)}};
  if (how.per == Per::Group) j["group"] = how.group;
  return j.dump();
}

Quantization quantization_in(const Safetensors& file) {
  const CompressionReader compression(file);
  Quantization how;
  compression.read("bits", how.bits);
  compression.read("range", kSymmetries, how.symmetry);
  compression.read("per", kPers, how.per);
  if (how.per == Per::Group) compression.read("group", how.group);
  how.validate();
  return how;
}

}  // namespace aisc
