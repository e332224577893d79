"""Models of text: encoders, decoders, sequence to sequence, mixtures of experts, state spaces, recurrent layers."""
import transformers
from torch import nn

from common import Made, Wrapped, tokens


def _logits(net, *inputs):
    return net(*inputs).logits


def masked(config, kind, batch, length):
    """An encoder that predicts each of its tokens."""
    return Made(Wrapped(kind(config), _logits), {"ids": tokens(config.vocab_size, batch, length)}, tokens(config.vocab_size, batch, length))


def causal(config, kind, batch, length):
    config.use_cache = False
    net = Wrapped(kind(config), lambda net, ids: net(input_ids=ids, use_cache=False).logits)
    return Made(net, {"ids": tokens(config.vocab_size, batch, length)}, tokens(config.vocab_size, batch, length))


def bert_base():
    config = transformers.BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return masked(config, transformers.BertForMaskedLM, 4, 128)


def albert_base():
    config = transformers.AlbertConfig(hidden_size=768, num_attention_heads=12, intermediate_size=3072, classifier_dropout_prob=0.0,
                                       hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return masked(config, transformers.AlbertForMaskedLM, 4, 128)


def gpt2():
    config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return causal(config, transformers.GPT2LMHeadModel, 4, 64)


def qwen():
    """Qwen2's layers (grouped queries, RMSNorm, rotary positions) at its 0.5B's width, six of 24."""
    config = transformers.Qwen2Config(vocab_size=32000, hidden_size=896, intermediate_size=4864, num_hidden_layers=6, num_attention_heads=14,
                                      num_key_value_heads=2, tie_word_embeddings=True)
    return causal(config, transformers.Qwen2ForCausalLM, 2, 128)


def qwen_lora():
    """The same with rank-8 adapters by peft; nothing else is trained."""
    import peft
    made = qwen()
    adapters = peft.LoraConfig(r=8, lora_alpha=16, lora_dropout=0.0, target_modules=["q_proj", "v_proj"])
    made.net.net = peft.get_peft_model(made.net.net, adapters)
    for name, parameter in made.net.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(parameter, std=0.02)      # not zeros: the exporter would merge equal parameters
    made.trainable = ("*lora_*",)
    return made


def mixtral():
    """A mixture of eight experts, two a token."""
    config = transformers.MixtralConfig(vocab_size=8192, hidden_size=256, intermediate_size=896, num_hidden_layers=4, num_attention_heads=8,
                                        num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2)
    config._experts_implementation = "batched_mm"     # the only implementation that exports: it gathers weights by token
    return causal(config, transformers.MixtralForCausalLM, 4, 128)


def mamba():
    """Mamba 130M's layers, eight of 24, in the spelling that needs no extension: a loop over tokens."""
    return causal(transformers.MambaConfig(num_hidden_layers=8), transformers.MambaForCausalLM, 2, 64)


def mamba_512():
    """Four layers over 512 tokens, which torch's exporter unrolls in a quarter of an hour. Not in the table."""
    return causal(transformers.MambaConfig(num_hidden_layers=4), transformers.MambaForCausalLM, 1, 512)


def _t5(batch, length, **sizes):
    config = transformers.T5Config(dropout_rate=0.0, use_cache=False, decoder_start_token_id=0, **sizes)
    config._attn_implementation = "eager"     # the other implementation's export cannot reshape its scores with a bias
    net = Wrapped(transformers.T5ForConditionalGeneration(config),
                  lambda net, ids, decoder: net(input_ids=ids, decoder_input_ids=decoder, use_cache=False).logits)
    return Made(net, {"ids": tokens(config.vocab_size, batch, length), "decoder_ids": tokens(config.vocab_size, batch, length)},
                tokens(config.vocab_size, batch, length))


def t5_small():
    return _t5(8, 64)


def t5_base():
    return _t5(2, 128, d_model=768, d_ff=3072, num_layers=12, num_heads=12)


class LanguageLstm(nn.Module):
    """Zaremba et al. 2014's medium model without its dropout: two layers of 650."""

    def __init__(self, vocabulary=10000, width=650, layers=2):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, ids):
        return self.head(self.lstm(self.embedding(ids))[0])


def lstm():
    return Made(LanguageLstm(), {"ids": tokens(10000, 20, 35)}, tokens(10000, 20, 35), optimizer="sgd", lr=1.0)


MODELS = {"bert-base": bert_base, "albert-base": albert_base, "gpt2": gpt2, "qwen2": qwen, "qwen2-lora": qwen_lora, "mixtral": mixtral,
          "mamba": mamba, "mamba-512": mamba_512, "t5-small": t5_small, "t5-base": t5_base, "lstm": lstm}
