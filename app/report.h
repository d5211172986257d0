// The report of a run: one HTML page that needs no network and no other file. It is made from the
// files in report/ (page.html, page.css, chart.js, page.js), which the build puts into the library.
#pragma once

#include <string>

namespace aisc {

// The page that shows `data_json`, an object in UTF-8 of which only `rows` must be there; the page
// shows what it finds. A number may be null (how JSON writes one that is not finite).
//
//   title, command   text
//   status           "running", "done", "stopped" or "failed"
//   steps            of the whole run, done or not
//   unit             what one token is: "byte" or "token"; "": the loss is a sum of several means
//   bytes_per_token  of the validation text; turns nats per token into bits per byte
//   machine          {cores, peak_flops, precision, threads, name, repeated: FLOPs computed over
//                    the model's}
//   config           {group: {key: value}}, shown as tables in this order
//   rows             [{step, loss, learning_rate, gradient_norm, tokens_per_second, utilisation,
//                      seconds, auxiliary_loss, dropped, busiest_expert, validation_loss,
//                      peak_bytes: {purpose: bytes, total}}], in the order of the steps;
//                    auxiliary_loss, dropped and busiest_expert only where layers add to
//                    the loss, validation_loss only where the model was evaluated; a utilisation
//                    that is null or above 1 is of a peak that was disturbed
//   totals           {row_count, seconds, peak_bytes} of all rows, where not all are here
//   parts            {part: seconds of the whole run; on a GPU of the steps that were traced}
//   memory           [{seconds, part, name, live_bytes: {purpose: bytes}}], in the order of time,
//                    over one step: what is alive from then on, and who is at work
//   prompt           text that the samples continue
//   samples          [{step, text}], text without the prompt, in the order of the steps
//   events           [{step, text}], such as "resumed from step 400"
//
// A long run is thinned: at most 2,000 rows without and 2,000 with a validation loss, at most 2,000
// entries of memory and 200 samples of 4,000 bytes stay. First and last stay, and of each group of
// neighbours the lowest and the highest (loss, validation loss, live bytes), so that no spike is
// lost. Medians, sums, peaks and the smoothed loss are computed from all rows before.
// Throws Error if `data_json` is not JSON, not an object, or has no array `rows`.
std::string report_html(const std::string& data_json);

}  // namespace aisc
