#include "hf/rope_config.h"

#include "base/elementary.h"

namespace lockstep::hf {
namespace {

// YaRN's size of sines and cosines, where the folder does not give it.
double yarn_attention_factor(Fields& rope, double factor) {
  const auto size_of = [factor](double scale) {
    return factor <= 1 ? 1.0 : 0.1 * scale * elementary::log(factor) + 1.0;
  };
  const bool both = rope.has("mscale") && rope.has("mscale_all_dim");
  const double scale = rope.positive("mscale", 1.0), all = rope.positive("mscale_all_dim", 1.0);
  return rope.positive("attention_factor", both ? size_of(scale) / size_of(all) : size_of(1.0));
}

void read_yarn(Fields& f, Fields& rope, layout::RopeScaling& r) {
  const char* const original = "original_max_position_embeddings";
  r.original_positions = rope.has(original)
                             ? rope.positive(original)
                             : static_cast<double>(f.size("max_position_embeddings"));
  r.factor = rope.has("factor")
                 ? rope.positive("factor")
                 : static_cast<double>(f.size("max_position_embeddings")) / r.original_positions;
  r.beta_fast = rope.positive("beta_fast", 32.0);
  r.beta_slow = rope.positive("beta_slow", 1.0);
  if (r.beta_fast <= r.beta_slow) rope.fail("beta_fast", "must be above beta_slow");
  r.truncate = rope.flag("truncate", true);
  r.attention_factor = yarn_attention_factor(rope, r.factor);
}

// What `rope`, one of the forms below, says beside its base.
layout::RopeScaling read_scaling(Fields& f, Fields& rope) {
  using layout::RopeType;
  layout::RopeScaling r;
  const std::string older = rope.word("type", "default");
  const std::string type = rope.word("rope_type", older.c_str());
  if (rope.has("type") && older != type)
    f.warn(text("the scaling's type = \"", older, "\" is passed over, as in transformers, for ",
                "rope_type = \"", type, "\" says another"));
  if (type == "llama3") {
    r = {RopeType::kLlama3, rope.positive("factor"), rope.positive("low_freq_factor"),
         rope.positive("high_freq_factor"), rope.positive("original_max_position_embeddings")};
    if (r.high_freq_factor <= r.low_freq_factor)
      rope.fail("high_freq_factor", "must be above low_freq_factor");
  } else if (type == "linear") {
    r.type = RopeType::kLinear;
    r.factor = rope.positive("factor");
  } else if (type == "dynamic") {
    r.type = RopeType::kDynamic;
    r.factor = rope.positive("factor");
    r.original_positions = static_cast<double>(f.size("max_position_embeddings"));
  } else if (type == "yarn") {
    r.type = RopeType::kYarn;
    read_yarn(f, rope, r);
  } else if (type != "default") {
    rope.fail(rope.has("rope_type") ? "rope_type" : "type",
              "is not supported; default, linear, dynamic, yarn and llama3 are");
  }
  return r;
}

// The object f[name] with a base and a scaling. `theta` is what the field `outer_theta` gives.
Result<void> read_rope_object(Fields& f, const nlohmann::json& object, const std::string& name,
                              const char* outer_theta, double& theta,
                              layout::RopeScaling& scaling) {
  if (!object.is_object())
    return Error{Code::kConfig, text(f.where(), ": ", name, " must be an object")};
  Fields rope(object, text(f.where(), ": ", name));
  const double inner = rope.positive("rope_theta", theta);
  if (f.has(outer_theta) && inner != theta)
    f.warn(text(outer_theta, " = ", f.shown(outer_theta), " is passed over, as in transformers, ",
                "for ", name, " has rope_theta = ", rope.shown("rope_theta")));
  theta = inner;
  rope.only("partial_rotary_factor", {1, 1.0});
  scaling = read_scaling(f, rope);
  return rope.finish();
}

constexpr const char* kNoField = "";

// transformers takes an empty object for none.
bool says_something(Fields& f, const char* name) {
  return f.has(name) && !(f.at(name).is_object() && f.at(name).empty());
}

}  // namespace

Result<void> read_rope(Fields& f, layout::DecoderShape& s, double default_theta) {
  s.rope_theta = f.positive("rope_theta", default_theta);
  f.only("partial_rotary_factor", {1, 1.0});
  const bool newer = says_something(f, "rope_parameters"),
             older = says_something(f, "rope_scaling");
  if (!newer && !older) return {};
  if (!older || !newer) {
    const char* const name = newer ? "rope_parameters" : "rope_scaling";
    return read_rope_object(f, f.at(name), name, "rope_theta", s.rope_theta, s.rope_scaling);
  }
  layout::DecoderShape other = s;
  LOCKSTEP_RETURN_IF_ERROR(read_rope_object(f, f.at("rope_parameters"), "rope_parameters", kNoField,
                                            other.rope_theta, other.rope_scaling));
  LOCKSTEP_RETURN_IF_ERROR(read_rope_object(f, f.at("rope_scaling"), "rope_scaling", "rope_theta",
                                            s.rope_theta, s.rope_scaling));
  if (architecture_text(other) == architecture_text(s)) return {};
  f.warn(text("rope_scaling = ", f.shown("rope_scaling"), " is taken, with base ", s.rope_theta,
              ", and rope_parameters = ", f.shown("rope_parameters"),
              " is passed over, as in transformers; take one of them out"));
  return {};
}

Result<void> read_layered_rope(Fields& f, layout::DecoderShape& s) {
  s.rope_theta = f.positive("rope_theta", 1e6);
  s.local_rope_theta = f.positive("rope_local_base_freq", 1e4);
  f.only("partial_rotary_factor", {1, 1.0});
  const bool older = says_something(f, "rope_scaling");
  if (older)
    LOCKSTEP_RETURN_IF_ERROR(read_rope_object(f, f.at("rope_scaling"), "rope_scaling", "rope_theta",
                                              s.rope_theta, s.rope_scaling));
  if (!says_something(f, "rope_parameters")) return {};
  if (older) {
    f.fail("rope_scaling", text("stands next to rope_parameters = ", f.shown("rope_parameters"),
                                ", which versions of transformers join in different ways: take "
                                "one of them out"));
    return {};
  }
  if (!f.at("rope_parameters").is_object()) {
    f.fail("rope_parameters", "must be an object");
    return {};
  }
  Fields by_type(f.at("rope_parameters"), text(f.where(), ": rope_parameters"));
  layout::RopeScaling local;
  if (by_type.has("full_attention"))
    LOCKSTEP_RETURN_IF_ERROR(read_rope_object(f, by_type.at("full_attention"),
                                              "rope_parameters: full_attention", "rope_theta",
                                              s.rope_theta, s.rope_scaling));
  if (by_type.has("sliding_attention"))
    LOCKSTEP_RETURN_IF_ERROR(read_rope_object(f, by_type.at("sliding_attention"),
                                              "rope_parameters: sliding_attention",
                                              "rope_local_base_freq", s.local_rope_theta, local));
  if (local.type != layout::RopeType::kDefault)
    by_type.fail("sliding_attention", "must not have scaling");
  return by_type.finish();
}

}  // namespace lockstep::hf
