"""Tokenizer files with unigram models, in the ways in which transformers writes them.

Models are trained here by `sentencepiece`, with its own normalization rules. Each function of
DEFINITIONS writes its files into a folder and gives (path, function from texts to their ids), as
those of tokenizer_test.py.
"""
import functools
import io

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors

MARK = "\u2581"
SPACES = normalizers.Replace(Regex(" {2,}"), " ")


@functools.cache
def learnt(texts, model_type="unigram", rule="nmt_nfkc", bytes_too=False):
    """The bytes of a SentencePiece model. texts: a tuple."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=out, model_type=model_type, vocab_size=4000,
        normalization_rule_name=rule, byte_fallback=bytes_too, num_threads=1, pad_id=3,
        character_coverage=0.98, hard_vocab_limit=False, minloglevel=2,
        user_defined_symbols=["<sep>"])
    return out.getvalue()


def proto_of(texts, **options):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(learnt(tuple(texts[:3000]), **options))
    return proto


def unigram(proto, first=(), bytes_too=False):
    """A tokenizer with the model of `proto`, `first` put before its pieces."""
    vocab = [(name, 0.0) for name in first] + [(p.piece, p.score) for p in proto.pieces]
    unknown = len(first) + proto.trainer_spec.unk_id
    tokenizer = Tokenizer(models.Unigram(vocab, unk_id=unknown, byte_fallback=bytes_too))
    tokenizer.decoder = decoders.Metaspace(replacement=MARK, prepend_scheme="always")
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    return tokenizer


def metaspace(scheme, split=True):
    return pre_tokenizers.Metaspace(replacement=MARK, prepend_scheme=scheme, split=split)


def words_then(scheme):
    return pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), metaspace(scheme)])


def precompiled(proto):
    return normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)


def save(folder, tokenizer):
    path = folder / "tokenizer.json"
    tokenizer.save(str(path))
    tokenizer = Tokenizer.from_file(str(path))  # which reads the scores in its own way
    return path, lambda texts: [each.ids for each in
                                tokenizer.encode_batch(texts, add_special_tokens=False)]


def t5_json(folder, texts):
    proto = proto_of(texts)
    tokenizer = unigram(proto)
    tokenizer.normalizer = precompiled(proto)
    tokenizer.pre_tokenizer = words_then("always")
    tokenizer.add_special_tokens([f"<extra_id_{i}>" for i in range(10)])
    tokenizer.add_tokens([AddedToken("lorem", normalized=True, single_word=True)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>",
        special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    return save(folder, tokenizer)


def xlm_roberta_json(folder, texts):
    proto = proto_of(texts)
    tokenizer = unigram(proto, first=("<mask>", "<cls>"))
    tokenizer.normalizer = precompiled(proto)
    tokenizer.pre_tokenizer = words_then("never")
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True)])
    return save(folder, tokenizer)


def albert_json(folder, texts):
    proto = proto_of(texts, rule="nmt_nfkc_cf")
    tokenizer = unigram(proto)
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(),
        normalizers.StripAccents(), normalizers.Lowercase(), precompiled(proto), SPACES])
    tokenizer.pre_tokenizer = words_then("always")
    return save(folder, tokenizer)


def pegasus_json(folder, texts):
    proto = proto_of(texts)
    tokenizer = unigram(proto)
    tokenizer.normalizer = normalizers.Sequence([precompiled(proto), SPACES])
    tokenizer.pre_tokenizer = metaspace("always")
    return save(folder, tokenizer)


def converted_json(folder, texts):
    """As convert_slow_tokenizer.py of transformers makes it of any SentencePiece model."""
    proto = proto_of(texts, rule="nfkc")
    tokenizer = unigram(proto)
    tokenizer.normalizer = normalizers.Sequence([
        precompiled(proto), normalizers.Strip(left=False, right=True),
        normalizers.Replace(Regex(" {2,}"), MARK)])
    tokenizer.pre_tokenizer = metaspace("first")
    return save(folder, tokenizer)


def nmt_json(folder, texts):
    tokenizer = unigram(proto_of(texts))
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Nmt(), normalizers.NFKC(), normalizers.Strip(), SPACES,
        normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)])
    return save(folder, tokenizer)


def bytes_json(folder, texts):
    tokenizer = unigram(proto_of(texts, rule="identity", bytes_too=True), bytes_too=True)
    tokenizer.pre_tokenizer = metaspace("first", split=False)
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace(MARK, " "), decoders.ByteFallback(), decoders.Fuse(),
        decoders.Strip(" ", 1, 0)])
    return save(folder, tokenizer)


def model_file(**options):
    def define(folder, texts):
        path = folder / "tokenizer.model"
        path.write_bytes(learnt(tuple(texts[:3000]), **options))
        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return path, processor.encode
    return define


DEFINITIONS = {
    "t5_json": t5_json, "xlm_roberta_json": xlm_roberta_json, "albert_json": albert_json,
    "pegasus_json": pegasus_json, "converted_json": converted_json, "nmt_json": nmt_json,
    "unigram_bytes_json": bytes_json, "sentencepiece_unigram": model_file(),
    "sentencepiece_unigram_bytes": model_file(rule="identity", bytes_too=True),
    "sentencepiece_bpe_bytes": model_file(model_type="bpe", rule="identity", bytes_too=True),
}
