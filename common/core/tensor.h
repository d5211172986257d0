// Tensors own memory on a device; views look at it. All are contiguous and row-major.
#pragma once

#include <memory>
#include <span>

#include "common/core/device.h"
#include "common/core/dtype.h"
#include "common/core/shape.h"

namespace aisc {

// Looks at elements that it must not change. Does not own them: whoever makes a view sees to it
// that the tensor lives longer. A default-constructed view is empty (`!view`).
class ConstView {
 public:
  ConstView() = default;
  ConstView(const void* data, const Shape& shape, DType dtype, Device& device)
      : data_(const_cast<void*>(data)), shape_(shape), dtype_(dtype), device_(&device) {}

  explicit operator bool() const { return device_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  Device& device() const { return *device_; }
  std::int64_t count() const { return device_ ? shape_.count() : 0; }
  std::size_t bytes() const { return static_cast<std::size_t>(count()) * size_of(dtype_); }
  const void* raw() const { return data_; }

  // The elements as C++ values; throws Error if T is not the dtype, or they are on a GPU.
  template <class T>
  const T* data() const {
    require(DTypeOf<T>::value);
    return static_cast<const T*>(data_);
  }
  template <class T>
  std::span<const T> values() const {
    return {data<T>(), static_cast<std::size_t>(count())};
  }

  // Rows [begin, end) of dimension 0, no copy. Throws Error outside [0, shape[0]].
  ConstView rows(std::int64_t begin, std::int64_t end) const;
  // The same elements under another shape of the same count; throws Error otherwise.
  ConstView reshaped(const Shape& shape) const;
  // Elements [begin, begin + count) of the flattened tensor, as a vector. Throws Error.
  ConstView flat(std::int64_t begin, std::int64_t count) const;

 protected:
  void require(DType dtype) const;

  void* data_ = nullptr;
  Shape shape_;
  DType dtype_ = DType::F32;
  Device* device_ = nullptr;
};

// The same for elements that may be written.
class View : public ConstView {
 public:
  View() = default;
  View(void* data, const Shape& shape, DType dtype, Device& device)
      : ConstView(data, shape, dtype, device) {}

  void* raw() const { return data_; }
  template <class T>
  T* data() const {
    require(DTypeOf<T>::value);
    return static_cast<T*>(data_);
  }
  template <class T>
  std::span<T> values() const {
    return {data<T>(), static_cast<std::size_t>(count())};
  }
  View rows(std::int64_t begin, std::int64_t end) const;
  View reshaped(const Shape& shape) const;
  View flat(std::int64_t begin, std::int64_t count) const;

 private:
  explicit View(const ConstView& view) : ConstView(view) {}
};

// Owns its elements, uninitialised at first. Moves; never copies silently: share() is one more
// owner of the same elements, clone() a copy of them. The memory goes back to the device with the
// last owner.
class Tensor {
 public:
  Tensor() = default;  // owns nothing; `!tensor`
  Tensor(const Shape& shape, DType dtype, Device& device, Purpose purpose = Purpose::Activations);
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;

  static Tensor zeros(const Shape& shape, DType dtype, Device& device,
                      Purpose purpose = Purpose::Activations);

  Tensor share() const;
  Tensor clone() const;  // same purpose
  int owners() const { return static_cast<int>(storage_.use_count()); }
  // This owner under another shape of the same count: `std::move(x).reshaped({N, C})`.
  Tensor reshaped(const Shape& shape) &&;

  explicit operator bool() const { return storage_ != nullptr; }
  const Shape& shape() const { return view_.shape(); }
  DType dtype() const { return view_.dtype(); }
  Device& device() const { return view_.device(); }
  std::int64_t count() const { return view_.count(); }
  std::size_t bytes() const { return view_.bytes(); }
  template <class T>
  T* data() const {
    return view_.data<T>();
  }
  template <class T>
  std::span<T> values() const {
    return view_.values<T>();
  }

  View view() const { return view_; }
  operator View() const { return view_; }
  operator ConstView() const { return view_; }
  View rows(std::int64_t begin, std::int64_t end) const { return view_.rows(begin, end); }

 private:
  struct Storage;

  std::shared_ptr<Storage> storage_;
  View view_;
};

}  // namespace aisc
