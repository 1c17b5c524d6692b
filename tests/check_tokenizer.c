/* The tokenizer against the reference library's ids: from tokenizer.json and from the GGUF inside
 * the bundled model; hostile and long texts; the streaming detokeniser; damaged tokenizer files;
 * every allocation failing once. */
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/file/weights.h"
#include "engine/text/tokenizer.h"
#include "tests/support.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fixture {
    struct weight_file *file;
    struct tokenizer *t;
};

static bool open_at(struct fixture *x, const char *path)
{
    struct error e = {0};

    *x = (struct fixture){0};
    if (!path)
        return false;
    ck_assert_msg(weight_file_open(&x->file, path, true, &e) == 0, "%s", e.text);
    ck_assert_msg(tokenizer_load(&x->t, x->file, &e) == 0, "%s", e.text);
    return true;
}

static void close_it(struct fixture *x)
{
    tokenizer_free(x->t);
    weight_file_close(x->file);
}

static void check_ids(const struct tokenizer *t, const char *text, size_t len, bool special,
                      const json_t *want)
{
    struct error e = {0};
    int *ids, n;

    ck_assert_msg(tokenizer_encode(t, text, len, special, &ids, &n, &e) == 0, "%s", e.text);
    ck_assert_msg(n == (int)json_array_size(want), "'%s': %d ids, not %zu", text, n,
                  json_array_size(want));
    for (int i = 0; i < n; i++)
        ck_assert_msg(ids[i] == json_integer_value(json_array_get(want, (size_t)i)),
                      "'%s': id %d is %d", text, i, ids[i]);
    mem_free(ids);
}

static void check_text(const struct tokenizer *t, const json_t *ids, bool skip, const json_t *want)
{
    struct error e = {0};
    struct detokenizer d;
    int list[1024], n = (int)json_array_size(ids);
    char *text, streamed[8192], piece[256];
    size_t len, at = 0;

    for (int i = 0; i < n; i++)
        list[i] = (int)json_integer_value(json_array_get(ids, (size_t)i));
    ck_assert_int_eq(tokenizer_decode(t, list, n, skip, &text, &len, &e), 0);
    ck_assert_uint_eq(len, json_string_length(want));
    ck_assert_mem_eq(text, json_string_value(want), len);
    mem_free(text);
    detokenizer_init(&d, t, skip);
    for (int i = 0; i <= n; i++) {
        size_t k = i < n ? detokenizer_push(&d, list[i], piece, sizeof piece)
                         : detokenizer_finish(&d, piece, sizeof piece);

        ck_assert(utf8_valid(piece, k));
        memcpy(streamed + at, piece, k);
        at += k;
    }
    ck_assert_uint_eq(at, len);
    ck_assert_mem_eq(streamed, json_string_value(want), len);
}

static void check_golden(const char *model, const char *cases)
{
    struct fixture x;
    json_error_t where;
    json_t *root, *c;
    size_t i, n = 0;

    if (!open_at(&x, model))
        return;
    root = json_load_file(cases, JSON_ALLOW_NUL, &where);
    ck_assert_msg(root != NULL, "%s", where.text);
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const json_t *text = json_object_get(c, "text"), *ids = json_object_get(c, "ids");

        check_ids(x.t, json_string_value(text), json_string_length(text), true, ids);
        check_text(x.t, ids, false, json_object_get(c, "decoded"));
        check_text(x.t, ids, true, json_object_get(c, "decoded_skip_special"));
        n++;
    }
    json_array_foreach(json_object_get(root, "chats"), i, c)
    {
        const json_t *text = json_object_get(c, "text");

        check_ids(x.t, json_string_value(text), json_string_length(text), true,
                  json_object_get(c, "ids"));
        n++;
    }
    ck_assert_uint_gt(n, 60);
    json_decref(root);
    close_it(&x);
}

START_TEST(golden_cases_from_the_bundled_gguf)
{
    check_golden(support_demo(), support_path("golden/demo/tokenizer-cases.json"));
}
END_TEST

/* The same file without its list of merges, as converters write it: pairs are then merged by score.
 */
START_TEST(golden_cases_by_score)
{
    static char path[512];
    FILE *in = fopen(support_demo(), "rb"), *out;
    size_t len = 32 << 20;
    char *data = malloc(len), *key;

    ck_assert_ptr_nonnull(in);
    len = fread(data, 1, len, in);
    fclose(in);
    key = memmem(data, len, "tokenizer.ggml.merges", 21);
    ck_assert_ptr_nonnull(key);
    key[20] = 'x';
    snprintf(path, sizeof path, "%s/by-score.gguf", support_tmpdir());
    out = fopen(path, "wb");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(data, 1, len, out), len);
    fclose(out);
    free(data);
    check_golden(path, support_path("golden/demo/tokenizer-cases.json"));
}
END_TEST

START_TEST(golden_cases_from_the_demo_folder)
{
    check_golden(support_shared("demo/tiny-storyteller"),
                 support_path("golden/demo/tokenizer-cases.json"));
}
END_TEST

START_TEST(golden_cases_of_phi_tiny_moe)
{
    check_golden(support_shared("phi-tiny-moe"),
                 support_path("golden/phi-tiny-moe/tokenizer-cases.json"));
}
END_TEST

/* The published byte-level tokenizers, with their own cases. */
START_TEST(golden_cases_of_published_tokenizers)
{
    static const char *const names[] = {"gpt2", "qwen2", "qwen3", "granite", "olmoe", "gpt_oss"};
    char path[64], cases[1024];
    const char *folder;

    snprintf(path, sizeof path, "tokenizers/%s", names[_i]);
    folder = support_shared(path);
    if (!folder)
        return;
    snprintf(cases, sizeof cases, "%s/tokenizer-cases.json", folder);
    check_golden(folder, cases);
}
END_TEST

/* What is typed stays text: no control token is read in it, and it comes back letter by letter. */
START_TEST(typed_special_tokens_stay_text)
{
    static const char *const typed[] = {"<|end|>", "<|user|>\nHi<|end|>\n<|assistant|>\n",
                                        "<s>struck</s> out", "a<|endoftext|>b", "<unk>"};
    struct fixture x;
    struct error e = {0};

    ck_assert(open_at(&x, support_demo()));
    for (size_t i = 0; i < sizeof typed / sizeof *typed; i++) {
        int *ids, n;
        char *text;
        size_t len;
        bool special;

        ck_assert_int_eq(tokenizer_encode(x.t, typed[i], strlen(typed[i]), false, &ids, &n, &e), 0);
        for (int k = 0; k < n; k++) {
            const char *p = tokenizer_piece(x.t, ids[k], &len, &special);

            ck_assert_msg(!special && !(len > 3 && p[0] == '<' && p[len - 1] == '>' &&
                                        strncmp(p, "<0x", 3) != 0),
                          "'%s' became a token", p);
        }
        ck_assert_int_eq(tokenizer_decode(x.t, ids, n, false, &text, NULL, &e), 0);
        ck_assert_str_eq(text, typed[i]);
        mem_free(text);
        mem_free(ids);
    }
    close_it(&x);
}
END_TEST

/* The mask hides control tokens in part of a text; the rest is read as always, blanks swallowed
 * across the border included. */
START_TEST(mask_covers_what_was_typed)
{
    static const char text[] = "<|user|>\n <|end|> x<|end|>\n<|assistant|>\n";
    unsigned char plain[sizeof text - 1] = {0};
    struct fixture x;
    struct error e = {0};
    int *ids, n, end, found = 0;
    size_t *offsets;

    memset(plain + 9, 1, 10);
    ck_assert(open_at(&x, support_demo()));
    end = tokenizer_find(x.t, "<|end|>", 7);
    ck_assert_int_eq(tokenizer_encode_masked(x.t, text, sizeof text - 1, true, plain, NULL, &ids,
                                             &n, &offsets, &e),
                     0);
    for (int i = 0; i < n; i++)
        if (ids[i] == end) {
            found++;
            ck_assert_uint_eq(offsets[i], 19);
        }
    ck_assert_int_eq(found, 1);
    ck_assert_int_eq(ids[0], tokenizer_find(x.t, "<|user|>", 8));
    ck_assert_int_eq(ids[n - 1], tokenizer_find(x.t, "<|assistant|>", 13));
    mem_free(ids);
    mem_free(offsets);
    close_it(&x);
}
END_TEST

/* Any bytes come back as they were: invalid UTF-8, NULs, everything. */
START_TEST(every_byte_survives)
{
    struct fixture x;
    struct error e = {0};
    unsigned seed = 7;

    ck_assert(open_at(&x, support_demo()));
    for (int round = 0; round < 300; round++) {
        char in[200], *out;
        int *ids, n;
        size_t len;

        for (size_t i = 0; i < sizeof in; i++) {
            seed = seed * 1664525u + 1013904223u;
            in[i] = seed >> 31 ? "abc the <|end\xe2\x96\x80\xf0"[seed >> 24 & 15]
                               : (char)(seed >> 16);
        }
        ck_assert_int_eq(tokenizer_encode(x.t, in, sizeof in, false, &ids, &n, &e), 0);
        ck_assert_int_eq(tokenizer_decode(x.t, ids, n, false, &out, &len, &e), 0);
        ck_assert_uint_eq(len, sizeof in);
        ck_assert_mem_eq(out, in, len);
        mem_free(ids);
        mem_free(out);
    }
    close_it(&x);
}
END_TEST

/* Tokens of one byte each: nothing comes out before a code point is whole, and broken ones become
 * U+FFFD. */
START_TEST(stream_holds_back_half_code_points)
{
    static const struct {
        const char *bytes, *shown;
    } cases[] = {
        {"\xf0\x9f\x99\x82", "\U0001f642"},
        {"\xf0\x9f"
         "a",
         "\ufffd"
         "a"},
        {"\xff"
         "b",
         "\ufffd"
         "b"},
        {"\xe2\x82", "\ufffd"},
        {"\xc3\xa9\xc3", "é\ufffd"},
    };
    struct fixture x;

    ck_assert(open_at(&x, support_demo()));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct detokenizer d;
        char out[64], all[64] = "", name[8];

        detokenizer_init(&d, x.t, true);
        for (const char *p = cases[c].bytes; *p; p++) {
            snprintf(name, sizeof name, "<0x%02X>", (unsigned char)*p);
            ck_assert(utf8_valid(out, detokenizer_push(&d, tokenizer_find(x.t, name, 6), out,
                                                       sizeof out)));
            strcat(all, out);
        }
        detokenizer_finish(&d, out, sizeof out);
        strcat(all, out);
        ck_assert_str_eq(all, cases[c].shown);
    }
    /* a continued text keeps its first space; unknown ids say nothing */
    {
        struct detokenizer d;
        char out[64];

        detokenizer_init(&d, x.t, true);
        d.at_start = false;
        ck_assert_uint_eq(detokenizer_push(&d, -1, out, sizeof out), 0);
        ck_assert_uint_eq(detokenizer_push(&d, 1 << 30, out, sizeof out), 0);
        ck_assert_uint_eq(
            detokenizer_push(&d, tokenizer_find(x.t, "\u2581the", 6), out, sizeof out), 4);
        ck_assert_str_eq(out, " the");
        detokenizer_init(&d, x.t, true);
        ck_assert_uint_eq(
            detokenizer_push(&d, tokenizer_find(x.t, "\u2581the", 6), out, sizeof out), 3);
    }
    close_it(&x);
}
END_TEST

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool stops_at_third(void *ctx)
{
    return ++*(int *)ctx == 3;
}

/* Whoever waits for a long text to be read may change his mind: whatever it is made of. */
START_TEST(long_text_can_be_interrupted)
{
    static const char *const kinds[] = {"a", " a", "\xff", "<|end|>"};
    struct fixture x;
    size_t size = 1 << 18;
    char *text = malloc(size);

    ck_assert(open_at(&x, support_demo()));
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

/* A megabyte without a blank: quadratic merging would take minutes. 32 times the text may cost a
 * few dozen times the time, not 1000. */
START_TEST(long_text_costs_n_log_n)
{
    static const char *const kinds[] = {"a", "ab", "\U0001f642", "he", "<|", " ", "\xff"};
    struct fixture x;
    struct error e = {0};
    char *text = malloc(1 << 20);

    ck_assert(open_at(&x, support_demo()));
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        size_t unit = strlen(kinds[k]), len = 0;
        int *ids, n;
        double start, few, many;

        while (len + unit <= 1 << 20) {
            memcpy(text + len, kinds[k], unit);
            len += unit;
        }
        start = seconds();
        ck_assert_int_eq(tokenizer_encode(x.t, text, len / 32 / unit * unit, true, &ids, &n, &e),
                         0);
        mem_free(ids);
        few = seconds() - start;
        start = seconds();
        ck_assert_int_eq(tokenizer_encode(x.t, text, len, true, &ids, &n, &e), 0);
        mem_free(ids);
        many = seconds() - start;
        ck_assert_msg(many < 3.0 + 200 * few, "'%s': %.3f s, a 32nd of it %.3f s", kinds[k], many,
                      few);
    }
    free(text);
    close_it(&x);
}
END_TEST

/* ---- made-up tokenizer.json files ---- */

static const char *write_folder(const char *json)
{
    const char *dir = support_tmpdir();

    support_put(dir, "config.json", "{\"model_type\": \"phimoe\"}");
    support_put(dir, "tokenizer.json", json);
    return dir;
}

#define VOCAB                                                                                  \
    "\"vocab\": {\"<unk>\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"\u2581\": 4, \"\u2581a\": 5, " \
    "\"<\": 6, \"x\": 7, \">\": 8}"
#define MODEL                                                                             \
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"fuse_unk\": true, " VOCAB \
    ", \"merges\": [\"a b\", [\"\u2581\", \"a\"]]}"

static const struct {
    const char *json, *text;
    int n, ids[12];
} made[] = {
    /* no normalizer: unknown characters fuse; merges in both spellings */
    {"{" MODEL "}", "ab\u2581a??b", 4, {3, 5, 0, 2}},
    /* lstrip, single_word, and one that is normalised */
    {"{\"added_tokens\": [{\"id\": 10, \"content\": \"<x>\", \"lstrip\": true, \"special\": "
     "true}]," MODEL "}",
     "a  <x> a",
     4,
     {1, 10, 0, 1}},
    {"{\"added_tokens\": [{\"id\": 10, \"content\": \"bb\", \"single_word\": true}]," MODEL "}",
     "bb-abb bb",
     6,
     {10, 0, 3, 2, 0, 10}},
    {"{\"added_tokens\": [{\"id\": 10, \"content\": \"BB\", \"normalized\": true}], "
     "\"normalizer\": {\"type\": \"Lowercase\"}," MODEL "}",
     "aBbA",
     3,
     {1, 10, 1}},
    /* longest match first */
    {"{\"added_tokens\": [{\"id\": 10, \"content\": \"<x\"}, {\"id\": 11, \"content\": "
     "\"<x>\"}]," MODEL "}",
     "<x><xa",
     3,
     {11, 10, 1}},
    /* Metaspace: first puts the dummy prefix only before the text, not after an added token */
    {"{\"added_tokens\": [{\"id\": 10, \"content\": \"<x>\"}], \"pre_tokenizer\": {\"type\": "
     "\"Metaspace\", \"replacement\": \"\u2581\","
     "\"prepend_scheme\": \"first\", \"split\": false}," MODEL "}",
     "a a<x>a",
     4,
     {5, 5, 10, 1}},
    {"{\"added_tokens\": [{\"id\": 10, \"content\": \"<x>\"}], \"pre_tokenizer\": {\"type\": "
     "\"Metaspace\", \"replacement\": \"\u2581\","
     "\"prepend_scheme\": \"always\", \"split\": true}," MODEL "}",
     "a a<x>a",
     4,
     {5, 5, 10, 5}},
    {"{\"normalizer\": {\"type\": \"NFKC\"}," MODEL "}", "\uff41\uff42", 1, {3}},
};

START_TEST(rules_of_tokenizer_json)
{
    struct fixture x;
    struct error e = {0};
    int *ids, n;

    ck_assert(open_at(&x, write_folder(made[_i].json)));
    ck_assert_int_eq(
        tokenizer_encode(x.t, made[_i].text, strlen(made[_i].text), true, &ids, &n, &e), 0);
    for (int i = 0; i < n && i < 12; i++)
        ck_assert_msg(ids[i] == made[_i].ids[i], "'%s': id %d is %d, not %d", made[_i].text, i,
                      ids[i], made[_i].ids[i]);
    ck_assert_int_eq(n, made[_i].n);
    mem_free(ids);
    close_it(&x);
}
END_TEST

/* The steps of a decoder, each list beside what `tokenizers` 0.23 makes of it. */
#define DECODED_VOCAB                                                                            \
    "\"vocab\": {\"<unk>\": 0, \"<s>\": 1, \"<0x0A>\": 2, \"<0xC3>\": 3, \"<0xA9>\": 4, "        \
    "\"<0x20>\": 5, \"\u2581\": 6, \"\u2581\u2581a\": 7, \"b\u2581\": 8, \"aa\": 9, \"a\": 10, " \
    "\"ab\": 11, \" \": 12, \" b \": 13}"

static const struct {
    const char *decoder;
    int n, ids[8];
    const char *text;
} decoded[] = {
    /* every mark of the first token */
    {"{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"always\"}",
     3,
     {7, 7, 8},
     "a  ab "},
    {"{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"always\"}",
     3,
     {6, 6, 7},
     "   a"},
    {"{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"always\"}",
     2,
     {2, 7},
     "<0x0A>  a"},
    /* of the scheme never none */
    {"{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"never\"}",
     3,
     {7, 7, 8},
     "  a  ab "},
    {"{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"never\"}",
     2,
     {2, 7},
     "<0x0A>  a"},
    /* bytes count as the first token */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": "
     "\"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"always\"}]}",
     3,
     {3, 4, 7},
     "é  a"},
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": "
     "\"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"always\"}]}",
     4,
     {7, 3, 4, 2},
     "aé\n"},
    /* of one token made of all the marks all go */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, "
     "{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"first\"}]}",
     4,
     {7, 7, 8, 2},
     "aab\n"},
    /* a Strip before Fuse is each token's */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Strip\", "
     "\"content\": \" \", \"start\": 1, \"stop\": 0}]}",
     5,
     {7, 7, 8, 6, 7},
     " a ab  a"},
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Strip\", "
     "\"content\": \" \", \"start\": 1, \"stop\": 0}]}",
     3,
     {5, 12, 13},
     "b "},
    /* and behind it the text's */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}",
     3,
     {7, 7, 8},
     " a  ab "},
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}",
     3,
     {6, 6, 10},
     " a"},
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]}",
     2,
     {1, 7},
     "<s>  a"},
    /* two of them */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 2, \"stop\": 0}]}",
     2,
     {7, 7},
     "a  a"},
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 2, \"stop\": 0}]}",
     4,
     {6, 6, 6, 10},
     " a"},
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 2, \"stop\": 0}]}",
     2,
     {6, 10},
     "a"},
    /* at the end */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 0, \"stop\": 2}]}",
     4,
     {10, 6, 6, 6},
     "a "},
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 0, \"stop\": 2}]}",
     4,
     {10, 8, 10, 8},
     "ab ab"},
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 0, \"stop\": 2}]}",
     2,
     {10, 5},
     "a"},
    /* and at every token's end */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"▁\"}, \"content\": \" \"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, "
     "\"stop\": 1}]}",
     4,
     {13, 13, 10, 8},
     "bbab"},
    /* Replace within a token */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
     "\"aa\"}, \"content\": \"b\"}, {\"type\": \"Fuse\"}]}",
     4,
     {9, 10, 10, 11},
     "baaab"},
    /* and across them */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"Replace\", "
     "\"pattern\": {\"String\": \"aab\"}, \"content\": \"<>\"}]}",
     7,
     {10, 11, 10, 9, 9, 11, 9},
     "<>aaaa<>aa"},
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": \"Replace\", "
     "\"pattern\": {\"String\": \"aab\"}, \"content\": \"<>\"}]}",
     3,
     {10, 10, 10},
     "aaa"},
    /* bytes are texts where nothing reads them */
    {"{\"type\": \"Replace\", \"pattern\": {\"String\": \"▁\"}, \"content\": \" \"}",
     4,
     {2, 7, 3, 4},
     "<0x0A>  a<0xC3><0xA9>"},
    /* steps in their order */
    {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Strip\", \"content\": \" \", \"start\": "
     "1, \"stop\": 0}, {\"type\": \"Replace\", \"pattern\": {\"String\": \"▁\"}, \"content\": \" "
     "\"}]}",
     4,
     {6, 7, 12, 13},
     "   ab "},
};

START_TEST(steps_of_the_decoder)
{
    struct fixture x;
    char json[2048];
    json_t *ids = json_array(), *text = json_string(decoded[_i].text);

    snprintf(
        json, sizeof json,
        "{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true}], "
        "\"decoder\": %s, \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, " DECODED_VOCAB
        ", \"merges\": []}}",
        decoded[_i].decoder);
    for (int i = 0; i < decoded[_i].n; i++)
        json_array_append_new(ids, json_integer(decoded[_i].ids[i]));
    ck_assert(open_at(&x, write_folder(json)));
    check_text(x.t, ids, false, text);
    close_it(&x);
    json_decref(ids);
    json_decref(text);
}
END_TEST

/* A token in the middle of a text keeps its marks, and what a Strip behind Fuse takes at the ends.
 */
START_TEST(text_of_a_token_in_the_middle)
{
    static const struct {
        const char *decoder, *text;
    } cases[] = {
        {"{\"type\": \"Metaspace\", \"replacement\": \"\u2581\", \"prepend_scheme\": \"always\"}",
         "  a"},
        {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
         "{\"String\": "
         "\"\u2581\"}, \"content\": \" \"}, {\"type\": \"Fuse\"}, {\"type\": \"Strip\", "
         "\"content\": "
         "\" \", \"start\": 1, \"stop\": 1}]}",
         "  a"},
        {"{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
         "{\"String\": "
         "\"\u2581\"}, \"content\": \" \"}, {\"type\": \"Strip\", \"content\": \" \", \"start\": "
         "1, "
         "\"stop\": 0}]}",
         " a"},
    };
    char json[2048], out[16];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture x;
        struct detokenizer d;

        snprintf(json, sizeof json,
                 "{\"decoder\": %s, \"model\": {" DECODED_VOCAB ", \"merges\": []}}",
                 cases[i].decoder);
        ck_assert(open_at(&x, write_folder(json)));
        ck_assert_uint_eq(tokenizer_token_text(x.t, 7, out, sizeof out), strlen(cases[i].text));
        ck_assert_mem_eq(out, cases[i].text, strlen(cases[i].text));
        detokenizer_init(&d, x.t, true);
        d.at_start = false;
        ck_assert_uint_eq(detokenizer_push(&d, 7, out, sizeof out), strlen(cases[i].text));
        ck_assert_str_eq(out, cases[i].text);
        close_it(&x);
    }
}
END_TEST

/* ---- unigram ---- */

/* \ufb01 -> fi, e\u0301 -> \u00e9, \u2460 -> 1, \u00a0 -> blank, \u200b -> nothing: as
 * SentencePiece compiles it */
#define CHARSMAP                                                                               \
    "AAQAAACQAQBlPAMAzAACAIEdAAAIAACAoA0AAAEAAICAEAIAiwUAAAAAAICgBQAAAwAAgKwAAgCBDQAABQAAgA4A" \
    "AAARAAAAEAAAABMAAAASAAAAFQAAABQAAACR8AIAFgAAABkAAAAYAAAAGwAAABoAAAAdAAAAHAAAAB8AAAAeAAAA" \
    "IQAAACAAAAAjAAAAIgAAACUAAAAkAAAAJwAAACYAAAApAAAAKAAAACsAAAAqAAAALQAAACwAAAAvAAAALgAAADEA" \
    "AAAwAAAAMwAAADIAAAA1AAAANAAAADcAAAA2AAAAOQAAADgAAAA7AAAAOgAAAD0AAAA8AAAAPwAAAD4AAABBAAAA" \
    "QAAAAEMAAABCAAAARQAAAEQAAABHAAAARgAAAEkAAABIAAAASwAAAEoAAABNAAAATAAAAE8AAABOAAAAUQAAAFAA" \
    "AABTAAAAUgAAAFUAAABUAAAAVwAAAFYAAABZAAAAWAAAAFsAAABaAAAAXQAAAFwAAABfAAAAXgAAAGEAAABgAAAA" \
    "YwAAAGIAAABlAAAAZAAAAGcAAABmAAAAaQAAAGgAAABrAAAAagAAAG0AAABsAAAAbwAAAG4AAABxAAAAcAAAAHMA" \
    "AAByAAAAdQAAAHQAAAB3AAAAdgAAAHkAAAB4AAAAewAAAHoAAAB9AAAAfAAAAH8AAAB+AAAAgQAAAIAAAACDAAAA" \
    "ggAAAIUAAACEAAAA4gQAAIYAAACJAAAAiAAAAIsAAADvrAAAjQAAAIwAAACPAAAAjgAAAJEAAACQAAAAkwAAAJIA" \
    "AACVAAAAlAAAAJcAAACWAAAAmQAAAJgAAACbAAAAmgAAAJ0AAACcAAAAnwAAAJ4AAAChAAAAoAAAAKMAAACiAAAA" \
    "pQAAAKQAAADCDAAApgAAAKkAAACoAAAAqwAAAKoAAACtAAAArAAAAK8AAACuAAAAsQAAALAAAACzAAAAsgAAALUA" \
    "AAC0AAAAtwAAALYAAAC5AAAAuAAAALsAAAC6AAAAvQAAALwAAAC/AAAAvgAAAMEAAADAAAAAwwAAAMIAAADFAAAA" \
    "xAAAAMcAAADGAAAAyQAAAMgAAADLAAAAygAAAM0AAADMAAAAzwAAAM4AAADRAAAA0AAAANMAAADSAAAA1QAAANQA" \
    "AADXAAAA1gAAANkAAADYAAAA2wAAANoAAADdAAAA3AAAAN8AAADeAAAA4QAAAOAAAADjAAAA4gAAAOUAAADkAAAA" \
    "5wAAAOYAAADpAAAA6AAAAOsAAADqAAAA7QAAAOwAAADvAAAA7gAAAPEAAADwAAAA8wAAAPIAAAD1AAAA9AAAAPcA" \
    "AAD2AAAA+QAAAPgAAAD7AAAA+gAAAP0AAAD8AAAA/wAAAP4AAAAAIAAxAGZpAMOpAA=="
#define UNIGRAM(bytes)                                                                             \
    "\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"byte_fallback\": " bytes ", \"vocab\": [" \
    "[\"<unk>\", 0.0], [\"<s>\", 0.0], [\"▁\", -2.0], [\"a\", -3.0], "                           \
    "[\"b\", -3.5], [\"ab\", -6.25], [\"abc\", -9.0], [\"c\", -4.0], "                             \
    "[\"bc\", -6.0], [\"▁a\", -4.0], [\"é\", -5.0], [\"f\", -4.0], [\"i\", -4.0], "             \
    "[\"1\", -4.0], [\"fi\", -7.0], [\"c\", -3.75], [\"e\", -4.5], "                               \
    "[\"<0xC3>\", -9.0], [\"<0xBC>\", -9.0], [\"<0x3F>\", -9.0]"                                   \
    "]}"

/* Ids of `tokenizers` 0.23. */
static const struct {
    const char *json, *text;
    int n, ids[12];
} unigram[] = {
    /* the best sum, not the longest piece; of equals the first; of two with one text the later */
    {"{"
     "" UNIGRAM("false") "}",
     "abcabac",
     4,
     {6, 5, 3, 15}},
    /* unknown characters beside each other are one, their bytes where all have a token */
    {"{"
     "" UNIGRAM("true") "}",
     "aüb?üzzc",
     6,
     {3, 17, 18, 4, 0, 15}},
    {"{"
     "" UNIGRAM("false") "}",
     "aüzbzüzc",
     5,
     {3, 0, 4, 0, 15}},
    /* Metaspace */
    {"{"
     "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": "
     "\"always\"}, " UNIGRAM("false") "}",
     "a ab  c",
     6,
     {9, 9, 4, 2, 2, 15}},
    /* each word is marked */
    {"{"
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
     "\"WhitespaceSplit\"}, {\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": "
     "\"always\"}]}, " UNIGRAM("false") "}",
     " a  \n\tab",
     3,
     {9, 9, 4}},
    /* or the first alone */
    {"{"
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
     "\"WhitespaceSplit\"}, {\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": "
     "\"first\"}]}, " UNIGRAM("false") "}",
     "a ab",
     2,
     {9, 5}},
    /* words and signs */
    {"{"
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Whitespace\"}, "
     "{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": "
     "\"always\"}]}, " UNIGRAM("true") "}",
     "ab?? c",
     7,
     {9, 4, 2, 19, 19, 2, 15}},
    /* a map of characters, by character as seen */
    {"{"
     "\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"" CHARSMAP
     "\"}, " UNIGRAM("false") "}",
     "ﬁ①e\u0301\u200ba",
     4,
     {14, 13, 10, 3}},
    /* ends and runs of blanks */
    {"{"
     "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Strip\", "
     "\"strip_left\": false, \"strip_right\": true}, {\"type\": \"Replace\", \"pattern\": "
     "{\"Regex\": \" {2,}\"}, \"content\": \"▁\"}]}, " UNIGRAM("false") "}",
     " a    b  \n ",
     4,
     {0, 3, 2, 4}},
    /* marks and control characters */
    {"{"
     "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFD\"}, {\"type\": "
     "\"StripAccents\"}, {\"type\": \"Nmt\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": \" "
     "\"}, \"content\": \"▁\"}]}, " UNIGRAM("false") "}",
     "é\001a\ufeffb\u20dd\tc",
     6,
     {16, 3, 2, 4, 2, 15}},
    /* added tokens */
    {"{"
     "\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", \"special\": true, \"single_word\": "
     "false, \"lstrip\": false, \"rstrip\": false, \"normalized\": false}], \"pre_tokenizer\": "
     "{\"type\": \"Metaspace\", \"replacement\": \"▁\", \"prepend_scheme\": \"always\"}, " UNIGRAM(
         "false") "}",
     "a<s>ab",
     4,
     {9, 1, 9, 4}},
};

START_TEST(unigram_of_tokenizer_json)
{
    struct fixture x;
    struct error e = {0};
    int *ids, n;

    ck_assert(open_at(&x, write_folder(unigram[_i].json)));
    ck_assert_int_eq(
        tokenizer_encode(x.t, unigram[_i].text, strlen(unigram[_i].text), true, &ids, &n, &e), 0);
    for (int i = 0; i < n && i < 12; i++)
        ck_assert_msg(ids[i] == unigram[_i].ids[i], "'%s': id %d is %d, not %d", unigram[_i].text,
                      i, ids[i], unigram[_i].ids[i]);
    ck_assert_int_eq(n, unigram[_i].n);
    mem_free(ids);
    close_it(&x);
}
END_TEST

/* What is typed never becomes a control token or a byte token, whatever their scores are. */
START_TEST(unigram_reads_no_control_token_in_text)
{
    static const char typed[] = "<s><0xC3>";
    struct fixture x;
    struct error e = {0};
    int *ids, n;

    ck_assert(open_at(&x, write_folder("{\"added_tokens\": [{\"id\": 1, \"content\": \"<s>\", "
                                       "\"special\": true}], " UNIGRAM("false") "}")));
    ck_assert_int_eq(tokenizer_encode(x.t, typed, sizeof typed - 1, false, &ids, &n, &e), 0);
    for (int i = 0; i < n; i++)
        ck_assert_msg(ids[i] != 1 && ids[i] != 17, "id %d is %d", i, ids[i]);
    ck_assert_int_ge(n, 1);
    mem_free(ids);
    close_it(&x);
}
END_TEST

/* GGUF's "t5": SentencePiece's own ids and texts. */
START_TEST(unigram_of_gguf)
{
    static const struct {
        const char *text;
        int n, ids[40];
        const char *back;
    } cases[] = {
        {"The license of this software",
         14,
         {4, 32, 20, 6, 4, 11, 9, 12, 47, 5, 6, 52, 83, 99},
         "The license of this software"},
        {"  two   blanks and an end  ",
         16,
         {4, 7, 37, 10, 4, 30, 11, 41, 49, 5, 58, 4, 41, 4, 47, 19},
         "two blanks and an end"},
        {"oﬁce ① cafe\u0301 a\u00a0b",
         15,
         {52, 9, 12, 6, 4, 53, 4, 12, 8, 27, 0, 4, 8, 4, 30},
         "ofice 1 caf ⁇  a b"},
        {"字字 of the 字", 6, {4, 0, 52, 33, 4, 0}, " ⁇  of the  ⁇ "},
        {"a\u200bb", 3, {4, 8, 30}, "ab"},
    };
    struct fixture x;
    struct error e = {0};
    int *ids, n;
    char *text;

    ck_assert(open_at(&x, support_path("fuzz/corpus/tokenizer/t5.gguf")));
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        ck_assert_int_eq(
            tokenizer_encode(x.t, cases[c].text, strlen(cases[c].text), true, &ids, &n, &e), 0);
        ck_assert_int_eq(n, cases[c].n);
        ck_assert_mem_eq(ids, cases[c].ids, (size_t)n * sizeof *ids);
        ck_assert_int_eq(tokenizer_decode(x.t, ids, n, true, &text, NULL, &e), 0);
        if (!strstr(cases[c].back, "\u2047")) /* how SentencePiece shows unknown pieces */
            ck_assert_str_eq(text, cases[c].back);
        mem_free(text);
        mem_free(ids);
    }
    close_it(&x);
}
END_TEST

/* Many texts for one id: they must not fill the table that is searched until a free place comes. */
START_TEST(one_id_for_many_texts)
{
    struct fixture x;
    struct error e = {0};
    char json[32768] = "{\"added_tokens\": [";
    size_t at = strlen(json);
    int *ids, n;

    for (int i = 0; i < 300; i++)
        at += (size_t)sprintf(json + at, "%s{\"id\": 0, \"content\": \"<%d>\"}", i ? "," : "", i);
    at += (size_t)sprintf(json + at, "], \"model\": {\"merges\": [], \"vocab\": {");
    for (int i = 0; i < 300; i++)
        at += (size_t)sprintf(json + at, "%s\"v%d\": 1", i ? "," : "", i);
    strcpy(json + at, "}}}");
    ck_assert(open_at(&x, write_folder(json)));
    ck_assert_int_eq(tokenizer_find(x.t, "nowhere", 7), -1);
    ck_assert_int_eq(tokenizer_encode(x.t, "a<7>b<299>", 10, true, &ids, &n, &e), 0);
    ck_assert_int_eq(n, 2);
    mem_free(ids);
    close_it(&x);
}
END_TEST

static const struct {
    const char *json, *says;
} damaged[] = {
    {"", "tokenizer.json"},
    {"{\"model\": {\"type\": \"BPE\", ", "tokenizer.json:1:"},
    {"[]", "not supported"},
    {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {\"a\": 0}}}", "WordPiece"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": []}}", "empty"},
    {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}", "token 0"},
    {"{\"model\": {\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [[\"a\", -1.5]]}}", "unk_id"},
    {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\"}, " UNIGRAM("false") "}", "Unigram of bytes"},
    {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"AAQA\"}, " UNIGRAM(
         "false") "}",
     "charsmap"},
    {"{\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"A?\"}, " UNIGRAM(
         "false") "}",
     "base64"},
    {"{\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a*\"}, \"content\": "
     "\"\"}, " UNIGRAM("false") "}",
     "a*"},
    {"{\"normalizer\": {\"type\": \"BertNormalizer\"}, " UNIGRAM("false") "}", "BertNormalizer"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {}, \"merges\": []}}", "empty"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", "no valid id"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 99999999999}, \"merges\": []}}",
     "no valid id"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": \"0\"}, \"merges\": []}}", "no valid id"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a a\"]}}", "merge 0"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}", "merge 0"},
    {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[1, 2]]}}", "merge 0"},
    {"{\"added_tokens\": [{\"content\": \"x\"}], \"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": "
     "0}, \"merges\": []}}",
     "added token 0"},
    {"{\"normalizer\": {\"type\": \"Precompiled\"}, " MODEL "}", "no map"},
    {"{\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, " MODEL "}", "BertPreTokenizer"},
    {"{\"decoder\": {\"type\": \"WordPiece\"}, " MODEL "}", "WordPiece"},
    {"{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": "
     "\"ByteFallback\"}]}, " MODEL "}",
     "ByteFallback"},
    {"{\"decoder\": {\"type\": \"Strip\", \"content\": \" \", \"start\": 9, \"stop\": 0}, " MODEL
     "}",
     "Strip"},
    {"{\"decoder\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"a\"}, \"content\": "
     "\"\"}, " MODEL "}",
     "Replace"},
};

START_TEST(damaged_files_are_refused)
{
    struct weight_file *f;
    struct tokenizer *t;
    struct error e = {0};

    ck_assert_msg(weight_file_open(&f, write_folder(damaged[_i].json), true, &e) == 0, "%s",
                  e.text);
    ck_assert_int_eq(tokenizer_load(&t, f, &e), ERR_MODEL);
    ck_assert_ptr_null(t);
    ck_assert_msg(strstr(e.text, damaged[_i].says) != NULL, "%s", e.text);
    weight_file_close(f);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    struct fixture x;
    struct error e = {0};
    struct tokenizer *t = NULL;
    int *ids, n, status = -1;
    size_t *offsets;
    unsigned char plain[12] = {0};

    ck_assert(open_at(&x, write_folder(made[3].json)));
    for (long k = 0; status < 0; k++) {
        mem_fail_after(k);
        status = tokenizer_load(&t, x.file, &e);
        mem_fail_after(-1);
        ck_assert(status == 0 || (status == ERR_MEMORY && !t));
        ck_assert_int_lt(k, 10000);
    }
    tokenizer_free(t);
    status = -1;
    for (long k = 0; status < 0; k++) {
        mem_fail_after(k);
        status = tokenizer_encode_masked(x.t, "aBb abab aBB", 12, true, plain, NULL, &ids, &n,
                                         &offsets, &e);
        mem_fail_after(-1);
        ck_assert(status == 0 || status == ERR_MEMORY);
        ck_assert_int_lt(k, 10000);
    }
    mem_free(ids);
    mem_free(offsets);
    close_it(&x);
}
END_TEST

static Suite *suite(void)
{
    Suite *s = suite_create("tokenizer");
    TCase *c = tcase_create("tokenizer");

    tcase_set_timeout(c, 240);
    tcase_add_test(c, golden_cases_from_the_bundled_gguf);
    tcase_add_test(c, golden_cases_by_score);
    tcase_add_test(c, golden_cases_from_the_demo_folder);
    tcase_add_test(c, golden_cases_of_phi_tiny_moe);
    tcase_add_loop_test(c, golden_cases_of_published_tokenizers, 0, 6);
    tcase_add_test(c, typed_special_tokens_stay_text);
    tcase_add_test(c, mask_covers_what_was_typed);
    tcase_add_test(c, every_byte_survives);
    tcase_add_test(c, stream_holds_back_half_code_points);
    tcase_add_test(c, long_text_costs_n_log_n);
    tcase_add_test(c, long_text_can_be_interrupted);
    tcase_add_loop_test(c, rules_of_tokenizer_json, 0, sizeof made / sizeof *made);
    tcase_add_loop_test(c, steps_of_the_decoder, 0, sizeof decoded / sizeof *decoded);
    tcase_add_test(c, text_of_a_token_in_the_middle);
    tcase_add_loop_test(c, unigram_of_tokenizer_json, 0, sizeof unigram / sizeof *unigram);
    tcase_add_test(c, unigram_reads_no_control_token_in_text);
    tcase_add_test(c, unigram_of_gguf);
    tcase_add_test(c, one_id_for_many_texts);
    tcase_add_loop_test(c, damaged_files_are_refused, 0, sizeof damaged / sizeof *damaged);
    tcase_add_test(c, every_allocation_may_fail);
    suite_add_tcase(s, c);
    return s;
}

int main(void)
{
    return support_run(suite());
}
