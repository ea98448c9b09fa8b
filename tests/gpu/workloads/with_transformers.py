"""transformers: a small language model with random weights writes text."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import common


def model(dtype):
    torch.manual_seed(10)
    config = LlamaConfig(vocab_size=6000, hidden_size=768, intermediate_size=2048, num_hidden_layers=8,
                         num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=512, pad_token_id=0,
                         bos_token_id=1, eos_token_id=None)
    return LlamaForCausalLM(config).to("cuda", dtype).eval()


def write(dtype, **how):
    m = model(dtype)
    torch.manual_seed(11)
    prompt = torch.randint(2, 6000, (4, 24), device="cuda")
    with torch.no_grad():
        text = m.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=64, min_new_tokens=64, **how)
    common.result("text", text.cpu().numpy())


def greedy():
    write(torch.float32, do_sample=False)


def sampled():
    write(torch.bfloat16, do_sample=True, temperature=0.9, top_p=0.95)


def beams():
    write(torch.bfloat16, do_sample=False, num_beams=4)


def static_cache():
    write(torch.bfloat16, do_sample=False, cache_implementation="static", disable_compile=True)


if __name__ == "__main__":
    common.run({"greedy": greedy, "sampled": sampled, "beams": beams, "static_cache": static_cache})
