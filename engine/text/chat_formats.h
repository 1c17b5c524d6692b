/* The built-in chat formats, as templates: those of --chat-template. The names are llama.cpp's, the
 * formats those of the models' own files (tests/golden/templates/formats.json has their results for
 * a conversation). The first one is also the default for a model without a template. Plain data;
 * any thread. */
#ifndef ENGINE_TEXT_CHAT_FORMATS_H
#define ENGINE_TEXT_CHAT_FORMATS_H

/* name, template */
/* clang-format off */
#define CHAT_FORMATS(X)                                                                          \
    X("phi3", "{% for message in messages %}{{'<|' + message['role'] + '|>' + '\n' + "           \
      "message['content'] + '<|end|>\n' }}{% endfor %}"                                          \
      "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token "             \
      "}}{% endif %}")                                                                           \
    X("chatml", "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "     \
      "message['content'] + '<|im_end|>\n' }}{% endfor %}"                                       \
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")                \
    X("llama3", "{{ bos_token }}{% for message in messages %}{{ '<|start_header_id|>' + "        \
      "message['role'] + '<|end_header_id|>\n\n' + "                                             \
      "message['content'] | trim + '<|eot_id|>' }}{% endfor %}"                                  \
      "{% if add_generation_prompt %}{{ "                                                        \
      "'<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}")                       \
    X("gemma", "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] " \
      "+ '\n\n' %}{% set rest = messages[1:] %}"                                                 \
      "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}{{ "                   \
      "bos_token }}{% for message in rest %}"                                                    \
      "{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else "                  \
      "message['role']) + '\n' }}"                                                               \
      "{% if loop.first %}{{ system }}{% endif %}{{ message['content'] | trim + "                \
      "'<end_of_turn>\n' }}{% endfor %}"                                                         \
      "{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}")                 \
    X("mistral-v3-tekken",                                                                       \
      "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] "          \
      "+ '\n\n' %}{% set rest = messages[1:] %}"                                                 \
      "{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}{{ "                   \
      "bos_token }}{% for message in rest %}"                                                    \
      "{% if message['role'] == 'user' %}{{ '[INST]' }}{% if loop.last %}{{ system "             \
      "}}{% endif %}{{ message['content'] + '[/INST]' }}"                                        \
      "{% else %}{{ message['content'] + eos_token }}{% endif %}{% endfor %}")                   \
    X("mistral-v7-tekken",                                                                       \
      "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"         \
      "{{ '[SYSTEM_PROMPT]' + message['content'] + '[/SYSTEM_PROMPT]' }}{% elif "                \
      "message['role'] == 'user' %}"                                                             \
      "{{ '[INST]' + message['content'] + '[/INST]' }}{% else %}{{ message['content'] "          \
      "+ eos_token }}{% endif %}{% endfor %}")                                                   \
    X("deepseek3",                                                                               \
      "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' "           \
      "%}{{ message['content'] }}{% elif message['role'] == 'user' %}"                           \
      "{{ '<｜User｜>' + message['content'] }}{% else %}{{ '<｜Assistant｜>' + "                     \
      "message['content'] + '<｜end▁of▁sentence｜>' }}{% endif %}{% endfor %}"                     \
      "{% if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}")                          \
    X("granite", "{% for message in messages %}{{ '<|start_of_role|>' + message['role'] + "      \
      "'<|end_of_role|>' + message['content'] + '<|end_of_text|>\n' }}{% endfor %}"              \
      "{% if add_generation_prompt %}{{ '<|start_of_role|>assistant<|end_of_role|>' "            \
      "}}{% endif %}")                                                                           \
    X("kimi-k2", "{% for message in messages %}{{ '<|im_' + message['role'] + '|>' + "           \
      "message['role'] + '<|im_middle|>' + message['content'] + '<|im_end|>' }}"                 \
      "{% endfor %}{% if add_generation_prompt %}{{ "                                            \
      "'<|im_assistant|>assistant<|im_middle|>' }}{% endif %}")
/* clang-format on */

/* "|phi3|chatml|…", for a table of options */
#define CHAT_FORMAT_WORD(name, text) "|" name
#define CHAT_FORMAT_WORDS CHAT_FORMATS(CHAT_FORMAT_WORD)

#endif
