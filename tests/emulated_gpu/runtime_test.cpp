// Streams, events, memory and copies of the emulated CUDA runtime.
#include <gmock/gmock.h>

#include <thread>

#include "emulated_gpu/gpu.h"

namespace aisc::emulated_gpu {
namespace {

using testing::HasSubstr;

// Streams begin each operation late: what is not waited for is not there.
class LateStreams : public testing::Test {
 protected:
  LateStreams() {
    cudaStreamCreateWithFlags(&first_, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&second_, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&event_, cudaEventDisableTiming);
    cudaHostAlloc(&pinned_, 4 * sizeof(int), cudaHostAllocPortable);
    std::fill_n(pinned_, 4, 7);
  }
  ~LateStreams() override {
    cudaStreamSynchronize(first_);
    cudaStreamSynchronize(second_);
    cudaFreeHost(pinned_);
    cudaEventDestroy(event_);
    cudaStreamDestroy(first_);
    cudaStreamDestroy(second_);
    cudaDeviceReset();
  }

  Array<int> device_{4, 1};
  Setting<int> delay_{runtime().settings.delay_us, 20'000};
  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int* pinned_ = nullptr;
};

__global__ void add_to(int* values, int amount) { values[threadIdx.x] += amount; }

TEST_F(LateStreams, AStreamPerformsInOrder) {
  cudaMemcpyAsync(device_.data(), pinned_, 16, cudaMemcpyHostToDevice, first_);
  launch_on(first_, 1, 4, 0, add_to, device_.data(), 5);
  cudaMemcpyAsync(pinned_, device_.data(), 16, cudaMemcpyDeviceToHost, first_);
  EXPECT_EQ(cudaStreamQuery(first_), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(first_), cudaSuccess);
  EXPECT_EQ(pinned_[3], 12);
}

TEST_F(LateStreams, AnEventOrdersTwoStreams) {
  launch_on(first_, 1, 4, 0, add_to, device_.data(), 1);
  cudaEventRecord(event_, first_);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  cudaStreamWaitEvent(second_, event_);
  cudaMemcpyAsync(pinned_, device_.data(), 16, cudaMemcpyDeviceToHost, second_);
  cudaStreamSynchronize(second_);
  EXPECT_EQ(pinned_[0], 2);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
}

// Without the event the second stream, which has less to do, comes first.
TEST_F(LateStreams, AForgottenEventShows) {
  for (int i = 0; i < 3; ++i) launch_on(first_, 1, 4, 0, add_to, device_.data(), 1);
  cudaMemcpyAsync(pinned_, device_.data(), 16, cudaMemcpyDeviceToHost, second_);
  cudaStreamSynchronize(second_);
  const int seen = pinned_[0];
  cudaStreamSynchronize(first_);
  EXPECT_LT(seen, 4);
}

// A wait is for what was recorded when it was asked for.
TEST_F(LateStreams, RecordingAgainDoesNotMoveAnEarlierWait) {
  launch_on(first_, 1, 4, 0, add_to, device_.data(), 1);
  cudaEventRecord(event_, first_);
  cudaStreamWaitEvent(second_, event_);
  cudaLaunchHostFunc(
      first_, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(200)); }, nullptr);
  cudaEventRecord(event_, first_);
  cudaStreamSynchronize(second_);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
}

TEST_F(LateStreams, PageableMemoryIsReadAtOnceAndPinnedMemoryLater) {
  std::vector<int> pageable(4, 3);
  cudaMemcpyAsync(device_.data(), pageable.data(), 16, cudaMemcpyHostToDevice, first_);
  pageable.assign(4, 4);
  cudaStreamSynchronize(first_);
  EXPECT_EQ(device_.values()[0], 3);

  cudaMemcpyAsync(device_.data(), pinned_, 16, cudaMemcpyHostToDevice, first_);
  std::fill_n(pinned_, 4, 9);
  cudaStreamSynchronize(first_);
  EXPECT_EQ(device_.values()[0], 9);

  std::vector<int> back(4);
  cudaMemcpyAsync(back.data(), device_.data(), 16, cudaMemcpyDeviceToHost, first_);
  EXPECT_EQ(back[0], 9);  // without waiting
}

TEST_F(LateStreams, ADestroyedStreamStillPerformsWhatWasAsked) {
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  launch_on(stream, 1, 4, 0, add_to, device_.data(), 1);
  cudaStreamDestroy(stream);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(device_.values()[0], 2);
}

TEST_F(LateStreams, AFailedKernelFailsWhatFollowsButNobodyHangs) {
  launch_on(
      first_, 1, 1, 0, +[] { __trap(); });
  launch_on(first_, 1, 4, 0, add_to, device_.data(), 1);
  cudaEventRecord(event_, first_);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaEventSynchronize(event_), cudaErrorLaunchFailure);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("thread (0, 0, 0): __trap()"));
  EXPECT_EQ(cudaStreamSynchronize(second_), cudaErrorLaunchFailure);
  cudaDeviceReset();
  EXPECT_EQ(device_.values()[0], 1);
}

// ---- memory -------------------------------------------------------------------------------------

TEST(Memory, IsCountedAndEnds) {
  std::size_t free = 0;
  std::size_t total = 0;
  cudaMemGetInfo(&free, &total);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, free + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(memory, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  ASSERT_EQ(cudaMalloc(&memory, 1000), cudaSuccess);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 256, 0u);
  std::size_t less = 0;
  cudaMemGetInfo(&less, &total);
  EXPECT_EQ(less, free - 1000);
  cudaFree(memory);
  cudaMemGetInfo(&less, &total);
  EXPECT_EQ(less, free);
}

TEST(Memory, OfTheHostThatIsPinnedIsADevicesToo) {
  int* pinned = nullptr;
  cudaHostAlloc(&pinned, 16, cudaHostAllocMapped);
  void* seen_by_device = nullptr;
  EXPECT_EQ(cudaHostGetDevicePointer(&seen_by_device, pinned, 0), cudaSuccess);
  EXPECT_EQ(seen_by_device, pinned);
  cudaFreeHost(pinned);
}

// What a call says; it must be refused as an invalid value.
template <class Call>
std::string refusal(Call call) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(call(), cudaErrorInvalidValue);
  cudaGetLastError();
  return testing::internal::GetCapturedStderr();
}

TEST(Memory, WrongCopiesAreRefused) {
  Array<int> device(4);
  std::vector<int> host(8);
  int* gone = nullptr;
  cudaMalloc(&gone, 16);
  cudaFree(gone);
  EXPECT_THAT(refusal([&] { return cudaMemcpy(gone, host.data(), 16, cudaMemcpyHostToDevice); }),
              HasSubstr("the destination is not memory of a device"));
  EXPECT_THAT(
      refusal([&] { return cudaMemcpy(host.data(), device.data(), 16, cudaMemcpyHostToDevice); }),
      HasSubstr("cudaMemcpy: the destination is not memory of a device"));
  EXPECT_THAT(
      refusal([&] { return cudaMemcpy(host.data(), device.data(), 20, cudaMemcpyDeviceToHost); }),
      HasSubstr("source: 20 bytes at byte 0 of memory of 16 bytes"));
  EXPECT_THAT(refusal([&] { return cudaMemsetAsync(host.data(), 0, 4); }),
              HasSubstr("not memory of a device"));
  EXPECT_THAT(refusal([&] { return cudaFree(host.data()); }), HasSubstr("not what was allocated"));
}

TEST(Memory, PeersNeedLeave) {
  Array<int> mine(4, 5);
  cudaSetDevice(1);
  {
    Array<int> other(4);
    EXPECT_THAT(refusal([&] {
                  return cudaMemcpyAsync(other.data(), mine.data(), 16, cudaMemcpyDefault, nullptr);
                }),
                HasSubstr("memory of device 0, to which device 1 has no peer access"));
    EXPECT_EQ(cudaMemcpyPeerAsync(other.data(), 1, mine.data(), 0, 16, nullptr), cudaSuccess);
    EXPECT_EQ(other.values()[0], 5);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
    EXPECT_EQ(cudaMemcpyAsync(other.data(), mine.data(), 16, cudaMemcpyDefault, nullptr),
              cudaSuccess);
    cudaDeviceSynchronize();
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    cudaDeviceDisablePeerAccess(0);
    cudaGetLastError();
  }
  cudaSetDevice(0);
}

TEST(Devices, AStreamOfAnotherDeviceIsRefused) {
  int count = 0;
  ASSERT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  ASSERT_GE(count, 2);
  EXPECT_EQ(cudaSetDevice(count), cudaErrorInvalidDevice);
  Array<int> values(4);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  cudaSetDevice(1);
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch_on(stream, 1, 4, 0, add_to, values.data(), 1), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("add_to(int*, int): the stream belongs to device 0, current is 1"));
  cudaSetDevice(0);
  cudaStreamDestroy(stream);
  cudaEventDestroy(event);
  cudaGetLastError();
}

}  // namespace
}  // namespace aisc::emulated_gpu
