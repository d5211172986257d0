#include "13_vision/residual_block.h"

#include "13_vision/pooling.h"
#include "common/nn/sequence.h"

namespace aisc {

std::unique_ptr<Layer> make_filters(const Rank& rank, const std::string& name, ImageSize& images,
                                    std::int64_t out, std::int64_t size, std::int64_t stride,
                                    const NormOfBatch& norm, Ends ends) {
  const FilterSizes sizes{
      .in = images.channels,
      .out = out,
      .size = size,
      .stride = stride,
      .bias = norm.norm == ImageNorm::None ? FilterSizes::Bias::Yes : FilterSizes::Bias::No};
  const auto after = [&](std::int64_t extent) {
    return convolved_size(extent, size, stride, sizes.padding(), sizes.padding());
  };
  images = {out, after(images.height), after(images.width)};
  std::vector<std::unique_ptr<Layer>> layers;
  layers.push_back(std::make_unique<ConvolutionLayer>(rank, name, sizes));
  if (auto layer = make_image_norm(rank, name + ".norm", norm.norm, images, norm.batch))
    layers.push_back(std::move(layer));
  if (ends == Ends::Relu) layers.push_back(std::make_unique<Relu>(rank, name + ".relu"));
  return std::make_unique<Sequence>(rank, name, std::move(layers));
}

ResidualBlock::ResidualBlock(const Rank& rank, const std::string& name, ImageSize& images,
                             std::int64_t out, std::int64_t stride, const NormOfBatch& norm)
    : Layer(rank, name), relu_(std::make_unique<Relu>(rank, name + ".relu")) {
  ImageSize short_way = images;
  const bool same_sizes = stride == 1 && out == images.channels;
  auto first = make_filters(rank, name + ".conv1", images, out, 3, stride, norm, Ends::Relu);
  auto second = make_filters(rank, name + ".conv2", images, out, 3, 1, norm, Ends::Linear);
  path_ = in_sequence(rank, name + ".path", std::move(first), std::move(second));
  if (!same_sizes)
    shortcut_ =
        make_filters(rank, name + ".shortcut", short_way, out, 1, stride, norm, Ends::Linear);
}

std::vector<Parameter*> ResidualBlock::parameters() {
  return joined(path_->parameters(),
                shortcut_ ? shortcut_->parameters() : std::vector<Parameter*>());
}

Tensor ResidualBlock::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const Tensor path = path_->forward(x.share(), saved, pass);
  const Tensor shortcut = shortcut_ ? shortcut_->forward(std::move(x), saved, pass) : std::move(x);
  Tensor sum(path.shape(), path.dtype(), path.device());  // (N, out, I, J)
  ops::add(sum, path, shortcut);
  return relu_->forward(std::move(sum), saved, pass);
}

// A sum hands its gradient to both of its terms; what both then say of x adds up.
Tensor ResidualBlock::backward(Tensor dy, Saved& saved, const Pass& pass) {
  dy = relu_->backward(std::move(dy), saved, pass);
  const Tensor shortcut = shortcut_ ? shortcut_->backward(dy.share(), saved, pass) : dy.share();
  const Tensor path = path_->backward(std::move(dy), saved, pass);
  Tensor dx(path.shape(), path.dtype(), path.device());  // (N, C, H, W)
  ops::add(dx, path, shortcut);
  return dx;
}

}  // namespace aisc
