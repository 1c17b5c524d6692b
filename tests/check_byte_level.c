/* Byte-level tokenizers: a small one made by hand, as tokenizer.json and as GGUF. Where the
 * pre-tokenizers cut, every row of their table; what a split does with a match; hostile patterns;
 * any bytes there and back. The real vocabularies' cases are in check_tokenizer.c. */
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/file/weights.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/pre_tokenizers.h"
#include "engine/text/tokenizer.h"
#include "tests/build_file.h"
#include "tests/byte_level.h"
#include "tests/support.h"

#include <stdbool.h>

struct fixture {
    struct weight_file *file;
    struct tokenizer *t;
};

#define BYTE_LEVEL(regex) \
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": " regex "}"
#define PLAIN "\"pre_tokenizer\": " BYTE_LEVEL("true") ", \"decoder\": {\"type\": \"ByteLevel\"}, "
#define SPLIT(pattern, rest)                                                                 \
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", " \
    "\"pattern\": " pattern ", " rest "}, " BYTE_LEVEL("false") "]}, "
#define REGEX(text) "{\"Regex\": \"" text "\"}"
#define ISOLATED "\"behavior\": \"Isolated\", \"invert\": false"

static int load(struct fixture *x, const char *path, struct error *e)
{
    int status = weight_file_open(&x->file, path, true, e);

    x->t = NULL;
    return status < 0 ? status : tokenizer_load(&x->t, x->file, e);
}

/* before and model: see byte_level_json. */
static int load_json(struct fixture *x, const char *before, const char *model, struct error *e)
{
    const char *dir = support_tmpdir();
    char *json = byte_level_json(before, model);

    support_put(dir, "config.json", "{\"model_type\": \"qwen3_moe\"}");
    support_put(dir, "tokenizer.json", json);
    free(json);
    return load(x, dir, e);
}

static void open_json(struct fixture *x, const char *before, const char *model)
{
    struct error e = {0};

    ck_assert_msg(load_json(x, before, model, &e) == 0, "%s", e.text);
}

/* pre: NULL: the file names none. A control token "<|end|>" and one of the user's come last. */
static int load_gguf(struct fixture *x, const char *pre, bool merges, struct error *e)
{
    static struct made_file m;
    char path[512];
    const char *tokens[BYTE_LEVEL_IDS + 2];
    uint32_t types[BYTE_LEVEL_IDS + 2];
    struct bytes b;

    m = (struct made_file){0};
    for (int i = 0; i < BYTE_LEVEL_IDS; i++) {
        tokens[i] = strdup(byte_level_token(i));
        types[i] = 1;
    }
    tokens[BYTE_LEVEL_IDS] = strdup("<|end|>");
    types[BYTE_LEVEL_IDS] = 3;
    tokens[BYTE_LEVEL_IDS + 1] = strdup("  ");
    types[BYTE_LEVEL_IDS + 1] = 4;
    meta_string(&m, "general.architecture", "qwen3moe");
    meta_string(&m, "tokenizer.ggml.model", "gpt2");
    if (pre)
        meta_string(&m, "tokenizer.ggml.pre", pre);
    meta_strings(&m, "tokenizer.ggml.tokens", tokens, BYTE_LEVEL_IDS + 2);
    meta_u32s(&m, "tokenizer.ggml.token_type", types, BYTE_LEVEL_IDS + 2);
    if (merges)
        meta_strings(&m, "tokenizer.ggml.merges", byte_level_merges, BYTE_LEVEL_MERGES);
    b = made_gguf(&m);
    snprintf(path, sizeof path, "%s/t.gguf", support_tmpdir());
    ck_assert_int_eq(save(&b, path), 0);
    free(b.data);
    made_release(&m);
    for (int i = 0; i < BYTE_LEVEL_IDS + 2; i++)
        free((char *)tokens[i]);
    return load(x, path, e);
}

static void close_it(struct fixture *x)
{
    tokenizer_free(x->t);
    weight_file_close(x->file);
}

/* want: ids up to a -1. */
static void check_ids(const struct tokenizer *t, const char *text, bool special, const int *want)
{
    struct error e = {0};
    int *ids, n;

    ck_assert_msg(tokenizer_encode(t, text, strlen(text), special, &ids, &n, &e) == 0, "%s",
                  e.text);
    for (int i = 0; i < n; i++)
        ck_assert_msg(want[i] == ids[i], "'%s': id %d is %d, not %d", text, i, ids[i], want[i]);
    ck_assert_msg(want[n] == -1, "'%s': %d ids", text, n);
    mem_free(ids);
}

static const struct {
    const char *pre, *text;
    int ids[16];
} named[] = {
    /* merges by rank within a stretch, blanks at its front */
    {"gpt-2", "the hell", {116, 256, 32, 261, -1}},
    {"gpt-2", "a the", {97, 258, -1}},
    {"gpt-2", "\u00e9", {265, -1}},
    /* digits: together, one by one, in threes */
    {"gpt-2", "12 123", {260, 32, 260, 51, -1}},
    {"qwen2", "12 123", {49, 50, 32, 49, 50, 51, -1}},
    {"llama-bpe", "12 1212", {260, 32, 260, 49, 50, -1}},
    {"gpt-4o", "1212", {260, 49, 50, -1}},
    {"starcoder", "12", {49, 50, -1}},
    {"kimi-k2", "12", {260, -1}},
    /* in threes from the right, but before a letter */
    {"cohere2moe", "1212", {49, 50, 260, -1}},
    {"cohere2moe", "1212x", {260, 49, 50, 120, -1}},
    /* composed first where the family's own file says so */
    {"qwen2", "e\u0301", {265, -1}},
    {"olmo", "e\u0301", {265, -1}},
    {"gpt-2", "e\u0301", {101, 0xcc, 0x81, -1}},
    /* signs: from letters apart or a part of the word before */
    {"gpt-2", "a-b", {97, 45, 98, -1}},
    {"qwen2", "a-b", {97, 263, -1}},
    {"qwen2", "a--b", {97, 264, 98, -1}},
    /* a stretch that is a token, whatever the merges say */
    {"glm4", "hell", {261, -1}},
    /* users' and control tokens are read as they are written */
    {"gpt-2", "a  b", {97, 267, 98, -1}},
    {"gpt-2", "a<|end|>", {97, 266, -1}},
};

START_TEST(a_name_cuts_as_its_family)
{
    struct fixture x;
    struct error e = {0};

    ck_assert_msg(load_gguf(&x, named[_i].pre, true, &e) == 0, "%s", e.text);
    ck_assert_ptr_null(tokenizer_notice(x.t));
    check_ids(x.t, named[_i].text, true, named[_i].ids);
    close_it(&x);
}
END_TEST

START_TEST(an_unknown_name_is_said)
{
    static const char *const names[] = {"no-such-\033[31mpre", NULL, ""};
    struct fixture x;
    struct error e = {0};
    bool add;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        ck_assert_msg(load_gguf(&x, names[i], true, &e) == 0, "%s", e.text);
        ck_assert_ptr_nonnull(tokenizer_notice(x.t));
        ck_assert_ptr_null(strchr(tokenizer_notice(x.t), '\033'));
        if (names[i] && *names[i])
            ck_assert_ptr_nonnull(strstr(tokenizer_notice(x.t), "no-such-"));
        tokenizer_bos(x.t, &add);
        ck_assert(!add);
        /* as "default": digits together, signs apart */
        check_ids(x.t, "3-a", true, (const int[]){51, 45, 97, -1});
        close_it(&x);
    }
}
END_TEST

START_TEST(merges_must_be_there)
{
    struct fixture x;
    struct error e = {0};

    ck_assert_int_eq(load_gguf(&x, "gpt-2", false, &e), ERR_MODEL);
    ck_assert_ptr_nonnull(strstr(e.text, "merges"));
    close_it(&x);
}
END_TEST

static void check_round_trips(const struct tokenizer *t, const char *what)
{
    struct error e = {0};
    unsigned seed = 7;

    for (int round = 0; round < 20; round++) {
        char in[200], *out;
        int *ids, n;
        size_t len;

        for (size_t i = 0; i < sizeof in; i++) {
            seed = seed * 1664525u + 1013904223u;
            in[i] = seed >> 31 ? "he  12l<|e'\xe2\x96\x80\n"[seed >> 24 & 15] : (char)(seed >> 16);
        }
        ck_assert_msg(tokenizer_encode(t, in, sizeof in, false, &ids, &n, &e) == 0, "%s: %s", what,
                      e.text);
        ck_assert_int_eq(tokenizer_decode(t, ids, n, false, &out, &len, &e), 0);
        ck_assert_uint_eq(len, sizeof in);
        ck_assert_msg(memcmp(out, in, len) == 0, "%s", what);
        mem_free(ids);
        mem_free(out);
    }
}

/* Every name is found, every expression is one, and no byte is lost where text is not composed. */
START_TEST(every_row_keeps_every_byte)
{
    char name[64];

    for (size_t i = 0; i < sizeof pre_rows / sizeof *pre_rows; i++)
        for (const char *at = pre_rows[i].names; *at; at += strspn(at, " ")) {
            struct fixture x;
            struct error e = {0};
            size_t n = strcspn(at, " ");

            snprintf(name, sizeof name, "%.*s", (int)n, at);
            at += n;
            ck_assert_msg(load_gguf(&x, name, true, &e) == 0, "%s: %s", name, e.text);
            ck_assert_ptr_null(tokenizer_notice(x.t));
            if (!(pre_rows[i].flags & PRE_NFC))
                check_round_trips(x.t, name);
            close_it(&x);
        }
}
END_TEST

static const struct {
    const char *before, *text;
    int ids[16];
} made[] = {
    {PLAIN, "the hell\u00e9", {116, 256, 32, 261, 265, -1}},
    /* a blank before the text, and before what follows an added token */
    {"\"added_tokens\": [{\"id\": 300, \"content\": \"<x>\"}], \"pre_tokenizer\": {\"type\": "
     "\"ByteLevel\"}, ",
     "the<x>the the",
     {258, 300, 258, 258, -1}},
    /* what becomes of a match */
    {SPLIT(REGEX("-"), ISOLATED), "a-b", {97, 45, 98, -1}},
    {SPLIT(REGEX("-"), "\"behavior\": \"Removed\""), "-a-b-", {97, 98, -1}},
    {SPLIT(REGEX("-"), "\"behavior\": \"MergedWithPrevious\""), "a--b", {262, 45, 98, -1}},
    {SPLIT(REGEX("-"), "\"behavior\": \"MergedWithNext\""), "a--b", {97, 45, 263, -1}},
    {SPLIT(REGEX("-"), "\"behavior\": \"Contiguous\""), "a--b", {97, 264, 98, -1}},
    {SPLIT(REGEX("-"), ISOLATED), "a--b", {97, 45, 45, 98, -1}},
    {SPLIT(REGEX("[a-z]"), "\"behavior\": \"Removed\", \"invert\": true"), "a-b", {97, 98, -1}},
    {SPLIT("{\"String\": \"[-]\"}", "\"behavior\": \"Removed\""), "a[-]b-", {97, 98, 45, -1}},
    /* a match of nothing cuts */
    {SPLIT(REGEX("(?=e)"), ISOLATED), "hehe", {104, 101, 104, 101, -1}},
    {SPLIT(REGEX("$"), ISOLATED), "he\nhe", {256, 10, 256, -1}},
    /* \\p{N} of the whole of Unicode, signs of ASCII and beyond */
    {"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\", "
     "\"individual_digits\": true}, " BYTE_LEVEL("false") "]}, ",
     "12",
     {49, 50, -1}},
    {"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
     "\"Punctuation\"}, " BYTE_LEVEL("false") "]}, ",
     "a-b",
     {97, 45, 98, -1}},
    /* BOS within a sequence of post-processors; an added token that spells like a byte is itself */
    {PLAIN "\"added_tokens\": [{\"id\": 300, \"content\": \"\u0120\"}], ",
     "\u0120 ",
     {300, 32, -1}},
};

START_TEST(rules_of_tokenizer_json)
{
    struct fixture x;

    open_json(&x, made[_i].before, "");
    check_ids(x.t, made[_i].text, true, made[_i].ids);
    close_it(&x);
}
END_TEST

START_TEST(ends_among_several_post_processors)
{
    struct fixture x;
    bool add;

    open_json(&x,
              PLAIN "\"added_tokens\": [{\"id\": 300, \"content\": \"<s>\", \"special\": true}, "
                    "{\"id\": 301, \"content\": \"</s>\", \"special\": true}], "
                    "\"post_processor\": {\"type\": \"Sequence\", \"processors\": [{\"type\": "
                    "\"ByteLevel\"}, {\"type\": \"TemplateProcessing\", \"single\": "
                    "[{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}, "
                    "{\"SpecialToken\": {\"id\": \"</s>\"}}]}]}, ",
              "");
    ck_assert_int_eq(tokenizer_bos(x.t, &add), 300);
    ck_assert(add);
    ck_assert_int_eq(tokenizer_last(x.t), 301);
    close_it(&x);
    open_json(&x,
              PLAIN "\"added_tokens\": [{\"id\": 300, \"content\": \"<s>\", \"special\": true}], "
                    "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": "
                    "[{\"SpecialToken\": {\"id\": \"<s>\"}}, {\"Sequence\": {\"id\": \"A\"}}]}, ",
              "");
    ck_assert_int_eq(tokenizer_last(x.t), -1);
    close_it(&x);
}
END_TEST

/* What is typed stays text, also where whole stretches are looked up. */
START_TEST(typed_special_tokens_stay_text)
{
    static const int ids[] = {60, 120, 62, -1};
    struct fixture x;

    open_json(&x,
              "\"added_tokens\": [{\"id\": 300, \"content\": \"<x>\", \"special\": true}], "
              "\"pre_tokenizer\": " BYTE_LEVEL("false") ", ",
              "\"ignore_merges\": true, ");
    check_ids(x.t, "<x>", false, ids);
    check_ids(x.t, "<x>", true, (const int[]){300, -1});
    close_it(&x);
}
END_TEST

START_TEST(random_bytes_come_back)
{
    struct fixture x;

    open_json(&x, PLAIN, "");
    check_round_trips(x.t, "tokenizer.json");
    close_it(&x);
}
END_TEST

/* Half a code point waits for its other half. */
START_TEST(stream_holds_back_half_code_points)
{
    struct fixture x;
    struct detokenizer d;
    char out[64];

    open_json(&x, PLAIN, "");
    detokenizer_init(&d, x.t, true);
    ck_assert_uint_eq(detokenizer_push(&d, 0xf0, out, sizeof out), 0);
    ck_assert_uint_eq(detokenizer_push(&d, 0x9f, out, sizeof out), 0);
    ck_assert_uint_eq(detokenizer_push(&d, 0x99, out, sizeof out), 0);
    detokenizer_push(&d, 0x82, out, sizeof out);
    ck_assert_str_eq(out, "\U0001f642");
    detokenizer_push(&d, 258, out, sizeof out); /* no blank is taken for a dummy prefix */
    ck_assert_str_eq(out, " the");
    ck_assert_uint_eq(detokenizer_push(&d, 0xc3, out, sizeof out), 0);
    detokenizer_finish(&d, out, sizeof out);
    ck_assert_str_eq(out, "\ufffd");
    close_it(&x);
}
END_TEST

static const struct {
    const char *before, *model, *says;
} refused[] = {
    {SPLIT(REGEX("("), ISOLATED), "", "cannot be used"},
    {SPLIT(REGEX("(?<n>a)\\\\k<m>"), ISOLATED), "", "cannot be used"},
    {SPLIT(REGEX("a\\\\C"), ISOLATED), "", "cannot be used"},
    {SPLIT(REGEX(""), ISOLATED), "", "0 bytes"},
    {SPLIT(REGEX("[\\\\p{L}&&[^a]]"), ISOLATED), "", "set operations"},
    {SPLIT(REGEX("[a[b]]"), ISOLATED), "", "set operations"},
    {SPLIT(REGEX("\\\\h"), ISOLATED), "", "set operations"},
    {SPLIT(REGEX("a"), "\"behavior\": \"Sideways\""), "", "Sideways"},
    {SPLIT("{}", ISOLATED), "", "no pattern"},
    {SPLIT("null", ISOLATED), "", "no pattern"},
    {SPLIT(REGEX("(((((((((((((a{9,65535}){9,65535}){9,65535}){9,65535}){9,65535})))))))))"),
           ISOLATED),
     "", "cannot be used"},
    {"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [" BYTE_LEVEL(
         "true") ", "
                 "{\"type\": \"Digits\"}]}, ",
     "", "'Digits' behind ByteLevel"},
    {"\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, "
     "{\"type\": \"ByteLevel\"}]}, ",
     "", "add_prefix_space"},
    {"\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, ", "", "BertPreTokenizer"},
    {"\"decoder\": {\"type\": \"ByteLevel\"}, ", "", "decoder 'ByteLevel'"},
    {PLAIN, "\"end_of_word_suffix\": \"</w>\", ", "end_of_word_suffix"},
};

START_TEST(what_cannot_be_done_is_refused)
{
    struct fixture x;
    struct error e = {0};

    ck_assert_int_eq(load_json(&x, refused[_i].before, refused[_i].model, &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, refused[_i].says) != NULL, "%s", e.text);
    ck_assert_ptr_null(strchr(e.text, '\n'));
    close_it(&x);
}
END_TEST

START_TEST(too_many_steps_are_refused)
{
    struct fixture x;
    struct error e = {0};
    char before[4096] = "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [";

    for (int i = 0; i < 40; i++)
        strcat(before, "{\"type\": \"Digits\"}, ");
    strcat(before, BYTE_LEVEL("false") "]}, ");
    ck_assert_int_eq(load_json(&x, before, "", &e), ERR_MODEL);
    ck_assert_msg(strstr(e.text, "steps") != NULL, "%s", e.text);
    close_it(&x);
}
END_TEST

static bool stops_at_third(void *ctx)
{
    return ++*(int *)ctx == 3;
}

/* Expressions whose search takes for ever, or as the square of the text: either an error that names
 * them, or the text is read; and whoever waits may end it. */
START_TEST(hostile_patterns_end)
{
    static const char *const patterns[] = {
        "(a+)+b",     "(a|aa)+$x",       "(?:a|a)*b",   "(.*)(.*)(.*)(.*)(.*)x", "a*b",
        "(a*)\\\\1b", "(?=(a+))\\\\1*b", "(?:(?R)|a)b", "a+?b|(?<=a)a*c",
    };
    static char text[20001];

    memset(text, 'a', sizeof text - 1);
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        char before[1024];
        struct fixture x;
        struct error e = {0};
        int *ids, n, asked = 0, status;
        struct stop stop = {stops_at_third, &asked};

        snprintf(before, sizeof before, SPLIT("{\"Regex\": \"%s\"}", ISOLATED), patterns[i]);
        open_json(&x, before, "");
        status = tokenizer_encode(x.t, text, sizeof text - 1, false, &ids, &n, &e);
        ck_assert_msg(status == 0 || (status == ERR_INPUT && strstr(e.text, "too many steps")),
                      "%s: %s", patterns[i], e.text);
        ck_assert(status < 0 || n == sizeof text - 1);
        mem_free(ids);
        status = tokenizer_encode_masked(x.t, text, sizeof text - 1, false, NULL, &stop, &ids, &n,
                                         NULL, &e);
        ck_assert_msg(status == ERR_CANCELLED || status == ERR_INPUT, "%s", patterns[i]);
        close_it(&x);
    }
}
END_TEST

/* Long runs of one kind cost what other texts cost, with the patterns of every row. */
START_TEST(long_runs_are_read)
{
    static const char *const kinds[] = {"a", "A",    " ",      "\n",     " \t", "1",
                                        "-", "\xff", "\u4e2d", "\u0301", "'",   "<|"};
    size_t size = 1 << 17;
    char *text = malloc(size);

    for (size_t i = 0; i < sizeof pre_rows / sizeof *pre_rows; i++)
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            char name[64];
            struct fixture x;
            struct error e = {0};
            size_t unit = strlen(kinds[k]), len = 0;
            int *ids, n;

            snprintf(name, sizeof name, "%.*s", (int)strcspn(pre_rows[i].names, " "),
                     pre_rows[i].names);
            for (; len + unit <= size; len += unit)
                memcpy(text + len, kinds[k], unit);
            text[len - 1] = kinds[k][0] == ' ' ? 'x' : text[len - 1];
            ck_assert_int_eq(load_gguf(&x, name, true, &e), 0);
            ck_assert_msg(tokenizer_encode(x.t, text, len, true, &ids, &n, &e) == 0, "%s: '%s': %s",
                          name, kinds[k], e.text);
            mem_free(ids);
            close_it(&x);
        }
    free(text);
}
END_TEST

START_TEST(long_text_can_be_interrupted)
{
    static const char *const kinds[] = {"a", " a", "\xff", "<x>", "1"};
    struct fixture x;
    size_t size = 1 << 18;
    char *text = malloc(size);

    open_json(&x, PLAIN "\"added_tokens\": [{\"id\": 300, \"content\": \"<x>\"}], ", "");
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        struct error e = {0};
        int *ids, n, asked = 0;
        struct stop stop = {stops_at_third, &asked};

        for (size_t i = 0; i < size; i++)
            text[i] = kinds[k][i % strlen(kinds[k])];
        ck_assert_int_eq(tokenizer_encode_masked(x.t, text, size, true, NULL, &stop, &ids, &n, NULL,
                                                 &e),
                         ERR_CANCELLED);
        ck_assert_int_eq(asked, 3);
    }
    free(text);
    close_it(&x);
}
END_TEST

/* "No limit" in a published tokenizer_config.json is an integer beyond 64 bits. */
START_TEST(wide_integers_are_read)
{
    struct fixture x;
    struct error e = {0};
    const char *dir = support_tmpdir();
    char *json = byte_level_json(PLAIN, "");
    struct meta_value v;

    support_put(dir, "config.json", "{\"model_type\": \"qwen3_moe\"}");
    support_put(dir, "tokenizer.json", json);
    support_put(dir, "tokenizer_config.json",
                "{\"model_max_length\": 1000000000000000019884624838656, \"a\": "
                "[-99999999999999999999,0.12345678901234567890123,1e5], "
                "\"said\": \"\\\"10000000000000000000000\", \"add_bos_token\": true}");
    free(json);
    ck_assert_msg(load(&x, dir, &e) == 0, "%s", e.text);
    v = weight_file_meta(x.file, "tokenizer_config.json:said");
    ck_assert(v.type == META_STRING && v.len == 24);
    ck_assert_mem_eq(v.s, "\"10000000000000000000000", 24);
    v = weight_file_meta(x.file, "tokenizer_config.json:model_max_length");
    ck_assert(v.type == META_FLOAT && v.f == 1000000000000000019884624838656.0);
    close_it(&x);
}
END_TEST

/* Python writes numbers that are no JSON: time_step_limit of a published config.json is [0.0,
 * Infinity]. */
START_TEST(what_python_writes_is_read)
{
    struct fixture x;
    struct error e = {0};
    const char *dir = support_tmpdir();
    char *json = byte_level_json(PLAIN, "");
    struct meta_value v;

    support_put(dir, "config.json",
                "{\"model_type\": \"qwen3_moe\", \"limit\": [0.0, Infinity], \"least\": -Infinity, "
                "\"said\": \"NaN \\\" -Infinity\", \"none\":NaN}");
    support_put(dir, "tokenizer.json", json);
    support_put(dir, "tokenizer_config.json", "{\"add_bos_token\": true, \"x\": Infinity}");
    free(json);
    ck_assert_msg(load(&x, dir, &e) == 0, "%s", e.text);
    ck_assert_int_eq(weight_file_meta(x.file, "limit.0").type, META_FLOAT);
    ck_assert_int_eq(weight_file_meta(x.file, "limit.1").type, META_NONE);
    ck_assert_int_eq(weight_file_meta(x.file, "least").type, META_NONE);
    ck_assert_int_eq(weight_file_meta(x.file, "none").type, META_NONE);
    v = weight_file_meta(x.file, "said");
    ck_assert(v.type == META_STRING && v.len == 15);
    ck_assert_mem_eq(v.s, "NaN \" -Infinity", 15);
    close_it(&x);
    support_put(dir, "config.json", "{\"model_type\": Infinit, \"limit\": Infinity}");
    ck_assert(load(&x, dir, &e) != 0);
    ck_assert_msg(strstr(e.text, "not valid JSON: line 1, column 22") != NULL, "%s", e.text);
}
END_TEST

#define CUT(regex, behavior)                                                                 \
    "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", " \
    "\"pattern\": {\"Regex\": \"" regex "\"}, \"behavior\": \"" behavior                     \
    "\"}, " BYTE_LEVEL("false") "]}, "
#define ADDED(id, text, more) \
    "{\"id\": " id ", \"content\": \"" text "\", \"normalized\": false" more "}"
#define SINGLE ", \"single_word\": true"

/* What the reference library (tokenizers 0.23) makes of rare settings. */
START_TEST(rare_settings)
{
    static const struct {
        const char *before, *text;
        int ids[16];
    } cases[] = {
        /* a token that does not stand alone is passed by, and what lies in it too */
        {"\"added_tokens\": [" ADDED("300", "ab", SINGLE) ", " ADDED("301", "b", "") "], " PLAIN,
         "xab ab b",
         {120, 97, 98, 32, 300, 32, 301, -1}},
        /* blanks that a token took along may be tokens */
        {"\"added_tokens\": [" ADDED("302", "<r>", ", \"rstrip\": true") ", " ADDED("303", "  ",
                                                                                    "") "], " PLAIN,
         "<r>     x",
         {302, 303, 303, 32, 120, -1}},
        /* an added token may be a byte of the vocabulary */
        {"\"added_tokens\": [" ADDED("98", "b", SINGLE) "], " PLAIN, "ab b", {97, 98, 32, 98, -1}},
        {"\"normalizer\": {\"type\": \"Lowercase\"}, " PLAIN,
         "\u0130A",
         {0x69, 0xcc, 0x87, 0x61, -1}},
        /* \w and \b are Oniguruma's */
        {CUT("\\\\w", "Removed"), "a\u24b6\u00bd_e\u0301\u2460!", {0xe2, 0x91, 0xa0, 33, -1}},
        {CUT("[\\\\w!]", "Removed"), "a\u24b6?\u2460!", {63, 0xe2, 0x91, 0xa0, -1}},
        {CUT("[]\\\\w]|\\\\W(?=:)", "Removed"), "a]?:[", {58, 91, -1}},
        {CUT("\\\\b!", "Removed"),
         "a!\u2460!\u24b6!",
         {97, 0xe2, 0x91, 0xa0, 33, 0xe2, 0x92, 0xb6, -1}},
        {CUT("\\\\B!", "Removed"), "a!\u2460!", {97, 33, 0xe2, 0x91, 0xa0, -1}},
        {CUT("[[:digit:]\\\\w-]", "Removed"), "1a-[", {91, -1}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture x;

        open_json(&x, cases[i].before, "");
        check_ids(x.t, cases[i].text, true, cases[i].ids);
        close_it(&x);
    }
}
END_TEST

/* Neither the character nor a token for unknown ones: its neighbours meet. */
START_TEST(characters_without_a_token)
{
    static const char json[] =
        "{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": "
        "\"\u2581\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"\u2581\": 0, \"a\": 1, "
        "\"\u2581a\": 2, \"\u2581\u2581\": 3}, \"merges\": [\"\u2581 a\", \"\u2581 \u2581\"]}}";
    static const int ids[] = {2, 0, 2, -1};
    const char *dir = support_tmpdir();
    struct error e = {0};
    struct fixture x;

    support_put(dir, "config.json", "{\"model_type\": \"qwen3_moe\"}");
    support_put(dir, "tokenizer.json", json);
    ck_assert_msg(load(&x, dir, &e) == 0, "%s", e.text);
    check_ids(x.t, " \u00e9a z za", false, ids);
    close_it(&x);
}
END_TEST

/* The same tokenizer in the files that came before tokenizer.json. */
START_TEST(vocabulary_and_merges_are_enough)
{
    static const struct {
        const char *config, *text, *says;
        int ids[8];
    } cases[] = {
        {"{\"tokenizer_class\": \"GPT2Tokenizer\"}", "the 12", NULL, {116, 256, 32, 260, -1}},
        {"{\"tokenizer_class\": \"Qwen2TokenizerFast\", \"added_tokens_decoder\": {\"300\": "
         "{\"content\": \"<x>\", \"special\": true}}}",
         "12<x>e\u0301",
         NULL,
         {49, 50, 300, 265, -1}},
        {"{\"tokenizer_class\": \"Other\"}", NULL, "'Other'", {0}},
        {"{}", NULL, "tokenizer.json", {0}},
        {"{\"tokenizer_class\": \"GPT2Tokenizer\", \"added_tokens_decoder\": {\"x\": {}}}",
         NULL,
         "damaged",
         {0}},
        {"{\"tokenizer_class\": \"GPT2Tokenizer\", \"added_tokens_decoder\": {\"1\": 7}}",
         NULL,
         "damaged",
         {0}},
    };
    const char *dir = support_tmpdir();
    char *json = byte_level_json("", ""), merges[1024] = "#version: 0.2\n";

    for (int i = 0; i < BYTE_LEVEL_MERGES; i++)
        strcat(strcat(merges, byte_level_merges[i]), i % 2 ? "\r\n" : "\n");
    *strstr(json, ", \"merges\"") = 0;
    support_put(dir, "config.json", "{\"model_type\": \"gpt2\"}");
    support_put(dir, "vocab.json", strstr(json, "\"vocab\": ") + 9);
    support_put(dir, "merges.txt", merges);
    free(json);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture x;
        struct error e = {0};
        int status;

        support_put(dir, "tokenizer_config.json", cases[i].config);
        status = load(&x, dir, &e);
        ck_assert_msg(status == (cases[i].says ? ERR_MODEL : 0), "%s", e.text);
        if (cases[i].says)
            ck_assert_msg(strstr(e.text, cases[i].says) != NULL, "%s", e.text);
        else
            check_ids(x.t, cases[i].text, true, cases[i].ids);
        close_it(&x);
    }
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    struct fixture x;
    struct error e = {0};
    struct tokenizer *t = NULL;
    int *ids, n, status = -1;

    open_json(&x,
              "\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
              "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a)|b\"}, "
              "\"behavior\": \"Isolated\"}, " BYTE_LEVEL("true") "]}, ",
              "");
    for (long k = 0; status < 0; k++) {
        mem_fail_after(k);
        status = tokenizer_load(&t, x.file, &e);
        mem_fail_after(-1);
        ck_assert_msg(status == 0 || (status == ERR_MEMORY && !t), "%s", e.text);
        ck_assert_int_lt(k, 10000);
    }
    tokenizer_free(t);
    status = -1;
    for (long k = 0; status < 0; k++) {
        mem_fail_after(k);
        status = tokenizer_encode(x.t, "aBb ab\xff 12", 10, true, &ids, &n, &e);
        mem_fail_after(-1);
        ck_assert(status == 0 || status == ERR_MEMORY);
        ck_assert_int_lt(k, 10000);
    }
    mem_free(ids);
    close_it(&x);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("byte_level");
    TCase *c = tcase_create("byte_level");

    tcase_set_timeout(c, 240);
    tcase_add_loop_test(c, a_name_cuts_as_its_family, 0, sizeof named / sizeof *named);
    tcase_add_test(c, an_unknown_name_is_said);
    tcase_add_test(c, merges_must_be_there);
    tcase_add_test(c, every_row_keeps_every_byte);
    tcase_add_loop_test(c, rules_of_tokenizer_json, 0, sizeof made / sizeof *made);
    tcase_add_test(c, ends_among_several_post_processors);
    tcase_add_test(c, typed_special_tokens_stay_text);
    tcase_add_test(c, random_bytes_come_back);
    tcase_add_test(c, stream_holds_back_half_code_points);
    tcase_add_loop_test(c, what_cannot_be_done_is_refused, 0, sizeof refused / sizeof *refused);
    tcase_add_test(c, too_many_steps_are_refused);
    tcase_add_test(c, hostile_patterns_end);
    tcase_add_test(c, long_runs_are_read);
    tcase_add_test(c, long_text_can_be_interrupted);
    tcase_add_test(c, wide_integers_are_read);
    tcase_add_test(c, what_python_writes_is_read);
    tcase_add_test(c, rare_settings);
    tcase_add_test(c, characters_without_a_token);
    tcase_add_test(c, vocabulary_and_merges_are_enough);
    tcase_add_test(c, every_allocation_may_fail);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
