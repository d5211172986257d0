// Streams and events.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "emulated_gpu/runtime.h"

using aisc::emulated_gpu::complain;
using aisc::emulated_gpu::current_device;
using aisc::emulated_gpu::Device;
using aisc::emulated_gpu::device_error;
using aisc::emulated_gpu::device_of;
using aisc::emulated_gpu::finish;
using aisc::emulated_gpu::Operation;
using aisc::emulated_gpu::runtime;
using aisc::emulated_gpu::stream_of;

// ---- the thread of a stream ---------------------------------------------------------------------

std::uint64_t CUstream_st::enqueue(Operation operation) {
  const std::lock_guard lock(mutex_);
  if (!started_) {
    started_ = true;
    std::thread([self = shared_from_this()] { self->work(); }).detach();
  }
  queue_.push_back(std::move(operation));
  changed_.notify_all();
  return ++enqueued_;
}

void CUstream_st::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !queue_.empty() || closed_; });
    if (queue_.empty()) break;
    {
      const Operation operation = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      if (const int delay_us = runtime().settings.delay_us; delay_us > 0)
        std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
      auto& error = device_of(device).error;
      if (error == cudaSuccess || operation.even_after_failure) {
        cudaError_t none = cudaSuccess;
        const cudaError_t found = operation.run();
        if (found != cudaSuccess) error.compare_exchange_strong(none, found);
      }
    }  // what the operation holds is let go of before it counts as performed
    lock.lock();
    ++performed_;
    changed_.notify_all();
  }
  lock.unlock();
  device_of(device).remove(this);
}

void CUstream_st::wait(std::uint64_t number) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return performed_ >= number; });
}

void CUstream_st::wait_for_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&, last = enqueued_] { return performed_ >= last; });
}

bool CUstream_st::idle() {
  const std::lock_guard lock(mutex_);
  return performed_ == enqueued_;
}

void CUstream_st::close() {
  std::unique_lock lock(mutex_);
  closed_ = true;
  changed_.notify_all();
  const bool started = started_;
  lock.unlock();
  if (!started) device_of(device).remove(this);
}

namespace aisc::emulated_gpu {

std::shared_ptr<CUstream_st> Device::default_stream(int number) {
  const std::lock_guard lock(mutex_);
  if (default_ == nullptr) {
    default_ = std::make_shared<CUstream_st>(number, cudaStreamDefault);
    streams_.push_back(default_);
  }
  return default_;
}

void Device::add(const std::shared_ptr<CUstream_st>& stream) {
  const std::lock_guard lock(mutex_);
  streams_.push_back(stream);
}

void Device::remove(const CUstream_st* stream) {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const auto& other) { return other.get() == stream; });
}

std::vector<std::shared_ptr<CUstream_st>> Device::streams() {
  const std::lock_guard lock(mutex_);
  return streams_;
}

void Device::wait_for_all() {
  for (const auto& stream : streams()) stream->wait_for_all();
}

CUstream_st& stream_of(cudaStream_t stream) {
  if (stream != nullptr) return *stream;
  return *device_of(current_device()).default_stream(current_device());
}

}  // namespace aisc::emulated_gpu

// ---- events -------------------------------------------------------------------------------------

void CUevent_st::Record::complete() {
  const std::lock_guard lock(mutex);
  is_done = true;
  changed.notify_all();
}

void CUevent_st::Record::wait() {
  std::unique_lock lock(mutex);
  changed.wait(lock, [this] { return is_done; });
}

bool CUevent_st::Record::done() {
  const std::lock_guard lock(mutex);
  return is_done;
}

std::shared_ptr<CUevent_st::Record> CUevent_st::record() {
  const std::lock_guard lock(mutex_);
  return record_;
}

void CUevent_st::set_record(std::shared_ptr<Record> record) {
  const std::lock_guard lock(mutex_);
  record_ = std::move(record);
}

// ---- the runtime's functions --------------------------------------------------------------------

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* pStream, unsigned flags) {
  if (pStream == nullptr || flags > cudaStreamNonBlocking) return finish(cudaErrorInvalidValue);
  const auto stream = std::make_shared<CUstream_st>(current_device(), flags);
  device_of(current_device()).add(stream);
  *pStream = stream.get();
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* pStream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(pStream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return finish(cudaErrorInvalidResourceHandle);
  stream->close();  // returns at once; what is queued is still performed
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUstream_st& it = stream_of(stream);
  it.wait_for_all();
  return finish(device_error(it.device));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  CUstream_st& it = stream_of(stream);
  if (const auto error = device_error(it.device); error != cudaSuccess) return finish(error);
  return it.idle() ? cudaSuccess : finish(cudaErrorNotReady);
}

cudaError_t cudaDeviceSynchronize() {
  device_of(current_device()).wait_for_all();
  return finish(device_error(current_device()));
}

cudaError_t cudaDeviceReset() {
  device_of(current_device()).wait_for_all();
  device_of(current_device()).error = cudaSuccess;
  cudaGetLastError();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  if (event == nullptr) return finish(cudaErrorInvalidResourceHandle);
  if (flags != 0) return finish(cudaErrorInvalidValue);
  const auto record = event->record();
  if (record == nullptr || record->done()) return cudaSuccess;
  stream_of(stream).enqueue({[record] {
                               record->wait();
                               return cudaSuccess;
                             },
                             true});
  return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void* userData) {
  if (fn == nullptr) return finish(cudaErrorInvalidValue);
  CUstream_st& it = stream_of(stream);
  if (const auto error = device_error(it.device); error != cudaSuccess) return finish(error);
  it.enqueue({[fn, userData] {
    fn(userData);
    return cudaSuccess;
  }});
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (event == nullptr || flags > 7) return finish(cudaErrorInvalidValue);
  *event = new CUevent_st;
  (*event)->device = current_device();
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event == nullptr) return finish(cudaErrorInvalidResourceHandle);
  delete event;  // a record that is still to come holds itself
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (event == nullptr) return finish(cudaErrorInvalidResourceHandle);
  CUstream_st& it = stream_of(stream);
  if (it.device != event->device)
    return complain(cudaErrorInvalidResourceHandle,
                    fmt::format("cudaEventRecord: the event belongs to device {}, the stream to {}",
                                event->device, it.device));
  auto record = std::make_shared<CUevent_st::Record>();
  event->set_record(record);
  it.enqueue({[record] {
                record->complete();
                return cudaSuccess;
              },
              true});
  return finish(device_error(it.device));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event == nullptr) return finish(cudaErrorInvalidResourceHandle);
  if (const auto record = event->record()) record->wait();
  return finish(device_error(event->device));
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event == nullptr) return finish(cudaErrorInvalidResourceHandle);
  if (const auto error = device_error(event->device); error != cudaSuccess) return finish(error);
  const auto record = event->record();
  return record == nullptr || record->done() ? cudaSuccess : finish(cudaErrorNotReady);
}

}  // extern "C"
