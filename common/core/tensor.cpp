#include "common/core/tensor.h"

#include <utility>

namespace aisc {

struct Tensor::Storage {
  Storage(std::size_t bytes_, Device& device_, Purpose purpose_)
      : device(device_), bytes(bytes_), purpose(purpose_), block(device.allocate(bytes, purpose)) {}
  ~Storage() { device.release(block, bytes, purpose); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device& device;
  std::size_t bytes;
  Purpose purpose;
  void* block;
};

void ConstView::require(DType dtype) const {
  if (dtype != dtype_)
    fail(std::string("a tensor of ") + name_of(dtype_) + " was read as " + name_of(dtype));
  if (device_ && device_->kind() == DeviceKind::Meta)
    fail(std::string("a tensor on ") + device_->name() +
         " has no values to read: this is a run without numbers (meta)");
  if (device_ && device_->kind() != DeviceKind::Cpu)
    fail(std::string("a tensor on ") + device_->name() + " was read by the host; copy it first");
}

ConstView ConstView::rows(std::int64_t begin, std::int64_t end) const {
  if (begin < 0 || begin > end || end > shape_[0])
    fail("rows [" + std::to_string(begin) + ", " + std::to_string(end) + ") of a tensor of shape " +
         shape_.to_string());
  const std::int64_t row = shape_[0] > 0 ? shape_.count() / shape_[0] : 0;
  const auto offset = static_cast<std::size_t>(begin * row) * size_of(dtype_);
  return {static_cast<const std::byte*>(data_) + offset, shape_.with(0, end - begin), dtype_,
          *device_};
}

ConstView ConstView::reshaped(const Shape& shape) const {
  if (shape.count() != shape_.count())
    fail("a tensor of shape " + shape_.to_string() + " cannot be seen as " + shape.to_string());
  return {data_, shape, dtype_, *device_};
}

ConstView ConstView::flat(std::int64_t begin, std::int64_t count) const {
  return reshaped({shape_.count()}).rows(begin, begin + count);
}

View View::rows(std::int64_t begin, std::int64_t end) const {
  return View(ConstView::rows(begin, end));
}

View View::reshaped(const Shape& shape) const { return View(ConstView::reshaped(shape)); }

View View::flat(std::int64_t begin, std::int64_t count) const {
  return View(ConstView::flat(begin, count));
}

Tensor::Tensor(const Shape& shape, DType dtype, Device& device, Purpose purpose) {
  const auto bytes = static_cast<std::size_t>(shape.count()) * size_of(dtype);
  storage_ = std::make_shared<Storage>(bytes, device, purpose);
  view_ = View(storage_->block, shape, dtype, device);
}

Tensor::Tensor(Tensor&& other) noexcept
    : storage_(std::move(other.storage_)), view_(std::exchange(other.view_, View())) {}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  storage_ = std::move(other.storage_);
  view_ = std::exchange(other.view_, View());
  return *this;
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device& device, Purpose purpose) {
  Tensor tensor(shape, dtype, device, purpose);
  device.zero(tensor);
  return tensor;
}

Tensor Tensor::share() const {
  Tensor other;
  other.storage_ = storage_;
  other.view_ = view_;
  return other;
}

Tensor Tensor::clone() const {
  if (!storage_) return Tensor();
  Tensor copy(shape(), dtype(), device(), storage_->purpose);
  device().copy(copy, view_);
  return copy;
}

Tensor Tensor::reshaped(const Shape& shape) && {
  Tensor other = std::move(*this);
  other.view_ = other.view_.reshaped(shape);
  return other;
}

}  // namespace aisc
