// A checkpoint's weights as a folder that transformers loads.
//
//   model.safetensors, or model-00001-of-0000N.safetensors … and model.safetensors.index.json
//   tokenizer and generation files, as they were; of a chat its template, and the token at which an
//   answer ends among those at which transformers stops
//   config.json, last: a folder without it is not complete
//
// Of a run that trained adapters: the base model's weights with the adapters added; or, with
// `adapters_alone`, adapter_model.safetensors and, last, adapter_config.json, which PEFT loads.
// Tensors have the names and shapes of ModelSpec; at most kWindowElements of one are in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/result.h"
#include "hf/tokenizer_files.h"
#include "layout/model_spec.h"

namespace lockstep::hf {

struct HfExport {
  std::filesystem::path checkpoint;  // directory with its manifest
  std::filesystem::path folder;      // to make; has no config.json yet
  std::filesystem::path assets;      // folder with config.json and tokenizer; "": made from `spec`
  NamedFiles tokenizer;              // that of the data, in place of that of `assets`
  bool carry_tokenizer = false;      // that of `assets`
  std::string chat_template;   // in Jinja, in place of that of the tokenizer's files; "": none
  std::vector<uint32_t> ends;  // tokens at which an answer ends: generation stops there too
  layout::ModelSpec spec;
  Config::Lora lora;            // of the spec's adapters
  bool adapters_alone = false;  // requires adapters
  bool random_base = false;     // the weights beside the adapters were never in a folder
  FloatType dtype = FloatType::kFloat32;
  int64_t seq_len = 0;                     // max_position_embeddings of a config.json that is made
  int threads = 2;                         // decoding threads
  int64_t max_file_bytes = 5'000'000'000;  // transformers' own limit of a shard
};
struct HfExportReport {
  int64_t files = 0, tensors = 0, bytes = 0;
};
// Errors: kConfig (the folder is in use; the checkpoint is of another model), kCorrupt, kIo,
// kNoSpace.
Result<HfExportReport> export_to_hf(FileSystem& file_system, const HfExport& job);

}  // namespace lockstep::hf
