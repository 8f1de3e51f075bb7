// The files of a tokenizer as a Hugging Face folder has them.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lockstep::hf {

using NamedFiles = std::vector<std::pair<std::string, std::string>>;  // name and contents

// The files that a prepared folder keeps of its tokenizer, under the names, and with the
// tokenizer_config.json, by which transformers' AutoTokenizer finds the class that reads them,
// whatever the model is. `end_of_document`: the name of that token; "": it has none.
NamedFiles for_transformers(NamedFiles files, const std::string& end_of_document);

}  // namespace lockstep::hf
