// What Hugging Face's BERT computed (tests/fixtures/bert), and parameters of BERT without a model.
#pragma once

#include <algorithm>
#include <list>
#include <stdexcept>
#include <string>
#include <vector>

#include "formats/bert_weights.h"

namespace aisc {

inline std::string bert_fixture(const std::string& name) {
  return std::string(AISC_SOURCE_DIR) + "/tests/fixtures/bert/" + name;
}

// The parameters of a BERT of these sizes, with memory; nothing computes with them. The table and
// head.bias have config.table_rows() rows.
class BertStore {
 public:
  BertStore(Device& device, const GptConfig& config, DType dtype)
      : config_(config), parameters_(declared(config)), store_(device, units(), {dtype, dtype}) {}
  // With the values of a file. What it lacks stays as new memory is.
  BertStore(Device& device, const GptConfig& config, DType dtype, const Safetensors& file)
      : BertStore(device, config, dtype) {
    const BertFile weights(file, config);
    std::vector<std::string> missing = weights.missing();
    for (const Parameter* p : store_.parameters())
      if (std::find(missing.begin(), missing.end(), p->name) == missing.end())
        weights.read(p->name, p->value());
  }

  const ParameterStore& store() const { return store_; }
  ParameterStore& store() { return store_; }
  const GptConfig& config() const { return config_; }
  const Parameter& at(const std::string& name) const {
    for (const Parameter& p : parameters_)
      if (p.name == name) return p;
    throw std::runtime_error("no parameter " + name);
  }

 private:
  static std::list<Parameter> declared(const GptConfig& config) {
    std::list<Parameter> all;
    for (const std::string& name : bert_parameters(config)) {
      Shape shape = bert_tensors(name, config).stacked();
      if (name == "wte.weight" || name == "head.bias") shape = shape.with(0, config.table_rows());
      all.push_back(whole_parameter(name, shape, Init::normal(1), false));
    }
    return all;
  }
  std::vector<Unit> units() {
    Unit unit{"all", {}};
    for (Parameter& p : parameters_) unit.parameters.push_back(&p);
    return {unit};
  }

  GptConfig config_;
  std::list<Parameter> parameters_;
  ParameterStore store_;
};

}  // namespace aisc
