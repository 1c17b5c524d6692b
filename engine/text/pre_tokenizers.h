/* The table of GGUF's pre-tokenizers, one row each. Names are those of tokenizer.ggml.pre;
 * expressions those of the models' own tokenizer.json, each applied to what the previous one left,
 * each match isolated. Included after pre_tokenizer.h by pre_tokenizer.c, and by the test of all
 * rows. */
#ifndef ENGINE_TEXT_PRE_TOKENIZERS_H
#define ENGINE_TEXT_PRE_TOKENIZERS_H

#define PATTERNS_MAX 6

/* Common parts. */
#define SUFFIXES "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS "\\s+(?!\\S)|\\s+"
#define LINES_AND_BLANKS "|\\s*[\\r\\n]+|" BLANKS
#define WORD "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" LINES_AND_BLANKS
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_WORDS(suffixes)                                 \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffixes "|" \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffixes
#define CASED_SIGNS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" LINES_AND_BLANKS

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" BLANKS
#define QWEN2 SUFFIXES WORD "|\\p{N}" SIGNS
#define LLAMA3 SUFFIXES WORD "|\\p{N}{1,3}" SIGNS
#define O200K CASED_WORDS(SUFFIXES "?") "|\\p{N}{1,3}" CASED_SIGNS
#define CJK "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
/* Groups of three digits from the right: a run's first one or two, if it has any left over. */
#define DIGITS_FROM_RIGHT "(?<!\\p{N})\\p{N}{1,2}(?=(?:\\p{N}{3})*+(?!\\p{N}))|\\p{N}{3}"
#define ASIAN                                                                                      \
    "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf" \
    "\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af"  \
    "\u1100-\u11ff]+"
#define DEEPSEEK3                                           \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+" \
    "|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" LINES_AND_BLANKS
/* Letters of scripts with upper and lower case. */
/* clang-format off */
#define CASED_LETTERS \
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕ" \
    "ἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-" \
    "ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
/* clang-format on */
#define HAN "\\p{sc:Han}"
#define KIMI_CASED(set, times) "(?:(?!" HAN ")" set ")" times
#define KIMI                                                                              \
    HAN "+|[^\\r\\n\\p{L}\\p{N}]?" KIMI_CASED(UPPER, "*") KIMI_CASED(LOWER, "+") SUFFIXES \
        "?|[^\\r\\n\\p{L}\\p{N}]?" KIMI_CASED(UPPER, "+") KIMI_CASED(LOWER, "*") SUFFIXES \
        "?"                                                                               \
        "|\\p{N}{1,3}" SIGNS

static const struct row {
    const char *names; /* separated by a blank */
    const char *patterns[PATTERNS_MAX];
    unsigned flags;
} pre_rows[] = {
    /* for files without a name */
    {"default", {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, 0},
    {"gpt-2 gpt2 mpt jais trillion granite-docling phi-2 exaone4 gigachat a.x-4.0 mellum "
     "modern-bert jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code roberta-bpe",
     {GPT2},
     0},
    {"olmo", {GPT2}, PRE_NFC},
    {"starcoder refact command-r smollm codeshell exaone minerva-7b mellum2", {"\\p{N}", GPT2}, 0},
    {"falcon", {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}, 0},
    {"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     {LLAMA3},
     PRE_BOS | PRE_WHOLE},
    {"dbrx smaug-bpe chatglm-bpe", {LLAMA3}, 0},
    {"glm4 glm5", {LLAMA3}, PRE_WHOLE},
    {"qwen2", {QWEN2}, PRE_NFC},
    {"laguna", {"[^\\n]+|\\n+", QWEN2}, 0},
    {"deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", {QWEN2}, 0},
    {"qwen35",
     {SUFFIXES "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| "
               "?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" LINES_AND_BLANKS},
     PRE_NFC},
    {"gpt-4o llama4 kanana2 talkie minimax-m2", {O200K}, 0},
    /* digits in threes from the right, where no letter follows: said of a run's first ones, on
     * which the others follow */
    {"tiny_aya cohere2moe", {"(?<!\\d)\\d{1,3}(?=(?:\\d{3})*+\\b)|\\G(?<=\\d)\\d{3}", O200K}, 0},
    {"tekken", {CASED_WORDS("") "|\\p{N}" CASED_SIGNS}, PRE_BOS | PRE_WHOLE},
    {"deepseek-v3 hunyuan-dense joyai-llm hy_v4", {"\\p{N}{1,3}", CJK, DEEPSEEK3}, 0},
    {"afmoe", {DIGITS_FROM_RIGHT, ASIAN, DEEPSEEK3}, 0},
    /* the run's beginning is said so that a run that is not at the end costs its length once */
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?[" CASED_LETTERS "]+",
      "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", "(?<!\\s)\\s++$",
      "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}"},
     0},
    {"deepseek-coder",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
      "\\p{N}"},
     0},
    {"bailingmoe bailingmoe2 llada-moe",
     {"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
      "|\\s*[\\r\\n]|" BLANKS},
     0},
    {"kimi-k2", {KIMI}, 0},
    {"seed-coder", {SUFFIXES WORD "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" LINES_AND_BLANKS}, 0},
    {"minicpm5", {"\\p{N}{1,3}", SUFFIXES WORD "|\\p{N}+" SIGNS}, PRE_WHOLE},
};

#endif
